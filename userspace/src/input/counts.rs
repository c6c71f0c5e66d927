//! Lines of counts in text profiles.
#![forbid(unsafe_code)]

use super::lines::{Reason, number, shown};
use crate::estimate::Sampling;
use crate::model::{ThreadUid, Values};
use crate::units::Count;

/// Both pairs of one line, as printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pairs {
    pub(super) current: Count,
    pub(super) cumulative: Count,
}

impl Pairs {
    /// `objects: bytes [objects: bytes]`, and what follows.
    pub(super) fn parse(text: &[u8]) -> Option<(Pairs, &[u8])> {
        let (objects, text) = number_before(text, b':')?;
        let (bytes, text) = number_before(text, b'[')?;
        let (ever_objects, text) = number_before(text, b':')?;
        let (ever_bytes, text) = number_before(text, b']')?;
        let pairs =
            Pairs { current: Count { objects, bytes }, cumulative: Count { objects: ever_objects, bytes: ever_bytes } };
        Some((pairs, text))
    }

    pub(super) fn unbias(self, sampling: Sampling) -> Values {
        Values { current: sampling.unbias(self.current), cumulative: sampling.unbias(self.cumulative) }
    }
}

/// One `t…` line.
pub(super) struct ThreadLine<'a> {
    /// `None` for `t*`.
    pub(super) thread: Option<ThreadUid>,
    pub(super) pairs: Pairs,
    pub(super) name: &'a [u8],
}

pub(super) fn thread_line(line: &[u8]) -> Result<ThreadLine<'_>, Reason> {
    let colon = line.iter().position(|&b| b == b':').ok_or_else(|| Reason::BadCounts(shown(line)))?;
    let uid = &line[1..colon];
    let thread = if uid == b"*" {
        None
    } else {
        let uid = number(uid).and_then(|uid| u32::try_from(uid).ok());
        Some(ThreadUid(uid.ok_or_else(|| Reason::BadThread(shown(line)))?))
    };
    let (pairs, name) = Pairs::parse(&line[colon + 1..]).ok_or_else(|| Reason::BadCounts(shown(line)))?;
    Ok(ThreadLine { thread, pairs, name: name.trim_ascii() })
}

/// The number that ends before `mark`, and the text after it.
fn number_before(text: &[u8], mark: u8) -> Option<(u64, &[u8])> {
    let end = text.iter().position(|&b| b == mark)?;
    Some((number(text[..end].trim_ascii())?, &text[end + 1..]))
}
