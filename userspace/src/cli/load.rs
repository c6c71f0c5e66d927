//! Profiles and choices of a command line: read, checked, turned into what the outputs take.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use regex::Regex;

use super::report_args::{DiffArgs, FilterArgs, GranularityArgs, ProfileArgs, RowArgs, SortKey, SourceArgs, ValueArgs};
use crate::error::Error;
use crate::image::Cache;
use crate::image::bytes::Bytes;
use crate::image::debuginfod::Debuginfod;
use crate::input::{self, beginning};
use crate::model::{Kind, Profile, printable};
use crate::output::tags::{PROCESS, process};
use crate::output::{Granularity, Options, Sort, Value};
use crate::progress::Working;
use crate::symbolize::{Sources, Symbols, known};

/// Larger files are mapped and not read: their bytes take no memory of their own.
const MAPPED_BYTES: u64 = 16 << 20;

/// The profiles of a command line, summed.
pub(super) struct Loaded {
    pub(super) profile: Profile,
    pub(super) sources: Sources,
    /// Names of the files, for titles.
    pub(super) subject: String,
}

/// Reads the profiles; the first argument is the program when it is an ELF file.
pub(super) fn load(args: &ProfileArgs) -> Result<Loaded> {
    load_files(&args.inputs, &args.sources, false)
}

/// The same with the process of each part, where there are several.
pub(super) fn load_labelled(args: &ProfileArgs) -> Result<Loaded> {
    load_files(&args.inputs, &args.sources, true)
}

/// The same for a command that shows nothing.
pub(super) fn load_files(inputs: &[PathBuf], args: &SourceArgs, is_labelled: bool) -> Result<Loaded> {
    let (program, files) = split(inputs)?;
    let sources = sources(args, program)?;
    let part = |path: &PathBuf| -> Result<Profile> {
        let mut profile = read(path)?;
        if files.len() > 1 {
            profile.name_notes(&file_name(path));
            if is_labelled {
                profile.label_all(&[(PROCESS.to_owned(), process(&profile).unwrap_or_else(|| file_name(path)))]);
            }
        }
        Ok(profile)
    };
    let mut profile = part(&files[0])?;
    let mut uncounted = Uncounted::default();
    uncounted.look(&profile, &files[0]);
    for path in &files[1..] {
        let other = part(path)?;
        same_kind(profile.kind(), other.kind(), path)?;
        uncounted.look(&other, path);
        profile.merge(&other);
    }
    for note in repeated(files).into_iter().chain(uncounted.of(&profile)) {
        profile.add_note(note);
    }
    let names: Vec<String> = files.iter().map(|path| file_name(path)).collect();
    Ok(Loaded { profile, sources, subject: names.join(" + ") })
}

/// Names of those parts of a sum that do not count what was allocated.
#[derive(Default)]
pub(super) struct Uncounted(Vec<String>);

impl Uncounted {
    pub(super) fn look(&mut self, part: &Profile, path: &Path) {
        if is_uncounted(part) {
            self.0.push(file_name(path));
        }
    }

    /// What is to be known of the sum when others do count it.
    pub(super) fn of(&self, sum: &Profile) -> Option<String> {
        let files = self.0.join(", ");
        (sum.has_cumulative() && !files.is_empty()).then(|| {
            format!("what was ever allocated is without {files}: no cumulative counts there (prof_accum was off)")
        })
    }
}

/// A profile with samples and without cumulative counts.
pub(super) fn is_uncounted(profile: &Profile) -> bool {
    !profile.has_cumulative() && profile.stack_count() > 0
}

/// Files that are given more than once and so summed more than once, in words.
pub(super) fn repeated(files: &[PathBuf]) -> Vec<String> {
    let mut times: BTreeMap<PathBuf, u32> = BTreeMap::new();
    for path in files {
        *times.entry(fs::canonicalize(path).unwrap_or_else(|_| path.clone())).or_default() += 1;
    }
    let words = |(path, count): (PathBuf, u32)| match count {
        1 => None,
        2 => Some(format!("{} is named twice, counted twice", path.display())),
        _ => Some(format!("{} is named {count} times, counted {count} times", path.display())),
    };
    times.into_iter().filter_map(words).collect()
}

