//! Answers of former runs about one image, so that neither symbol tables nor debug information are read again.
//!
//! A file that is damaged or of another version is passed over and replaced. Debug files that come, change or go make it
//! void: they are its evidence.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::hash::Hasher as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustc_hash::FxHasher;

use super::cache::{Cache, MOST_FILE_BYTES};
use super::kept::{Damaged, Kept, Known, Trait, Traits, encode};
use super::shown::Shown;
use super::witness::{Witness, stamp};

/// This program's own build: size, and seconds and nanoseconds of the time of its file.
pub(crate) fn program_build() -> [u64; 3] {
    let [_, _, size, seconds, nanoseconds] = stamp(Path::new("/proc/self/exe")).unwrap_or_default();
    [size, seconds, nanoseconds]
}

/// What an image is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Identity(Vec<u8>);

impl Identity {
    /// Begins with this program's own build: what it answers may be mended in the next.
    pub(super) fn of_program() -> Identity {
        program_build().into_iter().fold(Identity::default(), Identity::with_number)
    }

    /// Adds what tells two images apart.
    pub(super) fn with(mut self, bytes: &[u8]) -> Identity {
        self.0.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
        self.0.extend_from_slice(bytes);
        self
    }

    pub(super) fn with_number(mut self, number: u64) -> Identity {
        self.0.extend_from_slice(&number.to_le_bytes());
        self
    }

    /// Adds where a file lies and when it was changed.
    pub(super) fn with_file(self, path: &Path) -> Identity {
        let identity = self.with(path.as_os_str().as_bytes());
        stamp(path).iter().flatten().fold(identity, |identity, &part| identity.with_number(part))
    }

    fn digest(&self) -> u64 {
        let mut hasher = FxHasher::default();
        hasher.write(&self.0);
        hasher.finish()
    }
}

/// What is known of an image: what a former run left, and what this one found out.
#[derive(Debug)]
pub(super) struct Store {
    cache: Arc<Cache>,
    path: PathBuf,
    identity: Identity,
    witness: Arc<Witness>,
    shown: Arc<Shown>,
    old: Option<Kept>,
    new: Mutex<New>,
}

#[derive(Debug, Default)]
struct New {
    entries: BTreeMap<u64, Known>,
    traits: Traits,
}

impl Store {
    /// `name`: begins the file's name. `witness`: gets to know which outside files answers of this run depend on. `shown`: how
    /// names are shown, from the file and into it.
    pub(super) fn open(
        cache: Arc<Cache>,
        name: &str,
        identity: Identity,
        witness: Arc<Witness>,
        shown: Arc<Shown>,
    ) -> Store {
        let path = cache.directory.join(format!("{name}-{:016x}.names", identity.digest()));
        let damaged = |Damaged| {
            cache.warn(&path, "is damaged");
            None
        };
        let old = cache.read(&path).and_then(|bytes| Kept::new(bytes, &identity.0, &shown).unwrap_or_else(damaged));
        let holds = |kept: &Kept| kept.evidence.iter().all(|(path, then)| stamp(path) == *then);
        let old = old.filter(holds);
        Store { cache, path, identity, witness, shown, old, new: Mutex::default() }
    }

    fn new_ones(&self) -> MutexGuard<'_, New> {
        self.new.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn get(&self, svma: u64) -> Known {
        let new = self.new_ones().entries.get(&svma).cloned();
        new.or_else(|| self.old.as_ref()?.get(svma)).unwrap_or_default()
    }

    /// What a former run left, while this one found out nothing.
    pub(super) fn kept(&self) -> Option<&Kept> {
        self.old.as_ref().filter(|_| self.new_ones().entries.is_empty())
    }

    /// Adds to what is known of an address.
    pub(super) fn put(&self, svma: u64, known: Known) {
        let before = self.get(svma);
        let known = Known { place: known.place.or(before.place), routine: known.routine.or(before.routine) };
        self.new_ones().entries.insert(svma, known);
    }

    /// A trait of the image, found out by `find` when it is not known.
    pub(super) fn has(&self, which: Trait, find: impl FnOnce() -> bool) -> bool {
        let old = || self.old.as_ref().and_then(|old| old.traits[which as usize]);
        let known = self.new_ones().traits[which as usize].or_else(old);
        known.unwrap_or_else(|| {
            let has = find();
            self.new_ones().traits[which as usize] = Some(has);
            has
        })
    }

