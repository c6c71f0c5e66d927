//! Names and lines of addresses.
//!
//! Two sources are joined, as the original joins the output of two tools: the symbol table, whose names carry the start
//! of the function as `name<address>` so that functions of equal name stay apart, and the line table, which knows
//! inlined calls. An inlined call is only shown for images that have the symbol `_fini`: the original needs it to tell
//! the answers for one address from those for the next.
#![forbid(unsafe_code)]

use std::rc::Rc;

use rustc_hash::FxHashMap;

use crate::image::{Image, SourceFrame, Symbol};
use crate::symbolize::name::shorten;

use super::address::Width;
use super::images::{Images, Region, debug_file};
use super::options::Options;
use super::pattern::Pattern;
use super::stop::Result;

/// The symbol without which inlined calls are not shown.
const SEPARATOR: &str = "_fini";

/// One function at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    pub short: Rc<str>,
    /// `file:line`, with what is not known as `?` or `??`.
    pub line: Rc<str>,
    pub full: Rc<str>,
}

/// Names by address, outermost function first.
#[derive(Debug, Default)]
pub struct Symbols {
    by_address: FxHashMap<u64, Vec<Name>>,
}

impl Symbols {
    pub fn get(&self, address: u64) -> Option<&[Name]> {
        self.by_address.get(&address).map(Vec::as_slice)
    }

    /// Sorted by address.
    pub fn sorted(&self) -> Vec<(u64, &[Name])> {
        let mut all: Vec<_> = self.by_address.iter().map(|(address, names)| (*address, names.as_slice())).collect();
        all.sort_unstable_by_key(|(address, _)| *address);
        all
    }

    pub fn all(&self) -> impl Iterator<Item = &[Name]> {
        self.by_address.values().map(Vec::as_slice)
    }

    /// Names that came with the profile. Addresses without one are shown as numbers.
    pub fn from_names(addresses: &[u64], names: &FxHashMap<u64, String>, width: Width) -> Symbols {
        let mut symbols = Symbols::default();
        let question: Rc<str> = "?".into();
        for &address in addresses {
            let bare = format!("0x{}", width.text(address));
            let full = names.get(&address).map_or(bare.as_str(), String::as_str);
            let mut parts: Vec<&str> = full.split("--").collect();
            // Empty ones at the end are none.
            while parts.last().is_some_and(|part| part.is_empty()) {
                parts.pop();
            }
            let list = parts
                .into_iter()
                .map(|full| Name { short: shorten(full).into(), line: question.clone(), full: full.into() })
                .collect();
            symbols.by_address.insert(address, list);
        }
        symbols
    }

    /// Looks all addresses up in the images of `regions`; libraries before the program, the highest first.
    pub fn from_images(
        addresses: Vec<u64>,
        regions: &[Region],
        width: Width,
        options: &Options,
        images: &mut Images,
    ) -> Result<Symbols> {
        let mut symbols = Symbols::default();
        let mut left = addresses;
        let mut order: Vec<&Region> = regions.iter().collect();
        order.sort_by_key(|region| std::cmp::Reverse(region.start));
        for region in order {
            let path = debug_file(&region.path, options, images).unwrap_or_else(|| region.path.clone());
            let end = left.partition_point(|&address| address <= region.end);
            let start = left[..end].partition_point(|&address| address < region.start);
            let contained: Vec<u64> = left.splice(start..end, []).collect();
            if contained.is_empty() {
                continue;
            }
            if let Some(image) = images.get(&path) {
                symbols.add(&image, region.bias(width), &contained, width);
            }
        }
        Ok(symbols)
    }

    /// Looks up ascending `addresses` in one image.
    pub fn add(&mut self, image: &Image, bias: u64, addresses: &[u64], width: Width) {
        let table = Boundaries::new(image.symbols(), None);
        let from_table = table.names(addresses, bias, width);
        let mut texts = Texts::default();
        for (at, &address) in addresses.iter().enumerate() {
            let frames = image.frames(width.sub(address, bias));
            let shown = if table.has_separator { &frames[..] } else { &frames[..frames.len().min(1)] };
            let known = from_table.as_ref().map(|names| &names[at]);
            let list = self.by_address.entry(address).or_default();
            if shown.is_empty() {
                list.insert(0, texts.name(None, "??:0", known));
            }
            // From the innermost out; each is put before the others.
            for frame in shown {
                list.insert(0, texts.name(frame.function.as_deref(), &line_text(frame), known));
            }
        }
    }
}