/// Reads the two profiles of a comparison: the old one, and the new one with where its symbols come from.
pub(super) fn load_two(args: &DiffArgs) -> Result<(Profile, Loaded)> {
    let (program, files) = split(&args.inputs)?;
    let [old, new] = files else {
        return Err(Error::NotTwo { given: files.len() }.into());
    };
    let sources = sources(&args.sources, program)?;
    let subject = format!("{} - {}", file_name(new), file_name(old));
    let (before, profile) = (read(old)?, read(new)?);
    same_kind(before.kind(), profile.kind(), new)?;
    same_counts(&before, &profile, value(args.value))?;
    Ok((before, Loaded { profile, sources, subject }))
}

/// Fails when the numbers of two profiles do not measure the same.
pub(super) fn same_kind(kind: &Kind, other: &Kind, path: &Path) -> Result<()> {
    let of = |kind: &Kind| (kind.count(), kind.amount());
    if of(kind) == of(other) {
        return Ok(());
    }
    let words = |kind: &Kind| format!("{} and {}", of(kind).0.name, of(kind).1.name);
    bail!("{} measures {}, the others {}: they cannot be put together", path.display(), words(other), words(kind));
}

/// Fails when what was allocated is counted in one of two profiles that are compared, and not in the other.
pub(super) fn same_counts(old: &Profile, new: &Profile, value: Value) -> Result<()> {
    if value.is_cumulative() && is_uncounted(old) != is_uncounted(new) {
        let which = if is_uncounted(old) { "old" } else { "new" };
        bail!("the {which} profile has no cumulative counts, so what was allocated cannot be compared");
    }
    Ok(())
}

/// Names of all addresses, under which the work is told that takes long.
pub(super) fn name_all(profile: &Profile, sources: &Sources) -> Symbols {
    let _working = Working::on("looking up names", 0);
    known::name_all(profile, sources)
}

/// The same for profiles that are compared.
pub(super) fn name_across_builds(profile: &Profile, sources: &Sources) -> Symbols {
    let _working = Working::on("looking up names", 0);
    known::name_across_builds(profile, sources)
}

/// The program, when the first argument is an ELF file, and the profiles, at least one.
pub(super) fn split(inputs: &[PathBuf]) -> Result<(Option<PathBuf>, &[PathBuf]), Error> {
    let (program, files) = match inputs.split_first() {
        Some((first, rest)) if is_elf(first) => (Some(first.clone()), rest),
        _ => (None, inputs),
    };
    match (&program, files) {
        (Some(path), []) => Err(Error::OnlyProgram { path: path.clone() }),
        _ if inputs.iter().filter(|path| *path == Path::new("-")).count() > 1 => Err(Error::StdinTwice),
        _ => Ok((program, files)),
    }
}

