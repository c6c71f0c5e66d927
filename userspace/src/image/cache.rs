//! The directory of answers of former runs: which files in it are read, replaced and thrown out.
//!
//! - A file of another user, or one that others may write, is passed over and replaced, with one warning.
//! - Written beside and renamed, so readers see whole files; of two writers at a time the last one's answers stay.
//! - A directory of another user, or that others may write to: no cache, with one warning.
//! - No directory, or none that may be written: no cache, in silence.
//!
//! The directory holds at most [`MOST_BYTES`], each file [`MOST_FILE_BYTES`]; what was not used longest goes first. Stacks of
//! profiles may take half of that: names come to less and are wanted more often.
#![forbid(unsafe_code)]

use std::env;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use super::bytes::Bytes;

/// Everything in the directory together: 256 MiB, names of some two million addresses.
const MOST_BYTES: u64 = 256 << 20;
/// 64 MiB: it is checked as a whole.
pub(crate) const MOST_FILE_BYTES: u64 = 64 << 20;
/// A file that is used gets a new time when its own is older.
const FRESH: Duration = Duration::from_hours(24);
/// Half-written files that are older were left behind.
pub(super) const ABANDONED: Duration = Duration::from_hours(1);
/// Not through links.
const NO_FOLLOW: i32 = libc::O_NOFOLLOW;

/// The directory.
#[derive(Debug)]
pub struct Cache {
    pub(super) directory: PathBuf,
    most_bytes: u64,
    /// Nothing is read from it or written into it otherwise.
    is_usable: bool,
    warning: OnceLock<String>,
}

impl Cache {
    /// `JEPROBE_CACHE_DIR`, else `jeprobe` in `XDG_CACHE_HOME` or `~/.cache`. `None` when `JEPROBE_CACHE_DIR` is empty, when
    /// the directory cannot be made, or when there is no home to make it in (accounts of services name one that is not there).
    pub fn of_user() -> Option<Arc<Cache>> {
        let absolute = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        match env::var_os("JEPROBE_CACHE_DIR") {
            Some(directory) if directory.is_empty() => None,
            Some(directory) => Cache::at(PathBuf::from(directory)),
            None => {
                let caches = absolute("XDG_CACHE_HOME")
                    .or_else(|| Some(absolute("HOME").filter(|home| home.is_dir())?.join(".cache")))?;
                Cache::at(caches.join("jeprobe"))
            }
        }
    }

    /// The same in a given directory.
    pub fn at(directory: PathBuf) -> Option<Arc<Cache>> {
        if !directory.is_dir() {
            DirBuilder::new().recursive(true).mode(0o700).create(&directory).ok()?;
        }
        let meta = fs::metadata(&directory).ok()?;
        let cache = Cache { directory, most_bytes: MOST_BYTES, is_usable: is_own(&meta), warning: OnceLock::new() };
        if !cache.is_usable {
            cache.warning.get_or_init(|| {
                let directory = cache.directory.display();
                format!("{directory} is another user's, or others may write to it; names are not kept there")
            });
        }
        Some(Arc::new(cache))
    }

    /// The same with another limit.
    #[cfg(test)]
    pub(super) fn of_size(directory: PathBuf, most_bytes: u64) -> Arc<Cache> {
        Arc::new(Cache { directory, most_bytes, is_usable: true, warning: OnceLock::new() })
    }

    /// Where files lie.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Whether there is a file whose name begins and ends so.
    pub(crate) fn has(&self, prefix: &str, extension: &str) -> bool {
        let Ok(list) = fs::read_dir(&self.directory) else { return false };
        let is_it = |name: &Path| {
            name.extension().is_some_and(|found| found == extension)
                && name.as_os_str().as_encoded_bytes().starts_with(prefix.as_bytes())
        };
        self.is_usable && list.flatten().any(|entry| is_it(Path::new(&entry.file_name())))
    }

    /// What is to be said of files that were passed over.
    pub fn warning(&self) -> Option<&str> {
        self.warning.get().map(String::as_str)
    }

    pub(crate) fn warn(&self, path: &Path, what: &str) {
        self.warning.get_or_init(|| format!("{} {what}; it is not used and made anew", path.display()));
    }

    /// Maps a file of this user, which no one changes in place; `None` when there is none.
    pub(crate) fn read(&self, path: &Path) -> Option<Bytes> {
        if !self.is_usable {
            return None;
        }
        let file = match OpenOptions::new().read(true).custom_flags(NO_FOLLOW | libc::O_NONBLOCK).open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(_) => {
                self.warn(path, "cannot be opened");
                return None;
            }
        };
        let meta = file.metadata().ok()?;
        if !meta.is_file() || !is_own(&meta) {
            self.warn(path, "is another user's, or others may write to it");
            return None;
        }
        if meta.len() > MOST_FILE_BYTES {
            self.warn(path, "is too large");
            return None;
        }
        let bytes = Bytes::of_whole_file(&file).ok()?;
        let now = SystemTime::now();
        if meta.modified().ok().and_then(|time| now.duration_since(time).ok()).is_some_and(|age| age > FRESH) {
            let _without_a_new_time_it_goes_earlier = file.set_modified(now);
        }
        Some(bytes)
    }

    /// Puts a file in place, and throws out the oldest beyond the limit. Failures are no loss but of time.
    pub(super) fn write(&self, path: &Path, bytes: &[u8]) {
        self.write_with(path, |file| file.write_all(bytes));
    }

    /// The same of a file that `put` writes.
    pub(crate) fn write_with(&self, path: &Path, put: impl FnOnce(&mut File) -> io::Result<()>) {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        if !self.is_usable {
            return;
        }
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let beside = self.directory.join(format!(".{}-{number}.part", std::process::id()));
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600).custom_flags(NO_FOLLOW);
        let written = options.open(&beside).and_then(|mut file| put(&mut file));
        if written.and_then(|()| fs::rename(&beside, path)).is_err() {
            let _not_there_either = fs::remove_file(&beside);
            return;
        }
        self.shrink(path);
    }

    /// Removes abandoned parts, and the oldest files until the others are within the limit; `kept` is the last to go.
    fn shrink(&self, kept: &Path) {
        let Ok(list) = fs::read_dir(&self.directory) else { return };
        let mut files = Vec::new();
        for entry in list.flatten() {
            let path = entry.path();
            let Some(meta) = entry.metadata().ok().filter(Metadata::is_file) else { continue };
            let time = meta.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            let extension = path.extension().unwrap_or_default();
            if extension == "names" || extension == "stacks" {
                files.push((path != kept, time, meta.len(), extension == "stacks", path));
            } else if extension == "part" && time.elapsed().is_ok_and(|age| age > ABANDONED) {
                let _gone_or_not_ours = fs::remove_file(&path);
            }
        }
        files.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
        let mut sum: u64 = files.iter().map(|(_, _, size, ..)| size).sum();
        let mut stacks: u64 = files.iter().filter(|(.., is_stacks, _)| *is_stacks).map(|(_, _, size, ..)| size).sum();
        for (_, _, size, is_stacks, path) in files {
            if sum > self.most_bytes || is_stacks && stacks > self.most_bytes / 2 {
                let _gone_already = fs::remove_file(path);
                sum -= size;
                stacks -= if is_stacks { size } else { 0 };
            }
        }
    }
}

/// Owned by this user, and written by no other.
fn is_own(meta: &Metadata) -> bool {
    meta.uid() == rustix::process::geteuid().as_raw() && meta.mode() & 0o022 == 0
}
