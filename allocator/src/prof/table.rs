//! The profile table's writer: threads, contexts, counts per context and thread, live samples.
//!
//! ```text
//!  record(ptr) ─► context (hash of frames) ─► tctx (context × thread) ─► live sample, in the shard of its address
//!  remove(ptr) ─► live sample ─► its tctx and context: counts go down
//! ```
//!
//! | part | found by | changed under |
//! |---|---|---|
//! | contexts | [`Index`], no lock | `ProfContexts` |
//! | tctxs | [`Index`], no lock | `ProfTctxs` |
//! | threads | the thread's own pointer | `ProfThreads` |
//! | live samples | hash chains in 64 shards | `ProfLives`, one shard at a time |
//!
//! I-TABLE-1: the counts of a live sample are in its tctx and context exactly while it is in its shard; both change
//! under the shard's lock. So removing each live sample brings all counts to zero. I-TABLE-2: a chain without the
//! address, read between two equal even values of the shard's sequence word, proves that the address is not sampled.
//! The owner of an object asks about it, so its own sample cannot come or go meanwhile.
//!
//! Memory is bounded by the greatest number of live samples, of distinct stacks (up to [`MAX_CONTEXT_BYTES`]) and of
//! threads that lived or had live samples at one time. Nothing here takes a lock of another part but base memory's.
#![forbid(unsafe_code)]

use crate::prim::{AtomicU32, AtomicU64, Ordering, fence};

use jeprobe_abi::logic::hash_frames;
use jeprobe_abi::root::{
    CONTEXT_TRUNCATED, KIND_CONTEXT, KIND_LIVE, KIND_TCTX, KIND_THREAD, LIVE_BUSY, LIVE_FREE, LIVE_SET,
};
use jeprobe_abi::unbias;

use super::index::Index;
use super::records::{
    Appender, ContextCell, CountsCell, Link, LiveCell, Ptr, Share, TctxCell, ThreadCell, alloc_links, alloc_value,
    jeprobe_root,
};
use crate::sync::mutex::{Guard, Mutex};
use crate::sync::rank::Rank;

/// Stacks kept, bytes: a program that makes new code without end must not fill memory with its stacks. Samples beyond
/// it are recorded without a stack. A context of 30 frames takes 336 bytes, so this is about 800,000 stacks.
pub(crate) const MAX_CONTEXT_BYTES: usize = 256 << 20;

struct Growing {
    records: Appender,
    count: usize,
}

impl Growing {
    const fn new(kind: u32) -> Growing {
        Growing { records: Appender::new(kind, 16 << 10), count: 0 }
    }
}

static CONTEXTS: Mutex<Growing> = Mutex::new(Rank::ProfContexts, Growing::new(KIND_CONTEXT));
static CONTEXT_INDEX: Index<ContextCell> = Index::new();
static TCTXS: Mutex<Growing> = Mutex::new(Rank::ProfTctxs, Growing::new(KIND_TCTX));
static TCTX_INDEX: Index<TctxCell> = Index::new();

struct Threads {
    records: Appender,
    next_uid: u32,
    first: Option<Ptr<ThreadNode>>,
}

/// Keeps the threads' records in reach of the process itself, newest first.
struct ThreadNode {
    record: Ptr<ThreadCell>,
    next: Option<Ptr<ThreadNode>>,
}

static THREADS: Mutex<Threads> =
    Mutex::new(Rank::ProfThreads, Threads { records: Appender::new(KIND_THREAD, 4 << 10), next_uid: 0, first: None });

