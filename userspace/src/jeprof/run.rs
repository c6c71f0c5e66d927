//! One run of the command, from its words to its exit code.
//!
//! ```text
//! options ─► which words are program, profiles, servers ─► fetch ─► read, add up, subtract ─► names ─► show
//! ```
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::image::Cache;
use crate::memory;

use super::address::Width;
use super::images;
use super::interactive;
use super::options::{Compat, Options, truth};
use super::profile::{self, Context, Profile, is_symbolized, symbolized::UNKNOWN_PROGRAM};
use super::remote::{self, Fetched};
use super::selftest;
use super::show::{self, Shown, Tools};
use super::stacks::{Pcs, Stacks};
use super::stop::{Result, Stop};
use super::streams::{Output, say};
use super::symbols::Symbols;
use super::symbols_mode;
use super::temp;
use super::usage;

/// Runs the command; `arguments` without its own name. The exit code.
pub fn run(arguments: Vec<OsString>) -> u8 {
    temp::watch_signals();
    memory::survive_file_limit();
    let mut out = Output::stdout();
    let mut result = main(arguments, &mut out);
    if let Err(error) = out.flush()
        && result.is_ok()
    {
        result = Err(error.into());
    }
    let advice = temp::finish();
    match result {
        Ok(code) | Err(Stop::Quiet(code)) => {
            say(format_args!("{advice}"));
            code
        }
        Err(Stop::Usage(message)) => {
            say(format_args!("{message}\n\n{}\nFATAL ERROR: {message}\n", usage::USAGE));
            1
        }
        Err(Stop::Error(message) | Stop::NoProfile(message)) => {
            say(format_args!("{message}{advice}"));
            1
        }
        Err(Stop::Die(message)) => {
            say(format_args!("{message}"));
            255
        }
        Err(Stop::Unread) => 0,
    }
}

/// What is said at the end about profiles that were fetched, or of which there were several.
fn advice(program: &str, files: &[PathBuf], any_fetched: bool, compat: Compat) -> String {
    let count = files.len();
    // The older version counts what is left when the first was read.
    let (says, names_file) = match compat {
        _ if count == 1 && !any_fetched => (false, false),
        Compat::V530 => (count > 1, count == 2),
        Compat::V531 => (true, count == 1),
    };
    if !says {
        return String::new();
    }
    let files = files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(" \\\n    ");
    let gathered = if names_file { format!("Dynamically gathered profile is in {files}\n") } else { String::new() };
    let again = "If you want to investigate this profile further, you can do:";
    format!("{gathered}{again}\n\n  jeprof \\\n    {program} \\\n    {files}\n\n")
}

/// Where names come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Names {
    Program,
    Server,
    Profile,
}

fn main(arguments: Vec<OsString>, out: &mut Output) -> Result<u8> {
    let (mut options, words) = Options::parse(arguments)?;
    if options.help {
        out.write_all(usage::USAGE.as_bytes())?;
        return Ok(0);
    }
    if options.version {
        out.write_all(usage::VERSION.as_bytes())?;
        return Ok(0);
    }
    options.settle()?;
    memory::bound("jeprof").map_err(|error| {
        let hint = error.hint().unwrap_or_default();
        Stop::error(format!("{error}\nhint: {hint}\n"))
    })?;
    if options.test {
        return Ok(selftest::run());
    }
    let (names, mut program, profiles) = sort_words(words, &options)?;
    match names {
        Names::Server => {
            let Some(first) = profiles.first() else { return Err(Stop::usage("Did not specify profile file")) };
            if !remote::is_remote(first) {
                return Err(Stop::error("The first profile should be a remote form to use /pprof/symbol\n"));
            }
            remote::check_symbols(first)?;
            program = remote::program_name(first)?;
        }
        Names::Program if !Path::new(&program).exists() => {
            return Err(Stop::error(format!("{program} does not exist.\n")));
        }
        Names::Program | Names::Profile => {}
    }
    let mut tools = Tools::default();
    tools.images.cache = Cache::of_user();
    if options.symbols {
        let stdin = io::stdin().lock();
        symbols_mode::run(out, stdin, &program, Width::W16, &options, &mut tools.images)?;
        return Ok(0);
    }
    let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let fetched = remote::fetch_all(&profiles, &program, time, &options)?;
    let loaded = load(&fetched, names, &mut program, &options, &mut tools)?;
    let files: Vec<PathBuf> = fetched.iter().map(|fetched| fetched.path.clone()).collect();
    let any_fetched = fetched.iter().any(|fetched| fetched.kind.is_some());
    temp::set_advice(advice(&program, &files, any_fetched, options.compat));
    let Loaded { stacks, threads, pcs, width, kind, regions, given_names } = loaded;
    let addresses = pcs.sorted();
    let symbols = match names {
        Names::Profile => Symbols::from_names(&addresses, &given_names, width),
        Names::Server => {
            let names = remote::fetch_names(&profiles[0], &addresses, width, &mut program, &options)?;
            Symbols::from_names(&addresses, &names, width)
        }
        Names::Program => Symbols::from_images(addresses, &regions, width, &options, &mut tools.images)?,
    };
    let shown = Shown { pcs, symbols, regions, kind, width, program, files };
    let mut put = |stacks: &Stacks, thread| {
        let (total, left) = show::filtered(stacks, &shown, &options)?;
        if options.interactive {
            interactive::run(out, total, &left, &shown, &options, &mut tools)
        } else {
            show::write(out, (total, &left), thread, &shown, &options, &mut tools)
        }
    };
    match &options.thread {
        None => put(&stacks, None)?,
        Some(wanted) => {
            for (&thread, stacks) in threads.iter().flatten() {
                if wanted == "*" || numeric(wanted) - thread as f64 == 0.0 {
                    put(stacks, Some(thread))?;
                }
            }
        }
    }
    if let Some(warning) = tools.images.cache.as_ref().and_then(|cache| cache.warning()) {
        say(format_args!("jeprof: warning: {warning}\n"));
    }
    tools.images.save();
    // The process ends here. Giving everything back piece by piece takes longer than looking up names in the cache.
    std::mem::forget((shown, stacks, threads, tools));
    Ok(0)
}