/// `file:line` as addr2line prints it.
fn line_text(frame: &SourceFrame) -> String {
    let file = frame.file.as_deref().unwrap_or("??").replace('\\', "/");
    match (frame.line, frame.discriminator) {
        (None | Some(0), _) => format!("{file}:?"),
        (Some(line), 0) => format!("{file}:{line}"),
        (Some(line), discriminator) => format!("{file}:{line} (discriminator {discriminator})"),
    }
}

/// Every text once.
#[derive(Default)]
struct Texts {
    known: FxHashMap<String, Rc<str>>,
    short: FxHashMap<String, Rc<str>>,
}

impl Texts {
    fn text(&mut self, text: &str) -> Rc<str> {
        if let Some(known) = self.known.get(text) {
            return known.clone();
        }
        let shared: Rc<str> = text.into();
        self.known.insert(text.to_owned(), shared.clone());
        shared
    }

    fn shortened(&mut self, full: &str) -> Rc<str> {
        if let Some(known) = self.short.get(full) {
            return known.clone();
        }
        let shared = self.text(&shorten(full));
        self.short.insert(full.to_owned(), shared.clone());
        shared
    }

    /// The name in the symbol table replaces the line table's when it begins with it, or when there is no other.
    fn name(&mut self, function: Option<&str>, line: &str, table: Option<&TableName>) -> Name {
        let full = function.filter(|name| !name.is_empty()).unwrap_or("??");
        let line = self.text(line);
        let short = self.shortened(full);
        match table {
            Some(table) if full == "??" || table.full.starts_with(&*short) => {
                Name { short: table.short.clone(), line, full: table.full.clone() }
            }
            _ => Name { short, line, full: self.text(full) },
        }
    }
}

/// A name of the symbol table.
#[derive(Clone, Debug, PartialEq, Eq)]
struct TableName {
    short: Rc<str>,
    full: Rc<str>,
}

/// A function by the symbol table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Routine {
    /// Tagged with its start unless another symbol of the same address was preferred.
    pub name: String,
    pub start: u64,
    pub end: u64,
}

/// Functions of an image by address.
#[derive(Debug, Default)]
pub struct Boundaries {
    /// Ascending; names are distinct.
    pub routines: Vec<Routine>,
    pub has_separator: bool,
}

impl Boundaries {
    /// `symbols` ascending. Of several at an address the last of code counts, otherwise the first. A name that appears
    /// again replaces what it stood for before. `pattern` filters by the name with its tag; without one, functions
    /// without a name are left out.
    pub fn new(symbols: &[Symbol], pattern: Option<&Pattern>) -> Boundaries {
        let mut names: FxHashMap<String, (u64, u64)> = FxHashMap::default();
        let mut has_separator = false;
        let mut add = |name: String, start: u64, end: u64| {
            if pattern.map_or(!name.is_empty(), |pattern| pattern.is_match(&name)) {
                names.insert(name, (start, end));
            }
        };
        let (mut name, mut start, mut is_first) = (String::new(), 0, true);
        for symbol in symbols.iter().filter(|symbol| !symbol.name.is_empty()) {
            if !is_first && symbol.address == start {
                if symbol.kind.eq_ignore_ascii_case(&b't') {
                    name.clone_from(&symbol.name);
                }
                continue;
            }
            has_separator |= symbol.name == SEPARATOR;
            add(std::mem::take(&mut name), start, symbol.address);
            name = format!("{}<{:016x}>", symbol.name, symbol.address);
            start = symbol.address;
            is_first = false;
        }
        add(name, start, start);
        let mut routines: Vec<Routine> =
            names.into_iter().map(|(name, (start, end))| Routine { name, start, end }).collect();
        routines.sort_unstable_by(|a, b| (a.start, &a.name).cmp(&(b.start, &b.name)));
        Boundaries { routines, has_separator }
    }

