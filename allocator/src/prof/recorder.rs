//! The heap sampler: decides, unwinds, records, tells tracers, writes profiles.
//!
//! ```text
//!  core ─ every ~2^lg bytes ─► sample ─┬─ backtrace (stack → frames)
//!                                      ├─ table     (frames → context, live sample)   read from outside through root
//!                                      ├─ hooks     (tracer attached?)
//!                                      └─ dump      (interval, request)
//!  core ─ free of a block that has a record ─► free ─► table, hooks
//! ```
//!
//! Whether a sample point does anything is decided by `prof_active` in the root, by the thread's own switch and by the
//! semaphores. Dormant, a sample point draws the next distance and returns.
//!
//! I-PROF-1: no lock is held when the crate's Rust allocator is called; it may be the very allocator that is sampled
//! (a Rust program with `Jeprobe` as its global allocator). The modules are the exception: their lock is only ever
//! tried by the sampler. I-PROF-2: while a thread is in the recorder (`depth` above 0), its sample points only count a
//! loss, so the recorder never waits for itself.
//!
//! Two words of the root may be written by another process with the rights of a debugger: `prof_active` and
//! `dump_request`; so may `lg_sample`. They are looked at at every sample point, dormant or not, and by
//! [`serve_requests`]: a process that does not allocate and has no background thread does not see them.
//!
//! Any thread may call this in any order; `ThreadProf` belongs to its thread.
#![forbid(unsafe_code)]

use core::ops::Deref;

use jeprobe_abi::abi::MAX_FRAMES;
use jeprobe_abi::drops::Reason;
use jeprobe_abi::root::STATE_READY;

use super::backtrace::{self, Stack};
use super::dump::{self, Kind};
use super::familiar::Recalled;
use super::lives::Live;
use super::records::{ContextCell, Ptr, TctxCell, ThreadCell, jeprobe_root};
use super::rule::Registers;
use super::sampler::Sampler;
use super::stacks;
use super::state::ThreadProf;
use super::switches::{self, active, dump_requested, interval_bytes, serve_requests};
use super::table::{self, Sample};
use super::trace::Trace;
use super::way::{Caller, Start};
use super::{exit, hooks, threads, walker};
use crate::conf::Options;
use crate::prim::{AtomicU32, AtomicU64, Ordering};
use crate::samplemap::SampleMap;
use crate::sys;

/// Distance of a thread that comes before `boot`: it asks again with its next allocation. Only the booting thread and
/// those started while it boots do.
const BEFORE_BOOT_BYTES: u64 = 1;
/// Mixed into every generator's seed; set at boot.
static SEED: AtomicU64 = AtomicU64::new(0);
/// Kernel id of the thread that forks, for its child.
static FORKER: AtomicU32 = AtomicU32::new(0);

/// What a sample point decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The block is in the table: `free` must be told of it.
    pub marked: bool,
    /// Usable bytes to the next sample point: the allocation that reaches or passes it is the next sample.
    pub distance: u64,
}

/// Sets the root up. Called once, when `malloc` works.
pub fn boot(options: &'static Options) {
    let root = &jeprobe_root;
    root.pid.store(sys::getpid(), Ordering::Relaxed);
    root.lg_sample.store(options.lg_prof_sample.min(63), Ordering::Relaxed);
    root.opt_prof.store(options.prof.into(), Ordering::Relaxed);
    root.opt_accum.store(options.prof_accum.into(), Ordering::Relaxed);
    root.max_frames.store(options.prof_bt_max.clamp(1, MAX_FRAMES as u32), Ordering::Relaxed);
    root.start_ns.store(sys::clock_monotonic_ns(), Ordering::Relaxed);
    switches::set_thread_active_init(options.prof_thread_active_init);
    let here = core::ptr::from_ref(root).addr() as u64;
    SEED.store(sys::clock_monotonic_ns().rotate_left(32) ^ here, Ordering::Relaxed);
    exit::keep();
    // Release: a reader that sees READY sees the words above.
    root.state.store(STATE_READY, Ordering::Release);
    if options.prof {
        walker::prepare();
        root.prof_active.store(options.prof_active.into(), Ordering::Relaxed);
    }
}

fn booted() -> bool {
    jeprobe_root.state.load(Ordering::Acquire) == STATE_READY
}

