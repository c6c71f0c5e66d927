//! The workloads: name, program, operations, thread counts.
//!
//! Operations are those of a run with one thread: some tenths of a second under jemalloc on a fast core. With `t` threads
//! each does `2 / t` of it, so that a run takes about as long on two cores whatever `t` is. Real programs are started
//! from what the system has; one that is missing is left out and named.
#![forbid(unsafe_code)]

use std::path::PathBuf;

use anyhow::{Result, bail};

use crate::cmd::{find_program, root};

/// What a workload runs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// A program of `tests/bench`, with operations and a variant.
    Own { program: &'static str, ops: u64, variant: &'static str },
    /// A program of the system with arguments; `@/` stands for `tests/bench/`.
    Real { program: &'static str, args: &'static [&'static str], env: &'static [(&'static str, &'static str)] },
    /// A redis server under load of `redis-benchmark`, which runs without the library.
    Redis { requests: u64 },
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Workload {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) threads: &'static [u32],
}

const fn own(
    name: &'static str,
    program: &'static str,
    ops: u64,
    variant: &'static str,
    threads: &'static [u32],
) -> Workload {
    Workload { name, kind: Kind::Own { program, ops, variant }, threads }
}

const ONE: &[u32] = &[1];
const MANY: &[u32] = &[1, 2, 8];
const SEVERAL: &[u32] = &[2, 8];

pub(crate) const ALL: &[Workload] = &[
    own("churn", "churn", 16_000_000, "", MANY),
    own("churn-log", "churn", 12_000_000, "log", MANY),
    own("server", "server", 16_000_000, "", MANY),
    own("server-small", "server", 16_000_000, "small", SEVERAL),
    own("server-wide", "server", 16_000_000, "wide", MANY),
    own("handoff", "handoff", 8_000_000, "", SEVERAL),
    own("handoff-blind", "handoff", 16_000_000, "blind", SEVERAL),
    own("short-threads", "short_threads", 4000, "", MANY),
    own("fragments", "fragments", 3_000_000, "", &[1, 8]),
    own("large", "blocks", 60, "large", ONE),
    own("pages", "blocks", 60_000, "pages", &[1, 8]),
    own("medium", "blocks", 500_000, "medium", &[1, 8]),
    own("grow-small", "grow", 300_000, "small", ONE),
    own("grow", "grow", 10_000, "", ONE),
    own("grow-large", "grow", 300, "large", ONE),
    own("zeroed", "zeroed", 5_000_000, "", &[1, 8]),
    own("aligned", "aligned", 8_000_000, "", ONE),
    own("sized", "sized", 8_000_000, "", &[1, 8]),
    own("fractions", "symbolic", 3_000_000, "fractions", ONE),
    own("terms", "symbolic", 700, "terms", &[1, 8]),
    own("covers", "covers", 1000, "", ONE),
    own("tree-maps", "trees", 2_000_000, "maps", ONE),
    own("tree-nodes", "trees", 12_000_000, "nodes", &[1, 8]),
    own("strings", "strings", 80_000, "", &[1, 8]),
    own("stress", "stress", 200_000, "", MANY),
    own("exchange", "exchange", 6000, "", SEVERAL),
    own("thrash", "sharing", 150_000, "thrash", SEVERAL),
    own("scratch", "sharing", 150_000, "scratch", SEVERAL),
    own("simple", "simple", 16_000_000, "", MANY),
    own("waves", "waves", 16_000_000, "", ONE),
    own("waves-shared", "waves", 16_000_000, "shared", SEVERAL),
    own("nodes", "shared_nodes", 700_000, "", ONE),
    own("nodes-tasks", "shared_nodes", 700_000, "tasks", SEVERAL),
    own("bodies", "bodies", 100, "", ONE),
    Workload { name: "redis", kind: Kind::Redis { requests: 200_000 }, threads: ONE },
    real("python", "/usr/bin/python3", &["@/objects.py"], &[("PYTHONMALLOC", "malloc"), ("PYTHONHASHSEED", "1")]),
    real("sqlite", "sqlite3", &[":memory:", ".read @/tables.sql"], &[]),
    real("gcc", "g++", &["-std=c++17", "-O1", "-S", "-o", "/dev/null", "@/strings.cc"], &[]),
    real("z3", "z3", &["@/puzzles.smt2"], &[]),
    real("lua", "lua5.4", &["@/heap.lua"], &[]),
    real("gs", "gs", GS, &[]),
    real("rocksdb", "db_bench", ROCKSDB, &[]),
];

