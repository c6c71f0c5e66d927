//! Answers of former runs on disk: what is known of addresses of an image, so that neither symbol tables nor debug
//! information are read again.
//!
//! ```text
//! DIR/BUILD-ID-DIGEST.names
//!   "jeprobe\0" | version | CRC-32 of all that follows
//!   identity                which program answered, and of what: build-id, size, sections, places of debug files, reading; without
//!                           build-id also path, inode and time
//!   evidence                outside files that answers depend on: path, and device, inode, size, time, or that there is none
//!   traits                  answers about the image as a whole
//!   strings                 offset × (n + 1), bytes
//!   entries                 (svma, offset) × m ascending, records
//! ```
//!
//! - Kept is what the tables say ([`Place`]) by linker name, not how it is shown: choosing and demangling names is done anew in
//!   every run, so no answer differs from one that was computed.
//! - A file is read as a whole and checked; one that is damaged, of another version, of another user, or that others may write
//!   is passed over and replaced, with one warning. Debug files that come, change or go make it void.
//! - Written beside and renamed, so readers see whole files; of two writers at a time the last one's answers stay.
//! - No directory, or none that may be written: no cache, in silence.
//!
//! The directory holds at most [`MOST_BYTES`], each file [`MOST_FILE_BYTES`]; what was not used longest goes first.
#![forbid(unsafe_code)]

use std::collections::{BTreeMap, HashMap};
use std::env;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, Metadata, OpenOptions};
use std::hash::Hasher as _;
use std::io::{self, Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, SystemTime};

use rustc_hash::FxHasher;

use super::dwarf::{Found, Line, Link};
use super::frames::Place;
use super::routines::{Linked, Placed};
use super::symtab::FunctionSymbol;
use super::witness::{Stamp, Witness, stamp};

/// Everything in the directory together: 256 MiB, names of some two million addresses.
const MOST_BYTES: u64 = 256 << 20;
/// 64 MiB: it is read as a whole.
const MOST_FILE_BYTES: u64 = 64 << 20;
const MAGIC: &[u8; 8] = b"jeprobe\0";
/// Of the layout and of what is put into it; another one is not read.
const VERSION: u32 = 1;
/// A file that is used gets a new time when its own is older.
const FRESH: Duration = Duration::from_hours(24);
/// Half-written files that are older were left behind.
const ABANDONED: Duration = Duration::from_hours(1);
/// Not through links.
const NO_FOLLOW: i32 = libc::O_NOFOLLOW;

/// The directory.
#[derive(Debug)]
pub struct Cache {
    directory: PathBuf,
    most_bytes: u64,
    warning: OnceLock<String>,
}

