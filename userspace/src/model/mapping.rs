//! The files mapped into the profiled process, and how two address spaces are laid side by side.
//!
//! Addresses of two profiles mean the same only when the same file is mapped at the same place. [`Relocation`] brings
//! the addresses of one profile into the space of another, mapping by mapping:
//!
//! | the other profile's mapping | its addresses |
//! |---|---|
//! | is here with equal range, offset and file | stay |
//! | shows a part of a file that is mapped here elsewhere | move there: the difference of the start addresses |
//! | touches nothing mapped here | stay; the mapping is added |
//! | collides with a different mapping here | move to a free range from [`SPARE_START`] up; the mapping is added there |
//!
//! Files are equal by build-id when both have one, else by path and, when both know it, inode. Addresses outside every mapping
//! (just-in-time code, or a file without a list of mappings) stay.
#![forbid(unsafe_code)]

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::proc::maps;

/// Where mappings are put that collide: above every user-space address of x86-64 (47 and 57 bits) and arm64, and below
/// 2^63, from which on jeprof drops addresses.
const SPARE_START: u64 = 1 << 60;

/// One line of the process's list of mappings that has a name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mapping {
    /// Half-open range of avmas.
    pub start: u64,
    pub end: u64,
    /// Offset in the file of the byte at `start`.
    pub offset: u64,
    /// As in `/proc/PID/maps`: `r-xp`.
    pub permissions: [u8; 4],
    /// Device major and minor, inode; all 0 when unknown or not a file.
    pub device: (u32, u32),
    pub inode: u64,
    /// Path as the process saw it, without the kernel's ` (deleted)`; or `[vdso]` and the like; empty = anonymous.
    pub path: PathBuf,
    /// The file was unlinked or replaced while it was mapped.
    pub deleted: bool,
    /// Empty when unknown.
    pub build_id: Vec<u8>,
}

impl Mapping {
    pub fn contains(&self, avma: u64) -> bool {
        (self.start..self.end).contains(&avma)
    }

    pub fn is_executable(&self) -> bool {
        self.permissions[2] == b'x'
    }

    /// True when it shows a file that a path can name, as opposed to `[heap]` or anonymous memory.
    pub fn is_file(&self) -> bool {
        self.path.is_absolute()
    }

    /// Offset in the file of the byte at `avma`.
    pub fn file_offset(&self, avma: u64) -> u64 {
        avma.wrapping_sub(self.start).wrapping_add(self.offset)
    }

    /// Last component of the path, for names such as `libc.so.6+0x1234`.
    pub fn short_name(&self) -> String {
        short_name(&self.path)
    }

    fn same_file(&self, other: &Mapping) -> bool {
        if !self.build_id.is_empty() && !other.build_id.is_empty() {
            return self.build_id == other.build_id;
        }
        let inode_differs =
            self.inode != 0 && other.inode != 0 && (self.inode, self.device) != (other.inode, other.device);
        self.path == other.path && !inode_differs
    }
}

/// A build-id from its text: pairs of hexadecimal digits.
pub fn build_id_of_text(digits: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(digits).ok()?;
    if text.is_empty() || !text.len().is_multiple_of(2) || !text.is_ascii() {
        return None;
    }
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok()).collect()
}

fn short_name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

impl From<&maps::Mapping> for Mapping {
    fn from(line: &maps::Mapping) -> Mapping {
        let flag = |set, letter| if set { letter } else { b'-' };
        let perms = line.perms;
        Mapping {
            start: line.start,
            end: line.end,
            offset: line.offset,
            permissions: [
                flag(perms.read, b'r'),
                flag(perms.write, b'w'),
                flag(perms.exec, b'x'),
                if perms.shared { b's' } else { b'p' },
            ],
            device: line.dev,
            inode: line.inode,
            path: line.path().to_owned(),
            deleted: line.deleted,
            build_id: Vec::new(),
        }
    }
}

/// Mappings ordered by start, without overlap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mappings {
    sorted: Vec<Mapping>,
}

impl Mappings {
    /// Adds one. A mapping that overlaps known ones replaces them: a process may unmap and map again, and the newest
    /// observation is the one that later stacks refer to. An empty range is ignored.
    pub fn add(&mut self, mapping: Mapping) {
        if mapping.start >= mapping.end {
            return;
        }
        let from = self.sorted.partition_point(|known| known.end <= mapping.start);
        let to = self.sorted.partition_point(|known| known.start < mapping.end);
        self.sorted.splice(from..to.max(from), [mapping]);
    }

