//! Command lines as Perl's `Getopt::Long` reads them with its default settings.
//!
//! - `--x`, `-x` and `+x` are the same; values follow `=` or are the next word, whatever that looks like;
//! - names may be cut as long as they stay unique, and case does not count;
//! - flags marked as such are switched off with `--noX` or `--no-X`;
//! - options may stand anywhere, `--` ends them, a lone `-` is a plain word.
//!
//! With `POSIXLY_CORRECT` set, as there: no `+`, no cut names, and the first plain word ends the options. Errors are
//! collected as lines in the order they were met, and reading goes on behind each.
#![forbid(unsafe_code)]

use std::cell::LazyCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::ops::Deref;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

/// What an option takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// Nothing; cannot be negated.
    Nothing,
    /// Nothing; `--noX` exists.
    Switch,
    Text,
    Integer,
    Real,
}

/// What was given.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Flag(bool),
    Text(OsString),
    Integer(i64),
    Real(f64),
}

/// An option met on the command line.
#[derive(Debug, PartialEq)]
pub struct Given {
    pub name: &'static str,
    pub value: Value,
}

/// Everything that was read.
#[derive(Debug, Default, PartialEq)]
pub struct Parsed {
    pub given: Vec<Given>,
    pub words: Vec<OsString>,
    /// One line each, without its end.
    pub errors: Vec<String>,
}

#[derive(Clone, Copy)]
struct Entry {
    name: &'static str,
    takes: Takes,
    negated: bool,
}

impl Entry {
    /// Tells options apart when several names were possible.
    fn identity(self) -> String {
        if self.negated { format!("no{}", self.name) } else { self.name.to_owned() }
    }
}