impl Cache {
    /// `JEPROBE_CACHE_DIR`, else `jeprobe` in `XDG_CACHE_HOME` or `~/.cache`. `None` when `JEPROBE_CACHE_DIR` is empty, or when
    /// the directory is not this user's own or cannot be made.
    pub fn of_user() -> Option<Arc<Cache>> {
        let absolute = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        match env::var_os("JEPROBE_CACHE_DIR") {
            Some(directory) if directory.is_empty() => None,
            Some(directory) => Cache::at(PathBuf::from(directory)),
            None => {
                let caches = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))?;
                Cache::at(caches.join("jeprobe"))
            }
        }
    }

    /// The same in a given directory.
    pub fn at(directory: PathBuf) -> Option<Arc<Cache>> {
        if !directory.is_dir() {
            DirBuilder::new().recursive(true).mode(0o700).create(&directory).ok()?;
        }
        let is_usable = fs::metadata(&directory).is_ok_and(|meta| meta.is_dir() && is_own(&meta));
        is_usable.then(|| Arc::new(Cache { directory, most_bytes: MOST_BYTES, warning: OnceLock::new() }))
    }

    /// What is to be said of files that were passed over.
    pub fn warning(&self) -> Option<&str> {
        self.warning.get().map(String::as_str)
    }

    fn warn(&self, path: &Path, what: &str) {
        self.warning.get_or_init(|| format!("{} {what}; it is not used and made anew", path.display()));
    }

    /// Reads a file of this user; `None` when there is none.
    fn read(&self, path: &Path) -> Option<Vec<u8>> {
        let file = match OpenOptions::new().read(true).custom_flags(NO_FOLLOW | libc::O_NONBLOCK).open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(_) => {
                self.warn(path, "cannot be opened");
                return None;
            }
        };
        let meta = file.metadata().ok()?;
        if !meta.is_file() || !is_own(&meta) {
            self.warn(path, "is another user's, or others may write to it");
            return None;
        }
        if meta.len() > MOST_FILE_BYTES {
            self.warn(path, "is too large");
            return None;
        }
        let mut bytes = Vec::with_capacity(meta.len() as usize);
        (&file).take(MOST_FILE_BYTES).read_to_end(&mut bytes).ok()?;
        let now = SystemTime::now();
        if meta.modified().ok().and_then(|time| now.duration_since(time).ok()).is_some_and(|age| age > FRESH) {
            let _without_a_new_time_it_goes_earlier = file.set_modified(now);
        }
        Some(bytes)
    }

    /// Puts a file in place, and throws out the oldest beyond the limit. Failures are no loss but of time.
    fn write(&self, path: &Path, bytes: &[u8]) {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let beside = self.directory.join(format!(".{}-{number}.part", std::process::id()));
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600).custom_flags(NO_FOLLOW);
        let written = options.open(&beside).and_then(|mut file| file.write_all(bytes));
        if written.and_then(|()| fs::rename(&beside, path)).is_err() {
            let _not_there_either = fs::remove_file(&beside);
            return;
        }
        self.shrink(path);
    }

    /// Removes abandoned parts, and the oldest files until the others are within the limit; `kept` is the last to go.
    fn shrink(&self, kept: &Path) {
        let Ok(list) = fs::read_dir(&self.directory) else { return };
        let mut files = Vec::new();
        for entry in list.flatten() {
            let path = entry.path();
            let Some(meta) = entry.metadata().ok().filter(Metadata::is_file) else { continue };
            let time = meta.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            let extension = path.extension().unwrap_or_default();
            if extension == "names" {
                files.push((path != kept, time, meta.len(), path));
            } else if extension == "part" && time.elapsed().is_ok_and(|age| age > ABANDONED) {
                let _gone_or_not_ours = fs::remove_file(&path);
            }
        }
        let mut sum: u64 = files.iter().map(|(_, _, size, _)| size).sum();
        files.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
        for (_, _, size, path) in files {
            if sum <= self.most_bytes {
                break;
            }
            let _gone_already = fs::remove_file(path);
            sum -= size;
        }
    }
}

/// Owned by this user, and written by no other.
fn is_own(meta: &Metadata) -> bool {
    meta.uid() == rustix::process::geteuid().as_raw() && meta.mode() & 0o022 == 0
}

/// What an image is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Identity(Vec<u8>);

impl Identity {
    /// Begins with this program's own build: what it answers may be mended in the next.
    pub(super) fn of_program() -> Identity {
        let [_, _, size, seconds, nanoseconds] = stamp(Path::new("/proc/self/exe")).unwrap_or_default();
        [size, seconds, nanoseconds].into_iter().fold(Identity::default(), Identity::with_number)
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

/// What is known of one address, before names are chosen. Each part is there when it was asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) place: Option<Place>,
    pub(super) routine: Option<Placed>,
}

/// Answers about an image as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trait {
    /// Functions have names: [`super::Image::has_names`].
    HasNames,
    /// Inlined calls are shown: [`super::Image::has_separator`].
    HasSeparator,
}

/// By trait.
type Traits = [Option<bool>; 2];

/// What is known of an image: what a former run left, and what this one found out.
#[derive(Debug)]
pub(super) struct Store {
    cache: Arc<Cache>,
    path: PathBuf,
    identity: Identity,
    witness: Arc<Witness>,
    old: Option<Kept>,
    new: Mutex<New>,
}

#[derive(Debug, Default)]
struct New {
    entries: BTreeMap<u64, Known>,
    traits: Traits,
}

impl Store {
    /// `name`: begins the file's name. `witness`: gets to know which outside files answers of this run depend on.
    pub(super) fn open(cache: Arc<Cache>, name: &str, identity: Identity, witness: Arc<Witness>) -> Store {
        let path = cache.directory.join(format!("{name}-{:016x}.names", identity.digest()));
        let damaged = |Damaged| {
            cache.warn(&path, "is damaged");
            None
        };
        let old = cache.read(&path).and_then(|bytes| Kept::new(bytes, &identity).unwrap_or_else(damaged));
        let holds = |kept: &Kept| kept.evidence.iter().all(|(path, then)| stamp(path) == *then);
        let old = old.filter(holds);
        Store { cache, path, identity, witness, old, new: Mutex::default() }
    }

