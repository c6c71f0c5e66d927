//! Paths of what the build made.
//!
//! `cargo xtask test` builds all of it first. A test that finds one missing fails and names the command to run; it
//! never builds products itself, since a test binary runs inside cargo.
//!
//! `JEPROBE_TEST_LIBRARY=PATH` puts another library in the place of ours, to check the expectations themselves:
//! `/usr/lib/x86_64-linux-gnu/libjemalloc.so.2` (rows that are new in 5.3.1 or our own are then left out), or `none`
//! for the C library's allocator.

use std::env;
use std::path::{Path, PathBuf};

/// Which allocator answers, hence which rows of an expectation table apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flavour {
    /// Ours: every row.
    Jeprobe,
    /// Another jemalloc, version 5.3.0: rows common to 5.3.0 and 5.3.1.
    Jemalloc530,
    /// No preload: rows that the C standard and glibc share.
    Libc,
}

/// Root of the workspace.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ lies in the workspace").to_path_buf()
}

/// Cargo's target directory.
pub fn target_dir() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

pub fn programs() -> PathBuf {
    root().join("tests/programs")
}

pub fn fixture(name: &str) -> PathBuf {
    root().join("tests/fixtures").join(name)
}

/// Directory that holds `jemalloc/jemalloc.h`.
pub fn include_dir() -> PathBuf {
    root().join("allocator/capi/include")
}

pub fn flavour() -> Flavour {
    match env::var("JEPROBE_TEST_LIBRARY") {
        Ok(path) if path == "none" => Flavour::Libc,
        Ok(path) if path.contains("jemalloc") => Flavour::Jemalloc530,
        _ => Flavour::Jeprobe,
    }
}

/// The library to preload; `None` only under `JEPROBE_TEST_LIBRARY=none`.
pub fn library() -> Option<PathBuf> {
    match env::var("JEPROBE_TEST_LIBRARY") {
        Ok(path) if path == "none" => None,
        Ok(path) => Some(PathBuf::from(path)),
        Err(_) => Some(need(target_dir().join("capi/libjeprobe.so"), "build-alloc")),
    }
}

/// The archive for static linking.
pub fn static_library() -> PathBuf {
    need(target_dir().join("capi/libjeprobe.a"), "build-alloc")
}

/// The `jeprobe` command.
pub fn command() -> PathBuf {
    need(target_dir().join("dist/jeprobe"), "dist")
}

/// The `jeprof` command.
pub fn jeprof() -> PathBuf {
    need(target_dir().join("dist/jeprof"), "dist")
}

fn need(path: PathBuf, task: &str) -> PathBuf {
    assert!(path.exists(), "{} is missing: run `cargo xtask {task}`, which builds it", path.display());
    path
}
