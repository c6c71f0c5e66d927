//! Names and lines of addresses.
//!
//! Two sources are joined, as the original joins the output of two tools: the symbol table, whose names carry the start
//! of the function as `name<address>` so that functions of equal name stay apart, and the line table, which knows
//! inlined calls. An inlined call is only shown for images that have the symbol `_fini`: the original needs it to tell
//! the answers for one address from those for the next.
#![forbid(unsafe_code)]

use std::borrow::Cow;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use rustc_hash::FxHashMap;

pub use crate::image::Routine;
use crate::image::{Called, FunctionName, Image, SourceFrame, Symbol, Text, Within};
use crate::progress::Working;
use crate::symbolize::name::shorten;

use super::address::{Width, parse_hex};
use super::images::{Images, Region, debug_file};
use super::options::Options;
use super::pattern::Pattern;
use super::stop::Result;

/// One function at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    pub short: Arc<str>,
    /// `file:line`, with what is not known as `?` or `??`.
    pub line: Arc<str>,
    pub full: Full,
}

/// A complete name, put together when it is looked at.
#[derive(Clone, Debug)]
pub struct Full {
    /// Without the address behind it.
    stem: Text,
    /// What stands behind the stem as `<16 hexadecimal digits>`. A text that ends so is always taken apart.
    start: Option<u64>,
}

impl Full {
    /// Bytes of an address behind a name.
    const TAG_BYTES: usize = 18;

    fn new(text: Text) -> Full {
        let tag = |text: &[u8]| {
            let at = text.len().checked_sub(Full::TAG_BYTES)?;
            let digits = text[at..].strip_prefix(b"<")?.strip_suffix(b">")?;
            let is_tag = digits.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
            Some((at, parse_hex(digits).filter(|_| is_tag)?))
        };
        match tag(text.bytes()) {
            Some((at, start)) => Full { stem: text.before(at), start: Some(start) },
            None => Full { stem: text, start: None },
        }
    }

    /// A function's name with its address behind it, which is taken for the arguments of a template where names are cut; others
    /// carry none.
    fn of(called: &Called) -> Full {
        if called.is_bare {
            return Full::new(called.name.full.clone());
        }
        Full { stem: called.name.full.clone(), start: Some(called.start) }
    }

    pub fn text(&self) -> Cow<'_, str> {
        match self.start {
            None => self.stem.text(),
            Some(start) => Cow::Owned(format!("{}<{start:016x}>", self.stem.text())),
        }
    }

    /// Whether an address stands behind it.
    pub fn is_tagged(&self) -> bool {
        self.start.is_some() || is_tagged(self.stem.bytes())
    }

    fn starts_with(&self, text: &[u8]) -> bool {
        let stem = self.stem.bytes();
        match (text.strip_prefix(stem), self.start) {
            (Some([]), _) => true,
            (Some(rest), Some(start)) => format!("<{start:016x}>").as_bytes().starts_with(rest),
            (Some(_), None) => false,
            (None, _) => stem.starts_with(text),
        }
    }
}

impl PartialEq for Full {
    fn eq(&self, other: &Full) -> bool {
        self.start == other.start && self.stem == other.stem
    }
}

impl Eq for Full {}

impl Hash for Full {
    /// Names of equal length at one address are seldom different: the stem is read where there is no address.
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self.start {
            Some(start) => (start, self.stem.bytes().len()).hash(state),
            None => self.stem.hash(state),
        }
    }
}

/// `name<address>`.
fn is_tagged(full: &[u8]) -> bool {
    let inside = full.strip_suffix(b">").unwrap_or_default();
    let tag = memchr::memrchr(b'<', inside).map_or(&[][..], |at| &inside[at + 1..]);
    !tag.is_empty() && tag.iter().all(u8::is_ascii_hexdigit)
}

/// Names by address, outermost function first.
#[derive(Debug, Default)]
pub struct Symbols {
    /// Places in `names`.
    by_address: FxHashMap<u64, (u32, u32)>,
    names: Vec<Name>,
}

impl Symbols {
    fn at(&self, (start, end): (u32, u32)) -> &[Name] {
        &self.names[start as usize..end as usize]
    }

