//! `libjeprobe.so` and `libjeprobe.a`, built alone: a build of the whole workspace would unify features and meet two
//! panic handlers.
#![forbid(unsafe_code)]

use std::path::PathBuf;

use anyhow::Result;

use crate::cmd::{Cmd, cargo, root};

/// Builds both and returns their folder, `target/capi`.
pub(crate) fn run() -> Result<PathBuf> {
    // Functions begin at a cache line: `malloc` and `free` fill one and a half each, and cost a quarter more when they lie
    // across a third one.
    cargo()
        .args(["rustc", "--profile", "capi", "-p", "jeprobe-capi", "--", "-Cllvm-args=-align-all-functions=6"])
        .run()?;
    let folder = target_dir().join("capi");
    // A program may define its own `malloc_conf`; rustc has no weak data symbols. `dlopen` is for the shared library only.
    Cmd::new("objcopy")
        .args(["--weaken-symbol=malloc_conf", "--weaken-symbol=malloc_conf_2_conf_harder", "--localize-symbol=dlopen"])
        .arg(folder.join("libjeprobe.a"))
        .run()?;
    Ok(folder)
}

/// Where cargo puts its output.
pub(crate) fn target_dir() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}
