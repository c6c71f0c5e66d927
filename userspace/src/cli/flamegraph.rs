//! `jeprobe flamegraph`: profiles in, a flame graph or folded stacks out.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;

use anyhow::Result;

use super::draw::page;
use super::explain::{explain, explain_difference, explain_unmatched};
use super::load::{Loaded, load, load_files, name_across_builds, name_all, options, same_counts};
use super::outcome::Outcome;
use super::report_args::{FlamegraphArgs, Format};
use super::results::{explain_idle, file, keep, named_format, picture, write_file};
use super::term::Term;
use crate::error::Error;
use crate::outfile;
use crate::output::{Options, Selection, folded};
use crate::picture::flame::{self, Flame, human};

/// Extensions of its forms.
const FORMS: &str = ".svg, .html or .folded; .pdf is for call graphs: jeprobe report";

/// Runs the command.
pub fn run(args: &FlamegraphArgs, term: &mut Term) -> Result<Outcome> {
    let output = file(args.output.as_ref());
    let format = form(output, args.folded)?;
    if format == Format::Folded {
        explain_idle(args.icicle.then_some("--icicle"), "folded", "pictures: svg and html", term);
    }
    if let Some(path) = output {
        keep(output, args.profile.inputs.iter().chain(&args.base))?;
        outfile::check(path)?;
    }
    let Loaded { profile, sources, subject } = load(&args.profile)?;
    let options = options(args.profile.value, &args.profile.filter, &profile)?;
    let name = if args.base.is_some() { name_across_builds } else { name_all };
    let symbols = name(&profile, &sources);
    let selection = Selection::new(&profile, &symbols, options.value);
    let mut before = None;
    let mut lines = folded::lines(&selection, &options);
    let mut flame = words(&selection, &options, &subject, args.icicle);
    if let Some(base) = &args.base {
        let loaded = load_files(std::slice::from_ref(base), &args.profile.sources, false)?;
        same_counts(&loaded.profile, &profile, options.value)?;
        let symbols = name(&loaded.profile, &loaded.sources);
        let old = Selection::new(&loaded.profile, &symbols, options.value);
        explain_unmatched(&[&selection, &old], &options, term);
        let change = human(old.total(), &options.unit());
        flame.subtitle = format!("{}; before, {}: {change}; red grew, blue shrank", flame.subtitle, loaded.subject);
        lines = differences(&folded::lines(&old, &options), &lines);
        before = Some(loaded.profile);
    } else {
        explain_unmatched(&[&selection], &options, term);
    }
    let write = |out: &mut dyn Write| write_as(format, &lines, &flame, out);
    match output {
        Some(path) => write_file(path, Some(format), write)?,
        None => term.result(write)?,
    }
    match &before {
        Some(before) => explain_difference((before, &profile), &symbols, &options, term),
        None => explain(&profile, &symbols, &options, term),
    }
    Ok(Outcome::Complete)
}

/// The form of the result: lines where they were asked for, else by the file's name.
fn form(output: Option<&Path>, is_folded: bool) -> Result<Format, Error> {
    let picture = |forms: &[Format], words| picture(output, "a flame graph", forms, words);
    match (is_folded, output.and_then(named_format)) {
        (true, None | Some(Format::Folded)) => Ok(Format::Folded),
        (true, Some(_)) => picture(&[], "folded, with --folded"),
        (false, _) => picture(&[Format::Svg, Format::Html, Format::Folded], FORMS),
    }
}

/// Fails where `--flamegraph FILE` of a collection is not the name of a picture.
pub(super) fn check_name(path: &Path) -> Result<Format, Error> {
    form(Some(path), false)
}

/// Draws a profile, as the file's name says.
pub(super) fn draw(
    selection: &Selection<'_>,
    options: &Options,
    subject: &str,
    format: Format,
    out: &mut dyn Write,
) -> io::Result<()> {
    write_as(format, &folded::lines(selection, options), &words(selection, options, subject, false), out)
}

fn write_as(format: Format, lines: &[String], flame: &Flame, out: &mut dyn Write) -> io::Result<()> {
    match format {
        Format::Folded => lines.iter().try_for_each(|line| writeln!(out, "{line}")),
        _ => write_picture(format, &flame.title, out, |out| flame::write(lines, flame, out)),
    }
}

/// The picture alone, or in a page of its own.
fn write_picture(
    format: Format,
    title: &str,
    out: &mut dyn Write,
    draw: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    if format != Format::Html {
        return draw(out);
    }
    let mut svg = Vec::new();
    draw(&mut svg)?;
    page(title, &svg, out)
}

fn words(selection: &Selection<'_>, options: &Options, subject: &str, is_icicle: bool) -> Flame {
    let unit = options.unit();
    Flame {
        title: format!("{}: {}", options.kind.title(), options.title()),
        subtitle: format!("{subject}: {}{}", human(selection.total(), &unit), selection.remark()),
        unit,
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
