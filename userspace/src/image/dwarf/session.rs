//! Questions about addresses, with the units that were opened for them: many addresses of one unit open it once.
#![forbid(unsafe_code)]

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::{Arc, PoisonError};

use gimli::constants as dw;
use gimli::{AttributeValue, DebugInfoOffset, DwarfFileType, UnitOffset};

use super::debug::{Debug, Found, KEPT_UNITS, Link, Tables};
use super::functions::Functions;
use super::lines::LineTable;
use super::slice::{Dwarf, Reading, Slice, Unit};
use super::units::{self, UnitList, UnitRanges};

/// Units that a session keeps open.
const OPEN_UNITS: usize = 64;
/// References from a function to what it is an instance of; more are a cycle.
const MAX_REFERENCES: u32 = 100;

/// Debug information with the units that were opened.
pub(in super::super) struct Session<'d> {
    debug: &'d Debug,
    dwarf: Dwarf<'d>,
    units: &'d UnitList,
    shared: Option<Box<Session<'d>>>,
    open: RefCell<HashMap<u32, Option<Rc<Opened<'d>>>>>,
}

/// An open unit.
struct Opened<'d> {
    unit: Unit<'d>,
    /// Where its functions are when they are in another file.
    split: Option<(Dwarf<'d>, Unit<'d>)>,
}

impl<'d> Opened<'d> {
    /// Where the unit's functions are described.
    fn code<'s>(&'s self, session: &'s Session<'d>) -> (&'s Dwarf<'d>, &'s Unit<'d>) {
        match &self.split {
            Some((dwarf, unit)) => (dwarf, unit),
            None => (&session.dwarf, &self.unit),
        }
    }
}

/// What the entry of a function says.
#[derive(Clone, Debug, Default)]
struct Described {
    name: Option<Arc<str>>,
    /// The name is the linker's.
    is_linkage: bool,
    /// Where an inlined call stands: number of the file, line.
    call_file: Option<u64>,
    call_line: u32,
    /// Where the entry with the name stands in the source, the same way, when it is one of the unit asked.
    declared: (Option<u64>, u32),
}

/// Of local classes, lambdas above all, that have no linker name.
const CALL_OPERATOR: &str = "operator()";

impl Described {
    /// Gives call operators that have no name but that the place where they are declared. `file` gives the path of a number.
    fn tell_apart(&mut self, file: impl Fn(u64) -> Arc<str>) {
        let (Some(number), line @ 1..) = self.declared else { return };
        if !self.is_linkage && self.name.as_deref() == Some(CALL_OPERATOR) {
            let path = file(number);
            let name = path.rsplit('/').next().unwrap_or_default();
            self.name = Some(format!("{CALL_OPERATOR} at {name}:{line}").into());
        }
    }
}

