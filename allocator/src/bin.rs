//! The slabs of one size class in one arena.
//!
//! | slab | where | leaves when |
//! |---|---|---|
//! | current | `current` | its last region is taken |
//! | nonfull | heap, lowest address first | it becomes current, or all its regions are free (it goes back to the pages) |
//! | full | nowhere but the page map | a region comes back |
//!
//! Lowest address first keeps the live blocks together, so that high slabs empty. Blocks freed by threads of other
//! arenas arrive on `remote` as chains without the lock; whoever takes the lock next brings them in.
//!
//! Fields: `inner` lock:Bin; `remote` atomic; `class`, `shape` init-only. The arena's pages are reached through the
//! [`SlabSource`] that the caller passes, under rank `Pages`, which is inside `Bin`.
#![forbid(unsafe_code)]

use crate::diag;
use crate::ds::heap::Heap;
use crate::ds::link::same;
use crate::ds::remote::{Chain, FreeBlock, RemoteList};
use crate::emap;
use crate::extent::{Extent, State};
use crate::ptr::{BlockPtr, UserPtr};
use crate::sizeclass::{SlabShape, slab_shape};
use crate::slab::{self, SlabMisuse};
use crate::sync::mutex::{Guard, Mutex};
use crate::sync::rank::Rank;

/// Where slabs come from and go to.
pub(crate) trait SlabSource {
    /// A fresh slab of the class, all regions free, in the page map.
    fn new_slab(&self, class: usize, shape: &SlabShape) -> Option<&'static Extent>;
    /// Takes back a slab without live regions.
    fn end_slab(&self, slab: &'static Extent);
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
    pub slabs: u64,
    pub slabs_made: u64,
}

pub(crate) struct Inner {
    current: Option<&'static Extent>,
    nonfull: Heap<Extent>,
    stats: BinStats,
}

/// Proof of holding a bin's lock, without access to the bin.
pub(crate) struct Held<'a>(#[expect(dead_code, reason = "held, not used")] Guard<'a, Inner>);

/// One bin.
pub(crate) struct Bin {
    class: usize,
    arena: u32,
    shape: SlabShape,
    inner: Mutex<Inner>,
    remote: RemoteList<FreeBlock>,
}

impl Bin {
    pub(crate) fn new(arena: u32, class: usize) -> Bin {
        Bin {
            class,
            arena,
            shape: slab_shape(class),
            inner: Mutex::new(Rank::Bin, Inner { current: None, nonfull: Heap::new(), stats: BinStats::default() }),
            remote: RemoteList::new(),
        }
    }

    /// Hands out up to `want` regions; how many could be had. Fewer than `want` only when the system has no memory.
    pub(crate) fn take(&self, source: &impl SlabSource, want: usize, mut each: impl FnMut(*mut u8)) -> usize {
        let mut inner = self.inner.lock();
        self.drain(&mut inner, source);
        let mut got = 0;
        while got < want {
            let Some(slab) = self.current_slab(&mut inner, source) else { break };
            got += slab::take(slab, &self.shape, want - got, &mut each);
            if slab.nfree() == 0 {
                inner.current = None;
            }
        }
        inner.stats.allocs += got as u64;
        inner.stats.live += got as u64;
        inner.stats.fills += 1;
        got
    }

    /// Takes the lock for work on the samples of a slab.
    pub(crate) fn hold(&self) -> Held<'_> {
        Held(self.inner.lock())
    }

    /// Takes the lock to give blocks back with [`Bin::put`].
    pub(crate) fn lock(&self, source: &impl SlabSource) -> Guard<'_, Inner> {
        let mut inner = self.inner.lock();
        self.drain(&mut inner, source);
        inner.stats.flushes += 1;
        inner
    }

    /// Frees one block of this bin.
    pub(crate) fn put(&self, inner: &mut Inner, source: &impl SlabSource, slab: &'static Extent, block: BlockPtr) {
        if let Err(misuse) = slab::put(slab, &self.shape, block) {
            return report(block, misuse);
        }
        inner.stats.frees += 1;
        inner.stats.live = inner.stats.live.wrapping_sub(1);
        if inner.current.is_some_and(|current| same(current, slab)) {
            return;
        }
        let nfree = slab.nfree();
        if nfree == self.shape.nregs {
            if nfree > 1 {
                inner.nonfull.remove(slab);
            }
            inner.stats.slabs -= 1;
            source.end_slab(slab);
        } else if nfree == 1 {
            inner.nonfull.insert(slab);
        }
    }

    /// Gives a chain of blocks of this bin back from a thread of another arena: one exchange; and, if the lock happens
    /// to be free, brings everything in.
    pub(crate) fn put_remote(&self, source: &impl SlabSource, chain: &Chain) {
        self.remote.push(chain);
        if let Some(mut inner) = self.inner.try_lock() {
            inner.stats.flushes += 1;
            self.drain(&mut inner, source);
        }
    }

    /// Brings in what other threads gave back.
    pub(crate) fn collect(&self, source: &impl SlabSource) {
        if !self.remote.is_empty() {
            let mut inner = self.inner.lock();
            self.drain(&mut inner, source);
        }
    }

    pub(crate) fn stats(&self) -> BinStats {
        self.inner.lock().stats
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
        if !self.remote.is_empty() {
            self.drain_slow(inner, source);
        }
    }

    #[cold]
    fn drain_slow(&self, inner: &mut Inner, source: &impl SlabSource) {
        self.remote.drain(|block| match self.slab_of(block) {
            Some(slab) => self.put(inner, source, slab, BlockPtr(block)),
            None => report(BlockPtr(block), SlabMisuse::NotABlock),
        });
    }

    /// The slab of this bin that `block` lies in: what a link in a freed block says is checked before it is used.
    fn slab_of(&self, block: *mut u8) -> Option<&'static Extent> {
        let (_, slab) = emap::lookup(UserPtr(block))?;
        let ours =
            slab.arena() == self.arena && slab.state() == State::Active && slab.is_slab() && slab.class() == self.class;
        ours.then_some(slab)
    }

    fn current_slab(&self, inner: &mut Inner, source: &impl SlabSource) -> Option<&'static Extent> {
        if let Some(slab) = inner.current {
            return Some(slab);
        }
        let slab = if let Some(slab) = inner.nonfull.pop() {
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
