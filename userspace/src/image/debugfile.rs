//! Separate debug files: where distributions and `objcopy` put them.
//!
//! | asked by | looked for |
//! |---|---|
//! | path | `DIR/PATH`, `DIR/PATH.debug` |
//! | build-id | `DIR/.build-id/xx/rest.debug`, `DIR/xx/rest.debug` |
//! | `.gnu_debuglink` | beside the file, in `.debug/` beside it, `DIR/PATH-OF-ITS-FOLDER/`; its checksum must be the recorded one |
//!
//! `DIR` is each of the debug directories, `/usr/lib/debug` unless told otherwise; a system root is put before it.
#![forbid(unsafe_code)]

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::debuginfod::Debuginfod;
pub use super::elf::hex;
use super::witness::Witness;

/// Where distributions install debug files.
pub const DEBUG_DIRECTORY: &str = "/usr/lib/debug";

/// Where to look for debug files.
#[derive(Clone, Debug)]
pub struct Places {
    /// In this order.
    pub directories: Vec<PathBuf>,
    /// Asked for what is in none of them.
    pub servers: Option<Arc<Debuginfod>>,
    /// Notes what is looked for.
    witness: Option<Arc<Witness>>,
}

impl Default for Places {
    fn default() -> Places {
        Places { directories: vec![PathBuf::from(DEBUG_DIRECTORY)], servers: None, witness: None }
    }
}

impl Places {
    /// The given directories first, then the usual one, in the system root when there is one and on this host.
    pub fn new(directories: &[PathBuf], root: Option<&Path>) -> Places {
        let in_root = root.map(|root| root.join(DEBUG_DIRECTORY.trim_start_matches('/')));
        let usual = in_root.into_iter().chain([PathBuf::from(DEBUG_DIRECTORY)]);
        let directories = directories.iter().cloned().chain(usual).collect();
        Places { directories, servers: None, witness: None }
    }

    /// The same with servers.
    #[must_use]
    pub fn with_servers(self, servers: Option<Arc<Debuginfod>>) -> Places {
        Places { servers, ..self }
    }

    /// The debug file of a build-id from a server.
    pub fn fetch(&self, build_id: &[u8]) -> Option<PathBuf> {
        let found = self.servers.as_ref()?.debug_file(build_id);
        if let Some(witness) = &self.witness {
            match &found {
                Some(path) => witness.saw(path),
                None => witness.saw_more(),
            }
        }
        found
    }

    /// The same, noting what is looked for.
    pub(super) fn with_witness(self, witness: Arc<Witness>) -> Places {
        Places { witness: Some(witness), ..self }
    }

    /// Whether there is a file, noted.
    fn has(&self, path: &Path) -> bool {
        if let Some(witness) = &self.witness {
            witness.saw(path);
        }
        is_there(path)
    }

    /// The debug file of the file at an absolute path.
    pub fn by_path(&self, path: &Path) -> Option<PathBuf> {
        let inside = path.strip_prefix("/").ok()?;
        let mut with_suffix = inside.as_os_str().to_owned();
        with_suffix.push(".debug");
        let names = [inside, Path::new(&with_suffix)];
        let files = self.directories.iter().flat_map(|directory| names.map(|name| directory.join(name)));
        files.into_iter().find(|file| self.has(file))
    }

    /// The debug file of a build-id.
    pub fn by_build_id(&self, build_id: &[u8]) -> Option<PathBuf> {
        let name = build_id_path(build_id)?;
        let bare = name.strip_prefix(".build-id").unwrap_or(&name);
        let files = self.directories.iter().flat_map(|directory| [directory.join(&name), directory.join(bare)]);
        files.into_iter().find(|file| self.has(file))
    }

    /// The debug file that the file at `path` links to by name and checksum.
    pub fn by_debuglink(&self, path: &Path, name: &[u8], crc: u32) -> Option<PathBuf> {
        let name = OsStr::from_bytes(name);
        let real = path.canonicalize().ok()?;
        let folder = real.parent()?;
        // The real path of what lies under another process's root does not lead there.
        let folders = path.parent().into_iter().chain([folder]);
        let beside = folders.flat_map(|folder| [folder.join(name), folder.join(".debug").join(name)]);
        let inside = folder.strip_prefix("/").unwrap_or(folder);
        let elsewhere = self.directories.iter().map(|directory| directory.join(inside).join(name));
        let is_it = |file: &PathBuf| *file != real && file != path && self.has(file) && checksum(file) == Some(crc);
        beside.chain(elsewhere).find(is_it)
    }

    /// The file that several debug files share, by the name and build-id they give.
    pub fn by_alt_link(&self, path: &Path, name: &[u8], build_id: &[u8]) -> Option<PathBuf> {
        let name = Path::new(OsStr::from_bytes(name));
        let beside = path.parent().map(|folder| folder.join(name));
        let found = beside.into_iter().find(|file| self.has(file)).or_else(|| self.by_build_id(build_id));
        found.or_else(|| self.fetch(build_id))
    }
}

/// Whether there is a file; every question about a debug file ends here, noted by those who ask.
pub(super) fn is_there(path: &Path) -> bool {
    path.is_file()
}

/// `.build-id/xx/rest.debug`; `None` for an id too short to be one.
pub fn build_id_path(build_id: &[u8]) -> Option<PathBuf> {
    let (first, rest) = build_id.split_first().filter(|(_, rest)| !rest.is_empty())?;
    Some(PathBuf::from(format!(".build-id/{first:02x}/{}.debug", hex(rest))))
}

/// CRC-32 of a whole file, as `.gnu_debuglink` records it.
fn checksum(path: &Path) -> Option<u32> {
    let mut file = File::open(path).ok()?;
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut hasher = crc32fast::Hasher::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        match file.read(&mut buffer).ok()? {
            0 => return Some(hasher.finalize()),
            count => hasher.update(&buffer[..count]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{build_id_path, hex};
    use std::path::PathBuf;

    #[test]
    fn build_ids_become_paths() {
        assert_eq!(build_id_path(&[0xab, 0xcd, 0x01]), Some(PathBuf::from(".build-id/ab/cd01.debug")));
        assert_eq!(build_id_path(&[0xab]), None);
        assert_eq!(hex(&[0, 0xab]), "00ab");
    }
}
