//! `jeprobe report`: profiles in, a table or another form of them out.
//!
//! stdout, or the file, holds the result and nothing else; what is to be known about it goes to stderr (`explain`). [`show`]
//! prints the table of a profile that was just taken and never was a file.
#![forbid(unsafe_code)]

use std::io::{self, IsTerminal as _, Write};
use std::path::PathBuf;

use anyhow::Result;

use super::draw;
use super::explain::{explain, explain_difference, explain_unmatched};
use super::load::{
    Loaded, load, load_labelled, name_across_builds, name_all, options, read, regex, same_counts, same_kind, with_rows,
};
use super::outcome::Outcome;
use super::report_args::{Color, Format, Layout, PrintArgs, ReportArgs};
use super::results::{Shown, explain_unused, file, format, is_flame, keep, write_file};
use super::term::Term;
use crate::error::Error;
use crate::model::{Profile, StackId};
use crate::outfile;
use crate::output::select::numbers;
use crate::output::{
    Numbers, Options, Selection, Style, callgrind, csv, folded, is_ascii_locale, json, otlp, peek, pprof, speedscope,
    tags, text, tree,
};
use crate::symbolize::{Sources, Symbols};
use crate::units::counted;

/// Runs the command.
pub fn run(args: &ReportArgs, term: &mut Term) -> Result<Outcome> {
    let peeked = regex(args.peek.as_ref())?;
    let shown = shown(args)?;
    let format = if let Shown::Form(format) = shown { format } else { Format::Text };
    check(&args.print, format, args.profile.inputs.iter().chain(&args.base))?;
    let is_flame = is_flame(format, &args.print, args.base.is_some());
    explain_unused(shown, is_flame, (args.profile.value, &args.rows, &args.print), term);
    let read_all = if shown == Shown::Tags { load_labelled } else { load };
    let Loaded { mut profile, sources, subject } = read_all(&args.profile)?;
    let options = with_rows(options(args.profile.value, &args.profile.filter, &profile)?, &args.rows);
    let options = Options { style: style(&args.print), all_edges: args.print.all_edges, ..options };
    let before = args.base.as_ref().map(|path| read(path)).transpose()?;
    let base = match args.base.as_ref().zip(before.as_ref()) {
        None => Vec::new(),
        Some((path, before)) => {
            same_kind(profile.kind(), before.kind(), path)?;
            same_counts(before, &profile, options.value)?;
            adopt(&mut profile, before)
        }
    };
    let name = if args.base.is_some() { name_across_builds } else { name_all };
    let symbols = name(&profile, &sources);
    let mut selection = Selection::new(&profile, &symbols, options.value);
    if args.base.is_some() {
        selection.subtract(base, args.drop_negative);
    }
    explain_unmatched(&[&selection], &options, term);
    if let Some(pattern) = peeked {
        let mut found = true;
        print(&args.print, format, term, |out| {
            found = peek::write(&selection, &options, &pattern, out)?;
            Ok(())
        })?;
        if !found {
            term.warn(format_args!("no function matches {:?}", pattern.as_str()));
        }
    } else if let Some(key) = &args.tags {
        let key = Some(key.as_str()).filter(|key| !key.is_empty());
        let mut found = true;
        print(&args.print, format, term, |out| {
            found = tags::write(&selection, &options, key, out)?;
            Ok(())
        })?;
        if !found {
            let what = key.map_or_else(|| "no labels".to_owned(), |key| format!("no label {key:?}"));
            term.warn(format_args!(
                "the profile has {what}: threads are named by jemalloc and `jeprobe run`, processes by profiles of jeprobe, \
                 hosts by `jeprobe merge HOST=FILE`"
            ));
        }
    } else {
        let by_dot = by_dot(&args.print, format, &selection, &options, &subject)?;
        print(&args.print, format, term, |out| match &by_dot {
            Some(picture) => out.write_all(picture),
            None => write(&selection, &options, format, &subject, out),
        })?;
    }
    match &before {
        Some(before) => explain_difference((before, &profile), &symbols, &options, term),
        None => explain(&profile, &symbols, &options, term),
    }
    // The process ends here. Giving everything back piece by piece takes a tenth of a run from the cache.
    std::mem::forget(selection);
    std::mem::forget((profile, symbols));
    Ok(Outcome::Complete)
}

/// What was asked for. Callers, callees and labels are text and nothing else.
fn shown(args: &ReportArgs) -> Result<Shown> {
    let format = format(&args.print)?;
    let (shown, option) = match (&args.peek, &args.tags) {
        (Some(_), _) => (Shown::Peek, "--peek"),
        (None, Some(_)) => (Shown::Tags, "--tags"),
        (None, None) => return Ok(Shown::Form(format)),
    };
    match format {
        Format::Text => Ok(shown),
        other => Err(Error::OnlyText { option, format: other.name() }.into()),
    }
}