    fn new_ones(&self) -> MutexGuard<'_, New> {
        self.new.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn get(&self, svma: u64) -> Known {
        let new = self.new_ones().entries.get(&svma).cloned();
        new.or_else(|| self.old.as_ref()?.get(svma)).unwrap_or_default()
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
    fn save(&mut self) {
        let New { mut entries, mut traits } =
            std::mem::take(self.new.get_mut().unwrap_or_else(PoisonError::into_inner));
        let Some(mut evidence) = self.witness.files() else { return };
        if entries.is_empty() && traits == Traits::default() {
            return;
        }
        let mut all = BTreeMap::new();
        if let Some(old) = &self.old {
            all = old.all();
            evidence.extend(old.evidence.iter().cloned());
            for (new, old) in traits.iter_mut().zip(old.traits) {
                *new = new.or(old);
            }
        }
        let encoded = |entries: &BTreeMap<u64, Known>| encode(&self.identity, &evidence, traits, entries);
        let fits = |bytes: &Vec<u8>| bytes.len() as u64 <= MOST_FILE_BYTES;
        let bytes = if all.is_empty() {
            encoded(&entries)
        } else {
            let only_new = entries.clone();
            all.append(&mut entries);
            Some(encoded(&all)).filter(fits).unwrap_or_else(|| encoded(&only_new))
        };
        if fits(&bytes) {
            self.cache.write(&self.path, &bytes);
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.save();
    }
}

/// A file that does not hold what it should.
#[derive(Debug, PartialEq, Eq)]
struct Damaged;

/// A file that was read and checked.
#[derive(Debug)]
struct Kept {
    bytes: Vec<u8>,
    evidence: Vec<(PathBuf, Stamp)>,
    traits: Traits,
    /// Places in `bytes`.
    string_offsets: usize,
    strings: usize,
    string_count: u32,
    index: usize,
    count: usize,
    records: usize,
}

impl Kept {
    /// `Ok(None)`: of another version, or of another image with the same digest.
    fn new(bytes: Vec<u8>, identity: &Identity) -> Result<Option<Kept>, Damaged> {
        let mut from = Decoder { bytes: &bytes, at: 0 };
        if from.take(MAGIC.len()).ok_or(Damaged)? != MAGIC {
            return Err(Damaged);
        }
        if from.u32().ok_or(Damaged)? != VERSION {
            return Ok(None);
        }
        let sum = from.u32().ok_or(Damaged)?;
        if crc32fast::hash(&bytes[from.at..]) != sum {
            return Err(Damaged);
        }
        let mut body = || {
            if from.text()? != identity.0.as_slice() {
                return Some(None);
            }
            let mut evidence = Vec::new();
            for _ in 0..from.u32()? {
                let path = PathBuf::from(OsStr::from_bytes(from.text()?));
                let stamp = match from.u8()? {
                    0 => None,
                    _ => Some([from.u64()?, from.u64()?, from.u64()?, from.u64()?, from.u64()?]),
                };
                evidence.push((path, stamp));
            }
            let mut traits = Traits::default();
            for has in &mut traits {
                *has = [None, Some(false), Some(true)].get(usize::from(from.u8()?)).copied()?;
            }
            let string_count = from.u32()?;
            let string_offsets = from.at;
            from.take((string_count as usize + 1).checked_mul(4)?)?;
            let size = from.u32()?;
            let strings = from.at;
            from.take(size as usize)?;
            let count = from.u32()? as usize;
            let index = from.at;
            from.take(count.checked_mul(12)?)?;
            let records = from.at;
            let bytes = Vec::new();
            Some(Some(Kept { bytes, evidence, traits, string_offsets, strings, string_count, index, count, records }))
        };
        let kept = body().ok_or(Damaged)?;
        Ok(kept.map(|kept| Kept { bytes, ..kept }))
    }

    fn svma(&self, at: usize) -> Option<u64> {
        Decoder { bytes: &self.bytes, at: self.index + at * 12 }.u64()
    }

    fn get(&self, svma: u64) -> Option<Known> {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = usize::midpoint(low, high);
            match self.svma(middle)?.cmp(&svma) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Equal => return self.entry(middle),
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        None
    }

    fn all(&self) -> BTreeMap<u64, Known> {
        (0..self.count).filter_map(|at| Some((self.svma(at)?, self.entry(at)?))).collect()
    }

    fn entry(&self, at: usize) -> Option<Known> {
        let offset = Decoder { bytes: &self.bytes, at: self.index + at * 12 + 8 }.u32()?;
        let mut from = Decoder { bytes: &self.bytes, at: self.records.checked_add(offset as usize)? };
        let string = |from: &mut Decoder<'_>| self.string(from.u32()?).ok();
        let place = if from.u8()? == 0 {
            None
        } else {
            let line = match from.u8()? {
                0 => None,
                _ => Some(Line { file: string(&mut from)?, number: from.u32()?, discriminator: from.u32()? }),
            };
            let mut chain = Vec::new();
            for _ in 0..from.u32()? {
                chain.push(Link {
                    key: from.u64()?,
                    name: string(&mut from)?,
                    is_linkage: from.u8()? != 0,
                    is_inlined: from.u8()? != 0,
                    low: from.u64()?,
                    call_file: string(&mut from)?,
                    call_line: from.u32()?,
                });
            }
            let symbol = match from.u8()? {
                0 => None,
                _ => Some(FunctionSymbol {
                    address: from.u64()?,
                    name: string(&mut from)?.unwrap_or_default(),
                    file: string(&mut from)?,
                }),
            };
            Some(Place { found: Found { line, chain }, symbol })
        };
        let routine = match from.u8()? {
            0 => None,
            1 => Some(Placed::Nothing),
            2 => Some(Placed::Behind),
            kind => Some(Placed::In(Linked {
                linker: string(&mut from)?.unwrap_or_default(),
                is_bare: kind == 4,
                start: from.u64()?,
                end: from.u64()?,
            })),
        };
        Some(Known { place, routine })
    }

    /// String 0 is none.
    fn string(&self, number: u32) -> Result<Option<String>, Damaged> {
        let Some(at) = number.checked_sub(1) else { return Ok(None) };
        let text = || {
            let at = Some(at).filter(|at| *at < self.string_count)?;
            let mut from = Decoder { bytes: &self.bytes, at: self.string_offsets + at as usize * 4 };
            let (start, end) = (from.u32()? as usize, from.u32()? as usize);
            std::str::from_utf8(self.bytes.get(self.strings + start..self.strings + end)?).ok()
        };
        text().map(|text| Some(text.to_owned())).ok_or(Damaged)
    }
}

/// Reads numbers from bytes; `None` where they end.
struct Decoder<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Decoder<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let end = self.at.checked_add(count)?;
        let taken = self.bytes.get(self.at..end)?;
        self.at = end;
        Some(taken)
    }