    /// The functions that ascending `addresses` lie in; `None` when there are no functions at all. What lies behind the
    /// last is named by its number; what lies before the first, or in a gap, by the function that follows.
    fn names(&self, addresses: &[u64], bias: u64, width: Width) -> Option<Vec<TableName>> {
        if self.routines.is_empty() {
            return None;
        }
        let mut at = 0;
        let mut last: Option<(usize, TableName)> = None;
        let names = addresses.iter().map(|&address| {
            let inside = width.sub(address, bias);
            while at + 1 < self.routines.len() && inside >= self.routines[at].end {
                at += 1;
            }
            if inside >= self.routines[at].end {
                let text: Rc<str> = format!("0x{}", width.text(address)).into();
                return TableName { short: text.clone(), full: text };
            }
            match &last {
                Some((known, name)) if *known == at => name.clone(),
                _ => {
                    let full = self.routines[at].name.as_str();
                    let name = TableName { short: shorten(full).into(), full: full.into() };
                    last = Some((at, name.clone()));
                    name
                }
            }
        });
        Some(names.collect())
    }
}

/// Functions of the file behind `path` whose tagged name matches: of its symbol table, or of its exported names when
/// that has none.
pub fn matching_routines(
    path: &std::path::Path,
    pattern: &Pattern,
    options: &Options,
    images: &mut Images,
) -> Vec<Routine> {
    let path = debug_file(path, options, images).unwrap_or_else(|| path.to_owned());
    let Some(image) = images.get(&path) else { return Vec::new() };
    let mut found = Boundaries::new(image.symbols(), Some(pattern)).routines;
    if found.is_empty() {
        found = Boundaries::new(image.dynamic_symbols(), Some(pattern)).routines;
    }
    let mut keyed: Vec<(String, Routine)> =
        found.into_iter().map(|routine| (shorten(&routine.name), routine)).collect();
    keyed.sort_by(|a, b| (&a.0, &a.1.name).cmp(&(&b.0, &b.1.name)));
    keyed.into_iter().map(|(_, routine)| routine).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn symbols(list: &[(u64, u8, &str)]) -> Vec<Symbol> {
        list.iter().map(|&(address, kind, name)| Symbol { address, kind, name: name.to_owned() }).collect()
    }

    fn routines(list: &[(u64, u8, &str)]) -> Vec<(String, u64, u64)> {
        let table = Boundaries::new(&symbols(list), None);
        table.routines.into_iter().map(|routine| (routine.name, routine.start, routine.end)).collect()
    }

    #[test]
    fn code_wins_among_symbols_of_one_address() {
        let tagged = |name: &str, address: u64| format!("{name}<{address:016x}>");
        assert_eq!(
            routines(&[(16, b'W', "weak"), (16, b'T', "strong"), (32, b'D', "data"), (32, b'D', "other")]),
            [("strong".to_owned(), 16, 32), (tagged("data", 32), 32, 32)]
        );
    }

    #[test]
    fn addresses_find_their_function() {
        let table = Boundaries::new(&symbols(&[(16, b'T', "a"), (32, b'T', "b"), (48, b'T', "c")]), None);
        let names = table.names(&[0x1000 + 4, 0x1000 + 16, 0x1000 + 40, 0x1000 + 50], 0x1000, Width::W16);
        let short: Vec<String> = names.expect("functions").iter().map(|name| name.short.to_string()).collect();
        assert_eq!(short, ["a", "a", "b", "0x0000000000001032"]);
        assert_eq!(Boundaries::default().names(&[1], 0, Width::W16), None);
    }

    #[test]
    fn lines_as_addr2line_prints_them() {
        let frame = |file: Option<&str>, line, discriminator| SourceFrame {
            function: None,
            file: file.map(ToOwned::to_owned),
            line,
            discriminator,
        };
        assert_eq!(line_text(&frame(Some("a.c"), Some(3), 0)), "a.c:3");
        assert_eq!(line_text(&frame(Some("a.c"), Some(3), 2)), "a.c:3 (discriminator 2)");
        assert_eq!(line_text(&frame(Some(""), None, 0)), ":?");
        assert_eq!(line_text(&frame(None, None, 0)), "??:?");
    }
}
