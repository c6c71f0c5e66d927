//! Texts of names, which stay in the mapped file that has them until they are looked at.
//!
//! Most names that a table of a cache's answers passes on are compared, or not even that: a copy of each would be most of the
//! memory of such a run. Bytes of a file that are not text show as the replacement character.
#![forbid(unsafe_code)]

use std::borrow::Cow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;

use super::bytes::Bytes;

/// A text that is shared.
#[derive(Clone)]
pub struct Text(Held);

#[derive(Clone)]
enum Held {
    Made(Arc<str>),
    /// `start..end` of a file, within its bounds.
    Kept {
        file: Arc<Bytes>,
        start: u32,
        end: u32,
    },
}

impl Text {
    /// A part of a file; `None` when it has none there.
    pub(super) fn kept(file: &Arc<Bytes>, range: Range<usize>) -> Option<Text> {
        file.get(range.clone())?;
        let [start, end] = [range.start, range.end].map(|at| u32::try_from(at).ok());
        Some(Text(Held::Kept { file: file.clone(), start: start?, end: end? }))
    }

    pub fn bytes(&self) -> &[u8] {
        match &self.0 {
            Held::Made(text) => text.as_bytes(),
            Held::Kept { file, start, end } => file.get(*start as usize..*end as usize).unwrap_or_default(),
        }
    }

    pub fn text(&self) -> Cow<'_, str> {
        match &self.0 {
            Held::Made(text) => Cow::Borrowed(text),
            Held::Kept { .. } => repaired(self.bytes()),
        }
    }

    /// As a text in memory.
    pub fn made(&self) -> Arc<str> {
        match &self.0 {
            Held::Made(text) => text.clone(),
            Held::Kept { .. } => self.text().into(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.bytes().is_empty()
    }

    /// The text up to one of its bytes, which begins a character.
    #[must_use]
    pub fn before(&self, at: usize) -> Text {
        match &self.0 {
            Held::Made(text) => text.get(..at).unwrap_or_default().into(),
            Held::Kept { file, start, end } => {
                let end = (*start).saturating_add(at as u32).min(*end);
                Text(Held::Kept { file: file.clone(), start: *start, end })
            }
        }
    }
}

/// Names are nearly always text, which takes less to check than to repair.
pub(super) fn repaired(bytes: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => String::from_utf8_lossy(bytes),
    }
}

impl From<Arc<str>> for Text {
    fn from(text: Arc<str>) -> Text {
        Text(Held::Made(text))
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Text {
        Text(Held::Made(text.into()))
    }
}

impl PartialEq for Text {
    fn eq(&self, other: &Text) -> bool {
        let (ours, theirs) = (self.bytes(), other.bytes());
        std::ptr::eq(ours, theirs) || ours == theirs
    }
}

impl Eq for Text {}

impl Hash for Text {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.bytes().hash(state);
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.text(), out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_files_are_texts_like_others() {
        let file = Arc::new(Bytes::Unpacked(b"one two\xff".to_vec()));
        let part = |range| Text::kept(&file, range).expect("a part");
        let two = part(4..7);
        assert_eq!((two.text().as_ref(), &*two.made(), two.is_empty()), ("two", "two", false));
        assert_eq!(two, Text::from("two"));
        assert_ne!(two, part(0..3));
        assert_eq!((two.before(2), Text::from("two").before(2)), (Text::from("tw"), Text::from("tw")));
        assert_eq!(two.before(9), two);
        assert_eq!(part(4..8).text(), "two\u{fffd}");
        assert!(part(8..8).is_empty() && Text::kept(&file, 7..9).is_none());
    }
}
