//! Names for the addresses of a profile, from the files that were mapped. Offline: no network, no running process.
//!
//! - `name`: demangling and short names.
//! - `elf`: which file, and where in it.
//! - `cache`: the result, one site per address.
//!
//! [`resolve`] collects every address once, groups them by mapped file, checks that the file is the one that was mapped,
//! translates through its program headers and asks blazesym, one file per task on as many threads as there are
//! processors. What cannot be named keeps a label and is counted, with the reason.
#![forbid(unsafe_code)]

pub mod cache;
pub mod elf;
pub mod name;

use std::collections::{BTreeMap, HashSet};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::thread;

use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{CodeInfo, Input, Sym, Symbolized, Symbolizer};

pub use cache::{Function, Problem, Site, Symbols};

use crate::model::{Mapping, Mappings, Profile, call_site};
use elf::Image;

/// Where to look for files.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// The main program, in place of the path on record.
    pub program: Option<PathBuf>,
    /// What the process sees as `/`; for a live one `/proc/PID/root`.
    pub root: Option<PathBuf>,
    /// Where separate debug files are looked for first, by build-id.
    pub debug_directories: Vec<PathBuf>,
}

/// Addresses of one mapped file.
struct Task<'a> {
    /// `None`: addresses outside every mapping, taken as svmas of the main program.
    mapping: Option<&'a Mapping>,
    is_program: bool,
    addresses: Vec<u64>,
}

/// Names every address of the profile's stacks.
pub fn resolve(profile: &Profile, sources: &Sources) -> Symbols {
    let tasks = Mutex::new(tasks(profile, sources));
    let results = Mutex::new(Symbols::default());
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    thread::scope(|scope| {
        let work = || {
            let symbolizer = Symbolizer::builder().enable_demangling(false).enable_auto_reload(false).build();
            loop {
                let Some(task) = tasks.lock().expect("no task panics").pop() else { break };
                let (sites, problem) = task.run(&symbolizer, profile, sources);
                let mut results = results.lock().expect("no task panics");
                results.sites.extend(sites);
                results.problems.extend(problem);
            }
        };
        for _ in 1..threads {
            scope.spawn(work);
        }
        work();
    });
    let mut symbols = results.into_inner().expect("no task panics");
    symbols.problems.sort_by(|a, b| b.addresses.cmp(&a.addresses).then_with(|| a.path.cmp(&b.path)));
    symbols.tell_apart();
    symbols
}

/// Groups all addresses by file; the largest group last, which is taken first.
fn tasks<'a>(profile: &'a Profile, sources: &Sources) -> Vec<Task<'a>> {
    let mut addresses = HashSet::new();
    for (_, frames, _) in profile.totals() {
        addresses.extend(frames.iter().enumerate().map(|(depth, &avma)| call_site(depth, avma)));
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
    fn run(self, symbolizer: &Symbolizer, profile: &Profile, sources: &Sources) -> (Vec<(u64, Site)>, Option<Problem>) {
        let mappings = profile.mappings();
        let mut sites: Vec<(u64, Site)> = self
            .addresses
            .iter()
            .map(|&avma| {
                let is_allocator = profile.is_allocator(avma);
                (avma, Site { label: label(avma, mappings), is_allocator, ..Site::default() })
            })
            .collect();
        let result = self.file(sources).and_then(|file| file.name_sites(&mut sites, mappings, symbolizer));
        let unnamed = sites.iter().filter(|(_, site)| site.functions.is_empty() && !site.is_allocator).count();
        let problem = (unnamed > 0).then(|| Problem {
            path: self.mapping.map_or_else(String::new, |mapping| mapping.path.display().to_string()),
            reason: result.err().unwrap_or_else(|| "no symbol covers them".to_owned()),
            addresses: unnamed,
        });
        (sites, problem)
    }

    /// The file with the symbols, or why there is none.
    fn file(&self, sources: &Sources) -> Result<SymbolFile, String> {
        let root = sources.root.as_deref();
        let given = sources.program.clone().filter(|_| self.is_program);
        let Some(mapping) = self.mapping else {
            let path = given.ok_or("no file is mapped there")?;
            let image = Image::read(&path)?;
            if !image.is_fixed {
                return Err("no file is mapped there".into());
            }
            let symbols = elf::debug_file(&image.build_id, root, &sources.debug_directories).unwrap_or(path);
            return Ok(SymbolFile { symbols, image, by_address: true });
        };
        let mut reason = "the file is gone".to_owned();
        for path in given.into_iter().chain(elf::candidates(mapping, root)) {
            match Image::read(&path) {
                Ok(image) if !mapping.build_id.is_empty() && image.build_id != mapping.build_id => {
                    reason = format!(
                        "{} is another build: its build-id is {}, the profile's {}",
                        path.display(),
                        if image.build_id.is_empty() { "missing".to_owned() } else { elf::hex(&image.build_id) },
                        elf::hex(&mapping.build_id)
                    );
                }
                Ok(image) => {
                    let symbols = elf::debug_file(&image.build_id, root, &sources.debug_directories).unwrap_or(path);
                    return Ok(SymbolFile { symbols, image, by_address: false });
                }
                Err(error) => reason = format!("cannot read {}: {error}", path.display()),
            }
        }
        // The file itself is not there or not the same, but its symbols may be.
        match elf::debug_file(&mapping.build_id, root, &sources.debug_directories) {
            Some(symbols) => {
                let image = Image::read(&symbols)?;
                Ok(SymbolFile { symbols, image, by_address: false })
            }
            None => Err(reason),
        }
    }
}