    fn u8(&mut self) -> Option<u8> {
        Some(self.take(1)?[0])
    }

    fn u32(&mut self) -> Option<u32> {
        self.take(4)?.try_into().ok().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take(8)?.try_into().ok().map(u64::from_le_bytes)
    }

    fn text(&mut self) -> Option<&'a [u8]> {
        let length = self.u32()?;
        self.take(length as usize)
    }
}

/// Strings of a file, each once, by number from 1.
#[derive(Default)]
struct Strings<'a> {
    known: HashMap<&'a str, u32>,
    list: Vec<&'a str>,
}

impl<'a> Strings<'a> {
    fn put(&mut self, into: &mut Vec<u8>, text: Option<&'a str>) {
        let number = text.map_or(0, |text| {
            *self.known.entry(text).or_insert_with(|| {
                self.list.push(text);
                self.list.len() as u32
            })
        });
        into.extend_from_slice(&number.to_le_bytes());
    }
}

fn encode(
    identity: &Identity,
    evidence: &BTreeMap<PathBuf, Stamp>,
    traits: Traits,
    entries: &BTreeMap<u64, Known>,
) -> Vec<u8> {
    let (mut strings, mut index, mut records) = (Strings::default(), Vec::new(), Vec::new());
    for (svma, known) in entries {
        index.extend_from_slice(&svma.to_le_bytes());
        index.extend_from_slice(&(records.len() as u32).to_le_bytes());
        put_known(&mut records, &mut strings, known);
    }
    let mut body = Vec::new();
    put_text(&mut body, &identity.0);
    body.extend_from_slice(&(evidence.len() as u32).to_le_bytes());
    for (path, stamp) in evidence {
        put_text(&mut body, path.as_os_str().as_bytes());
        body.push(u8::from(stamp.is_some()));
        stamp.iter().flatten().for_each(|part| body.extend_from_slice(&part.to_le_bytes()));
    }
    body.extend(traits.map(|has| has.map_or(0, |has| 1 + u8::from(has))));
    body.extend_from_slice(&(strings.list.len() as u32).to_le_bytes());
    let mut end = 0_u32;
    body.extend_from_slice(&end.to_le_bytes());
    for text in &strings.list {
        end = end.saturating_add(text.len() as u32);
        body.extend_from_slice(&end.to_le_bytes());
    }
    put_text(&mut body, strings.list.concat().as_bytes());
    body.extend_from_slice(&(entries.len() as u32).to_le_bytes());
    body.extend_from_slice(&index);
    body.extend_from_slice(&records);
    let sum = crc32fast::hash(&body);
    [MAGIC.as_slice(), &VERSION.to_le_bytes(), &sum.to_le_bytes(), &body].concat()
}