    /// Adds names, and what there was before behind them.
    fn insert(&mut self, address: u64, names: impl IntoIterator<Item = Name>) {
        let start = self.names.len();
        self.names.extend(names);
        if let Some(&(from, to)) = self.by_address.get(&address) {
            self.names.extend_from_within(from as usize..to as usize);
        }
        self.by_address.insert(address, (start as u32, self.names.len() as u32));
    }

    pub fn get(&self, address: u64) -> Option<&[Name]> {
        self.by_address.get(&address).map(|place| self.at(*place))
    }

    /// How many addresses have names.
    pub fn len(&self) -> usize {
        self.by_address.len()
    }

    pub fn is_empty(&self) -> bool {
        self.by_address.is_empty()
    }

    /// Sorted by address.
    pub fn sorted(&self) -> Vec<(u64, &[Name])> {
        let mut all: Vec<_> = self.by_address.iter().map(|(address, place)| (*address, self.at(*place))).collect();
        all.sort_unstable_by_key(|(address, _)| *address);
        all
    }

    pub fn all(&self) -> impl Iterator<Item = &[Name]> {
        self.by_address.values().map(|place| self.at(*place))
    }

    /// Names that came with the profile. Addresses without one are shown as numbers.
    pub fn from_names(addresses: &[u64], names: &FxHashMap<u64, String>, width: Width) -> Symbols {
        let mut symbols = Symbols::default();
        let question: Arc<str> = "?".into();
        for &address in addresses {
            let bare = format!("0x{}", width.text(address));
            let full = names.get(&address).map_or(bare.as_str(), String::as_str);
            let mut parts: Vec<&str> = full.split("--").collect();
            // Empty ones at the end are none.
            while parts.last().is_some_and(|part| part.is_empty()) {
                parts.pop();
            }
            let name =
                |full: &str| Name { short: shorten(full).into(), line: question.clone(), full: Full::new(full.into()) };
            symbols.insert(address, parts.into_iter().map(name));
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
            let end = left.partition_point(|&address| address <= region.end);
            let start = left[..end].partition_point(|&address| address < region.start);
            if start == end {
                if options.debug {
                    let _says_what_it_finds = debug_file(&region.path, options, images);
                }
                continue;
            }
            let contained: Vec<u64> = left.splice(start..end, []).collect();
            let path = debug_file(&region.path, options, images).unwrap_or_else(|| region.path.clone());
            let _working = Working::on(format!("jeprof: looking up names in {}", path.display()), 0);
            if let Some(image) = images.get(&path) {
                symbols.add(&image, region.bias(width), &contained, width);
            }
        }
        Ok(symbols)
    }

    /// Looks up ascending `addresses` in one image.
    pub fn add(&mut self, image: &Image, bias: u64, addresses: &[u64], width: Width) {
        let mut texts = Texts::default();
        let inside: Vec<u64> = addresses.iter().map(|&address| width.sub(address, bias)).collect();
        let mut routine = None;
        let mut asked = addresses.iter();
        self.by_address.reserve(addresses.len());
        self.names.reserve(addresses.len());
        image.answers(&inside, |answer| {
            let Some(&address) = asked.next() else { return };
            let frames = answer.frames;
            let shows_all = frames.len() < 2 || image.has_separator();
            let shown = if shows_all { frames } else { &frames[..1] };
            let of_its_own = match answer.routine {
                Some(Within::In(called)) => {
                    routine = Some(TableName { short: called.name.short.made(), full: Full::of(&called) });
                    None
                }
                Some(Within::Behind) => {
                    let mut text = String::with_capacity(2 + width.digits());
                    text.push_str("0x");
                    width.put(&mut text, address);
                    let text: Arc<str> = text.into();
                    Some(TableName { short: text.clone(), full: Full::new(text.into()) })
                }
                // No functions at all.
                Some(Within::Nothing) => {
                    routine = None;
                    None
                }
                None => None,
            };
            // What lies before the first function, or in a gap, is named by the function that follows.
            let known = of_its_own.as_ref().or(routine.as_ref());
            // The outermost first.
            let of_frame = |frame: &SourceFrame| {
                let line = texts.line(&line_text(frame));
                texts.name(frame.function.as_ref(), line, known)
            };
            if shown.is_empty() {
                let line = texts.line("??:0");
                self.insert(address, [texts.name(None, line, known)]);
            } else {
                self.insert(address, shown.iter().rev().map(of_frame));
            }
        });
    }
}

