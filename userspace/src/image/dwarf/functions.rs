//! Functions and inlined calls of one unit, and the names that debug information has for them.
#![forbid(unsafe_code)]

use gimli::constants as dw;
use gimli::{AttributeValue, UnitOffset};

use super::Session;
use super::intervals::{Intervals, Ranges};
use super::slice::{Dwarf, Slice, Unit};
use super::units::{self, add_code};

/// References from a function to what it is an instance of; more are a cycle.
const MAX_REFERENCES: u32 = 100;
/// Levels of nesting; more are damage.
const MAX_DEPTH: usize = 1 << 14;

/// A function, or a call that was inlined. 32 bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Function {
    /// Of its entry in the unit.
    pub(super) offset: usize,
    /// The function around an inlined call.
    pub(super) caller: Option<u32>,
    pub(super) is_inlined: bool,
    /// Start of its first range.
    pub(super) low: u64,
}

/// What the entry of a function says.
#[derive(Clone, Debug, Default)]
pub(super) struct Described {
    pub(super) name: Option<String>,
    /// The name is the linker's.
    pub(super) is_linkage: bool,
    /// Where an inlined call stands: number of the file, line.
    pub(super) call_file: Option<u64>,
    pub(super) call_line: u32,
}

#[derive(Debug, Default)]
pub(super) struct Functions {
    list: Vec<Function>,
    ranges: Intervals,
}

impl Functions {
    /// Walks all entries of the unit. A damaged unit gives the functions up to the damage.
    pub(super) fn read(dwarf: &Dwarf<'_>, unit: &Unit<'_>) -> Functions {
        let mut list = Vec::new();
        let mut intervals = Vec::new();
        let _until_damage = walk(dwarf, unit, &mut list, &mut intervals);
        Functions { list, ranges: Intervals::new(intervals) }
    }

    pub(super) fn get(&self, number: u32) -> Option<Function> {
        self.list.get(number as usize).copied()
    }

    /// The function with the shortest range around an address; of equal ones the last.
    pub(super) fn find(&self, address: u64) -> Option<u32> {
        let holding = self.ranges.holding(address);
        let best = holding.min_by_key(|interval| (interval.high - interval.low, u32::MAX - interval.owner));
        best.map(|interval| interval.owner)
    }
}

fn walk(
    dwarf: &Dwarf<'_>,
    unit: &Unit<'_>,
    list: &mut Vec<Function>,
    intervals: &mut Vec<super::intervals::Interval>,
) -> gimli::Result<()> {
    let mut entries = unit.entries_raw(None)?;
    // `[depth]`: the function whose entry is open there.
    let mut open: Vec<Option<u32>> = Vec::new();
    while !entries.is_empty() {
        let offset = entries.next_offset().0;
        let depth = usize::try_from(entries.next_depth()).unwrap_or(0);
        let Some(abbreviation) = entries.read_abbreviation()? else { continue };
        if depth > MAX_DEPTH {
            return Ok(());
        }
        open.truncate(depth);
        open.resize(depth, None);
        let tag = abbreviation.tag();
        let is_inlined = tag == dw::DW_TAG_inlined_subroutine;
        if !(is_inlined || tag == dw::DW_TAG_subprogram || tag == dw::DW_TAG_entry_point) {
            open.push(None);
            entries.skip_attributes(abbreviation.attributes())?;
            continue;
        }
        let caller = if is_inlined { open.iter().rev().find_map(|function| *function) } else { None };
        let number = list.len() as u32;
        open.push(Some(number));
        let mut ranges = Ranges::default();
        add_code(dwarf, unit, (&mut entries, abbreviation), &mut ranges)?;
        list.push(Function { offset, caller, is_inlined, low: ranges.first() });
        intervals.extend(ranges.intervals(number));
    }
    Ok(())
}

/// Reads what the entry at an offset says, names of what it is an instance of included.
pub(super) fn describe<'a>(session: &Session<'a>, unit: &Unit<'a>, offset: usize) -> Described {
    let mut described = Described::default();
    let _until_damage = read_entry(session, unit, UnitOffset(offset), 0, &mut described);
    described
}

fn read_entry<'a>(
    session: &Session<'a>,
    unit: &Unit<'a>,
    offset: UnitOffset,
    depth: u32,
    described: &mut Described,
) -> gimli::Result<()> {
    let mut entries = unit.entries_raw(Some(offset))?;
    let Some(abbreviation) = entries.read_abbreviation()? else { return Ok(()) };
    for specification in abbreviation.attributes() {
        let attribute = entries.read_attribute(*specification)?;
        let value = attribute.value();
        match attribute.name() {
            dw::DW_AT_name if described.name.is_none() => {
                described.name = text(&session.dwarf, unit, value);
                described.is_linkage |= described.name.is_some() && units::is_plain_language(unit);
            }
            dw::DW_AT_linkage_name | dw::DW_AT_MIPS_linkage_name => {
                if let Some(name) = text(&session.dwarf, unit, value) {
                    described.name = Some(name);
                    described.is_linkage = true;
                }
            }
            dw::DW_AT_abstract_origin | dw::DW_AT_specification if depth < MAX_REFERENCES => {
                follow(session, unit, value, depth + 1, described)?;
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
            _ => {}
        }
    }
    Ok(())
}

fn follow<'a>(
    session: &Session<'a>,
    unit: &Unit<'a>,
    value: AttributeValue<Slice<'a>>,
    depth: u32,
    described: &mut Described,
) -> gimli::Result<()> {
    let (session, offset) = match value {
        AttributeValue::UnitRef(offset) => return read_entry(session, unit, offset, depth, described),
        AttributeValue::DebugInfoRef(offset) => (Some(session), offset),
        AttributeValue::DebugInfoRefSup(offset) => (session.shared.as_deref(), offset),
        _ => return Ok(()),
    };
    let Some(session) = session else { return Ok(()) };
    match session.holding(offset) {
        Some((unit, offset)) => read_entry(session, &unit, offset, depth, described),
        None => Ok(()),
    }
}

fn text<'a>(dwarf: &Dwarf<'a>, unit: &Unit<'a>, value: AttributeValue<Slice<'a>>) -> Option<String> {
    let text = dwarf.attr_string(unit, value).ok()?;
    Some(text.to_string_lossy().into_owned())
}
