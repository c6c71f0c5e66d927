//! How tables and trees look on a terminal: colours by share, names cut to the width. Plain text has neither.
#![forbid(unsafe_code)]

use std::borrow::Cow;

/// Shares of the total from which a row stands out, in percent.
const LARGE: f64 = 10.0;
const SMALL: f64 = 1.0;

/// A name is never cut below this many characters, however narrow the terminal.
const LEAST_NAME: usize = 16;

/// See the module's text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Style {
    pub color: bool,
    /// Columns of the terminal; `None`: names are printed whole.
    pub width: Option<usize>,
    /// Branches and cuts are drawn in ASCII.
    pub is_ascii: bool,
}

/// Whether the locale's characters are others than those of Unicode: it is named by the first of these variables that is set,
/// and without any it is `C`. `variable` gives the value of one.
pub fn is_ascii_locale(variable: impl Fn(&str) -> Option<String>) -> bool {
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].iter().filter_map(|name| variable(name)).find(|text| !text.is_empty());
    let codeset = locale.as_deref().and_then(|locale| locale.split_once('.')).map_or("", |(_, codeset)| codeset);
    let codeset = codeset.split('@').next().unwrap_or_default();
    !(codeset.eq_ignore_ascii_case("UTF-8") || codeset.eq_ignore_ascii_case("UTF8"))
}

impl Style {
    /// A line of a heading.
    pub fn heading<'t>(&self, text: &'t str) -> Cow<'t, str> {
        self.painted(text, "1")
    }

    /// The numbers of a row whose share of the total is this many percent.
    pub fn numbers<'t>(&self, text: &'t str, percent: f64) -> Cow<'t, str> {
        match percent.abs() {
            share if share >= LARGE => self.painted(text, "1;31"),
            share if share >= SMALL => Cow::Borrowed(text),
            _ => self.painted(text, "2"),
        }
    }

    /// A name that begins at this column, cut where the terminal ends.
    pub fn name<'t>(&self, name: &'t str, column: usize) -> Cow<'t, str> {
        let Some(width) = self.width else { return Cow::Borrowed(name) };
        let room = width.saturating_sub(column).max(LEAST_NAME);
        if name.chars().count() <= room {
            return Cow::Borrowed(name);
        }
        // What is said of a name says less than its end.
        let name = name.strip_suffix(" (inline)").unwrap_or(name);
        if name.chars().count() <= room {
            return Cow::Borrowed(name);
        }
        // Both ends tell names apart: the namespace and the function.
        let tail = room / 2;
        let head: String = name.chars().take(room - 1 - tail).collect();
        let skipped = name.chars().count() - tail;
        let cut = if self.is_ascii { '~' } else { '…' };
        Cow::Owned(format!("{head}{cut}{}", name.chars().skip(skipped).collect::<String>()))
    }

    /// What stands before a child of a tree, and before everything below it. `is_last`: of its parent's.
    pub fn branch(&self, is_last: bool) -> (&'static str, &'static str) {
        match (self.is_ascii, is_last) {
            (false, false) => ("├─ ", "│  "),
            (false, true) => ("└─ ", "   "),
            (true, false) => ("|- ", "|  "),
            (true, true) => ("`- ", "   "),
        }
    }

    fn painted<'t>(&self, text: &'t str, code: &str) -> Cow<'t, str> {
        if self.color { Cow::Owned(format!("\x1b[{code}m{text}\x1b[0m")) } else { Cow::Borrowed(text) }
    }
}

#[cfg(test)]
mod tests {
    use super::{Style, is_ascii_locale};

    #[test]
    fn plain_text_stays_as_it_is() {
        let plain = Style::default();
        assert_eq!(plain.numbers("1.0", 50.0), "1.0");
        assert_eq!(plain.name(&"x".repeat(500), 40).len(), 500);
    }

    #[test]
    fn names_keep_both_ends_in_the_room_there_is() {
        let narrow = Style { color: true, width: Some(60), is_ascii: false };
        let name = format!("ns::{}::function", "x".repeat(80));
        let cut = narrow.name(&name, 40);
        assert_eq!(cut.chars().count(), 20);
        assert!(cut.starts_with("ns::") && cut.ends_with("::function"), "{cut}");
        let inlined = format!("{name} (inline)");
        assert!(narrow.name(&inlined, 40).ends_with("::function"), "the remark goes first");
        let ascii = Style { is_ascii: true, ..narrow };
        assert!(
            ascii.name(&name, 40).is_ascii() && ascii.branch(true).0.is_ascii() && ascii.branch(false).1.is_ascii()
        );
        assert_eq!(ascii.name(&name, 40).len(), 20);
        assert_eq!(narrow.numbers("9", 10.0), "\x1b[1;31m9\x1b[0m");
    }

    #[test]
    fn the_first_variable_that_is_set_names_the_locale() {
        let is_ascii = |set: &[(&str, &str)]| {
            is_ascii_locale(|name| set.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned()))
        };
        assert!(is_ascii(&[]));
        assert!(is_ascii(&[("LANG", "C")]));
        assert!(is_ascii(&[("LANG", "de_DE@euro")]));
        assert!(is_ascii(&[("LANG", "C.UTF-8"), ("LC_ALL", "POSIX")]));
        assert!(!is_ascii(&[("LANG", "C"), ("LC_CTYPE", "en_US.utf8")]));
        assert!(!is_ascii(&[("LC_ALL", ""), ("LANG", "C.UTF-8@x")]));
    }
}
