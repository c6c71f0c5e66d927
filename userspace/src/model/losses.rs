//! Losses of a recording: which of them make a result wrong, and what is said of them.
#![forbid(unsafe_code)]

use jeprobe_abi::drops::Reason;

use super::profile::Profile;

/// True for losses that make the numbers wrong, as opposed to stacks shorter or frees older than one would like.
pub fn is_lost(reason: Reason) -> bool {
    match reason {
        Reason::NoMemory
        | Reason::RingFull
        | Reason::MapFull
        | Reason::BadArgs
        | Reason::ContextUnread
        | Reason::UnknownRecord => true,
        // A few at thread ends and inside the recorder belong to its way of working; a torn entry is off by one sample.
        Reason::Reentrant
        | Reason::ThreadExiting
        | Reason::NoStack
        | Reason::TruncatedStack
        | Reason::UnknownFree
        | Reason::UserStackFault
        | Reason::TornRead => false,
    }
}

/// Words that are others for one of a thing.
const SINGULARS: [(&str, &str); 10] = [
    ("they were", "it was"),
    (" were", " was"),
    ("samples", "sample"),
    ("stacks", "stack"),
    ("events", "event"),
    ("frees", "free"),
    ("hits", "hit"),
    ("records", "record"),
    ("points", "point"),
    ("entries", "entry"),
];

impl Profile {
    /// What was lost, in words: `lost: 3 samples …; what to do`; without the first of them where numbers are right.
    pub fn lost(&self) -> impl Iterator<Item = String> {
        self.losses().map(|(reason, count)| words(reason, count))
    }
}

fn words(reason: Reason, count: u64) -> String {
    let mut meaning = reason.meaning().to_owned();
    if count == 1 {
        for (many, one) in SINGULARS {
            meaning = meaning.replacen(many, one, 1);
        }
    }
    let what = if is_lost(reason) { "lost: " } else { "" };
    format!("{what}{count} {meaning}; {}", reason.remedy())
}

#[cfg(test)]
mod tests {
    use super::words;
    use jeprobe_abi::drops::Reason;

    #[test]
    fn one_is_not_many() {
        let line = |reason, count| words(reason, count);
        assert!(line(Reason::TruncatedStack, 1).starts_with("1 stack that ended before the outermost frame; "));
        assert!(line(Reason::TruncatedStack, 2).starts_with("2 stacks that ended before the outermost frame; "));
        assert!(line(Reason::TornRead, 1).starts_with("1 table entry that changed while it was read; "));
        assert!(line(Reason::RingFull, 1).starts_with("lost: 1 event lost because "));
    }
}
