//! `jeprobe timeline`: a series of profiles in, growth as a stacked area chart out.
#![forbid(unsafe_code)]

use std::io::Write;
use std::sync::Arc;

use anyhow::{Result, bail};

use super::draw::page;
use super::explain::{Unnamed, empty};
use super::load::{file_name, is_uncounted, name_across_builds, read, same_kind, sources, split, value};
use super::outcome::Outcome;
use super::report_args::{Format, TimelineArgs};
use super::results::{file, keep, picture, write_file};
use super::term::Term;
use crate::error::Error;
use crate::outfile;
use crate::web::dataset::Dataset;
use crate::web::drawn;
use crate::web::series::{basis, remarks};

/// Runs the command.
pub fn run(args: &TimelineArgs, term: &mut Term) -> Result<Outcome> {
    let (program, files) = split(&args.inputs)?;
    if files.len() < 2 {
        return Err(Error::NoSeries { given: files.len() }.into());
    }
    let output = file(args.output.as_ref());
    let forms = [Format::Svg, Format::Pdf, Format::Html];
    let format = picture(output, "growth over a series", &forms, ".svg, .pdf or .html")?;
    if let Some(path) = output {
        keep(output, files)?;
        outfile::check(path)?;
    }
    let sources = sources(&args.sources, program)?;
    let value = value(args.value);
    let (mut series, mut unnamed) = (Vec::new(), Unnamed::default());
    let (mut kind, mut uncounted) = (None, Vec::new());
    for (at, path) in files.iter().enumerate() {
        let profile = read(path)?;
        if value.is_cumulative() && is_uncounted(&profile) {
            uncounted.push(file_name(path));
        }
        same_kind(kind.get_or_insert_with(|| profile.kind().clone()), profile.kind(), path)?;
        let symbols = name_across_builds(&profile, &sources);
        let name = file_name(path);
        if let Some(line) = empty(&profile, value) {
            term.say(format_args!("{name}: {line}"));
        }
        unnamed.look(&symbols, &name);
        // One profile at a time is in memory with its stacks.
        series.push(Arc::new(Dataset::new(at as u64, name, at as f64, &profile, &symbols).slim()));
    }
    if !uncounted.is_empty() && uncounted.len() < files.len() {
        let files = uncounted.join(", ");
        bail!("{files}: no cumulative counts there, so what was allocated is no series (prof_accum was off)");
    }
    let scene = drawn::timeline(&series, value);
    let write = |out: &mut dyn Write| match format {
        Format::Pdf => out.write_all(&scene.pdf()),
        Format::Html => page("Growth", scene.svg().as_bytes(), out),
        _ => out.write_all(scene.svg().as_bytes()),
    };
    match output {
        Some(path) => write_file(path, Some(format), write)?,
        None => term.result(write)?,
    }
    if let Some(line) = basis(&series, value) {
        term.say(line);
    }
    for line in remarks(&series, value) {
        term.warn(line);
    }
    unnamed.tell(term);
    Ok(Outcome::Complete)
}