/// A file that was accepted for a group of addresses.
struct SymbolFile {
    /// Where names are looked up: the image itself or its debug file.
    symbols: PathBuf,
    /// How file offsets become svmas.
    image: Image,
    /// The addresses are svmas already.
    by_address: bool,
}

impl SymbolFile {
    fn name_sites(self, sites: &mut [(u64, Site)], mappings: &Mappings, symbolizer: &Symbolizer) -> Result<(), String> {
        let mut svmas = Vec::with_capacity(sites.len());
        let mut places = Vec::with_capacity(sites.len());
        for (place, (avma, _)) in sites.iter().enumerate() {
            let svma = if self.by_address {
                Some(*avma).filter(|&svma| self.image.holds(svma))
            } else {
                mappings.find(*avma).and_then(|mapping| self.image.svma(mapping.file_offset(*avma)))
            };
            if let Some(svma) = svma {
                svmas.push(svma);
                places.push(place);
            }
        }
        let look_up = |debug_syms: bool| {
            let mut elf = Elf::new(&self.symbols);
            elf.debug_syms = debug_syms;
            symbolizer
                .symbolize(&Source::Elf(elf), Input::VirtOffset(&svmas))
                .map_err(|error| format!("cannot read symbols of {}: {error:#}", self.symbols.display()))
        };
        let (described, tabled) = (look_up(true)?, look_up(false)?);
        for (place, (described, tabled)) in places.into_iter().zip(described.into_iter().zip(tabled)) {
            if let Symbolized::Sym(symbol) = described {
                name_site(&mut sites[place].1, &symbol, tabled.as_sym());
            }
        }
        Ok(())
    }
}

/// `symbol` is what debug information says, `tabled` what the symbol table does: short debug information holds names
/// without their path (`push` for `alloc::vec::Vec::push`), and the table's mangled name is better.
fn name_site(site: &mut Site, symbol: &Sym<'_>, tabled: Option<&Sym<'_>>) {
    let linker_name = match tabled {
        Some(tabled) if tabled.addr == symbol.addr && name::is_mangled(&tabled.name) => &tabled.name,
        _ => &symbol.name,
    };
    let outer = name::demangle(linker_name);
    site.start = symbol.addr;
    site.is_rust = outer.is_rust;
    for inlined in symbol.inlined.iter().rev() {
        let mut name = name::demangle(&inlined.name);
        if outer.is_rust && !name::is_mangled(&inlined.name) {
            // Signs of Rust types, such as `->`, are no template brackets.
            name.short.clone_from(&name.full);
        }
        site.functions.push(Function {
            full: name.full,
            short: name.short,
            location: location(inlined.code_info.as_ref()),
            is_inlined: true,
        });
    }
    site.functions.push(Function {
        full: outer.full,
        short: outer.short,
        location: location(symbol.code_info.as_deref()),
        is_inlined: false,
    });
}

fn location(info: Option<&CodeInfo<'_>>) -> String {
    info.map_or_else(String::new, |info| format!("{}:{}", info.to_path().display(), info.line.unwrap_or(0)))
}

/// File and distance from where the file begins in memory, or the bare address.
fn label(avma: u64, mappings: &Mappings) -> String {
    match mappings.find(avma).filter(|mapping| !mapping.path.as_os_str().is_empty()) {
        Some(mapping) => {
            let base = mapping.start.wrapping_sub(mapping.offset);
            let lowest = mappings
                .iter()
                .filter(|other| other.path == mapping.path && other.start <= mapping.start && other.offset == 0)
                .map(|other| other.start)
                .next_back();
            format!("{}+{:#x}", mapping.short_name(), avma.wrapping_sub(lowest.unwrap_or(base)))
        }
        None => format!("{avma:016x}"),
    }
}
