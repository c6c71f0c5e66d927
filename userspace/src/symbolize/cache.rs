//! What is known of each code address of a profile, and of how it was found out.
//!
//! One [`Site`] per distinct address: a report over a million stacks looks at few thousand. The table is bounded by the
//! profile's own addresses; nothing is looked up that no stack holds.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::fmt;

use crate::model::printable;

/// One function at an address. An address inside inlined calls has several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Demangled, complete.
    pub full: String,
    /// As tables print it; told apart by `@START` where one name stands for several functions.
    pub short: String,
    /// `FILE:LINE`; empty when the line is unknown.
    pub location: String,
    pub is_inlined: bool,
}

/// One address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Site {
    /// Innermost inlined function first, the function that contains the address last; empty when there is no symbol.
    pub functions: Vec<Function>,
    /// What stands for the address without a symbol: `libfoo.so.1+0x12ab`, or 16 digits outside every file.
    pub label: String,
    /// Start of the containing function in its file (svma); 0 without a symbol.
    pub start: u64,
    /// The name is Rust's: see [`super::name::Name::is_rust`].
    pub is_rust: bool,
    /// In the allocator's own code, which reports cut: no one misses its name.
    pub is_allocator: bool,
}

/// Why addresses of one file have no names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file as the process saw it.
    pub path: String,
    pub reason: String,
    /// Addresses without a name, those of the allocator not counted.
    pub addresses: usize,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Problem { path, reason, addresses } = self;
        match path.as_str() {
            "" => write!(f, "{addresses} outside every mapped file: {reason}"),
            path => write!(f, "{addresses} in {path}: {reason}"),
        }
    }
}

/// The sites of a profile.
#[derive(Clone, Debug, Default)]
pub struct Symbols {
    pub(super) sites: HashMap<u64, Site>,
    pub(super) problems: Vec<Problem>,
    pub(super) failures: Vec<String>,
}

impl Symbols {
    /// The site of an address that a stack of the profile holds.
    pub fn site(&self, avma: u64) -> Option<&Site> {
        self.sites.get(&avma)
    }

    /// Sites made up by a test.
    #[cfg(test)]
    pub(crate) fn of(sites: impl IntoIterator<Item = (u64, Site)>) -> Symbols {
        Symbols { sites: sites.into_iter().collect(), ..Symbols::default() }
    }

    /// Sets what is known of an address.
    pub fn insert(&mut self, avma: u64, site: Site) {
        self.sites.insert(avma, site);
    }

    /// Every address with its site, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &Site)> {
        self.sites.iter().map(|(avma, site)| (*avma, site))
    }

    /// Distinct addresses, and those without a name; the allocator's own are counted in neither.
    pub fn counts(&self) -> (usize, usize) {
        let ours = || self.sites.values().filter(|site| !site.is_allocator);
        (ours().count(), ours().filter(|site| site.functions.is_empty()).count())
    }

    /// Files whose symbols could not be used, most addresses first.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// What failed on the way to debug files.
    pub fn failures(&self) -> &[String] {
        &self.failures
    }

    /// Leaves nothing in names that a terminal would obey.
    pub(super) fn make_printable(&mut self) {
        for site in self.sites.values_mut() {
            printable(&mut site.label);
            for function in &mut site.functions {
                for text in [&mut function.full, &mut function.short, &mut function.location] {
                    printable(text);
                }
            }
        }
        for problem in &mut self.problems {
            printable(&mut problem.path);
        }
    }

    /// Gives functions that share a short name but not a start the form `name@START`.
    pub(super) fn tell_apart(&mut self) {
        let mut starts: HashMap<&str, u64> = HashMap::new();
        let mut ambiguous = Vec::new();
        for site in self.sites.values().filter(|site| site.start != 0 && !site.is_rust) {
            let Some(outer) = site.functions.last() else { continue };
            let start = *starts.entry(&outer.short).or_insert(site.start);
            if start != site.start {
                ambiguous.push(outer.short.clone());
            }
        }
        ambiguous.sort_unstable();
        ambiguous.dedup();
        for site in self.sites.values_mut().filter(|site| site.start != 0 && !site.is_rust) {
            let Some(outer) = site.functions.last().map(|outer| outer.short.clone()) else { continue };
            if ambiguous.binary_search(&outer).is_ok() {
                // An inlined overload of the same name belongs to the same function of the table.
                for function in site.functions.iter_mut().filter(|function| function.short == outer) {
                    function.short = format!("{outer}@{:x}", site.start);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Function, Site, Symbols};

    fn site(short: &str, start: u64) -> Site {
        let function = Function { full: short.into(), short: short.into(), location: String::new(), is_inlined: false };
        Site { functions: vec![function], start, ..Site::default() }
    }

    #[test]
    fn only_names_with_several_starts_carry_one() {
        let mut symbols = Symbols::default();
        for (avma, site) in
            [(1, site("init", 0x10)), (2, site("init", 0x20)), (3, site("main", 0x30)), (4, site("main", 0x30))]
        {
            symbols.sites.insert(avma, site);
        }
        symbols.tell_apart();
        let short = |avma| symbols.site(avma).map(|site| site.functions[0].short.clone());
        assert_eq!(short(1).as_deref(), Some("init@10"));
        assert_eq!(short(2).as_deref(), Some("init@20"));
        assert_eq!(short(3).as_deref(), Some("main"));
    }
}
