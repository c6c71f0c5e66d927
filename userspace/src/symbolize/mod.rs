//! Names for the addresses of a profile, from the files that were mapped. Offline: no network, no running process.
//!
//! - `name`: demangling and short names.
//! - `files`: which file, and where in it.
//! - `symfile`: symbol files that are no ELF files.
//! - `jit`, `jitdump`: names that the program itself gave.
//! - `passing`: names that only the running process leads to.
//! - `cache`: the result, one site per address.
//! - `known`: names of a whole profile, those that it brings itself included.
//!
//! [`resolve`] collects every address once, groups them by mapped file, checks that the file is the one that was mapped,
//! translates through its program headers and asks [`Image::calls`](crate::image::Image::calls), one file per task on as many
//! threads as there are processors. What cannot be named keeps a label and is counted, with the reason.
#![forbid(unsafe_code)]

pub mod cache;
mod files;
pub mod jit;
mod jitdump;
pub mod known;
pub mod name;
pub mod passing;
mod symfile;

use std::collections::{BTreeMap, HashSet};
use std::num::NonZero;
use std::path::Path;
use std::sync::Mutex;
use std::thread;

pub use cache::{Function, Problem, Site, Symbols};
use foldhash::fast::RandomState;

use crate::image::debugfile::hex;
use crate::image::{Call, Image};
use crate::model::{Mapping, Profile, Recent, call_site};
pub use files::Sources;
use files::{Space, SymbolFile};
use name::Name;
use symfile::SymFile;

/// Addresses of one mapped file.
struct Task<'a> {
    /// `None`: addresses outside every mapping, taken as svmas of the main program.
    mapping: Option<&'a Mapping>,
    is_program: bool,
    addresses: Vec<u64>,
}

/// Names every address of the profile's stacks.
pub fn resolve(profile: &Profile, sources: &Sources) -> Symbols {
    resolve_where(profile, sources, |_| true)
}

/// Names the addresses in the chosen files.
fn resolve_where(profile: &Profile, sources: &Sources, is_chosen: impl Fn(Option<&Mapping>) -> bool) -> Symbols {
    let mut tasks = tasks(profile, sources);
    tasks.retain(|task| is_chosen(task.mapping));
    let tasks = Mutex::new(tasks);
    let space = Space::of(profile.mappings());
    let results = Mutex::new(Symbols::default());
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    thread::scope(|scope| {
        let work = || {
            loop {
                let Some(task) = tasks.lock().expect("no task panics").pop() else { break };
                let (sites, problem) = task.run(profile, &space, sources);
                let mut results = results.lock().expect("no task panics");
                results.sites.extend(sites);
                results.problems.extend(problem);
            }
        };
        for _ in 1..threads {
            // Without memory for another thread, those at hand do its work.
            if thread::Builder::new().spawn_scoped(scope, work).is_err() {
                break;
            }
        }
        work();
    });
    let mut symbols = results.into_inner().expect("no task panics");
    symbols.failures = sources.servers.as_ref().map(|servers| servers.failures()).unwrap_or_default();
    symbols.failures.extend(sources.cache.iter().filter_map(|cache| cache.warning()).map(ToOwned::to_owned));
    symbols.failures.extend(sources.remarks.iter().cloned());
    symbols.failures.extend(refused_program(profile, sources));
    symbols.problems.sort_by(|a, b| b.addresses.cmp(&a.addresses).then_with(|| a.path.cmp(&b.path)));
    symbols.make_printable();
    symbols.tell_apart();
    symbols
}

/// What is wrong with the program that was given, when it is another than the profile's.
fn refused_program(profile: &Profile, sources: &Sources) -> Option<String> {
    let given = sources.program.as_deref()?;
    let main = main_program(profile, sources)?;
    let mut mapped = profile.mappings().iter().filter(|mapping| mapping.path == main);
    let mapping = mapped.find(|mapping| !mapping.build_id.is_empty())?;
    let image = Image::open(given).ok().filter(|image| image.build_id() != mapping.build_id)?;
    Some(format!(
        "{} is not the program of the profile, and was not used: its build-id is {}, that of {} {}",
        given.display(),
        if image.build_id().is_empty() { "missing".to_owned() } else { hex(image.build_id()) },
        main.display(),
        hex(&mapping.build_id)
    ))
}

