//! Which unit of the debug information covers an address or holds an entry.
#![forbid(unsafe_code)]

use gimli::constants as dw;
use gimli::{Abbreviation, AttributeValue, DebugInfoOffset, DwLang, EntriesRaw, UnitOffset, UnitSectionOffset};

use super::intervals::{Intervals, Ranges};
use super::slice::{Dwarf, Slice, Unit};

/// Languages whose source names are linker names.
const PLAIN: &[DwLang] = &[
    dw::DW_LANG_C89,
    dw::DW_LANG_C,
    dw::DW_LANG_C99,
    dw::DW_LANG_C11,
    dw::DW_LANG_Cobol74,
    dw::DW_LANG_Cobol85,
    dw::DW_LANG_Fortran77,
    dw::DW_LANG_Pascal83,
    dw::DW_LANG_PLI,
    dw::DW_LANG_UPC,
    dw::DW_LANG_Mips_Assembler,
];

/// Every unit's place and ranges: 8 bytes a unit and 32 a range.
#[derive(Debug, Default)]
pub(super) struct UnitIndex {
    /// In file order.
    offsets: Vec<usize>,
    ranges: Intervals,
    /// Units that name no range: any address may be theirs.
    unbounded: Vec<u32>,
}

impl UnitIndex {
    /// Reads the first entry of each unit, up to damage.
    pub(super) fn read(dwarf: &Dwarf<'_>) -> UnitIndex {
        let mut index = UnitIndex::default();
        let mut intervals = Vec::new();
        let mut units = dwarf.units();
        while let Ok(Some(header)) = units.next() {
            let UnitSectionOffset(offset) = header.offset();
            let Ok(unit) = dwarf.unit(header) else { continue };
            let number = index.offsets.len() as u32;
            index.offsets.push(offset);
            let mut ranges = Ranges::default();
            let _until_damage = root_ranges(dwarf, &unit, &mut ranges);
            if ranges.is_empty() {
                index.unbounded.push(number);
            }
            intervals.extend(ranges.intervals(number));
        }
        index.ranges = Intervals::new(intervals);
        index
    }

    /// Numbers of the units that may cover an address, in the order in which to ask them.
    pub(super) fn candidates(&self, address: u64) -> Vec<u32> {
        let mut numbers: Vec<u32> = self.ranges.holding(address).map(|interval| interval.owner).collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers.extend(&self.unbounded);
        numbers
    }

    /// A unit by number.
    pub(super) fn unit<'a>(&self, dwarf: &Dwarf<'a>, number: u32) -> Option<Unit<'a>> {
        let offset = *self.offsets.get(number as usize)?;
        let header = dwarf.debug_info.header_from_offset(DebugInfoOffset(offset)).ok()?;
        dwarf.unit(header).ok()
    }

    pub(super) fn offset(&self, number: u32) -> usize {
        self.offsets.get(number as usize).copied().unwrap_or(0)
    }
}

fn root_ranges<'a>(dwarf: &Dwarf<'a>, unit: &Unit<'a>, ranges: &mut Ranges) -> gimli::Result<()> {
    let mut entries = unit.entries_raw(None)?;
    let Some(abbreviation) = entries.read_abbreviation()? else { return Ok(()) };
    add_code(dwarf, unit, (&mut entries, abbreviation), ranges)
}

/// Adds where the code of an entry lies, and reads past its attributes.
pub(super) fn add_code<'a>(
    dwarf: &Dwarf<'a>,
    unit: &Unit<'a>,
    (entries, abbreviation): (&mut EntriesRaw<'_, Slice<'a>>, &Abbreviation),
    ranges: &mut Ranges,
) -> gimli::Result<()> {
    let (mut low, mut high, mut size) = (0, None, None);
    for specification in abbreviation.attributes() {
        let attribute = entries.read_attribute(*specification)?;
        match attribute.name() {
            dw::DW_AT_low_pc => low = dwarf.attr_address(unit, attribute.value())?.unwrap_or(0),
            dw::DW_AT_high_pc => match attribute.value() {
                AttributeValue::Udata(value) => size = Some(value),
                value => high = dwarf.attr_address(unit, value)?,
            },
            dw::DW_AT_ranges => add_ranges(dwarf, unit, attribute.value(), ranges),
            _ => {}
        }
    }
    if let Some(high) = high.or_else(|| size.map(|size| low.wrapping_add(size))).filter(|high| *high != 0) {
        ranges.add(low, high);
    }
    Ok(())
}

/// Adds the list that a `DW_AT_ranges` refers to, up to damage in it.
fn add_ranges<'a>(dwarf: &Dwarf<'a>, unit: &Unit<'a>, value: AttributeValue<Slice<'a>>, ranges: &mut Ranges) {
    if let Ok(Some(mut list)) = dwarf.attr_ranges(unit, value) {
        while let Ok(Some(range)) = list.next() {
            ranges.add(range.begin, range.end);
        }
    }
}

/// The unit that holds an entry, and the entry's place in it.
pub(super) fn holding<'a>(dwarf: &Dwarf<'a>, offset: DebugInfoOffset) -> gimli::Result<Option<(Unit<'a>, UnitOffset)>> {
    let mut units = dwarf.units();
    while let Some(header) = units.next()? {
        if let Some(within) = offset.to_unit_offset(&header) {
            return Ok(Some((dwarf.unit(header)?, within)));
        }
    }
    Ok(None)
}

/// True when names of this unit's language are not mangled.
pub(super) fn is_plain_language(unit: &Unit<'_>) -> bool {
    let language = || {
        let mut entries = unit.entries_raw(None).ok()?;
        let abbreviation = entries.read_abbreviation().ok()??;
        for specification in abbreviation.attributes() {
            let attribute = entries.read_attribute(*specification).ok()?;
            if attribute.name() == dw::DW_AT_language {
                return match attribute.value() {
                    AttributeValue::Language(language) => Some(language),
                    _ => None,
                };
            }
        }
        None
    };
    language().is_some_and(|language| PLAIN.contains(&language))
}