/// Reads `arguments` (without the program's name). `posix`: whether `POSIXLY_CORRECT` is set.
pub fn parse(specification: &[(&'static str, Takes)], arguments: Vec<OsString>, posix: bool) -> Parsed {
    // Names that are spelled out need none.
    let table = LazyCell::new(|| table(specification));
    let mut parsed = Parsed::default();
    let mut rest = arguments.into_iter();
    while let Some(word) = rest.next() {
        if word == "--" {
            break;
        }
        let Some((starter, body)) = split_starter(&word, posix) else {
            parsed.words.push(word);
            if posix {
                break;
            }
            continue;
        };
        match option((specification, &table), starter, body, &mut rest, posix) {
            Ok(given) => parsed.given.push(given),
            Err(line) => parsed.errors.push(line),
        }
    }
    parsed.words.extend(rest);
    parsed
}

/// Entries by every name that they have.
fn table(specification: &[(&'static str, Takes)]) -> BTreeMap<String, Entry> {
    let mut table = BTreeMap::new();
    for &(name, takes) in specification {
        table.insert(name.to_owned(), Entry { name, takes, negated: false });
        if takes == Takes::Switch {
            for key in [format!("no{name}"), format!("no-{name}")] {
                table.insert(key, Entry { name, takes, negated: true });
            }
        }
    }
    table
}

fn split_starter(word: &OsStr, posix: bool) -> Option<(&'static str, &[u8])> {
    let bytes = word.as_bytes();
    if bytes == b"-" {
        return None;
    }
    if let Some(body) = bytes.strip_prefix(b"--") {
        return Some(("--", body));
    }
    if let Some(body) = bytes.strip_prefix(b"-") {
        return Some(("-", body));
    }
    bytes.strip_prefix(b"+").filter(|_| !posix).map(|body| ("+", body))
}

fn option(
    (specification, table): (&[(&'static str, Takes)], &impl Deref<Target = BTreeMap<String, Entry>>),
    starter: &str,
    body: &[u8],
    rest: &mut std::vec::IntoIter<OsString>,
    posix: bool,
) -> Result<Given, String> {
    // An equals sign in first place belongs to the name.
    let equals = body.iter().skip(1).position(|&b| b == b'=').map(|at| at + 1);
    let equals = equals.filter(|_| !posix || starter == "--");
    let (name, attached) = match equals {
        Some(at) => (&body[..at], Some(OsString::from_vec(body[at + 1..].to_vec()))),
        None => (body, None),
    };
    let typed = String::from_utf8_lossy(name).into_owned();
    let lower = typed.to_ascii_lowercase();
    let spelled_out = specification.iter().find(|(name, _)| *name == lower);
    let spelled_out = spelled_out.map(|&(name, takes)| Entry { name, takes, negated: false });
    let name =
        if posix || lower.is_empty() || spelled_out.is_some() { lower.clone() } else { complete(table, &lower)? };
    let Some(entry) = spelled_out.or_else(|| table.get(&name).copied()) else {
        return Err(if lower.is_empty() {
            format!("Missing option after {starter}")
        } else {
            format!("Unknown option: {}", if posix { &typed } else { &lower })
        });
    };
    let given = |value| Ok(Given { name: entry.name, value });
    match entry.takes {
        Takes::Nothing | Takes::Switch => {
            if attached.is_some() {
                return Err(format!("Option {name} does not take an argument"));
            }
            given(Value::Flag(!entry.negated))
        }
        _ => {
            let value = match attached {
                Some(value) if value.is_empty() => None,
                Some(value) => Some(value),
                None => rest.next(),
            };
            let Some(value) = value else {
                return Err(format!("Option {name} requires an argument"));
            };
            convert(entry.takes, &name, value).and_then(given)
        }
    }
}

fn convert(takes: Takes, name: &str, value: OsString) -> Result<Value, String> {
    let bad = |what: &str| Err(format!("Value \"{}\" invalid for option {name} ({what} expected)", value.display()));
    match takes {
        Takes::Integer => match integer(value.as_bytes()) {
            Some(number) => Ok(Value::Integer(number)),
            None => bad("number"),
        },
        Takes::Real => match real(value.as_bytes()) {
            Some(number) => Ok(Value::Real(number)),
            None => bad("real number"),
        },
        _ => Ok(Value::Text(value)),
    }
}

/// The one name that starts with `name`; itself when there is none or it is complete.
fn complete(table: &BTreeMap<String, Entry>, name: &str) -> Result<String, String> {
    let hits: Vec<&String> = table.keys().filter(|key| key.starts_with(name)).collect();
    match hits.as_slice() {
        [] => Ok(name.to_owned()),
        [one] => Ok((*one).clone()),
        _ if table.contains_key(name) => Ok(name.to_owned()),
        _ => {
            let identities: BTreeSet<String> = hits.iter().map(|key| table[*key].identity()).collect();
            if let [one] = identities.into_iter().collect::<Vec<_>>().as_slice() {
                return Ok(one.clone());
            }
            let names: Vec<&str> = hits.iter().map(|key| key.as_str()).collect();
            Err(format!("Option {name} is ambiguous ({})", names.join(", ")))
        }
    }
}

/// Digits with an optional sign; underscores are ignored. Values beyond 64 bits stop at its ends.
fn integer(text: &[u8]) -> Option<i64> {
    let (negative, digits) = sign(text);
    let first = digits.iter().find(|&&b| b != b'_')?;
    if !first.is_ascii_digit() || !digits.iter().all(|&b| b == b'_' || b.is_ascii_digit()) {
        return None;
    }
    let mut value = 0i64;
    for digit in digits.iter().filter(|b| b.is_ascii_digit()) {
        value = value.saturating_mul(10).saturating_add(i64::from(digit - b'0'));
    }
    Some(if negative { -value } else { value })
}

fn real(text: &[u8]) -> Option<f64> {
    let (negative, mut rest) = sign(text);
    if !matches!(rest.first(), Some(b'0'..=b'9' | b'.')) {
        return None;
    }
    let mut plain = String::from(if negative { "-" } else { "" });
    let mut take = |rest: &mut &[u8]| {
        let end = rest.iter().position(|&b| !(b.is_ascii_digit() || b == b'_')).unwrap_or(rest.len());
        plain.extend(rest[..end].iter().filter(|&&b| b != b'_').map(|&b| b as char));
        *rest = &rest[end..];
        end
    };
    let whole = take(&mut rest);
    let mut fraction = 0;
    let mut text_fraction = None;
    if rest.first() == Some(&b'.') {
        let mut after = &rest[1..];
        let before = plain_len(after);
        if before == 0 {
            return None;
        }
        fraction = before;
        text_fraction = Some(after[..before].to_vec());
        after = &after[before..];
        rest = after;
    }
    if whole == 0 && fraction == 0 {
        return None;
    }
    if plain.is_empty() || plain == "-" {
        plain.push('0');
    }
    if let Some(digits) = text_fraction {
        plain.push('.');
        plain.extend(digits.iter().filter(|&&b| b != b'_').map(|&b| b as char));
        plain.push('0');
    }
    if let Some(b'e' | b'E') = rest.first() {
        let (negative, digits) = sign(&rest[1..]);
        let length = plain_len(digits);
        if length == 0 {
            return None;
        }
        plain.push_str(if negative { "e-" } else { "e" });
        plain.extend(digits[..length].iter().filter(|&&b| b != b'_').map(|&b| b as char));
        rest = &digits[length..];
    }
    if rest.is_empty() { plain.parse().ok() } else { None }
}

fn plain_len(text: &[u8]) -> usize {
    text.iter().position(|&b| !(b.is_ascii_digit() || b == b'_')).unwrap_or(text.len())
}

fn sign(text: &[u8]) -> (bool, &[u8]) {
    match text.first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPECIFICATION: [(&str, Takes); 6] = [
        ("text", Takes::Switch),
        ("test", Takes::Switch),
        ("focus", Takes::Text),
        ("nodecount", Takes::Integer),
        ("edgefraction", Takes::Real),
        ("heapcheck", Takes::Nothing),
    ];

    fn read(words: &[&str]) -> Parsed {
        parse(&SPECIFICATION, words.iter().map(OsString::from).collect(), false)
    }

    fn flag(name: &'static str, on: bool) -> Given {
        Given { name, value: Value::Flag(on) }
    }

    #[test]
    fn prefixes_case_abbreviation_and_negation() {
        for word in ["--text", "-text", "+text", "--TEXT", "-tex"] {
            assert_eq!(read(&[word]).given, [flag("text", true)], "{word}");
        }
        assert_eq!(read(&["--notext"]).given, [flag("text", false)]);
        assert_eq!(read(&["--no-tex"]).given, [flag("text", false)]);
        assert_eq!(read(&["--te"]).errors, ["Option te is ambiguous (test, text)"]);
        assert_eq!(read(&["--noheapcheck"]).errors, ["Unknown option: noheapcheck"]);
    }

    #[test]
    fn values_and_their_errors() {
        assert_eq!(read(&["--focus=a=b"]).given, [Given { name: "focus", value: Value::Text("a=b".into()) }]);
        assert_eq!(read(&["--focus", "--text"]).given, [Given { name: "focus", value: Value::Text("--text".into()) }]);
        assert_eq!(read(&["--focus="]).errors, ["Option focus requires an argument"]);
        assert_eq!(read(&["--focus"]).errors, ["Option focus requires an argument"]);
        assert_eq!(read(&["--text=1"]).errors, ["Option text does not take an argument"]);
        assert_eq!(read(&["--nodecount=1_0"]).given, [Given { name: "nodecount", value: Value::Integer(10) }]);
        assert_eq!(read(&["--nodecount=x"]).errors, ["Value \"x\" invalid for option nodecount (number expected)"]);
        assert_eq!(
            read(&["--edgefraction", ".5e-1"]).given,
            [Given { name: "edgefraction", value: Value::Real(0.05) }]
        );
        assert_eq!(
            read(&["--edgefraction=1."]).errors,
            ["Value \"1.\" invalid for option edgefraction (real number expected)"]
        );
    }

    #[test]
    fn words_anywhere_and_the_end_of_options() {
        let parsed = read(&["prog", "--text", "-", "--", "--heap"]);
        assert_eq!(parsed.given, [flag("text", true)]);
        assert_eq!(parsed.words, ["prog", "-", "--heap"]);
    }
}
