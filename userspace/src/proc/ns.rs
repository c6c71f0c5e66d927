//! Namespaces of another process: is its `/tmp` ours, and what does it call itself.
#![forbid(unsafe_code)]

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use super::exe;
use super::pids::living_task;

/// True when the process sees the same mounts as this one; false also when that cannot be read.
pub fn same_mounts(pid: u32) -> bool {
    let of = |who: &str| fs::read_link(format!("/proc/{who}/ns/mnt")).ok();
    let theirs = of(&living_task(pid).to_string());
    theirs.is_some() && theirs == of("self")
}

/// A path that the process named, absolute or relative to its working directory, as reached from here.
pub fn resolve(pid: u32, path: &Path) -> PathBuf {
    if path.is_absolute() {
        if same_mounts(pid) { path.to_owned() } else { exe::path_in(pid, path.as_os_str().as_bytes()) }
    } else {
        PathBuf::from(format!("/proc/{}/cwd", living_task(pid))).join(path)
    }
}
