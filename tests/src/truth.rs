//! The program `truth.c` and what profiles say about it.
//!
//! [`Truth`] is read from the program's own lines; [`Table`] from a text report, perl `jeprof`'s or ours (both print
//! `flat flat% sum% cum cum% name`). [`Truth::judge`] compares them site by site with the bound of
//! [`crate::sampling`]; a site's value is its cumulative column, which does not depend on whether the allocator's own
//! frames or an inlined caller stand above it.

use std::collections::BTreeMap;
use std::path::Path;

use crate::sampling::{self, Site};
use crate::target::{Run, Target};
use crate::{artefact, compile};

/// Usable bytes are what the allocator says; counts are what the program did.
#[derive(Clone, Debug)]
pub struct SiteTruth {
    pub name: String,
    pub usable: u64,
    pub live: u64,
    pub total: u64,
}

#[derive(Clone, Debug, Default)]
pub struct Truth {
    pub sites: Vec<SiteTruth>,
}

/// Rows of a text report by function name: (flat, cumulative) in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    pub rows: BTreeMap<String, (i64, i64)>,
    pub total: i64,
}

/// How the program is compiled, hence how its stacks can be walked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frames {
    Pointers,
    Omitted,
}

/// The compiled program.
pub fn program(frames: Frames) -> std::path::PathBuf {
    let flag = match frames {
        Frames::Pointers => "-fno-omit-frame-pointer",
        Frames::Omitted => "-fomit-frame-pointer",
    };
    compile::program("truth.c", &["-O2", flag])
}

/// Runs `allocate` in a program that is ready and returns what it did.
pub fn allocate(target: &mut Target) -> Truth {
    let before = target.seen().len();
    target.tell("allocate");
    target.wait_for("allocated");
    let sites = target.seen()[before..]
        .iter()
        .filter_map(|line| line.strip_prefix("site "))
        .map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let number = |i: usize| words[i].parse::<u64>().unwrap_or_else(|_| panic!("{line:?}"));
            SiteTruth { name: words[0].to_owned(), usable: number(2), live: number(3), total: number(4) }
        })
        .collect::<Vec<_>>();
    assert_eq!(sites.len(), 20, "the program has 20 sites");
    Truth { sites }
}

impl Table {
    /// Any line of the form `number percent percent number percent name`, and the `Total:` line.
    pub fn parse(text: &str) -> Self {
        let mut table = Self::default();
        for line in text.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            if words.first() == Some(&"Total:") {
                table.total = words[1].parse().unwrap_or_else(|_| panic!("{line:?}"));
            } else if words.len() >= 6 && [1, 2, 4].iter().all(|&i| words[i].ends_with('%')) {
                let number = |i: usize| words[i].parse::<i64>().unwrap_or_else(|_| panic!("{line:?}"));
                let name = words[5..].join(" ");
                // One name may stand on several lines (two addresses of one function): they add up.
                let row = table.rows.entry(name).or_default();
                *row = (row.0 + number(0), row.1 + number(3));
            }
        }
        assert!(!table.rows.is_empty(), "no table in:\n{text}");
        table
    }

    fn cumulative(&self, name: &str) -> f64 {
        self.rows.get(name).map_or(0.0, |row| row.1 as f64)
    }
}

impl Truth {
    /// Live bytes of each site against the table.
    pub fn judge(&self, table: &Table, interval: f64, what: &str) -> Result<(), String> {
        sampling::judge(&self.estimates(table, |site| site.live), interval, what)
    }

    /// Bytes ever allocated. Sites whose call makes more than the object (`realloc` of a fresh block) are left out.
    pub fn judge_total(&self, table: &Table, interval: f64, what: &str) -> Result<(), String> {
        let sites = self.estimates(table, |site| site.total);
        let sites: Vec<Site> =
            sites.into_iter().filter(|site| site.name != "site_12" && site.name != "site_16").collect();
        sampling::judge(&sites, interval, what)
    }

    fn estimates(&self, table: &Table, count: impl Fn(&SiteTruth) -> u64) -> Vec<Site> {
        self.sites
            .iter()
            .map(|site| {
                let estimated_bytes = table.cumulative(&site.name);
                Site {
                    name: site.name.clone(),
                    object_bytes: site.usable as f64,
                    count: count(site) as f64,
                    estimated_count: estimated_bytes / site.usable as f64,
                    estimated_bytes,
                }
            })
            .collect()
    }

    /// Sum of live bytes.
    pub fn live_bytes(&self) -> u64 {
        self.sites.iter().map(|site| site.usable * site.live).sum()
    }
}

/// The perl script's table of a profile; `None` when it is not installed.
pub fn perl_table(program: &Path, profile: &Path, options: &[&str]) -> Option<Table> {
    let jeprof = Path::new("/usr/bin/jeprof");
    if !jeprof.exists() {
        return None;
    }
    let ended = Run::new(jeprof)
        .args(["--text", "--show_bytes", "--cum"])
        .args(options)
        .args([program, profile])
        .limit(std::time::Duration::from_mins(4))
        .finish()
        .ok();
    Some(Table::parse(&ended.stdout))
}

/// `jeprobe report`'s table of a profile.
pub fn our_table(program: &Path, profile: &Path, options: &[&str]) -> Table {
    let ended = Run::new(artefact::command())
        .args(["report", "--show_bytes", "--cum"])
        .args(options)
        .args([program, profile])
        .limit(std::time::Duration::from_mins(4))
        .finish()
        .ok();
    Table::parse(&ended.stdout)
}
