//! Parameters of a request: `a=1&b=two%20words`.
#![forbid(unsafe_code)]

use regex::{Regex, RegexBuilder};

/// Bytes of a compiled pattern; the time of a match is linear in the text.
const PATTERN_SIZE: usize = 1 << 20;
const PATTERN_LONGEST: usize = 1000;

/// Parameters by name.
#[derive(Debug, Default)]
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    pub(super) fn parse(text: &str) -> Query {
        let pair = |part: &str| {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            (decoded(name), decoded(value))
        };
        Query(text.split('&').filter(|part| !part.is_empty()).map(pair).collect())
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.as_str())
            .filter(|value| !value.is_empty())
    }

    /// A number, when there is one that parses.
    pub(super) fn number<T: std::str::FromStr>(&self, name: &str) -> Option<T> {
        self.text(name)?.parse().ok()
    }

    /// A pattern; an error is for the user.
    pub(super) fn regex(&self, name: &str) -> Result<Option<Regex>, String> {
        let Some(pattern) = self.text(name) else { return Ok(None) };
        if pattern.len() > PATTERN_LONGEST {
            return Err(format!("the pattern is longer than {PATTERN_LONGEST} bytes"));
        }
        RegexBuilder::new(pattern)
            .case_insensitive(true)
            .size_limit(PATTERN_SIZE)
            .build()
            .map(Some)
            .map_err(|_| format!("cannot use the pattern {pattern:?}"))
    }
}

/// Percent signs and plus signs undone; what is not right stays as it is.
fn decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = |at: usize| bytes.get(at).and_then(|byte| (*byte as char).to_digit(16));
        match (bytes[at], hex(at + 1), hex(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                out.push((high * 16 + low) as u8);
                at += 2;
            }
            (b'+', ..) => out.push(b' '),
            (byte, ..) => out.push(byte),
        }
        at += 1;
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::Query;

    #[test]
    fn parameters_are_decoded() {
        let query = Query::parse("a=1&name=std%3A%3Avec+x&bad=%zz%&&flag&u=%ff%C3%A4");
        assert_eq!(query.number::<u32>("a"), Some(1));
        assert_eq!(query.text("name"), Some("std::vec x"));
        assert_eq!(query.text("bad"), Some("%zz%"));
        assert_eq!(query.text("flag"), None);
        assert_eq!(query.text("u"), Some("\u{fffd}ä"));
        assert_eq!(query.number::<u32>("name"), None);
    }

    #[test]
    fn patterns_are_bounded() {
        assert!(Query::parse("p=(").regex("p").is_err());
        assert!(Query::parse(&format!("p={}", "a".repeat(1001))).regex("p").is_err());
        assert!(Query::parse("p=(a%7B1000%7D)%7B1000%7D").regex("p").is_err());
        assert!(Query::parse("p=MAIN").regex("p").is_ok_and(|regex| regex.is_some_and(|regex| regex.is_match("main"))));
        assert!(Query::parse("").regex("p").is_ok_and(|regex| regex.is_none()));
    }
}
