//! Profiles and choices of a command line: read, checked, turned into what the outputs take.
#![forbid(unsafe_code)]

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use regex::Regex;

use super::report_args::{GranularityArgs, ProfileArgs, RowArgs, SortKey, SourceArgs, ValueArgs};
use crate::error::Error;
use crate::input::heap_v2;
use crate::model::Profile;
use crate::output::{Granularity, Options, Sort, Value};
use crate::symbolize::Sources;

/// The profiles of a command line, summed.
pub(super) struct Loaded {
    pub(super) profile: Profile,
    pub(super) sources: Sources,
    /// Names of the files, for titles.
    pub(super) subject: String,
}

/// Reads the profiles; the first argument is the program when it is an ELF file.
pub(super) fn load(args: &ProfileArgs) -> Result<Loaded> {
    let (program, files) = match args.inputs.split_first() {
        Some((first, rest)) if is_elf(first) => (Some(first.clone()), rest),
        _ => (None, args.inputs.as_slice()),
    };
    let Some((first, rest)) = files.split_first() else {
        return Err(Error::OnlyProgram { path: args.inputs[0].clone() }.into());
    };
    let mut profile = read(first)?;
    for path in rest {
        profile.merge(&read(path)?);
    }
    let names: Vec<String> = files.iter().map(|path| name(path)).collect();
    Ok(Loaded { profile, sources: sources(&args.sources, program), subject: names.join(" + ") })
}

/// Reads one profile; `-` is standard input.
pub(super) fn read(path: &Path) -> Result<Profile> {
    let failed = |source| Error::ReadFile { path: path.to_owned(), source };
    let bytes = if path == Path::new("-") {
        let mut bytes = Vec::new();
        io::stdin().lock().read_to_end(&mut bytes).map(|_| bytes).map_err(failed)?
    } else {
        fs::read(path).map_err(failed)?
    };
    heap_v2::read(&bytes).with_context(|| format!("cannot read the profile {}", path.display()))
}

pub(super) fn sources(args: &SourceArgs, program: Option<PathBuf>) -> Sources {
    Sources { program, root: args.sysroot.clone() }
}

/// What of the profile is shown.
pub(super) fn options(args: &ProfileArgs) -> Result<Options> {
    let filter = &args.filter;
    Ok(Options {
        value: value(args.value),
        focus: regex(filter.focus.as_ref())?,
        ignore: regex(filter.ignore.as_ref())?,
        hide: regex(filter.hide.as_ref())?,
        show: regex(filter.show.as_ref())?,
        no_inlines: filter.no_inlines,
        ..Options::default()
    })
}

/// The same with the choices of rows.
pub(super) fn with_rows(options: Options, args: &RowArgs) -> Options {
    let sort = match args.sort {
        _ if args.cum => Sort::Cumulative,
        SortKey::Flat => Sort::Flat,
        SortKey::Cum => Sort::Cumulative,
        SortKey::Name => Sort::Name,
    };
    Options {
        granularity: granularity(args.granularity),
        show_bytes: args.show_bytes,
        sort,
        limit: args.top,
        ..options
    }
}

pub(super) fn regex(pattern: Option<&String>) -> Result<Option<Regex>> {
    let compile = |pattern: &String| Regex::new(pattern).with_context(|| format!("cannot use the pattern {pattern:?}"));
    pattern.map(compile).transpose()
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

fn is_elf(path: &Path) -> bool {
    let mut magic = [0; 4];
    // A FIFO would wait, and what was read from it would be gone.
    fs::metadata(path).is_ok_and(|meta| meta.is_file())
        && File::open(path).and_then(|mut file| file.read_exact(&mut magic)).is_ok()
        && magic == *b"\x7fELF"
}

fn value(args: ValueArgs) -> Value {
    match args {
        ValueArgs { inuse_objects: true, .. } => Value::InuseObjects,
        ValueArgs { alloc_space: true, .. } => Value::AllocSpace,
        ValueArgs { alloc_objects: true, .. } => Value::AllocObjects,
        _ => Value::InuseSpace,
    }
}

fn granularity(args: GranularityArgs) -> Granularity {
    match args {
        GranularityArgs { lines: true, .. } => Granularity::Lines,
        GranularityArgs { files: true, .. } => Granularity::Files,
        GranularityArgs { addresses: true, .. } => Granularity::Addresses,
        _ => Granularity::Functions,
    }
}
