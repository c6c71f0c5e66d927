//! Files of another process, opened as that process sees them.
//!
//! A path of `/proc/PID/maps` is relative to the target's root and may name another file by now. So a file is opened
//! by these ways in order, and taken only when its inode is the mapped one:
//!
//! 1. `/proc/PID/root/PATH`: other mount namespaces, chroots;
//! 2. `/proc/PID/exe`: the program itself, also when it was deleted;
//! 3. `/proc/PID/map_files/START-END`: deleted or replaced libraries; needs `CAP_CHECKPOINT_RESTORE`.
#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::PathBuf;

use super::maps::{self, Mapping, Maps};
use super::pids::living_task;

/// Reads and parses the mappings of a process.
pub fn read_maps(pid: u32) -> io::Result<Maps> {
    Ok(maps::parse(&read_maps_bytes(pid)?))
}

/// The mappings as text, as heap files carry them.
pub fn read_maps_bytes(pid: u32) -> io::Result<Vec<u8>> {
    fs::read(format!("/proc/{}/maps", living_task(pid)))
}

/// Directory under which the target's files are reached from here.
pub fn root_of(pid: u32) -> PathBuf {
    PathBuf::from(format!("/proc/{}/root", living_task(pid)))
}

/// Where a path of the target is reached from here.
pub fn path_in(pid: u32, path: &[u8]) -> PathBuf {
    let mut full = root_of(pid).into_os_string().into_vec();
    full.extend_from_slice(path);
    PathBuf::from(OsString::from_vec(full))
}

/// Opens the file behind a mapping; the error is that of the last way tried.
pub fn open_mapped(pid: u32, mapping: &Mapping) -> io::Result<File> {
    open_mapped_as(pid, mapping).map(|(file, _)| file)
}

/// Like [`open_mapped`], with the path that worked, for interfaces that take paths.
pub fn open_mapped_as(pid: u32, mapping: &Mapping) -> io::Result<(File, PathBuf)> {
    let task = living_task(pid);
    let ways = [
        path_in(task, &mapping.path),
        PathBuf::from(format!("/proc/{task}/exe")),
        PathBuf::from(format!("/proc/{task}/map_files/{:x}-{:x}", mapping.start, mapping.end)),
    ];
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for path in ways {
        // The path may name anything by now; a FIFO must not hang the loader.
        let opened = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&path).and_then(|file| {
            let inode = file.metadata()?.ino();
            if inode == mapping.inode { Ok(file) } else { Err(io::Error::from_raw_os_error(libc::ESTALE)) }
        });
        match opened {
            Ok(file) => return Ok((file, path)),
            Err(error) => last = error,
        }
    }
    Err(last)
}
