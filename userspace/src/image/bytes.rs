//! A file's bytes, mapped and not read: what is not looked at costs no memory of its own.
//!
//! The mapping is private and read-only, and stays valid when the file is replaced or unlinked. A file that another process
//! *shortens in place* while it is mapped ends this process with SIGBUS, as it does with every tool that maps files;
//! linkers and package managers replace files instead.

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Deref;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use memmap2::{Mmap, MmapOptions, UncheckedAdvice};

use super::error::Error;

/// The content of a regular file, or of one that was packed into another.
#[derive(Debug)]
pub(crate) enum Bytes {
    Mapped(Mmap),
    Unpacked(Vec<u8>),
}

impl Bytes {
    pub(crate) fn open(path: &Path) -> Result<Bytes, Error> {
        let failed = |source| Error::Open { path: path.to_owned(), source };
        // A FIFO would wait for a writer.
        let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path).map_err(failed)?;
        if !file.metadata().map_err(failed)?.is_file() {
            return Err(Error::NotElf { path: path.to_owned(), reason: "not a regular file".into() });
        }
        Bytes::of_file(&file).map_err(failed)
    }

    /// Of an open regular file.
    pub(crate) fn of_file(file: &File) -> io::Result<Bytes> {
        if file.metadata()?.len() == 0 {
            return Ok(Bytes::Unpacked(Vec::new()));
        }
        // SAFETY: the mapping is private and never written through; see the header about files that shrink.
        let map = unsafe { Mmap::map(file) }?;
        Ok(Bytes::Mapped(map))
    }

    /// The same of a small file that is read as a whole: all its pages are mapped at once.
    pub(crate) fn of_whole_file(file: &File) -> io::Result<Bytes> {
        if file.metadata()?.len() == 0 {
            return Ok(Bytes::Unpacked(Vec::new()));
        }
        // SAFETY: as above.
        let map = unsafe { MmapOptions::new().populate().map(file) }?;
        Ok(Bytes::Mapped(map))
    }
}

impl Bytes {
    /// Gives back the memory of a part, which is read from the file again when it is looked at.
    pub(crate) fn release(&self, part: &[u8]) {
        let Bytes::Mapped(map) = self else { return };
        let offset = part.as_ptr().addr().wrapping_sub(map.as_ptr().addr());
        if offset >= map.len() || part.len() > map.len() - offset {
            return;
        }
        // SAFETY: the mapping is of a file and never written through: its pages come back as they were.
        let _kept_then = unsafe { map.unchecked_advise_range(UncheckedAdvice::DontNeed, offset, part.len()) };
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Bytes::Mapped(map) => map,
            Bytes::Unpacked(bytes) => bytes,
        }
    }
}
