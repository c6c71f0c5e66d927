//! Debug information as slices of the mapped file, and how to read it.
#![forbid(unsafe_code)]

use gimli::{EndianSlice, LittleEndian};

pub(super) type Slice<'a> = EndianSlice<'a, LittleEndian>;
pub(super) type Dwarf<'a> = gimli::Dwarf<Slice<'a>>;
pub(super) type Unit<'a> = gimli::Unit<Slice<'a>>;
pub(super) type Header<'a> = gimli::UnitHeader<Slice<'a>>;

/// Which of two readings of a table is wanted, where binutils departs from the standard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reading {
    /// The lines that addr2line and objdump of binutils 2.40 print.
    #[default]
    AsBinutils,
    /// What the compiler meant.
    AsStandard,
}
