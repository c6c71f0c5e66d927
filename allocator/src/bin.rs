//! The slabs of one size class in one arena.
//!
//! | slab | where | leaves when |
//! |---|---|---|
//! | current | `current` | its last region is taken |
//! | nonfull | heap, lowest address first | it becomes current, or all its regions are free (it goes back to the pages) |
//! | full | nowhere but the page map | a region comes back |
//! | spare | list, newest last | it becomes current, or goes unused for a while (it goes back to the pages) |
//!
//! Lowest address first keeps the live blocks together, so that high slabs empty. A slab without live regions stays as a
//! spare, since taking it again costs a tenth of a cut and a merge of pages: [`Bin::collect`], which comes with each look
//! at the decay, gives back half of the spares that nobody needed since the last one, and a bin whose new slab would take
//! fresh memory gets some of the others' first. An arena that keeps no dirty pages keeps no spares.
//!
//! Frees come in batches; neighbours in a batch that lie in one slab are put back together, so that the slab's place is
//! looked up, checked and changed once for all of them. Blocks freed by threads of other arenas arrive on `remote` as
//! chains without the lock; whoever takes the lock next brings them in: mostly the owner with its next batch, so that the
//! slabs' lines stay in one cache.
//!
//! Fields: `inner` lock:Bin; `spares` written under lock:Bin, read by anyone as a hint; `remote`, `waiting` atomic, on a
//! cache line of their own, since threads of other arenas write them; `class`, `shape` init-only. The arena's pages are
//! reached through the [`SlabSource`] that the caller passes, under rank `Pages`, which is inside `Bin`.
#![forbid(unsafe_code)]

use crate::diag;
use crate::ds::heap::Heap;
use crate::ds::link::same;
use crate::ds::list::List;
use crate::ds::remote::{Chain, FreeBlock, Freed, RemoteList};
use crate::emap::{self, Tag};
use crate::extent::Extent;
use crate::prim::{AtomicPtr, AtomicU32, Ordering};
use crate::ptr::{BlockPtr, UserPtr};
use crate::sizeclass::{SlabShape, slab_shape};
use crate::slab::{self, SlabMisuse};
use crate::sync::mutex::Mutex;
use crate::sync::rank::Rank;

/// Bytes of spare slabs that a bin keeps at most.
const SPARE_MAX_BYTES: usize = 8 << 20;

/// Bytes that may wait on a remote list for the owner: a few of the batches that an owner takes. Beyond it the giver
/// brings them in, so that an owner that sleeps does not hold the memory.
const WAITING_MAX_BYTES: usize = 256 << 10;

/// Blocks of a remote list that are brought in together.
const DRAINED: usize = 64;

/// Where slabs come from and go to.
pub(crate) trait SlabSource {
    /// A fresh slab of the class, all regions free, in the page map.
    fn new_slab(&self, class: usize, shape: &SlabShape) -> Option<&'static Extent>;
    /// Takes back a slab without live regions.
    fn end_slab(&self, slab: &'static Extent);
    /// True when slabs without live regions may stay for a while.
    fn keeps_spares(&self) -> bool;
    /// Learns that a bin has a spare slab.
    fn note_spare(&self);
    /// True when no thread takes from here.
    fn is_deserted(&self) -> bool;
}

/// Counts of a bin since the arena was made, but `slabs` and `live` now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BinStats {
    /// Regions handed to caches or clients, and given back.
    pub allocs: u64,
    pub frees: u64,
    /// Batches of either.
    pub fills: u64,
    pub flushes: u64,
    /// Regions handed out now, cached ones included.
    pub live: u64,
    /// Slabs, spare ones included.
    pub slabs: u64,
    pub slabs_made: u64,
}

impl BinStats {
    /// The counts of both together.
    #[must_use]
    pub(crate) fn with(&self, other: &BinStats) -> BinStats {
        BinStats {
            allocs: self.allocs + other.allocs,
            frees: self.frees + other.frees,
            fills: self.fills + other.fills,
            flushes: self.flushes + other.flushes,
            live: self.live.wrapping_add(other.live),
            slabs: self.slabs + other.slabs,
            slabs_made: self.slabs_made + other.slabs_made,
        }
    }
}

