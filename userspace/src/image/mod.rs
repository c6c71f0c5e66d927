//! ELF images: what `nm`, `addr2line`, `objdump` and `c++filt` tell of them, in this process.
//!
//! ```text
//!              ┌─ symtab ──► symbols(), lookup()            nm -n --demangle
//!  file ─ elf ─┼─ dwarf ───► frames()                       addr2line -f -C -i
//!              │         └─► calls()                        the same without its habits
//!              └─ disasm ──► disassemble()                  objdump -C -d -l --no-show-raw-insn
//!  debugfile: the separate file with the debug information
//! ```
//!
//! Answers are those of binutils 2.40, which are what jeprof's output is made of; where binutils is known to be wrong, the
//! README of this folder's package lists what is told instead. Opening reads headers only: everything else is built when it
//! is first asked for and kept.
//!
//! Any bytes may be given as a file. A damaged table ends where the damage is.

pub(crate) mod bytes;
mod cache;
mod calls;
mod codesyms;
mod cxx;
pub mod debugfile;
pub mod debuginfod;
pub mod demangle;
mod disasm;
mod dwarf;
mod elf;
#[cfg(test)]
mod elsewhere;
mod error;
mod frames;
mod kept;
mod minidebug;
#[cfg(test)]
pub(crate) mod oracle;
mod order;
mod routines;
pub(crate) mod short;
mod shown;
mod store;
mod symtab;
mod text;
mod witness;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;

pub use cache::Cache;
pub(crate) use cache::MOST_FILE_BYTES;
pub use calls::Call;
use codesyms::CodeSymbols;
use debugfile::Places;
pub use disasm::DisasmLine;
pub use dwarf::Reading;
use dwarf::{Debug, Session};
use elf::Elf;
pub use elf::{Section, Segment};
pub use error::Error;
pub use frames::SourceFrame;
use frames::{Naming, Place, Tables};
use kept::{Known, Trait};
pub use routines::{Called, Routine, Within};
use routines::{Placed, Routines};
pub use shown::FunctionName;
use shown::Shown;
pub(crate) use store::program_build;
use store::{Identity, Store};
use symtab::{FunctionIndex, Functions, NearestIndex};
pub use symtab::{Nearest, Symbol};
pub use text::Text;
use witness::Witness;

/// For fewer addresses a thread is not worth its start.
const MANY: usize = 64;

/// An open ELF file.
#[derive(Debug)]
pub struct Image {
    elf: Arc<Elf>,
    places: Places,
    reading: Reading,
    symbols: OnceLock<Vec<Symbol>>,
    dynamic_symbols: OnceLock<Vec<Symbol>>,
    nearest: OnceLock<NearestIndex>,
    routines: OnceLock<Routines>,
    functions: OnceLock<FunctionIndex>,
    /// Places were looked up without an index of all functions.
    was_asked: AtomicBool,
    code_symbols: OnceLock<CodeSymbols>,
    debug: OnceLock<Option<Separate>>,
    naming: Mutex<Naming>,
    shown: Arc<Shown>,
    cache: Option<Arc<Cache>>,
    store: OnceLock<Option<Store>>,
    witness: Arc<Witness>,
}

/// What jeprof asks of one of ascending addresses.
#[derive(Debug, PartialEq, Eq)]
pub struct Answer<'a> {
    /// Innermost inlined call first; empty when nothing is known.
    pub frames: &'a [SourceFrame],
    /// `None`: it lies before the end of the last routine that was given, and belongs to it.
    pub routine: Option<Within<Called>>,
}

/// Debug information, and function symbols from elsewhere: of a debug file, or unpacked.
#[derive(Debug)]
struct Separate {
    debug: Option<Debug>,
    symbols: Option<Arc<Elf>>,
    functions: OnceLock<FunctionIndex>,
}

impl Separate {
    fn new(debug: Option<Debug>, symbols: Option<Arc<Elf>>) -> Separate {
        Separate { debug, symbols, functions: OnceLock::new() }
    }
}

impl Image {
    /// Reads the headers. Debug files are looked for in the usual places.
    pub fn open(path: &Path) -> Result<Image, Error> {
        Image::open_with(path, Places::default(), Reading::AsBinutils)
    }

    /// The same, with other places for debug files or another reading.
    pub fn open_with(path: &Path, places: Places, reading: Reading) -> Result<Image, Error> {
        let witness = Arc::<Witness>::default();
        Ok(Image {
            elf: Arc::new(Elf::open(path)?),
            places: places.with_witness(witness.clone()),
            reading,
            symbols: OnceLock::new(),
            dynamic_symbols: OnceLock::new(),
            nearest: OnceLock::new(),
            routines: OnceLock::new(),
            functions: OnceLock::new(),
            was_asked: AtomicBool::new(false),
            code_symbols: OnceLock::new(),
            debug: OnceLock::new(),
            naming: Mutex::default(),
            shown: Arc::default(),
            cache: None,
            store: OnceLock::new(),
            witness,
        })
    }

