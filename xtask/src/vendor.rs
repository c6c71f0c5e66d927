//! Sources of crates that are used as files, not compiled as crates: a throw-away package names them at fixed versions, and
//! cargo downloads them. Nothing of them is in this repository.
#![forbid(unsafe_code)]

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use crate::cmd::cargo;

/// The folder of a crate's sources, downloaded by cargo into `home` unless it is there. `manifest` names all crates that
/// `home` is for.
pub(crate) fn sources(home: &Path, manifest: &str, name: &str) -> Result<PathBuf> {
    let vendor = home.join("vendor");
    if fs::read_to_string(home.join("Cargo.toml")).ok().as_deref() != Some(manifest) || !vendor.join(name).is_dir() {
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