pub(crate) struct Inner {
    current: Option<&'static Extent>,
    nonfull: Heap<Extent>,
    spare: List<Extent>,
    /// Fewest spares since the last look: so many were not needed.
    fewest_spares: u32,
    stats: BinStats,
}

/// One bin.
pub(crate) struct Bin {
    class: usize,
    arena: u32,
    /// What the page map says of the blocks that caches hold.
    tag: Tag,
    shape: SlabShape,
    inner: Mutex<Inner>,
    spares: AtomicU32,
    inbox: Inbox,
}

/// What threads of other arenas write.
#[repr(align(64))]
struct Inbox {
    remote: RemoteList<FreeBlock>,
    /// About how many blocks wait on `remote`.
    waiting: AtomicU32,
}

impl Bin {
    /// `fast`: what the page map stores for the class in slabs of this bin.
    pub(crate) fn new(arena: u32, class: usize, fast: usize) -> Bin {
        Bin {
            class,
            arena,
            tag: Tag::new(fast, arena),
            shape: slab_shape(class),
            inner: Mutex::new(
                Rank::Bin,
                Inner {
                    current: None,
                    nonfull: Heap::new(),
                    spare: List::new(),
                    fewest_spares: 0,
                    stats: BinStats::default(),
                },
            ),
            spares: AtomicU32::new(0),
            inbox: Inbox { remote: RemoteList::new(), waiting: AtomicU32::new(0) },
        }
    }

    /// Fills `batch`, whose slots are the calling thread's, with regions from the end on, by address in each slab; how many
    /// slots stay without one. Some only when the system has no memory.
    pub(crate) fn take(&self, source: &impl SlabSource, batch: &[AtomicPtr<u8>]) -> usize {
        let mut inner = self.inner.lock();
        self.drain(&mut inner, source);
        let mut rest = batch;
        while !rest.is_empty() {
            let Some(slab) = self.current_slab(&mut inner, source) else { break };
            let got = slab::take(slab, &self.shape, rest);
            rest = rest.get(..rest.len() - got).unwrap_or(&[]);
            if slab.nfree() == 0 {
                inner.current = None;
            }
        }
        let got = batch.len() - rest.len();
        inner.stats.allocs += got as u64;
        inner.stats.live += got as u64;
        inner.stats.fills += 1;
        rest.len()
    }

    /// One region.
    pub(crate) fn take_one(&self, source: &impl SlabSource) -> Option<*mut u8> {
        let place = AtomicPtr::new(core::ptr::null_mut());
        let missing = self.take(source, core::slice::from_ref(&place));
        (missing == 0).then(|| place.load(Ordering::Relaxed))
    }

    /// Frees one block of this bin.
    pub(crate) fn put(&self, source: &impl SlabSource, slab: &'static Extent, block: BlockPtr) {
        let mut inner = self.inner.lock();
        self.drain(&mut inner, source);
        inner.stats.flushes += 1;
        self.put_one(&mut inner, source, slab, block);
    }

    /// Frees the blocks of this bin among `blocks`, which are of this class; those of other arenas move to the front.
    /// How many these are.
    pub(crate) fn put_batch(&self, source: &impl SlabSource, blocks: &[AtomicPtr<u8>]) -> usize {
        let mut inner = self.inner.lock();
        self.drain(&mut inner, source);
        inner.stats.flushes += 1;
        let mut foreign = 0;
        self.put_all(
            &mut inner,
            source,
            blocks,
            |block| self.own(block),
            |rest| {
                let (read, moved) = self.move_run(blocks.get(foreign..).unwrap_or(&[]), rest);
                foreign += moved;
                read
            },
        );
        foreign
    }

