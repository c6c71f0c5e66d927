//! Functions and inlined calls of one unit.
#![forbid(unsafe_code)]

use gimli::constants as dw;

use super::intervals::{Intervals, Ranges};
use super::slice::{Dwarf, Unit};
use super::units::add_code;

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
