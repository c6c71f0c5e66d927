//! Which file holds the code at an address: the memory map of a profile against files of this machine.
//!
//! ```text
//! 7f00a000-7f0f0000 r-xp 00028000 08:01 42 /lib/libc.so.6     range and offset from the map
//!   address in the image = pc - (start - offset)              offset made one of addresses, see `relocated`
//! ```
//!
//! Lines that count: executable mappings of shared libraries by name, of the program by its real path, and the short
//! forms of other tools. The program itself stands last, from 0 to the largest address of the profile, so that what lies
//! in no library is looked up in it.
#![forbid(unsafe_code)]

use std::cell::LazyCell;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use regex::bytes::Regex;
use rustc_hash::FxHashMap;

use crate::image::debugfile::{Places, hex};
use crate::image::{Cache, Image};

use super::address::{Width, parse_hex};
use super::options::{Compat, Options};
use super::streams::say;

/// A range of addresses and the file behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    pub path: PathBuf,
    pub start: u64,
    /// Last address that counts.
    pub end: u64,
    /// Image address of `start`.
    pub offset: u64,
}

impl Region {
    /// What is subtracted from an address to get the image's.
    pub fn bias(&self, width: Width) -> u64 {
        width.sub(self.start, self.offset)
    }
}

/// Images by path, each opened once; files that cannot be are reported once.
#[derive(Default)]
pub struct Images {
    /// Of what is known of images from other runs.
    pub cache: Option<Arc<Cache>>,
    opened: FxHashMap<PathBuf, Option<Rc<Image>>>,
    /// Answers of [`debug_file`]: a program may have a hundred thousand mappings of few files.
    debug_files: FxHashMap<PathBuf, Option<PathBuf>>,
}

impl Images {
    pub fn get(&mut self, path: &Path) -> Option<Rc<Image>> {
        if let Some(known) = self.opened.get(path) {
            return known.clone();
        }
        let image = match Image::open(path) {
            Ok(image) => Some(Rc::new(image.with_cache(self.cache.clone()))),
            Err(error) => {
                say(format_args!("jeprof: '{}': {error}\n", path.display()));
                None
            }
        };
        self.opened.insert(path.to_owned(), image.clone());
        image
    }

    /// Writes what was found out into the cache.
    pub fn save(&self) {
        self.opened.values().flatten().for_each(|image| image.save());
    }
}

/// The file with the debugging information of `path`, when it is another one.
pub fn debug_file(path: &Path, options: &Options, images: &mut Images) -> Option<PathBuf> {
    if !path.is_absolute() {
        return None;
    }
    // What is said is said each time.
    if options.debug {
        return find_debug_file(path, options, images);
    }
    if let Some(known) = images.debug_files.get(path) {
        return known.clone();
    }
    let found = find_debug_file(path, options, images);
    images.debug_files.insert(path.to_owned(), found.clone());
    found
}

fn find_debug_file(path: &Path, options: &Options, images: &mut Images) -> Option<PathBuf> {
    let shown = path.display();
    let detail = |text: std::fmt::Arguments<'_>| {
        if options.debug {
            say(format_args!("{text}\n"));
        }
    };
    let places = Places::default();
    if let Some(found) = places.by_path(path) {
        detail(format_args!("found debug info for {shown} in {}", found.display()));
        return Some(found);
    }
    if !options.debug_syms_by_id {
        detail(format_args!("no debug symbols found for {shown}"));
        return None;
    }
    let id = images.get(path).map(|image| image.build_id().to_vec()).unwrap_or_default();
    if id.is_empty() {
        detail(format_args!("no debug symbols found for {shown}, build ID unknown"));
        return None;
    }
    let found = places.by_build_id(&id);
    match &found {
        Some(found) => detail(format_args!("found debug symbol file {} for {shown}", found.display())),
        None => detail(format_args!("no debug symbol file found for {shown}, build ID: {}", hex(&id))),
    }
    found
}

/// `--lib_prefix`: directories, without slashes at their ends.
pub fn prefixes(list: &str) -> Vec<OsString> {
    let mut prefixes: Vec<OsString> = list.split(',').map(|prefix| prefix.trim_end_matches('/').into()).collect();
    // Empty ones at the end are none.
    while prefixes.last().is_some_and(|prefix| prefix.is_empty()) {
        prefixes.pop();
    }
    prefixes
}

