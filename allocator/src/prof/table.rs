//! The profile table's writer: samples, and the counts of stacks that they change.
//!
//! ```text
//!  record(tctx, live) ─► live sample;  counts of the tctx go up
//!  end(live) ─► its tctx: counts go down
//! ```
//!
//! | part | found by | changed under |
//! |---|---|---|
//! | contexts and tctxs | an index, no lock | `ProfContexts`, `ProfTctxs` (`stacks.rs`) |
//! | threads | the thread's own pointer | `ProfThreads` (`threads.rs`) |
//! | live samples | the block's extent (`lives.rs`) | nothing: the block's owner |
//!
//! I-TABLE-1: the counts of a live sample are in its tctx while its state is `LIVE_SET`, but for the moment in which a thread
//! changes both. So ending each live sample brings all counts to zero. The child of a fork, in which some thread may never
//! come to the end of such a moment, counts its samples anew. I-TABLE-2: words that count samples of a thread as taken
//! are written by that thread alone, with plain stores; what others free of them is counted apart, with atomic additions.
//! So a thread that frees what it allocated shares no counter with any other.
//!
//! Memory is bounded by the greatest number of live samples, of distinct stacks (up to [`MAX_CONTEXT_BYTES`]) and of
//! threads that lived or had live samples at one time. Nothing here takes a lock of another part but base memory's.
#![forbid(unsafe_code)]

use crate::prim::{Ordering, fence};

use jeprobe_abi::drops::Reason;
use jeprobe_abi::root::{LIVE_BUSY, LIVE_FREE, LIVE_SET};

use super::hooks;
use super::lives::{self, Live};
use super::records::{ApartCell, ContextCell, LiveCell, Ptr, Share, TctxCell, ThreadCell, jeprobe_root};
use super::sampler::Weighed;
use super::segments::each_live;
use super::{stacks, threads};

/// A sample to record.
#[derive(Clone, Copy)]
pub(crate) struct Sample {
    pub(crate) live: Live,
    pub(crate) usable_bytes: u64,
    pub(crate) requested_bytes: u64,
    pub(crate) weight: Weighed,
    pub(crate) time_ns: u64,
}

fn share(usable_bytes: u64, weight: Weighed) -> Share {
    Share { bytes: usable_bytes, weight_objects8: weight.objects8, weight_bytes: weight.bytes }
}

/// Records a sample of `thread`, which is the calling one and owns the block.
#[inline(always)]
pub(crate) fn record(thread: Ptr<ThreadCell>, tctx: Ptr<TctxCell>, sample: &Sample) {
    record_current(thread, tctx, sample);
    // Who is attached may read the table instead of being told each sample.
    if jeprobe_root.opt_accum.load(Ordering::Relaxed) == 1 || hooks::alloc_wanted() {
        // Not with plain stores: `clear` may be at it.
        count_apart(tctx, |apart| apart.cumulative.add(share(sample.usable_bytes, sample.weight)));
    }
}

/// As [`record`], where nobody wants cumulative counts.
#[inline(always)]
pub(crate) fn record_current(thread: Ptr<ThreadCell>, tctx: Ptr<TctxCell>, sample: &Sample) {
    let live = sample.live.0;
    // Release: a reader that sees one of the new words sees that the last sample here ended as well.
    fence(Ordering::Release);
    live.usable_bytes.store(sample.usable_bytes, Ordering::Relaxed);
    live.requested_bytes.store(sample.requested_bytes, Ordering::Relaxed);
    live.weight_bytes.store(sample.weight.bytes, Ordering::Relaxed);
    live.time_ns.store(sample.time_ns, Ordering::Relaxed);
    live.epoch.store(jeprobe_root.epoch.load(Ordering::Relaxed), Ordering::Relaxed);
    live.tctx.set(Some(tctx));
    // Release: the words above belong to the state.
    live.state.store(LIVE_SET, Ordering::Release);
    tctx.kept.add_own(share(sample.usable_bytes, sample.weight));
    thread.kept.add(1);
    thread.samples.add(1);
}

