//! Reads a profile table: of the own process, of another one, of a core file. Allocates nothing.
//!
//! The bytes come through [`RemoteMemory`]; nothing in them is believed: magic, version, sizes and kinds are checked,
//! lists are followed with a cycle check and a bound, records are copied and decoded field by field. A record that was
//! caught while it changed is skipped and counted as torn ([`crate::drops::Reason::TornRead`]).
//!
//! Calls pass each record to a closure, which may end the walk with an error of its own.
#![forbid(unsafe_code)]

use core::mem::size_of;

use crate::abi::{ABI_VERSION, MAX_FRAMES, ROOT_MAGIC};
use crate::decode::{self, Fields};
use crate::pack;
use crate::root::{
    Apart, CONTEXT_PLAIN, Context, Counts, KIND_CONTEXT, KIND_LIVE, KIND_TCTX, KIND_THREAD, LIVE_FREE, LIVE_SET, Live,
    Root, STATE_READY, Segment, Tctx, Thread,
};

/// Copies bytes out of an address space.
pub trait RemoteMemory {
    /// Fills `buf` from `addr`, whole or not at all.
    fn read(&self, addr: u64, buf: &mut [u8]) -> Result<(), Unreadable>;
}

/// `addr` could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unreadable {
    pub addr: u64,
}

/// Why a table cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TableError {
    /// Memory that should hold a part of the table cannot be read.
    Unreadable { addr: u64 },
    /// No profile table at this address.
    BadMagic { found: u64 },
    /// A table of another version.
    BadVersion { found: u32 },
    /// The allocator of the process has not started.
    NotReady,
    /// Record sizes differ from this version's.
    BadSizes,
    /// A segment whose header makes no sense.
    BadSegment { addr: u64 },
    /// A list that leads back to itself.
    Cycle { addr: u64 },
}

impl From<Unreadable> for TableError {
    fn from(error: Unreadable) -> TableError {
        TableError::Unreadable { addr: error.addr }
    }
}

impl core::fmt::Display for TableError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            TableError::Unreadable { addr } => write!(f, "memory of the profile table at {addr:#x} cannot be read"),
            TableError::BadMagic { found } => write!(f, "no profile table at this address (found {found:#018x})"),
            TableError::BadVersion { found } => {
                write!(f, "profile table of version {found}, this program reads version {ABI_VERSION}")
            }
            TableError::NotReady => write!(f, "the allocator of the process has not started"),
            TableError::BadSizes => write!(f, "record sizes of the profile table differ from this version's"),
            TableError::BadSegment { addr } => write!(f, "damaged segment of the profile table at {addr:#x}"),
            TableError::Cycle { addr } => write!(f, "a list of the profile table leads back to itself at {addr:#x}"),
        }
    }
}

impl core::error::Error for TableError {}

/// What a walk saw.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Walk {
    pub records: u64,
    /// Records skipped because they changed or made no sense.
    pub torn: u64,
}

/// Counts of one stack in one thread.
#[derive(Clone, Copy, Debug)]
pub struct TctxCounts {
    /// Address of the [`Context`].
    pub context: u64,
    /// Address of the [`Thread`].
    pub thread: u64,
    /// Samples of the thread less those that it freed itself.
    pub kept: Counts,
    /// Samples of the thread that others freed.
    pub freed: Counts,
    /// Samples ever taken, where they are counted.
    pub cumulative: Counts,
}

impl TctxCounts {
    /// What is live: `kept` less `freed`, and nothing where a change in between would make that negative.
    pub fn current(&self) -> Counts {
        // Words of one record may belong to slightly different moments: each by itself.
        let less = u64::saturating_sub;
        Counts {
            objects: less(self.kept.objects, self.freed.objects),
            bytes: less(self.kept.bytes, self.freed.bytes),
            weight_objects8: less(self.kept.weight_objects8, self.freed.weight_objects8),
            weight_bytes: less(self.kept.weight_bytes, self.freed.weight_bytes),
        }
    }
}

/// Bytes copied at a time: four read calls per page of records would dominate a remote walk.
const CHUNK: usize = 4096;
/// Largest capacity believed of one segment, bytes.
const MAX_SEGMENT_BYTES: u64 = 1 << 32;
/// Tctx records followed from one context: more threads than a kernel allows.
const MAX_TCTXS: u64 = 1 << 23;
const CONTEXT_BYTES: usize = size_of::<Context>() + MAX_FRAMES * 8;

