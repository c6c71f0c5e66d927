//! Debug information of one file, asked by address.
//!
//! ```text
//!  address ──► unit (first entries of all units, read once) ──► line table, functions (decoded per unit, on demand)
//! ```
//!
//! - `slice`: types of the reader.
//! - `intervals`: overlapping ranges.
//! - `lines`: the line table of a unit.
//! - `functions`: functions and inlined calls of a unit.
//! - `units`: which unit.
//!
//! Memory: the index of all units, and the decoded tables of the [`KEPT_UNITS`] units used last; a unit's tables hold 24 bytes
//! a line row and 64 a function. Compressed sections are inflated as a whole.
#![forbid(unsafe_code)]

mod functions;
mod intervals;
mod lines;
mod slice;
mod units;

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use gimli::{EndianSlice, LittleEndian, SectionId};

use super::elf::Elf;
use functions::Functions;
pub(super) use lines::Line;
use lines::LineTable;
pub use slice::Reading;
use slice::{Dwarf, Slice, Unit};
use units::UnitIndex;

/// Units whose tables are kept; more are read again.
const KEPT_UNITS: usize = 256;

const SECTIONS: &[SectionId] = &[
    SectionId::DebugAbbrev,
    SectionId::DebugAddr,
    SectionId::DebugInfo,
    SectionId::DebugLine,
    SectionId::DebugLineStr,
    SectionId::DebugRanges,
    SectionId::DebugRngLists,
    SectionId::DebugStr,
    SectionId::DebugStrOffsets,
];

/// A function around an address, or a call in it that was inlined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Link {
    /// Tells functions apart: place of its entry in the debug information.
    pub(super) key: u64,
    /// As the debug information has it.
    pub(super) name: Option<String>,
    /// The name is the linker's.
    pub(super) is_linkage: bool,
    /// Start of its first range.
    pub(super) low: u64,
    /// Where an inlined call stands.
    pub(super) call_file: Option<String>,
    /// 0 = unknown.
    pub(super) call_line: u32,
}

/// What the debug information says of an address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) line: Option<Line>,
    /// Innermost first; the last one is a function that was not inlined, when it is known.
    pub(super) chain: Vec<Link>,
}

#[derive(Debug)]
struct Tables {
    lines: LineTable,
    functions: Functions,
}

/// The debug information of a file.
#[derive(Debug)]
pub(super) struct Debug {
    pub(super) elf: Arc<Elf>,
    reading: Reading,
    /// Sections that are stored compressed.
    inflated: HashMap<SectionId, Vec<u8>>,
    /// Shared by several files (`dwz`).
    shared: Option<Box<Debug>>,
    index: OnceLock<UnitIndex>,
    tables: Mutex<Kept>,
}

/// Tables by unit number, with the time of their last use.
#[derive(Debug, Default)]
struct Kept {
    clock: u64,
    tables: HashMap<u32, (u64, Option<Arc<Tables>>)>,
}

impl Debug {
    /// `None` when the file has no debug information.
    pub(super) fn open(elf: Arc<Elf>, shared: Option<Arc<Elf>>, reading: Reading) -> Option<Debug> {
        if elf
            .section(".debug_info")
            .or_else(|| elf.section(".zdebug_info"))
            .is_none_or(|section| !section.has_contents())
        {
            return None;
        }
        let mut inflated = HashMap::new();
        for id in SECTIONS {
            if let Cow::Owned(data) = elf.debug_section(id.name()) {
                inflated.insert(*id, data);
            }
        }
        let shared = shared.and_then(|shared| Debug::open(shared, None, reading)).map(Box::new);
        Some(Debug { elf, reading, inflated, shared, index: OnceLock::new(), tables: Mutex::default() })
    }

    fn dwarf(&self) -> Dwarf<'_> {
        let load = |id: SectionId| -> Result<Slice<'_>, gimli::Error> {
            if !SECTIONS.contains(&id) {
                return Ok(EndianSlice::new(&[], LittleEndian));
            }
            let data = match self.inflated.get(&id) {
                Some(data) => data,
                None => match self.elf.debug_section(id.name()) {
                    Cow::Borrowed(data) => data,
                    Cow::Owned(_) => &[],
                },
            };
            Ok(EndianSlice::new(data, LittleEndian))
        };
        let mut dwarf = gimli::Dwarf::load(load).unwrap_or_default();
        if let Some(shared) = &self.shared {
            dwarf.set_sup(shared.dwarf());
        }
        dwarf
    }

    /// What is known of an address; empty when no unit covers it.
    pub(super) fn find(&self, address: u64) -> Found {
        let dwarf = self.dwarf();
        let index = self.index.get_or_init(|| UnitIndex::read(&dwarf));
        for number in index.candidates(address) {
            let Some(tables) = self.tables(&dwarf, index, number) else { continue };
            let line = tables.lines.find(address);
            let function = tables.functions.find(address);
            if line.is_none() && function.is_none() {
                continue;
            }
            let chain = match (function, index.unit(&dwarf, number)) {
                (Some(function), Some(unit)) => chain(&dwarf, &unit, index.offset(number), &tables, function),
                _ => Vec::new(),
            };
            return Found { line, chain };
        }
        Found::default()
    }

    fn tables(&self, dwarf: &Dwarf<'_>, index: &UnitIndex, number: u32) -> Option<Arc<Tables>> {
        let mut kept = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        kept.clock += 1;
        let now = kept.clock;
        if let Some((used, tables)) = kept.tables.get_mut(&number) {
            *used = now;
            return tables.clone();
        }
        let tables = index.unit(dwarf, number).and_then(|unit| {
            let lines = LineTable::read(dwarf, &unit, self.reading)?;
            Some(Arc::new(Tables { lines, functions: Functions::read(dwarf, &unit) }))
        });
        if kept.tables.len() >= KEPT_UNITS
            && let Some(oldest) = kept.tables.iter().min_by_key(|(_, (used, _))| *used).map(|(number, _)| *number)
        {
            kept.tables.remove(&oldest);
        }
        kept.tables.insert(number, (now, tables.clone()));
        tables
    }
}

/// The function around an address, and its callers while it was inlined into them.
fn chain(dwarf: &Dwarf<'_>, unit: &Unit<'_>, unit_offset: usize, tables: &Tables, innermost: u32) -> Vec<Link> {
    let mut links = Vec::new();
    let mut next = Some(innermost);
    while let Some(function) = next.and_then(|number| tables.functions.get(number)) {
        let described = functions::describe(dwarf, unit, function.offset);
        links.push(Link {
            key: (unit_offset + function.offset) as u64,
            name: described.name,
            is_linkage: described.is_linkage,
            low: function.low,
            call_file: described.call_file.map(|number| tables.lines.file(number).to_owned()),
            call_line: described.call_line,
        });
        next = function.caller.filter(|_| function.is_inlined);
    }
    links
}
