//! The command as it is given to others: one static file, and its second name.
//!
//! ```text
//! target/dist/jeprobe      at fixed addresses, no interpreter, no shared library
//! target/dist/jeprof       the same file under the name that makes it the other command
//! ```
//!
//! Built for the host's own target by name: without one, cargo's flags would hold for build scripts and macros too. The file
//! with debug information is the one in cargo's folder.
//!
//! A static program corrects its own addresses when it starts, unless they are fixed: half of the time of `jeprof --version`.
#![forbid(unsafe_code)]

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result};

use crate::build_alloc::target_dir;
use crate::cmd::{Cmd, cargo, root};

/// Builds it and returns its folder.
pub(crate) fn run() -> Result<PathBuf> {
    let target = host()?;
    cargo()
        .env("RUSTFLAGS", "-C target-feature=+crt-static")
        .args(["rustc", "--release", "--target", &target, "-p", "jeprobe", "--bin", "jeprobe"])
        .args(["--", "-C", "relocation-model=static"])
        .run()?;
    let folder = root().join(target_dir()).join("dist");
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let built = root().join(target_dir()).join(target).join("release/jeprobe");
    let (part, command, second) = (folder.join("jeprobe.part"), folder.join("jeprobe"), folder.join("jeprof"));
    Cmd::new("objcopy").arg("--strip-debug").arg(&built).arg(&part).run()?;
    // A program that runs cannot be written to; it can be replaced.
    fs::rename(&part, &command).with_context(|| format!("cannot write {}", command.display()))?;
    let _there_was_none = fs::remove_file(&second);
    fs::hard_link(&command, &second).with_context(|| format!("cannot link {}", second.display()))?;
    Ok(folder)
}

/// The compiler's own target, as `x86_64-unknown-linux-gnu`.
fn host() -> Result<String> {
    let version = Cmd::new("rustc").arg("-vV").output()?;
    let line = version.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(line.context("`rustc -vV` names no host")?.to_owned())
}
