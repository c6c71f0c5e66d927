//! Live samples by address: hash chains in shards, each with a lock (`ProfLives`), one of which is held at a time. Blocks
//! of an arena go to a few shards of their own, so that threads of other arenas, on other processors, do not wait for
//! these locks and lines.
//!
//! ```text
//!  Shard ─► Buckets { heads: [_; 2^n], at most as many samples } ─► LiveCell ─► …      freed cells wait in the shard
//! ```
//!
//! I-LIVES-1: chains, cells and the free list of a shard change under its lock; what a chain leads to is a sample of a block
//! that someone owns, so the owner alone takes it out.
#![forbid(unsafe_code)]

use crate::prim::{AtomicU32, AtomicU64, Ordering};

use jeprobe_abi::root::{KIND_LIVE, LIVE_FREE};

use super::records::{Appender, Link, LiveCell, Ptr, alloc_blank, alloc_value, jeprobe_root};
use crate::sync::mutex::{Guard, Mutex};
use crate::sync::rank::Rank;

/// Groups of shards; arenas beyond their number share them.
const HOMES: usize = 32;
/// Shards of a group, for the threads of one arena.
const LG_SHARDS: u32 = 2;
const SHARDS: usize = HOMES << LG_SHARDS;
/// Buckets of a shard's first table, 64 bytes, and its first segment, of seven samples.
const FIRST_BUCKETS: usize = 8;
const FIRST_SEGMENT_BYTES: usize = 512;

#[repr(align(64))]
pub(super) struct Shard {
    buckets: Link<Buckets>,
    pub(super) lock: Mutex<ShardState>,
}

/// The number of heads is a power of two, never 0.
pub(super) struct Buckets {
    heads: &'static [Link<LiveCell>],
}

pub(super) struct ShardState {
    records: Appender,
    free: Option<Ptr<LiveCell>>,
    pub(super) live: usize,
}

static LIVES: [Shard; SHARDS] = [const {
    Shard {
        buckets: Link::none(),
        lock: Mutex::new(
            Rank::ProfLives,
            ShardState { records: Appender::new(KIND_LIVE, FIRST_SEGMENT_BYTES), free: None, live: 0 },
        ),
    }
}; SHARDS];

/// Shard and bucket hash of a block of the arena `home`. Blocks are at least 8 bytes apart.
#[inline]
pub(super) fn place(ptr: usize, home: u32) -> (&'static Shard, usize) {
    let hash = spread(ptr);
    let within = (hash >> (64 - LG_SHARDS)) as usize % (1 << LG_SHARDS);
    let shard = &LIVES[((home as usize % HOMES) << LG_SHARDS) + within];
    (shard, bucket(hash))
}

fn spread(ptr: usize) -> u64 {
    ((ptr >> 3) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn bucket(hash: u64) -> usize {
    (hash >> 20) as usize
}

/// Fetches what a sample of `ptr` will change, ahead of the time: nothing waits for these loads.
#[inline]
pub(super) fn fetch(ptr: usize, home: u32) {
    let (shard, hash) = place(ptr, home);
    if let Some(buckets) = shard.buckets.get() {
        let _ = buckets.head(hash).get();
    }
}

/// Takes every sample out of its chain, one shard at a time, and hands it to `each` before its cell is used again.
pub(super) fn clear(mut each: impl FnMut(Ptr<LiveCell>)) {
    for shard in &LIVES {
        let mut state = shard.lock.lock();
        let Some(buckets) = shard.buckets.get() else { continue };
        for head in buckets.heads {
            while let Some(live) = head.get() {
                head.set(live.next.get());
                each(live);
                state.recycle(live);
                state.live -= 1;
            }
        }
    }
}

/// Live samples, summed over the shards at slightly different moments.
#[cfg(test)]
pub(super) fn count() -> usize {
    LIVES.iter().map(|shard| shard.lock.lock().live).sum()
}

impl Shard {
    /// Takes the sample of `ptr` out of its chain.
    #[inline(always)]
    pub(super) fn unlink(&self, state: &mut Guard<'_, ShardState>, hash: usize, ptr: usize) -> Option<Ptr<LiveCell>> {
        let buckets = self.buckets.get()?;
        let head = buckets.head(hash);
        let mut before: Option<Ptr<LiveCell>> = None;
        let mut next = head.get();
        while let Some(live) = next {
            if live.ptr.load(Ordering::Relaxed) == ptr as u64 {
                match before {
                    None => head.set(live.next.get()),
                    Some(before) => before.next.set(live.next.get()),
                }
                state.live -= 1;
                return Some(live);
            }
            before = next;
            next = live.next.get();
        }
        None
    }

    /// The chain for a new sample, after making room for it.
    #[inline(always)]
    pub(super) fn head_for_insert(
        &self,
        state: &mut Guard<'_, ShardState>,
        hash: usize,
    ) -> Option<&'static Link<LiveCell>> {
        if let Some(buckets) = self.buckets.get()
            && state.live < buckets.heads.len()
        {
            return Some(buckets.head(hash));
        }
        self.grow(hash)
    }

    /// Makes twice as many chains; that for `hash`. Caller holds the lock.
    #[cold]
    #[inline(never)]
    fn grow(&self, hash: usize) -> Option<&'static Link<LiveCell>> {
        let old = self.buckets.get();
        let count = old.map_or(FIRST_BUCKETS, |old| old.heads.len() * 2);
        let grown = alloc_blank(count).and_then(|heads| alloc_value(Buckets { heads }));
        let Some(new) = grown else {
            // Longer chains are better than a lost sample.
            return old.map(|old| old.head(hash));
        };
        for head in old.iter().flat_map(|old| old.heads) {
            while let Some(live) = head.get() {
                head.set(live.next.get());
                let to = new.head(bucket(spread(live.ptr.load(Ordering::Relaxed) as usize)));
                live.next.set(to.get());
                to.set(Some(live));
            }
        }
        self.buckets.set(Some(new));
        Some(new.head(hash))
    }
}

impl Ptr<Buckets> {
    fn head(self, hash: usize) -> &'static Link<LiveCell> {
        let heads = self.heads;
        // The remainder, without a division.
        &heads[hash & (heads.len() - 1)]
    }
}

impl ShardState {
    #[inline(always)]
    pub(super) fn take(&mut self) -> Option<Ptr<LiveCell>> {
        if let Some(live) = self.free {
            self.free = live.next.get();
            return Some(live);
        }
        self.make()
    }

    #[cold]
    #[inline(never)]
    fn make(&mut self) -> Option<Ptr<LiveCell>> {
        let blank = LiveCell {
            ptr: AtomicU64::new(0),
            usable_bytes: AtomicU64::new(0),
            requested_bytes: AtomicU64::new(0),
            weight_bytes: AtomicU64::new(0),
            tctx: Link::none(),
            time_ns: AtomicU64::new(0),
            next: Link::none(),
            state: AtomicU32::new(LIVE_FREE),
            epoch: AtomicU32::new(0),
        };
        self.records.append(&jeprobe_root.lives, blank, 0, core::iter::empty())
    }

    #[inline(always)]
    pub(super) fn recycle(&mut self, live: Ptr<LiveCell>) {
        live.state.store(LIVE_FREE, Ordering::Release);
        live.next.set(self.free);
        self.free = Some(live);
    }
}

pub(super) fn prefork() {
    for shard in &LIVES {
        shard.lock.lock_for_fork();
    }
}

pub(super) fn postfork_parent() {
    for shard in &LIVES {
        shard.lock.unlock_for_fork();
    }
}

pub(super) fn postfork_child() {
    for shard in &LIVES {
        shard.lock.reset_in_child();
    }
}