    /// Keeps answers in a cache, and takes them from it.
    #[must_use]
    pub fn with_cache(self, cache: Option<Arc<Cache>>) -> Image {
        Image { cache, ..self }
    }

    /// Writes what was found out into the cache, as dropping the image does.
    pub fn save(&self) {
        if let Some(Some(store)) = self.store.get() {
            store.save();
        }
    }

    /// The section named `.text`.
    pub fn text(&self) -> Option<Section> {
        self.elf.section(".text").cloned()
    }

    /// Empty when it has none.
    pub fn build_id(&self) -> &[u8] {
        &self.elf.build_id
    }

    /// Whether its functions have names: it has a full symbol table or debug information, or its debug file does.
    pub fn has_names(&self) -> bool {
        self.recalled(Trait::HasNames, || {
            self.elf.symbols(false).is_some() || self.debug.get_or_init(|| self.find_debug()).is_some()
        })
    }

    /// Fixed addresses: an executable that is not position-independent.
    pub fn is_fixed(&self) -> bool {
        self.elf.is_fixed
    }

    /// The svma of a byte of the file, when it is part of what is loaded.
    pub fn svma(&self, file_offset: u64) -> Option<u64> {
        self.elf.svma(file_offset)
    }

    /// Whether its code is of x86-64.
    pub fn is_x86_64(&self) -> bool {
        self.elf.machine == object::elf::EM_X86_64
    }

    /// What is loaded.
    pub fn segments(&self) -> &[Segment] {
        &self.elf.segments
    }

    /// Defined symbols in the order of `nm -n`, the dynamic ones when there are no others.
    pub fn symbols(&self) -> &[Symbol] {
        let symbols = self.symbols.get_or_init(|| symtab::list(&self.elf, false));
        if symbols.is_empty() { self.dynamic_symbols() } else { symbols }
    }

    /// Defined dynamic symbols in the order of `nm -D -n`.
    pub fn dynamic_symbols(&self) -> &[Symbol] {
        self.dynamic_symbols.get_or_init(|| symtab::list(&self.elf, true))
    }

    /// The symbol at or below an address in nm's list, without building that list.
    pub fn lookup(&self, address: u64) -> Option<Nearest> {
        self.nearest.get_or_init(|| NearestIndex::build(&self.elf)).find(&self.elf, address)
    }