    /// Writes what is new, together with what was there. What does not fit into one file together is written without the
    /// latter, or not at all.
    pub(super) fn save(&self) {
        let New { entries, mut traits } = std::mem::take(&mut *self.new_ones());
        let Some(mut evidence) = self.witness.files() else { return };
        if entries.is_empty() && traits == Traits::default() {
            return;
        }
        let before = self.old.as_ref().map(Kept::all).unwrap_or_default();
        if let Some(old) = &self.old {
            evidence.extend(old.evidence.iter().cloned());
            for (new, old) in traits.iter_mut().zip(old.traits) {
                *new = new.or(old);
            }
        }
        let encoded = |before: &BTreeMap<u64, Known>| {
            let all: BTreeMap<u64, &Known> =
                before.iter().chain(&entries).map(|(svma, known)| (*svma, known)).collect();
            Some(encode(&self.identity.0, &evidence, traits, &all, &self.shown))
                .filter(|bytes| bytes.len() as u64 <= MOST_FILE_BYTES)
        };
        if let Some(bytes) = encoded(&before).or_else(|| encoded(&BTreeMap::new())) {
            self.cache.write(&self.path, &bytes);
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.save();
    }
}

#[cfg(test)]
mod tests {
    use std::env;
    use std::fs::{self, OpenOptions};
    use std::os::unix::fs::PermissionsExt as _;
    use std::thread;
    use std::time::{Duration, SystemTime};

    use super::super::cache::ABANDONED;
    use super::super::dwarf::{Found, Line, Link};
    use super::super::frames::Place;
    use super::super::routines::{Linked, Placed};
    use super::super::symtab::FunctionSymbol;
    use super::*;

    /// A directory that goes with its test.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let path = env::temp_dir().join(format!("jeprobe-store-{name}-{}", std::process::id()));
            let _from_a_former_run = fs::remove_dir_all(&path);
            fs::create_dir_all(&path).expect("the temporary folder is writable");
            Folder(path)
        }

        fn cache(&self) -> Arc<Cache> {
            Cache::at(self.0.join("cache")).expect("a directory of our own")
        }