impl<'d> Session<'d> {
    /// Begins to ask.
    pub(in super::super) fn on(debug: &'d Debug) -> Session<'d> {
        let dwarf = debug.dwarf();
        let units = debug.units.get_or_init(|| UnitList::read(&dwarf));
        let shared = debug.shared.as_ref().map(|shared| Box::new(Session::on(shared)));
        Session { debug, dwarf, units, shared, open: RefCell::default() }
    }

    /// What is known of an address; empty when no unit covers it.
    pub(in super::super) fn find(&self, address: u64) -> Found {
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
    fn unit(&self, number: u32) -> Option<Rc<Opened<'d>>> {
        let mut open = self.open.borrow_mut();
        if let Some(known) = open.get(&number) {
            return known.clone();
        }
        let header = self.units.header(&self.dwarf, number);
        let unit = header.and_then(|header| self.dwarf.unit(header).ok()).map(|unit| {
            // binutils' tools read no other files for it.
            let split = if self.debug.reading == Reading::AsStandard {
                let place = (number, self.units.len());
                self.debug.splits.find(&self.debug.elf.path, &self.dwarf, &unit, place)
            } else {
                None
            };
            Rc::new(Opened { unit, split })
        });
        if open.len() >= OPEN_UNITS {
            open.clear();
        }
        open.insert(number, unit.clone());
        unit
    }

    /// The unit that holds an entry, and the entry's place in it.
    fn holding(&self, offset: DebugInfoOffset) -> Option<(Rc<Opened<'d>>, UnitOffset)> {
        let opened = self.unit(self.units.holding(offset.0)?)?;
        let within = offset.to_unit_offset(&opened.unit.header)?;
        Some((opened, within))
    }

    fn tables(&self, number: u32) -> Option<Arc<Tables>> {
        let mut kept = self.debug.tables.lock().unwrap_or_else(PoisonError::into_inner);
        kept.clock += 1;
        let now = kept.clock;
        if let Some((used, tables)) = kept.tables.get_mut(&number) {
            *used = now;
            return tables.clone();
        }
        let tables = self.unit(number).and_then(|opened| {
            let lines = LineTable::read(&self.dwarf, &opened.unit, self.debug.reading)?;
            let (dwarf, unit) = opened.code(self);
            Some(Arc::new(Tables { lines, functions: Functions::read(dwarf, unit) }))
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
    fn chain(&self, opened: &Opened<'d>, unit_offset: usize, tables: &Tables, innermost: u32) -> Vec<Link> {
        let (dwarf, unit) = opened.code(self);
        let mut links = Vec::new();
        let mut next = Some(innermost);
        while let Some(function) = next.and_then(|number| tables.functions.get(number)) {
            let mut described = Described::default();
            let _until_damage = self.entry((dwarf, unit), UnitOffset(function.offset), 0, &mut described);
            if self.debug.reading == Reading::AsStandard {
                described.tell_apart(|number| tables.lines.file(number));
            }
            links.push(Link {
                key: (unit_offset + function.offset) as u64,
                name: described.name,
                is_linkage: described.is_linkage,
                low: function.low,
                is_inlined: function.is_inlined,
                call_file: described.call_file.map(|number| tables.lines.file(number)),
                call_line: described.call_line,
            });
            next = function.caller.filter(|_| function.is_inlined);
        }
        links
    }

    /// Reads what an entry says, names of what it is an instance of included.
    fn entry(
        &self,
        (dwarf, unit): (&Dwarf<'d>, &Unit<'d>),
        offset: UnitOffset,
        depth: u32,
        described: &mut Described,
    ) -> gimli::Result<()> {
        let mut entries = unit.entries_raw(Some(offset))?;
        let Some(abbreviation) = entries.read_abbreviation()? else { return Ok(()) };
        let was_named = described.name.is_some();
        let mut declared = (None, 0);
        for specification in abbreviation.attributes() {
            let attribute = entries.read_attribute(*specification)?;
            let value = attribute.value();
            match attribute.name() {
                dw::DW_AT_name if described.name.is_none() => {
                    described.name = text(dwarf, unit, value);
                    described.is_linkage |= described.name.is_some() && units::is_plain_language(unit);
                }
                dw::DW_AT_linkage_name | dw::DW_AT_MIPS_linkage_name => {
                    if let Some(name) = text(dwarf, unit, value) {
                        described.name = Some(name);
                        described.is_linkage = true;
                    }
                }
                dw::DW_AT_abstract_origin | dw::DW_AT_specification if depth < MAX_REFERENCES => {
                    self.follow((dwarf, unit), value, depth + 1, described)?;
                }
                dw::DW_AT_call_file if depth == 0 => {
                    described.call_file = match value {
                        AttributeValue::FileIndex(number) => Some(number),
                        value => value.udata_value(),
                    };
                }
                dw::DW_AT_call_line if depth == 0 => {
                    described.call_line = value.udata_value().map_or(0, |line| line as u32);
                }
                dw::DW_AT_decl_file => {
                    declared.0 = match value {
                        AttributeValue::FileIndex(number) => Some(number),
                        value => value.udata_value(),
                    };
                }
                dw::DW_AT_decl_line => declared.1 = value.udata_value().map_or(0, |line| line as u32),
                _ => {}
            }
        }
        if !was_named && described.declared == (None, 0) {
            described.declared = declared;
        }
        Ok(())
    }

    fn follow(
        &self,
        place: (&Dwarf<'d>, &Unit<'d>),
        value: AttributeValue<Slice<'d>>,
        depth: u32,
        described: &mut Described,
    ) -> gimli::Result<()> {
        let (session, offset) = match value {
            AttributeValue::UnitRef(offset) => return self.entry(place, offset, depth, described),
            AttributeValue::DebugInfoRef(offset) => match offset.to_unit_offset(&place.1.header) {
                Some(within) => return self.entry(place, within, depth, described),
                // Files with split units hold one unit each.
                None if place.0.file_type == DwarfFileType::Dwo => return Ok(()),
                None => (Some(self), offset),
            },
            AttributeValue::DebugInfoRefSup(offset) => (self.shared.as_deref(), offset),
            _ => return Ok(()),
        };
        match session.and_then(|session| Some((session, session.holding(offset)?))) {
            Some((session, (opened, offset))) => {
                let result = session.entry((&session.dwarf, &opened.unit), offset, depth, described);
                // Numbers of its files are those of another table.
                described.declared = (None, described.declared.1);
                result
            }
            None => Ok(()),
        }
    }
}

fn text<'a>(dwarf: &Dwarf<'a>, unit: &Unit<'a>, value: AttributeValue<Slice<'a>>) -> Option<Arc<str>> {
    let text = dwarf.attr_string(unit, value).ok()?;
    Some(text.to_string_lossy().into())
}
