//! `jeprobe timeline`: a series of profiles in, growth as a stacked area chart out.
#![forbid(unsafe_code)]

use std::io::Write;
use std::sync::Arc;

use anyhow::Result;

use super::draw::page;
use super::load::{file_name, name_across_builds, read, sources, split, value};
use super::outcome::Outcome;
use super::report_args::{Format, TimelineArgs};
use super::results::{file, keep, picture};
use super::term::Term;
use crate::error::Error;
use crate::outfile;
use crate::web::dataset::Dataset;
use crate::web::drawn;

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
    let mut series = Vec::new();
    for (at, path) in files.iter().enumerate() {
        let profile = read(path)?;
        let symbols = name_across_builds(&profile, &sources);
        // One profile at a time is in memory with its stacks.
        series.push(Arc::new(Dataset::new(at as u64, file_name(path), at as f64, &profile, &symbols).slim()));
    }
    let scene = drawn::timeline(&series, value(args.value));
    let write = |out: &mut dyn Write| match format {
        Format::Pdf => out.write_all(&scene.pdf()),
        Format::Html => page("Growth", scene.svg().as_bytes(), out),
        _ => out.write_all(scene.svg().as_bytes()),
    };
    match output {
        Some(path) => outfile::write(path, write)?,
        None => term.result(write)?,
    }
    Ok(Outcome::Complete)
}