/// The record of a new thread: that of an ended thread without live samples, or a fresh one. `None` without memory.
pub(crate) fn new_thread(tid: u32) -> Option<Ptr<ThreadCell>> {
    let mut threads = THREADS.lock();
    let uid = threads.next_uid;
    // Cumulative counts belong to the thread that made them, so its record is not used again while they are kept.
    let reusable = if jeprobe_root.opt_accum.load(Ordering::Relaxed) == 0 { threads.ended() } else { None };
    let record = if let Some(record) = reusable {
        record
    } else {
        let record = ThreadCell {
            uid: AtomicU32::new(uid),
            tid: AtomicU32::new(tid),
            alive: AtomicU32::new(0),
            pad: 0,
            name: [AtomicU64::new(0), AtomicU64::new(0)],
            samples: AtomicU64::new(0),
            allocated_bytes: AtomicU64::new(0),
            deallocated_bytes: AtomicU64::new(0),
            live: AtomicU64::new(0),
        };
        let record = threads.records.append(&jeprobe_root.threads, record, 0, core::iter::empty())?;
        threads.first = Some(alloc_value(ThreadNode { record, next: threads.first })?);
        record
    };
    record.uid.store(uid, Ordering::Relaxed);
    record.tid.store(tid, Ordering::Relaxed);
    record.name[0].store(0, Ordering::Relaxed);
    record.name[1].store(0, Ordering::Relaxed);
    record.samples.store(0, Ordering::Relaxed);
    record.alive.store(1, Ordering::Relaxed);
    threads.next_uid = uid.wrapping_add(1);
    Some(record)
}

impl Threads {
    fn iter(&self) -> impl Iterator<Item = Ptr<ThreadCell>> {
        core::iter::successors(self.first, |node| node.next).map(|node| node.record)
    }

    fn ended(&self) -> Option<Ptr<ThreadCell>> {
        self.iter().find(|t| t.alive.load(Ordering::Relaxed) == 0 && t.live.load(Ordering::Acquire) == 0)
    }
}

/// In the child of a fork only the thread goes on that had the kernel id `forker`; its id is now `tid`.
pub(crate) fn keep_only_thread(forker: u32, tid: u32) {
    for thread in THREADS.lock().iter().filter(|thread| thread.alive.load(Ordering::Relaxed) == 1) {
        if thread.tid.load(Ordering::Relaxed) == forker {
            thread.tid.store(tid, Ordering::Relaxed);
        } else {
            thread.alive.store(0, Ordering::Relaxed);
        }
    }
}

/// A stack to look up.
#[derive(Clone)]
pub(crate) struct Frames<I> {
    pub(crate) depth: usize,
    /// The same for the same frames.
    pub(crate) hash: u64,
    /// `depth` frames, leaf first, unit avma.
    pub(crate) leaf_first: I,
}

/// The record of a stack, and whether it is new. `None` without memory or beyond the limit.
pub(crate) fn context(
    stack: &Frames<impl Iterator<Item = u64> + Clone>,
    truncated: bool,
) -> Option<(Ptr<ContextCell>, bool)> {
    let Frames { depth, hash, .. } = *stack;
    let is_this = |context: &Ptr<ContextCell>| {
        context.hash == hash
            && context.depth as usize == depth
            && context.frames().iter().zip(stack.leaf_first.clone()).all(|(known, frame)| *known == frame)
    };
    if let Some(context) = CONTEXT_INDEX.find(hash, is_this) {
        return Some((context, false));
    }
    let mut contexts = CONTEXTS.lock();
    if let Some(context) = CONTEXT_INDEX.find(hash, is_this) {
        return Some((context, false));
    }
    if contexts.records.taken_bytes > MAX_CONTEXT_BYTES && depth != 0 {
        return None;
    }
    let record = ContextCell {
        hash,
        next: 0,
        tctxs: Link::none(),
        depth: depth as u32,
        flags: if truncated { CONTEXT_TRUNCATED } else { 0 },
        current: CountsCell::new(),
        cumulative: CountsCell::new(),
    };
    let context = contexts.records.append(&jeprobe_root.contexts, record, depth, stack.leaf_first.clone())?;
    let count = contexts.count;
    if !CONTEXT_INDEX.insert_locked(hash, context, count, |context| context.hash) {
        return None;
    }
    contexts.count += 1;
    Some((context, true))
}

/// The record of samples without a stack.
pub(crate) fn no_context(truncated: bool) -> Option<Ptr<ContextCell>> {
    let none = Frames { depth: 0, hash: hash_frames(&[]), leaf_first: core::iter::empty() };
    context(&none, truncated).map(|(context, _)| context)
}

fn tctx_hash(context: usize, thread: usize) -> u64 {
    (context as u64).rotate_left(32) ^ thread as u64
}

