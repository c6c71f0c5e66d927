//! Functions by address as jeprof makes them of nm's list, without making that list.
//!
//! ```text
//! nm -n      10 T a   10 t b   20 T c   30 T d   30 t b
//! routines   b 10..20          c<20> 20..30      b 30..30      the second b takes the name from the first
//! left                         c<20> 20..30      b 30..30      what lies before c is given to c
//! ```
//!
//! - Symbols of one address are one routine. Its name is that of the first of them by linker name, with the address behind
//!   it; or that of the last one of code besides the first, without.
//! - A routine ends where the next one begins; the last is empty.
//! - Names are distinct: one that appears again leaves its former place. That can only happen to names without an address.
//!
//! Memory: 16 bytes a symbol. Only names that are asked for are demangled, and once, when the first of them is asked for
//! that carries no address, all of those.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use foldhash::fast::RandomState;

use super::demangle::demangle;
use super::elf::{Elf, Symbols};
use super::order::ascending;
use super::shown::{FunctionName, Shown};
use super::symtab::{defined, letter, linker_name, put_linker_name};

/// The symbol that separates answers of addr2line for jeprof.
const SEPARATOR: &str = "_fini";

/// A function by the symbol table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Routine {
    /// Demangled. With `<START>` behind it, 16 hexadecimal digits, unless another symbol of the same address was preferred.
    pub name: String,
    pub start: u64,
    pub end: u64,
}

/// Where an address lies among routines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Within<R = Routine> {
    /// There are none.
    Nothing,
    In(R),
    /// Behind the last one.
    Behind,
}

/// A routine by linker name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Linked {
    pub(super) linker: Arc<str>,
    /// Its name carries no address.
    pub(super) is_bare: bool,
    pub(super) start: u64,
    pub(super) end: u64,
}

/// Where an address lies, by linker name.
pub(super) type Placed = Within<Linked>;

/// A routine whose name is not put together yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Called {
    /// Without the address behind it.
    pub name: FunctionName,
    /// The name carries no address.
    pub is_bare: bool,
    pub start: u64,
    pub end: u64,
}

impl Called {
    /// The routine's name.
    pub fn full(&self) -> Arc<str> {
        const DIGITS: usize = 16;
        if self.is_bare {
            return self.name.full.clone();
        }
        let mut full = String::with_capacity(self.name.full.len() + DIGITS + 2);
        full.push_str(&self.name.full);
        full.push('<');
        for at in (0..DIGITS).rev() {
            let digit = (self.start >> (4 * at)) as u32 & 15;
            full.push(char::from_digit(digit, 16).unwrap_or_default());
        }
        full.push('>');
        full.into()
    }
}

impl<R> Within<R> {
    /// The same with something else for the routine.
    pub fn map<S>(self, of: impl FnOnce(R) -> S) -> Within<S> {
        match self {
            Within::Nothing => Within::Nothing,
            Within::In(routine) => Within::In(of(routine)),
            Within::Behind => Within::Behind,
        }
    }
}

impl Within<Called> {
    /// Where the routine ends.
    pub(super) fn end(&self) -> Option<u64> {
        match self {
            Within::In(routine) => Some(routine.end),
            Within::Nothing | Within::Behind => None,
        }
    }
}

impl Placed {
    /// The same with names for people.
    pub(super) fn called(self, shown: &Shown) -> Within<Called> {
        self.map(|Linked { linker, is_bare, start, end }| Called {
            name: shown.of_binutils(&linker),
            is_bare,
            start,
            end,
        })
    }
}

/// All routines of an image.
#[derive(Debug, Default)]
pub(super) struct Routines {
    /// Address and index of every defined symbol, sorted.
    sorted: Vec<(u64, u32)>,
    dynamic: bool,
    /// The last place of each name without an address.
    bare: OnceLock<HashMap<String, u64, RandomState>>,
    has_separator: OnceLock<bool>,
}

impl Routines {
    /// Of `.symtab`, or of `.dynsym` when nothing is listed there.
    pub(super) fn build(elf: &Elf) -> Routines {
        for dynamic in [false, true] {
            let Some(symbols) = elf.symbols(dynamic) else { continue };
            let named = defined(&symbols).filter(|(_, index)| !symbols.is_nameless(*index as usize));
            let (addresses, indices): (Vec<u64>, Vec<u32>) = named.unzip();
            if !addresses.is_empty() {
                let places = ascending(&addresses).into_iter().map(|place| place as usize);
                let sorted = places.map(|place| (addresses[place], indices[place])).collect();
                return Routines { sorted, dynamic, ..Routines::default() };
            }
        }
        Routines::default()
    }