    /// [`Image::frames_of`] ascending addresses, and the function that jeprof takes each for, by nm's list, without building
    /// that list. `take` gets the answers in that order, and must not ask for frames.
    pub fn answers(&self, addresses: &[u64], mut take: impl FnMut(Answer<'_>)) {
        let store = self.store();
        let mut naming = self.naming.lock().unwrap_or_else(PoisonError::into_inner);
        let mut end = None;
        let mut rest = addresses;
        if let Some(kept) = store.and_then(Store::kept).filter(|_| naming.is_fresh()) {
            // What a former run knows needs no linker names, and no room for all at once.
            let (mut numbered, mut frames) = (Naming::default(), Vec::new());
            while let Some((&address, behind)) = rest.split_first() {
                let Some(Known { place: Some(place), routine }) = kept.numbers(address) else { break };
                let is_within = end.is_some_and(|end| address < end);
                if !is_within && routine.is_none() {
                    break;
                }
                frames.clear();
                numbered.put_frames(&mut frames, &place, |&name| kept.name(name), |&file| kept.text(file));
                let unknown = || FunctionName { full: "".into(), short: "".into() };
                let called = |placed: Placed<u32>| placed.called(|name| kept.name(name).unwrap_or_else(unknown));
                let routine = routine.filter(|_| !is_within).map(called);
                end = routine.as_ref().and_then(Within::end).or(end);
                take(Answer { frames: &frames, routine });
                rest = behind;
            }
            *naming = numbered.map(|name| kept.linker(name).ok().flatten());
        }
        if rest.is_empty() {
            return;
        }
        let mut known: Vec<Known> = match store {
            Some(store) => rest.iter().map(|&address| store.get(address)).collect(),
            None => vec![Known::default(); rest.len()],
        };
        let builds_routines = known.len() >= MANY && known[0].routine.is_none();
        let (elf, routines) = (&*self.elf, &self.routines);
        let frames: Vec<Vec<SourceFrame>> = thread::scope(|scope| {
            if builds_routines {
                // Made below, where no thread is to be had.
                let _later = thread::Builder::new()
                    .spawn_scoped(scope, || routines.get_or_init(|| Routines::build(elf)).prepare(elf));
            }
            self.find_places(rest, &mut known);
            let of_place =
                |known: &mut Known| naming.source_frames(&known.place.take().unwrap_or_default(), &self.shown);
            let frames = known.iter_mut().map(of_place).collect();
            if builds_routines {
                routines.get_or_init(|| Routines::build(elf)).prepare(elf);
            }
            frames
        });
        for ((&address, known), frames) in rest.iter().zip(known).zip(frames) {
            if end.is_some_and(|end| address < end) {
                take(Answer { frames: &frames, routine: None });
                continue;
            }
            let placed = known.routine.unwrap_or_else(|| {
                let found: Placed = self.routines().find(&self.elf, address);
                if let Some(store) = store {
                    store.put(address, Known { place: None, routine: Some(found.clone()) });
                }
                found
            });
            let routine = placed.called(|linker| self.shown.of_binutils(&linker));
            end = routine.end().or(end);
            take(Answer { frames: &frames, routine: Some(routine) });
        }
    }

    /// Whether there is a function `_fini` in nm's list as jeprof reads it.
    pub fn has_separator(&self) -> bool {
        self.recalled(Trait::HasSeparator, || self.routines().has_separator(&self.elf))
    }

    fn routines(&self) -> &Routines {
        self.routines.get_or_init(|| Routines::build(&self.elf))
    }

    /// Function, file and line of an address, innermost inlined call first; empty when nothing is known. What is asked
    /// in which order matters as it does for addr2line.
    pub fn frames(&self, address: u64) -> Vec<SourceFrame> {
        self.frames_of(&[address]).pop().unwrap_or_default()
    }

    /// The same for many addresses, in their order.
    pub fn frames_of(&self, addresses: &[u64]) -> Vec<Vec<SourceFrame>> {
        let places = self.places(addresses);
        let mut naming = self.naming.lock().unwrap_or_else(PoisonError::into_inner);
        places.iter().map(|place| naming.source_frames(place, &self.shown)).collect()
    }

    /// Functions at each address by linker name, innermost inlined call first; empty where none is known.
    pub fn calls(&self, addresses: &[u64]) -> Vec<Vec<Call>> {
        self.places(addresses).into_iter().map(Call::of).collect()
    }

    /// A linker name for people: see [`demangle::full`].
    pub fn full_name(&self, linker: &str) -> Arc<str> {
        self.shown.full(linker)
    }

    /// The instructions of `start..stop`, with symbols, functions and lines between them, as `objdump -C -d -l` prints
    /// them. Lines are those of an objdump that starts here.
    pub fn disassemble(&self, start: u64, stop: u64) -> Result<Vec<DisasmLine>, Error> {
        if !self.is_x86_64() {
            return Err(Error::Machine { path: self.elf.path.clone(), machine: self.elf.machine });
        }
        let symbols = self.code_symbols.get_or_init(|| CodeSymbols::build(&self.elf));
        let mut naming = Naming::default();
        // objdump looks functions up in the full symbol table only, or in that of the debug file.
        let has_names = self.has_names();
        let tables = self.tables(&[]);
        let mut frame = |address| {
            let mut innermost = naming.innermost(&tables.place(address)).filter(|_| has_names)?;
            innermost.name = innermost.name.filter(|name| !name.is_empty());
            Some(innermost)
        };
        Ok(disasm::disassemble(&self.elf, symbols, &mut frame, start..stop))
    }

    /// Where in the file the tables stand that a reader of symbols and debug information follows.
    #[cfg(test)]
    pub(crate) fn debug_regions(&self) -> Vec<std::ops::Range<usize>> {
        let names = [".symtab", ".strtab", ".dynsym", ".gnu.version", ".gnu.version_r", ".rela.plt", ".plt"];
        let is_wanted =
            |section: &&Section| section.name.starts_with(".debug") || names.contains(&section.name.as_str());
        let wanted = self.elf.sections.iter().filter(is_wanted);
        wanted.map(|section| section.offset as usize..(section.offset + section.size) as usize).collect()
    }

    /// What is known of each address.
    fn places(&self, addresses: &[u64]) -> Vec<Place> {
        let recalled = |&address: &u64| self.store().map(|store| store.get(address)).unwrap_or_default();
        let mut known: Vec<Known> = addresses.iter().map(recalled).collect();
        self.find_places(addresses, &mut known);
        known.into_iter().map(|known| known.place.unwrap_or_default()).collect()
    }

    /// Looks up the places that are not `known`, which has what is known of each address.
    fn find_places(&self, addresses: &[u64], known: &mut [Known]) {
        if known.iter().all(|known| known.place.is_some()) {
            return;
        }
        let asked = self.asked_once(addresses, known);
        let mut opened = None;
        for (&address, known) in addresses.iter().zip(known) {
            if known.place.is_none() {
                let place = opened.get_or_insert_with(|| self.tables(&asked)).place(address);
                if let Some(store) = self.store() {
                    store.put(address, Known { place: Some(place.clone()), routine: None });
                }
                known.place = Some(place);
            }
        }
    }

    /// The addresses whose places are not `known`, ascending, for which no index of all functions is made: there is none when
    /// not all are asked for at once, or not for the first time.
    fn asked_once(&self, addresses: &[u64], known: &[Known]) -> Vec<u64> {
        if self.reading == Reading::AsStandard || self.was_asked.swap(true, Ordering::Relaxed) {
            return Vec::new();
        }
        let unknown = addresses.iter().zip(known).filter(|(_, known)| known.place.is_none());
        let mut asked: Vec<u64> = unknown.map(|(&address, _)| address).collect();
        asked.sort_unstable();
        asked
    }

    fn recalled(&self, which: Trait, find: impl FnOnce() -> bool) -> bool {
        match self.store() {
            Some(store) => store.has(which, find),
            None => find(),
        }
    }

    fn store(&self) -> Option<&Store> {
        let open = || {
            let name: String = debugfile::hex(self.build_id()).chars().take(40).collect();
            let name = if name.is_empty() { "file" } else { &name };
            Some(Store::open(self.cache.clone()?, name, self.identity(), self.witness.clone(), self.shown.clone()))
        };
        self.store.get_or_init(open).as_ref()
    }

    /// What answers follow from, but for the debug files that are found on the way.
    fn identity(&self) -> Identity {
        let mut identity = Identity::of_program()
            .with_number(self.reading as u64)
            .with_number(u64::from(self.places.servers.is_some()))
            .with_number(self.elf.size())
            .with(&self.elf.build_id);
        for directory in &self.places.directories {
            identity = identity.with(directory.as_os_str().as_encoded_bytes());
        }
        for section in &self.elf.sections {
            identity = identity
                .with(section.name.as_bytes())
                .with_number(section.address)
                .with_number(section.size)
                .with_number(section.offset);
        }
        if self.elf.build_id.is_empty() { identity.with_file(&self.elf.path) } else { identity }
    }

    /// For these ascending addresses alone, or for any when there are none.
    fn tables<'a>(&'a self, asked: &'a [u64]) -> Tables<'a> {
        let separate = self.debug.get_or_init(|| self.find_debug()).as_ref();
        let others = |separate: &'a Separate| {
            let elf = separate.symbols.as_deref()?;
            Some((elf, Functions::new(elf, &separate.functions, asked)))
        };
        Tables {
            elf: &self.elf,
            functions: Functions::new(&self.elf, &self.functions, asked),
            debug: separate.and_then(|separate| separate.debug.as_ref()).map(Session::on),
            separate: separate.and_then(others),
            reading: self.reading,
        }
    }

