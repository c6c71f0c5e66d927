//! Result files: complete or not there.
//!
//! ```text
//! check(path) ─► … work … ─► write(path): temp file without a name ─► write, flush ─► name beside path ─► rename over it
//! ```
//!
//! A reader never meets half a profile under the final name, whatever happens in between: a full disk, a signal, a lost
//! directory. A file without a name is gone when this process is killed, so nothing stays behind; where the file system has
//! none, or the rights of another user are taken, the temp file has its name from the start. Devices and pipes
//! (`/dev/stdout`, a FIFO) are written in place, since a rename would replace them.
#![forbid(unsafe_code)]

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, linkat};

use crate::error::Error;
use crate::fsuser::FsUser;

/// Open files of this process, as links.
const OPEN_FILES: &str = "/proc/self/fd";

/// Fails early when a result could not be written to `path` later. Leaves nothing behind.
pub fn check(path: &Path) -> Result<(), Error> {
    let failed = |source| Error::WriteFile { path: path.to_owned(), source };
    match fs::metadata(path) {
        Ok(meta) if meta.is_dir() => return Err(failed(io::Error::from_raw_os_error(libc::EISDIR))),
        Ok(meta) if !meta.is_file() => {
            // Opening a FIFO would wait for its reader; it shows at the end.
            return Ok(());
        }
        _ => {}
    }
    let (temp, file) = temp_beside(&resolve(path)).map_err(failed)?;
    drop(file);
    fs::remove_file(temp).map_err(failed)
}

/// Writes a whole file, or leaves what was there.
pub fn write(path: &Path, body: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), Error> {
    write_by(path, true, body)
}

fn write_by(
    path: &Path,
    may_be_unnamed: bool,
    body: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), Error> {
    let failed = |source| Error::WriteFile { path: path.to_owned(), source };
    if fs::metadata(path).is_ok_and(|meta| !meta.is_file() && !meta.is_dir()) {
        let file = OpenOptions::new().write(true).open(path).map_err(failed)?;
        return fill(file, body).map(drop).map_err(failed);
    }
    let target = resolve(path);
    if let Some(file) = unnamed_beside(&target).filter(|_| may_be_unnamed) {
        let written = fill(file, body).and_then(|file| {
            file.sync_data()?;
            publish(&file, &target)
        });
        return written.map_err(failed);
    }
    let (temp, file) = temp_beside(&target).map_err(failed)?;
    let written = fill(file, body).and_then(|file| {
        // Delayed allocation reports a full disk only here; a rename before that would lose the old file too.
        file.sync_data()?;
        fs::rename(&temp, &target)
    });
    written.map_err(|error| {
        // The error that is reported is the first one; a temp file that stays is told apart by its name.
        let _still_there = fs::remove_file(&temp);
        failed(error)
    })
}

/// Like [`write`], with the rights of another user and to a regular file only: for names that another process chose.
pub fn write_as(
    (uid, gid): (u32, u32),
    path: &Path,
    body: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), Error> {
    let _user = FsUser::become_user(uid, gid);
    if fs::symlink_metadata(path).is_ok_and(|meta| !meta.is_file()) {
        return Err(Error::WriteFile { path: path.to_owned(), source: io::Error::from(ErrorKind::AlreadyExists) });
    }
    // The links to open files are those of the process's own user.
    write_by(path, false, body)
}

/// `stem` with `.suffix` put before a final `.heap` or `.heap.gz`, or appended: `a.heap` and `merged` make `a.merged.heap`.
pub fn beside(path: &Path, suffix: &str) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let stem = name.strip_suffix(".gz").unwrap_or(&name);
    let stem = stem.strip_suffix(".heap").unwrap_or(stem);
    path.with_file_name(format!("{stem}.{suffix}.heap"))
}

