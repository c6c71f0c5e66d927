//! How wide text is in Helvetica, the font of every picture here.
//!
//! PDF and PostScript readers have Helvetica built in; browsers take Arial, Liberation Sans or what they have, and SVG texts
//! carry their width, so that another font is squeezed to it and never runs over a border.
#![forbid(unsafe_code)]

use unicode_width::UnicodeWidthChar as _;

/// Advance widths of U+0020 to U+007E in thousandths of the font size.
#[rustfmt::skip]
const WIDTHS: [u16; 95] = [
    278, 278, 355, 556, 556, 889, 667, 191, 333, 333, 389, 584, 278, 333, 278, 278,
    556, 556, 556, 556, 556, 556, 556, 556, 556, 556, 278, 278, 584, 584, 584, 556,
    1015, 667, 667, 722, 722, 667, 611, 778, 722, 278, 500, 667, 556, 833, 722, 778,
    667, 778, 722, 667, 611, 722, 667, 944, 667, 667, 611, 278, 278, 278, 469, 556,
    333, 556, 556, 500, 556, 556, 278, 556, 556, 222, 222, 500, 222, 833, 556, 556,
    556, 556, 333, 500, 278, 556, 500, 722, 500, 500, 500, 334, 260, 334, 584,
];

/// Widths of other characters: of letters as they are in Latin, Greek and Cyrillic; of those that take two columns on a
/// terminal, as in Chinese; of accents that stand over others.
const LETTER: u16 = 600;
const WIDE: u16 = 1000;
const OVER: u16 = 0;

/// Line height over font size.
pub(super) const LINE: f64 = 1.2;
/// From the middle of a line down to its base line, over font size.
pub(super) const TO_BASELINE: f64 = 0.35;

/// Width of a text, in the unit of the size.
pub(super) fn width(text: &str, size: f64) -> f64 {
    text.chars().map(|c| f64::from(advance(c))).sum::<f64>() * size / 1000.0
}

fn advance(c: char) -> u16 {
    let at = (c as usize).checked_sub(0x20);
    at.and_then(|at| WIDTHS.get(at)).copied().unwrap_or_else(|| match (c, c.width()) {
        ('…', _) | (_, Some(2)) => WIDE,
        (_, Some(0)) => OVER,
        _ => LETTER,
    })
}

/// The text, or its beginning with an ellipsis, so that it is at most `room` wide; empty when not even that fits.
pub(super) fn fitted(text: &str, size: f64, room: f64) -> String {
    if width(text, size) <= room {
        return text.to_owned();
    }
    let mut left = room - width("…", size);
    let kept = text.chars().take_while(|&c| {
        left -= f64::from(advance(c)) * size / 1000.0;
        left >= 0.0
    });
    let kept: String = kept.collect();
    if kept.is_empty() { kept } else { kept + "…" }
}

/// The same with its end kept: that of a path or a qualified name tells the most.
pub(super) fn fitted_end(text: &str, size: f64, room: f64) -> String {
    if width(text, size) <= room {
        return text.to_owned();
    }
    let mut left = room - width("…", size);
    let kept = text.char_indices().rev().take_while(|&(_, c)| {
        left -= f64::from(advance(c)) * size / 1000.0;
        left >= 0.0
    });
    kept.last().map_or_else(String::new, |(at, _)| format!("…{}", &text[at..]))
}

/// Breaks a name into lines of at most about `room` characters: after `::` and `/`, else anywhere.
pub(super) fn broken(name: &str, room: usize, lines_at_most: usize) -> Vec<String> {
    let mut lines: Vec<String> = vec![String::new()];
    let mut length = 0;
    for piece in pieces(name) {
        let size = piece.chars().count();
        if length > 0 && length + size > room {
            lines.push(String::new());
            length = 0;
        }
        for c in piece.chars() {
            if length == room {
                lines.push(String::new());
                length = 0;
            }
            lines.last_mut().expect("there is a line").push(c);
            length += 1;
        }
    }
    if lines.len() > lines_at_most {
        // The end of a path names the function: the middle goes.
        let tail = lines.split_off(lines.len() - lines_at_most.div_ceil(2));
        lines.truncate(lines_at_most - tail.len());
        lines.last_mut().expect("there is a line").push('…');
        lines.extend(tail);
    }
    lines
}

/// Pieces that a name is best not broken inside of.
fn pieces(name: &str) -> Vec<&str> {
    let mut pieces = Vec::new();
    let (mut start, bytes) = (0, name.as_bytes());
    for (at, c) in name.char_indices() {
        let end = at + c.len_utf8();
        let breaks = c == '/' || c == ' ' || c == ',' || (c == ':' && at > 0 && bytes[at - 1] == b':');
        if breaks {
            pieces.push(&name[start..end]);
            start = end;
        }
    }
    pieces.push(&name[start..]);
    pieces
}

#[cfg(test)]
mod tests {
    use super::{broken, fitted, fitted_end, width};

    #[test]
    fn widths_are_helveticas() {
        assert!((width("Wi", 10.0) - 11.66).abs() < 1e-9);
        assert!((width("", 10.0)).abs() < 1e-9);
        assert!((width("да类e\u{301}", 10.0) - 27.56).abs() < 1e-9);
    }

    #[test]
    fn text_that_does_not_fit_is_cut() {
        assert_eq!(fitted("malloc", 10.0, 100.0), "malloc");
        assert_eq!(fitted("malloc", 10.0, 25.0), "ma…");
        assert_eq!(fitted("malloc", 10.0, 5.0), "");
        assert_eq!(fitted_end("a::é::grow", 10.0, 100.0), "a::é::grow");
        assert_eq!(fitted_end("a::é::grow", 10.0, 34.0), "…grow");
        assert_eq!(fitted_end("malloc", 10.0, 5.0), "");
    }

    #[test]
    fn names_break_at_paths() {
        assert_eq!(broken("std::vector::push_back", 16, 6), ["std::vector::", "push_back"]);
        assert_eq!(broken("abcdefgh", 4, 6), ["abcd", "efgh"]);
        assert_eq!(broken("aa::bb::cc::dd::ee::ff", 4, 3), ["aa::…", "ee::", "ff"]);
        assert_eq!(broken("", 4, 3), [""]);
    }
}
