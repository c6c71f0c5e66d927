//! Regular expressions of the command line, in Perl's syntax.
//!
//! Those without look-around and back-references run in time linear to the text. `\w` and the like mean ASCII.
#![forbid(unsafe_code)]

use super::stop::{Result, Stop};

/// Backtracking steps for one match; beyond it the text counts as not matching.
const STEPS: usize = 10_000_000;

/// Digits in the number of a group; the engine keeps a place for each group up to the number.
const GROUP_DIGITS: usize = 4;

/// A compiled expression.
#[derive(Debug)]
pub enum Pattern {
    Linear(regex::bytes::Regex),
    Backtracking(Box<fancy_regex::Regex>),
}

impl Pattern {
    /// `option` names where the expression comes from.
    pub fn new(text: &str, option: &str) -> Result<Pattern> {
        if let Ok(linear) = regex::bytes::RegexBuilder::new(text).unicode(false).build() {
            return Ok(Pattern::Linear(linear));
        }
        // Characters beyond ASCII in brackets need the other meaning of characters.
        if let Ok(linear) = regex::bytes::Regex::new(text) {
            return Ok(Pattern::Linear(linear));
        }
        if let Some(reference) = distant_group(text) {
            return Err(Stop::die(format!(
                "{option}: not a regular expression: no group has the number in {reference}\n"
            )));
        }
        match fancy_regex::RegexBuilder::new(text).backtrack_limit(STEPS).build() {
            Ok(other) => Ok(Pattern::Backtracking(Box::new(other))),
            Err(error) => Err(Stop::die(format!("{option}: not a regular expression: {error}\n"))),
        }
    }

    pub fn is_match(&self, text: &str) -> bool {
        match self {
            Pattern::Linear(expression) => expression.is_match(text.as_bytes()),
            Pattern::Backtracking(expression) => expression.is_match(text).unwrap_or(false),
        }
    }
}

/// The first reference to a group by a number that no expression has so many groups for.
fn distant_group(text: &str) -> Option<&str> {
    const STARTS: [&str; 6] = ["\\", "\\k", "\\g", "(?", "(?P=", "(?P>"];
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        if !bytes[at].is_ascii_digit() {
            at += 1;
            continue;
        }
        let end = bytes[at..].iter().position(|byte| !byte.is_ascii_digit()).map_or(bytes.len(), |length| at + length);
        if end - at > GROUP_DIGITS {
            let before = &text[..at];
            let before = before.strip_suffix(['+', '-']).unwrap_or(before);
            let opened = before.strip_suffix(['<', '\'', '{', '(', '&']).unwrap_or(before);
            if let Some(start) = STARTS.iter().find(|start| opened.ends_with(*start)) {
                return Some(&text[opened.len() - start.len()..end]);
            }
        }
        at = end;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_perl_takes() {
        for (expression, text, expected) in [
            ("leaf|user", "big_user", true),
            ("^leaf$", "leafy", false),
            ("(?<!x)y", "ay", true),
            ("(?<!x)y", "xy", false),
            (r"(.)\1", "aa", true),
            ("ü", "über", true),
        ] {
            let pattern = Pattern::new(expression, "--focus").expect(expression);
            assert_eq!(pattern.is_match(text), expected, "{expression} {text}");
        }
        for reference in [r"\k<55555555555555>", r"\555555", r"\g{-55555}", "(?(55555)a)", r"\k'+55555'"] {
            let expression = format!("(?!x){reference}");
            let Err(Stop::Die(text)) = Pattern::new(&expression, "--focus") else { panic!("{expression} is taken") };
            assert!(text.contains("55555"), "{text}");
        }
        assert!(Pattern::new("(?!x)55555(?:123456)[<555555]", "--focus").is_ok());
        assert!(matches!(Pattern::new("(", "--focus"), Err(Stop::Die(text)) if text.starts_with("--focus: ")));
    }
}
