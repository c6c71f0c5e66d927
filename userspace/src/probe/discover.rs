//! Finds the hooks in a process: every mapped file is opened as the process sees it and read once.
//!
//! ```text
//! /proc/P/maps ─► distinct files with executable mappings ─► proc/exe opens each, inode checked
//!              ─► probe/hookfile reads notes               ─► cached by (device, inode, mtime, size)
//!              ─► bias of the file in this process         ─► ProcessHooks
//! ```
//!
//! Reads only. Does not look for the profile table (`remote/locate.rs` does) and does not attach.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use thiserror::Error;

use super::hookfile::{self, Hooks, Site};
use crate::addr::{Avma, Bias};
use crate::proc::exe;
use crate::proc::maps::{Mapping, Maps};
use crate::proc::pids;

/// A file with hooks, kept open: the kernel is given this very file, whatever its path names by then.
#[derive(Debug)]
pub struct HookFile {
    /// As the first process in which it was found sees it.
    pub path: PathBuf,
    /// It has no directory entry any more.
    pub deleted: bool,
    pub file: File,
    key: FileKey,
    pub hooks: Hooks,
}

impl HookFile {
    /// The same for every process that maps the file.
    pub fn key(&self) -> FileKey {
        self.key
    }
}

/// Identity of a file on this host, as `stat` gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileKey {
    pub dev: u64,
    pub inode: u64,
}

/// A file with hooks in one process.
#[derive(Clone, Debug)]
pub struct MappedHooks {
    pub file: Arc<HookFile>,
    pub bias: Bias,
    /// Start of its executable mapping.
    pub start: Avma,
}

/// What a process offers; at least one file.
#[derive(Clone, Debug)]
pub struct ProcessHooks {
    pub pid: u32,
    pub files: Vec<MappedHooks>,
}

/// What a host offers.
#[derive(Clone, Debug, Default)]
pub struct HostHooks {
    pub processes: Vec<ProcessHooks>,
    /// Processes without hooks, kernel threads among them.
    pub without: usize,
    /// Processes whose mappings could not be read.
    pub unreadable: usize,
}

impl HostHooks {
    /// Each file once, however many processes map it.
    pub fn files(&self) -> Vec<Arc<HookFile>> {
        let mut files: Vec<Arc<HookFile>> = Vec::new();
        for mapped in self.processes.iter().flat_map(|process| &process.files) {
            if !files.iter().any(|file| file.key() == mapped.file.key()) {
                files.push(Arc::clone(&mapped.file));
            }
        }
        files
    }
}

#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DiscoverError {
    #[error("there is no process with pid {pid}")]
    NoProcess { pid: u32 },

    #[error("cannot read the mappings of process {pid}")]
    Maps { pid: u32, source: io::Error },

    #[error("process {pid} maps no file with allocation hooks (looked at {looked_at}{})", list(refused))]
    NoHooks { pid: u32, looked_at: usize, refused: Vec<String> },
}

impl DiscoverError {
    /// There is no more to say of it than that the process cannot be reached, or is an ordinary one without the library.
    pub fn is_plain(&self) -> bool {
        match self {
            DiscoverError::NoProcess { .. } => false,
            DiscoverError::Maps { .. } => true,
            DiscoverError::NoHooks { looked_at, refused, .. } => *looked_at > 0 && refused.is_empty(),
        }
    }

    pub fn hint(&self) -> Option<String> {
        match self {
            DiscoverError::NoProcess { .. } => Some("list candidates with: pgrep -a NAME".into()),
            DiscoverError::Maps { .. } => Some("run as root, or as the user of the process".into()),
            DiscoverError::NoHooks { looked_at: 0, .. } => {
                Some("a thread of the kernel has no program and no heap; find a process: pgrep -a NAME".into())
            }
            DiscoverError::NoHooks { .. } => {
                Some("start the program with the library: jeprobe run -- PROGRAM, or LD_PRELOAD=libjeprobe.so".into())
            }
        }
    }
}

fn list(refused: &[String]) -> String {
    if refused.is_empty() { String::new() } else { format!("; refused: {}", refused.join("; ")) }
}

/// The hooks of one process.
pub fn process(pid: u32) -> Result<ProcessHooks, DiscoverError> {
    Finder::new().process(pid)
}

/// Finds hooks in many processes; reads each file once.
#[derive(Debug, Default)]
pub struct Finder {
    cache: HashMap<CacheKey, Option<Arc<HookFile>>>,
}

