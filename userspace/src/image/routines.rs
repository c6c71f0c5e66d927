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
//! Memory: 8 bytes a symbol. Only names that are asked for are demangled, and once, when the first of them is asked for
//! that carries no address, all of those.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};

use foldhash::fast::RandomState;

use super::demangle::demangle;
use super::elf::{Elf, Symbols};
use super::order::Ascending;
use super::shown::FunctionName;
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
pub(super) struct Linked<S = Arc<str>> {
    pub(super) linker: S,
    /// Its name carries no address.
    pub(super) is_bare: bool,
    pub(super) start: u64,
    pub(super) end: u64,
}

/// Where an address lies, by linker name.
pub(super) type Placed<S = Arc<str>> = Within<Linked<S>>;

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

impl<S> Placed<S> {
    /// The same with names for people.
    pub(super) fn called(self, show: impl FnOnce(S) -> FunctionName) -> Within<Called> {
        self.map(|Linked { linker, is_bare, start, end }| Called { name: show(linker), is_bare, start, end })
    }
}

/// Addresses by name.
type Places = HashMap<String, u64, RandomState>;

/// Looking for names without an address, which threads share.
#[derive(Debug, Default)]
struct Work {
    /// Where the next one begins.
    begun: AtomicUsize,
    /// Symbols that were looked at, and what was found.
    done: Mutex<(usize, Places)>,
    ended: Condvar,
}

/// Symbols that a thread looks at before it asks for more.
const SHARE: usize = 4096;

/// All routines of an image.
#[derive(Debug, Default)]
pub(super) struct Routines {
    /// Address and index of every defined symbol.
    sorted: Ascending,
    dynamic: bool,
    /// The last place of each name without an address.
    bare: OnceLock<Places>,
    /// What `bare` is made of.
    work: Work,
    has_separator: OnceLock<bool>,
}

impl Routines {
    /// Of `.symtab`, or of `.dynsym` when nothing is listed there.
    pub(super) fn build(elf: &Elf) -> Routines {
        for dynamic in [false, true] {
            let Some(symbols) = elf.symbols(dynamic) else { continue };
            let named = || defined(&symbols).filter(|(_, index)| !symbols.is_nameless(*index as usize));
            let sorted = Ascending::new(named);
            if sorted.len() > 0 {
                return Routines { sorted, dynamic, ..Routines::default() };
            }
        }
        Routines::default()
    }

    /// Finds out beforehand what the first questions need, together with others who do the same.
    pub(super) fn prepare(&self, elf: &Elf) {
        let Some(symbols) = elf.symbols(self.dynamic) else { return };
        loop {
            // Which symbols are looked at is all that threads tell each other here.
            let start = self.work.begun.fetch_add(SHARE, Ordering::Relaxed);
            if start >= self.sorted.len() {
                return;
            }
            let end = self.sorted.len().min(start + SHARE);
            let mut found = Places::default();
            self.bare_within(elf, &symbols, start..end, &mut found);
            let mut done = self.work.done.lock().unwrap_or_else(PoisonError::into_inner);
            for (name, address) in found {
                let last = done.1.entry(name).or_insert(address);
                *last = address.max(*last);
            }
            done.0 += end - start;
            self.work.ended.notify_all();
        }
    }

    /// Adds the names without an address of the routines that begin in this range of symbols, ascending.
    fn bare_within(&self, elf: &Elf, symbols: &Symbols<'_>, symbols_at: Range<usize>, found: &mut Places) {
        let mut at = symbols_at.start;
        // The one before begins in another range.
        while at > 0 && at < symbols_at.end && self.sorted.address(at) == self.sorted.address(at - 1) {
            at += 1;
        }
        while at < symbols_at.end {
            let range = self.run(at);
            at = range.end;
            if range.len() > 1 {
                let linked = self.linked(elf, symbols, range, None);
                if linked.is_bare {
                    found.insert(demangle(&linked.linker).into_owned(), linked.start);
                }
            }
        }
    }

    /// Whether a routine is called `_fini`.
    pub(super) fn has_separator(&self, elf: &Elf) -> bool {
        *self.has_separator.get_or_init(|| {
            let Some(symbols) = elf.symbols(self.dynamic) else { return false };
            (0..self.sorted.len()).any(|at| {
                let (address, index) = self.sorted.get(at);
                symbols.name_bytes(index as usize) == SEPARATOR.as_bytes()
                    && linker_name(&symbols, index as usize) == SEPARATOR
                    && self.named(&symbols, self.at(address)).iter().all(|name| name.as_str() >= SEPARATOR)
            })
        })
    }

    /// The routine that holds `address`: of those that are left, the first one that ends behind it.
    pub(super) fn find(&self, elf: &Elf, address: u64) -> Placed {
        let Some(symbols) = elf.symbols(self.dynamic) else { return Within::Nothing };
        if self.sorted.len() == 0 {
            return Within::Nothing;
        }
        let after = self.sorted.partition_point(|value| value <= address);
        if after == self.sorted.len() {
            return Within::Behind;
        }
        // Before the first one there is no other.
        let mut here = self.at(self.sorted.address(after.saturating_sub(1)));
        loop {
            let next = (here.end < self.sorted.len()).then(|| self.sorted.address(here.end));
            let linked = self.linked(elf, &symbols, here, next);
            let is_left = !linked.is_bare
                || self.bare(elf).get(&*demangle(&linked.linker)).is_none_or(|last| *last == linked.start);
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
        self.run(self.sorted.partition_point(|value| value < address))
    }

    /// The symbols of the address at `start`, which is the first of them.
    fn run(&self, start: usize) -> Range<usize> {
        let is_same = |at: &usize| self.sorted.address(*at) == self.sorted.address(start);
        start..start + (start..self.sorted.len()).take_while(is_same).count()
    }

    fn named(&self, symbols: &Symbols<'_>, range: Range<usize>) -> Vec<String> {
        range.map(|at| linker_name(symbols, self.sorted.get(at).1 as usize)).collect()
    }

    /// The routine of these symbols; `next`: address of those behind them.
    fn linked(&self, elf: &Elf, symbols: &Symbols<'_>, range: Range<usize>, next: Option<u64>) -> Linked {
        let start = self.sorted.address(range.start);
        // Names one behind the other.
        let mut names = String::new();
        let mut all: Vec<(Range<usize>, u8)> = Vec::with_capacity(range.len());
        for at in range {
            let (index, from) = (self.sorted.get(at).1 as usize, names.len());
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

    /// The last place of each name without an address.
    fn bare(&self, elf: &Elf) -> &Places {
        self.bare.get_or_init(|| {
            self.prepare(elf);
            let done = self.work.done.lock().unwrap_or_else(PoisonError::into_inner);
            let is_open = |done: &mut (usize, Places)| done.0 < self.sorted.len();
            let mut done = self.work.ended.wait_while(done, is_open).unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut done.1)
        })
    }
}