/// Starts a thread's sampler, which may have served a thread that ended; the first distance, bytes.
pub fn thread_init(thread: &ThreadProf) -> u64 {
    thread.ready.set(false);
    thread.ended.set(false);
    thread.close_quick();
    thread.draws_left.set(0);
    thread.record.set(None);
    thread.tctx.set(None);
    if let Some(mut trace) = thread.trace.take() {
        trace.forget_counts();
        thread.trace.set(Some(trace));
    }
    thread.stack.set(Stack::UNKNOWN);
    thread.counted_bytes.set(0);
    if !booted() {
        return BEFORE_BOOT_BYTES;
    }
    let own = core::ptr::from_ref(thread).addr() as u64;
    let seed = SEED.load(Ordering::Relaxed) ^ u64::from(sys::gettid()).rotate_left(48) ^ own;
    thread.sampler.set(Sampler::seeded(seed ^ sys::clock_monotonic_ns()));
    thread.active.set(switches::thread_active_init());
    thread.ready.set(true);
    thread.draw()
}

/// An allocated object.
#[derive(Clone, Copy)]
pub struct Object {
    pub live: Live,
    /// Bytes.
    pub requested: usize,
    /// Bytes.
    pub usable: usize,
}

/// True when a sample point of the thread would record its object, which then must be one that `free` tells of.
pub fn wanted(thread: &ThreadProf) -> bool {
    if thread.ready.get() {
        active() && thread.active.get() || hooks::alloc_wanted()
    } else {
        // Settled at the sample point.
        booted()
    }
}

/// A thread reached its sample point with an allocation, and nothing is new since its last samples: the same interests,
/// distances drawn ahead, a stack that it knows. Then this is all there is to do: bytes to the next sample point, and the object
/// that `take` found. `None`, with nothing done, when it is for [`sample`].
#[inline(always)]
pub fn quick<T: Deref<Target = Live>>(
    thread: &ThreadProf,
    requested: usize,
    usable: usize,
    caller: Caller,
    take: impl FnOnce() -> Option<T>,
) -> Option<(u64, T)> {
    if !jeprobe_root.is_still(&thread.control) || hooks::alloc_wanted() {
        return None;
    }
    let left = thread.draws_left.get().wrapping_sub(1);
    let distance = thread.draws.get(left as usize)?.get();
    let trace = thread.trace.take()?;
    let tctx = backtrace::familiar(&trace, thread.stack.get().high, caller);
    thread.put_trace(trace);
    let tctx = tctx?;
    let weight = thread.weights.at_hand(usable as u64)?;
    let record = thread.record.get()?;
    let object = take()?;
    let sample = Sample {
        live: *object,
        usable_bytes: usable as u64,
        requested_bytes: requested as u64,
        weight,
        time_ns: thread.seen_ns.get(),
    };
    table::record_current(record, tctx, &sample);
    thread.draws_left.set(left);
    Some((distance, object))
}

/// A thread reached its sample point with the allocation of `usable` bytes; of `object`, unless that is one that cannot
/// be recorded. `allocated`, `deallocated`: the thread's counters, usable bytes. `now_ns`: about now, on the clock of
/// `sys::clock_recent_ns`; `caller`: who called the allocator. No lock is held.
#[inline(never)]
pub fn sample(
    thread: &ThreadProf,
    object: Option<Object>,
    usable: usize,
    allocated: u64,
    deallocated: u64,
    now_ns: u64,
    caller: Caller,
) -> Outcome {
    if !thread.ready.get() {
        // The first distance begins before this allocation.
        let distance = thread_init(thread);
        if !thread.ready.get() || distance > usable as u64 {
            object.as_ref().inspect(|object| leave(object));
            return Outcome { marked: false, distance: distance.saturating_sub(usable as u64).max(1) };
        }
    }
    let drawn_lg = thread.drawn_lg.get();
    let distance = thread.draw();
    let skip = Outcome { marked: false, distance };
    let active = object.is_some() && active() && thread.active.get();
    let wanted = object.is_some() && hooks::alloc_wanted();
    let requested_dump = dump_requested();
    if !active && !wanted && !requested_dump || thread.ended.get() || thread.depth.get() != 0 {
        pass(thread, object, allocated, active || wanted || requested_dump);
        return skip;
    }
    thread.depth.set(1);
    thread.close_quick();
    let mut marked = false;
    if let Some(Object { live, requested, usable }) = object
        && (active || wanted)
    {
        let sample = Sample {
            live,
            usable_bytes: usable as u64,
            requested_bytes: requested as u64,
            weight: thread.weights.weight(usable as u64, drawn_lg),
            // A tracer that is told of frees orders this sample among the events of its probes; nobody else needs the very
            // moment.
            time_ns: if wanted && hooks::free_wanted() { sys::clock_monotonic_ns() } else { now_ns },
        };
        marked = take(thread, &sample, active, wanted, caller);
    } else {
        object.as_ref().inspect(|object| leave(object));
    }
    if let Some(record) = thread.record.get() {
        // Relaxed: statistics.
        record.allocated_bytes.store(allocated, Ordering::Relaxed);
        record.deallocated_bytes.store(deallocated, Ordering::Relaxed);
    }
    let passed = allocated.wrapping_sub(thread.counted_bytes.replace(allocated));
    if active && interval_bytes() != 0 && dump::interval_passed(interval_bytes(), passed) {
        // A failure was reported on fd 2.
        let _ = dump::dump(None, Kind::Interval);
    }
    if requested_dump {
        serve_requests();
    }
    thread.depth.set(0);
    if marked {
        thread.open_quick(now_ns);
    }
    Outcome { marked, distance }
}

