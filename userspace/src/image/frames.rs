//! Source frames of an address, as `addr2line -f -C -i` prints them.
//!
//! addr2line is not a function of the address alone: a function that the debug information knows only by its source name
//! gets the name of the ELF symbol around the first address that is asked in it, and later ones get the source name
//! (or the symbol's, when both start at one place). [`Place`] holds everything that is known of an address, and [`Naming`]
//! what was asked before, so that an order of questions gives addr2line's answers, from a cache too.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::sync::Arc;

use super::dwarf::{Found, Reading, Session};
use super::elf::{Elf, Section};
use super::shown::{FunctionName, Shown};
use super::symtab::{FunctionIndex, FunctionSymbol};

/// One function at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceFrame {
    /// `None` is printed `??`.
    pub function: Option<FunctionName>,
    /// `None` is printed `??`.
    pub file: Option<Arc<str>>,
    /// `None` is printed `?`.
    pub line: Option<u32>,
    /// 0 = none. All frames of one address carry the innermost one's.
    pub discriminator: u32,
}

/// The innermost function at an address, before demangling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Innermost {
    pub(super) name: Option<Arc<str>>,
    pub(super) file: Option<Arc<str>>,
    /// 0 = unknown.
    pub(super) line: u32,
    pub(super) discriminator: u32,
}

/// What is known of an address, before names are chosen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) found: Found,
    /// The function symbol around the address, where it may be needed; as binutils reads them the nearest one below, else
    /// one that the address lies in.
    pub(super) symbol: Option<FunctionSymbol>,
}

/// Files whose tables are asked.
pub(super) struct Tables<'a> {
    pub(super) elf: &'a Elf,
    pub(super) functions: &'a FunctionIndex,
    pub(super) debug: Option<Session<'a>>,
    /// A separate debug file with its function symbols.
    pub(super) separate: Option<(&'a Elf, &'a FunctionIndex)>,
    pub(super) reading: Reading,
}

impl Tables<'_> {
    /// Looks an address up in the sections that are loaded there.
    pub(super) fn place(&self, address: u64) -> Place {
        for (number, section) in self.elf.sections.iter().enumerate() {
            if !section.is_allocated() || !section.contains(address) {
                continue;
            }
            let found = self.debug.as_ref().map(|debug| debug.find(address)).unwrap_or_default();
            let is_named = found.chain.first().is_some_and(|function| function.is_linkage);
            let is_same = |other: &Section| other.name == section.name;
            let symbol = match (self.reading, self.separate) {
                (Reading::AsBinutils, _) if is_named => None,
                (Reading::AsBinutils, Some((elf, functions))) if elf.sections.get(number).is_some_and(is_same) => {
                    functions.find(elf, number, address)
                }
                (Reading::AsBinutils, _) => self.functions.find(self.elf, number, address),
                (Reading::AsStandard, separate) => separate
                    .and_then(|(elf, functions)| {
                        // Files with less in them number their sections in another way.
                        let number = elf.sections.iter().position(|other| is_same(other) && other.contains(address))?;
                        functions.covering(elf, number, address)
                    })
                    .or_else(|| self.functions.covering(self.elf, number, address)),
            };
            let place = Place { found, symbol };
            if !place.is_empty() {
                return place;
            }
        }
        Place::default()
    }
}

impl Place {
    fn is_empty(&self) -> bool {
        self.found.line.is_none() && self.found.chain.is_empty() && self.symbol.is_none()
    }
}

/// Names given so far, by the function's place in the debug information.
#[derive(Debug, Default)]
pub(super) struct Naming {
    given: HashMap<u64, Option<Arc<str>>>,
}

impl Naming {
    /// Linker name, file, line and discriminator of the innermost function; `None` when nothing is known.
    pub(super) fn innermost(&mut self, place: &Place) -> Option<Innermost> {
        if place.is_empty() {
            return None;
        }
        let Found { line, chain } = &place.found;
        let mut file = line.as_ref().and_then(|line| line.file.clone());
        let number = line.as_ref().map_or(0, |line| line.number);
        let discriminator = line.as_ref().map_or(0, |line| line.discriminator);
        let name = match chain.first() {
            Some(function) if function.is_linkage => function.name.clone(),
            Some(function) if self.given.contains_key(&function.key) => self.given[&function.key].clone(),
            function => {
                let name = match (&place.symbol, function) {
                    (Some(symbol), _) => {
                        file = file.or_else(|| symbol.file.clone());
                        Some(symbol.name.clone())
                    }
                    (None, Some(function)) => function.name.clone(),
                    (None, None) => None,
                };
                if let Some(function) = function {
                    let starts_there = place.symbol.as_ref().is_some_and(|symbol| symbol.address == function.low);
                    let later = if starts_there { name.clone() } else { function.name.clone() };
                    self.given.insert(function.key, later);
                }
                name
            }
        };
        Some(Innermost { name: name.filter(|name| !name.is_empty()), file, line: number, discriminator })
    }

    /// The frames of a place, innermost first; empty when nothing is known.
    pub(super) fn frames(&mut self, place: &Place, shown: &Shown) -> Vec<SourceFrame> {
        let Some(innermost) = self.innermost(place) else { return Vec::new() };
        let discriminator = innermost.discriminator;
        let frame = |name: Option<Arc<str>>, file, line: u32| SourceFrame {
            function: name.filter(|name| !name.is_empty()).map(|name| shown.of_binutils(&name)),
            file,
            line: (line != 0).then_some(line),
            discriminator,
        };
        let mut frames = vec![frame(innermost.name, innermost.file, innermost.line)];
        for pair in place.found.chain.windows(2) {
            let (inlined, caller) = (&pair[0], &pair[1]);
            let name = self.given.get(&caller.key).cloned().unwrap_or_else(|| caller.name.clone());
            frames.push(frame(name, inlined.call_file.clone(), inlined.call_line));
        }
        frames
    }
}