    /// Frees the blocks of this bin among `blocks`, which are of this class; those of other arenas go into `chains`, or move to the
    /// front when there is none for their arena. How many these are.
    pub(crate) fn put_mixed(&self, source: &impl SlabSource, blocks: &[AtomicPtr<u8>], chains: &mut Chains) -> usize {
        let mut left = 0;
        let mut give = |rest: &[AtomicPtr<u8>]| {
            let (read, moved) = self.give_run(chains, blocks.get(left..).unwrap_or(&[]), rest);
            left += moved;
            read
        };
        let mut rest = blocks;
        // The lock is taken for blocks of this bin only.
        while let Some(first) = rest.first()
            && self.own(first.load(Ordering::Relaxed)).is_none()
        {
            rest = rest.get(give(rest)..).unwrap_or(&[]);
        }
        if !rest.is_empty() {
            let mut inner = self.inner.lock();
            self.drain(&mut inner, source);
            inner.stats.flushes += 1;
            self.put_all(&mut inner, source, rest, |block| self.own(block), give);
        }
        left
    }

    /// Adds those at the head of `from` that lie in one slab, of another arena, to that arena's chain, or moves them as
    /// [`Bin::move_run`] does. How many were read, one at least, and how many of these moved.
    #[inline(never)]
    fn give_run(&self, chains: &mut Chains, to: &[AtomicPtr<u8>], from: &[AtomicPtr<u8>]) -> (usize, usize) {
        let first = from.first().map_or(core::ptr::null_mut(), |slot| slot.load(Ordering::Relaxed));
        let Some(slab) = extent_of(self.class, first) else { return (1, 0) };
        let Some(chain) = chains.of(slab.arena()) else { return self.move_run(to, from) };
        match slab::gather(slab, &self.shape, from, |first, bits| chain.add_run(first, bits)) {
            0 => chain.add(BlockPtr(first)),
            run => return (run, 0),
        }
        (1, 0)
    }

    /// Moves those at the head of `from` that lie in one slab, of another arena, to the front of `to`, which is `from` or lies
    /// before it. How many were read, one at least, and how many of these moved: a block without a slab is reported.
    #[inline(never)]
    fn move_run(&self, to: &[AtomicPtr<u8>], from: &[AtomicPtr<u8>]) -> (usize, usize) {
        let first = from.first().map_or(core::ptr::null_mut(), |slot| slot.load(Ordering::Relaxed));
        let Some(slab) = extent_of(self.class, first) else { return (1, 0) };
        let mut run = 0;
        for (place, slot) in to.iter().zip(from) {
            let block = slot.load(Ordering::Relaxed);
            if !slab::spans(slab, &self.shape, block) {
                break;
            }
            place.store(block, Ordering::Relaxed);
            run += 1;
        }
        (run.max(1), run)
    }

    /// Frees `blocks`, of which `slab_of` tells the slab if it is one of this bin; `other` is given those from the first one on of
    /// which it does not, and says how many of them, one at least, it has dealt with.
    #[inline(always)]
    fn put_all(
        &self,
        inner: &mut Inner,
        source: &impl SlabSource,
        blocks: &[AtomicPtr<u8>],
        slab_of: impl Fn(*mut u8) -> Option<&'static Extent>,
        mut other: impl FnMut(&[AtomicPtr<u8>]) -> usize,
    ) {
        let shape = self.shape;
        let region_bytes = shape.region_bytes();
        let mut all_freed = 0;
        let mut rest = blocks;
        while let Some((first, behind)) = rest.split_first() {
            // Relaxed, here and below: the array is the calling thread's.
            let block = first.load(Ordering::Relaxed);
            let Some(slab) = slab_of(block) else {
                rest = rest.get(other(rest)..).unwrap_or(&[]);
                continue;
            };
            if slab::put_alone(slab, &shape, region_bytes, rest) {
                let nfree = slab.nfree() + 1;
                slab.set_nfree(nfree);
                all_freed += 1;
                rest = behind;
                if nfree == 1 || nfree == shape.nregs {
                    self.place(inner, source, slab, nfree - 1);
                }
                continue;
            }
            let (freed, misuse) = slab::put_run(slab, &shape, rest);
            rest = rest.get(freed..).unwrap_or(&[]);
            all_freed += freed as u64;
            let before = slab.nfree();
            slab.set_nfree(before + freed as u32);
            if before == 0 || before + freed as u32 == shape.nregs {
                self.place(inner, source, slab, before);
            }
            if (misuse.is_some() || freed == 0)
                && let Some((wrong, behind)) = rest.split_first()
            {
                // Without a misuse it lies behind the last region.
                report(BlockPtr(wrong.load(Ordering::Relaxed)), misuse.unwrap_or(SlabMisuse::NotABlock));
                rest = behind;
            }
        }
        inner.stats.frees += all_freed;
        inner.stats.live = inner.stats.live.wrapping_sub(all_freed);
    }