/// `file:line` as addr2line prints it.
fn line_text(frame: &SourceFrame) -> Cow<'static, str> {
    let file = match &frame.file {
        None if frame.line.is_none_or(|line| line == 0) => return "??:?".into(),
        None => "??".into(),
        Some(file) if file.contains('\\') => Cow::Owned(file.replace('\\', "/")),
        Some(file) => Cow::Borrowed(&**file),
    };
    match (frame.line, frame.discriminator) {
        (None | Some(0), _) => format!("{file}:?"),
        (Some(line), 0) => format!("{file}:{line}"),
        (Some(line), discriminator) => format!("{file}:{line} (discriminator {discriminator})"),
    }
    .into()
}

/// Every text once.
struct Texts {
    lines: FxHashMap<Box<str>, Arc<str>>,
    shorts: FxHashMap<Text, Arc<str>>,
    unknown: FunctionName,
}

impl Default for Texts {
    fn default() -> Texts {
        let unknown = Text::from("??");
        let unknown = FunctionName { full: unknown.clone(), short: unknown };
        Texts { lines: FxHashMap::default(), shorts: FxHashMap::default(), unknown }
    }
}

impl Texts {
    fn line(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.lines.get(text) {
            return known.clone();
        }
        let shared: Arc<str> = text.into();
        self.lines.insert(text.into(), shared.clone());
        shared
    }

    /// The name in the symbol table replaces the line table's when it begins with it, or when there is no other.
    fn name(&mut self, function: Option<&FunctionName>, line: Arc<str>, table: Option<&TableName>) -> Name {
        let function = function.filter(|name| !name.full.is_empty()).unwrap_or(&self.unknown);
        match table {
            Some(table) if function.full.bytes() == b"??" || table.full.starts_with(function.short.bytes()) => {
                Name { short: table.short.clone(), line, full: table.full.clone() }
            }
            _ => {
                let short = &function.short;
                let made = self.shorts.entry(short.clone()).or_insert_with(|| short.made());
                Name { short: made.clone(), line, full: Full::new(function.full.clone()) }
            }
        }
    }
}

/// A name of the symbol table.
#[derive(Clone, Debug, PartialEq, Eq)]
struct TableName {
    short: Arc<str>,
    full: Full,
}

