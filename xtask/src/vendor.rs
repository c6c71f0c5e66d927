//! Sources of crates that are used as files, not compiled as crates: a throw-away package names them at fixed versions, and
//! cargo downloads them. Nothing of them is in this repository.
#![forbid(unsafe_code)]

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use crate::cmd::cargo;

/// A crate at a fixed version.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Crate {
    pub(crate) name: &'static str,
    pub(crate) version: &'static str,
}

/// jemalloc 5.3.1.
pub(crate) const JEMALLOC: Crate = Crate { name: "tikv-jemalloc-sys", version: "0.7.1" };

/// The folder of a crate's sources, downloaded by cargo into `home` unless it is there. `all` are the crates that
/// `home` is for.
pub(crate) fn sources(home: &Path, all: &[Crate], name: &str) -> Result<PathBuf> {
    let manifest = &manifest(all);
    let vendor = home.join("vendor");
    if fs::read_to_string(home.join("Cargo.toml")).ok().as_ref() != Some(manifest) || !vendor.join(name).is_dir() {
        fs::create_dir_all(home).with_context(|| format!("cannot create {}", home.display()))?;
        fs::write(home.join("lib.rs"), "").with_context(|| format!("cannot write {}", home.display()))?;
        fs::write(home.join("Cargo.toml"), manifest).with_context(|| format!("cannot write {}", home.display()))?;
        eprintln!("downloading sources into {}", vendor.display());
        cargo().dir(home).args(["vendor", "--quiet"]).arg(&vendor).output()?;
    }
    let folder = vendor.join(name);
    if !folder.is_dir() {
        bail!("cargo vendor gave no {}", folder.display());
    }
    Ok(folder)
}

fn manifest(all: &[Crate]) -> String {
    let mut text = "[package]\nname = \"sources\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n\
        [lib]\npath = \"lib.rs\"\n\n[workspace]\n\n[dependencies]\n"
        .to_owned();
    for Crate { name, version } in all {
        let _ = writeln!(text, "{name} = \"={version}\"");
    }
    text
}
