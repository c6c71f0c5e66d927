//! `jeprobe flamegraph`: profiles in, a flame graph or folded stacks out.
#![forbid(unsafe_code)]

use std::io::{self, Write};

use anyhow::{Result, bail};

use super::args::FlamegraphArgs;
use super::outcome::Outcome;
use super::report::{Loaded, explain, load, options};
use super::term::Term;
use crate::outfile;
use crate::output::{Selection, flamegraph, folded};
use crate::symbolize::resolve;

/// Runs the command.
pub fn run(args: &FlamegraphArgs, term: &mut Term) -> Result<Outcome> {
    let Loaded { profile, sources, subject } = load(&args.profile)?;
    let options = options(&args.profile)?;
    let symbols = resolve(&profile, &sources);
    let selection = Selection::new(&profile, &symbols, options.value);
    if folded::lines(&selection, &symbols, &options).is_empty() {
        bail!("there is nothing to draw in {subject}: no stack has {}", options.value.title());
    }
    let write = |out: &mut dyn Write| -> io::Result<()> {
        if args.folded {
            folded::write(&selection, &symbols, &options, out)
        } else {
            flamegraph::write(&selection, &symbols, &options, &subject, out)
        }
    };
    match &args.output {
        Some(path) => outfile::write(path, write)?,
        None => term.result(write)?,
    }
    explain(&profile, &symbols, &options, term);
    Ok(Outcome::Complete)
}