fn put_text(into: &mut Vec<u8>, text: &[u8]) {
    into.extend_from_slice(&(text.len() as u32).to_le_bytes());
    into.extend_from_slice(text);
}

fn put_known<'a>(into: &mut Vec<u8>, strings: &mut Strings<'a>, known: &'a Known) {
    into.push(u8::from(known.place.is_some()));
    if let Some(Place { found: Found { line, chain }, symbol }) = &known.place {
        into.push(u8::from(line.is_some()));
        if let Some(line) = line {
            strings.put(into, line.file.as_deref());
            into.extend_from_slice(&line.number.to_le_bytes());
            into.extend_from_slice(&line.discriminator.to_le_bytes());
        }
        into.extend_from_slice(&(chain.len() as u32).to_le_bytes());
        for link in chain {
            into.extend_from_slice(&link.key.to_le_bytes());
            strings.put(into, link.name.as_deref());
            into.push(u8::from(link.is_linkage));
            into.push(u8::from(link.is_inlined));
            into.extend_from_slice(&link.low.to_le_bytes());
            strings.put(into, link.call_file.as_deref());
            into.extend_from_slice(&link.call_line.to_le_bytes());
        }
        into.push(u8::from(symbol.is_some()));
        if let Some(symbol) = symbol {
            into.extend_from_slice(&symbol.address.to_le_bytes());
            strings.put(into, Some(&symbol.name));
            strings.put(into, symbol.file.as_deref());
        }
    }
    match &known.routine {
        None => into.push(0),
        Some(Placed::Nothing) => into.push(1),
        Some(Placed::Behind) => into.push(2),
        Some(Placed::In(linked)) => {
            into.push(3 + u8::from(linked.is_bare));
            strings.put(into, Some(&linked.linker));
            into.extend_from_slice(&linked.start.to_le_bytes());
            into.extend_from_slice(&linked.end.to_le_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::thread;

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
        Store::open(cache.clone(), "id", Identity::default().with(b"image"), witness.clone())
    }

    fn known(number: u64) -> Known {
        let call = Link {
            key: number,
            name: Some(format!("name{number}")),
            is_linkage: number.is_multiple_of(2),
            is_inlined: number % 3 == 1,
            low: 7,
            call_file: None,
            call_line: 9,
        };
        let line = Line { file: Some("a.c".into()), number: number as u32, discriminator: 1 };
        let symbol = FunctionSymbol { address: number, name: "symbol".into(), file: None };
        let linked =
            Linked { linker: format!("_Z{number}"), is_bare: number.is_multiple_of(3), start: number, end: number + 1 };
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
        assert!(Cache::at(folder.0.join("cache")).is_none());
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
            let store = Store::open(cache.clone(), name, Identity::default(), Arc::default());
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
        assert_eq!(Store::open(cache.clone(), "used", Identity::default(), Arc::default()).get(1), known(1));
        fs::write(directory.join(".1-1.part"), "left").expect("written");
        let part = OpenOptions::new().write(true).open(directory.join(".1-1.part")).expect("our own file");
        part.set_modified(SystemTime::now() - 2 * ABANDONED).expect("a time");
        let size = fs::read_dir(&directory).expect("a directory").flatten().filter_map(|entry| entry.metadata().ok());
        let one = size.map(|meta| meta.len()).max().expect("files");
        let small = Arc::new(Cache { directory: directory.clone(), most_bytes: 2 * one, warning: OnceLock::new() });
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