fn tctx(context: Ptr<ContextCell>, thread: Ptr<ThreadCell>) -> Option<Ptr<TctxCell>> {
    let hash = tctx_hash(context.addr(), thread.addr());
    let find = || {
        TCTX_INDEX.find(hash, |tctx| {
            tctx.context.get().is_some_and(|c| c.same(context)) && tctx.thread.get().is_some_and(|t| t.same(thread))
        })
    };
    if let Some(tctx) = find() {
        return Some(tctx);
    }
    let mut tctxs = TCTXS.lock();
    // Only this thread makes its own records, so there is none yet.
    let record = TctxCell {
        context: Link::none(),
        next: Link::none(),
        thread: Link::none(),
        reserved: 0,
        current: CountsCell::new(),
        cumulative: CountsCell::new(),
    };
    record.context.set(Some(context));
    record.thread.set(Some(thread));
    record.next.set(context.tctxs.get());
    let made = tctxs.records.append(&jeprobe_root.tctxs, record, 0, core::iter::empty())?;
    let count = tctxs.count;
    let hash_of =
        |t: Ptr<TctxCell>| tctx_hash(t.context.get().map_or(0, Ptr::addr), t.thread.get().map_or(0, Ptr::addr));
    if !TCTX_INDEX.insert_locked(hash, made, count, hash_of) {
        return None;
    }
    tctxs.count += 1;
    context.tctxs.set(Some(made));
    Some(made)
}

const SHARDS: usize = 64;
/// Buckets of a shard's first table: 512 bytes.
const FIRST_BUCKETS: usize = 64;
/// Links of a chain followed without the lock; longer chains are rare at a load below one.
const MAX_PEEK: usize = 32;

struct Shard {
    /// Even: at rest. Odd: chains are being changed. Changed under `lock`.
    sequence: AtomicU32,
    buckets: Link<Buckets>,
    lock: Mutex<ShardState>,
}

struct Buckets {
    heads: &'static [Link<LiveCell>],
}

struct ShardState {
    records: Appender,
    free: Option<Ptr<LiveCell>>,
    live: usize,
}

static LIVES: [Shard; SHARDS] = [const {
    Shard {
        sequence: AtomicU32::new(0),
        buckets: Link::none(),
        lock: Mutex::new(
            Rank::ProfLives,
            ShardState { records: Appender::new(KIND_LIVE, 1 << 10), free: None, live: 0 },
        ),
    }
}; SHARDS];

/// Shard and bucket hash of an address. Blocks are at least 8 bytes apart.
fn place(ptr: usize) -> (&'static Shard, usize) {
    let hash = ((ptr >> 3) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let shard = &LIVES[(hash >> 58) as usize % SHARDS];
    (shard, (hash >> 20) as usize)
}

/// A sample to record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub(crate) ptr: usize,
    pub(crate) usable_bytes: u64,
    pub(crate) requested_bytes: u64,
    pub(crate) weight_bytes: u64,
    pub(crate) time_ns: u64,
}

impl Sample {
    fn share(&self) -> Share {
        Share {
            bytes: self.usable_bytes,
            weight_objects8: unbias::weight_objects8(self.usable_bytes, self.weight_bytes),
            weight_bytes: self.weight_bytes,
        }
    }
}

