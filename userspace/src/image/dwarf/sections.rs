//! Debug sections of one file as slices: of the mapping, or of an inflated copy where they are stored compressed.
#![forbid(unsafe_code)]

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use gimli::{EndianSlice, LittleEndian};

use super::super::elf::Elf;
use super::slice::Slice;

#[derive(Debug)]
pub(super) struct Sections {
    elf: Arc<Elf>,
    inflated: HashMap<&'static str, Vec<u8>>,
}

impl Sections {
    /// Inflates those of `names` that are compressed.
    pub(super) fn open(elf: Arc<Elf>, names: impl Iterator<Item = &'static str>) -> Sections {
        let mut inflated = HashMap::new();
        for name in names {
            if let Cow::Owned(data) = elf.debug_section(name) {
                inflated.insert(name, data);
            }
        }
        Sections { elf, inflated }
    }

    /// A section by its name; empty without one.
    pub(super) fn slice(&self, name: &str) -> Slice<'_> {
        let data = match self.inflated.get(name) {
            Some(data) => data,
            None => match self.elf.debug_section(name) {
                Cow::Borrowed(data) => data,
                Cow::Owned(_) => &[],
            },
        };
        EndianSlice::new(data, LittleEndian)
    }
}