/// A file that was changed in place is another file.
type CacheKey = (FileKey, i64, i64, u64);

impl Finder {
    pub fn new() -> Finder {
        Finder::default()
    }

    pub fn process(&mut self, pid: u32) -> Result<ProcessHooks, DiscoverError> {
        let maps = exe::read_maps(pid).map_err(|source| match source.raw_os_error() {
            Some(libc::ENOENT | libc::ESRCH) => DiscoverError::NoProcess { pid },
            _ => DiscoverError::Maps { pid, source },
        })?;
        let mut files = Vec::new();
        let mut refused = Vec::new();
        let executable = executable_files(&maps);
        for mapping in &executable {
            let Some(file) = self.file(pid, mapping) else { continue };
            refused.extend(file.hooks.refused.iter().map(|r| format!("{}: {r}", file.path.display())));
            if let Some(site) = file.hooks.sites.first()
                && let Some(mapped) = place(&maps, mapping, &file, site)
            {
                files.push(mapped);
            }
        }
        if files.is_empty() {
            return Err(DiscoverError::NoHooks { pid, looked_at: executable.len(), refused });
        }
        Ok(ProcessHooks { pid, files })
    }

    /// The hooks of every process of the host that has some. Processes that end meanwhile or cannot be read are left out
    /// and counted.
    pub fn host(&mut self) -> io::Result<HostHooks> {
        let mut host = HostHooks::default();
        let own = std::process::id();
        for pid in pids::list()?.into_iter().filter(|pid| *pid != own) {
            match self.process(pid) {
                Ok(process) => host.processes.push(process),
                Err(DiscoverError::Maps { .. }) => host.unreadable += 1,
                Err(_) => host.without += 1,
            }
        }
        Ok(host)
    }

    /// The file behind a mapping, `None` when it cannot be opened, is no ELF file, or says nothing about hooks.
    fn file(&mut self, pid: u32, mapping: &Mapping) -> Option<Arc<HookFile>> {
        let file = exe::open_mapped(pid, mapping).ok()?;
        let meta = file.metadata().ok()?;
        if !meta.is_file() {
            return None;
        }
        let key = FileKey { dev: meta.dev(), inode: meta.ino() };
        let cache_key = (key, meta.mtime(), meta.mtime_nsec(), meta.size());
        self.cache
            .entry(cache_key)
            .or_insert_with(|| {
                let hooks = hookfile::read(&file)?;
                let path = mapping.path().to_owned();
                let useful = !hooks.is_empty() || !hooks.refused.is_empty();
                useful.then(|| Arc::new(HookFile { path, deleted: mapping.deleted, file, key, hooks }))
            })
            .clone()
    }
}

/// The first executable mapping of each file.
fn executable_files(maps: &Maps) -> Vec<Mapping> {
    let mut files: Vec<Mapping> = Vec::new();
    for mapping in maps.entries.iter().filter(|m| m.is_file() && m.perms.exec) {
        if !files.iter().any(|f| f.file_id() == mapping.file_id() && f.path == mapping.path) {
            files.push(mapping.clone());
        }
    }
    files
}

/// Where the file lies in the process, by the mapping that holds `site`.
fn place(maps: &Maps, of: &Mapping, file: &Arc<HookFile>, site: &Site) -> Option<MappedHooks> {
    maps.entries.iter().filter(|m| m.perms.exec && m.file_id() == of.file_id() && m.path == of.path).find_map(|m| {
        let within = site.offset.0.checked_sub(m.offset).filter(|within| *within < m.end - m.start)?;
        let bias = Avma(m.start + within).bias_of(site.svma);
        Some(MappedHooks { file: Arc::clone(file), bias, start: Avma(m.start) })
    })
}

#[cfg(test)]
mod tests {
    use super::{DiscoverError, process};

    #[test]
    fn a_pid_that_is_not_there() {
        let error = process(i32::MAX as u32).expect_err("no such pid");
        assert!(matches!(error, DiscoverError::NoProcess { .. }), "{error}");
    }

    #[test]
    fn a_process_without_hooks() {
        let error = process(std::process::id()).expect_err("the test program has no hooks");
        assert!(matches!(error, DiscoverError::NoHooks { looked_at: 1.., .. }), "{error}");
        assert!(error.hint().is_some());
    }
}
