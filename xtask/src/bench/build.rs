//! Compiles the workload programs of `tests/bench` into `target/bench/bin`, again when a source is newer.
#![forbid(unsafe_code)]

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context as _, Result};

use super::workloads::sources;
use crate::build_alloc::target_dir;
use crate::cmd::Cmd;

/// The bench's folder under `target`.
pub(crate) fn folder() -> PathBuf {
    target_dir().join("bench")
}

/// Compiles what is not up to date; the folder of the programs.
pub(crate) fn programs() -> Result<PathBuf> {
    let bin = folder().join("bin");
    fs::create_dir_all(&bin).with_context(|| format!("cannot create {}", bin.display()))?;
    let header = changed(&sources().join("bench.h"));
    let list = fs::read_dir(sources()).with_context(|| format!("cannot list {}", sources().display()))?;
    for source in list.filter_map(Result::ok).map(|entry| entry.path()) {
        let is_cxx = match source.extension().and_then(|end| end.to_str()) {
            Some("c") => false,
            Some("cc") => true,
            _ => continue,
        };
        let program = bin.join(source.file_stem().unwrap_or_default());
        if changed(&program).is_some_and(|built| Some(built) > changed(&source) && Some(built) > header) {
            continue;
        }
        let compiler =
            if is_cxx { Cmd::new("g++").args(["-std=c++17", "-fsized-deallocation"]) } else { Cmd::new("gcc") };
        // Without -fno-builtin a compiler may leave out a pair of malloc and free.
        compiler
            .args(["-O2", "-g", "-Wall", "-Wextra", "-fno-builtin-malloc", "-fno-builtin-free", "-pthread"])
            .arg(&source)
            .arg("-o")
            .arg(&program)
            .output()?;
    }
    Ok(bin)
}

pub(crate) fn changed(file: &Path) -> Option<SystemTime> {
    fs::metadata(file).and_then(|meta| meta.modified()).ok()
}
