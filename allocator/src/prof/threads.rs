//! Threads of the profile table: their records, newest first in reach of the process itself.
//!
//! A record belongs to its thread from [`start`] to [`end`]; what it counted is added to the root's counters then. One
//! whose samples are all freed may serve a new thread. Identity and list change under `ProfThreads`, counters are the
//! thread's own (`records.rs`); hence each record is a segment of its own, whose cache lines no other thread writes.
#![forbid(unsafe_code)]

use crate::prim::{AtomicU32, AtomicU64, Ordering};

use jeprobe_abi::root::KIND_THREAD;

use super::records::{Own, Ptr, ThreadCell, jeprobe_root};
use super::segments::{Appender, alloc_value};
use crate::sync::mutex::Mutex;
use crate::sync::rank::Rank;

struct Threads {
    records: Appender,
    next_uid: u32,
    first: Option<Ptr<ThreadNode>>,
}

struct ThreadNode {
    record: Ptr<ThreadCell>,
    next: Option<Ptr<ThreadNode>>,
}

static THREADS: Mutex<Threads> =
    Mutex::new(Rank::ProfThreads, Threads { records: Appender::new(KIND_THREAD, 0), next_uid: 0, first: None });

/// The record of a new thread: that of an ended thread without live samples, or a fresh one. `None` without memory.
pub(crate) fn start(tid: u32) -> Option<Ptr<ThreadCell>> {
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
            samples: Own::new(),
            frees: Own::new(),
            allocated_bytes: AtomicU64::new(0),
            deallocated_bytes: AtomicU64::new(0),
            kept: Own::new(),
            freed: AtomicU64::new(0),
        };
        let record = threads.records.append(&jeprobe_root.threads, record, 0, core::iter::empty())?;
        threads.first = Some(alloc_value(ThreadNode { record, next: threads.first })?);
        record
    };
    record.uid.store(uid, Ordering::Relaxed);
    record.tid.store(tid, Ordering::Relaxed);
    record.name[0].store(0, Ordering::Relaxed);
    record.name[1].store(0, Ordering::Relaxed);
    record.samples.set(0);
    record.frees.set(0);
    record.alive.store(1, Ordering::Release);
    threads.next_uid = uid.wrapping_add(1);
    Some(record)
}

/// A thread ends: its counters go to the root. Called by the thread itself, or for one that a fork left behind.
pub(crate) fn end(record: Ptr<ThreadCell>) {
    let (samples, frees) = (record.samples.get(), record.frees.get());
    // Release: pairs with the Acquire in `ended`: what the thread wrote is settled before the record serves another.
    record.alive.store(0, Ordering::Release);
    jeprobe_root.samples.fetch_add(samples, Ordering::Relaxed);
    jeprobe_root.frees.fetch_add(frees, Ordering::Relaxed);
}

impl Threads {
    fn iter(&self) -> impl Iterator<Item = Ptr<ThreadCell>> {
        core::iter::successors(self.first, |node| node.next).map(|node| node.record)
    }

    fn ended(&self) -> Option<Ptr<ThreadCell>> {
        // Acquire: pairs with the Release in `end` and in `table::settle`.
        self.iter().find(|t| t.alive.load(Ordering::Acquire) == 0 && t.kept.get() == t.freed.load(Ordering::Acquire))
    }
}

/// In the child of a fork only the thread goes on that had the kernel id `forker`; its id is now `tid`.
pub(crate) fn keep_only(forker: u32, tid: u32) {
    for thread in THREADS.lock().iter().filter(|thread| thread.alive.load(Ordering::Relaxed) == 1) {
        if thread.tid.load(Ordering::Relaxed) == forker {
            thread.tid.store(tid, Ordering::Relaxed);
        } else {
            end(thread);
        }
    }
}

/// Makes the numbers of live samples of all threads 0.
pub(crate) fn forget_samples() {
    for thread in THREADS.lock().iter() {
        thread.kept.set(0);
        thread.freed.store(0, Ordering::Relaxed);
    }
}

pub(crate) fn prefork() {
    THREADS.lock_for_fork();
}

pub(crate) fn postfork_parent() {
    THREADS.unlock_for_fork();
}

pub(crate) fn postfork_child() {
    THREADS.reset_in_child();
}
