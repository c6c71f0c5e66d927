//! The profile table's writer: contexts, counts per context and thread, live samples.
//!
//! ```text
//!  tctx(context, thread) ─► tctx          in the context's list, or by the index where that is long
//!  record(tctx, ptr) ─► live sample, in the shard of its address;  counts of the tctx go up
//!  remove(ptr) ─► live sample ─► its tctx: counts go down
//! ```
//!
//! | part | found by | changed under |
//! |---|---|---|
//! | contexts | [`Index`], no lock | `ProfContexts` |
//! | tctxs | [`Index`], no lock | `ProfTctxs` |
//! | threads | the thread's own pointer | `ProfThreads` (`threads.rs`) |
//! | live samples | hash chains in shards, by arena | `ProfLives`, one shard at a time (`lives.rs`) |
//!
//! I-TABLE-1: the counts of a live sample are in its tctx exactly while it is in its shard; both change under the shard's
//! lock. So removing each live sample brings all counts to zero. I-TABLE-2: words that count samples of a thread as taken
//! are written by that thread alone, with plain stores; what others free of them is counted apart, with atomic additions.
//! So a thread that frees what it allocated shares no counter with any other.
//!
//! Memory is bounded by the greatest number of live samples, of distinct stacks (up to [`MAX_CONTEXT_BYTES`]) and of
//! threads that lived or had live samples at one time. Nothing here takes a lock of another part but base memory's.
#![forbid(unsafe_code)]

use crate::prim::{Ordering, fence};

use jeprobe_abi::logic::hash_frames;
use jeprobe_abi::root::{CONTEXT_TRUNCATED, KIND_CONTEXT, KIND_TCTX, LIVE_BUSY, LIVE_SET};

use super::hooks;
use super::index::Index;
use super::lives;
use super::records::{Appender, ContextCell, Link, LiveCell, Ptr, Share, TctxCell, ThreadCell, jeprobe_root};
use super::sampler::Weighed;
use super::threads;
use crate::sync::mutex::Mutex;
use crate::sync::rank::Rank;

/// Stacks kept, bytes: a program that makes new code without end must not fill memory with its stacks. Samples beyond
/// it are recorded without a stack. A context of 30 frames takes 272 bytes, so this is about a million stacks.
pub(crate) const MAX_CONTEXT_BYTES: usize = 256 << 20;

struct Growing {
    records: Appender,
    count: usize,
}

impl Growing {
    const fn new(kind: u32) -> Growing {
        Growing { records: Appender::new(kind, 4 << 10), count: 0 }
    }
}

