//! Facts printed by a program as `key = value` lines, and tables of expectations over them.
//!
//! A program only reports what it saw; what is right stands in the test, next to the sentence of the specification.
//! All rows that disagree are reported together.

use std::collections::BTreeMap;

use crate::artefact::{self, Flavour};

/// Facts by key. A key that appears twice is an error of the program.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    values: BTreeMap<String, String>,
}

/// One expectation.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    key: &'static str,
    want: Want,
    since: Since,
}

#[derive(Clone, Copy, Debug)]
enum Want {
    Is(&'static str),
    OneOf(&'static [&'static str]),
    Between(u64, u64),
}

/// The first allocator for which the row holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Since {
    /// glibc, too.
    Standard,
    /// Every jemalloc 5.3.
    Jemalloc530,
    /// 5.3.1, which we follow.
    Jemalloc531,
}

/// `key` has exactly this value, in every jemalloc 5.3.
pub const fn is(key: &'static str, value: &'static str) -> Row {
    Row { key, want: Want::Is(value), since: Since::Jemalloc530 }
}

pub const fn one_of(key: &'static str, values: &'static [&'static str]) -> Row {
    Row { key, want: Want::OneOf(values), since: Since::Jemalloc530 }
}

/// `key` is a number in `low..=high`.
pub const fn between(key: &'static str, low: u64, high: u64) -> Row {
    Row { key, want: Want::Between(low, high), since: Since::Jemalloc530 }
}

impl Row {
    /// The row holds for the C library as well.
    #[must_use]
    pub const fn standard(mut self) -> Self {
        self.since = Since::Standard;
        self
    }

    /// The row is new in 5.3.1.
    #[must_use]
    pub const fn since_531(mut self) -> Self {
        self.since = Since::Jemalloc531;
        self
    }

    fn applies(&self, flavour: Flavour) -> bool {
        match flavour {
            Flavour::Jeprobe => true,
            Flavour::Jemalloc530 => self.since != Since::Jemalloc531,
            Flavour::Libc => self.since == Since::Standard,
        }
    }

    fn holds(&self, value: &str) -> bool {
        match self.want {
            Want::Is(want) => value == want,
            Want::OneOf(wants) => wants.contains(&value),
            Want::Between(low, high) => value.parse::<u64>().is_ok_and(|number| (low..=high).contains(&number)),
        }
    }
}

impl Facts {
    pub fn parse(text: &str) -> Self {
        let mut values = BTreeMap::new();
        for line in text.lines() {
            if let Some((key, value)) = line.split_once(" = ") {
                let before = values.insert(key.to_owned(), value.to_owned());
                assert!(before.is_none(), "the program printed {key:?} twice");
            }
        }
        Self { values }
    }

    pub fn get(&self, key: &str) -> &str {
        self.values.get(key).unwrap_or_else(|| panic!("the program did not print {key:?}"))
    }

    pub fn number(&self, key: &str) -> u64 {
        let value = self.get(key);
        value.parse().unwrap_or_else(|_| panic!("{key} = {value}: not a number"))
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.values.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// Every row that applies to the library under test holds.
    pub fn check(&self, rows: &[Row]) {
        let flavour = artefact::flavour();
        let wrong: Vec<String> = rows
            .iter()
            .filter(|row| row.applies(flavour))
            .filter_map(|row| match self.values.get(row.key) {
                Some(value) if row.holds(value) => None,
                Some(value) => Some(format!("{} = {value}, expected {:?}", row.key, row.want)),
                None => Some(format!("{} was not printed, expected {:?}", row.key, row.want)),
            })
            .collect();
        assert!(wrong.is_empty(), "{} of {} rows disagree:\n  {}", wrong.len(), rows.len(), wrong.join("\n  "));
    }
}
