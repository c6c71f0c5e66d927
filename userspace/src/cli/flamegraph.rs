//! `jeprobe flamegraph`: profiles in, a flame graph or folded stacks out.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::io::{self, Write};

use anyhow::{Result, bail};

use super::explain::explain;
use super::load::{Loaded, load, name_all, options};
use super::outcome::Outcome;
use super::report_args::FlamegraphArgs;
use super::term::Term;
use crate::outfile;
use crate::output::{Options, Selection, folded};
use crate::picture::flame::{self, Flame, human};

/// Runs the command.
pub fn run(args: &FlamegraphArgs, term: &mut Term) -> Result<Outcome> {
    let Loaded { profile, sources, subject } = load(&args.profile)?;
    let options = options(&args.profile, &profile)?;
    let symbols = name_all(&profile, &sources);
    let selection = Selection::new(&profile, &symbols, options.value);
    let mut lines = folded::lines(&selection, &options);
    let mut flame = words(&selection, &options, &subject, args.icicle);
    if let Some(base) = &args.base {
        let before = load(&args.profile.with_inputs(vec![base.clone()]))?;
        let symbols = name_all(&before.profile, &before.sources);
        let selection = Selection::new(&before.profile, &symbols, options.value);
        let change = human(selection.total(), options.value.is_bytes());
        flame.subtitle = format!("{}; before, {}: {change}; red grew, blue shrank", flame.subtitle, before.subject);
        lines = differences(&folded::lines(&selection, &options), &lines);
    }
    if lines.is_empty() {
        bail!("there is nothing to draw in {subject}: no stack has {}", options.value.title());
    }
    let write = |out: &mut dyn Write| -> io::Result<()> {
        if args.folded {
            lines.iter().try_for_each(|line| writeln!(out, "{line}"))
        } else {
            flame::write(&lines, &flame, out)
        }
    };
    match &args.output {
        Some(path) => outfile::write(path, write)?,
        None => term.result(write)?,
    }
    explain(&profile, &symbols, &options, term);
    Ok(Outcome::Complete)
}

/// Draws a profile. Nothing to draw is an error of kind `InvalidInput`.
pub(super) fn draw(selection: &Selection<'_>, options: &Options, subject: &str, out: impl Write) -> io::Result<()> {
    flame::write(&folded::lines(selection, options), &words(selection, options, subject, false), out)
}

fn words(selection: &Selection<'_>, options: &Options, subject: &str, is_icicle: bool) -> Flame {
    let is_bytes = options.value.is_bytes();
    Flame {
        title: format!("Heap: {}", options.value.title()),
        subtitle: format!("{subject}: {} (estimated)", human(selection.total(), is_bytes)),
        unit: if is_bytes { "bytes" } else { "objects" },
        is_icicle,
    }
}

/// Folded lines with two numbers, before and after, for every stack of either; matched by the names in them.
fn differences(before: &[String], after: &[String]) -> Vec<String> {
    let mut numbers: BTreeMap<&str, [&str; 2]> = BTreeMap::new();
    for (lines, at) in [(before, 0), (after, 1)] {
        for (stack, number) in lines.iter().filter_map(|line| line.rsplit_once(' ')) {
            numbers.entry(stack).or_insert(["0"; 2])[at] = number;
        }
    }
    numbers.into_iter().map(|(stack, [before, after])| format!("{stack} {before} {after}")).collect()
}

#[cfg(test)]
mod tests {
    use super::differences;

    #[test]
    fn stacks_of_either_profile_have_both_numbers() {
        let lines = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>();
        assert_eq!(
            differences(&lines(&["a;b 3", "a;gone x 4"]), &lines(&["a;b 5", "a;new 6"])),
            ["a;b 3 5", "a;gone x 4 0", "a;new 0 6"]
        );
    }
}