const GS: &[&str] =
    &["-q", "-dNOPAUSE", "-dBATCH", "-dSAFER", "-sDEVICE=ppmraw", "-r100", "-sOutputFile=/dev/null", "@/pages.ps"];

/// Two threads fill a store and read it; in the scratch folder, without a log.
const ROCKSDB: &[&str] = &[
    "--db=rocksdb",
    "--benchmarks=fillrandom,readrandom,seekrandom",
    "--num=100000",
    "--reads=20000",
    "--threads=2",
    "--compression_type=none",
    "--disable_wal=true",
    "--seed=1",
    "--value_size=100",
    "--write_buffer_size=8388608",
];

const fn real(
    name: &'static str,
    program: &'static str,
    args: &'static [&'static str],
    env: &'static [(&'static str, &'static str)],
) -> Workload {
    Workload { name, kind: Kind::Real { program, args, env }, threads: ONE }
}

/// The folder of the programs' sources.
pub(crate) fn sources() -> PathBuf {
    root().join("tests/bench")
}

/// A workload at one thread count.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    pub(crate) workload: &'static Workload,
    pub(crate) threads: u32,
}

impl Case {
    pub(crate) fn name(&self) -> String {
        if self.workload.threads == ONE {
            self.workload.name.to_owned()
        } else {
            format!("{}/{}", self.workload.name, self.threads)
        }
    }
}

/// The cases that names (all when empty; `NAME` or `NAME/THREADS`) and thread counts (all when empty) select.
pub(crate) fn select(names: &[String], threads: &[u32]) -> Result<Vec<Case>> {
    let mut cases = Vec::new();
    for name in names {
        if !ALL.iter().any(|workload| name.split('/').next() == Some(workload.name)) {
            bail!("no workload `{name}`: `cargo xtask bench --list` names them");
        }
    }
    for workload in ALL {
        for count in workload.threads {
            let case = Case { workload, threads: *count };
            let by_name = names.is_empty()
                || names.iter().any(|name| name == workload.name || *name == format!("{}/{count}", workload.name));
            if by_name && (threads.is_empty() || threads.contains(count)) {
                cases.push(case);
            }
        }
    }
    if cases.is_empty() {
        bail!("no workload runs with these thread counts: `cargo xtask bench --list` names both");
    }
    let (present, missing): (Vec<Case>, Vec<Case>) = cases.into_iter().partition(Case::is_present);
    for case in missing {
        eprintln!("left out: {}: its program is not installed (cargo xtask deps)", case.name());
    }
    Ok(present)
}

impl Case {
    fn is_present(&self) -> bool {
        match self.workload.kind {
            Kind::Own { .. } => true,
            Kind::Real { program, .. } => program.starts_with('/') || find_program(program).is_some(),
            Kind::Redis { .. } => {
                ["redis-server", "redis-benchmark", "redis-cli"].iter().all(|name| find_program(name).is_some())
            }
        }
    }

    /// Operations of each thread.
    pub(crate) fn ops(&self, ops: u64, scale: f64) -> u64 {
        let part = if self.threads <= 2 { 1.0 } else { 2.0 / f64::from(self.threads) };
        ((ops as f64 * scale * part) as u64).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_counts_select() {
        let names = |cases: Vec<Case>| cases.iter().map(Case::name).collect::<Vec<_>>();
        let chosen = |list: &[&str], threads: &[u32]| {
            names(select(&list.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>(), threads).unwrap())
        };
        assert_eq!(chosen(&["churn"], &[]), ["churn/1", "churn/2", "churn/8"]);
        assert_eq!(chosen(&["churn/2", "large"], &[]), ["churn/2", "large"]);
        assert_eq!(chosen(&["churn"], &[8]), ["churn/8"]);
        assert!(select(&["chrun".to_owned()], &[]).is_err());
        assert!(select(&["large".to_owned()], &[8]).is_err());
    }

    #[test]
    fn every_program_has_a_source() {
        for workload in ALL {
            if let Kind::Own { program, .. } = workload.kind {
                let source = ["c", "cc"].iter().any(|end| sources().join(format!("{program}.{end}")).is_file());
                assert!(source, "{program}");
            }
            if let Kind::Real { args, .. } = workload.kind {
                let named = args.iter().filter_map(|arg| arg.split_once("@/")).map(|(_, file)| file);
                named.for_each(|file| assert!(sources().join(file).is_file(), "{file}"));
            }
        }
    }
}
