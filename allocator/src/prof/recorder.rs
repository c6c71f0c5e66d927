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

extern crate alloc;

use crate::prim::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use alloc::boxed::Box;
use core::cell::Cell;
use core::ffi::CStr;
use core::ops::Deref;

use jeprobe_abi::abi::MAX_FRAMES;
use jeprobe_abi::drops::Reason;
use jeprobe_abi::root::STATE_READY;
use jeprobe_abi::unbias;

use super::backtrace::{self, Stack};
use super::dump::{self, DumpError, Kind};
use super::familiar::Recalled;
use super::lives::{KeptMaps, Live};
use super::records::{ContextCell, Control, Ptr, TctxCell, ThreadCell, jeprobe_root};
use super::rule::Registers;
use super::sampler::{Sampler, Weights};
use super::stacks;
use super::table::{self, Sample};
use super::trace::Trace;
use super::way::{Caller, Start};
use super::{exit, hooks, threads, walker};
use crate::conf::{self, Options};
use crate::samplemap::SampleMap;
use crate::sys;

/// Distance of a thread that comes before `boot`: it asks again with its next allocation. Only the booting thread and
/// those started while it boots do.
const BEFORE_BOOT_BYTES: u64 = 1;
/// Distances that a thread draws ahead.
const DRAWS: usize = 16;
/// Who takes that many samples within this time takes them the quick way.
const OFTEN_NS: u64 = 10_000_000;
/// Times that a thread draws between two looks at the clock if all of them lie within `OFTEN_NS`. So many samples in a row, times
/// `DRAWS`, may have the time of the one before them, and what else goes by time waits for as many.
const ROUNDS: u32 = 4;

static THREAD_ACTIVE_INIT: AtomicBool = AtomicBool::new(true);
/// Mixed into every generator's seed; set at boot.
static SEED: AtomicU64 = AtomicU64::new(0);
/// Kernel id of the thread that forks, for its child.
static FORKER: AtomicU32 = AtomicU32::new(0);

/// What the sampler keeps per thread. Plain data; interior changes, because the recorder may be entered again by an
/// allocation that it makes itself.
pub struct ThreadProf {
    sampler: Cell<Sampler>,
    record: Cell<Option<Ptr<ThreadCell>>>,
    stack: Cell<Stack>,
    weights: Weights,
    maps: KeptMaps,
    trace: Cell<Option<Box<Trace>>>,
    /// The counts of the stack that `trace` holds.
    tctx: Cell<Option<Ptr<TctxCell>>>,
    /// Log2 of the mean distance by which the current one was drawn, and those that wait.
    drawn_lg: Cell<u32>,
    /// Distances that wait to be used: the first `draws_left`, from the last on.
    draws: [Cell<u64>; DRAWS],
    draws_left: Cell<u32>,
    /// What the root has to say for [`quick`] to be the way of a sample; nothing that it ever says when it is not.
    control: Cell<Control>,
    /// When the thread last looked at the clock, and when it last drew distances, ns.
    seen_ns: Cell<u64>,
    drew_ns: Cell<u64>,
    /// Times that distances were drawn since the thread last looked at the clock, and how many there may be: none for who draws
    /// them seldom.
    drew: Cell<u32>,
    rounds: Cell<u32>,
    /// Bytes allocated by the thread when it last reached a sample point.
    counted_bytes: Cell<u64>,
    depth: Cell<u32>,
    active: Cell<bool>,
    ready: Cell<bool>,
    ended: Cell<bool>,
}

/// What a sample point decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The block is in the table: `free` must be told of it.
    pub marked: bool,
    /// Usable bytes to the next sample point: the allocation that reaches or passes it is the next sample.
    pub distance: u64,
}

impl ThreadProf {
    #[expect(clippy::declare_interior_mutable_const, reason = "an initial value, copied into each thread's slot")]
    pub const NEW: ThreadProf = ThreadProf {
        sampler: Cell::new(Sampler::seeded(0)),
        record: Cell::new(None),
        stack: Cell::new(Stack::UNKNOWN),
        weights: Weights::NONE,
        maps: KeptMaps::NONE,
        trace: Cell::new(None),
        tctx: Cell::new(None),
        drawn_lg: Cell::new(0),
        draws: [const { Cell::new(0) }; DRAWS],
        draws_left: Cell::new(0),
        control: Cell::new(Control::NONE),
        seen_ns: Cell::new(0),
        drew_ns: Cell::new(0),
        drew: Cell::new(0),
        rounds: Cell::new(0),
        counted_bytes: Cell::new(0),
        depth: Cell::new(0),
        active: Cell::new(true),
        ready: Cell::new(false),
        ended: Cell::new(false),
    };

    #[inline]
    fn draw(&self) -> u64 {
        let left = self.draws_left.get().wrapping_sub(1);
        if let Some(draw) = self.draws.get(left as usize)
            && self.drawn_lg.get() == lg_sample()
        {
            self.draws_left.set(left);
            return draw.get();
        }
        self.draw_all()
    }

