//! Files that an answer depends on, as they were when it was given: a debug file that comes, changes or goes makes the answer
//! void.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Device, inode, size, seconds and nanoseconds of the last change; `None`: there is no such file.
pub(super) type Stamp = Option<[u64; 5]>;

/// What a file is now.
pub(super) fn stamp(path: &Path) -> Stamp {
    let meta = fs::metadata(path).ok()?;
    Some([meta.dev(), meta.ino(), meta.size(), meta.mtime() as u64, meta.mtime_nsec() as u64])
}

/// Everything that was looked at while one image was asked.
#[derive(Debug, Default)]
pub(super) struct Witness {
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    files: BTreeMap<PathBuf, Stamp>,
    is_incomplete: bool,
}

impl Witness {
    /// Notes a file that was looked for, found or not.
    pub(super) fn saw(&self, path: &Path) {
        let stamp = stamp(path);
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).files.entry(path.to_owned()).or_insert(stamp);
    }

    /// An answer depends on more than files, such as a server that may know more the next time.
    pub(super) fn saw_more(&self) {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).is_incomplete = true;
    }

    /// All files; `None` when answers depend on more.
    pub(super) fn files(&self) -> Option<BTreeMap<PathBuf, Stamp>> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        (!seen.is_incomplete).then(|| seen.files.clone())
    }
}