    /// The slab of a block that caches hold, if it is one of this bin.
    #[inline]
    fn own(&self, block: *mut u8) -> Option<&'static Extent> {
        let word = emap::word(block.addr());
        if word.tag() != self.tag {
            return None;
        }
        word.extent().filter(|slab| slab.arena() == self.arena)
    }

    fn put_one(&self, inner: &mut Inner, source: &impl SlabSource, slab: &'static Extent, block: BlockPtr) {
        match slab::put(slab, &self.shape, block) {
            Ok(()) => self.settle(inner, source, slab, 1),
            Err(misuse) => report(block, misuse),
        }
    }

    /// Counts that `freed` regions of a slab came back, and moves it to where it belongs then.
    #[inline]
    fn settle(&self, inner: &mut Inner, source: &impl SlabSource, slab: &'static Extent, freed: u32) {
        let before = slab.nfree();
        slab.set_nfree(before + freed);
        inner.stats.frees += u64::from(freed);
        inner.stats.live = inner.stats.live.wrapping_sub(u64::from(freed));
        self.place(inner, source, slab, before);
    }

    /// Moves a slab that had `before` free regions to where it belongs now.
    fn place(&self, inner: &mut Inner, source: &impl SlabSource, slab: &'static Extent, before: u32) {
        let nfree = slab.nfree();
        if nfree == before || inner.current.is_some_and(|current| same(current, slab)) {
            return;
        }
        if nfree == self.shape.nregs {
            if before > 0 {
                inner.nonfull.remove(slab);
            }
            self.spare(inner, source, slab);
        } else if before == 0 {
            inner.nonfull.insert(slab);
        }
    }

    /// Keeps a slab without live regions, or gives it back.
    fn spare(&self, inner: &mut Inner, source: &impl SlabSource, slab: &'static Extent) {
        let spares = self.spares.load(Ordering::Relaxed);
        if source.keeps_spares() && (spares as usize + 1) * self.shape.slab_bytes as usize <= SPARE_MAX_BYTES {
            inner.spare.push_back(slab);
            self.spares.store(spares + 1, Ordering::Relaxed);
            source.note_spare();
        } else {
            inner.stats.slabs -= 1;
            source.end_slab(slab);
        }
    }

    /// Gives back up to `count` spares, the oldest first.
    fn end_spares(&self, inner: &mut Inner, source: &impl SlabSource, count: u32) {
        for _ in 0..count {
            let Some(slab) = inner.spare.pop_front() else { break };
            self.spares.store(self.spares.load(Ordering::Relaxed) - 1, Ordering::Relaxed);
            inner.stats.slabs -= 1;
            source.end_slab(slab);
        }
        inner.fewest_spares = inner.fewest_spares.min(self.spares.load(Ordering::Relaxed));
    }

    /// Gives a chain of blocks of this bin back from a thread of another arena: one exchange. They are brought in by the
    /// owner with its next batch; by the giver only when nobody else will, or when much has come together.
    pub(crate) fn put_remote(&self, source: &impl SlabSource, chain: &mut Chain) {
        self.inbox.remote.push(chain);
        // Relaxed, and reset without order to the pushes: a hint, whose error is a chain or two.
        let waiting = self.inbox.waiting.fetch_add(chain.len(), Ordering::Relaxed) + chain.len();
        if (waiting as usize * self.shape.size as usize > WAITING_MAX_BYTES || source.is_deserted())
            && let Some(mut inner) = self.inner.try_lock()
        {
            self.drain(&mut inner, source);
        }
    }

    /// Brings in what other threads gave back, and gives back half of the spares that went unused since the last call.
    pub(crate) fn collect(&self, source: &impl SlabSource) {
        if !self.inbox.remote.is_empty() || self.spares.load(Ordering::Relaxed) > 0 {
            let mut inner = self.inner.lock();
            self.drain(&mut inner, source);
            let unused = inner.fewest_spares.div_ceil(2);
            self.end_spares(&mut inner, source, unused);
            inner.fewest_spares = self.spares.load(Ordering::Relaxed);
        }
    }

    /// Brings in what other threads gave back, and gives back all spares.
    pub(crate) fn purge(&self, source: &impl SlabSource) {
        let mut inner = self.inner.lock();
        self.drain(&mut inner, source);
        self.end_spares(&mut inner, source, u32::MAX);
    }

    /// About how many bytes spare slabs have.
    pub(crate) fn spare_bytes(&self) -> usize {
        // Relaxed: a hint.
        self.spares.load(Ordering::Relaxed) as usize * self.shape.slab_bytes as usize
    }

    /// True with spares; a hint.
    #[inline]
    pub(crate) fn has_spares(&self) -> bool {
        self.spares.load(Ordering::Relaxed) > 0
    }

    /// Gives back up to `count` spares unless the bin is in use: for when memory is short and another bin's lock is held.
    /// True when there were any.
    pub(crate) fn try_end_spares(&self, source: &impl SlabSource, count: u32) -> bool {
        if !self.has_spares() {
            return false;
        }
        let Some(mut inner) = self.inner.try_lock() else { return false };
        self.end_spares(&mut inner, source, count);
        true
    }

    /// Counts, once what other threads gave back is brought in.
    pub(crate) fn stats(&self, source: &impl SlabSource) -> BinStats {
        let mut inner = self.inner.lock();
        self.drain(&mut inner, source);
        inner.stats
    }

    pub(crate) fn prefork(&self) {
        self.inner.lock_for_fork();
    }

    pub(crate) fn postfork_parent(&self) {
        self.inner.unlock_for_fork();
    }

    pub(crate) fn postfork_child(&self) {
        self.inner.reset_in_child();
    }

    #[inline]
    fn drain(&self, inner: &mut Inner, source: &impl SlabSource) {
        if !self.inbox.remote.is_empty() {
            self.drain_slow(inner, source);
        }
    }

    #[cold]
    fn drain_slow(&self, inner: &mut Inner, source: &impl SlabSource) {
        self.inbox.waiting.store(0, Ordering::Relaxed);
        inner.stats.flushes += 1;
        // Those that come together often lie in one slab.
        let places: [AtomicPtr<u8>; DRAINED] = core::array::from_fn(|_| AtomicPtr::default());
        let mut len = 0;
        // What waits here is handed out still.
        let most = inner.stats.live;
        self.inbox.remote.drain(self.shape.size as usize, most, |freed| match freed {
            Freed::One(block) => {
                if let Some(place) = places.get(len) {
                    place.store(block, Ordering::Relaxed);
                }
                len += 1;
                if len == DRAINED {
                    self.put_drained(inner, source, &places);
                    len = 0;
                }
            }
            Freed::Run(first, bits) => self.put_word(inner, source, BlockPtr(first), bits),
        });
        self.put_drained(inner, source, places.get(..len).unwrap_or(&[]));
    }

    /// Frees those of the 64 regions from `first` on whose bits are set.
    fn put_word(&self, inner: &mut Inner, source: &impl SlabSource, first: BlockPtr, bits: u64) {
        let Some(slab) = self.slab_of(first.0) else { return report(first, SlabMisuse::NotABlock) };
        match slab::put_word(slab, &self.shape, first, bits) {
            Some(freed) => self.settle(inner, source, slab, freed),
            None => self.put_word_slow(inner, source, first, bits),
        }
    }

    /// As [`Bin::put_word`], region by region, so that what is wrong is told.
    #[cold]
    fn put_word_slow(&self, inner: &mut Inner, source: &impl SlabSource, first: BlockPtr, bits: u64) {
        for bit in (0..64).filter(|bit| bits >> bit & 1 == 1) {
            let block = BlockPtr(first.0.wrapping_add(bit * self.shape.size as usize));
            match self.slab_of(block.0) {
                Some(slab) => self.put_one(inner, source, slab, block),
                None => report(block, SlabMisuse::NotABlock),
            }
        }
    }

    fn put_drained(&self, inner: &mut Inner, source: &impl SlabSource, blocks: &[AtomicPtr<u8>]) {
        self.put_all(
            inner,
            source,
            blocks,
            |block| self.slab_of(block),
            |rest| {
                if let Some(wrong) = rest.first() {
                    report(BlockPtr(wrong.load(Ordering::Relaxed)), SlabMisuse::NotABlock);
                }
                1
            },
        );
    }

    /// The slab of this bin that `block` lies in: what a link in a freed block says is checked before it is used.
    fn slab_of(&self, block: *mut u8) -> Option<&'static Extent> {
        let (_, slab) = emap::lookup(UserPtr(block))?;
        let ours = slab.arena() == self.arena && slab.is_active() && slab.is_slab() && slab.class() == self.class;
        ours.then_some(slab)
    }

    fn current_slab(&self, inner: &mut Inner, source: &impl SlabSource) -> Option<&'static Extent> {
        if let Some(slab) = inner.current {
            return Some(slab);
        }
        let slab = if let Some(slab) = inner.nonfull.pop() {
            slab
        } else if let Some(slab) = inner.spare.last() {
            inner.spare.remove(slab);
            let left = self.spares.load(Ordering::Relaxed) - 1;
            self.spares.store(left, Ordering::Relaxed);
            inner.fewest_spares = inner.fewest_spares.min(left);
            slab
        } else {
            let slab = source.new_slab(self.class, &self.shape)?;
            inner.stats.slabs += 1;
            inner.stats.slabs_made += 1;
            slab
        };
        slab::check(slab);
        inner.current = Some(slab);
        Some(slab)
    }
}