    /// Draws as many distances as are kept, and takes one.
    #[cold]
    #[inline(never)]
    fn draw_all(&self) -> u64 {
        let lg = lg_sample();
        self.drawn_lg.set(lg);
        let mut sampler = self.sampler.get();
        let distance = sampler.distance(lg);
        self.sampler.set(sampler);
        self.draw_ahead(lg);
        distance
    }

    #[inline]
    fn draw_ahead(&self, lg: u32) {
        let mut sampler = self.sampler.get();
        self.draws.iter().for_each(|draw| draw.set(sampler.distance(lg)));
        self.sampler.set(sampler);
        self.draws_left.set(DRAWS as u32);
        self.drew.set(self.drew.get() + 1);
    }

    /// Opens the way of [`quick`], until something changes or the distances that wait are used up. `now_ns`: about now.
    #[inline]
    fn open_quick(&self, now_ns: u64) {
        self.seen_ns.set(now_ns);
        let drew = self.drew.replace(0);
        if drew != 0 {
            let took_ns = now_ns.wrapping_sub(self.drew_ns.replace(now_ns)) / u64::from(drew);
            let rounds = if took_ns < OFTEN_NS / u64::from(ROUNDS) { ROUNDS } else { 1 };
            self.rounds.set(if took_ns < OFTEN_NS { rounds } else { 0 });
        }
        let control = jeprobe_root.control();
        let lg = control.lg_sample().min(63);
        if self.rounds.get() != 0
            && control.is_plain()
            && self.active.get()
            && interval_bytes() == 0
            && self.drawn_lg.get() == lg
            && self.weights.are_of(lg)
        {
            self.control.set(control);
        }
    }

    fn close_quick(&self) {
        self.control.set(Control::NONE);
    }

    #[inline(always)]
    fn record(&self) -> Option<Ptr<ThreadCell>> {
        self.record.get().or_else(|| self.make_record())
    }

    /// Puts the trace back that was taken. There is none meanwhile, so nothing is dropped.
    #[inline(always)]
    fn put_trace(&self, trace: Box<Trace>) {
        core::mem::forget(self.trace.replace(Some(trace)));
    }

    #[cold]
    #[inline(never)]
    fn make_record(&self) -> Option<Ptr<ThreadCell>> {
        let record = threads::start(sys::gettid());
        self.record.set(record);
        record
    }
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
    THREAD_ACTIVE_INIT.store(options.prof_thread_active_init, Ordering::Relaxed);
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
    thread.active.set(THREAD_ACTIVE_INIT.load(Ordering::Relaxed));
    thread.ready.set(true);
    thread.draw()
}

