//! How a run ends before its time: what is said on stderr, and the exit code.
//!
//! | kind | exit code | closing advice about fetched profiles |
//! |---|---|---|
//! | `usage` | 1 | no; the usage text stands around the message |
//! | `error`, `no profile` | 1 | yes |
//! | `die` | 255 | no |
//! | `quiet` | as given | yes |
//!
//! A reader that closed stdout is no failure: it ends the run with 0 and says nothing.
#![forbid(unsafe_code)]

use std::io;

/// Why a run ends now.
#[derive(Debug, PartialEq, Eq)]
pub enum Stop {
    Usage(String),
    Error(String),
    /// What was read is no profile of the kind that was looked for.
    NoProfile(String),
    Die(String),
    Quiet(u8),
    /// Nobody reads stdout any more.
    Unread,
}

pub type Result<T> = std::result::Result<T, Stop>;

impl Stop {
    pub fn usage(message: impl Into<String>) -> Stop {
        Stop::Usage(message.into())
    }

    pub fn error(message: impl Into<String>) -> Stop {
        Stop::Error(message.into())
    }

    pub fn die(message: impl Into<String>) -> Stop {
        Stop::Die(message.into())
    }
}

/// Failures of writing results; reading failures name their file and are made where the name is known.
impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Stop {
        if error.kind() == io::ErrorKind::BrokenPipe {
            Stop::Unread
        } else {
            Stop::Error(format!("cannot write the output: {}\n", reason(&error)))
        }
    }
}

/// The text of an operating system error as C programs print it: no number behind it.
pub fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    match text.find(" (os error ") {
        Some(end) => text[..end].to_owned(),
        None => text,
    }
}
