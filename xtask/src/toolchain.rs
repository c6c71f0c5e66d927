//! The toolchain of the kernel object: a compiler that may use unstable features with `core`'s sources beside it, and
//! `bpf-linker` for the LLVM of that compiler.
//!
//! Stable Rust ships neither the target's `core` nor its sources, so one of these is taken, in order:
//!
//! | compiler | `core` sources | unstable features by |
//! |---|---|---|
//! | Debian's `/usr/bin/rustc` (`rustc-web`) | `rust-web-src` | `RUSTC_BOOTSTRAP=1` |
//! | rustup's `nightly` | component `rust-src` | itself |
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use crate::cmd::{Cmd, find_program};

/// Version of bpf-linker that builds the committed object.
pub(crate) const BPF_LINKER_VERSION: &str = "0.13.0";

pub(crate) struct Toolchain {
    pub(crate) cargo: PathBuf,
    pub(crate) rustc: PathBuf,
    /// `bpf-linker`, whole path.
    pub(crate) linker: PathBuf,
    pub(crate) sysroot: PathBuf,
    /// Compiler and linker, as one line; part of what the drift check compares.
    pub(crate) version: String,
}

/// A compiler with sources of `core`, before the linker is known.
pub(crate) struct Compiler {
    pub(crate) cargo: PathBuf,
    pub(crate) rustc: PathBuf,
    sysroot: PathBuf,
    release: String,
    /// Major version of the LLVM inside, which bpf-linker has to match.
    pub(crate) llvm: String,
}

impl Compiler {
    /// The compiler at `rustc`, if it has `core`'s sources.
    fn at(cargo: PathBuf, rustc: PathBuf) -> Option<Self> {
        if !cargo.is_file() || !rustc.is_file() {
            return None;
        }
        let sysroot = PathBuf::from(Cmd::new(&rustc).args(["--print", "sysroot"]).output().ok()?.trim());
        if !sysroot.join("lib/rustlib/src/rust/library/core/src/lib.rs").is_file() {
            return None;
        }
        let verbose = Cmd::new(&rustc).arg("-vV").output().ok()?;
        Some(Self {
            cargo,
            rustc,
            sysroot,
            release: verbose.lines().next()?.to_owned(),
            llvm: llvm_major(&verbose)?.to_owned(),
        })
    }

    pub(crate) fn find() -> Option<Self> {
        Self::at("/usr/bin/cargo".into(), "/usr/bin/rustc".into()).or_else(|| {
            let which = |tool: &str| {
                let path = Cmd::new("rustup").args(["which", "--toolchain", "nightly", tool]).output().ok()?;
                Some(PathBuf::from(path.trim()))
            };
            find_program("rustup")?;
            Self::at(which("cargo")?, which("rustc")?)
        })
    }
}

/// `22` of the line `LLVM version: 22.1.2`.
fn llvm_major(verbose: &str) -> Option<&str> {
    verbose.lines().find_map(|line| line.strip_prefix("LLVM version: "))?.split('.').next()
}

/// `0.13.0` of `bpf-linker 0.13.0`.
pub(crate) fn linker_version(linker: &Path) -> Option<String> {
    let text = Cmd::new(linker).arg("--version").output().ok()?;
    Some(text.trim().strip_prefix("bpf-linker ")?.to_owned())
}

pub(crate) fn find() -> Result<Toolchain> {
    let compiler = Compiler::find().context(
        "no compiler with the sources of `core` for the kernel object: neither Debian's rustc-web with rust-web-src \
         nor rustup's nightly with rust-src; `cargo xtask deps` installs the first",
    )?;
    let linker = find_program("bpf-linker").context("bpf-linker is not installed; `cargo xtask deps` installs it")?;
    let version = linker_version(&linker).with_context(|| format!("cannot run {} --version", linker.display()))?;
    if version != BPF_LINKER_VERSION {
        bail!(
            "{} is version {version}, the kernel object is built with {BPF_LINKER_VERSION}; `cargo xtask deps` \
             installs it",
            linker.display()
        );
    }
    Ok(Toolchain {
        version: format!("{}, bpf-linker {version}", compiler.release),
        cargo: compiler.cargo,
        rustc: compiler.rustc,
        sysroot: compiler.sysroot,
        linker,
    })
}

#[cfg(test)]
mod tests {
    use super::llvm_major;

    #[test]
    fn llvm_version_line_is_read() {
        assert_eq!(llvm_major("rustc 1.96.0\nhost: x\nLLVM version: 22.1.2\n"), Some("22"));
        assert_eq!(llvm_major("rustc 1.96.0\n"), None);
    }
}
