//! The structure checks. Each returns the breaches it found as `file:line: rule` lines; none is green.
#![forbid(unsafe_code)]

mod docs;
mod drift;
mod layers;
mod probes;
mod size;
mod source;
mod symbols;
mod unsafe_files;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use clap::ValueEnum;

use crate::bench::instructions;
use crate::build_alloc;
use crate::cmd::root;
use crate::test::Counts;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Check {
    /// Files use only layers listed above their own
    Layers,
    /// No file over 1000 lines
    Size,
    /// The built library: symbols, exports, probe sites
    Symbols,
    /// `unsafe` only in the files named for it
    #[value(name = "unsafe_files")]
    UnsafeFiles,
    /// READMEs and module headers exist, links and commands in them are real
    Docs,
    /// A cached malloc or free takes no more instructions than allowed
    Instructions,
    /// The committed kernel object is what its sources give
    Drift,
}

pub(crate) fn run(checks: &[Check]) -> Result<()> {
    let checks = if checks.is_empty() { Check::value_variants() } else { checks };
    let counts = count(checks);
    if counts.failed > 0 {
        bail!("{} of {} checks failed", counts.failed, checks.len());
    }
    Ok(())
}

/// Runs these checks, one test each.
pub(crate) fn count(checks: &[Check]) -> Counts {
    let mut counts = Counts::default();
    for check in checks {
        counts.add(one(*check));
    }
    counts
}

fn one(check: Check) -> Counts {
    let root = root();
    let found = match check {
        Check::Layers => layers::check(&root),
        Check::Size => size::check(&root),
        Check::Symbols => symbols::check(&root),
        Check::UnsafeFiles => unsafe_files::check(&root),
        Check::Docs => docs::check(&root),
        Check::Instructions => {
            build_alloc::run().and_then(|folder| instructions::breaches(&folder.join("libjeprobe.so")))
        }
        Check::Drift => drift::check(&root),
    };
    let name = check.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned());
    let success = match found {
        Ok(breaches) => {
            for breach in &breaches {
                println!("{breach}");
            }
            breaches.is_empty()
        }
        Err(error) => {
            println!("{error:#}");
            false
        }
    };
    println!("check {name}: {}", if success { "ok" } else { "FAILED" });
    Counts::of(success)
}

/// Files under `folder` whose name ends in one of `extensions`, sorted; build output and dot-folders left out.
fn files(folder: &Path, extensions: &[&str]) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_path_buf()];
    while let Some(folder) = open.pop() {
        let entries = fs::read_dir(&folder).with_context(|| format!("cannot list {}", folder.display()))?;
        for entry in entries {
            let entry = entry.with_context(|| format!("cannot list {}", folder.display()))?;
            let path = entry.path();
            let name = entry.file_name();
            let kind = entry.file_type().with_context(|| format!("cannot look at {}", path.display()))?;
            if kind.is_dir() {
                if name != "target" && !name.to_string_lossy().starts_with('.') {
                    open.push(path);
                }
            } else if path.extension().is_some_and(|extension| extensions.iter().any(|e| extension == *e)) {
                found.push(path);
            }
        }
    }
    found.sort_unstable();
    Ok(found)
}

fn read(file: &Path) -> Result<String> {
    fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))
}

/// `file` as it is written in messages: relative to the workspace.
fn shown<'a>(root: &Path, file: &'a Path) -> std::path::Display<'a> {
    file.strip_prefix(root).unwrap_or(file).display()
}

/// A small workspace on disk for the checks' own tests, removed when dropped.
#[cfg(test)]
struct Sample(PathBuf);

#[cfg(test)]
impl Sample {
    fn new(name: &str, files: &[(&str, &str)]) -> Self {
        let root = std::env::temp_dir().join(format!("jeprobe-xtask-{name}-{}", std::process::id()));
        let sample = Self(root);
        for (file, content) in files {
            let path = sample.0.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        sample
    }
}

#[cfg(test)]
impl Drop for Sample {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
