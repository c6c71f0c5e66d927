//! Folded stacks: one line per distinct stack, `root;caller;leaf NUMBER`, the input of flame graph tools.
//!
//! Numbers are whole bytes or objects, estimated; what one line loses by rounding, the next gets, so that the lines sum up to
//! the total, cut at the point. Stacks of 0 or below are left out: a flame has no negative width. Inlined functions are frames of their
//! own. Sorted by name. [`differences`] has two numbers on a line, before and after, and leaves nothing out.
#![forbid(unsafe_code)]

use std::io::{self, Write};

use super::paths::{Path, Paths};
use super::select::{Options, Selection};
use super::whole::Whole;

/// Writes all lines.
pub fn write(selection: &Selection<'_>, options: &Options, mut out: impl Write) -> io::Result<()> {
    let paths = Paths::new(selection, options);
    if selection.has_base() {
        return each_difference(&paths, options, |line| writeln!(out, "{line}"));
    }
    each(&paths, options, |line| writeln!(out, "{line}"))
}

/// The lines, without line ends.
pub fn lines(selection: &Selection<'_>, options: &Options) -> Vec<String> {
    let mut lines = Vec::new();
    let Ok(()) = each::<std::convert::Infallible>(&Paths::new(selection, options), options, |line| {
        lines.push(line);
        Ok(())
    });
    lines
}

/// Lines `root;leaf BEFORE AFTER`, the input of differential flame graphs.
pub fn differences(selection: &Selection<'_>, options: &Options) -> Vec<String> {
    let mut lines = Vec::new();
    let Ok(()) = each_difference::<std::convert::Infallible>(&Paths::new(selection, options), options, |line| {
        lines.push(line);
        Ok(())
    });
    lines
}

fn each<E>(paths: &Paths, options: &Options, mut each: impl FnMut(String) -> Result<(), E>) -> Result<(), E> {
    let mut whole = Whole::default();
    for path in &paths.list {
        let value = path.numbers[options.value as usize];
        if value > 0.0 {
            let value = whole.next(value);
            if value > 0 {
                each(format!("{} {value}", stack(path, paths)))?;
            }
        }
    }
    Ok(())
}

fn each_difference<E>(
    paths: &Paths,
    options: &Options,
    mut each: impl FnMut(String) -> Result<(), E>,
) -> Result<(), E> {
    let (mut wholes, mut bases) = (Whole::default(), Whole::default());
    for path in &paths.list {
        let base = path.base[options.value as usize];
        let after = wholes.next(base + path.numbers[options.value as usize]);
        let before = bases.next(base);
        if before != 0 || after != 0 {
            each(format!("{} {before} {after}", stack(path, paths)))?;
        }
    }
    Ok(())
}

/// Names joined; what separates frames is replaced in them.
fn stack(path: &Path, paths: &Paths) -> String {
    let mut stack = String::new();
    for &name in &path.frames {
        if !stack.is_empty() {
            stack.push(';');
        }
        stack.extend(paths.names[name as usize].chars().map(|c| match c {
            ';' => ':',
            '\n' | '\r' => ' ',
            _ => c,
        }));
    }
    stack
}
