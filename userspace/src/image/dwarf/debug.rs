//! The debug information of one file: its sections, and what was decoded of them.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, OnceLock};

use gimli::{EndianSlice, LittleEndian, SectionId};

use super::super::elf::Elf;
use super::super::witness::Witness;
use super::functions::Functions;
use super::lines::{Line, LineTable};
use super::sections::Sections;
use super::slice::{Dwarf, Reading, Slice};
use super::split::Splits;
use super::units::{UnitList, UnitRanges};

/// Units whose tables are kept; more are read again.
pub(super) const KEPT_UNITS: usize = 256;

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
pub(in super::super) struct Link<S = Arc<str>> {
    /// Tells functions apart: place of its entry in the debug information.
    pub(in super::super) key: u64,
    /// As the debug information has it.
    pub(in super::super) name: Option<S>,
    /// The name is the linker's.
    pub(in super::super) is_linkage: bool,
    /// Start of its first range.
    pub(in super::super) low: u64,
    /// A call that was inlined, not the function that contains it.
    pub(in super::super) is_inlined: bool,
    /// Where an inlined call stands.
    pub(in super::super) call_file: Option<S>,
    /// 0 = unknown.
    pub(in super::super) call_line: u32,
}

/// What the debug information says of an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct Found<S = Arc<str>> {
    pub(in super::super) line: Option<Line<S>>,
    /// Innermost first; the last one is a function that was not inlined, when it is known.
    pub(in super::super) chain: Vec<Link<S>>,
}

impl<S> Default for Found<S> {
    fn default() -> Found<S> {
        Found { line: None, chain: Vec::new() }
    }
}

#[derive(Debug)]
pub(super) struct Tables {
    pub(super) lines: LineTable,
    pub(super) functions: Functions,
}

/// The debug information of a file.
#[derive(Debug)]
pub(in super::super) struct Debug {
    pub(in super::super) elf: Arc<Elf>,
    pub(super) reading: Reading,
    sections: Sections,
    pub(super) splits: Splits,
    /// Shared by several files (`dwz`).
    pub(super) shared: Option<Box<Debug>>,
    pub(super) units: OnceLock<UnitList>,
    pub(super) ranges: OnceLock<UnitRanges>,
    pub(super) tables: Mutex<Kept>,
}

/// Tables by unit number, with the time of their last use.
#[derive(Debug, Default)]
pub(super) struct Kept {
    pub(super) clock: u64,
    pub(super) tables: HashMap<u32, (u64, Option<Arc<Tables>>)>,
}

impl Debug {
    /// `None` when the file has no debug information.
    pub(in super::super) fn open(elf: Arc<Elf>, shared: Option<Arc<Elf>>, reading: Reading) -> Option<Debug> {
        if elf
            .section(".debug_info")
            .or_else(|| elf.section(".zdebug_info"))
            .is_none_or(|section| !section.has_contents())
        {
            return None;
        }
        let sections = Sections::open(elf.clone(), SECTIONS.iter().map(|id| id.name()));
        let shared = shared.and_then(|shared| Debug::open(shared, None, reading)).map(Box::new);
        Some(Debug {
            elf,
            reading,
            sections,
            splits: Splits::default(),
            shared,
            units: OnceLock::new(),
            ranges: OnceLock::new(),
            tables: Mutex::default(),
        })
    }

    /// Notes which files with split units are looked for.
    pub(in super::super) fn with_witness(self, witness: Arc<Witness>) -> Debug {
        Debug { splits: self.splits.with_witness(witness), ..self }
    }

    pub(super) fn dwarf(&self) -> Dwarf<'_> {
        let load = |id: SectionId| -> Result<Slice<'_>, Infallible> {
            let is_used = SECTIONS.contains(&id);
            Ok(if is_used { self.sections.slice(id.name()) } else { EndianSlice::new(&[], LittleEndian) })
        };
        let Ok(mut dwarf) = gimli::Dwarf::load(load);
        if let Some(shared) = &self.shared {
            dwarf.set_sup(shared.dwarf());
        }
        dwarf
    }
}
