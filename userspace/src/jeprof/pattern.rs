//! Regular expressions of the command line, in Perl's syntax.
//!
//! Those without look-around and back-references run in time linear to the text. `\w` and the like mean ASCII.
#![forbid(unsafe_code)]

use super::stop::{Result, Stop};

/// Backtracking steps for one match; beyond it the text counts as not matching.
const STEPS: usize = 10_000_000;

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
        assert!(matches!(Pattern::new("(", "--focus"), Err(Stop::Die(text)) if text.starts_with("--focus: ")));
    }
}