/// Leaves a sample point without a sample, which is a loss when `lost`.
#[cold]
#[inline(never)]
fn pass(thread: &ThreadProf, object: Option<Object>, allocated: u64, lost: bool) {
    if !lost {
        thread.counted_bytes.set(allocated);
    } else if thread.ended.get() {
        jeprobe_root.drop_one(Reason::ThreadExiting);
    } else {
        jeprobe_root.drop_one(Reason::Reentrant);
    }
    object.as_ref().inspect(|object| leave(object));
}

/// The object is in use without being a sample.
pub fn leave(object: &Object) {
    object.live.leave(object.usable);
}

/// Records a sample and tells the tracer; true when it is in the table.
#[inline(always)]
fn take(thread: &ThreadProf, sample: &Sample, active: bool, wanted: bool, from: Caller) -> bool {
    let unwind = active || hooks::context_wanted();
    walker::tidy(sample.time_ns);
    let record = thread.record();
    // No closure: it would be a function of its own.
    let tctx = match record {
        Some(record) if unwind => stack_counts(thread, record, from, sample.time_ns),
        Some(record) => stacks::no_context(false).and_then(|context| stacks::tctx(context, record)),
        None => None,
    };
    let whose = record.zip(tctx);
    if let Some((record, tctx)) = whose {
        table::record(record, tctx, sample);
    } else {
        sample.live.leave(sample.usable_bytes as usize);
        jeprobe_root.drop_one(Reason::NoMemory);
    }
    if wanted {
        let Sample { live, usable_bytes, weight, requested_bytes, .. } = *sample;
        let ptr = live.block().addr();
        // Who did not ask for the process's own stacks may walk them himself, and the allocator has no frame pointers.
        if let Some(caller) = if unwind { None } else { caller(thread, from) } {
            hooks::alloc_from(ptr, usable_bytes, weight.bytes, caller.pc, requested_bytes, caller.bp);
        } else {
            let context = tctx.and_then(|tctx| tctx.context.get());
            let context = context.filter(|context| context.depth != 0).map_or(0, Ptr::addr);
            hooks::jeprobe_hook_alloc(ptr, usable_bytes, weight.bytes, context, requested_bytes);
        }
    }
    whose.is_some()
}

/// Where the program called the allocator, if that can be found.
#[cold]
#[inline(never)]
fn caller(thread: &ThreadProf, from: Caller) -> Option<Registers> {
    let start = backtrace::start(from);
    with_trace(thread, |trace| {
        let mut stack = thread.stack.get();
        let caller = backtrace::caller(trace, &mut stack, start);
        thread.stack.set(stack);
        caller
    })
}

/// Lets `act` use what the thread remembers of its walks; `None` without memory for it.
#[inline(always)]
fn with_trace<R>(thread: &ThreadProf, act: impl FnOnce(&mut Trace) -> Option<R>) -> Option<R> {
    let mut trace = thread.trace.take().or_else(Trace::new)?;
    let result = act(&mut trace);
    thread.put_trace(trace);
    result
}

/// The counts of the stack in its thread that the program called on; those of no stack when there is none.
#[inline(always)]
fn stack_counts(thread: &ThreadProf, record: Ptr<ThreadCell>, from: Caller, now_ns: u64) -> Option<Ptr<TctxCell>> {
    let Some(at) = backtrace::in_program(from) else { return inside_counts(thread, record, now_ns) };
    if let Some(mut trace) = thread.trace.take() {
        let recalled = backtrace::recall(&mut trace, thread.stack.get(), at, now_ns);
        thread.put_trace(trace);
        if let Some(recalled) = recalled {
            return Some(recalled_counts(recalled));
        }
    }
    walk_counts(thread, record, Start::program(at), now_ns)
}

/// As [`stack_counts`], for an entry point that does not know its caller. Both ways begin in this one function: what is
/// learned by the second serves the first.
#[inline(never)]
fn inside_counts(thread: &ThreadProf, record: Ptr<ThreadCell>, now_ns: u64) -> Option<Ptr<TctxCell>> {
    let first = backtrace::here();
    if let Some(mut trace) = thread.trace.take() {
        let recalled = backtrace::recall_from(&mut trace, thread.stack.get(), first, now_ns);
        thread.put_trace(trace);
        if let Some(recalled) = recalled {
            return Some(recalled_counts(recalled));
        }
    }
    walk_counts(thread, record, Start::inside(first), now_ns)
}

