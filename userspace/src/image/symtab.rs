//! Symbol tables as `nm` lists them, and the function symbol that covers an address as BFD chooses it.
//!
//! ```text
//!  .symtab ── absent or empty? ──► .dynsym
//!     │
//!     ├─ NearestIndex: (value, index), sorted by value     one entry of 16 bytes per symbol, built at the first look-up
//!     └─ list(): Symbol per entry, demangled, `nm -n` order  only for list modes
//! ```
#![forbid(unsafe_code)]

use std::cell::OnceCell;
use std::cmp::{Ordering, Reverse};
use std::sync::{Arc, OnceLock};

use object::LittleEndian;
use object::elf::{self, Sym64};

use super::demangle::demangle;
use super::elf::{Elf, Section, Symbols, is_real};
use super::order::Ascending;

const ENDIAN: LittleEndian = LittleEndian;
/// Symbols inside another that are passed over to find that one.
const ENCLOSING: usize = 64;

/// A defined symbol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// svma, or the value itself where it is no address.
    pub address: u64,
    /// nm's letter: `T` function, `t` a local one, `W` weak, `D` data and so on.
    pub kind: u8,
    /// Demangled, with `@@VERSION` when it came from the dynamic table.
    pub name: String,
}

/// All defined symbols, by address, those at one address by their linker names. Empty without a table.
pub(super) fn list(elf: &Elf, dynamic: bool) -> Vec<Symbol> {
    let Some(symbols) = elf.symbols(dynamic) else { return Vec::new() };
    let mut entries: Vec<(u64, String, u8)> = symbols
        .table
        .symbols()
        .iter()
        .enumerate()
        .skip(1)
        .filter(|(index, symbol)| is_listed(&symbols, *index, symbol))
        .map(|(index, symbol)| {
            let kind = letter(elf, symbols.section(index), symbol);
            (symbol.st_value.get(ENDIAN), linker_name(&symbols, index), kind)
        })
        .collect();
    entries.sort();
    entries
        .into_iter()
        .map(|(address, name, kind)| Symbol { address, kind, name: demangle(&name).into_owned() })
        .collect()
}

pub(super) fn linker_name(symbols: &Symbols<'_>, index: usize) -> String {
    let mut name = String::new();
    put_linker_name(symbols, index, &mut name);
    name
}

/// Adds a symbol's name with its version.
pub(super) fn put_linker_name(symbols: &Symbols<'_>, index: usize, into: &mut String) {
    into.push_str(&symbols.name(index));
    if let Some((at, version)) = symbols.version(index) {
        into.push_str(at);
        into.push_str(version);
    }
}

/// Value and index of every defined symbol, in the order of the table.
pub(super) fn defined(symbols: &Symbols<'_>) -> impl Iterator<Item = (u64, u32)> {
    let entries = symbols.table.symbols().iter().enumerate().skip(1);
    entries
        .filter(|(index, symbol)| is_listed(symbols, *index, symbol))
        .map(|(index, symbol)| (symbol.st_value.get(ENDIAN), index as u32))
}

fn is_listed(symbols: &Symbols<'_>, index: usize, symbol: &Sym64<LittleEndian>) -> bool {
    symbols.section(index) != 0 && !matches!(symbol.st_type(), elf::STT_SECTION | elf::STT_FILE)
}

/// nm's letter for a symbol.
pub(super) fn letter(elf: &Elf, section: u32, symbol: &Sym64<LittleEndian>) -> u8 {
    let is_object = matches!(symbol.st_type(), elf::STT_OBJECT | elf::STT_COMMON);
    if section == u32::from(elf::SHN_COMMON) {
        return b'C';
    }
    if symbol.st_type() == elf::STT_GNU_IFUNC {
        return b'i';
    }
    let letter = match symbol.st_bind() {
        elf::STB_WEAK => return if is_object { b'V' } else { b'W' },
        elf::STB_GNU_UNIQUE => return b'u',
        elf::STB_LOCAL | elf::STB_GLOBAL if is_real(section) => {
            elf.sections.get(section as usize).map_or(b'a', section_letter)
        }
        elf::STB_LOCAL | elf::STB_GLOBAL => b'a',
        _ => return b'?',
    };
    if symbol.st_bind() == elf::STB_GLOBAL { letter.to_ascii_uppercase() } else { letter }
}

fn section_letter(section: &Section) -> u8 {
    if section.is_code() {
        b't'
    } else if section.is_allocated() && section.has_contents() {
        if section.is_writable() { b'd' } else { b'r' }
    } else if !section.has_contents() {
        b'b'
    } else if section.is_debugging() {
        b'N'
    } else if !section.is_writable() {
        b'n'
    } else {
        b'?'
    }
}