/// Lays the base's stacks beside the profile's: the id of each here, and its numbers.
pub(super) fn adopt(profile: &mut Profile, base: &Profile) -> Vec<(StackId, Numbers)> {
    let values: Vec<Numbers> = base.totals().map(|(_, _, values)| numbers(values)).collect();
    profile.adopt(base).into_iter().zip(values).collect()
}

/// Fails before anything is read when the result could not be written.
pub(super) fn check<'p>(
    print: &PrintArgs,
    format: Format,
    inputs: impl IntoIterator<Item = &'p PathBuf>,
) -> Result<()> {
    let output = file(print.output.as_ref());
    if is_binary(format) && output.is_none() && io::stdout().is_terminal() {
        return Err(Error::Binary { format: format.name() }.into());
    }
    if print.layout == Layout::Dot {
        if !matches!(format, Format::Svg | Format::Pdf) {
            return Err(Error::NoLayout { format: format.name() }.into());
        }
        draw::find_dot()?;
    }
    if let Some(path) = output {
        keep(output, inputs)?;
        outfile::check(path)?;
    }
    Ok(())
}

fn is_binary(format: Format) -> bool {
    matches!(format, Format::Pprof | Format::Otlp | Format::Pdf)
}

/// Writes a result to the file or to stdout.
pub(super) fn print(
    args: &PrintArgs,
    format: Format,
    term: &mut Term,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<()> {
    match file(args.output.as_ref()) {
        Some(path) => Ok(write_file(path, Some(format), write)?),
        None if args.no_pager || is_binary(format) => term.result(write),
        None => term.paged(write),
    }
}

/// Colours and width of what is printed.
pub(super) fn style(args: &PrintArgs) -> Style {
    let is_shown = file(args.output.as_ref()).is_none();
    let is_terminal = is_shown && io::stdout().is_terminal();
    let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    let color = match args.color {
        Color::Always => true,
        Color::Never => false,
        Color::Auto => is_terminal && !set("NO_COLOR") && !is_dumb,
    };
    let width = terminal_size::terminal_size_of(io::stdout()).filter(|_| is_terminal);
    // A file is read elsewhere, too.
    let is_ascii = is_shown && is_ascii_locale(|name| std::env::var(name).ok());
    Style { color, width: width.map(|(width, _)| usize::from(width.0)), is_ascii }
}

/// The call graph as Graphviz draws it, where that was asked for.
pub(super) fn by_dot(
    print: &PrintArgs,
    format: Format,
    selection: &Selection<'_>,
    options: &Options,
    subject: &str,
) -> Result<Option<Vec<u8>>> {
    Ok(match print.layout {
        Layout::Own => None,
        Layout::Dot => Some(draw::by_dot(selection, options, subject, format.name())?),
    })
}

/// Writes a selection in one of the forms.
pub(super) fn write(
    selection: &Selection<'_>,
    options: &Options,
    format: Format,
    subject: &str,
    out: &mut dyn Write,
) -> io::Result<()> {
    match format {
        Format::Text => text::write(selection, options, out).map(|_left_out| ()),
        Format::Tree => tree::write(selection, options, out),
        Format::Json => json::write(selection, options, subject, out),
        Format::Csv => csv::write(selection, options, out),
        Format::Folded => folded::write(selection, options, out),
        Format::Speedscope => speedscope::write(selection, options, subject, out),
        Format::Callgrind => callgrind::write(selection, options, out),
        Format::Pprof => pprof::write(selection, options, out),
        Format::Otlp => otlp::write(selection, options, out),
        Format::Dot => draw::dot(selection, options, subject, out),
        Format::Svg => draw::svg(selection, options, subject, out),
        Format::Pdf => draw::pdf(selection, options, subject, out),
        Format::Html => draw::html(selection, options, subject, out),
    }
}

/// Prints the table of a profile to stdout and what is to be known about it to stderr. Gives back the symbols, for
/// other pictures of the same profile.
pub fn show(profile: &Profile, sources: &Sources, options: &Options, term: &mut Term) -> Result<Symbols> {
    let symbols = name_all(profile, sources);
    let selection = Selection::new(profile, &symbols, options.value);
    term.result(|out| match text::write(&selection, options, &mut *out)? {
        0 => Ok(()),
        left => writeln!(out, "{} in the profile", counted(left as u64, "more row", "more rows")),
    })?;
    explain(profile, &symbols, options, term);
    Ok(symbols)
}