        fn file(&self) -> PathBuf {
            let mut files = fs::read_dir(self.0.join("cache")).expect("a directory").flatten();
            let file = files.next().expect("one file").path();
            assert!(files.next().is_none(), "one file");
            file
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _already_gone = fs::remove_dir_all(&self.0);
        }
    }

    fn open(cache: &Arc<Cache>, witness: &Arc<Witness>) -> Store {
        Store::open(cache.clone(), "id", Identity::default().with(b"image"), witness.clone(), Arc::default())
    }

    fn known(number: u64) -> Known {
        let call = Link {
            key: number,
            name: Some(format!("name{number}").into()),
            is_linkage: number.is_multiple_of(2),
            is_inlined: number % 3 == 1,
            low: 7,
            call_file: None,
            call_line: 9,
        };
        let line = Line { file: Some("a.c".into()), number: number as u32, discriminator: 1 };
        let symbol = FunctionSymbol { address: number, name: "symbol".into(), file: None };
        let linked = Linked {
            linker: format!("_Z{number}").into(),
            is_bare: number.is_multiple_of(3),
            start: number,
            end: number + 1,
        };
        let found =
            Found { line: Some(line).filter(|_| !number.is_multiple_of(5)), chain: vec![call; number as usize % 3] };
        Known {
            place: Some(Place { found, symbol: Some(symbol).filter(|_| !number.is_multiple_of(2)) })
                .filter(|_| !number.is_multiple_of(7)),
            routine: [Some(Placed::In(linked)), Some(Placed::Nothing), Some(Placed::Behind), None][number as usize % 4]
                .clone(),
        }
    }

    fn fill(folder: &Folder, numbers: std::ops::Range<u64>) {
        let store = open(&folder.cache(), &Arc::default());
        for number in numbers {
            store.put(number, known(number));
        }
        assert!(!store.has(Trait::HasNames, || false));
    }

    #[test]
    fn answers_come_back_and_are_added_to() {
        let folder = Folder::new("round");
        fill(&folder, 0..500);
        fill(&folder, 400..700);
        let store = open(&folder.cache(), &Arc::default());
        for number in 0..700 {
            assert_eq!(store.get(number), known(number), "{number}");
        }
        assert_eq!(store.get(700), Known::default());
        assert!(!store.has(Trait::HasNames, || unreachable!("it is known")));
        assert!(store.has(Trait::HasSeparator, || true));
    }

    #[test]
    fn names_come_back_as_they_were_shown() {
        let folder = Folder::new("shown");
        let linker: Arc<str> = "_ZN3app4Pool4grabEm".into();
        let place = Linked { linker: linker.clone(), is_bare: true, start: 1, end: 2 };
        let answer = Known { place: None, routine: Some(Placed::In(place)) };
        let store = open(&folder.cache(), &Arc::default());
        store.put(1, answer.clone());
        let name = store.shown.of_binutils(&linker);
        drop(store);
        let store = open(&folder.cache(), &Arc::default());
        assert_eq!(store.shown.forms(&linker), [None, None, None], "not before it is asked for");
        assert_eq!(store.get(1), answer);
        assert_eq!(store.shown.forms(&linker), [Some(name.full.made()), Some(name.short.made()), None]);
    }

    #[test]
    fn parts_of_an_answer_are_put_together() {
        let folder = Folder::new("parts");
        let whole = known(1);
        open(&folder.cache(), &Arc::default()).put(1, Known { routine: None, ..whole.clone() });
        open(&folder.cache(), &Arc::default()).put(1, Known { place: None, ..whole.clone() });
        assert_eq!(open(&folder.cache(), &Arc::default()).get(1), whole);
    }

    #[test]
    fn damage_is_passed_over_with_one_warning_and_replaced() {
        let folder = Folder::new("damage");
        fill(&folder, 0..20);
        let file = folder.file();
        let bytes = fs::read(&file).expect("written");
        for at in 0..=bytes.len() {
            let mut damaged = bytes.clone();
            match damaged.get_mut(at) {
                Some(byte) => *byte ^= 0x41,
                None => damaged.truncate(bytes.len() - 1),
            }
            fs::write(&file, damaged).expect("written");
            let cache = folder.cache();
            let store = open(&cache, &Arc::default());
            assert_eq!(store.get(3), Known::default(), "byte {at}");
            // Another version is no damage.
            let is_version = (8..12).contains(&at);
            assert_eq!(cache.warning().is_some(), !is_version, "byte {at}");
        }
        fill(&folder, 0..20);
        assert_eq!(fs::read(&file).expect("written"), bytes);
    }

    #[test]
    fn files_that_others_may_write_are_not_read() {
        let folder = Folder::new("others");
        fill(&folder, 0..20);
        let file = folder.file();
        let mode = |mode| fs::set_permissions(&file, fs::Permissions::from_mode(mode)).expect("our own file");
        mode(0o666);
        let cache = folder.cache();
        assert_eq!(open(&cache, &Arc::default()).get(3), Known::default());
        assert!(cache.warning().is_some_and(|text| text.contains("others may write")), "{:?}", cache.warning());
        fill(&folder, 0..20);
        assert_eq!(open(&folder.cache(), &Arc::default()).get(3), known(3), "replaced");
        fs::set_permissions(folder.0.join("cache"), fs::Permissions::from_mode(0o777)).expect("our own directory");
        let cache = folder.cache();
        assert!(cache.warning().is_some_and(|text| text.contains("others may write")), "{:?}", cache.warning());
        open(&cache, &Arc::default()).put(3, known(3));
        assert_eq!(open(&cache, &Arc::default()).get(3), Known::default(), "nothing is read or written there");
        assert!(Cache::at("/proc/nowhere".into()).is_none());
    }

    #[test]
    fn a_link_is_replaced_and_not_followed() {
        let folder = Folder::new("link");
        fill(&folder, 0..20);
        let file = folder.file();
        let target = folder.0.join("target");
        fs::rename(&file, &target).expect("moved");
        std::os::unix::fs::symlink(&target, &file).expect("a link");
        let before = fs::read(&target).expect("a file");
        assert_eq!(open(&folder.cache(), &Arc::default()).get(3), Known::default());
        fill(&folder, 0..3);
        assert_eq!(fs::read(&target).expect("a file"), before);
        assert!(fs::symlink_metadata(&file).expect("a file").is_file());
    }

    #[test]
    fn a_debug_file_that_comes_changes_or_goes_makes_answers_void() {
        let folder = Folder::new("evidence");
        let debug = folder.0.join("debug");
        let state = |text: Option<&str>| match text {
            Some(text) => fs::write(&debug, text).expect("written"),
            None => drop(fs::remove_file(&debug)),
        };
        for (before, after) in [(None, Some("a")), (Some("a"), None), (Some("a"), Some("ab"))] {
            state(before);
            let witness = Arc::<Witness>::default();
            witness.saw(&debug);
            open(&folder.cache(), &witness).put(1, known(1));
            assert_eq!(open(&folder.cache(), &Arc::default()).get(1), known(1));
            state(after);
            assert_eq!(open(&folder.cache(), &Arc::default()).get(1), Known::default(), "{before:?} {after:?}");
        }
        let witness = Arc::<Witness>::default();
        witness.saw_more();
        open(&folder.cache(), &witness).put(2, known(2));
        assert_eq!(open(&folder.cache(), &Arc::default()).get(2), Known::default(), "it may be known better");
    }

    #[test]
    fn names_outlive_their_file() {
        let folder = Folder::new("outlive");
        let linker: Arc<str> = "_ZN3app4Pool4grabEm".into();
        let place = Linked { linker: linker.clone(), is_bare: true, start: 1, end: 2 };
        let store = open(&folder.cache(), &Arc::default());
        store.put(1, Known { place: None, routine: Some(Placed::In(place)) });
        let expected = store.shown.of_binutils(&linker);
        drop(store);
        let store = open(&folder.cache(), &Arc::default());
        let kept = store.kept().expect("a former run's");
        let Some(Placed::In(Linked { linker: number, .. })) = kept.numbers(1).and_then(|known| known.routine) else {
            panic!("a routine")
        };
        let name = kept.name(number).expect("a name");
        fill(&folder, 0..20);
        fs::remove_file(folder.file()).expect("a file");
        drop(store);
        assert_eq!(name, expected);
        assert_eq!((name.full.text(), name.short.text()), (expected.full.text(), expected.short.text()));
    }

    #[test]
    fn runs_at_a_time_see_whole_files() {
        let folder = Folder::new("together");
        thread::scope(|scope| {
            for run in 0..4 {
                let folder = &folder;
                scope.spawn(move || {
                    for round in 0..20 {
                        let cache = folder.cache();
                        let store = open(&cache, &Arc::default());
                        for number in 0..50 {
                            let found = store.get(number);
                            assert!(found == Known::default() || found == known(number));
                        }
                        store.put(run * 10 + round % 10, known(run * 10 + round % 10));
                        drop(store);
                        assert_eq!(cache.warning(), None);
                    }
                });
            }
        });
    }

    #[test]
    fn the_oldest_files_go_first() {
        let folder = Folder::new("limit");
        let directory = folder.0.join("cache");
        let cache = folder.cache();
        let write = |cache: &Arc<Cache>, name: &str, age: u64| {
            let store = Store::open(cache.clone(), name, Identity::default(), Arc::default(), Arc::default());
            store.put(1, known(1));
            drop(store);
            for entry in fs::read_dir(&directory).expect("a directory").flatten() {
                if entry.file_name().to_string_lossy().starts_with(name) {
                    let file = OpenOptions::new().write(true).open(entry.path()).expect("our own file");
                    file.set_modified(SystemTime::now() - Duration::from_secs(age)).expect("a time");
                }
            }
        };
        write(&cache, "old", 3000);
        write(&cache, "older", 9000);
        write(&cache, "used", 2 * 24 * 3600);
        // Use gives a new time.
        let used = Store::open(cache.clone(), "used", Identity::default(), Arc::default(), Arc::default());
        assert_eq!(used.get(1), known(1));
        fs::write(directory.join(".1-1.part"), "left").expect("written");
        let part = OpenOptions::new().write(true).open(directory.join(".1-1.part")).expect("our own file");
        part.set_modified(SystemTime::now() - 2 * ABANDONED).expect("a time");
        let size = fs::read_dir(&directory).expect("a directory").flatten().filter_map(|entry| entry.metadata().ok());
        let one = size.map(|meta| meta.len()).max().expect("files");
        let small = Cache::of_size(directory.clone(), 2 * one);
        write(&small, "new", 0);
        let mut names: Vec<String> = fs::read_dir(&directory)
            .expect("a directory")
            .flatten()
            .map(|entry| entry.file_name().to_string_lossy().split('-').next().unwrap_or_default().to_owned())
            .collect();
        names.sort();
        assert_eq!(names, ["new", "used"]);
    }
}
