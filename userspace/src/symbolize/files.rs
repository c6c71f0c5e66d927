//! Which file holds the symbols of a mapping, and where an address of the process lies in it.
//!
//! ```text
//!  avma ── mapping (start, offset) ──► file offset ── program headers ──► svma ──► symbol tables, debug information
//! ```
//!
//! The program headers decide, not the distance of one section: segments may be apart in memory and close in the file.
//! A file is used only when it is the one that was mapped: with a build-id on record, another build-id refuses it. When it is
//! gone, its separate debug file does as well, found by the build-id; the segments of such a file are not where the file's
//! were, so addresses are then counted from where the file begins in memory.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::image::debugfile::{Places, hex};
use crate::image::debuginfod::Debuginfod;
use crate::image::{Cache, Error, Image, Reading};
use crate::model::{Mapping, Mappings};

/// Where to look for files.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// The main program, in place of the path on record.
    pub program: Option<PathBuf>,
    /// What the process sees as `/`; for a live one `/proc/PID/root`.
    pub root: Option<PathBuf>,
    /// Where separate debug files are looked for first, by build-id.
    pub debug_directories: Vec<PathBuf>,
    /// Asked for debug files that are nowhere here.
    pub servers: Option<Arc<Debuginfod>>,
    /// Of what other runs found out.
    pub cache: Option<Arc<Cache>>,
    /// What is to be said of them.
    pub remarks: Vec<String>,
}

/// A file that was accepted for a group of addresses.
#[derive(Debug)]
pub(super) struct SymbolFile {
    pub(super) image: Image,
    translation: Translation,
}

/// How addresses of the process become the file's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Translation {
    /// They are the file's already.
    Same,
    /// By offset in the file and program headers.
    Offset,
    /// By distance from where the file begins in memory.
    Distance,
}

impl SymbolFile {
    /// The file behind a mapping, or why there is none; without a mapping, the program at fixed addresses.
    pub(super) fn find(mapping: Option<&Mapping>, is_program: bool, sources: &Sources) -> Result<SymbolFile, String> {
        let root = sources.root.as_deref();
        let places = Places::new(&sources.debug_directories, root).with_servers(sources.servers.clone());
        let open = |path: &Path, translation| {
            let image = Image::open_with(path, places.clone(), Reading::AsStandard);
            image.map(|image| SymbolFile { image: image.with_cache(sources.cache.clone()), translation })
        };
        let given = sources.program.clone().filter(|_| is_program);
        let Some(mapping) = mapping else {
            let path = given.ok_or(UNMAPPED)?;
            let file = open(&path, Translation::Same).map_err(|error| error.to_string())?;
            return if file.image.is_fixed() { Ok(file) } else { Err(UNMAPPED.into()) };
        };
        let mut reason = "the file is gone".to_owned();
        for path in given.into_iter().chain(candidates(mapping, root)) {
            match open(&path, Translation::Offset) {
                Ok(file) if !mapping.build_id.is_empty() && file.image.build_id() != mapping.build_id => {
                    let found = file.image.build_id();
                    reason = format!(
                        "{} is another build: its build-id is {}, the profile's {}",
                        path.display(),
                        if found.is_empty() { "missing".to_owned() } else { hex(found) },
                        hex(&mapping.build_id)
                    );
                }
                Ok(file) => return Ok(file),
                // The file is named before the reason.
                Err(Error::Open { path, source }) if path == mapping.path => reason = source.to_string(),
                Err(error) => reason = error.to_string(),
            }
        }
        // The file itself is not there or not the same, but its symbols may be.
        let debug = places.by_build_id(&mapping.build_id).or_else(|| places.fetch(&mapping.build_id));
        debug.and_then(|path| open(&path, Translation::Distance).ok()).ok_or_else(|| {
            let next = if is_program { OTHER_PROGRAM } else { OTHER_LIBRARY };
            format!("{reason}; {next}")
        })
    }

    /// Why the file has no name for an address that it holds.
    pub(super) fn why_unnamed(&self) -> String {
        if self.image.has_names() {
            return "no symbol covers them".to_owned();
        }
        let id = match self.image.build_id() {
            [] => String::new(),
            id => format!(" of build-id {}", hex(id)),
        };
        format!(
            "it is stripped; give its debug file{id} by --debug-dir DIR or --debuginfod URL, or the program as it was linked"
        )
    }

    /// The address in the file; `None` outside what it loads.
    pub(super) fn svma(&self, avma: u64, space: &Space<'_>) -> Option<u64> {
        let holds = |svma: &u64| {
            let segments = self.image.segments().iter();
            segments.clone().any(|segment| *svma >= segment.address && svma - segment.address < segment.size)
        };
        match self.translation {
            Translation::Same => Some(avma).filter(holds),
            Translation::Offset => {
                let mapping = space.mappings.find(avma)?;
                self.image.svma(mapping.file_offset(avma))
            }
            Translation::Distance => {
                let first = self.image.segments().first()?;
                let distance = space.distance(avma)?;
                let page = first.address & !(PAGE - 1);
                Some(page.wrapping_add(distance)).filter(holds)
            }
        }
    }
}