/// Looks for a file under the prefixes, with fewer and fewer of its leading directories; itself when there is none.
fn find_library(path: &Path, prefixes: &[OsString]) -> PathBuf {
    let mut suffix = path.as_os_str().as_bytes();
    loop {
        for prefix in prefixes {
            let mut candidate = prefix.clone();
            candidate.push(OsStr::from_bytes(suffix));
            if Path::new(&candidate).exists() {
                return candidate.into();
            }
        }
        // `/a/b` becomes `/b`.
        let next = suffix.strip_prefix(b"/").and_then(|rest| {
            let slash = rest.iter().position(|&byte| byte == b'/')?;
            (slash > 0).then_some(&rest[slash..])
        });
        match next {
            Some(shorter) => suffix = shorter,
            None => return path.to_owned(),
        }
    }
}

/// The regions of a profile, in the order in which they are looked at when listing.
pub fn regions(
    program: &str,
    map: &[Vec<u8>],
    max_pc: u64,
    width: Width,
    options: &Options,
    images: &mut Images,
) -> Vec<Region> {
    let program = fs::canonicalize(program).unwrap_or_else(|_| PathBuf::from(program));
    let reader = MapReader::new(&program, options.compat);
    let prefixes = prefixes(&options.lib_prefix);
    let mut regions = Vec::new();
    let mut build = Vec::new();
    for line in map {
        if let Some(directory) = line.trim_ascii_start().strip_prefix(b"build=") {
            build = directory.to_vec();
        }
        let Some(mut found) = reader.line(line) else { continue };
        found.path = expand_build(&found.path, &build);
        let path = find_library(Path::new(OsStr::from_bytes(&found.path)), &prefixes);
        let offset = relocated(&path, found.offset, width, options, images);
        if options.debug {
            let text = |address| width.text(address);
            say(format_args!("{}:{} ({}) {}\n", text(found.start), text(found.end), text(offset), path.display()));
        }
        regions.push(Region { path, start: found.start, end: found.end, offset });
    }
    if !options.add_lib.is_empty() {
        let path = PathBuf::from(&options.add_lib);
        if let Some(text) = images.get(&path).and_then(|image| image.text()) {
            let end = width.add(text.address, text.size);
            regions.push(Region { path, start: text.address, end, offset: text.address });
        }
    }
    regions.push(Region { path: program, start: 0, end: max_pc, offset: 0 });
    regions
}

/// A file offset as an image address, by the distance of the two at the code section. With a debug file of its own the
/// offset is taken as it is: such a file's code section has no bytes to count from.
fn relocated(path: &Path, offset: u64, width: Width, options: &Options, images: &mut Images) -> u64 {
    if debug_file(path, options, images).is_some() {
        return offset;
    }
    match images.get(path).and_then(|image| image.text()) {
        Some(text) => width.add(offset, width.sub(text.address, text.offset)),
        None => offset,
    }
}

fn expand_build(path: &[u8], build: &[u8]) -> Vec<u8> {
    const NAME: &[u8] = b"$build";
    let Some(at) = path.windows(NAME.len()).position(|part| part == NAME) else { return path.to_vec() };
    let rest = &path[at + NAME.len()..];
    if rest.first().is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_') {
        return path.to_vec();
    }
    [&path[..at], build, rest].concat()
}

#[derive(Debug, PartialEq, Eq)]
struct Mapping {
    start: u64,
    end: u64,
    offset: u64,
    path: Vec<u8>,
}

/// Knows which lines of a memory map count.
struct MapReader<'a> {
    program: &'a [u8],
    compat: Compat,
    library: LazyCell<Regex>,
    short: LazyCell<Regex, Box<dyn FnOnce() -> Regex>>,
    freebsd: LazyCell<Regex>,
}

/// Most runs need none of the patterns, which take longer to compile than a memory map to read.
fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("a fixed pattern")
}

/// Whether a path is a plain one of a library, as `libc.so` or `libc.so.6.1`; others are up to the pattern.
fn is_plain_library(path: &[u8]) -> bool {
    let is_version = |byte: &u8| byte.is_ascii_digit() || *byte == b'.';
    let digits = path.iter().rev().take_while(|byte| is_version(byte)).count();
    let (stem, version) = path.split_at(path.len() - digits);
    let mut parts = version.split(|byte| *byte == b'.');
    // What stands before the first dot is the ending's own.
    let is_whole = parts.next().is_some_and(<[u8]>::is_empty) && parts.all(|part| !part.is_empty());
    is_whole && stem.len() > 3 && stem.ends_with(b".so") && stem.iter().all(u8::is_ascii_graphic)
}