static CONTEXTS: Mutex<Growing> = Mutex::new(Rank::ProfContexts, Growing::new(KIND_CONTEXT));
static CONTEXT_INDEX: Index<ContextCell> = Index::new();
static TCTXS: Mutex<Growing> = Mutex::new(Rank::ProfTctxs, Growing::new(KIND_TCTX));
static TCTX_INDEX: Index<TctxCell> = Index::new();

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
    };
    let context = contexts.records.append(&jeprobe_root.contexts, record, depth, stack.leaf_first.clone())?;
    let count = contexts.count;
    if !CONTEXT_INDEX.insert_locked(hash, context, count) {
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

/// Tctxs of a context that are looked through one by one; where there are more, the index knows all of them. Most stacks
/// belong to one thread or to a few.
const LISTED: usize = 8;

fn tctxs_of(context: Ptr<ContextCell>) -> impl Iterator<Item = Ptr<TctxCell>> {
    core::iter::successors(context.tctxs.get(), |tctx| tctx.next.get())
}

fn find_tctx(context: Ptr<ContextCell>, thread: Ptr<ThreadCell>) -> Option<Ptr<TctxCell>> {
    let of_thread = |tctx: &Ptr<TctxCell>| tctx.thread.get().is_some_and(|t| t.same(thread));
    let newest = context.tctxs.get()?;
    tctxs_of(context).take(LISTED).find(of_thread).or_else(|| {
        if newest.ordinal < LISTED as u64 {
            return None;
        }
        TCTX_INDEX.find(tctx_hash(context.addr(), thread.addr()), |tctx| {
            of_thread(tctx) && tctx.context.get().is_some_and(|c| c.same(context))
        })
    })
}

/// The counts of a stack in a thread, which is the calling one; `None` without memory.
pub(crate) fn tctx(context: Ptr<ContextCell>, thread: Ptr<ThreadCell>) -> Option<Ptr<TctxCell>> {
    if let Some(tctx) = find_tctx(context, thread) {
        return Some(tctx);
    }
    let mut tctxs = TCTXS.lock();
    if let Some(tctx) = find_tctx(context, thread) {
        return Some(tctx);
    }
    let newest = context.tctxs.get();
    let record = TctxCell::blank(newest.map_or(0, |newest| newest.ordinal + 1));
    record.context.set(Some(context));
    record.thread.set(Some(thread));
    record.next.set(newest);
    let made = tctxs.records.append(&jeprobe_root.tctxs, record, 0, core::iter::empty())?;
    // Before the list says that there are so many: who sees that relies on the index.
    let all = made.ordinal == LISTED as u64;
    if made.ordinal >= LISTED as u64 {
        let listed = tctxs_of(context).take(if all { LISTED } else { 0 });
        for tctx in core::iter::once(made).chain(listed) {
            let hash = tctx_hash(context.addr(), tctx.thread.get().map_or(0, Ptr::addr));
            if !TCTX_INDEX.insert_locked(hash, tctx, tctxs.count) {
                return None;
            }
            tctxs.count += 1;
        }
    }
    context.tctxs.set(Some(made));
    Some(made)
}

/// A sample to record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub(crate) ptr: usize,
    /// Index of the block's arena.
    pub(crate) home: u32,
    pub(crate) usable_bytes: u64,
    pub(crate) requested_bytes: u64,
    pub(crate) weight: Weighed,
    pub(crate) time_ns: u64,
}

fn share(usable_bytes: u64, weight: Weighed) -> Share {
    Share { bytes: usable_bytes, weight_objects8: weight.objects8, weight_bytes: weight.bytes }
}

/// Records a sample of `thread`, which is the calling one; false without memory.
#[inline(always)]
pub(crate) fn record(thread: Ptr<ThreadCell>, tctx: Ptr<TctxCell>, sample: &Sample) -> bool {
    let share = share(sample.usable_bytes, sample.weight);
    let (home, hash) = lives::place(sample.ptr, sample.home);
    let mut state = home.lock.lock();
    // A sample of the same address was freed by a way that does not pass here; it is gone for certain.
    if let Some(stale) = home.unlink(&mut state, hash, sample.ptr) {
        settle(stale, Some(thread), Weighed::of);
        state.recycle(stale);
    }
    let Some(head) = home.head_for_insert(&mut state, hash) else { return false };
    let Some(live) = state.take() else { return false };
    live.state.store(LIVE_BUSY, Ordering::Relaxed);
    // Release: a reader that sees one of the new words sees the state change as well.
    fence(Ordering::Release);
    live.usable_bytes.store(sample.usable_bytes, Ordering::Relaxed);
    live.requested_bytes.store(sample.requested_bytes, Ordering::Relaxed);
    live.weight_bytes.store(sample.weight.bytes, Ordering::Relaxed);
    live.time_ns.store(sample.time_ns, Ordering::Relaxed);
    live.epoch.store(jeprobe_root.epoch.load(Ordering::Relaxed), Ordering::Relaxed);
    live.tctx.set(Some(tctx));
    live.ptr.store(sample.ptr as u64, Ordering::Relaxed);
    // Release: the words above belong to the state.
    live.state.store(LIVE_SET, Ordering::Release);
    live.next.set(head.get());
    head.set(Some(live));
    state.live += 1;
    tctx.kept.add_own(share);
    // Who is attached may read the table instead of being told each sample.
    if jeprobe_root.opt_accum.load(Ordering::Relaxed) == 1 || hooks::alloc_wanted() {
        // Not with plain stores: `clear` may be at it.
        tctx.cumulative.add(share);
    }
    thread.kept.add(1);
    thread.samples.add(1);
    true
}