/// A profile table whose root was read and checked.
pub struct Table<'m, M> {
    memory: &'m M,
    root: Root,
}

impl<'m, M: RemoteMemory> Table<'m, M> {
    /// Reads and checks the root at `root_addr`.
    pub fn open(memory: &'m M, root_addr: u64) -> Result<Table<'m, M>, TableError> {
        let mut bytes = [0; size_of::<Root>()];
        memory.read(root_addr, &mut bytes)?;
        let root = decode::root(&bytes);
        if root.magic != ROOT_MAGIC {
            return Err(TableError::BadMagic { found: root.magic });
        }
        if root.abi_version != ABI_VERSION {
            return Err(TableError::BadVersion { found: root.abi_version });
        }
        let sizes = [
            (root.root_size, size_of::<Root>()),
            (root.segment_size, size_of::<Segment>()),
            (root.context_size, size_of::<Context>()),
            (root.tctx_size, size_of::<Tctx>()),
            (root.live_size, size_of::<Live>()),
            (root.thread_size, size_of::<Thread>()),
        ];
        if sizes.iter().any(|&(said, ours)| said as usize != ours) {
            return Err(TableError::BadSizes);
        }
        if root.state != STATE_READY {
            return Err(TableError::NotReady);
        }
        let mut table = Table { memory, root };
        let (mut samples, mut frees) = (root.samples, root.frees);
        // Of a damaged list what could be read: the counters are no reason to refuse the rest.
        let _ = table.threads(|_, thread| {
            if thread.alive == 1 {
                samples = samples.wrapping_add(thread.samples);
                frees = frees.wrapping_add(thread.frees);
            }
            Ok::<_, TableError>(())
        });
        (table.root.samples, table.root.frees) = (samples, frees);
        Ok(table)
    }

    /// The root as it was when the table was opened; `samples` and `frees` with those of the living threads.
    pub fn root(&self) -> &Root {
        &self.root
    }

    pub fn threads<E: From<TableError>>(&self, mut each: impl FnMut(u64, &Thread) -> Result<(), E>) -> Result<Walk, E> {
        self.fixed::<E>(self.root.threads, KIND_THREAD, size_of::<Thread>(), |addr, bytes, walk| {
            walk.records += 1;
            each(addr, &decode::thread(bytes))
        })
    }

    pub fn tctxs<E: From<TableError>>(
        &self,
        mut each: impl FnMut(u64, &TctxCounts) -> Result<(), E>,
    ) -> Result<Walk, E> {
        self.fixed::<E>(self.root.tctxs, KIND_TCTX, size_of::<Tctx>(), |addr, bytes, walk| {
            walk.records += 1;
            each(addr, &self.counts(addr, &decode::tctx(bytes))?)
        })
    }

    /// Live samples of the current epoch.
    pub fn lives<E: From<TableError>>(&self, mut each: impl FnMut(u64, &Live) -> Result<(), E>) -> Result<Walk, E> {
        let epoch = self.root.epoch;
        self.fixed::<E>(self.root.lives, KIND_LIVE, size_of::<Live>(), |addr, bytes, walk| {
            let live = decode::live(bytes);
            match live.state {
                LIVE_SET if live.ptr != 0 && live.tctx != 0 => {
                    if live.epoch == epoch {
                        walk.records += 1;
                        each(addr, &live)?;
                    }
                }
                LIVE_FREE => {}
                _ => walk.torn += 1,
            }
            Ok(())
        })
    }

    /// Every context with its frames: shape [u64; depth], leaf first, unit avma.
    pub fn contexts<E: From<TableError>>(
        &self,
        mut each: impl FnMut(u64, &Context, &[u64]) -> Result<(), E>,
    ) -> Result<Walk, E> {
        let mut walk = Walk::default();
        let mut frames = [0; MAX_FRAMES];
        self.segments::<E>(self.root.contexts, KIND_CONTEXT, |start, used| {
            let mut offset = 0;
            let mut chunk = [0; CHUNK];
            while offset < used {
                let filled = ((used - offset) as usize).min(CHUNK);
                self.memory.read(start + offset, &mut chunk[..filled]).map_err(TableError::from)?;
                let mut at = 0;
                while let Some(header) = chunk[..filled].get(at..at + size_of::<Context>()) {
                    let context = decode::context(header);
                    let words = usize::from(context.words);
                    if words > MAX_FRAMES {
                        // Its length is unlikely, and so is the place of the next record.
                        walk.torn += 1;
                        return Ok(());
                    }
                    let end = at + size_of::<Context>() + words * 8;
                    let Some(raw) = chunk[..filled].get(at + size_of::<Context>()..end) else { break };
                    if let Some(depth) = frames_of(&context, raw, &mut frames) {
                        walk.records += 1;
                        each(start + offset + at as u64, &context, &frames[..depth])?;
                    } else {
                        walk.torn += 1;
                    }
                    at = end;
                }
                if at == 0 {
                    walk.torn += 1;
                    return Ok(());
                }
                offset += at as u64;
            }
            Ok(())
        })?;
        Ok(walk)
    }

    /// One context by address, with its frames in the first `depth` words of `frames`.
    pub fn context(&self, addr: u64, frames: &mut [u64; MAX_FRAMES]) -> Result<Context, TableError> {
        let mut bytes = [0; CONTEXT_BYTES];
        self.memory.read(addr, &mut bytes[..size_of::<Context>()])?;
        let context = decode::context(&bytes);
        let Some(tail) = bytes.get_mut(..usize::from(context.words) * 8) else {
            return Err(TableError::BadSegment { addr });
        };
        self.memory.read(addr + size_of::<Context>() as u64, tail)?;
        frames_of(&context, tail, frames).map(|_| context).ok_or(TableError::BadSegment { addr })
    }

    /// The per-thread counts of one context.
    pub fn tctxs_of<E: From<TableError>>(
        &self,
        context: &Context,
        mut each: impl FnMut(u64, &TctxCounts) -> Result<(), E>,
    ) -> Result<Walk, E> {
        let mut walk = Walk::default();
        let mut cycle = CycleCheck::new();
        let mut next = context.tctxs;
        while next != 0 {
            let tctx = self.tctx(next)?;
            walk.records += 1;
            each(next, &self.counts(next, &tctx)?)?;
            next = tctx.next;
            cycle.step(next, MAX_TCTXS)?;
        }
        Ok(walk)
    }

    fn tctx(&self, addr: u64) -> Result<Tctx, TableError> {
        let mut bytes = [0; size_of::<Tctx>()];
        self.memory.read(addr, &mut bytes)?;
        Ok(decode::tctx(&bytes))
    }

    /// The counts of the tctx at `addr`, as which `tctx` was copied.
    fn counts(&self, addr: u64, tctx: &Tctx) -> Result<TctxCounts, TableError> {
        let Tctx { context, thread, kept, .. } = *tctx;
        if tctx.apart == 0 {
            return Ok(TctxCounts { context, thread, kept, freed: Counts::ZERO, cumulative: Counts::ZERO });
        }
        let mut bytes = [0; size_of::<Apart>()];
        self.memory.read(tctx.apart, &mut bytes)?;
        let Apart { freed, cumulative } = decode::apart(&bytes);
        // Once more, behind `freed`: see `Tctx`.
        Ok(TctxCounts { context, thread, kept: self.tctx(addr)?.kept, freed, cumulative })
    }

    pub fn thread(&self, addr: u64) -> Result<Thread, TableError> {
        let mut bytes = [0; size_of::<Thread>()];
        self.memory.read(addr, &mut bytes)?;
        Ok(decode::thread(&bytes))
    }

    /// Records of one size, chunk by chunk.
    fn fixed<E: From<TableError>>(
        &self,
        head: u64,
        kind: u32,
        record: usize,
        mut each: impl FnMut(u64, &[u8], &mut Walk) -> Result<(), E>,
    ) -> Result<Walk, E> {
        let mut walk = Walk::default();
        self.segments::<E>(head, kind, |start, used| {
            let mut chunk = [0; CHUNK];
            let per_chunk = CHUNK / record * record;
            let mut offset = 0;
            while offset < used {
                let filled = ((used - offset) as usize).min(per_chunk);
                self.memory.read(start + offset, &mut chunk[..filled]).map_err(TableError::from)?;
                let records = chunk[..filled].chunks_exact(record);
                if !records.remainder().is_empty() {
                    walk.torn += 1;
                }
                for (i, bytes) in records.enumerate() {
                    each(start + offset + (i * record) as u64, bytes, &mut walk)?;
                }
                offset += filled as u64;
            }
            Ok(())
        })?;
        Ok(walk)
    }

    /// Each segment's first record and the bytes that may be read.
    fn segments<E: From<TableError>>(
        &self,
        head: u64,
        kind: u32,
        mut each: impl FnMut(u64, u64) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut cycle = CycleCheck::new();
        let mut addr = head;
        while addr != 0 {
            let mut bytes = [0; size_of::<Segment>()];
            self.memory.read(addr, &mut bytes).map_err(TableError::from)?;
            let segment = decode::segment(&bytes);
            let sane = segment.kind == kind
                && addr.is_multiple_of(8)
                && segment.used_bytes <= segment.capacity_bytes
                && segment.used_bytes.is_multiple_of(8)
                && segment.capacity_bytes <= MAX_SEGMENT_BYTES
                && addr.checked_add(MAX_SEGMENT_BYTES + size_of::<Segment>() as u64).is_some();
            if !sane {
                return Err(TableError::BadSegment { addr }.into());
            }
            each(addr + size_of::<Segment>() as u64, segment.used_bytes)?;
            addr = segment.next;
            cycle.step(addr, u64::MAX)?;
        }
        Ok(())
    }
}

/// Decodes the frames of a context out of the words behind it; how many they are, `None` when they are not what it says.
fn frames_of(context: &Context, raw: &[u8], frames: &mut [u64; MAX_FRAMES]) -> Option<usize> {
    let depth = usize::from(context.depth);
    let frames = frames.get_mut(..depth)?;
    let mut words = [0; MAX_FRAMES];
    let words = words.get_mut(..raw.len() / 8)?;
    let mut fields = Fields(raw);
    for word in &mut *words {
        *word = fields.u64();
    }
    if context.flags & CONTEXT_PLAIN != 0 {
        frames.copy_from_slice(words.get(..depth)?);
    } else if !pack::unpack(words, frames) {
        return None;
    }
    Some(depth)
}

/// Brent's cycle check: remembers one earlier address and moves it at doubling distances.
struct CycleCheck {
    mark: u64,
    steps: u64,
    limit: u64,
    total: u64,
}

impl CycleCheck {
    fn new() -> CycleCheck {
        CycleCheck { mark: 0, steps: 0, limit: 1, total: 0 }
    }