/// Ends the sample of a block, whose owner calls; its context, or `None` when it was none. `by` is the calling thread, if it
/// has a record; `weigh` gives what a sample of so many usable bytes stands for, by the bytes of that.
#[inline(always)]
pub(crate) fn end(
    live: Live,
    by: Option<Ptr<ThreadCell>>,
    weigh: impl Fn(u64, u64) -> Weighed,
) -> Option<Ptr<ContextCell>> {
    let live = live.0;
    // Acquire: what the thread that sampled wrote; Release: readers that see new words see that it ended.
    match live.state.compare_exchange(LIVE_SET, LIVE_FREE, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => {}
        Err(LIVE_BUSY) => {
            lives::wait_for_clear(live);
            return None;
        }
        Err(_) => return None,
    }
    let context = settle(live, by, weigh);
    match by {
        Some(thread) => thread.frees.add(1),
        None => {
            jeprobe_root.frees.fetch_add(1, Ordering::Relaxed);
        }
    }
    context
}

/// Ends the sample of a block, whose owner calls, if it is one of `thread`, which is the calling one, and `weigh` knows what it
/// stands for; its usable bytes.
#[inline(always)]
pub(crate) fn end_own(live: Live, thread: Ptr<ThreadCell>, weigh: impl Fn(u64) -> Option<Weighed>) -> Option<u64> {
    let live = live.0;
    let tctx = live.tctx.get()?;
    if !tctx.thread.get()?.same(thread) {
        return None;
    }
    let usable_bytes = live.usable_bytes.load(Ordering::Relaxed);
    let weight = weigh(usable_bytes)?;
    if weight.bytes != live.weight_bytes.load(Ordering::Relaxed) {
        return None;
    }
    // As in `end`.
    live.state.compare_exchange(LIVE_SET, LIVE_FREE, Ordering::AcqRel, Ordering::Relaxed).ok()?;
    tctx.kept.sub_own(share(usable_bytes, weight));
    thread.kept.add(u64::MAX);
    thread.frees.add(1);
    Some(usable_bytes)
}

/// Takes the counts of a sample that ended off its tctx (I-TABLE-1). `by`: the calling thread, if known.
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
        count_apart(tctx, |apart| apart.freed.add(share));
        // Release: pairs with the Acquire in `threads`: the counts are settled before the record serves another thread.
        thread.freed.fetch_add(1, Ordering::Release);
    }
    tctx.context.get()
}

/// Counts what few tctxs count; without memory it is a loss, and what is counted stays too high or too low.
fn count_apart(tctx: Ptr<TctxCell>, count: impl FnOnce(&ApartCell)) {
    match stacks::apart(tctx) {
        Some(apart) => count(&apart),
        None => jeprobe_root.drop_one(Reason::NoMemory),
    }
}

/// Forgets every sample and all cumulative counts. Samples recorded meanwhile may stay or go.
pub(crate) fn clear() {
    jeprobe_root.epoch.fetch_add(1, Ordering::Relaxed);
    // Cumulative counts first: a sample recorded in between is then removed from the current ones below and stays in
    // `cumulative`, so that cumulative never falls below current.
    stacks::each_tctx(|tctx| {
        tctx.apart.get().inspect(|apart| apart.cumulative.clear());
    });
    each_live(|live| {
        // Acquire: as in `end`. The owner waits while the state is busy.
        let ours = live.state.compare_exchange(LIVE_SET, LIVE_BUSY, Ordering::AcqRel, Ordering::Relaxed);
        if ours.is_ok() {
            settle(live, None, Weighed::of);
            // Release: pairs with the Acquire in `lives::wait_for_clear`.
            live.state.store(LIVE_FREE, Ordering::Release);
        }
    });
}

/// In the child of a fork: counts all live samples anew, whatever the other threads were about to change.
fn recount() {
    stacks::each_tctx(|tctx| {
        tctx.apart.get().inspect(|apart| apart.freed.clear());
        tctx.kept.clear();
    });
    threads::forget_samples();
    each_live(|live| {
        let whose = live.tctx.get().and_then(|tctx| Some((tctx, tctx.thread.get()?)));
        if let Some((tctx, thread)) = whose
            && live.state.load(Ordering::Relaxed) == LIVE_SET
        {
            let usable_bytes = live.usable_bytes.load(Ordering::Relaxed);
            let weight = Weighed::of(usable_bytes, live.weight_bytes.load(Ordering::Relaxed));
            tctx.kept.add_own(share(usable_bytes, weight));
            thread.kept.add(1);
        } else {
            live.state.store(LIVE_FREE, Ordering::Relaxed);
        }
    });
}