/// Records a sample; false without memory.
pub(crate) fn record(thread: Ptr<ThreadCell>, context: Ptr<ContextCell>, sample: &Sample) -> bool {
    let Some(tctx) = tctx(context, thread) else { return false };
    let (home, hash) = place(sample.ptr);
    let mut state = home.lock.lock();
    // A sample of the same address was freed by a way that does not pass here; it is gone for certain.
    if let Some(stale) = home.unlink(&mut state, hash, sample.ptr) {
        settle(stale);
        state.recycle(stale);
    }
    let Some(head) = home.head_for_insert(&mut state, hash) else { return false };
    let Some(live) = state.take() else { return false };
    live.state.store(LIVE_BUSY, Ordering::Relaxed);
    // Release: a reader that sees one of the new words sees the state change as well.
    fence(Ordering::Release);
    live.usable_bytes.store(sample.usable_bytes, Ordering::Relaxed);
    live.requested_bytes.store(sample.requested_bytes, Ordering::Relaxed);
    live.weight_bytes.store(sample.weight_bytes, Ordering::Relaxed);
    live.time_ns.store(sample.time_ns, Ordering::Relaxed);
    live.epoch.store(jeprobe_root.epoch.load(Ordering::Relaxed), Ordering::Relaxed);
    live.tctx.set(Some(tctx));
    live.ptr.store(sample.ptr as u64, Ordering::Relaxed);
    // Release: the words above belong to the state.
    live.state.store(LIVE_SET, Ordering::Release);
    live.next.set(head.get());
    head.set(Some(live));
    state.live += 1;
    let share = sample.share();
    tctx.current.add(share);
    context.current.add(share);
    if jeprobe_root.opt_accum.load(Ordering::Relaxed) == 1 {
        tctx.cumulative.add(share);
        context.cumulative.add(share);
    }
    thread.live.fetch_add(1, Ordering::Relaxed);
    thread.samples.fetch_add(1, Ordering::Relaxed);
    jeprobe_root.samples.fetch_add(1, Ordering::Relaxed);
    true
}

/// Forgets the sample of `ptr`; the address of its context, or `None` when `ptr` is not sampled. Without a sample this
/// costs a few loads and no lock.
pub(crate) fn remove(ptr: usize) -> Option<Ptr<ContextCell>> {
    let (shard, hash) = place(ptr);
    if shard.surely_absent(hash, ptr) {
        return None;
    }
    let mut state = shard.lock.lock();
    let live = shard.unlink(&mut state, hash, ptr)?;
    let context = settle(live);
    state.recycle(live);
    jeprobe_root.frees.fetch_add(1, Ordering::Relaxed);
    context
}

/// Takes the counts of a sample that left its chain off its tctx and context (I-TABLE-1).
fn settle(live: Ptr<LiveCell>) -> Option<Ptr<ContextCell>> {
    let sample = Sample {
        ptr: 0,
        usable_bytes: live.usable_bytes.load(Ordering::Relaxed),
        requested_bytes: 0,
        weight_bytes: live.weight_bytes.load(Ordering::Relaxed),
        time_ns: 0,
    };
    let share = sample.share();
    let tctx = live.tctx.get()?;
    tctx.current.sub(share);
    let context = tctx.context.get();
    if let Some(context) = context {
        context.current.sub(share);
    }
    if let Some(thread) = tctx.thread.get() {
        // Release: pairs with the Acquire in `ended`: the counts are settled before the record serves another thread.
        thread.live.fetch_sub(1, Ordering::Release);
    }
    context
}

/// Forgets every sample and all cumulative counts. Samples recorded meanwhile may stay or go.
pub(crate) fn clear() {
    jeprobe_root.epoch.fetch_add(1, Ordering::Relaxed);
    // Cumulative counts first: a sample recorded in between is then removed from `current` below and stays in
    // `cumulative`, so that cumulative never falls below current.
    {
        let _contexts = CONTEXTS.lock();
        CONTEXT_INDEX.each(|context| context.cumulative.clear());
    }
    {
        let _tctxs = TCTXS.lock();
        TCTX_INDEX.each(|tctx| tctx.cumulative.clear());
    }
    for shard in &LIVES {
        let mut state = shard.lock.lock();
        let Some(buckets) = shard.buckets.get() else { continue };
        shard.changing(|| {
            for head in buckets.heads {
                while let Some(live) = head.get() {
                    head.set(live.next.get());
                    settle(live);
                    state.recycle(live);
                    state.live -= 1;
                }
            }
        });
    }
}

/// Live samples, summed over the shards at slightly different moments.
#[cfg(test)]
pub(crate) fn live_count() -> usize {
    LIVES.iter().map(|shard| shard.lock.lock().live).sum()
}