/// What a text is worth as a number: its digits, otherwise 0.
fn numeric(text: &str) -> f64 {
    let text = text.trim_start();
    let end = text.bytes().take_while(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b'-' | b'+')).count();
    (0..=end).rev().find_map(|end| text[..end].parse().ok()).unwrap_or(0.0)
}

/// Tells program and profiles apart. Profiles come last first, as they are read.
fn sort_words(words: Vec<OsString>, options: &Options) -> Result<(Names, String, Vec<OsString>)> {
    let mut words = words;
    let names = match words.first() {
        Some(first) if remote::is_remote(first) => Names::Server,
        Some(first) if is_symbolized(Path::new(first)) => Names::Profile,
        _ => Names::Program,
    };
    let mut program = UNKNOWN_PROGRAM.to_owned();
    if names == Names::Program {
        if words.is_empty() {
            return Err(Stop::usage("Did not specify program"));
        }
        let first = words.remove(0);
        program = first
            .into_string()
            .map_err(|name| Stop::error(format!("{}: the program's name must be UTF-8\n", name.display())))?;
        if !truth(&program) {
            return Err(Stop::usage("Did not specify program"));
        }
        if words.is_empty() && !options.symbols {
            return Err(Stop::usage("Did not specify profile file"));
        }
    } else {
        for (option, is_set) in [("--lines", options.lines), ("--disasm", truth(&options.disasm))] {
            if is_set {
                return Err(Stop::usage(format!("{option} cannot be used without a binary")));
            }
        }
    }
    let mut profiles = Vec::new();
    for word in words {
        for name in machines(&word) {
            profiles.insert(0, name);
        }
    }
    Ok((names, program, profiles))
}

/// `NAME@N/PATH` stands for N servers.
fn machines(word: &OsStr) -> Vec<OsString> {
    let spelled = || {
        let text = word.to_str()?;
        let (machine, rest) = text.rsplit_once('@')?;
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let path = &rest[digits..];
        if digits == 0 || !(path.is_empty() || path.starts_with('/')) {
            return None;
        }
        let count: u32 = rest[..digits].parse().ok().filter(|&count| count <= MOST_MACHINES)?;
        Some((0..count).map(|at| format!("{at}.{machine}{path}").into()).collect())
    };
    spelled().unwrap_or_else(|| vec![word.to_owned()])
}

/// More servers than that are a typing error.
const MOST_MACHINES: u32 = 10_000;

/// All profiles of a run as one.
struct Loaded {
    stacks: Stacks,
    threads: Option<BTreeMap<u64, Stacks>>,
    pcs: Pcs,
    width: Width,
    kind: super::values::Kind,
    regions: Vec<images::Region>,
    given_names: rustc_hash::FxHashMap<u64, String>,
}

fn load(
    fetched: &[Fetched],
    names: Names,
    program: &mut String,
    options: &Options,
    tools: &mut Tools,
) -> Result<Loaded> {
    // Memory map and threads are those of one profile: the last in the list, which is the first on the command line.
    let (main_file, others) = match options.compat {
        Compat::V530 => fetched.split_last(),
        Compat::V531 => fetched.split_first(),
    }
    .ok_or_else(|| Stop::usage("Did not specify profile file"))?;
    let mut pcs = Pcs::default();
    let mut width = Width::W16;
    let mut given_names = rustc_hash::FxHashMap::default();
    let cache = tools.images.cache.clone();
    let mut read = |path: &Path, program: &mut String| -> Result<(Profile, Width)> {
        let symbolized = names == Names::Profile;
        let mut context = Context { options, pcs: &mut pcs, symbolized, program, width, cache: cache.as_deref() };
        let mut profile = profile::read(path, &mut context)?;
        width = context.width;
        given_names.extend(profile.symbols.take().into_iter().flatten());
        Ok((profile, width))
    };
    let (main, main_width) = read(&main_file.path, program)?;
    let regions = match names {
        Names::Server => Vec::new(),
        Names::Program | Names::Profile => {
            images::regions(program, &main.map, main.max_pc, main_width, options, &mut tools.images)
        }
    };
    let Profile { mut kind, mut stacks, threads, .. } = main;
    for other in others {
        let (other, _) = read(&other.path, program)?;
        kind = other.kind;
        stacks.merge(&other.stacks);
    }
    if !options.base.is_empty() {
        let (mut base, _) = read(Path::new(&options.base), program)?;
        kind = base.kind;
        stacks = stacks.subtract(&mut base.stacks, options.drop_negative);
    }
    Ok(Loaded { stacks, threads, pcs, width, kind, regions, given_names })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machine_names_are_spelled_out() {
        let text = |word: &str| {
            machines(OsStr::new(word)).into_iter().map(|name| name.into_string().expect("text")).collect::<Vec<_>>()
        };
        assert_eq!(text("srv@2/pprof/heap"), ["0.srv/pprof/heap", "1.srv/pprof/heap"]);
        assert_eq!(text("a@b@1"), ["0.a@b"]);
        assert_eq!(text("dir@x/file"), ["dir@x/file"]);
    }
}
