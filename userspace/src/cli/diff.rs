//! `jeprobe diff`: what changed between two profiles.
//!
//! The old profile's stacks are laid beside the new one's as sums are, then rows are matched by name: another address space,
//! another pid or another build of the program makes no difference. Names of a build that is no longer at its path come from
//! a profile that brings them (`jeprobe symbolize`), or from its debug file by build-id.
#![forbid(unsafe_code)]

use anyhow::Result;

use super::explain::{explain_difference, explain_unmatched};
use super::load::{Loaded, load_two, name_across_builds, options, with_rows};
use super::outcome::Outcome;
use super::report::{adopt, by_dot, check, print, style, write};
use super::report_args::{DiffArgs, Format};
use super::results::{Shown, explain_unused, format, is_flame};
use super::term::Term;
use crate::error::Error;
use crate::output::{Options, Selection, diff};

/// Runs the command.
pub fn run(args: &DiffArgs, term: &mut Term) -> Result<Outcome> {
    let format = format(&args.print)?;
    if matches!(format, Format::Speedscope | Format::Callgrind) {
        return Err(Error::NoNegative { format: format.name() }.into());
    }
    check(&args.print, format, &args.inputs)?;
    let is_flame = is_flame(format, &args.print, true);
    explain_unused(Shown::Form(format), is_flame, (args.value, &args.rows, &args.print), term);
    let (old, Loaded { mut profile, sources, subject }) = load_two(args)?;
    let options = with_rows(options(args.value, &args.filter, &profile)?, &args.rows);
    let options = Options { style: style(&args.print), all_edges: args.print.all_edges, ..options };
    let base = adopt(&mut profile, &old);
    let symbols = name_across_builds(&profile, &sources);
    let mut selection = Selection::new(&profile, &symbols, options.value);
    selection.subtract(base, false);
    explain_unmatched(&[&selection], &options, term);
    let by_dot = by_dot(&args.print, format, &selection, &options, &subject)?;
    print(&args.print, format, term, |out| match format {
        Format::Svg | Format::Pdf if by_dot.is_some() => out.write_all(by_dot.as_deref().unwrap_or_default()),
        Format::Text => diff::write(&selection, &options, out),
        Format::Csv => diff::write_csv(&selection, &options, out),
        other => write(&selection, &options, other, &subject, out),
    })?;
    explain_difference((&old, &profile), &symbols, &options, term);
    Ok(Outcome::Complete)
}