/// Forgets the sample of `ptr`, a block of the arena `home`; its context, or `None` when `ptr` is not sampled. `by` is the
/// calling thread, if it has a record; `weigh` gives what a sample of so many usable bytes stands for, by the bytes of that.
#[inline(always)]
pub(crate) fn remove(
    ptr: usize,
    home: u32,
    by: Option<Ptr<ThreadCell>>,
    weigh: impl Fn(u64, u64) -> Weighed,
) -> Option<Ptr<ContextCell>> {
    let (shard, hash) = lives::place(ptr, home);
    let mut state = shard.lock.lock();
    let live = shard.unlink(&mut state, hash, ptr)?;
    let context = settle(live, by, weigh);
    state.recycle(live);
    match by {
        Some(thread) => thread.frees.add(1),
        None => {
            jeprobe_root.frees.fetch_add(1, Ordering::Relaxed);
        }
    }
    context
}

/// Takes the counts of a sample that left its chain off its tctx (I-TABLE-1). `by`: the calling thread, if known.
#[inline(always)]
fn settle(
    live: Ptr<LiveCell>,
    by: Option<Ptr<ThreadCell>>,
    weigh: impl Fn(u64, u64) -> Weighed,
) -> Option<Ptr<ContextCell>> {
    let usable_bytes = live.usable_bytes.load(Ordering::Relaxed);
    let share = share(usable_bytes, weigh(usable_bytes, live.weight_bytes.load(Ordering::Relaxed)));
    let tctx = live.tctx.get()?;
    let thread = tctx.thread.get()?;
    if by.is_some_and(|by| by.same(thread)) {
        tctx.kept.sub_own(share);
        thread.kept.add(u64::MAX);
    } else {
        tctx.freed.add(share);
        // Release: pairs with the Acquire in `threads`: the counts are settled before the record serves another thread.
        thread.freed.fetch_add(1, Ordering::Release);
    }
    tctx.context.get()
}

/// Forgets every sample and all cumulative counts. Samples recorded meanwhile may stay or go.
pub(crate) fn clear() {
    jeprobe_root.epoch.fetch_add(1, Ordering::Relaxed);
    // Cumulative counts first: a sample recorded in between is then removed from the current ones below and stays in
    // `cumulative`, so that cumulative never falls below current.
    {
        let _contexts = CONTEXTS.lock();
        CONTEXT_INDEX.each(|context| tctxs_of(context).for_each(|tctx| tctx.cumulative.clear()));
    }
    lives::clear(|live| {
        settle(live, None, Weighed::of);
    });
}

/// Takes all locks of the table in rank order.
pub(crate) fn prefork() {
    threads::prefork();
    CONTEXTS.lock_for_fork();
    TCTXS.lock_for_fork();
    lives::prefork();
}

pub(crate) fn postfork_parent() {
    lives::postfork_parent();
    TCTXS.unlock_for_fork();
    CONTEXTS.unlock_for_fork();
    threads::postfork_parent();
}