/// All functions of an image by address whose name, with its address, matches. `symbols` ascending. Of several at an address the
/// last of code counts, otherwise the first. A name that appears again replaces what it stood for before.
fn routines(symbols: &[Symbol], pattern: &Pattern) -> Vec<Routine> {
    let mut names: FxHashMap<String, (u64, u64)> = FxHashMap::default();
    let mut add = |name: String, start: u64, end: u64| {
        if pattern.is_match(&name) {
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
        add(std::mem::take(&mut name), start, symbol.address);
        name = format!("{}<{:016x}>", symbol.name, symbol.address);
        start = symbol.address;
        is_first = false;
    }
    add(name, start, start);
    let mut routines: Vec<Routine> =
        names.into_iter().map(|(name, (start, end))| Routine { name, start, end }).collect();
    routines.sort_unstable_by(|a, b| (a.start, &a.name).cmp(&(b.start, &b.name)));
    routines
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
    let mut found = routines(image.symbols(), pattern);
    if found.is_empty() {
        found = routines(image.dynamic_symbols(), pattern);
    }
    let mut keyed: Vec<(String, Routine)> =
        found.into_iter().map(|routine| (shorten(&routine.name), routine)).collect();
    keyed.sort_by(|a, b| (&a.0, &a.1.name).cmp(&(&b.0, &b.1.name)));
    keyed.into_iter().map(|(_, routine)| routine).collect()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn code_wins_among_symbols_of_one_address() {
        let list = [(16, b'W', "weak"), (16, b'T', "strong"), (32, b'D', "data"), (32, b'D', "other"), (48, b't', "x")];
        let symbols = list.map(|(address, kind, name)| Symbol { address, kind, name: name.to_owned() });
        let any = Pattern::new("[a-w]", "").expect("a pattern");
        let found = routines(&symbols, &any).into_iter().map(|routine| (routine.name, routine.start, routine.end));
        let expected = [("strong", 16, 32), ("data<0000000000000020>", 32, 48)];
        assert_eq!(found.collect::<Vec<_>>(), expected.map(|(name, start, end)| (name.to_owned(), start, end)));
    }

    /// All functions of an image, and for each address the first that ends behind it.
    fn walked(image: &Image, addresses: &[u64]) -> Vec<Within> {
        let list = routines(image.symbols(), &Pattern::new(".", "").expect("a pattern"));
        let found = |&address: &u64| match list.iter().find(|routine| routine.end > address) {
            Some(routine) => Within::In(routine.clone()),
            None if list.is_empty() => Within::Nothing,
            None => Within::Behind,
        };
        addresses.iter().map(found).collect()
    }

    #[test]
    fn single_functions_are_those_of_the_whole_list() {
        let own = std::env::current_exe().expect("this program");
        let libraries = ["/lib/x86_64-linux-gnu/libc.so.6", "/usr/lib/x86_64-linux-gnu/libstdc++.so.6"];
        let mut compared = 0;
        for path in libraries.iter().map(PathBuf::from).chain([own]).filter(|path| path.exists()) {
            let image = Image::open(&path).expect("an image");
            let symbols = image.symbols();
            let every = symbols.len().div_ceil(200);
            // Several symbols of one address stand side by side.
            let some = symbols.iter().enumerate().filter(|(at, _)| at % every < 3).map(|(_, symbol)| symbol.address);
            let mut addresses: Vec<u64> =
                some.flat_map(|address| [address.wrapping_sub(1), address, address + 1]).chain([0, 1 << 40]).collect();
            addresses.sort_unstable();
            let mut found: Vec<Within> = Vec::new();
            image.answers(&addresses, |answer| {
                let routine = |called: Called| Routine {
                    name: Full::of(&called).text().into_owned(),
                    start: called.start,
                    end: called.end,
                };
                let one = answer.routine.map_or_else(|| found.last().cloned(), |within| Some(within.map(routine)));
                found.push(one.expect("the first has its own"));
            });
            assert_eq!(found, walked(&image, &addresses), "{}", path.display());
            let separator = routines(symbols, &Pattern::new("^_fini<", "").expect("a pattern"));
            assert_eq!(image.has_separator(), !separator.is_empty(), "{}", path.display());
            compared += addresses.len();
        }
        assert!(compared > 500);
    }

    #[test]
    fn complete_names_are_what_they_are_made_of() {
        let tagged = "f<int><00000000000004a0>";
        let of = |text: &str| Full::new(text.into());
        assert_eq!(of(tagged), Full { stem: "f<int>".into(), start: Some(0x4a0) });
        for text in [tagged, "f", "", "f<0a>", "<00000000000000AB>", "f<0000000000000ab>", "é<000000000000000a>"] {
            assert_eq!(of(text).text(), text);
            assert_eq!(of(text).is_tagged(), is_tagged(text.as_bytes()), "{text}");
            assert!((0..=text.len()).all(|end| of(text).starts_with(&text.as_bytes()[..end])), "{text}");
            assert!(!of(text).starts_with(b"other") && !of(text).starts_with(format!("{text}>").as_bytes()), "{text}");
        }
    }

    #[test]
    fn lines_as_addr2line_prints_them() {
        let frame = |file: Option<&str>, line, discriminator| SourceFrame {
            function: None,
            file: file.map(Arc::from),
            line,
            discriminator,
        };
        assert_eq!(line_text(&frame(Some("a.c"), Some(3), 0)), "a.c:3");
        assert_eq!(line_text(&frame(Some("a.c"), Some(3), 2)), "a.c:3 (discriminator 2)");
        assert_eq!(line_text(&frame(Some(""), None, 0)), ":?");
        assert_eq!(line_text(&frame(None, None, 0)), "??:?");
    }
}