fn fill(file: File, body: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<File> {
    let mut out = BufWriter::with_capacity(256 * 1024, file);
    body(&mut out)?;
    out.into_inner().map_err(io::IntoInnerError::into_error)
}

/// The file that a chain of symbolic links names, so that the rename replaces it and not the link.
fn resolve(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

/// A new file in the same directory, so that the rename stays on one file system.
fn temp_beside(target: &Path) -> io::Result<(PathBuf, File)> {
    under_free_name(target, |temp| OpenOptions::new().write(true).create_new(true).open(temp))
}

/// A new file without a name on the same file system; `None` where that has no such files, or they cannot be named later.
fn unnamed_beside(target: &Path) -> Option<File> {
    let directory = target.parent().filter(|path| !path.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !Path::new(OPEN_FILES).is_dir() {
        return None;
    }
    OpenOptions::new().write(true).custom_flags(libc::O_TMPFILE).open(directory).ok()
}

/// Gives a file without a name that of the target, in place of what has it. `linkat` replaces nothing, so there is another
/// name for a moment.
fn publish(file: &File, target: &Path) -> io::Result<()> {
    let link = format!("{OPEN_FILES}/{}", file.as_raw_fd());
    let (temp, ()) = under_free_name(target, |temp| Ok(linkat(CWD, &link, CWD, temp, AtFlags::SYMLINK_FOLLOW)?))?;
    fs::rename(&temp, target).inspect_err(|_| {
        let _still_there = fs::remove_file(&temp);
    })
}

/// Makes something under a name beside the target that is not taken.
fn under_free_name<T>(target: &Path, make: impl Fn(&Path) -> io::Result<T>) -> io::Result<(PathBuf, T)> {
    let name = target.file_name().ok_or_else(|| io::Error::from_raw_os_error(libc::EISDIR))?.to_string_lossy();
    let pid = std::process::id();
    for attempt in 0..100_u32 {
        let temp = target.with_file_name(format!(".{name}.{pid}.{attempt}.tmp"));
        match make(&temp) {
            Ok(value) => return Ok((temp, value)),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::from(ErrorKind::AlreadyExists))
}

#[cfg(test)]
mod tests {
    use super::{beside, check, write};
    use std::fs;
    use std::io;
    use std::path::{Path, PathBuf};

    /// A new directory that goes away with the value.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Scratch {
            let path = std::env::temp_dir().join(format!("jeprobe-outfile-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).expect("temp dir");
            Scratch(path)
        }

        fn names(&self) -> Vec<String> {
            let entries = fs::read_dir(&self.0).expect("readable");
            entries.map(|e| e.expect("entry").file_name().to_string_lossy().into_owned()).collect()
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _left_behind = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_failed_write_keeps_the_old_file_and_leaves_no_other() {
        let dir = Scratch::new("fail");
        let path = dir.0.join("a.heap");
        write(&path, |out| out.write_all(b"old")).expect("writable");
        let error = write(&path, |out| {
            out.write_all(b"half of a new")?;
            Err(io::Error::from_raw_os_error(libc::ENOSPC))
        });
        assert!(error.expect_err("disk full").hint().is_some());
        assert_eq!(fs::read(&path).expect("still there"), b"old");
        assert_eq!(dir.names(), ["a.heap"]);
    }

    #[test]
    fn while_a_file_is_written_there_is_no_other_beside_it() {
        let dir = Scratch::new("unnamed");
        let path = dir.0.join("a.heap");
        for content in [&b"first"[..], b"second"] {
            write(&path, |out| {
                let others = dir.names().into_iter().filter(|name| name != "a.heap").count();
                // Not every file system of a test's machine has files without a name.
                assert!(others == 0 || super::unnamed_beside(&path).is_none(), "{:?}", dir.names());
                out.write_all(content)
            })
            .expect("writable");
            assert_eq!(fs::read(&path).expect("there"), content);
        }
        assert_eq!(dir.names(), ["a.heap"]);
    }

    #[test]
    fn the_check_leaves_nothing_and_finds_what_cannot_be_written() {
        let dir = Scratch::new("check");
        check(&dir.0.join("x.heap")).expect("writable");
        assert!(dir.names().is_empty());
        check(&dir.0).expect_err("a directory");
        check(&dir.0.join("no/such/x.heap")).expect_err("no directory");
        check(Path::new("/dev/null")).expect("a device is written in place");
    }

    #[test]
    fn links_are_followed_and_devices_stay() {
        let dir = Scratch::new("link");
        let (real, link) = (dir.0.join("real"), dir.0.join("link"));
        fs::write(&real, b"").expect("writable");
        std::os::unix::fs::symlink(&real, &link).expect("link");
        write(&link, |out| out.write_all(b"new")).expect("writable");
        assert!(fs::symlink_metadata(&link).expect("link").is_symlink());
        assert_eq!(fs::read(&real).expect("there"), b"new");
        write(Path::new("/dev/null"), |out| out.write_all(b"gone")).expect("null");
        assert!(!fs::metadata("/dev/null").expect("there").is_file());
        write(Path::new("/dev/full"), |out| out.write_all(b"gone")).expect_err("full");
    }

    #[test]
    fn names_beside() {
        assert_eq!(beside(Path::new("/x/a.heap"), "merged"), Path::new("/x/a.merged.heap"));
        assert_eq!(beside(Path::new("a.heap.gz"), "image2"), Path::new("a.image2.heap"));
        assert_eq!(beside(Path::new("a"), "7"), Path::new("a.7.heap"));
    }
}