    /// Takes over code of files that was mapped `before` and is not any more, since stacks of then name it: of libraries that were
    /// unloaded. Where other code or another file lies now, that counts; gives the files whose names are lost by it. Build-ids of
    /// what is still mapped are taken over, too.
    pub fn keep_unloaded(&mut self, before: &Mappings) -> Vec<PathBuf> {
        for mapping in &mut self.sorted {
            if mapping.build_id.is_empty()
                && let Some(old) = before.find(mapping.start)
                && old.same_file(mapping)
            {
                mapping.build_id.clone_from(&old.build_id);
            }
        }
        let mut lost = Vec::new();
        for old in before.sorted.iter().filter(|mapping| mapping.is_executable() && mapping.is_file()) {
            let from = self.sorted.partition_point(|known| known.end <= old.start);
            let to = self.sorted.partition_point(|known| known.start < old.end);
            let mut here = self.sorted[from..to.max(from)].iter().filter(|new| new.is_file() || new.is_executable());
            match here.next() {
                None => self.add(old.clone()),
                Some(new) if new.same_file(old) || here.any(|new| new.same_file(old)) => {}
                Some(_) => lost.push(old.path.clone()),
            }
        }
        lost
    }

    /// Names of files of which several builds are mapped, wherever they lie: sums of processes have them.
    pub fn rebuilt(&self) -> HashSet<&OsStr> {
        let mut builds: HashMap<&OsStr, &[u8]> = HashMap::new();
        let known = self.sorted.iter().filter(|mapping| !mapping.build_id.is_empty());
        known
            .filter_map(|mapping| {
                let name = mapping.path.file_name()?;
                (*builds.entry(name).or_insert(&mapping.build_id) != mapping.build_id).then_some(name)
            })
            .collect()
    }

    /// The mapping that holds `avma`.
    pub fn find(&self, avma: u64) -> Option<&Mapping> {
        self.place(avma).map(|at| &self.sorted[at])
    }

    pub fn iter(&self) -> std::slice::Iter<'_, Mapping> {
        self.sorted.iter()
    }

    pub fn is_empty(&self) -> bool {
        self.sorted.is_empty()
    }

    /// Gives the build-id to every mapping of the file at `path`.
    pub fn set_build_id(&mut self, path: &Path, build_id: &[u8]) {
        self.set_build_ids([(path, build_id)]);
    }

    /// The same for many files; of one that comes twice the last counts. Time is linear in both.
    pub fn set_build_ids<'a>(&mut self, build_ids: impl IntoIterator<Item = (&'a Path, &'a [u8])>) {
        let build_ids: HashMap<&OsStr, &[u8]> =
            build_ids.into_iter().map(|(path, build_id)| (path.as_os_str(), build_id)).collect();
        for mapping in &mut self.sorted {
            if let Some(build_id) = build_ids.get(mapping.path.as_os_str()) {
                mapping.build_id = build_id.to_vec();
            }
        }
    }

    /// Where in memory the file begins that each mapping shows, in their order: the start of the nearest mapping at or below
    /// that shows its first byte; without one, the mapping's own start less its offset.
    pub fn file_starts(&self) -> Vec<u64> {
        let mut nearest: HashMap<&OsStr, u64> = HashMap::new();
        let mut starts = Vec::with_capacity(self.sorted.len());
        for Mapping { start, offset, path, .. } in &self.sorted {
            if *offset == 0 {
                nearest.insert(path.as_os_str(), *start);
            }
            starts.push(nearest.get(path.as_os_str()).copied().unwrap_or_else(|| start.wrapping_sub(*offset)));
        }
        starts
    }

    /// Which mapping holds `avma`, in their order.
    pub fn place(&self, avma: u64) -> Option<usize> {
        let after = self.sorted.partition_point(|known| known.start <= avma);
        let at = after.checked_sub(1)?;
        self.sorted[at].contains(avma).then_some(at)
    }

    fn overlaps(&self, range: &Range<u64>) -> bool {
        let from = self.sorted.partition_point(|known| known.end <= range.start);
        self.sorted.get(from).is_some_and(|known| known.start < range.end)
    }

    fn first_spare(&self) -> u64 {
        self.sorted.last().map_or(SPARE_START, |last| last.end.max(SPARE_START))
    }
}

