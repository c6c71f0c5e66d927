//! Which unit of the debug information covers an address or holds an entry.
#![forbid(unsafe_code)]

use gimli::constants as dw;
use gimli::{
    Abbreviation, Abbreviations, AttributeValue, DebugAbbrev, DebugAbbrevOffset, DebugAddrBase, DebugInfoOffset,
    DebugRngListsBase, DwLang, EndianSlice, EntriesRaw, LittleEndian, RangeListsOffset, Reader as _, Section as _,
    UnitSectionOffset,
};

use super::intervals::{Interval, Intervals, Ranges};
use super::slice::{Dwarf, Header, Slice, Unit};

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

/// Where units begin, in file order. 8 bytes a unit.
#[derive(Debug, Default)]
pub(super) struct UnitList {
    offsets: Vec<usize>,
}

impl UnitList {
    /// Reads all headers, up to damage.
    pub(super) fn read(dwarf: &Dwarf<'_>) -> UnitList {
        let mut offsets = Vec::new();
        let mut units = dwarf.units();
        while let Ok(Some(header)) = units.next() {
            let UnitSectionOffset(offset) = header.offset();
            offsets.push(offset);
        }
        UnitList { offsets }
    }

    pub(super) fn len(&self) -> usize {
        self.offsets.len()
    }

    /// A unit's header by its number.
    pub(super) fn header<'a>(&self, dwarf: &Dwarf<'a>, number: u32) -> Option<Header<'a>> {
        let offset = *self.offsets.get(number as usize)?;
        dwarf.debug_info.header_from_offset(DebugInfoOffset(offset)).ok()
    }

    /// Where a unit begins.
    pub(super) fn offset(&self, number: u32) -> usize {
        self.offsets.get(number as usize).copied().unwrap_or(0)
    }

    /// Number of the unit around a place in the section.
    pub(super) fn holding(&self, offset: usize) -> Option<u32> {
        let after = self.offsets.partition_point(|start| *start <= offset);
        after.checked_sub(1).map(|number| number as u32)
    }

    /// Number of the unit that begins at a place.
    fn starting(&self, offset: usize) -> Option<u32> {
        self.offsets.binary_search(&offset).ok().map(|number| number as u32)
    }
}

/// The ranges of all units. 32 bytes a range.
#[derive(Debug, Default)]
pub(super) struct UnitRanges {
    ranges: Intervals,
    /// Units that name no range: any address may be theirs.
    unbounded: Vec<u32>,
}

impl UnitRanges {
    /// Takes what `.debug_aranges` lists, and for units that it leaves out what their first entry says, up to damage. Units
    /// without a line table cover nothing.
    pub(super) fn read(dwarf: &Dwarf<'_>, list: &UnitList) -> UnitRanges {
        let mut intervals = Vec::new();
        let mut is_listed = vec![false; list.len()];
        let mut tables = dwarf.debug_aranges.headers();
        while let Ok(Some(table)) = tables.next() {
            let Some(number) = list.starting(table.debug_info_offset().0) else { continue };
            let mut entries = table.entries();
            while let Ok(Some(entry)) = entries.next() {
                let range = entry.range();
                if range.begin < range.end {
                    is_listed[number as usize] = true;
                    intervals.push(Interval { low: range.begin, high: range.end, owner: number });
                }
            }
        }
        let mut unbounded = Vec::new();
        for number in (0..list.len() as u32).filter(|number| !is_listed[*number as usize]) {
            let Some(header) = list.header(dwarf, number) else { continue };
            let Some(root) = Root::read(dwarf, &header) else { continue };
            if root.has_lines && !root.is_type {
                if root.ranges.is_empty() {
                    unbounded.push(number);
                }
                intervals.extend(root.ranges.intervals(number));
            }
        }
        UnitRanges { ranges: Intervals::new(intervals), unbounded }
    }

    /// Numbers of the units that may cover an address, in the order in which to ask them.
    pub(super) fn candidates(&self, address: u64) -> Vec<u32> {
        let mut numbers: Vec<u32> = self.ranges.holding(address).map(|interval| interval.owner).collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers.extend(&self.unbounded);
        numbers
    }
}

/// What the first entry of a unit says of its extent.
#[derive(Debug, Default)]
struct Root {
    ranges: Ranges,
    has_lines: bool,
    /// Describes a type and no code.
    is_type: bool,
}

