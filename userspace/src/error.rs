//! Errors that users see and what they can do about them.
//!
//! Each variant's text says what was being done to what; `source()` says why; [`Error::hint`] says what to do next,
//! with a command to try. Modules with errors of their own give them a `hint()` too; `cli/term.rs` looks for it.
#![forbid(unsafe_code)]

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// Errors of the loader's own parts: files, processes, remote memory, children.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    #[error("cannot write to standard output")]
    Stdout(#[source] io::Error),

    #[error("cannot write {}", path.display())]
    WriteFile { path: PathBuf, source: io::Error },

    #[error("there is no process with pid {pid}")]
    NoProcess { pid: u32 },
}

impl Error {
    /// What the user can do, when there is something.
    pub fn hint(&self) -> Option<String> {
        match self {
            Error::Stdout(_) => None,
            Error::WriteFile { source, .. } => match source.raw_os_error() {
                Some(libc::ENOSPC) => Some("free some space, or name a file on another disk with -o".into()),
                Some(libc::EACCES | libc::EPERM | libc::EROFS) => {
                    Some("name a file in a directory you may write to: -o /tmp/jeprobe.heap".into())
                }
                Some(libc::ENOENT) => Some("create the directory first, or name another file with -o".into()),
                _ => None,
            },
            Error::NoProcess { .. } => Some("list candidates with: pgrep -a NAME".into()),
        }
    }
}