#[inline(always)]
fn recalled_counts(recalled: Recalled) -> Ptr<TctxCell> {
    if recalled.truncated {
        jeprobe_root.drop_one(Reason::TruncatedStack);
    }
    recalled.tctx
}

/// As [`stack_counts`], for a stack that is not familiar.
#[inline(never)]
fn walk_counts(thread: &ThreadProf, record: Ptr<ThreadCell>, start: Start, now_ns: u64) -> Option<Ptr<TctxCell>> {
    with_trace(thread, |trace| walked_counts(thread, record, trace, start, now_ns)).or_else(|| {
        thread.tctx.set(None);
        jeprobe_root.drop_one(Reason::NoStack);
        stacks::no_context(true).and_then(|context| stacks::tctx(context, record))
    })
}

fn walked_counts(
    thread: &ThreadProf,
    record: Ptr<ThreadCell>,
    trace: &mut Trace,
    start: Start,
    now_ns: u64,
) -> Option<Ptr<TctxCell>> {
    let mut stack = thread.stack.get();
    let walked = backtrace::walk(trace, &mut stack, start, now_ns);
    thread.stack.set(stack);
    let walked = walked.filter(|walked| walked.depth != 0)?;
    if walked.truncated {
        jeprobe_root.drop_one(Reason::TruncatedStack);
    }
    if walked.same
        && let Some(tctx) = thread.tctx.get()
    {
        trace.keep(tctx);
        return Some(tctx);
    }
    let (context, new) = stacks::context(&trace.stack(walked), walked.truncated)?;
    if new && hooks::context_wanted() {
        hooks::jeprobe_hook_context(context.addr(), context.depth.into());
    }
    let tctx = stacks::tctx(context, record);
    thread.tctx.set(tctx);
    if !new && let Some(tctx) = tctx {
        trace.keep(tctx);
    }
    tctx
}

/// A block that has a record is freed; its usable bytes when it was a sample of this thread, and nobody is to be told. `None`, with
/// nothing done, when it is for [`free`].
#[inline(always)]
pub fn quick_free(thread: &ThreadProf, live: Live) -> Option<u64> {
    if hooks::free_wanted() {
        return None;
    }
    table::end_own(live, thread.record.get()?, |usable| thread.weights.at_hand(usable))
}

/// A block that has a record is freed; true when it was a sample.
#[inline(always)]
pub fn free(thread: &ThreadProf, live: Live, usable: usize) -> bool {
    let weigh = |usable, bytes| thread.weights.known(usable, bytes);
    let Some(context) = table::end(live, thread.record.get(), weigh) else { return false };
    if hooks::free_wanted() {
        tell_free(live.block().addr(), usable, context);
    }
    true
}

/// A map for the large block, which may become a sample; `None` without memory.
pub(crate) fn take_map(thread: &ThreadProf, block: *mut u8) -> Option<&'static SampleMap> {
    thread.maps.take(block)
}

/// Gives the map of a large block back that is no sample.
pub(crate) fn give_map(thread: &ThreadProf, map: &'static SampleMap) {
    thread.maps.give(map);
}

#[cold]
#[inline(never)]
fn tell_free(ptr: usize, usable: usize, context: Ptr<ContextCell>) {
    let context = if context.depth == 0 { 0 } else { context.addr() };
    hooks::jeprobe_hook_free(ptr, usable as u64, context);
}

/// A thread ends. Samples it takes afterwards are lost and counted.
pub fn thread_exit(thread: &ThreadProf, allocated: u64, deallocated: u64) {
    thread.ended.set(true);
    thread.close_quick();
    if let Some(record) = thread.record.take() {
        record.allocated_bytes.store(allocated, Ordering::Relaxed);
        record.deallocated_bytes.store(deallocated, Ordering::Relaxed);
        threads::end(record);
    }
    jeprobe_root.exited_allocated_bytes.fetch_add(allocated, Ordering::Relaxed);
    jeprobe_root.exited_deallocated_bytes.fetch_add(deallocated, Ordering::Relaxed);
}

/// Takes all locks of the profiler, in rank order.
pub fn prefork() {
    dump::prefork_state();
    walker::prefork();
    dump::prefork_prefix();
    table::prefork();
    FORKER.store(sys::gettid(), Ordering::Relaxed);
}

pub fn postfork_parent() {
    table::postfork_parent();
    dump::postfork_parent();
    walker::postfork_parent();
}

/// The child owns copies of all objects, so its samples stay; of the threads only the forking one goes on.
pub fn postfork_child() {
    table::postfork_child();
    dump::postfork_child();
    walker::postfork_child();
    jeprobe_root.pid.store(sys::getpid(), Ordering::Relaxed);
    threads::keep_only(FORKER.load(Ordering::Relaxed), sys::gettid());
}
