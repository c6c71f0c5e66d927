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

mod bytes;
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
mod minidebug;
#[cfg(test)]
pub(crate) mod oracle;
mod routines;
mod symtab;

use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

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
use routines::Routines;
pub use routines::{Routine, Within};
use symtab::{FunctionIndex, NearestIndex};
pub use symtab::{Nearest, Symbol};

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
    code_symbols: OnceLock<CodeSymbols>,
    debug: OnceLock<Option<Separate>>,
    naming: Mutex<Naming>,
}

/// Debug information, and function symbols from elsewhere: of a debug file, or unpacked.
#[derive(Debug)]
struct Separate {
    debug: Option<Debug>,
    symbols: Option<(Arc<Elf>, FunctionIndex)>,
}

impl Image {
    /// Reads the headers. Debug files are looked for in the usual places.
    pub fn open(path: &Path) -> Result<Image, Error> {
        Image::open_with(path, Places::default(), Reading::AsBinutils)
    }

    /// The same, with other places for debug files or another reading.
    pub fn open_with(path: &Path, places: Places, reading: Reading) -> Result<Image, Error> {
        Ok(Image {
            elf: Arc::new(Elf::open(path)?),
            places,
            reading,
            symbols: OnceLock::new(),
            dynamic_symbols: OnceLock::new(),
            nearest: OnceLock::new(),
            routines: OnceLock::new(),
            functions: OnceLock::new(),
            code_symbols: OnceLock::new(),
            debug: OnceLock::new(),
            naming: Mutex::default(),
        })
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
        self.elf.symbols(false).is_some() || self.debug.get_or_init(|| self.find_debug()).is_some()
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

    /// The function that jeprof takes an address for, by nm's list, without building that list.
    pub fn routine(&self, address: u64) -> Within {
        self.routines().find(&self.elf, address).named()
    }

    /// Whether there is a function `_fini` in nm's list as jeprof reads it.
    pub fn has_separator(&self) -> bool {
        self.routines().has_separator(&self.elf)
    }

    fn routines(&self) -> &Routines {
        self.routines.get_or_init(|| Routines::build(&self.elf))
    }

    /// Function, file and line of an address, innermost inlined call first; empty when nothing is known. What is asked
    /// in which order matters as it does for addr2line.
    pub fn frames(&self, address: u64) -> Vec<SourceFrame> {
        let place = self.tables().place(address);
        self.naming.lock().unwrap_or_else(PoisonError::into_inner).frames(&place)
    }

    /// Functions at each address by linker name, innermost inlined call first; empty where none is known.
    pub fn calls(&self, addresses: &[u64]) -> Vec<Vec<Call>> {
        self.places(addresses).into_iter().map(Call::of).collect()
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
        let tables = self.tables();
        let mut frame = |address| naming.innermost(&tables.place(address)).filter(|_| has_names);
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
        let tables = self.tables();
        addresses.iter().map(|address| tables.place(*address)).collect()
    }

    fn tables(&self) -> Tables<'_> {
        let functions = self.functions.get_or_init(|| FunctionIndex::build(&self.elf));
        let separate = self.debug.get_or_init(|| self.find_debug()).as_ref();
        Tables {
            elf: &self.elf,
            functions,
            debug: separate.and_then(|separate| separate.debug.as_ref()).map(Session::on),
            separate: separate
                .and_then(|separate| separate.symbols.as_ref())
                .map(|(elf, functions)| (&**elf, functions)),
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
        let with_functions = |elf: Arc<Elf>| {
            let functions = FunctionIndex::build(&elf);
            Some((elf, functions))
        };
        // binutils' tools do not unpack.
        let is_packed = self.reading == Reading::AsStandard && self.elf.symbols(false).is_none();
        let unpack = || minidebug::unpack(&self.elf).filter(|_| is_packed).map(Arc::new);
        if let Some(debug) = Debug::open(self.elf.clone(), shared(&self.elf), self.reading) {
            return Some(Separate { debug: Some(debug), symbols: unpack().and_then(with_functions) });
        }
        let by_id = || self.places.by_build_id(&self.elf.build_id);
        let by_link = || {
            let (name, crc) = self.elf.debuglink()?;
            self.places.by_debuglink(&self.elf.path, name, crc)
        };
        let path = by_id().or_else(by_link).or_else(|| self.places.fetch(&self.elf.build_id));
        let Some(elf) = path.and_then(|path| Elf::open(&path).ok()).map(Arc::new) else {
            return unpack().map(|elf| Separate { debug: None, symbols: with_functions(elf) });
        };
        let debug = Debug::open(elf.clone(), shared(&elf), self.reading);
        if debug.is_none() && self.reading == Reading::AsBinutils {
            return None;
        }
        Some(Separate { debug, symbols: with_functions(elf) })
    }
}
