//! What the CI machine does, here: `.ci/run` on a fresh clone of the current commit, with its own target folder.
#![forbid(unsafe_code)]

use std::fs;

use anyhow::{Context as _, Result};

use crate::build_alloc::target_dir;
use crate::cmd::{Cmd, root};

pub(crate) fn run() -> Result<()> {
    let clone = target_dir().join("ci-clone");
    if clone.exists() {
        fs::remove_dir_all(&clone).with_context(|| format!("cannot remove {}", clone.display()))?;
    }
    Cmd::new("git").args(["clone", "--quiet"]).arg(root()).arg(&clone).run()?;
    Cmd::new(clone.join(".ci/run")).dir(&clone).without_env("CARGO_TARGET_DIR").run()
}