/// Arenas whose blocks a flush sorts out in one pass.
const CHAINS: usize = 4;

/// Chains of blocks of one length, each for an arena.
pub(crate) struct Chains {
    bytes: usize,
    of: [(u32, Chain); CHAINS],
}

impl Chains {
    /// None, for blocks of `bytes`.
    #[inline]
    pub(crate) fn new(bytes: usize) -> Chains {
        Chains { bytes, of: [const { (u32::MAX, Chain::none()) }; CHAINS] }
    }

    /// The chain of an arena; `None` when there are too many.
    #[inline]
    fn of(&mut self, arena: u32) -> Option<&mut Chain> {
        let (owner, chain) = self.of.iter_mut().find(|(owner, _)| *owner == arena || *owner == u32::MAX)?;
        if *owner == u32::MAX {
            *owner = arena;
            *chain = Chain::new(self.bytes);
        }
        Some(chain)
    }

    /// Each with its arena.
    #[inline]
    pub(crate) fn each(&mut self, mut act: impl FnMut(u32, &mut Chain)) {
        for (owner, chain) in self.of.iter_mut().take_while(|(owner, _)| *owner != u32::MAX) {
            act(*owner, chain);
        }
    }
}

/// The active extent of a block that was cached under `class`; reports a block that has none.
#[inline]
pub(crate) fn extent_of(class: usize, block: *mut u8) -> Option<&'static Extent> {
    let found = emap::lookup(UserPtr(block)).map(|(_, extent)| extent);
    let valid = found.filter(|extent| extent.is_active() && extent.class() == class);
    if valid.is_none() {
        // Its slab ended although this block was in a cache: it had been freed before.
        report(BlockPtr(block), SlabMisuse::DoubleFree);
    }
    valid
}

/// Says what was wrong with a freed pointer; the block is left alone.
#[cold]
#[inline(never)]
pub(crate) fn report(block: BlockPtr, misuse: SlabMisuse) {
    let what = match misuse {
        SlabMisuse::NotABlock => " is not the start of a block; ignored",
        SlabMisuse::DoubleFree => " was freed twice; ignored",
    };
    let line = diag::Line::new().text("invalid free: ").hex(block.addr()).text(what);
    if crate::conf::options().abort { line.abort() } else { line.send() }
}