    /// The debug information: the file's own, else that of the file it names by build-id or link.
    fn find_debug(&self) -> Option<Separate> {
        let shared = |elf: &Elf| {
            let (name, build_id) = elf.debugaltlink()?;
            let path = self.places.by_alt_link(&elf.path, name, build_id)?;
            Elf::open(&path).ok().map(Arc::new)
        };
        // binutils' tools do not unpack.
        let is_packed = self.reading == Reading::AsStandard && self.elf.symbols(false).is_none();
        let unpack = || minidebug::unpack(&self.elf).filter(|_| is_packed).map(Arc::new);
        let open = |elf: &Arc<Elf>| {
            let debug = Debug::open(elf.clone(), shared(elf), self.reading)?;
            Some(debug.with_witness(self.witness.clone()))
        };
        if let Some(debug) = open(&self.elf) {
            return Some(Separate::new(Some(debug), unpack()));
        }
        let by_id = || self.places.by_build_id(&self.elf.build_id);
        let by_link = || {
            let (name, crc) = self.elf.debuglink()?;
            self.places.by_debuglink(&self.elf.path, name, crc)
        };
        let path = by_id().or_else(by_link).or_else(|| self.places.fetch(&self.elf.build_id));
        let Some(elf) = path.and_then(|path| Elf::open(&path).ok()).map(Arc::new) else {
            return unpack().map(|elf| Separate::new(None, Some(elf)));
        };
        let debug = open(&elf);
        if debug.is_none() && self.reading == Reading::AsBinutils {
            return None;
        }
        Some(Separate::new(debug, Some(elf)))
    }
}