/// Reads one profile; `-` is standard input.
pub(super) fn read(path: &Path) -> Result<Profile> {
    let failed = |source| Error::ReadFile { path: path.to_owned(), source };
    let parsed = |bytes: &[u8], release: &dyn Fn(&[u8])| {
        let _working = Working::on(format!("reading {}", path.display()), 0);
        input::read_releasing(bytes, release).with_context(|| format!("cannot read the profile {}", path.display()))
    };
    // Pipes and devices may go on for ever.
    let streamed = |mut input: Box<dyn io::Read>| {
        let (mut bytes, mut block) = (Vec::new(), [0; 4096]);
        while bytes.len() < beginning::DECISIVE {
            match input.read(&mut block) {
                Ok(0) => break,
                Ok(count) => bytes.extend_from_slice(&block[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(failed(error).into()),
            }
        }
        beginning::check(&bytes).with_context(|| format!("cannot read the profile {}", path.display()))?;
        input.read_to_end(&mut bytes).map_err(failed)?;
        parsed(&bytes, &|_| {})
    };
    if path == Path::new("-") {
        return streamed(Box::new(io::stdin().lock()));
    }
    let meta = fs::metadata(path).map_err(failed)?;
    if !meta.is_file() && !meta.is_dir() {
        return streamed(Box::new(File::open(path).map_err(failed)?));
    }
    if meta.is_file() && meta.len() > MAPPED_BYTES {
        let bytes = Bytes::open(path)?;
        return parsed(&bytes, &|part| bytes.release(part));
    }
    parsed(&fs::read(path).map_err(failed)?, &|_| {})
}

pub(super) fn sources(args: &SourceArgs, program: Option<PathBuf>) -> Result<Sources, Error> {
    let named = args.sysroot.iter().map(|path| ("--sysroot", path));
    for (option, path) in named.chain(args.debug_dir.iter().map(|path| ("--debug-dir", path))) {
        fs::read_dir(path).map_err(|source| Error::Directory { option, path: path.clone(), source })?;
    }
    if let Some(url) = args.debuginfod.iter().find(|urls| urls.split_whitespace().any(|url| !url.contains("://"))) {
        return Err(Error::Server { url: url.clone() });
    }
    Ok(Sources {
        program,
        root: args.sysroot.clone(),
        debug_directories: args.debug_dir.clone(),
        servers: servers(&args.debuginfod),
        cache: if args.no_cache { None } else { Cache::of_user() },
        remarks: if args.debuginfod.is_empty() { no_servers() } else { Vec::new() },
    })
}

/// Words of the environment's list of servers that name none.
fn no_servers() -> Vec<String> {
    let list = std::env::var("DEBUGINFOD_URLS").unwrap_or_default();
    // `ima:…` says how files are verified.
    let words = list.split_whitespace().filter(|word| !word.contains("://") && !word.starts_with("ima:"));
    words.map(|word| format!("{word:?} of $DEBUGINFOD_URLS is no address of a server, as https://HOST is")).collect()
}

/// Servers of debug files: those given, else those of the environment.
pub(super) fn servers(given: &[String]) -> Option<Arc<Debuginfod>> {
    Debuginfod::new(given, |name| std::env::var_os(name)).map(Arc::new)
}

/// What of the profile is shown.
pub(super) fn options(value_args: ValueArgs, filter: &FilterArgs, profile: &Profile) -> Result<Options> {
    Ok(Options {
        value: value(value_args),
        kind: profile.kind().clone(),
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
        None | Some(SortKey::Flat) => Sort::Flat,
        Some(SortKey::Cum) => Sort::Cumulative,
        Some(SortKey::Name) => Sort::Name,
    };
    Options {
        granularity: granularity(args.granularity),
        show_bytes: args.show_bytes,
        sort,
        limit: args.top,
        ..options
    }
}

pub(super) fn regex(pattern: Option<&String>) -> Result<Option<Regex>, Error> {
    let compile = |pattern: &String| {
        // An address as heap files and debuggers have it: here they have 16 digits.
        let address = pattern.strip_prefix("0x").filter(|digits| u64::from_str_radix(digits, 16).is_ok());
        let sought = address.map_or_else(|| unmarked(pattern), |digits| format!("^0*{}$", digits.to_lowercase()));
        Regex::new(&sought).map_err(|error| {
            // The last line of several says what is wrong; those before point at the place.
            let text = error.to_string();
            let why = text.lines().last().unwrap_or_default();
            Error::Pattern { pattern: pattern.clone(), why: why.trim_start_matches("error: ").to_owned() }
        })
    };
    pattern.map(compile).transpose()
}

/// A pattern without the mark of inlined functions that tables put behind names, and that is no part of them.
fn unmarked(pattern: &str) -> String {
    let (name, end) = pattern.strip_suffix('$').map_or((pattern, ""), |name| (name, "$"));
    let marks = [" (inline)", r" \(inline\)"];
    format!("{}{end}", marks.iter().find_map(|mark| name.strip_suffix(mark)).unwrap_or(name))
}

/// Name of a file without its directories, for titles.
pub(super) fn file_name(path: &Path) -> String {
    let mut name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
    printable(&mut name);
    name
}

fn is_elf(path: &Path) -> bool {
    let mut magic = [0; 4];
    // A FIFO would wait, and what was read from it would be gone.
    fs::metadata(path).is_ok_and(|meta| meta.is_file())
        && File::open(path).and_then(|mut file| file.read_exact(&mut magic)).is_ok()
        && magic == *b"\x7fELF"
}

pub(super) fn value(args: ValueArgs) -> Value {
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
    use super::unmarked;

    #[test]
    fn names_of_tables_are_patterns() {
        for pattern in ["put (inline)", r"put \(inline\)", "put"] {
            assert_eq!(unmarked(pattern), "put");
            assert_eq!(unmarked(&format!("^{pattern}$")), "^put$");
        }
        assert_eq!(unmarked("(inline)"), "(inline)");
    }
}
