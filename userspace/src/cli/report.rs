//! `jeprobe report`: profiles in, jeprof's table out.
//!
//! stdout holds the table and nothing else. What is to be known about it goes to stderr: what the estimate rests on,
//! what the recording lost, notes of the recorder, addresses without names and why. [`show`] does the same for a profile
//! that was just taken and never was a file.
#![forbid(unsafe_code)]

use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use regex::Regex;

use super::args::{GranularityArgs, ProfileArgs, ReportArgs, ValueArgs};
use super::outcome::Outcome;
use super::term::Term;
use crate::estimate;
use crate::input::heap_v2;
use crate::model::{Profile, StackId};
use crate::output::{Granularity, Options, Selection, Value, text};
use crate::symbolize::{Sources, Symbols, resolve};

/// Files without names that are listed one by one.
const LISTED_PROBLEMS: usize = 5;

/// Runs the command.
pub fn run(args: &ReportArgs, term: &mut Term) -> Result<Outcome> {
    let Loaded { mut profile, sources, .. } = load(&args.profile)?;
    let options = Options {
        granularity: granularity(args.granularity),
        show_bytes: args.show_bytes,
        cum: args.cum,
        drop_negative: args.drop_negative,
        limit: args.limit,
        ..options(&args.profile)?
    };
    let base: Vec<(StackId, f64)> = match &args.base {
        None => Vec::new(),
        Some(path) => {
            let base = read(path)?;
            let values: Vec<f64> = base.totals().map(|(_, _, values)| options.value.of(values)).collect();
            profile.adopt(&base).into_iter().zip(values).collect()
        }
    };
    show_with_base(&profile, &base, &sources, &options, term)?;
    Ok(Outcome::Complete)
}

/// Prints the table of a profile to stdout and what is to be known about it to stderr. Gives back the symbols, for
/// other pictures of the same profile.
pub fn show(profile: &Profile, sources: &Sources, options: &Options, term: &mut Term) -> Result<Symbols> {
    show_with_base(profile, &[], sources, options, term)
}

fn show_with_base(
    profile: &Profile,
    base: &[(StackId, f64)],
    sources: &Sources,
    options: &Options,
    term: &mut Term,
) -> Result<Symbols> {
    let symbols = resolve(profile, sources);
    let mut selection = Selection::new(profile, &symbols, options.value);
    selection.subtract(base.iter().copied(), options.drop_negative);
    term.result(|out| text::write(&selection, options, out))?;
    explain(profile, &symbols, options, term);
    Ok(symbols)
}

/// Says on stderr what the numbers rest on and what is missing from them.
pub fn explain(profile: &Profile, symbols: &Symbols, options: &Options, term: &mut Term) {
    let interval = profile.interval();
    let sums = |values: &crate::model::Values| {
        if options.value.is_cumulative() { values.cumulative } else { values.current }
    };
    if options.value.is_cumulative() && !profile.has_cumulative() {
        term.warn("the profile has no cumulative counts; run the program with MALLOC_CONF=prof_accum:true");
    } else if interval.0 > 1 {
        let (mut samples, mut variance, mut bytes) = (0, 0.0, 0.0);
        for (_, _, values) in profile.totals() {
            samples += sums(values).raw.objects;
            variance += estimate::variance_bytes2(sums(values));
            bytes += sums(values).est.bytes;
        }
        if samples == 0 && !options.value.is_cumulative() {
            term.say(nothing_live(profile));
        }
        if bytes > 0.0 {
            term.say(format_args!(
                "estimated from {samples} samples, one per {} bytes; standard error of the total {:.1}%",
                interval.0,
                100.0 * variance.sqrt() / bytes
            ));
        }
    }
    for (reason, count) in profile.losses() {
        term.warn(format_args!("lost: {count} {}; {}", reason.meaning(), reason.remedy()));
    }
    for note in profile.notes() {
        term.warn(note);
    }
    let (all, unnamed) = symbols.counts();
    if unnamed > 0 {
        term.say(format_args!("unresolved: {unnamed} of {all} addresses have no name"));
    }
    for problem in symbols.problems().iter().take(LISTED_PROBLEMS) {
        let place = if problem.path.is_empty() { "outside every mapped file" } else { &problem.path };
        term.say(format_args!("  {} in {place}: {}", problem.addresses, problem.reason));
    }
    let more = symbols.problems().len().saturating_sub(LISTED_PROBLEMS);
    if more > 0 {
        term.say(format_args!("  and {more} more files"));
    }
}

/// Says why there is no table.
fn nothing_live(profile: &Profile) -> String {
    let counted = profile.counters().iter().find(|(name, _)| name == "samples").map(|&(_, count)| count);
    let cumulative = profile.has_cumulative().then(|| profile.sum().cumulative.raw.objects);
    match counted.or(cumulative) {
        Some(0) => "no live sampled memory: no sample was taken".to_owned(),
        Some(1) => "no live sampled memory: the one sample that was taken was freed".to_owned(),
        Some(taken) => format!("no live sampled memory: {taken} samples were taken and all were freed"),
        None => "no live sampled memory: no sample was taken, or all were freed".to_owned(),
    }
}

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
        bail!("no profile given, only the program {}", args.inputs[0].display());
    };
    let mut profile = read(first)?;
    for path in rest {
        profile.merge(&read(path)?);
    }
    let names: Vec<String> = files.iter().map(|path| name(path)).collect();
    Ok(Loaded { profile, sources: Sources { program, root: args.root.clone() }, subject: names.join(" + ") })
}

/// The choices that report and flame graph share.
pub(super) fn options(args: &ProfileArgs) -> Result<Options> {
    Ok(Options {
        value: value(args.value),
        focus: regex(args.focus.as_ref())?,
        ignore: regex(args.ignore.as_ref())?,
        ..Options::default()
    })
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

fn read(path: &PathBuf) -> Result<Profile> {
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    heap_v2::read(&bytes).with_context(|| format!("cannot read the profile {}", path.display()))
}

fn is_elf(path: &Path) -> bool {
    let mut magic = [0; 4];
    File::open(path).and_then(|mut file| file.read_exact(&mut magic)).is_ok() && magic == *b"\x7fELF"
}

fn regex(pattern: Option<&String>) -> Result<Option<Regex>> {
    let compile = |pattern: &String| Regex::new(pattern).with_context(|| format!("cannot use the pattern {pattern:?}"));
    pattern.map(compile).transpose()
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

#[cfg(test)]
mod tests {
    use super::nothing_live;
    use crate::model::Profile;
    use crate::units::{Count, EstCount, SampleInterval, Sums};

    #[test]
    fn an_empty_table_is_explained() {
        let mut profile = Profile::new(SampleInterval(1024));
        assert!(nothing_live(&profile).ends_with("no sample was taken, or all were freed"));
        let freed = Sums { raw: Count { objects: 3, bytes: 30 }, est: EstCount { objects: 300.0, bytes: 3000.0 } };
        profile.add(&[1], None, Sums::ZERO, freed);
        assert_eq!(nothing_live(&profile), "no live sampled memory: 3 samples were taken and all were freed");
        profile.add_counter("samples", 5);
        assert_eq!(nothing_live(&profile), "no live sampled memory: 5 samples were taken and all were freed");
    }
}
