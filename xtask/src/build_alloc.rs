//! `libjeprobe.so` and `libjeprobe.a`, built alone: a build of the whole workspace would unify features and meet two
//! panic handlers.
#![forbid(unsafe_code)]

use std::path::PathBuf;

use anyhow::Result;

use crate::cmd::{cargo, root};

/// Builds both and returns their folder, `target/capi`.
pub(crate) fn run() -> Result<PathBuf> {
    cargo().args(["build", "--profile", "capi", "-p", "jeprobe-capi"]).run()?;
    Ok(target_dir().join("capi"))
}

/// Where cargo puts its output.
pub(crate) fn target_dir() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}