/// The distance from here to the next sample point of a thread whose current one was drawn by another mean than the one in
/// force now; `None` when it need not be drawn again. What the thread allocated since its last draw does not matter: the
/// distribution has no memory.
#[inline]
pub fn redraw(thread: &ThreadProf) -> Option<u64> {
    (thread.ready.get() && thread.drawn_lg.get() != lg_sample()).then(|| thread.draw())
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

/// Draws distances for [`quick`], where all that it had are used up and nothing but them is missing. False, with nothing done,
/// otherwise, and when the thread is to look at the clock before it draws.
pub fn draw_ahead(thread: &ThreadProf) -> bool {
    let due = thread.draws_left.get() == 0 && thread.drew.get() + 1 < thread.rounds.get();
    // The way is open: the distances are those of the mean in force.
    let due = due && jeprobe_root.is_still(&thread.control);
    if due {
        thread.draw_ahead(thread.drawn_lg.get());
    }
    due
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

fn dump_requested() -> bool {
    jeprobe_root.dump_request.load(Ordering::Relaxed) != jeprobe_root.dump_served.load(Ordering::Relaxed)
}

/// Makes the dump that someone outside asked for, if any. For the background thread; sample points do it by themselves.
pub fn serve_requests() {
    let wanted = jeprobe_root.dump_request.load(Ordering::Relaxed);
    let served = jeprobe_root.dump_served.load(Ordering::Relaxed);
    // Relaxed: the exchange only picks the one who serves.
    if wanted != served
        && jeprobe_root.dump_served.compare_exchange(served, wanted, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    {
        // A failure was reported on fd 2.
        let _ = dump::dump(None, Kind::Request);
    }
}

/// `prof.active`.
#[inline]
pub fn active() -> bool {
    jeprobe_root.prof_active.load(Ordering::Relaxed) != 0
}

/// Sets `prof.active`; the old value.
pub fn set_active(on: bool) -> bool {
    jeprobe_root.prof_active.swap(on.into(), Ordering::Relaxed) != 0
}

/// `prof.thread_active_init`.
pub fn thread_active_init() -> bool {
    THREAD_ACTIVE_INIT.load(Ordering::Relaxed)
}

/// Sets `prof.thread_active_init`; the old value.
pub fn set_thread_active_init(on: bool) -> bool {
    THREAD_ACTIVE_INIT.swap(on, Ordering::Relaxed)
}

/// `thread.prof.active`.
pub fn thread_active(thread: &ThreadProf) -> bool {
    thread.active.get()
}

/// Sets `thread.prof.active`; the old value.
pub fn set_thread_active(thread: &ThreadProf, on: bool) -> bool {
    thread.close_quick();
    thread.active.replace(on)
}

/// Why a thread cannot be named so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameError {
    /// A byte is neither printable nor blank.
    Unprintable,
    NoMemory,
}

/// `thread.prof.name`; empty when never set.
pub fn thread_name(thread: &ThreadProf) -> &'static CStr {
    thread.record.get().map_or(c"", Ptr::<ThreadCell>::name)
}

/// Sets `thread.prof.name`; 15 bytes are kept.
pub fn set_thread_name(thread: &ThreadProf, name: &CStr) -> Result<(), NameError> {
    if name.to_bytes().iter().any(|&b| !(b.is_ascii_graphic() || b == b' ' || b == b'\t')) {
        return Err(NameError::Unprintable);
    }
    thread.record().ok_or(NameError::NoMemory)?.set_name(name.to_bytes());
    Ok(())
}

/// `prof.dump`: to `path`, or to a name made of the prefix. The reason of a failure was written to fd 2 as well.
pub fn dump(path: Option<&CStr>) -> Result<(), DumpError> {
    dump::dump(path, Kind::Mallctl)
}

/// `prof.reset`: forgets all samples and counts, and sets the mean distance when one is given.
pub fn reset(lg: Option<u32>) {
    if let Some(lg) = lg {
        jeprobe_root.lg_sample.store(lg.min(63), Ordering::Relaxed);
    }
    table::clear();
}

/// `prof.prefix`.
pub fn set_prefix(prefix: &CStr) {
    dump::set_prefix(prefix);
}

/// `prof.lg_sample`.
pub fn lg_sample() -> u32 {
    jeprobe_root.lg_sample.load(Ordering::Relaxed).min(63)
}

/// `prof.interval`: bytes between interval dumps, 0 = none.
pub fn interval_bytes() -> u64 {
    u32::try_from(conf::options().lg_prof_interval).map_or(0, unbias::interval_bytes)
}

/// Tells readers of the root how large the heap is, bytes.
pub fn set_gauges(allocated: u64, active: u64, resident: u64, mapped: u64) {
    jeprobe_root.allocated_bytes.store(allocated, Ordering::Relaxed);
    jeprobe_root.active_bytes.store(active, Ordering::Relaxed);
    jeprobe_root.resident_bytes.store(resident, Ordering::Relaxed);
    jeprobe_root.mapped_bytes.store(mapped, Ordering::Relaxed);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_drawn_ahead_are_those_of_the_mean_in_force() {
        let thread = ThreadProf::NEW;
        thread.sampler.set(Sampler::seeded(5));
        let lg = lg_sample();
        let mut sampler = Sampler::seeded(5);
        let mut want: std::vec::Vec<u64> = (0..2 * (DRAWS + 1)).map(|_| sampler.distance(lg)).collect();
        let mut got: std::vec::Vec<u64> = (0..want.len()).map(|_| thread.draw()).collect();
        want.sort_unstable();
        got.sort_unstable();
        assert_eq!(got, want);
        thread.draw();
        assert_eq!(thread.draws_left.get(), DRAWS as u32);
        // As if they had been drawn by another.
        thread.drawn_lg.set(lg ^ 1);
        thread.draw();
        assert_eq!((thread.drawn_lg.get(), thread.draws_left.get()), (lg, DRAWS as u32));
    }

    #[test]
    fn the_quick_way_is_open_to_who_draws_often_only() {
        let thread = ThreadProf::NEW;
        let open = |drew, at_ns| {
            thread.drew.set(drew);
            thread.open_quick(at_ns);
            thread.rounds.get()
        };
        let began_ns = 1_000_000_000_000;
        assert_eq!(open(1, began_ns), 0);
        assert_eq!(open(1, began_ns + OFTEN_NS - 1), 1);
        assert_eq!(open(1, began_ns + 2 * OFTEN_NS), 0);
        assert_eq!(open(1, began_ns + 2 * OFTEN_NS + OFTEN_NS / 4 - 1), ROUNDS);
        // Nothing was drawn.
        assert_eq!(open(0, began_ns + 4 * OFTEN_NS), ROUNDS);
        assert_eq!(open(4, began_ns + 4 * OFTEN_NS), 1);
        assert_eq!(thread.seen_ns.get(), began_ns + 4 * OFTEN_NS);
    }

    #[test]
    fn the_quick_way_draws_a_few_times_before_it_looks_at_the_clock() {
        let thread = ThreadProf::NEW;
        thread.draw();
        thread.draws_left.set(0);
        thread.rounds.set(ROUNDS);
        assert!(!draw_ahead(&thread), "the way is closed");
        // Other tests may change what the root says.
        let drawn = |rounds| {
            (0..1000).any(|_| {
                thread.drew.set(1);
                thread.rounds.set(rounds);
                thread.draws_left.set(0);
                thread.control.set(jeprobe_root.control());
                draw_ahead(&thread) && thread.draws_left.get() == DRAWS as u32 && thread.drew.get() == 2
            })
        };
        assert!(drawn(ROUNDS) && drawn(3) && !drawn(2) && !drawn(0));
        assert!(!draw_ahead(&thread), "there are some left");
    }
}
