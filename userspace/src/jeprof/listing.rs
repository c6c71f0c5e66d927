//! One function's lines and instructions with their values, ready to be printed.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::rc::Rc;

use super::code::Instruction;
use super::symbols::Routine;

/// Lines that are shown around a function.
const AROUND: i64 = 5;

/// One function, ready to be printed.
pub struct Listing<'a> {
    pub routine: &'a Routine,
    pub file: Rc<str>,
    pub first: i64,
    pub last: i64,
    /// Largest line of its own, before the end was moved on.
    pub own_last: i64,
    pub lines: Rc<[String]>,
    pub instructions: &'a [Instruction],
    /// Values per instruction.
    pub counts: Vec<(f64, f64)>,
    /// Values per line.
    pub by_line: BTreeMap<i64, (f64, f64)>,
    pub total: (f64, f64),
    pub bias: u64,
}

impl Listing<'_> {
    /// Numbers and texts (without ends) of the lines that are shown.
    pub fn shown(&self) -> impl Iterator<Item = (i64, String)> {
        let numbered = (1..).zip(self.lines.iter());
        numbered
            .filter(|(number, _)| {
                *number >= self.first - AROUND && (*number <= self.own_last + AROUND || *number <= self.last)
            })
            .map(|(number, text)| (number, text.trim_end_matches('\n').replace('\r', "")))
    }
}