const PAGE: u64 = 4096;

/// What to do about a file that is not there, or another one by now.
const OTHER_PROGRAM: &str = "name the program as it was before the profile: jeprobe report PROGRAM FILE";
const OTHER_LIBRARY: &str =
    "give the directory that has it at this path by --sysroot DIR, or its debug file by --debug-dir DIR";

/// Why code outside of every file has no names.
const UNMAPPED: &str = "no file is mapped there: a library that was unloaded, or a list of mappings that was cut short; code that a \
                        program made itself has the names that it writes for perf \
                        (node --perf-basic-prof) while it is profiled";

/// Mappings with the places where their files begin.
pub(super) struct Space<'a> {
    pub(super) mappings: &'a Mappings,
    starts: Vec<u64>,
}

impl<'a> Space<'a> {
    pub(super) fn of(mappings: &'a Mappings) -> Space<'a> {
        Space { mappings, starts: mappings.file_starts() }
    }

    /// How far behind the beginning of its file an address lies in memory; `None` outside every mapping.
    pub(super) fn distance(&self, avma: u64) -> Option<u64> {
        self.mappings.place(avma).map(|at| avma.wrapping_sub(self.starts[at]))
    }
}

/// The files that may hold the symbols of a mapping, best first.
///
/// `root` is the directory that the process sees as `/`; when it is `/proc/PID/root`, files that were deleted are reached
/// through `map_files` beside it. Its host path is tried last: when the process has ended, or when a build-id on record
/// tells whether that is the same file.
fn candidates(mapping: &Mapping, root: Option<&Path>) -> Vec<PathBuf> {
    // Another file may stand at the path of a deleted one; only a build-id tells.
    let by_path = !mapping.deleted || !mapping.build_id.is_empty();
    let Some(root) = root else {
        return by_path.then(|| mapping.path.clone()).into_iter().collect();
    };
    let mut paths = Vec::new();
    if let Ok(inside) = mapping.path.strip_prefix("/")
        && by_path
    {
        paths.push(root.join(inside));
    }
    if root.ends_with("root")
        && let Some(process) = root.parent()
    {
        paths.push(process.join(format!("map_files/{:x}-{:x}", mapping.start, mapping.end)));
    }
    if by_path && (!mapping.build_id.is_empty() || !root.exists()) {
        paths.push(mapping.path.clone());
    }
    paths
}

#[cfg(test)]
mod tests {
    use super::{Space, SymbolFile, candidates};
    use crate::model::{Mapping, Mappings};
    use crate::symbolize::Sources;
    use std::path::{Path, PathBuf};

    fn mapping(start: u64, end: u64, offset: u64, path: &Path) -> Mapping {
        Mapping { start, end, offset, permissions: *b"r-xp", path: path.into(), ..Mapping::default() }
    }

    #[test]
    fn the_program_headers_translate() {
        let path = std::env::current_exe().expect("a test runs from a file");
        let mut mappings = Mappings::default();
        mappings.add(mapping(0x10000, 0x20000, 0, &path));
        let file = SymbolFile::find(mappings.find(0x10000), false, &Sources::default()).expect("an ELF file");
        assert_eq!(file.svma(0x10040, &Space::of(&mappings)), Some(0x40));
        assert_eq!(file.svma(0x30000, &Space::of(&mappings)), None);
        let text = mapping(0x10000, 0x20000, 0, Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")));
        let refused = SymbolFile::find(Some(&text), false, &Sources::default()).expect_err("no ELF file");
        assert!(refused.contains("Cargo.toml: not an ELF file"), "{refused}");
    }

    #[test]
    fn a_live_process_is_read_through_its_root_and_map_files() {
        let mapping = Mapping { start: 0x1000, end: 0x2000, path: "/bin/x".into(), ..Mapping::default() };
        let live = [PathBuf::from("/proc/self/root/bin/x"), PathBuf::from("/proc/self/map_files/1000-2000")];
        assert_eq!(candidates(&mapping, Some(Path::new("/proc/self/root"))), live);
        let gone = candidates(&mapping, Some(Path::new("/proc/0/root")));
        assert_eq!(gone.last(), Some(&PathBuf::from("/bin/x")));
        let deleted = Mapping { deleted: true, ..mapping.clone() };
        assert_eq!(candidates(&deleted, Some(Path::new("/proc/self/root"))), live[1..]);
        assert!(candidates(&deleted, None).is_empty());
        let known = Mapping { build_id: vec![1], ..mapping.clone() };
        assert_eq!(candidates(&known, Some(Path::new("/proc/self/root"))).len(), 3);
        assert_eq!(candidates(&mapping, None), [PathBuf::from("/bin/x")]);
    }
}