impl Shard {
    /// True only when `ptr` is not sampled (I-TABLE-2).
    fn surely_absent(&self, hash: usize, ptr: usize) -> bool {
        // Acquire: the chain is read after the sequence.
        let before = self.sequence.load(Ordering::Acquire);
        if before % 2 == 1 {
            return false;
        }
        let Some(buckets) = self.buckets.get() else { return true };
        let mut next = buckets.head(hash).get();
        for _ in 0..MAX_PEEK {
            match next {
                None => {
                    // Acquire fence: pairs with the Release fence in `changing`; the loads above are before the next.
                    fence(Ordering::Acquire);
                    return self.sequence.load(Ordering::Relaxed) == before;
                }
                Some(live) if live.ptr.load(Ordering::Relaxed) == ptr as u64 => return false,
                Some(live) => next = live.next.get(),
            }
        }
        false
    }

    /// Runs a change of chains. Caller holds the shard's lock.
    fn changing<R>(&self, change: impl FnOnce() -> R) -> R {
        // Relaxed: only the lock's holder stores it.
        let sequence = self.sequence.load(Ordering::Relaxed);
        self.sequence.store(sequence.wrapping_add(1), Ordering::Relaxed);
        // Release fence: pairs with the Acquire fence in `surely_absent`.
        fence(Ordering::Release);
        let result = change();
        self.sequence.store(sequence.wrapping_add(2), Ordering::Release);
        result
    }

    /// Takes the sample of `ptr` out of its chain.
    fn unlink(&self, state: &mut Guard<'_, ShardState>, hash: usize, ptr: usize) -> Option<Ptr<LiveCell>> {
        let buckets = self.buckets.get()?;
        let head = buckets.head(hash);
        let mut before: Option<Ptr<LiveCell>> = None;
        let mut next = head.get();
        while let Some(live) = next {
            if live.ptr.load(Ordering::Relaxed) == ptr as u64 {
                self.changing(|| match before {
                    None => head.set(live.next.get()),
                    Some(before) => before.next.set(live.next.get()),
                });
                state.live -= 1;
                return Some(live);
            }
            before = next;
            next = live.next.get();
        }
        None
    }

    /// The chain for a new sample, after making room for it.
    fn head_for_insert(&self, state: &mut Guard<'_, ShardState>, hash: usize) -> Option<&'static Link<LiveCell>> {
        let old = self.buckets.get();
        if let Some(buckets) = old
            && state.live < buckets.heads.len()
        {
            return Some(buckets.head(hash));
        }
        let count = old.map_or(FIRST_BUCKETS, |old| old.heads.len() * 2);
        let grown = alloc_links(count).and_then(|heads| alloc_value(Buckets { heads }));
        let Some(new) = grown else {
            // Longer chains are better than a lost sample.
            return old.map(|old| old.head(hash));
        };
        self.changing(|| {
            for head in old.iter().flat_map(|old| old.heads) {
                while let Some(live) = head.get() {
                    head.set(live.next.get());
                    let (_, hash) = place(live.ptr.load(Ordering::Relaxed) as usize);
                    let to = new.head(hash);
                    live.next.set(to.get());
                    to.set(Some(live));
                }
            }
            self.buckets.set(Some(new));
        });
        Some(new.head(hash))
    }
}

impl Ptr<Buckets> {
    fn head(self, hash: usize) -> &'static Link<LiveCell> {
        // The length is a power of two, never 0.
        let heads = self.heads;
        &heads[hash % heads.len()]
    }
}

impl ShardState {
    fn take(&mut self) -> Option<Ptr<LiveCell>> {
        if let Some(live) = self.free {
            self.free = live.next.get();
            return Some(live);
        }
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

    fn recycle(&mut self, live: Ptr<LiveCell>) {
        live.state.store(LIVE_FREE, Ordering::Release);
        live.next.set(self.free);
        self.free = Some(live);
    }
}

/// Takes all locks of the table in rank order.
pub(crate) fn prefork() {
    THREADS.lock_for_fork();
    CONTEXTS.lock_for_fork();
    TCTXS.lock_for_fork();
    for shard in &LIVES {
        shard.lock.lock_for_fork();
    }
}

pub(crate) fn postfork_parent() {
    for shard in &LIVES {
        shard.lock.unlock_for_fork();
    }
    TCTXS.unlock_for_fork();
    CONTEXTS.unlock_for_fork();
    THREADS.unlock_for_fork();
}

pub(crate) fn postfork_child() {
    for shard in &LIVES {
        shard.lock.reset_in_child();
    }
    TCTXS.reset_in_child();
    CONTEXTS.reset_in_child();
    THREADS.reset_in_child();
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, MutexGuard};
    use std::vec::Vec;

