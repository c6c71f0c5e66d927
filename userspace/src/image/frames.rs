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
use super::symtab::{FunctionSymbol, Functions};

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
pub(super) struct Innermost<S = Arc<str>> {
    pub(super) name: Option<S>,
    pub(super) file: Option<S>,
    /// 0 = unknown.
    pub(super) line: u32,
    pub(super) discriminator: u32,
}

/// What is known of an address, before names are chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place<S = Arc<str>> {
    pub(super) found: Found<S>,
    /// The function symbol around the address, where it may be needed; as binutils reads them the nearest one below, else
    /// one that the address lies in.
    pub(super) symbol: Option<FunctionSymbol<S>>,
}

/// Files whose tables are asked.
pub(super) struct Tables<'a> {
    pub(super) elf: &'a Elf,
    pub(super) functions: Functions<'a>,
    pub(super) debug: Option<Session<'a>>,
    /// A separate debug file with its function symbols.
    pub(super) separate: Option<(&'a Elf, Functions<'a>)>,
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
            let symbol = match (self.reading, &self.separate) {
                (Reading::AsBinutils, _) if is_named => None,
                (Reading::AsBinutils, Some((elf, functions))) if elf.sections.get(number).is_some_and(is_same) => {
                    functions.index().find(elf, number, address)
                }
                (Reading::AsBinutils, _) => self.functions.index().find(self.elf, number, address),
                (Reading::AsStandard, separate) => separate
                    .as_ref()
                    .and_then(|(elf, functions)| {
                        // Files with less in them number their sections in another way.
                        let number = elf.sections.iter().position(|other| is_same(other) && other.contains(address))?;
                        functions.index().covering(elf, number, address)
                    })
                    .or_else(|| self.functions.index().covering(self.elf, number, address)),
            };
            let place = Place { found, symbol };
            if !place.is_empty() {
                return place;
            }
        }
        Place::default()
    }
}

impl<S> Default for Place<S> {
    fn default() -> Place<S> {
        Place { found: Found::default(), symbol: None }
    }
}

impl<S> Place<S> {
    fn is_empty(&self) -> bool {
        self.found.line.is_none() && self.found.chain.is_empty() && self.symbol.is_none()
    }
}

/// Names given so far, by the function's place in the debug information.
#[derive(Debug)]
pub(super) struct Naming<S = Arc<str>> {
    given: HashMap<u64, Option<S>>,
}

impl<S> Default for Naming<S> {
    fn default() -> Naming<S> {
        Naming { given: HashMap::default() }
    }
}

impl<S: Clone> Naming<S> {
    /// Nothing was asked that later answers depend on.
    pub(super) fn is_fresh(&self) -> bool {
        self.given.is_empty()
    }

    /// The same with other texts.
    pub(super) fn map<T>(self, text: impl Fn(S) -> Option<T>) -> Naming<T> {
        Naming { given: self.given.into_iter().map(|(key, name)| (key, name.and_then(&text))).collect() }
    }

    /// Linker name, file, line and discriminator of the innermost function; `None` when nothing is known. An empty name is none.
    pub(super) fn innermost(&mut self, place: &Place<S>) -> Option<Innermost<S>> {
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
        Some(Innermost { name, file, line: number, discriminator })
    }

    /// Adds the frames of a place, innermost first; none when nothing is known. `show` and `text` tell what stands for a
    /// function's linker name, which may be empty, and for a file.
    pub(super) fn put_frames(
        &mut self,
        frames: &mut Vec<SourceFrame>,
        place: &Place<S>,
        show: impl Fn(&S) -> Option<FunctionName>,
        text: impl Fn(&S) -> Option<Arc<str>>,
    ) {
        let Some(innermost) = self.innermost(place) else { return };
        let discriminator = innermost.discriminator;
        let frame = |name: Option<&S>, file: Option<&S>, line: u32| SourceFrame {
            function: name.and_then(&show),
            file: file.and_then(&text),
            line: (line != 0).then_some(line),
            discriminator,
        };
        frames.push(frame(innermost.name.as_ref(), innermost.file.as_ref(), innermost.line));
        for pair in place.found.chain.windows(2) {
            let (inlined, caller) = (&pair[0], &pair[1]);
            let name = self.given.get(&caller.key).unwrap_or(&caller.name);
            frames.push(frame(name.as_ref(), inlined.call_file.as_ref(), inlined.call_line));
        }
    }
}

impl Naming {
    /// The frames of a place that is known by its texts.
    pub(super) fn source_frames(&mut self, place: &Place, shown: &Shown) -> Vec<SourceFrame> {
        let show = |name: &Arc<str>| (!name.is_empty()).then(|| shown.of_binutils(name));
        let mut frames = Vec::new();
        self.put_frames(&mut frames, place, show, |file| Some(file.clone()));
        frames
    }
}