/// False for paths without an ending of libraries: most files that are mapped for execution and are no libraries.
fn may_be_library(path: &[u8]) -> bool {
    let is_ending = |rest: &[u8]| {
        let begins =
            |ending: &str| rest.get(..ending.len()).is_some_and(|rest| rest.eq_ignore_ascii_case(ending.as_bytes()));
        ["so", "dll", "dylib", "bundle"].into_iter().any(begins)
    };
    // Other letters may be of the same kind: ſ is an s.
    !path.is_ascii() || memchr::memchr_iter(b'.', path).any(|dot| is_ending(&path[dot + 1..]))
}

impl<'a> MapReader<'a> {
    fn new(program: &'a Path, compat: Compat) -> MapReader<'a> {
        let endings = if compat == Compat::V531 { "(?:so|dll|dylib|bundle)" } else { "so" };
        MapReader {
            program: program.as_os_str().as_bytes(),
            compat,
            library: LazyCell::new(|| pattern(r"(?i)^\S+\.(so|dll|dylib|bundle)((\.\d+)+\w*(\.\d+){0,3})?$")),
            short: LazyCell::new(Box::new(move || {
                pattern(&format!(r"^\s*([a-f0-9]+)-([a-f0-9]+):\s*(\S+\.{endings}(?:\.\d+)*)"))
            })),
            freebsd: LazyCell::new(|| {
                pattern(concat!(
                    r"^0x([a-f0-9]+)\s0x([a-f0-9]+)\s\d+\s\d+\s0x[a-f0-9]+\sr-x\s\d+\s\d+\s0x\d+",
                    r"\s(?:COW|NCO)\s(?:NC|NNC)\svnode\s(\S+\.so(?:\.\d+)*)"
                ))
            }),
        }
    }

    fn line(&self, line: &[u8]) -> Option<Mapping> {
        let line = line.trim_ascii_end();
        if let Some(found) = full_line(line) {
            let is_library = || {
                may_be_library(&found.path) && self.library.is_match(String::from_utf8_lossy(&found.path).as_bytes())
            };
            if is_plain_library(&found.path) || found.path == self.program || is_library() {
                let path = found.path.iter().map(|&byte| if byte == b'\\' { b'/' } else { byte }).collect();
                return Some(Mapping { path, ..found });
            }
        }
        if may_be_short(line)
            && let Some(found) = self.short.captures(line)
        {
            return Some(Mapping {
                start: parse_hex(&found[1])?,
                end: parse_hex(&found[2])?,
                offset: 0,
                path: found[3].to_vec(),
            });
        }
        if self.compat == Compat::V531
            && let Some((range, path)) = split_short(line)
            && path == self.program
        {
            let (start, end) = range_of(range)?;
            return Some(Mapping { start, end, offset: 0, path: path.to_vec() });
        }
        if !line.starts_with(b"0x") {
            return None;
        }
        let found = self.freebsd.captures(line)?;
        Some(Mapping { start: parse_hex(&found[1])?, end: parse_hex(&found[2])?, offset: 0, path: found[3].to_vec() })
    }
}

/// False for lines that begin with more than a range and a colon, as the kernel's do.
fn may_be_short(line: &[u8]) -> bool {
    let Some(colon) = memchr::memchr(b':', line) else { return false };
    let range = line[..colon].trim_ascii_start();
    !range.is_ascii() || !range.iter().any(u8::is_ascii_whitespace)
}

fn split_short(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let line = line.trim_ascii_start();
    let colon = line.iter().position(|&byte| byte == b':')?;
    Some((&line[..colon], line[colon + 1..].trim_ascii_start()))
}

/// A line as the kernel prints it, of an executable mapping with a path without blanks.
fn full_line(line: &[u8]) -> Option<Mapping> {
    if line.first().is_none_or(u8::is_ascii_whitespace) {
        return None;
    }
    let fields: Vec<&[u8]> = line.split(u8::is_ascii_whitespace).filter(|field| !field.is_empty()).collect();
    let [range, rights, offset, device, inode, path] = fields.as_slice() else { return None };
    let (start, end) = range_of(range)?;
    let is_executable = rights.len() == 4 && matches!(rights[2], b'x' | b'X');
    let is_device = device.iter().position(|&byte| byte == b':').is_some_and(|at| at > 0 && at + 1 < device.len());
    if !is_executable || !is_device || !inode.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(Mapping { start, end, offset: hex_without_prefix(offset)?, path: path.to_vec() })
}

fn range_of(text: &[u8]) -> Option<(u64, u64)> {
    let dash = text.iter().position(|&byte| byte == b'-')?;
    Some((hex_without_prefix(&text[..dash])?, hex_without_prefix(&text[dash + 1..])?))
}

fn hex_without_prefix(text: &[u8]) -> Option<u64> {
    text.iter().all(u8::is_ascii_hexdigit).then(|| parse_hex(text)).flatten()
}

/// The path as text for people.
pub fn shown(path: &Path) -> String {
    String::from_utf8_lossy(&path.as_os_str().to_owned().into_vec()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str, compat: Compat) -> Option<(u64, u64, u64, String)> {
        let reader = MapReader::new(Path::new("/opt/my prog"), compat);
        let found = reader.line(line.as_bytes())?;
        Some((found.start, found.end, found.offset, String::from_utf8(found.path).expect("text")))
    }

    #[test]
    fn lines_of_a_map() {
        let is = |line: &str, expected: Option<(u64, u64, u64, &str)>| {
            let expected = expected.map(|(a, b, c, path)| (a, b, c, path.to_owned()));
            assert_eq!(read(line, Compat::V530), expected, "{line}");
        };
        is("1000-2000 r-xp 00000400 08:01 5 /l/libc.so.6", Some((0x1000, 0x2000, 0x400, "/l/libc.so.6")));
        is("1000-2000 r-xp 0 08:01 5    /l/libstdc++.so.6.0.30", Some((0x1000, 0x2000, 0, "/l/libstdc++.so.6.0.30")));
        is("1000-2000 r--p 00000400 08:01 5 /l/libc.so.6", None);
        is("1000-2000 r-xp 00000400 08:01 5 /l/libc.so.6 (deleted)", None);
        is("1000-2000 r-xp 00000400 08:01 5 /bin/other", None);
        is("1000-2000 r-xp 00000000 00:00 0 [vdso]", None);
        is(" 1000-2000: /l/libx.so.1 and more", Some((0x1000, 0x2000, 0, "/l/libx.so.1")));
        is("1000-2000: /l/libx.dylib", None);
        is("", None);
        assert!(read("1000-2000: /l/libx.dylib", Compat::V531).is_some());
        let bsd = "0x1000 0x2000 26 0 0xfffff800035a0000 r-x 75 33 0x1004 COW NC vnode /lib/ld-elf.so.1 NCH -1";
        is(bsd, Some((0x1000, 0x2000, 0, "/lib/ld-elf.so.1")));
    }

    #[test]
    fn plain_libraries_are_those_of_the_pattern() {
        let library = pattern(r"(?i)^\S+\.(so|dll|dylib|bundle)((\.\d+)+\w*(\.\d+){0,3})?$");
        for (path, expected) in [
            ("/l/libc.so", true),
            ("/l/libc.so.6", true),
            ("/l/libc.so.6.0.30", true),
            (".so", false),
            ("/l/libc.so.", false),
            ("/l/libc.so.6.", false),
            ("/l/libc.so6", false),
            ("/l/libc.so..6", false),
            ("/l/libcso", false),
            ("/l/my lib.so", false),
            ("/l/libc.so 1", false),
            ("so", false),
            ("", false),
            ("6.0", false),
        ] {
            assert_eq!(is_plain_library(path.as_bytes()), expected, "{path}");
            assert_eq!(library.is_match(path.as_bytes()), expected, "{path}");
            assert!(may_be_library(path.as_bytes()) || !expected, "{path}");
        }
        for path in ["/l/x.DLL", "/l/x.Bundle.1", "/l/x.y.dylib", "/l/x.\u{17f}o"] {
            assert!(may_be_library(path.as_bytes()) && library.is_match(path.as_bytes()), "{path}");
        }
        for path in ["/usr/bin/soso", "/l/so.1", "/l/x.s", "/dev/zero", "."] {
            assert!(!may_be_library(path.as_bytes()) && !library.is_match(path.as_bytes()), "{path}");
        }
    }

    #[test]
    fn prefixes_are_tried_with_fewer_directories() {
        let root = std::env::temp_dir().join(format!("jeprof-prefix-{}", std::process::id()));
        fs::create_dir_all(root.join("dir")).expect("a directory");
        fs::write(root.join("dir/lib.so"), "").expect("a file");
        let prefixes = prefixes(&format!("/nonexistent,{}/", root.display()));
        assert_eq!(find_library(Path::new("/usr/dir/lib.so"), &prefixes), root.join("dir/lib.so"));
        assert_eq!(find_library(Path::new("/usr/none.so"), &prefixes), Path::new("/usr/none.so"));
        fs::remove_dir_all(&root).expect("removed");
    }

    #[test]
    fn build_directories_are_filled_in() {
        assert_eq!(expand_build(b"$build/a.so", b"/x"), b"/x/a.so");
        assert_eq!(expand_build(b"$builder/a.so", b"/x"), b"$builder/a.so");
    }
}