/// Groups all addresses by file; the largest group last, which is taken first.
fn tasks<'a>(profile: &'a Profile, sources: &Sources) -> Vec<Task<'a>> {
    let mut addresses = HashSet::<u64, RandomState>::default();
    let mut recent = Recent::default();
    for (_, frames, _) in profile.totals() {
        for site in frames.iter().enumerate().map(|(depth, &avma)| call_site(depth, avma)) {
            if recent.get(site).is_none() {
                recent.put(site, ());
                addresses.insert(site);
            }
        }
    }
    // What the profile names itself needs no file.
    addresses.retain(|avma| !profile.names().contains_key(avma));
    let program = main_program(profile, sources);
    let mut groups: BTreeMap<_, Task<'a>> = BTreeMap::new();
    for avma in addresses {
        let mapping = profile.mappings().find(avma).filter(|mapping| mapping.is_file());
        let key = mapping.map(|mapping| (mapping.path.as_path(), mapping.build_id.as_slice(), mapping.inode));
        let is_program = mapping.is_none_or(|mapping| Some(mapping.path.as_path()) == program);
        groups.entry(key).or_insert_with(|| Task { mapping, is_program, addresses: Vec::new() }).addresses.push(avma);
    }
    let mut tasks: Vec<_> = groups.into_values().collect();
    for task in &mut tasks {
        task.addresses.sort_unstable();
    }
    tasks.sort_by_key(|task| task.addresses.len());
    tasks
}

/// The path on record of the main program: what the file says, else the path given, else the file at the lowest
/// address that is no library.
fn main_program<'a>(profile: &'a Profile, sources: &Sources) -> Option<&'a Path> {
    let given = sources.program.as_ref().and_then(|program| program.canonicalize().ok());
    let files = || profile.mappings().iter().filter(|mapping| mapping.is_file());
    let same = |path: &Path| files().map(|mapping| mapping.path.as_path()).find(|known| *known == path);
    let is_library = |path: &Path| {
        path.file_name().is_some_and(|name| {
            let name = name.to_string_lossy();
            name.ends_with(".so") || name.contains(".so.")
        })
    };
    let lowest = || files().map(|mapping| mapping.path.as_path()).find(|path| !is_library(path));
    profile.program().and_then(same).or_else(|| given.as_deref().and_then(same)).or_else(lowest)
}

impl Task<'_> {
    fn run(self, profile: &Profile, space: &Space<'_>, sources: &Sources) -> (Vec<(u64, Site)>, Option<Problem>) {
        let mut sites: Vec<(u64, Site)> = self
            .addresses
            .iter()
            .map(|&avma| {
                let is_allocator = profile.is_allocator(avma);
                (avma, Site { label: label(avma, space), is_allocator, ..Site::default() })
            })
            .collect();
        let file = SymbolFile::find(self.mapping, self.is_program, sources);
        let by_symfile = self.name_by_symfile(file.as_ref().ok(), &mut sites, space, sources);
        if let Ok(file) = &file {
            let demangle = |linker: &str| name::of(linker, String::from(&*file.image.full_name(linker)));
            name_sites(&mut sites, |avma| file.svma(avma, space), |svmas| file.image.calls(svmas), demangle);
        }
        let unnamed = sites.iter().filter(|(_, site)| site.functions.is_empty() && !site.is_allocator).count();
        let problem = (unnamed > 0).then(|| Problem {
            path: self.mapping.map_or_else(String::new, |mapping| mapping.path.display().to_string()),
            reason: by_symfile
                .err()
                .or_else(|| file.as_ref().err().cloned())
                .unwrap_or_else(|| file.as_ref().map_or_else(|_| String::new(), SymbolFile::why_unnamed)),
            addresses: unnamed,
        });
        (sites, problem)
    }

    /// Names addresses by a symbol file, when the program is stripped or gone. `Err` says why it cannot be read.
    fn name_by_symfile(
        &self,
        file: Option<&SymbolFile>,
        sites: &mut [(u64, Site)],
        space: &Space<'_>,
        sources: &Sources,
    ) -> Result<(), String> {
        let Some(mapping) = self.mapping.filter(|_| file.is_none_or(|file| !file.image.has_names())) else {
            return Ok(());
        };
        let build_id = file.map_or(mapping.build_id.as_slice(), |file| file.image.build_id());
        let name = mapping.path.file_name().unwrap_or_default();
        let Some(symfile) = SymFile::find(name, build_id, &sources.debug_directories) else { return Ok(()) };
        let base = file.and_then(|file| file.image.segments().first()).map_or(0, |segment| segment.address);
        let place = |avma: u64| match file {
            Some(file) if symfile.is_relative() => file.svma(avma, space).map(|svma| svma.wrapping_sub(base)),
            Some(file) => file.svma(avma, space),
            // Position-independent files begin at 0, others are known by their file only.
            None => space.distance(avma),
        };
        let mut failed = Ok(());
        let calls = |places: &[u64]| {
            symfile.calls(places).unwrap_or_else(|error| {
                failed = Err(error);
                Vec::new()
            })
        };
        name_sites(sites, place, calls, name::demangle);
        failed
    }
}

