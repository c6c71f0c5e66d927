//! What results are compared with that no package of Debian brings: the `jeprof` script of jemalloc 5.3.1, made of its
//! template.
#![forbid(unsafe_code)]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use anyhow::{Context as _, Result};

use crate::build_alloc::target_dir;
use crate::cmd::root;
use crate::vendor;

fn folder() -> PathBuf {
    root().join(target_dir()).join("references")
}

/// Puts everything into `target/references` that is not there.
pub(crate) fn run() -> Result<()> {
    let script = folder().join("jeprof-5.3.1");
    if script.is_file() {
        return Ok(());
    }
    let template = vendor::sources(&folder().join("sources"), &[vendor::JEMALLOC], vendor::JEMALLOC.name)?;
    let template = template.join("jemalloc/bin/jeprof.in");
    let text = fs::read_to_string(&template).with_context(|| format!("cannot read {}", template.display()))?;
    // Public names without a prefix, as Debian builds it.
    let text = text.replace("@JEMALLOC_PREFIX@", "").replace("@jemalloc_version@", "5.3.1-0-g0");
    // Cut off in between, it is not there.
    let unfinished = folder().join("jeprof-5.3.1.unfinished");
    fs::write(&unfinished, text)
        .and_then(|()| fs::set_permissions(&unfinished, fs::Permissions::from_mode(0o755)))
        .and_then(|()| fs::rename(&unfinished, &script))
        .with_context(|| format!("cannot write {}", script.display()))
}