/// Where a name lies between its neighbours, as jeprof reads nm's list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nearest {
    pub start: u64,
    /// Address of the next symbol; equal to `start` for the last one.
    pub next: u64,
    pub kind: u8,
    /// Demangled, with its version.
    pub name: String,
}

/// Symbols by address: (value, index in the table).
#[derive(Debug, Default)]
pub(super) struct NearestIndex {
    sorted: Vec<(u64, u32)>,
    dynamic: bool,
}

impl NearestIndex {
    /// Of `.symtab`, or of `.dynsym` when nothing is listed there.
    pub(super) fn build(elf: &Elf) -> NearestIndex {
        for dynamic in [false, true] {
            let Some(symbols) = elf.symbols(dynamic) else { continue };
            let mut sorted: Vec<_> = defined(&symbols).collect();
            if !sorted.is_empty() {
                sorted.sort_unstable();
                return NearestIndex { sorted, dynamic };
            }
        }
        NearestIndex::default()
    }

    /// The symbol at or below an address. At equal addresses the last function by name, else the first of any kind.
    pub(super) fn find(&self, elf: &Elf, address: u64) -> Option<Nearest> {
        let after = self.sorted.partition_point(|(value, _)| *value <= address);
        let start = self.sorted[..after].last()?.0;
        let from = self.sorted.partition_point(|(value, _)| *value < start);
        let symbols = elf.symbols(self.dynamic)?;
        let mut here: Vec<(String, u8)> = self.sorted[from..after]
            .iter()
            .map(|(_, index)| {
                let index = *index as usize;
                let symbol = &symbols.table.symbols()[index];
                (linker_name(&symbols, index), letter(elf, symbols.section(index), symbol))
            })
            .collect();
        here.sort();
        let chosen = here.iter().rposition(|(_, kind)| kind.eq_ignore_ascii_case(&b't')).unwrap_or(0);
        let (name, kind) = here.swap_remove(chosen);
        let next = self.sorted.get(after).map_or(start, |(value, _)| *value);
        Some(Nearest { start, next, kind, name: demangle(&name).into_owned() })
    }
}

/// A function symbol, for addresses that debug information does not name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FunctionSymbol<S = Arc<str>> {
    pub(super) address: u64,
    /// Linker name, without a version.
    pub(super) name: S,
    /// Of the source, when the table says which file its symbols are of.
    pub(super) file: Option<S>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    section: u32,
    value: u64,
    /// 0 = unknown.
    size: u64,
    index: u32,
    /// Index of the `STT_FILE` symbol; 0 = none.
    file: u32,
}

impl Entry {
    /// The best of equal addresses last: the largest, then the first of the table.
    fn rank(&self) -> (u64, u64, Reverse<u32>) {
        (self.value, self.size.max(1), Reverse(self.index))
    }
}

/// The index of a file's functions, made when it is first asked for: of all, or of those around the addresses that will be asked.
#[derive(Debug)]
pub(super) struct Functions<'a> {
    elf: &'a Elf,
    all: &'a OnceLock<FunctionIndex>,
    /// Ascending; all when there are none.
    asked: &'a [u64],
    near: OnceCell<FunctionIndex>,
}