    /// Finds out beforehand what the first questions need.
    pub(super) fn prepare(&self, elf: &Elf) {
        if let Some(symbols) = elf.symbols(self.dynamic) {
            self.bare(elf, &symbols);
        }
    }

    /// Whether a routine is called `_fini`.
    pub(super) fn has_separator(&self, elf: &Elf) -> bool {
        *self.has_separator.get_or_init(|| {
            let Some(symbols) = elf.symbols(self.dynamic) else { return false };
            (0..self.sorted.len()).any(|at| {
                let (address, index) = self.sorted[at];
                symbols.name_bytes(index as usize) == SEPARATOR.as_bytes()
                    && linker_name(&symbols, index as usize) == SEPARATOR
                    && self.named(&symbols, self.at(address)).iter().all(|name| name.as_str() >= SEPARATOR)
            })
        })
    }

    /// The routine that holds `address`: of those that are left, the first one that ends behind it.
    pub(super) fn find(&self, elf: &Elf, address: u64) -> Placed {
        let Some(symbols) = elf.symbols(self.dynamic) else { return Within::Nothing };
        let Some(&(first, _)) = self.sorted.first() else { return Within::Nothing };
        let after = self.sorted.partition_point(|(value, _)| *value <= address);
        if after == self.sorted.len() && address >= first {
            return Within::Behind;
        }
        // Before the first one there is no other.
        let mut here = self.at(if after == 0 { first } else { self.sorted[after - 1].0 });
        loop {
            let next = self.sorted.get(here.end).map(|(value, _)| *value);
            let linked = self.linked(elf, &symbols, here, next);
            let is_left = !linked.is_bare
                || self.bare(elf, &symbols).get(&*demangle(&linked.linker)).is_none_or(|last| *last == linked.start);
            match next {
                _ if is_left => return Within::In(linked),
                Some(next) => here = self.at(next),
                // A name's last place is always left.
                None => return Within::Behind,
            }
        }
    }

    /// The symbols of an address.
    fn at(&self, address: u64) -> Range<usize> {
        self.run(self.sorted.partition_point(|(value, _)| *value < address))
    }

    /// The symbols of the address at `start`, which is the first of them.
    fn run(&self, start: usize) -> Range<usize> {
        let rest = &self.sorted[start..];
        start..start + rest.iter().take_while(|(value, _)| *value == rest[0].0).count()
    }

    fn named(&self, symbols: &Symbols<'_>, range: Range<usize>) -> Vec<String> {
        self.sorted[range].iter().map(|(_, index)| linker_name(symbols, *index as usize)).collect()
    }

    /// The routine of these symbols; `next`: address of those behind them.
    fn linked(&self, elf: &Elf, symbols: &Symbols<'_>, range: Range<usize>, next: Option<u64>) -> Linked {
        let start = self.sorted[range.start].0;
        // Names one behind the other.
        let mut names = String::new();
        let mut all: Vec<(Range<usize>, u8)> = Vec::with_capacity(range.len());
        for (_, index) in &self.sorted[range] {
            let (index, from) = (*index as usize, names.len());
            put_linker_name(symbols, index, &mut names);
            let kind = letter(elf, symbols.section(index), &symbols.table.symbols()[index]);
            all.push((from..names.len(), kind));
        }
        all.sort_by(|a, b| (&names[a.0.clone()], a.1).cmp(&(&names[b.0.clone()], b.1)));
        let bare = all.iter().skip(1).rposition(|(_, kind)| kind.eq_ignore_ascii_case(&b't'));
        let chosen = bare.map_or(0, |at| at + 1);
        let linker = &names[all[chosen].0.clone()];
        Linked { linker: linker.into(), is_bare: bare.is_some(), start, end: next.unwrap_or(start) }
    }

    fn bare(&self, elf: &Elf, symbols: &Symbols<'_>) -> &HashMap<String, u64, RandomState> {
        self.bare.get_or_init(|| {
            let mut last = HashMap::default();
            let mut at = 0;
            while let Some(&(address, _)) = self.sorted.get(at) {
                let range = self.run(at);
                at = range.end;
                if range.len() > 1 {
                    let linked = self.linked(elf, symbols, range, None);
                    if linked.is_bare {
                        last.insert(demangle(&linked.linker).into_owned(), address);
                    }
                }
            }
            last
        })
    }
}
