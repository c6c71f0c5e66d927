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
        // Both ends tell names apart: the namespace and the function.
        let tail = room / 2;
        let head: String = name.chars().take(room - 1 - tail).collect();
        let skipped = name.chars().count() - tail;
        Cow::Owned(format!("{head}…{}", name.chars().skip(skipped).collect::<String>()))
    }

    fn painted<'t>(&self, text: &'t str, code: &str) -> Cow<'t, str> {
        if self.color { Cow::Owned(format!("\x1b[{code}m{text}\x1b[0m")) } else { Cow::Borrowed(text) }
    }
}

#[cfg(test)]
mod tests {
    use super::Style;

    #[test]
    fn plain_text_stays_as_it_is() {
        let plain = Style::default();
        assert_eq!(plain.numbers("1.0", 50.0), "1.0");
        assert_eq!(plain.name(&"x".repeat(500), 40).len(), 500);
    }

    #[test]
    fn names_keep_both_ends_in_the_room_there_is() {
        let narrow = Style { color: true, width: Some(60) };
        let name = format!("ns::{}::function", "x".repeat(80));
        let cut = narrow.name(&name, 40);
        assert_eq!(cut.chars().count(), 20);
        assert!(cut.starts_with("ns::") && cut.ends_with("::function"), "{cut}");
        assert_eq!(narrow.numbers("9", 10.0), "\x1b[1;31m9\x1b[0m");
    }
}