impl<'a> Functions<'a> {
    pub(super) fn new(elf: &'a Elf, all: &'a OnceLock<FunctionIndex>, asked: &'a [u64]) -> Functions<'a> {
        Functions { elf, all, asked, near: OnceCell::new() }
    }

    pub(super) fn index(&self) -> &FunctionIndex {
        match self.all.get() {
            Some(all) => all,
            None if self.asked.is_empty() => self.all.get_or_init(|| FunctionIndex::build(self.elf)),
            None => self.near.get_or_init(|| FunctionIndex::near(self.elf, self.asked)),
        }
    }
}

/// Calls `take` for each function symbol, in the order of the table.
///
/// File symbols are local and stand before the symbols they are of; once one follows other symbols, it is not known which file
/// a global symbol is of.
fn each_function(symbols: &Symbols<'_>, mut take: impl FnMut(Entry)) {
    let (mut file, mut seen_symbol, mut file_after_symbol) = (0, false, false);
    for (index, symbol) in symbols.table.symbols().iter().enumerate().skip(1) {
        let kind = symbol.st_type();
        if kind == elf::STT_FILE {
            file = index as u32;
            file_after_symbol |= seen_symbol;
            continue;
        }
        seen_symbol = true;
        let section = symbols.section(index);
        let size = symbol.st_size.get(ENDIAN);
        let is_local = symbol.st_bind() == elf::STB_LOCAL;
        let is_marker = size == 0 && is_local && kind == elf::STT_NOTYPE && symbol.st_visibility() == elf::STV_HIDDEN;
        let is_data = matches!(kind, elf::STT_SECTION | elf::STT_OBJECT | elf::STT_COMMON | elf::STT_TLS | 8 | 9);
        if is_data || is_marker || !is_real(section) {
            continue;
        }
        let file = if is_local || !file_after_symbol { file } else { 0 };
        take(Entry { section, value: symbol.st_value.get(ENDIAN), size, index: index as u32, file });
    }
}

/// By section and rank.
fn sorted(found: &[Entry]) -> Vec<Entry> {
    let places = Ascending::new(|| found.iter().map(|entry| entry.value).zip(0..));
    let mut sorted: Vec<Entry> = (0..places.len()).map(|at| found[places.get(at).1 as usize]).collect();
    sorted.chunk_by_mut(|a, b| a.value == b.value).filter(|same| same.len() > 1).for_each(|same| {
        same.sort_unstable_by_key(Entry::rank);
    });
    // Sections lie one behind the other in nearly all files.
    if !sorted.is_sorted_by_key(|entry| entry.section) {
        sorted.sort_by_key(|entry| entry.section);
    }
    sorted
}

/// Function symbols by section and address. 32 bytes per symbol.
#[derive(Debug, Default)]
pub(super) struct FunctionIndex {
    sorted: Vec<Entry>,
    dynamic: bool,
}

impl FunctionIndex {
    /// Of `.symtab`, or of `.dynsym` without one.
    pub(super) fn build(elf: &Elf) -> FunctionIndex {
        let Some((dynamic, symbols)) = Self::table(elf) else { return FunctionIndex::default() };
        let mut found = Vec::with_capacity(symbols.table.len());
        each_function(&symbols, |entry| found.push(entry));
        FunctionIndex { sorted: sorted(&found), dynamic }
    }

    /// The same for [`FunctionIndex::find`] at no other than these ascending addresses, in the time that it takes to read the
    /// table once.
    pub(super) fn near(elf: &Elf, addresses: &[u64]) -> FunctionIndex {
        let Some((dynamic, symbols)) = Self::table(elf) else { return FunctionIndex::default() };
        // By section, the best entry between each address and the one before it.
        let mut best: Vec<Vec<Option<Entry>>> = Vec::new();
        each_function(&symbols, |entry| {
            let at = addresses.partition_point(|&address| address < entry.value);
            let section = entry.section as usize;
            if at == addresses.len() || section >= elf.sections.len() {
                return;
            }
            if best.len() <= section {
                best.resize_with(section + 1, Vec::new);
            }
            if best[section].is_empty() {
                best[section].resize(addresses.len(), None);
            }
            let best = &mut best[section][at];
            if best.is_none_or(|best| best.rank() < entry.rank()) {
                *best = Some(entry);
            }
        });
        FunctionIndex { sorted: best.into_iter().flatten().flatten().collect(), dynamic }
    }

    /// `.symtab`, or `.dynsym` without one, and which of the two.
    fn table(elf: &Elf) -> Option<(bool, Symbols<'_>)> {
        let table = |dynamic| Some((dynamic, elf.symbols(dynamic)?));
        table(false).or_else(|| table(true))
    }

    /// The function symbol of a section that starts nearest below an address, whatever its size.
    pub(super) fn find(&self, elf: &Elf, section: usize, address: u64) -> Option<FunctionSymbol> {
        self.symbol(elf, self.below(section as u32, address).last()?)
    }

    /// The function symbol of a section that an address lies in. One without a size reaches to the next symbol, in a table
    /// that lists all functions.
    pub(super) fn covering(&self, elf: &Elf, section: usize, address: u64) -> Option<FunctionSymbol> {
        let below = self.below(section as u32, address);
        let nearest = below.last()?;
        let holds = |entry: &&Entry| address - entry.value < entry.size;
        let unsized_holds = nearest.size == 0 && (!self.dynamic || nearest.value == address);
        let found = if unsized_holds { Some(nearest) } else { below.iter().rev().take(ENCLOSING).find(holds) };
        self.symbol(elf, found?)
    }

    /// Entries of a section at or below an address.
    fn below(&self, section: u32, address: u64) -> &[Entry] {
        let from = self.sorted.partition_point(|entry| entry.section < section);
        let after = self.sorted.partition_point(|entry| match entry.section.cmp(&section) {
            Ordering::Equal => entry.value <= address,
            order => order == Ordering::Less,
        });
        &self.sorted[from..after]
    }

    fn symbol(&self, elf: &Elf, entry: &Entry) -> Option<FunctionSymbol> {
        let symbols = elf.symbols(self.dynamic)?;
        let file = (entry.file != 0).then(|| symbols.name(entry.file as usize).into());
        Some(FunctionSymbol { address: entry.value, name: symbols.name(entry.index as usize).into(), file })
    }
}
