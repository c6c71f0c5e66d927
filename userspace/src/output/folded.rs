//! Folded stacks: one line per distinct stack, `root;caller;leaf NUMBER`, the input of flame graph tools.
//!
//! Numbers are whole bytes or objects, estimated. Stacks that round to 0 or below are left out: a flame has no negative
//! width. Inlined functions are frames of their own. Sorted by name.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::io::{self, Write};

use super::select::{Options, Selection, user_functions};
use crate::symbolize::Symbols;

/// What stands for a stack without any frame outside the allocator.
const NO_STACK: &str = "[no stack]";

/// Writes all lines.
pub fn write(selection: &Selection<'_>, symbols: &Symbols, options: &Options, mut out: impl Write) -> io::Result<()> {
    for line in lines(selection, symbols, options) {
        writeln!(out, "{line}")?;
    }
    Ok(())
}

/// The lines, without line ends.
pub fn lines(selection: &Selection<'_>, symbols: &Symbols, options: &Options) -> Vec<String> {
    let mut sums: BTreeMap<String, f64> = BTreeMap::new();
    selection.each_stack(options, |sites, value| {
        let mut stack = String::new();
        for &avma in sites.iter().rev() {
            match symbols.site(avma) {
                Some(site) if !site.functions.is_empty() => {
                    user_functions(site).iter().rev().for_each(|function| push(&mut stack, &function.short));
                }
                Some(site) => push(&mut stack, &site.label),
                None => push(&mut stack, &format!("{avma:016x}")),
            }
        }
        if stack.is_empty() {
            push(&mut stack, NO_STACK);
        }
        *sums.entry(stack).or_default() += value;
    });
    sums.into_iter()
        .map(|(stack, value)| (stack, value.round() as i64))
        .filter(|(_, value)| *value > 0)
        .map(|(stack, value)| format!("{stack} {value}"))
        .collect()
}

/// Appends a frame; what separates frames is replaced in names.
fn push(stack: &mut String, name: &str) {
    if !stack.is_empty() {
        stack.push(';');
    }
    stack.extend(name.chars().map(|c| match c {
        ';' => ':',
        '\n' | '\r' => ' ',
        _ => c,
    }));
}