    use jeprobe_abi::reader::{RemoteMemory, Table, TableError, Unreadable};
    use jeprobe_abi::root::Counts;

    use super::super::records::OwnMemory;
    use super::*;

    /// The table is one per process: tests of it take turns and start from nothing.
    static TURN: Mutex<()> = Mutex::new(());

    fn turn() -> MutexGuard<'static, ()> {
        let guard = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        jeprobe_root.state.store(jeprobe_abi::root::STATE_READY, Ordering::Release);
        clear();
        guard
    }

    fn sample(ptr: usize, bytes: u64) -> Sample {
        Sample {
            ptr,
            usable_bytes: bytes,
            requested_bytes: bytes - 1,
            weight_bytes: unbias::weight_bytes(bytes, 1 << 16),
            time_ns: 5,
        }
    }

    fn stack(frames: &[u64], truncated: bool) -> Option<(Ptr<ContextCell>, bool)> {
        context(
            &Frames { depth: frames.len(), hash: hash_frames(frames), leaf_first: frames.iter().copied() },
            truncated,
        )
    }

    /// `process_vm_readv` on the own process: the way of a reader outside.
    struct Kernel;

    impl RemoteMemory for Kernel {
        fn read(&self, addr: u64, buf: &mut [u8]) -> Result<(), Unreadable> {
            let pid = crate::sys::getpid();
            if crate::sys::copy_memory_of(pid, addr as usize, buf) == buf.len() {
                Ok(())
            } else {
                Err(Unreadable { addr })
            }
        }
    }

    /// Totals over contexts, over tctxs and over live samples, as the reader sees them.
    fn totals<M: RemoteMemory>(memory: &M) -> (Counts, Counts, (u64, u64)) {
        let table = Table::open(memory, jeprobe_root.addr()).expect("own table");
        let mut by_context = Counts::default();
        let mut by_tctx = Counts::default();
        let mut by_live = (0, 0);
        let add = |sum: &mut Counts, more: &Counts| {
            sum.objects += more.objects;
            sum.bytes += more.bytes;
            sum.weight_objects8 += more.weight_objects8;
            sum.weight_bytes += more.weight_bytes;
        };
        table
            .contexts(|_, context, frames| {
                assert_eq!(frames.len(), context.depth as usize);
                add(&mut by_context, &context.current);
                table.tctxs_of::<TableError>(context, |_, tctx| {
                    add(&mut by_tctx, &tctx.current);
                    Ok(())
                })?;
                Ok::<_, TableError>(())
            })
            .expect("contexts");
        table
            .lives(|_, live| {
                by_live.0 += 1;
                by_live.1 += live.usable_bytes;
                Ok::<_, TableError>(())
            })
            .expect("lives");
        (by_context, by_tctx, by_live)
    }

    #[test]
    fn records_are_found_by_every_reader_and_gone_after_free() {
        let _turn = turn();
        let thread = new_thread(1).expect("memory");
        let frames: Vec<u64> = (1..=40).map(|i| 0x1000 * i).collect();
        let mut bytes = 0;
        for i in 0..3000_usize {
            let depth = 1 + i % 40;
            let (context, new) = stack(&frames[..depth], depth == 40).expect("memory");
            assert!(!new || i < 40);
            assert_eq!(context.frames(), &frames[..depth]);
            assert!(record(thread, context, &sample(0x5000_0000 + 16 * i, 16 + i as u64)));
            bytes += 16 + i as u64;
        }
        assert_eq!(live_count(), 3000);
        for (contexts, tctxs, lives) in [totals(&OwnMemory), totals(&Kernel)] {
            assert_eq!((contexts.objects, contexts.bytes), (3000, bytes));
            assert_eq!(contexts, tctxs);
            assert_eq!(lives, (3000, bytes));
        }
        assert!(remove(0x5000_0000 + 8).is_none());
        assert!(remove(0x6000_0000).is_none());
        for i in 0..3000_usize {
            assert!(remove(0x5000_0000 + 16 * i).is_some(), "{i}");
            assert!(remove(0x5000_0000 + 16 * i).is_none());
        }
        let (contexts, tctxs, lives) = totals(&Kernel);
        assert_eq!((contexts, tctxs, lives), (Counts::default(), Counts::default(), (0, 0)));
        assert_eq!(thread.live.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_second_sample_of_an_address_replaces_the_first() {
        let _turn = turn();
        let thread = new_thread(1).expect("memory");
        let (context, _) = stack(&[1, 2, 3], false).expect("memory");
        assert!(record(thread, context, &sample(0x7000, 64)));
        assert!(record(thread, context, &sample(0x7000, 128)));
        assert_eq!(totals(&OwnMemory).2, (1, 128));
        assert_eq!(totals(&OwnMemory).0.bytes, 128);
    }

    #[test]
    fn reset_leaves_nothing_and_frees_after_it_do_no_harm() {
        let _turn = turn();
        jeprobe_root.opt_accum.store(1, Ordering::Relaxed);
        let thread = new_thread(1).expect("memory");
        let (context, _) = stack(&[9, 9], false).expect("memory");
        for i in 0..500 {
            assert!(record(thread, context, &sample(0x9000 + 16 * i, 32)));
        }
        assert_eq!(context.cumulative.objects.load(Ordering::Relaxed), 500);
        clear();
        jeprobe_root.opt_accum.store(0, Ordering::Relaxed);
        assert_eq!(totals(&OwnMemory).0, Counts::default());
        assert_eq!(context.cumulative.objects.load(Ordering::Relaxed), 0);
        assert!(remove(0x9000).is_none());
        assert_eq!(totals(&OwnMemory).0, Counts::default());
    }

    #[test]
    fn records_of_ended_threads_are_used_again() {
        let _turn = turn();
        let thread = new_thread(1).expect("memory");
        let (context, _) = stack(&[4], false).expect("memory");
        assert!(record(thread, context, &sample(0x8800, 32)));
        thread.alive.store(0, Ordering::Relaxed);
        // Its live sample keeps the record.
        let other = new_thread(2).expect("memory");
        assert!(!other.same(thread));
        assert!(remove(0x8800).is_some());
        let uid = thread.uid.load(Ordering::Relaxed);
        let again = core::iter::repeat_with(|| new_thread(3).expect("memory")).take(50).find(|t| t.same(thread));
        let again = again.expect("reused");
        assert!(again.uid.load(Ordering::Relaxed) > uid);
    }

    #[test]
    fn threads_record_and_free_each_others_samples() {
        const EACH: usize = 20_000;
        let _turn = turn();
        let workers: Vec<_> = (0..4_usize)
            .map(|t| {
                std::thread::spawn(move || {
                    let thread = new_thread(t as u32).expect("memory");
                    for i in 0..EACH {
                        let (context, _) = stack(&[(i % 700) as u64 + 1, 7], false).expect("memory");
                        assert!(record(thread, context, &sample((t + 1) << 32 | i << 4, 48)));
                        // Frees what its neighbour made, when that is there already, else its own.
                        let neighbour = ((t + 1) % 4 + 1) << 32 | i << 4;
                        if i % 3 == 0 && remove(neighbour).is_none() {
                            assert!(remove((t + 1) << 32 | i << 4).is_some() || i % 3 == 0);
                        }
                    }
                })
            })
            .collect();
        for worker in workers {
            worker.join().expect("joined");
        }
        let (contexts, tctxs, lives) = totals(&Kernel);
        assert_eq!(contexts, tctxs);
        assert_eq!(contexts.objects, lives.0);
        assert_eq!(contexts.objects as usize, live_count());
        for t in 1..=4_usize {
            for i in 0..EACH {
                remove(t << 32 | i << 4);
            }
        }
        assert_eq!(totals(&OwnMemory), (Counts::default(), Counts::default(), (0, 0)));
    }
}
