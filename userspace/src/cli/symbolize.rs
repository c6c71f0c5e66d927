//! `jeprobe symbolize`: a profile that needs no other file: its names are looked up now and written with it.
//!
//! A dump holds addresses; once the program is rebuilt, or on another host, its names are gone. The result is a text profile
//! that jeprof and `jeprobe report` read, or pprof's or OTLP's protobuf by the extension of the file. All frames are kept,
//! the allocator's too.
#![forbid(unsafe_code)]

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Result, bail};

use super::explain::explain;
use super::load::{Loaded, load_files, name_all};
use super::outcome::Outcome;
use super::report_args::{Format, SymbolizeArgs};
use super::results::{file, keep, name, named_format, write_file};
use super::term::Term;
use crate::error::Error;
use crate::model::{Kind, Profile};
use crate::outfile;
use crate::output::{Options, Selection, heap_v2, otlp, pprof, symbolized};
use crate::symbolize::Symbols;
use crate::units::counted;

/// Runs the command.
pub fn run(args: &SymbolizeArgs, term: &mut Term) -> Result<Outcome> {
    let format = named_format(&args.output);
    if !matches!(format, None | Some(Format::Pprof | Format::Otlp)) {
        bail!("cannot symbolize into {}: the result is a heap file, or .pb.gz or .otlp", args.output.display());
    }
    if let Some(path) = file(Some(&args.output)) {
        keep(Some(path), &args.inputs)?;
        outfile::check(path)?;
    }
    let Loaded { mut profile, sources, .. } = load_files(&args.inputs, &args.sources, false)?;
    check_heap(&profile, format)?;
    if let Some(program) = &sources.program {
        profile.set_program(program.clone());
    }
    let symbols = name_all(&profile, &sources);
    let (all, unnamed) = symbols.counts();
    write_profile(&profile, &symbols, format, &args.output, term)?;
    let named = all - unnamed;
    term.say(format_args!(
        "{named} of {} named in {}",
        counted(all as u64, "address", "addresses"),
        name(&args.output)
    ));
    explain(&profile, &symbols, &Options::default(), term);
    Ok(if all > 0 && all == unnamed { Outcome::Partial } else { Outcome::Complete })
}

/// Only heap profiles have a form as a heap file.
pub(super) fn check_heap(profile: &Profile, format: Option<Format>) -> Result<()> {
    if format.is_none() && *profile.kind() != Kind::Heap {
        return Err(Error::NotHeap.into());
    }
    Ok(())
}

/// Writes a whole profile with all frames: as a heap file, with names where it has some, or as protobuf.
pub(super) fn write_profile(
    profile: &Profile,
    symbols: &Symbols,
    format: Option<Format>,
    path: &PathBuf,
    term: &mut Term,
) -> Result<()> {
    let options = Options { keep_allocator: true, ..Options::default() };
    let selection = Selection::new(profile, symbols, options.value);
    let write = |out: &mut dyn Write| match format {
        Some(Format::Otlp) => otlp::write(&selection, &options, out),
        Some(_) => pprof::write(&selection, &options, out),
        None if symbols.iter().next().is_none() => heap_v2::write(profile, out),
        None => symbolized::write(profile, symbols, out),
    };
    match file(Some(path)) {
        Some(path) => Ok(write_file(path, format, write)?),
        None => term.result(write),
    }
}