/// Takes all locks of the table in rank order.
pub(crate) fn prefork() {
    threads::prefork();
    stacks::prefork();
    lives::prefork();
}

pub(crate) fn postfork_parent() {
    lives::postfork_parent();
    stacks::postfork_parent();
    threads::postfork_parent();
}

pub(crate) fn postfork_child() {
    lives::postfork_child();
    stacks::postfork_child();
    threads::postfork_child();
    recount();
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::BTreeMap;
    use std::sync::{Mutex, MutexGuard};
    use std::vec::Vec;

    use jeprobe_abi::logic::hash_frames;
    use jeprobe_abi::reader::{RemoteMemory, Table, TableError, Unreadable};
    use jeprobe_abi::root::Counts;
    use jeprobe_abi::unbias;

    use super::super::segments::OwnMemory;
    use super::super::stacks::{Frames, context, tctx};
    use super::*;

    /// The table is one per process: tests of it take turns and start from nothing.
    static TURN: Mutex<()> = Mutex::new(());

    fn turn() -> MutexGuard<'static, ()> {
        let guard = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        jeprobe_root.state.store(jeprobe_abi::root::STATE_READY, Ordering::Release);
        clear();
        guard
    }

    std::thread_local! {
        /// Records of the addresses that were sampled here.
        static LIVES: RefCell<BTreeMap<usize, Live>> = const { RefCell::new(BTreeMap::new()) };
    }

    /// The record of an address, as its place would have it.
    fn live(ptr: usize) -> Live {
        let make = || Live::apart(core::ptr::without_provenance_mut(ptr)).expect("memory");
        LIVES.with_borrow_mut(|lives| *lives.entry(ptr).or_insert_with(make))
    }

    fn sample(ptr: usize, bytes: u64) -> Sample {
        Sample {
            live: live(ptr),
            usable_bytes: bytes,
            requested_bytes: bytes - 1,
            weight: Weighed::of(bytes, unbias::weight_bytes(bytes, 1 << 16)),
            time_ns: 5,
        }
    }

    fn stack(frames: &[u64], truncated: bool) -> Option<(Ptr<ContextCell>, bool)> {
        context(
            &Frames {
                depth: frames.len(),
                hash: hash_frames(frames),
                leaf_first: frames.iter().copied(),
                packed: None,
            },
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
        let tctx = tctx(context, thread);
        tctx.inspect(|tctx| record(thread, *tctx, sample)).is_some()
    }

    fn remove(ptr: usize, by: Option<Ptr<ThreadCell>>) -> Option<Ptr<ContextCell>> {
        end(live(ptr), by, Weighed::of)
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
                assert_eq!(frames.len(), usize::from(context.depth));
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
            assert_eq!(context.frames().collect::<Vec<_>>(), &frames[..depth]);
            assert!(put(thread, context, &sample(0x5000_0000 + 16 * i, 16 + i as u64)));
            bytes += 16 + i as u64;
        }
        for (contexts, tctxs, lives) in [totals(&OwnMemory), totals(&Kernel)] {
            assert_eq!((contexts.objects, contexts.bytes), (3000, bytes));
            assert_eq!(contexts, tctxs);
            assert_eq!(lives, (3000, bytes));
        }
        assert!(remove(0x5000_0000 + 8, None).is_none());
        assert!(remove(0x6000_0000, None).is_none());
        for i in 0..3000_usize {
            // By the thread itself, by another, by one without a record.
            let by = [Some(thread), Some(other), None][i % 3];
            assert!(remove(0x5000_0000 + 16 * i, by).is_some(), "{i}");
            assert!(remove(0x5000_0000 + 16 * i, None).is_none());
        }
        let (contexts, tctxs, lives) = totals(&Kernel);
        assert_eq!((contexts, tctxs, lives), (Counts::default(), Counts::default(), (0, 0)));
        assert_eq!(counted(), Ok((before.0 + 3000, before.1 + 3000)));
        threads::end(thread);
        threads::end(other);
        assert_eq!(counted(), Ok((before.0 + 3000, before.1 + 3000)));
        assert_eq!(thread.kept.get(), thread.freed.load(Ordering::Relaxed));
    }

    /// What a thread was about to change when its process forked never comes to an end in the child.
    #[test]
    fn counting_anew_makes_counts_those_of_the_live_samples() {
        let _turn = turn();
        let thread = threads::start(1).expect("memory");
        let (context, _) = stack(&[1, 2, 3], false).expect("memory");
        for i in 0..10 {
            assert!(put(thread, context, &sample(0x7000 + 64 * i, 64)));
        }
        assert!(remove(0x7000, None).is_some());
        let half_done = live(0x7040).0;
        half_done.state.store(LIVE_BUSY, Ordering::Relaxed);
        let counts = tctx(context, thread).expect("memory");
        counts.kept.add_own(share(64, Weighed::of(64, 64)));
        thread.kept.add(1);
        recount();
        let (contexts, tctxs, lives) = totals(&OwnMemory);
        assert_eq!((contexts.objects, contexts.bytes, lives), (8, 512, (8, 512)));
        assert_eq!(contexts, tctxs);
        assert_eq!((thread.kept.get(), thread.freed.load(Ordering::Relaxed)), (8, 0));
        assert_eq!(half_done.state.load(Ordering::Relaxed), LIVE_FREE);
        (2..10).for_each(|i| assert!(remove(0x7000 + 64 * i, Some(thread)).is_some()));
        assert_eq!(totals(&OwnMemory), (Counts::default(), Counts::default(), (0, 0)));
    }

    /// Samples come and go while all are forgotten again and again: nothing is counted twice, and nothing stays.
    #[test]
    fn resets_and_samples_at_the_same_time_leave_nothing() {
        let _turn = turn();
        let workers: Vec<_> = (0..3_usize)
            .map(|t| {
                std::thread::spawn(move || {
                    let thread = threads::start(t as u32).expect("memory");
                    let (context, _) = stack(&[55, 56], false).expect("memory");
                    for i in 0..30_000_usize {
                        let ptr = (t + 1) << 32 | (i % 50) << 4;
                        remove(ptr, Some(thread));
                        assert!(put(thread, context, &sample(ptr, 48)));
                    }
                    for i in 0..50 {
                        remove((t + 1) << 32 | i << 4, Some(thread));
                    }
                })
            })
            .collect();
        while !workers.iter().all(std::thread::JoinHandle::is_finished) {
            clear();
        }
        for worker in workers {
            worker.join().expect("joined");
        }
        assert_eq!(totals(&OwnMemory), (Counts::default(), Counts::default(), (0, 0)));
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
        assert!(remove(0x9000, None).is_none());
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
        assert!(remove(0x8800, None).is_some());
        let uid = thread.uid.load(Ordering::Relaxed);
        let again = core::iter::repeat_with(|| threads::start(3).expect("memory")).take(50).find(|t| t.same(thread));
        let again = again.expect("reused");
        assert!(again.uid.load(Ordering::Relaxed) > uid);
    }

    #[test]
    fn threads_record_and_free_each_others_samples() {
        const EACH: usize = 20_000;
        let _turn = turn();
        let made: Vec<Vec<Live>> = (1..=4).map(|t| (0..EACH).map(|i| live(t << 32 | i << 4)).collect()).collect();
        let made: &'static Vec<Vec<Live>> = std::boxed::Box::leak(std::boxed::Box::new(made));
        let workers: Vec<_> = (0..4_usize)
            .map(|t| {
                std::thread::spawn(move || {
                    let thread = threads::start(t as u32).expect("memory");
                    for (i, (own, neighbour)) in made[t].iter().zip(&made[(t + 1) % 4]).enumerate() {
                        let (context, _) = stack(&[(i % 700) as u64 + 1, 7], false).expect("memory");
                        let sample = Sample { live: *own, ..sample(0x10, 48) };
                        assert!(put(thread, context, &sample));
                        // Frees what its neighbour made, when that is there already, else its own.
                        if i % 3 == 0 && end(*neighbour, Some(thread), Weighed::of).is_none() {
                            end(*own, Some(thread), Weighed::of);
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
        assert!(lives.0 >= (4 * EACH - 4 * EACH.div_ceil(3)) as u64);
        for live in made.iter().flatten() {
            end(*live, None, Weighed::of);
        }
        assert_eq!(totals(&OwnMemory), (Counts::default(), Counts::default(), (0, 0)));
    }
}