pub(crate) fn postfork_child() {
    lives::postfork_child();
    TCTXS.reset_in_child();
    CONTEXTS.reset_in_child();
    threads::postfork_child();
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, MutexGuard};
    use std::vec::Vec;

    use jeprobe_abi::reader::{RemoteMemory, Table, TableError, Unreadable};
    use jeprobe_abi::root::Counts;
    use jeprobe_abi::unbias;

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
            home: 0,
            usable_bytes: bytes,
            requested_bytes: bytes - 1,
            weight: Weighed::of(bytes, unbias::weight_bytes(bytes, 1 << 16)),
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

    fn put(thread: Ptr<ThreadCell>, context: Ptr<ContextCell>, sample: &Sample) -> bool {
        tctx(context, thread).is_some_and(|tctx| record(thread, tctx, sample))
    }

    /// Totals over all tctxs, over those of contexts, and over live samples, as the reader sees them.
    fn totals<M: RemoteMemory>(memory: &M) -> (Counts, Counts, (u64, u64)) {
        let table = Table::open(memory, jeprobe_root.addr()).expect("own table");
        let mut by_tctx = Counts::default();
        let mut by_context = Counts::default();
        let mut by_live = (0, 0);
        table
            .tctxs(|_, tctx| {
                by_tctx.add(&tctx.current());
                Ok::<_, TableError>(())
            })
            .expect("tctxs");
        table
            .contexts(|_, context, frames| {
                assert_eq!(frames.len(), context.depth as usize);
                table.tctxs_of::<TableError>(context, |_, tctx| {
                    by_context.add(&tctx.current());
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
        (by_tctx, by_context, by_live)
    }

    fn cumulative(context: Ptr<ContextCell>) -> u64 {
        let table = Table::open(&OwnMemory, jeprobe_root.addr()).expect("own table");
        let mut sum = Counts::default();
        let seen = table.tctxs(|_, tctx| {
            if tctx.context == context.addr() as u64 {
                sum.add(&tctx.cumulative);
            }
            Ok::<_, TableError>(())
        });
        seen.map(|_| sum.objects).expect("tctxs")
    }

    #[test]
    fn records_are_found_by_every_reader_and_gone_after_free() {
        let _turn = turn();
        let thread = threads::start(1).expect("memory");
        let other = threads::start(2).expect("memory");
        let counted =
            || Table::open(&Kernel, jeprobe_root.addr()).map(|table| (table.root().samples, table.root().frees));
        let before = counted().expect("own table");
        let frames: Vec<u64> = (1..=40).map(|i| 0x1000 * i).collect();
        let mut bytes = 0;
        for i in 0..3000_usize {
            let depth = 1 + i % 40;
            let (context, new) = stack(&frames[..depth], depth == 40).expect("memory");
            assert!(!new || i < 40);
            assert_eq!(context.frames(), &frames[..depth]);
            assert!(put(thread, context, &sample(0x5000_0000 + 16 * i, 16 + i as u64)));
            bytes += 16 + i as u64;
        }
        assert_eq!(lives::count(), 3000);
        for (contexts, tctxs, lives) in [totals(&OwnMemory), totals(&Kernel)] {
            assert_eq!((contexts.objects, contexts.bytes), (3000, bytes));
            assert_eq!(contexts, tctxs);
            assert_eq!(lives, (3000, bytes));
        }
        assert!(remove(0x5000_0000 + 8, 0, None, Weighed::of).is_none());
        assert!(remove(0x6000_0000, 0, None, Weighed::of).is_none());
        for i in 0..3000_usize {
            // By the thread itself, by another, by one without a record.
            let by = [Some(thread), Some(other), None][i % 3];
            assert!(remove(0x5000_0000 + 16 * i, 0, by, Weighed::of).is_some(), "{i}");
            assert!(remove(0x5000_0000 + 16 * i, 0, None, Weighed::of).is_none());
        }
        let (contexts, tctxs, lives) = totals(&Kernel);
        assert_eq!((contexts, tctxs, lives), (Counts::default(), Counts::default(), (0, 0)));
        assert_eq!(counted(), Ok((before.0 + 3000, before.1 + 3000)));
        threads::end(thread);
        threads::end(other);
        assert_eq!(counted(), Ok((before.0 + 3000, before.1 + 3000)));
        assert_eq!(thread.kept.get(), thread.freed.load(Ordering::Relaxed));
    }

    #[test]
    fn a_second_sample_of_an_address_replaces_the_first() {
        let _turn = turn();
        let thread = threads::start(1).expect("memory");
        let (context, _) = stack(&[1, 2, 3], false).expect("memory");
        assert!(put(thread, context, &sample(0x7000, 64)));
        assert!(put(thread, context, &sample(0x7000, 128)));
        assert_eq!(totals(&OwnMemory).2, (1, 128));
        assert_eq!(totals(&OwnMemory).0.bytes, 128);
    }

    #[test]
    fn reset_leaves_nothing_and_frees_after_it_do_no_harm() {
        let _turn = turn();
        jeprobe_root.opt_accum.store(1, Ordering::Relaxed);
        let thread = threads::start(1).expect("memory");
        let (context, _) = stack(&[9, 9], false).expect("memory");
        for i in 0..500 {
            assert!(put(thread, context, &sample(0x9000 + 16 * i, 32)));
        }
        assert_eq!(cumulative(context), 500);
        clear();
        jeprobe_root.opt_accum.store(0, Ordering::Relaxed);
        assert_eq!(totals(&OwnMemory).0, Counts::default());
        assert_eq!(cumulative(context), 0);
        assert!(remove(0x9000, 0, None, Weighed::of).is_none());
        assert_eq!(totals(&OwnMemory).0, Counts::default());
    }

    #[test]
    fn records_of_ended_threads_are_used_again() {
        let _turn = turn();
        let thread = threads::start(1).expect("memory");
        let (context, _) = stack(&[4], false).expect("memory");
        assert!(put(thread, context, &sample(0x8800, 32)));
        threads::end(thread);
        // Its live sample keeps the record.
        let other = threads::start(2).expect("memory");
        assert!(!other.same(thread));
        assert!(remove(0x8800, 0, None, Weighed::of).is_some());
        let uid = thread.uid.load(Ordering::Relaxed);
        let again = core::iter::repeat_with(|| threads::start(3).expect("memory")).take(50).find(|t| t.same(thread));
        let again = again.expect("reused");
        assert!(again.uid.load(Ordering::Relaxed) > uid);
    }

    #[test]
    fn a_stack_of_many_threads_has_one_count_for_each() {
        let _turn = turn();
        let (context, _) = stack(&[31, 32], false).expect("memory");
        let (other, _) = stack(&[33, 32], false).expect("memory");
        let threads: Vec<_> = (0..40).map(|tid| threads::start(tid).expect("memory")).collect();
        let of = |context| threads.iter().map(|thread| tctx(context, *thread).expect("memory").addr()).collect();
        let made: Vec<usize> = of(context);
        let others: Vec<usize> = of(other);
        assert_eq!((of(context), of(other)), (made.clone(), others.clone()));
        let mut all = [made, others].concat();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 80);
    }

    #[test]
    fn threads_record_and_free_each_others_samples() {
        const EACH: usize = 20_000;
        let _turn = turn();
        let workers: Vec<_> = (0..4_usize)
            .map(|t| {
                std::thread::spawn(move || {
                    let thread = threads::start(t as u32).expect("memory");
                    for i in 0..EACH {
                        let (context, _) = stack(&[(i % 700) as u64 + 1, 7], false).expect("memory");
                        assert!(put(thread, context, &sample((t + 1) << 32 | i << 4, 48)));
                        // Frees what its neighbour made, when that is there already, else its own.
                        let neighbour = ((t + 1) % 4 + 1) << 32 | i << 4;
                        if i % 3 == 0 && remove(neighbour, 0, Some(thread), Weighed::of).is_none() {
                            assert!(
                                remove((t + 1) << 32 | i << 4, 0, Some(thread), Weighed::of).is_some() || i % 3 == 0
                            );
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
        assert_eq!(contexts.objects as usize, lives::count());
        for t in 1..=4_usize {
            for i in 0..EACH {
                remove(t << 32 | i << 4, 0, None, Weighed::of);
            }
        }
        assert_eq!(totals(&OwnMemory), (Counts::default(), Counts::default(), (0, 0)));
    }
}