impl<'a> IntoIterator for &'a Mappings {
    type Item = &'a Mapping;
    type IntoIter = std::slice::Iter<'a, Mapping>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// How addresses of one profile are moved into the space of another.
#[derive(Clone, Debug, Default)]
pub struct Relocation {
    /// (range there, start here), ordered; addresses outside stay.
    moves: Vec<(Range<u64>, u64)>,
}

impl Relocation {
    /// Plans the move of everything mapped in `theirs` into `ours`, adding to `ours` what it lacks.
    pub fn plan(ours: &mut Mappings, theirs: &Mappings) -> Relocation {
        let known = ours.clone();
        let files = Files::of(&known);
        let mut moves = Vec::new();
        for mapping in theirs {
            let place = files.same_as(mapping).find(|have| {
                have.same_file(mapping)
                    && mapping.is_file()
                    && have.is_executable() == mapping.is_executable()
                    && have.offset <= mapping.offset
                    && mapping.offset - have.offset + (mapping.end - mapping.start) <= have.end - have.start
            });
            let start = if known.find(mapping.start) == Some(mapping) {
                mapping.start
            } else if let Some(have) = place {
                have.start + (mapping.offset - have.offset)
            } else if ours.overlaps(&(mapping.start..mapping.end)) {
                if !mapping.is_file() {
                    // Anonymous memory, stacks, heaps: not code that a name could be found for.
                    continue;
                }
                let start = ours.first_spare();
                let end = start.saturating_add(mapping.end - mapping.start);
                ours.add(Mapping { start, end, ..mapping.clone() });
                start
            } else {
                ours.add(mapping.clone());
                mapping.start
            };
            if start != mapping.start {
                moves.push((mapping.start..mapping.end, start));
            }
        }
        Relocation { moves }
    }

    /// `avma` of the other profile, in this one's space.
    pub fn apply(&self, avma: u64) -> u64 {
        let after = self.moves.partition_point(|(range, _)| range.start <= avma);
        match self.moves[..after].last() {
            Some((range, start)) if range.contains(&avma) => avma - range.start + start,
            _ => avma,
        }
    }

    /// True when nothing moves.
    pub fn is_identity(&self) -> bool {
        self.moves.is_empty()
    }
}

/// Mappings by what makes two files the same.
struct Files<'a> {
    all: &'a [Mapping],
    by_path: HashMap<&'a OsStr, Vec<usize>>,
    by_build_id: HashMap<&'a [u8], Vec<usize>>,
}

impl<'a> Files<'a> {
    fn of(mappings: &'a Mappings) -> Files<'a> {
        let mut files = Files { all: &mappings.sorted, by_path: HashMap::new(), by_build_id: HashMap::new() };
        for (at, mapping) in mappings.iter().enumerate() {
            files.by_path.entry(mapping.path.as_os_str()).or_default().push(at);
            if !mapping.build_id.is_empty() {
                files.by_build_id.entry(&mapping.build_id).or_default().push(at);
            }
        }
        files
    }

    /// Mappings that may show the same file, by address.
    fn same_as(&self, mapping: &Mapping) -> impl Iterator<Item = &'a Mapping> + use<'a> {
        let named = self.by_path.get(mapping.path.as_os_str());
        let built = self.by_build_id.get(mapping.build_id.as_slice());
        let mut places: Vec<usize> = named.into_iter().chain(built).flatten().copied().collect();
        places.sort_unstable();
        places.dedup();
        let all = self.all;
        places.into_iter().map(|at| &all[at])
    }
}

#[cfg(test)]
mod tests {
    use super::{Mapping, Mappings, Relocation, SPARE_START};
    use std::path::PathBuf;

    fn mapping(start: u64, end: u64, offset: u64, path: &str) -> Mapping {
        Mapping { start, end, offset, permissions: *b"r-xp", path: path.into(), ..Mapping::default() }
    }

    fn mappings(list: &[Mapping]) -> Mappings {
        let mut mappings = Mappings::default();
        for mapping in list {
            mappings.add(mapping.clone());
        }
        mappings
    }

    #[test]
    fn code_that_was_unloaded_is_kept_until_other_code_is_there() {
        let mut before =
            mappings(&[mapping(0x1000, 0x2000, 0, "/program"), mapping(0x5000, 0x6000, 0x1000, "/plugin")]);
        before.set_build_id("/program".as_ref(), &[1]);
        before.set_build_id("/plugin".as_ref(), &[2]);
        let mut heap = mapping(0x4000, 0x9000, 0, "");
        heap.permissions = *b"rw-p";
        let program = mapping(0x1000, 0x2000, 0, "/program");
        let mut now = mappings(&[program.clone(), heap]);
        assert!(now.keep_unloaded(&before).is_empty());
        let name = |space: &Mappings, at| space.find(at).map(|m| (m.short_name(), m.build_id.clone()));
        assert_eq!(name(&now, 0x5800), Some(("plugin".into(), vec![2])));
        assert_eq!(name(&now, 0x1000), Some(("program".into(), vec![1])));
        let mut later = mappings(&[program, mapping(0x5800, 0x7000, 0, "/other")]);
        assert_eq!(later.keep_unloaded(&now), [PathBuf::from("/plugin")]);
        assert_eq!(name(&later, 0x5800), Some(("other".into(), vec![])));
        let mut same = now.clone();
        assert!(same.keep_unloaded(&now).is_empty() && same == now);
    }