/// Names addresses that have no name yet: `place` gives an address in the file, `calls` the functions at such, `demangle` names
/// from linker names.
fn name_sites(
    sites: &mut [(u64, Site)],
    place: impl Fn(u64) -> Option<u64>,
    calls: impl FnOnce(&[u64]) -> Vec<Vec<Call>>,
    demangle: impl Fn(&str) -> Name,
) {
    let unnamed = sites.iter_mut().filter(|(_, site)| site.functions.is_empty());
    let (sites, places): (Vec<_>, Vec<_>) =
        unnamed.filter_map(|(avma, site)| place(*avma).map(|place| (site, place))).unzip();
    for (site, calls) in sites.into_iter().zip(calls(&places)) {
        name_site(site, calls, &demangle);
    }
}

/// Names one address.
fn name_site(site: &mut Site, calls: Vec<Call>, demangle: &impl Fn(&str) -> Name) {
    let Some(outer) = calls.last() else { return };
    let (name, start) = outer_name(outer, demangle);
    site.start = start;
    site.is_rust = name.is_rust;
    for call in calls {
        let name = if call.is_inlined { inlined_name(&call.name, site.is_rust, demangle) } else { name.clone() };
        let location = call.file.map_or_else(String::new, |file| format!("{file}:{}", call.line));
        site.functions.push(Function { full: name.full, short: name.short, location, is_inlined: call.is_inlined });
    }
}

/// The name of a containing function and its start: its symbol's, where the debug information has no linker name or one that
/// the symbol's begins with (`work` and `work.cold`), as in jeprof's tables.
fn outer_name(outer: &Call, demangle: &impl Fn(&str) -> Name) -> (Name, u64) {
    let described = demangle(&outer.name);
    let Some((symbol, start)) = &outer.symbol else { return (described, outer.start) };
    let tabled = demangle(symbol);
    if !outer.is_linkage || tabled.full.starts_with(&described.short) {
        (tabled, *start)
    } else {
        (described, outer.start)
    }
}

/// The name of an inlined function. Debug information of Rust may hold names without their path.
fn inlined_name(linker: &str, in_rust: bool, demangle: &impl Fn(&str) -> Name) -> Name {
    let mut name = demangle(linker);
    if in_rust && !name::is_mangled(linker) {
        // Signs of Rust types, such as `->`, are no template brackets.
        name.short.clone_from(&name.full);
    }
    name
}

/// File and distance from where the file begins in memory, or the bare address.
fn label(avma: u64, space: &Space<'_>) -> String {
    let mapping = space.mappings.find(avma).filter(|mapping| !mapping.path.as_os_str().is_empty());
    match mapping.zip(space.distance(avma)) {
        Some((mapping, distance)) => format!("{}+{distance:#x}", mapping.short_name()),
        None => format!("{avma:016x}"),
    }
}
