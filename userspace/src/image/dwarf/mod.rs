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
//! Questions are asked in a [`Session`], which keeps the units that it opened: many addresses of one unit open it once.
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
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use gimli::{DebugInfoOffset, EndianSlice, LittleEndian, SectionId, UnitOffset};

use super::elf::Elf;
use functions::Functions;
pub(super) use lines::Line;
use lines::LineTable;
pub use slice::Reading;
use slice::{Dwarf, Slice, Unit};
use units::{UnitList, UnitRanges};

/// Units whose tables are kept; more are read again.
const KEPT_UNITS: usize = 256;
/// Units that a session keeps open.
const OPEN_UNITS: usize = 64;

const SECTIONS: &[SectionId] = &[
    SectionId::DebugAbbrev,
    SectionId::DebugAddr,
    SectionId::DebugAranges,
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
    /// A call that was inlined, not the function that contains it.
    pub(super) is_inlined: bool,
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
    units: OnceLock<UnitList>,
    ranges: OnceLock<UnitRanges>,
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
        Some(Debug {
            elf,
            reading,
            inflated,
            shared,
            units: OnceLock::new(),
            ranges: OnceLock::new(),
            tables: Mutex::default(),
        })
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

    /// Begins to ask.
    pub(super) fn session(&self) -> Session<'_> {
        let dwarf = self.dwarf();
        let units = self.units.get_or_init(|| UnitList::read(&dwarf));
        let shared = self.shared.as_ref().map(|shared| Box::new(shared.session()));
        Session { debug: self, dwarf, units, shared, open: RefCell::default() }
    }
}

/// Debug information with the units that were opened.
pub(super) struct Session<'d> {
    debug: &'d Debug,
    dwarf: Dwarf<'d>,
    units: &'d UnitList,
    shared: Option<Box<Session<'d>>>,
    open: RefCell<HashMap<u32, Option<Rc<Unit<'d>>>>>,
}

impl<'d> Session<'d> {
    /// What is known of an address; empty when no unit covers it.
    pub(super) fn find(&self, address: u64) -> Found {
        let ranges = self.debug.ranges.get_or_init(|| UnitRanges::read(&self.dwarf, self.units));
        for number in ranges.candidates(address) {
            let Some(tables) = self.tables(number) else { continue };
            let line = tables.lines.find(address);
            let function = tables.functions.find(address);
            if line.is_none() && function.is_none() {
                continue;
            }
            let chain = match (function, self.unit(number)) {
                (Some(function), Some(unit)) => self.chain(&unit, self.units.offset(number), &tables, function),
                _ => Vec::new(),
            };
            return Found { line, chain };
        }
        Found::default()
    }

    /// A unit by number.
    fn unit(&self, number: u32) -> Option<Rc<Unit<'d>>> {
        let mut open = self.open.borrow_mut();
        if let Some(known) = open.get(&number) {
            return known.clone();
        }
        let header = self.units.header(&self.dwarf, number);
        let unit = header.and_then(|header| self.dwarf.unit(header).ok()).map(Rc::new);
        if open.len() >= OPEN_UNITS {
            open.clear();
        }
        open.insert(number, unit.clone());
        unit
    }

    /// The unit that holds an entry, and the entry's place in it.
    fn holding(&self, offset: DebugInfoOffset) -> Option<(Rc<Unit<'d>>, UnitOffset)> {
        let unit = self.unit(self.units.holding(offset.0)?)?;
        let within = offset.to_unit_offset(&unit.header)?;
        Some((unit, within))
    }

    fn tables(&self, number: u32) -> Option<Arc<Tables>> {
        let mut kept = self.debug.tables.lock().unwrap_or_else(PoisonError::into_inner);
        kept.clock += 1;
        let now = kept.clock;
        if let Some((used, tables)) = kept.tables.get_mut(&number) {
            *used = now;
            return tables.clone();
        }
        let tables = self.unit(number).and_then(|unit| {
            let lines = LineTable::read(&self.dwarf, &unit, self.debug.reading)?;
            Some(Arc::new(Tables { lines, functions: Functions::read(&self.dwarf, &unit) }))
        });
        if kept.tables.len() >= KEPT_UNITS
            && let Some(oldest) = kept.tables.iter().min_by_key(|(_, (used, _))| *used).map(|(number, _)| *number)
        {
            kept.tables.remove(&oldest);
        }
        kept.tables.insert(number, (now, tables.clone()));
        tables
    }

    /// The function around an address, and its callers while it was inlined into them.
    fn chain(&self, unit: &Unit<'d>, unit_offset: usize, tables: &Tables, innermost: u32) -> Vec<Link> {
        let mut links = Vec::new();
        let mut next = Some(innermost);
        while let Some(function) = next.and_then(|number| tables.functions.get(number)) {
            let described = functions::describe(self, unit, function.offset);
            links.push(Link {
                key: (unit_offset + function.offset) as u64,
                name: described.name,
                is_linkage: described.is_linkage,
                low: function.low,
                is_inlined: function.is_inlined,
                call_file: described.call_file.map(|number| tables.lines.file(number).to_owned()),
                call_line: described.call_line,
            });
            next = function.caller.filter(|_| function.is_inlined);
        }
        links
    }
}