    #[test]
    fn a_file_begins_at_its_nearest_first_mapping() {
        let list = [(0x1000, 0), (0x2000, 0x1000), (0x9000, 0), (0xa000, 0x1000)];
        let mut space = mappings(&list.map(|(start, offset)| mapping(start, start + 0x1000, offset, "/lib")));
        space.add(mapping(0x5000, 0x6000, 0x3000, "/other"));
        assert_eq!(space.file_starts(), [0x1000, 0x1000, 0x2000, 0x9000, 0x9000]);
        assert_eq!((space.place(0x5fff), space.place(0x6000)), (Some(2), None));
    }

    #[test]
    fn a_hundred_thousand_files_are_moved_and_named_in_linear_time() {
        let space = |base: u64| {
            let list = (0..100_000).map(|at| {
                let start = base + at * 0x2000;
                mapping(start, start + 0x1000, 0x1000, &format!("/lib/{at}.so"))
            });
            let mut space = Mappings::default();
            list.for_each(|mapping| space.add(mapping));
            space
        };
        let (mut ours, mut theirs) = (space(0x10_0000_0000), space(0x20_0000_0000));
        let ids: Vec<_> = theirs.iter().map(|mapping| (mapping.path.clone(), mapping.start.to_le_bytes())).collect();
        theirs.set_build_ids(ids.iter().map(|(path, id)| (path.as_path(), id.as_slice())));
        assert!(theirs.iter().all(|mapping| mapping.build_id == mapping.start.to_le_bytes()));
        let moves = Relocation::plan(&mut ours, &theirs);
        assert_eq!(moves.apply(0x20_0000_0000 + 99_999 * 0x2000 + 7), 0x10_0000_0000 + 99_999 * 0x2000 + 7);
        assert_eq!(ours.file_starts()[99_999], 0x10_0000_0000 + 99_999 * 0x2000 - 0x1000);
    }

    #[test]
    fn a_new_mapping_replaces_what_it_overlaps() {
        let mut space = mappings(&[mapping(0x1000, 0x3000, 0, "/a"), mapping(0x3000, 0x4000, 0, "/b")]);
        space.add(mapping(0x2000, 0x3000, 0, "/c"));
        let paths: Vec<_> = space.iter().map(|m| m.path.to_str().expect("text")).collect();
        assert_eq!(paths, ["/c", "/b"]);
        assert!(space.find(0x1fff).is_none());
        assert_eq!(space.find(0x3000).map(|m| m.start), Some(0x3000));
        assert!(space.find(0x4000).is_none());
    }

    #[test]
    fn one_file_at_two_places_becomes_one() {
        let mut ours = mappings(&[mapping(0x5000, 0x8000, 0x1000, "/lib")]);
        let theirs = mappings(&[mapping(0x9000, 0xc000, 0x1000, "/lib")]);
        let moved = Relocation::plan(&mut ours, &theirs);
        assert_eq!(moved.apply(0x9123), 0x5123);
        assert_eq!(moved.apply(0xc000), 0xc000);
        assert_eq!(ours.iter().count(), 1);
    }

    #[test]
    fn colliding_files_are_moved_apart_and_build_ids_decide_what_is_equal() {
        let mut ours = mappings(&[Mapping { build_id: vec![1], ..mapping(0x400000, 0x401000, 0, "/prog") }]);
        let other = Mapping { build_id: vec![2], ..mapping(0x400000, 0x401000, 0, "/prog") };
        let moved = Relocation::plan(&mut ours, &mappings(&[other]));
        assert_eq!(moved.apply(0x400010), SPARE_START + 0x10);
        assert_eq!(ours.find(SPARE_START).map(|m| m.build_id.clone()), Some(vec![2]));
        let same = Mapping { build_id: vec![1], ..mapping(0x400000, 0x401000, 0, "/renamed") };
        assert!(Relocation::plan(&mut ours, &mappings(&[same])).is_identity());
    }
}