    fn step(&mut self, addr: u64, max: u64) -> Result<(), TableError> {
        self.total += 1;
        if addr != 0 && (addr == self.mark || self.total > max) {
            return Err(TableError::Cycle { addr });
        }
        self.steps += 1;
        if self.steps == self.limit {
            self.mark = addr;
            self.steps = 0;
            self.limit = self.limit.saturating_mul(2);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::{RemoteMemory, Table, TableError, Unreadable, Walk};
    use crate::abi::{ABI_VERSION, MAX_FRAMES, ROOT_MAGIC};
    use crate::root::{
        Counts, KIND_CONTEXT, KIND_LIVE, KIND_TCTX, KIND_THREAD, LIVE_BUSY, LIVE_FREE, LIVE_SET, STATE_READY,
    };

    const BASE: u64 = 0x10_0000;

    /// A table built word by word, so that the tests do not share the decoder's idea of the layout.
    struct Image(Vec<u8>);

    impl RemoteMemory for Image {
        fn read(&self, addr: u64, buf: &mut [u8]) -> Result<(), Unreadable> {
            let start = addr.checked_sub(BASE).ok_or(Unreadable { addr })? as usize;
            let bytes = self.0.get(start..start + buf.len()).ok_or(Unreadable { addr })?;
            buf.copy_from_slice(bytes);
            Ok(())
        }
    }

    impl Image {
        fn u32(&mut self, offset: usize, value: u32) {
            self.0[offset..offset + 4].copy_from_slice(&value.to_ne_bytes());
        }

        fn u64(&mut self, offset: usize, value: u64) {
            self.0[offset..offset + 8].copy_from_slice(&value.to_ne_bytes());
        }

        fn segment(&mut self, at: usize, next: u64, kind: u32, used: u64) {
            self.u64(at, next);
            self.u32(at + 8, kind);
            self.u64(at + 16, used);
            self.u64(at + 24, 1024);
        }

        /// Root, one segment of each kind at 0x1000, 0x2000, 0x3000, 0x4000: three contexts of 2 frames, none and 2, one tctx,
        /// four live slots (free, busy, set, set of an older epoch), one thread.
        fn sample() -> Image {
            let mut image = Image(std::vec![0; 0x5000]);
            image.u64(0, ROOT_MAGIC);
            image.u32(8, ABI_VERSION);
            for (i, size) in [344, 32, 24, 64, 64, 80].into_iter().enumerate() {
                image.u32(12 + 4 * i, size);
            }
            image.u32(36, STATE_READY);
            image.u32(44, 3);
            image.u32(60, 19);
            for (i, at) in [0x1000_u64, 0x2000, 0x3000, 0x4000].into_iter().enumerate() {
                image.u64(264 + 8 * i, BASE + at);
            }
            image.segment(0x1000, 0, KIND_CONTEXT, 24 + 8 + 24 + 24 + 16);
            image.u64(0x1020 + 8, BASE + 0x2020);
            // Depth 2 in a word: 0xaaaa is 3 bytes of 0x15554 above their length, 0xbbbb as many of 0x2222.
            image.u32(0x1020 + 16, 2 | 1 << 16);
            image.u64(0x1020 + 24, 0x15554 << 3 | 2 | (0x2222 << 3 | 2) << 24);
            // Not packed.
            image.u32(0x1058 + 16, 2 | 2 << 16);
            image.u32(0x1058 + 20, 2);
            image.u64(0x1058 + 24, 0xcccc);
            image.u64(0x1058 + 32, u64::MAX);
            image.segment(0x2000, 0, KIND_TCTX, 64);
            image.u64(0x2020, BASE + 0x1020);
            image.u64(0x2020 + 16, BASE + 0x4020);
            image.u64(0x2020 + 24, BASE + 0x2800);
            // Kept by the thread, freed by others, of each the objects and the bytes; ever taken.
            image.u64(0x2020 + 32, 9);
            image.u64(0x2020 + 40, 800);
            image.u64(0x2800, 2);
            image.u64(0x2808, 900);
            image.u64(0x2820, 11);
            image.segment(0x3000, 0, KIND_LIVE, 4 * 64);
            for (i, (state, epoch)) in
                [(LIVE_FREE, 3), (LIVE_BUSY, 3), (LIVE_SET, 3), (LIVE_SET, 2)].into_iter().enumerate()
            {
                image.u64(0x3020 + 64 * i, 0x7000 + i as u64);
                image.u64(0x3020 + 64 * i + 32, BASE + 0x2020);
                image.u32(0x3020 + 64 * i + 56, state);
                image.u32(0x3020 + 64 * i + 60, epoch);
            }
            image.segment(0x4000, 0, KIND_THREAD, 80);
            image.u32(0x4020 + 4, 77);
            image.u32(0x4020 + 8, 1);
            image.u64(0x4020 + 32, 9);
            image.u64(0x4020 + 40, 3);
            image.0[0x4020 + 16..0x4020 + 20].copy_from_slice(b"main");
            image
        }

        fn open(&self) -> Result<Table<'_, Image>, TableError> {
            Table::open(self, BASE)
        }
    }

    #[test]
    fn walks_every_list() {
        let image = Image::sample();
        let table = image.open().expect("a sound table");
        assert_eq!(table.root().lg_sample, 19);
        assert_eq!((table.root().samples, table.root().frees), (9, 3));
        let mut stacks = Vec::new();
        let walk = table
            .contexts(|addr, context, frames| {
                let mut shares = Counts::ZERO;
                table.tctxs_of::<TableError>(context, |_, tctx| {
                    assert_eq!(tctx.cumulative.objects, 11);
                    shares = tctx.current();
                    Ok(())
                })?;
                stacks.push((addr, shares.objects, shares.bytes, frames.to_vec()));
                Ok::<_, TableError>(())
            })
            .expect("contexts");
        assert_eq!(walk, Walk { records: 3, torn: 0 });
        // Bytes that were freed before they were seen to come are none.
        let want = [
            (BASE + 0x1020, 7, 0, std::vec![0xaaaa, 0xbbbb]),
            (BASE + 0x1040, 0, 0, std::vec![]),
            (BASE + 0x1058, 0, 0, std::vec![0xcccc, u64::MAX]),
        ];
        assert_eq!(stacks, want);
        let mut lives = Vec::new();
        let walk = table
            .lives(|_, live| {
                lives.push(live.ptr);
                Ok::<_, TableError>(())
            })
            .expect("lives");
        assert_eq!((walk, lives.as_slice()), (Walk { records: 1, torn: 1 }, &[0x7002][..]));
        let mut names = Vec::new();
        table
            .threads(|_, thread| {
                names.push((thread.tid, thread.name[..4].to_vec()));
                Ok::<_, TableError>(())
            })
            .expect("threads");
        assert_eq!(names, [(77, b"main".to_vec())]);
    }

    fn error_after(change: impl FnOnce(&mut Image)) -> Option<TableError> {
        let mut image = Image::sample();
        change(&mut image);
        let table = match image.open() {
            Ok(table) => table,
            Err(error) => return Some(error),
        };
        table
            .contexts(|_, context, _| table.tctxs_of::<TableError>(context, |_, _| Ok(())).map(|_| ()))
            .err()
            .or_else(|| table.lives(|_, _| Ok::<_, TableError>(())).err())
            .or_else(|| table.threads(|_, _| Ok::<_, TableError>(())).err())
    }

    #[test]
    fn damage_is_named_and_never_followed() {
        assert_eq!(error_after(|_| {}), None);
        assert_eq!(error_after(|i| i.u64(0, 1)), Some(TableError::BadMagic { found: 1 }));
        assert_eq!(error_after(|i| i.u32(8, 9)), Some(TableError::BadVersion { found: 9 }));
        assert_eq!(error_after(|i| i.u32(20, 8)), Some(TableError::BadSizes));
        assert_eq!(error_after(|i| i.u32(36, 0)), Some(TableError::NotReady));
        assert_eq!(error_after(|i| i.u64(264, 16)), Some(TableError::Unreadable { addr: 16 }));
        // Wrong kind, more used than there is, an odd length, an absurd capacity.
        let bad = Some(TableError::BadSegment { addr: BASE + 0x1000 });
        assert_eq!(error_after(|i| i.u32(0x1008, KIND_LIVE)), bad);
        assert_eq!(error_after(|i| i.u64(0x1010, 2048)), bad);
        assert_eq!(error_after(|i| i.u64(0x1010, 13)), bad);
        assert_eq!(error_after(|i| i.u64(0x1018, u64::MAX)), bad);
        assert_eq!(error_after(|i| i.u64(0x2038, 24)), Some(TableError::Unreadable { addr: 24 }));
        // Lists that lead back to themselves.
        assert_eq!(error_after(|i| i.u64(0x1000, BASE + 0x1000)), Some(TableError::Cycle { addr: BASE + 0x1000 }));
        assert_eq!(error_after(|i| i.u64(0x2028, BASE + 0x2020)), Some(TableError::Cycle { addr: BASE + 0x2020 }));
    }

    #[test]
    fn contexts_that_do_not_hold_their_frames_are_torn() {
        let walk_with = |depth_words| {
            let mut image = Image::sample();
            image.u32(0x1020 + 16, depth_words);
            let table = image.open().expect("root");
            let mut frames = [0; MAX_FRAMES];
            let alone = table.context(BASE + 0x1020, &mut frames).err();
            assert_eq!(alone, Some(TableError::BadSegment { addr: BASE + 0x1020 }), "{depth_words:#x}");
            table.contexts(|_, _, _| Ok::<_, TableError>(())).expect("walk")
        };
        // Of an impossible length, whose end is not known; of frames beyond the greatest depth, and beyond its words.
        assert_eq!(walk_with(2 | 0xfa0 << 16), Walk { records: 0, torn: 1 });
        assert_eq!(walk_with(0xfa0 | 1 << 16), Walk { records: 2, torn: 1 });
        assert_eq!(walk_with(9 | 1 << 16), Walk { records: 2, torn: 1 });
    }
}
