//! Which file holds the symbols of a mapping, and where an address of the process lies in it.
//!
//! ```text
//!  avma ── mapping (start, offset) ──► file offset ── program headers ──► svma ──► symbol tables
//! ```
//!
//! The program headers decide, not the distance of one section: segments may be apart in memory and close in the file.
//! A file is used only when it is the one that was mapped: with a build-id on record, another build-id refuses it.
//! Separate debug files are looked for by build-id only.
#![forbid(unsafe_code)]

use std::fmt::Write as _;
use std::fs::File;
use std::path::{Path, PathBuf};

use object::read::ReadCache;
use object::{Object as _, ObjectKind, ObjectSegment as _};

use crate::model::Mapping;

/// Where distributions put separate debug files.
const DEBUG_DIRECTORY: &str = "/usr/lib/debug/.build-id";

/// What is needed of an ELF file to translate addresses into it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    /// Empty when it has none.
    pub build_id: Vec<u8>,
    /// Fixed addresses: an executable that is not position-independent.
    pub is_fixed: bool,
    segments: Vec<Segment>,
}

/// One loadable segment: bytes in the file, address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Segment {
    file_offset: u64,
    file_size: u64,
    address: u64,
    size: u64,
}

impl Image {
    /// Reads headers and notes only. `Err` says why, without the path.
    pub fn read(path: &Path) -> Result<Image, String> {
        let file = File::open(path).map_err(|error| error.to_string())?;
        let cache = ReadCache::new(file);
        let object = object::File::parse(&cache).map_err(|error| error.to_string())?;
        let build_id = object.build_id().ok().flatten().unwrap_or_default().to_vec();
        let segments = object
            .segments()
            .map(|segment| {
                let (file_offset, file_size) = segment.file_range();
                Segment { file_offset, file_size, address: segment.address(), size: segment.size() }
            })
            .collect();
        Ok(Image { build_id, is_fixed: object.kind() == ObjectKind::Executable, segments })
    }

    /// The svma of a byte of the file, when it is part of what is loaded.
    pub fn svma(&self, file_offset: u64) -> Option<u64> {
        let within = |segment: &&Segment| {
            file_offset >= segment.file_offset && file_offset - segment.file_offset < segment.file_size
        };
        let segment = self.segments.iter().find(within)?;
        Some(segment.address.wrapping_add(file_offset - segment.file_offset))
    }

    /// True when an address of the file lies in what is loaded.
    pub fn holds(&self, svma: u64) -> bool {
        self.segments.iter().any(|segment| svma >= segment.address && svma - segment.address < segment.size)
    }
}

/// The files that may hold the symbols of a mapping, best first.
///
/// `root` is the directory that the process sees as `/`; when it is `/proc/PID/root`, files that were deleted are reached
/// through `map_files` beside it. Its host path is tried last: when the process has ended, or when a build-id on record
/// tells whether that is the same file.
pub fn candidates(mapping: &Mapping, root: Option<&Path>) -> Vec<PathBuf> {
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

/// The separate debug file of a build-id, when it is installed: in `.build-id` of the directories given, best first, then
/// where distributions put it. `root` as for [`candidates`]; the host is asked too.
pub fn debug_file(build_id: &[u8], root: Option<&Path>, directories: &[PathBuf]) -> Option<PathBuf> {
    let (first, rest) = build_id.split_first()?;
    let relative = format!("{DEBUG_DIRECTORY}/{first:02x}/{}.debug", hex(rest));
    let name = format!("{first:02x}/{}.debug", hex(rest));
    let given =
        directories.iter().flat_map(|directory| [directory.join(".build-id").join(&name), directory.join(&name)]);
    let in_root = root.map(|root| root.join(relative.trim_start_matches('/')));
    given.chain(in_root).chain([PathBuf::from(relative)]).find(|path| path.is_file())
}

/// Lower-case hexadecimal, as build-ids are written.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _infallible = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::{Image, Segment, candidates, debug_file, hex};
    use crate::model::Mapping;
    use std::path::{Path, PathBuf};

    #[test]
    fn segments_translate_and_the_unloaded_does_not() {
        let image = Image {
            segments: vec![
                Segment { file_offset: 0, file_size: 0x800, address: 0, size: 0x800 },
                Segment { file_offset: 0x800, file_size: 0x400, address: 0x1800, size: 0x500 },
            ],
            ..Image::default()
        };
        assert_eq!(image.svma(0x7ff), Some(0x7ff));
        assert_eq!(image.svma(0x900), Some(0x1900));
        assert_eq!(image.svma(0xc00), None);
        assert!(image.holds(0x1cff) && !image.holds(0x1d00));
    }

    #[test]
    fn own_executable_has_segments_and_a_text_file_is_none() {
        let image = Image::read(&std::env::current_exe().expect("a test runs from a file")).expect("an ELF file");
        assert!(image.svma(0).is_some());
        assert!(Image::read(Path::new("/proc/self/maps")).is_err());
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
        assert_eq!(debug_file(&[], None, &[]), None);
        assert_eq!(hex(&[0, 0xab]), "00ab");
    }
}