impl Root {
    /// Reads the entry by its own abbreviation only, and no line table: a program has thousands of units. `None` for damage.
    fn read<'a>(dwarf: &Dwarf<'a>, header: &Header<'a>) -> Option<Root> {
        let first = first_abbreviation(dwarf, header.debug_abbrev_offset().0)
            .and_then(|abbreviations| Root::read_with(dwarf, header, &abbreviations).ok());
        first.or_else(|| Root::read_with(dwarf, header, &*dwarf.abbreviations(header).ok()?).ok())
    }

    fn read_with<'a>(dwarf: &Dwarf<'a>, header: &Header<'a>, abbreviations: &Abbreviations) -> gimli::Result<Root> {
        let mut root = Root::default();
        let mut entries = header.entries_raw(abbreviations, None)?;
        let Some(abbreviation) = entries.read_abbreviation()? else { return Ok(root) };
        root.is_type = abbreviation.tag() == dw::DW_TAG_type_unit;
        let (mut low, mut high, mut list) = (None, None, None);
        let mut addresses = DebugAddrBase(0);
        let mut lists = DebugRngListsBase::default_for_encoding_and_file(header.encoding(), dwarf.file_type);
        for specification in abbreviation.attributes() {
            let attribute = entries.read_attribute(*specification)?;
            match (attribute.name(), attribute.value()) {
                (dw::DW_AT_low_pc, value) => low = Some(value),
                (dw::DW_AT_high_pc, value) => high = Some(value),
                (dw::DW_AT_ranges, value) => list = Some(value),
                (dw::DW_AT_stmt_list, _) => root.has_lines = true,
                (dw::DW_AT_addr_base | dw::DW_AT_GNU_addr_base, AttributeValue::DebugAddrBase(base)) => {
                    addresses = base;
                }
                (dw::DW_AT_rnglists_base | dw::DW_AT_GNU_ranges_base, AttributeValue::DebugRngListsBase(base)) => {
                    lists = base;
                }
                _ => {}
            }
        }
        let address = |value| match value {
            AttributeValue::Addr(address) => Some(address),
            AttributeValue::DebugAddrIndex(index) => {
                dwarf.debug_addr.get_address(header.address_size(), addresses, index).ok()
            }
            _ => None,
        };
        let low = low.and_then(address);
        let offset = match list {
            Some(AttributeValue::RangeListsRef(offset)) => Some(RangeListsOffset(offset.0)),
            Some(AttributeValue::SecOffset(offset)) => Some(RangeListsOffset(offset)),
            Some(AttributeValue::DebugRngListsIndex(index)) => {
                Some(dwarf.ranges.get_offset(header.encoding(), lists, index)?)
            }
            _ => None,
        };
        if let Some(offset) = offset {
            let base = low.unwrap_or(0);
            let mut list = dwarf.ranges.ranges(offset, header.encoding(), base, &dwarf.debug_addr, addresses)?;
            while let Ok(Some(range)) = list.next() {
                root.ranges.add(range.begin, range.end);
            }
        }
        let low = low.unwrap_or(0);
        let high = match high {
            Some(AttributeValue::Udata(size)) => Some(low.wrapping_add(size)),
            Some(value) => address(value),
            None => None,
        };
        if let Some(high) = high.filter(|high| *high != 0) {
            root.ranges.add(low, high);
        }
        Ok(root)
    }
}

/// The abbreviation that stands first in a table, alone: that of the first entry, as compilers write it.
fn first_abbreviation(dwarf: &Dwarf<'_>, offset: usize) -> Option<Abbreviations> {
    let table = dwarf.debug_abbrev.reader().slice().get(offset..)?;
    let mut rest = EndianSlice::new(table, LittleEndian);
    let (_code, _tag, _has_children) = (rest.read_uleb128().ok()?, rest.read_uleb128().ok()?, rest.read_u8().ok()?);
    loop {
        let (name, form) = (rest.read_uleb128().ok()?, rest.read_uleb128().ok()?);
        if form == u64::from(dw::DW_FORM_implicit_const.0) {
            rest.read_sleb128().ok()?;
        }
        if (name, form) == (0, 0) {
            break;
        }
    }
    let length = table.len() - rest.len();
    // A table that ends without a terminator is accepted.
    DebugAbbrev::new(&table[..length], LittleEndian).abbreviations(DebugAbbrevOffset(0)).ok()
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
