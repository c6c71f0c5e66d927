//! Walks the calling thread's stack by unwind tables, with frame pointers where there are none. No lock that the program
//! or its libraries could hold, and no memory but for a trace that grows with the deepest stack.
//!
//! ```text
//!  trace.rs ─ by remembered words, then by known rules ─┐
//!     │ a place without a rule, or an opaque frame      └─► frames
//!     ▼
//!  WALKERS: a few, each an unwinder's cache, a stack and a buffer for /proc, behind a lock of its own
//!  CURRENT ─► Snapshot (modules, unwinder)          replaced by `refresh`, read only while holding a walker
//! ```
//!
//! I-WALK-1: a snapshot is freed only after every walker's lock was taken once since it was replaced, so no walk still
//! reads it. I-WALK-2: stack memory is read only between the stack pointer and the end of the mapping that holds it,
//! cut at the thread's own control block; a broken frame ends the walk.
//!
//! When a walk meets code that the snapshot does not know, the modules are read again, rate limited, outside the walk,
//! and the stack is walked once more. Walkers are made at boot with `opt.prof`, else by the walk that finds none free;
//! those that nobody needs for a while are let go, and so are the pages of the tables. All of this runs on stacks of its
//! own: a thread of 16 KiB has no room for it.

extern crate alloc;

use crate::prim::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use alloc::boxed::Box;
use core::arch::asm;
use core::ops::{ControlFlow, Range};

use framehop::{CacheNative, FrameAddress, MustNotAllocateDuringUnwind, UnwindRegsNative, Unwinder};
use jeprobe_abi::abi::MAX_FRAMES;

use super::familiar::Recalled;
use super::maps;
use super::modules::{self, Snapshot};
use super::records::jeprobe_root;
use super::rule::{self, Key, Registers, Rule, Rules, Seen, Step};
use super::trace::{Trace, Walked};
use super::way::{Link, Words};
use crate::sync::mutex::{Guard, Mutex};
use crate::sync::rank::Rank;
use crate::sys;
use crate::sys::stack::{LargeStack, on_large_stack};

/// Walkers: more only help when more threads than this sample at the same moment. One takes about 50 KiB.
const SLOTS: usize = 8;
/// Least time between two looks at the mappings, ns; doubled, up to the other, each time nothing had changed. A look
/// takes 0.1 to 0.3 ms with a hundred libraries: at most a few percent of one thread while libraries come in, and
/// below one in a thousand in a program whose stacks never end well.
const REFRESH_NS: u64 = 10_000_000;
const MAX_REFRESH_NS: u64 = 1_000_000_000;
/// Time between two looks without any doubt, ns. A library that came to the place of another may be walked by the wrong
/// tables without an error; this is for how long.
const ROUTINE_NS: u64 = 1_000_000_000;

/// Time after the last use of a walker at which they and the pages of the tables are let go, ns: the rules that were
/// found serve most walks. Beginning anew takes some 20 us.
const IDLE_NS: u64 = 20_000_000;

struct Walker {
    /// The walk runs here: decoding a table takes several KiB, more than a small thread can spare.
    stack: LargeStack,
    inner: Inner,
}

struct Inner {
    cache: CacheNative<MustNotAllocateDuringUnwind>,
    buf: [u8; maps::LINE_BYTES],
}

static WALKERS: [Mutex<Option<Box<Walker>>>; SLOTS] = [const { Mutex::new(Rank::ProfUnwind, None) }; SLOTS];

/// Written under `REFRESH`.
static CURRENT: AtomicPtr<Snapshot> = AtomicPtr::new(core::ptr::null_mut());
static REFRESH: Mutex<u64> = Mutex::new(Rank::ProfModules, REFRESH_NS);
/// Thread that holds `REFRESH` to read the modules: an allocation it makes meanwhile must not wait for itself.
static REFRESHER: AtomicU32 = AtomicU32::new(0);
static NEXT_REFRESH_NS: AtomicU64 = AtomicU64::new(0);
/// When the walkers are let go; `u64::MAX` when there is nothing to let go.
static IDLE_AT_NS: AtomicU64 = AtomicU64::new(u64::MAX);
/// Number of the set of modules in `CURRENT`; the rules of other sets are not used.
static GENERATION: AtomicU64 = AtomicU64::new(0);

/// The stack that a thread was last seen on: addresses `low..high` are mapped as long as the thread runs there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stack {
    low: u64,
    high: u64,
}

impl Stack {
    pub(crate) const UNKNOWN: Stack = Stack { low: 0, high: 0 };
}

/// Registers of the place where this is called, from which a walk may begin as long as that function runs.
#[inline(always)]
pub(crate) fn here() -> Registers {
    let (pc, sp, bp): (u64, u64, u64);
    // SAFETY: reads registers only.
    unsafe {
        asm!("lea {0}, [rip]", "mov {1}, rsp", "mov {2}, rbp", out(reg) pc, out(reg) sp, out(reg) bp,
             options(nomem, nostack, preserves_flags));
    }
    Registers { pc, sp, bp }
}

/// The part of a thread's stack that may be read: from the stack pointer to the end.
#[derive(Clone, Copy)]
struct StackWords {
    sp: u64,
    /// Words begin below `sp` + this.
    span: u64,
}

impl StackWords {
    fn new(sp: u64, high: u64) -> StackWords {
        StackWords { sp, span: high.saturating_sub(sp).saturating_sub(7) }
    }
}

impl Words for StackWords {
    #[inline(always)]
    fn read(&self, addr: u64) -> Option<u64> {
        if addr.wrapping_sub(self.sp) >= self.span {
            return None;
        }
        let place = core::ptr::with_exposed_provenance::<u64>(addr as usize);
        // SAFETY: I-WALK-2: between the stack pointer and the end of the thread's own stack.
        Some(unsafe { place.read_unaligned() })
    }

    #[inline(always)]
    fn holding(&self, base: u64, links: &[Link]) -> usize {
        let differs = |link: &Link| {
            let addr = base.wrapping_add(link.slot);
            debug_assert!(addr.wrapping_sub(self.sp) < self.span);
            let place = core::ptr::with_exposed_provenance::<u64>(addr as usize);
            // SAFETY: by the trait's contract (I-TRACE-4, and the check in `Way::follow`) a place that `read` reads.
            unsafe { place.read_unaligned() != link.value }
        };
        // By the length of what is left: a counter beside an iterator would be half of the loop.
        let mut left = links;
        while let [before @ .., last] = left
            && !differs(last)
        {
            left = before;
        }
        links.len() - left.len()
    }
}

/// Frames of a stack that are kept.
#[inline(always)]
fn max_frames() -> usize {
    (jeprobe_root.max_frames.load(Ordering::Relaxed) as usize).clamp(1, MAX_FRAMES)
}

/// The counts of the stack on which `first` stands, when it is one that `trace` keeps (`Trace::keep`).
#[inline(always)]
pub(crate) fn recall(trace: &mut Trace, stack: Stack, first: Registers, now_ns: u64) -> Option<Recalled> {
    if now_ns >= NEXT_REFRESH_NS.load(Ordering::Relaxed).saturating_add(ROUTINE_NS)
        || !(stack.low..stack.high).contains(&first.sp)
    {
        return None;
    }
    let words = StackWords::new(first.sp, stack.high);
    let own = own_text();
    let generation = GENERATION.load(Ordering::Relaxed);
    let recalled = trace.recall(first, stack.high, generation, max_frames(), &words, |pc| own.contains(&pc))?;
    #[cfg(debug_assertions)]
    compare_recalled(recalled, generation, first, words);
    Some(recalled)
}

/// Walks the stack from `first` on, registers of a function that is running; the frames are in `trace`, leaf first, without
/// the allocator's own when it is a library of its own. `None` when no stack can be walked.
#[inline(never)]
pub(crate) fn walk(trace: &mut Trace, stack: &mut Stack, first: Registers, now_ns: u64) -> Option<Walked> {
    let max = max_frames();
    if CURRENT.load(Ordering::Relaxed).is_null() {
        // Without a snapshot there is no stack at all: worth waiting for.
        refresh(true);
    } else if now_ns >= NEXT_REFRESH_NS.load(Ordering::Relaxed).saturating_add(ROUTINE_NS) {
        refresh(false);
    }
    if !(stack.low..stack.high).contains(&first.sp) {
        locate(stack, first.sp)?;
    }
    let words = StackWords::new(first.sp, stack.high);
    let generation = generation()?;
    let walked = trace.walk(first, stack.high, generation, max, &words, &mut Tables::new(words));
    let walked = if walked.doubtful && now_ns >= NEXT_REFRESH_NS.load(Ordering::Relaxed) {
        walk_again(trace, first, stack.high, generation, max, words, walked)?
    } else {
        walked
    };
    #[cfg(debug_assertions)]
    compare(trace, walked, first, words, max);
    Some(walked)
}

/// Looks at the modules again and, when they have changed, walks again.
#[cold]
#[inline(never)]
fn walk_again(
    trace: &mut Trace,
    first: Registers,
    high: u64,
    generation: u64,
    max: usize,
    words: StackWords,
    walked: Walked,
) -> Option<Walked> {
    refresh(false);
    let newer = self::generation()?;
    if newer == generation {
        return Some(walked);
    }
    Some(trace.walk(first, high, newer, max, &words, &mut Tables::new(words)))
}

/// The generation of the modules; `None` while there are none.
fn generation() -> Option<u64> {
    // Acquire: pairs with the Release in `refresh`: the modules of this generation, or later ones, are in `CURRENT`.
    Some(GENERATION.load(Ordering::Acquire)).filter(|generation| *generation != 0)
}

/// The program's own registers as they are right after its call into the allocator. `None` without a walker, when the
/// walk fails, and when the allocator is not a library of its own.
#[inline(never)]
pub(crate) fn caller(trace: &mut Trace, stack: &mut Stack, first: Registers) -> Option<Registers> {
    // The allocator's own code does not move: a snapshot that knows it never grows too old for this.
    if CURRENT.load(Ordering::Relaxed).is_null() {
        refresh(true);
    }
    if !own_text().contains(&first.pc) {
        return None;
    }
    if !(stack.low..stack.high).contains(&first.sp) {
        locate(stack, first.sp)?;
    }
    let words = StackWords::new(first.sp, stack.high);
    trace.caller(first, generation()?, &words, &mut Tables::new(words))
}

/// The unwinder as the source of rules.
struct Tables {
    words: StackWords,
    own: Range<u64>,
}

impl Tables {
    fn new(words: StackWords) -> Tables {
        Tables { words, own: own_text() }
    }
}

impl Rules for Tables {
    #[cold]
    fn find(&mut self, key: Key) -> Option<Rule> {
        take_walker()?.as_mut()?.find_rule(key)
    }

    #[cold]
    fn step(&mut self, registers: Registers, first: bool) -> Step {
        let mut walker = take_walker();
        let step =
            walker.as_mut().and_then(|slot| slot.as_mut()).map(|walker| walker.step(registers, first, self.words));
        step.unwrap_or(Step::Broken)
    }

    #[inline]
    fn is_own(&self, pc: u64) -> bool {
        self.own.contains(&pc)
    }
}

/// A walker of which this thread is the only user, made now if none is free.
fn take_walker() -> Option<Guard<'static, Option<Box<Walker>>>> {
    // Relaxed: whoever stores last, the time is about right.
    IDLE_AT_NS.store(sys::clock_recent_ns() + IDLE_NS, Ordering::Relaxed);
    let mut blank = None;
    for slot in &WALKERS {
        if let Some(guard) = slot.try_lock() {
            if guard.is_some() {
                return Some(guard);
            }
            blank = Some(slot);
            break;
        }
    }
    let slot = if let Some(slot) = blank {
        slot
    } else {
        // All are busy. The first is tried first by everyone, so it is held for the shortest times.
        let guard = WALKERS[0].lock();
        if guard.is_some() {
            return Some(guard);
        }
        &WALKERS[0]
    };
    let walker = on_large_stack(new_walker)??;
    let mut guard = slot.lock();
    if guard.is_none() {
        *guard = Some(walker);
    }
    Some(guard)
}

/// Lets walkers and tables go that nobody used for a while. No lock is held.
#[inline]
pub(crate) fn tidy(now_ns: u64) {
    if now_ns >= IDLE_AT_NS.load(Ordering::Relaxed) {
        tidy_slow();
    }
}

#[cold]
#[inline(never)]
fn tidy_slow() {
    IDLE_AT_NS.store(u64::MAX, Ordering::Relaxed);
    for (i, slot) in WALKERS.iter().enumerate() {
        let Some(mut guard) = slot.try_lock() else { continue };
        let walker = guard.take();
        if i == 0 {
            // SAFETY: I-WALK-1: this slot's lock is held since before the load and until after the last use.
            if let Some(snapshot) = unsafe { CURRENT.load(Ordering::Acquire).as_ref() } {
                snapshot.let_go();
            }
        }
        drop(guard);
        // Gives memory back: with no lock held.
        drop(walker);
    }
}

/// Needs more stack than a small thread has: the parts are built there before they move to their place.
fn new_walker() -> Option<Box<Walker>> {
    let inner = Inner { cache: CacheNative::new_in(), buf: [0; maps::LINE_BYTES] };
    Some(Box::new(Walker { stack: LargeStack::new()?, inner }))
}

/// Address of the thread's control block, which ends its stack.
fn thread_pointer() -> u64 {
    let pointer: u64;
    // SAFETY: the x86-64 ABI keeps the block's own address in its first word.
    unsafe {
        asm!("mov {0}, qword ptr fs:[0]", out(reg) pointer, options(nostack, preserves_flags, readonly, pure));
    }
    pointer
}

/// Stacks of threads, by the address of the control block at their end: thread libraries use stacks again, and a look
/// at the mappings takes 0.1 ms. One word each: page number of the block in the upper 35 bits, pages below it.
static KNOWN_STACKS: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];
const PAGES_BITS: u32 = 29;

/// Its place for the stack that ends at a page. Thread libraries place stacks at multiples of large powers of two.
fn known_stack(page: u64) -> &'static AtomicU64 {
    let hash = page.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    &KNOWN_STACKS[(hash >> 58) as usize % KNOWN_STACKS.len()]
}

/// Finds the stack that holds `sp`; `None` without a walker, where the mappings must be read.
#[cold]
#[inline(never)]
fn locate(stack: &mut Stack, sp: u64) -> Option<()> {
    let block = thread_pointer();
    let page = block >> 12;
    // Relaxed: the word is complete in itself. Between the stack pointer and the control block of a thread there is
    // nothing but its stack, as far down as that of the last thread there went.
    let word = known_stack(page).load(Ordering::Relaxed);
    let low = block.saturating_sub((word & ((1 << PAGES_BITS) - 1)) << 12);
    if word >> PAGES_BITS == page && (low..block).contains(&sp) {
        *stack = Stack { low, high: block };
    } else {
        take_walker()?.as_mut()?.find_stack(stack, sp);
    }
    Some(())
}

/// Finds the mapping that holds `sp`, and its part that is the stack's.
fn find_stack(stack: &mut Stack, sp: u64, buf: &mut [u8]) {
    let block = thread_pointer();
    *stack = Stack::UNKNOWN;
    let _ = maps::each(buf, |mapping| {
        if mapping.readable && (mapping.start..mapping.end).contains(&sp) {
            // The mapping may go on into memory that is not the stack's; the control block lies at the stack's end.
            let within = (sp..mapping.end).contains(&block);
            *stack = Stack { low: mapping.start, high: if within { block } else { mapping.end } };
            let pages = (block.wrapping_sub(mapping.start)) >> 12;
            if within && pages < 1 << PAGES_BITS {
                let page = block >> 12;
                known_stack(page).store(page << PAGES_BITS | pages, Ordering::Relaxed);
            }
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    });
}

impl Walker {
    fn find_stack(&mut self, stack: &mut Stack, sp: u64) {
        let buf = &mut self.inner.buf;
        self.stack.run(|| find_stack(stack, sp, buf));
    }

    fn find_rule(&mut self, key: Key) -> Option<Rule> {
        let inner = &mut self.inner;
        self.stack.run(|| inner.find_rule(key))
    }

    fn step(&mut self, registers: Registers, first: bool, words: StackWords) -> Step {
        let inner = &mut self.inner;
        self.stack.run(|| inner.step(registers, first, |addr| words.read(addr)))
    }
}

/// The snapshot in force. Caller holds a walker.
fn snapshot(_walker: &Inner) -> Option<&Snapshot> {
    // SAFETY: I-WALK-1: the caller holds a walker since before the load, so the snapshot is not freed before it lets go
    // of it.
    unsafe { CURRENT.load(Ordering::Acquire).as_ref() }
}

impl Inner {
    fn find_rule(&mut self, key: Key) -> Option<Rule> {
        let pc = key.pc();
        let (generation, doubtful) = {
            let snapshot = snapshot(self)?;
            // A walk by frame pointers looks whole even where it is not.
            (snapshot.generation, snapshot.find(key.place()).is_none_or(|module| !module.has_tables()))
        };
        let rule = rule::derive(|sp, bp| {
            let mut reads = 0;
            let outcome = self.step(Registers { pc, sp, bp }, key.is_first(), |addr| {
                reads += 1;
                Some(rule::pretended_word(addr))
            });
            Seen { outcome, reads }
        });
        let rule = rule.marked(doubtful);
        rule::learn(key, generation, rule);
        Some(rule)
    }

    /// One frame by the unwinder.
    fn step(&mut self, at: Registers, first: bool, mut read: impl FnMut(u64) -> Option<u64>) -> Step {
        // SAFETY: I-WALK-1: as in `snapshot`; the reference does not outlive this call, during which the walker is held.
        let Some(snapshot) = (unsafe { CURRENT.load(Ordering::Acquire).as_ref() }) else { return Step::Broken };
        let address = if first {
            FrameAddress::from_instruction_pointer(at.pc)
        } else {
            match FrameAddress::from_return_address(at.pc) {
                Some(address) => address,
                None => return Step::Broken,
            }
        };
        let mut regs = UnwindRegsNative::new(at.pc, at.sp, at.bp);
        let mut read = |addr| read(addr).ok_or(());
        match snapshot.unwinder.unwind_frame(address, &mut regs, &mut self.cache, &mut read) {
            Ok(Some(0)) | Err(_) => Step::Broken,
            Ok(Some(pc)) => Step::Caller(Registers { pc, sp: regs.sp(), bp: regs.bp() }),
            Ok(None) => Step::End,
        }
    }
}

/// Walks the stack a second time, by the unwinder alone, and compares.
#[cfg(debug_assertions)]
fn compare(trace: &Trace, found: Walked, first: Registers, words: StackWords, max: usize) {
    let before = generation();
    let Some((frames, truncated)) = frames_by_tables(first, words, max) else { return };
    if generation() == before && trace.is_of(before) {
        let kept: alloc::vec::Vec<u64> = trace.frames(found).collect();
        assert_eq!((kept, found.truncated), (frames, truncated), "remembered walk against one by tables");
    }
}

/// The same for a stack that was recalled by the rules of `before`.
#[cfg(debug_assertions)]
fn compare_recalled(recalled: Recalled, before: u64, first: Registers, words: StackWords) {
    let Some((frames, truncated)) = frames_by_tables(first, words, max_frames()) else { return };
    if generation() == Some(before) {
        let kept = recalled.tctx.context.get().map(|context| context.frames().to_vec());
        assert_eq!((kept, recalled.truncated), (Some(frames), truncated), "recalled stack against one by tables");
    }
}

#[cfg(debug_assertions)]
fn frames_by_tables(first: Registers, words: StackWords, max: usize) -> Option<(alloc::vec::Vec<u64>, bool)> {
    let mut slot = take_walker()?;
    let Walker { stack, inner } = slot.as_deref_mut()?;
    let mut frames = alloc::vec::Vec::new();
    let truncated = stack.run(|| inner.walk(first, words, max, |frame| frames.push(frame)));
    Some((frames, truncated))
}

impl Inner {
    /// Calls `act` with the frames as `Trace::frames` gives them; true when there would have been more.
    fn walk(&mut self, first: Registers, words: StackWords, max: usize, mut act: impl FnMut(u64)) -> bool {
        let own = own_text();
        let (mut at, mut key) = (first, Key::first(first.pc));
        let mut depth = 0;
        loop {
            match self.step(at, key.is_first(), |addr| words.read(addr)) {
                Step::Caller(caller) => at = caller,
                Step::End => return false,
                Step::Broken => return true,
            }
            key = Key::caller(at.pc);
            if depth == 0 && own.contains(&at.pc) {
                continue;
            }
            if depth == max {
                return true;
            }
            act(if depth == 0 { at.pc - 1 } else { at.pc });
            depth += 1;
        }
    }
}

/// Walks the stack by the unwinder alone; number of frames. For measurements.
#[inline(never)]
pub(crate) fn walk_by_unwinder(stack: &mut Stack) -> Option<usize> {
    let first = here();
    let mut slot = take_walker()?;
    let walker = slot.as_deref_mut()?;
    if !(stack.low..stack.high).contains(&first.sp) {
        walker.find_stack(stack, first.sp);
    }
    let words = StackWords::new(first.sp, stack.high);
    let Walker { stack, inner } = walker;
    let mut depth = 0;
    stack.run(|| inner.walk(first, words, MAX_FRAMES, |_| depth += 1));
    Some(depth)
}

/// Reads the modules again and replaces the snapshot when they changed. With `wait`, waits for another thread that is
/// at it. Caller holds no slot.
pub(crate) fn refresh(wait: bool) {
    let tid = sys::gettid();
    // Relaxed: only the thread's own id matters, which only it stores.
    if REFRESHER.load(Ordering::Relaxed) == tid {
        return;
    }
    let mut pause = match REFRESH.try_lock() {
        Some(pause) => pause,
        None if wait => REFRESH.lock(),
        None => return,
    };
    REFRESHER.store(tid, Ordering::Relaxed);
    let old = CURRENT.load(Ordering::Acquire);
    // SAFETY: only the holder of `REFRESH` frees or replaces it.
    let last = unsafe { old.as_ref() };
    match on_large_stack(|| modules::read(last)).flatten() {
        Some(new) => {
            *pause = REFRESH_NS;
            set_own_text(&new);
            let generation = new.generation;
            // Release: pairs with the Acquire in `snapshot`.
            CURRENT.store(Box::into_raw(Box::new(new)), Ordering::Release);
            // Release: pairs with the Acquire in `generation`.
            GENERATION.store(generation, Ordering::Release);
            if !old.is_null() {
                for slot in &WALKERS {
                    drop(slot.lock());
                }
                // SAFETY: I-WALK-1: made by `Box::into_raw` above, replaced above, and every slot was free once since.
                drop(unsafe { Box::from_raw(old) });
            }
        }
        None => *pause = (*pause * 2).min(MAX_REFRESH_NS),
    }
    NEXT_REFRESH_NS.store(sys::clock_monotonic_ns() + *pause, Ordering::Relaxed);
    REFRESHER.store(0, Ordering::Relaxed);
}

/// Tells readers which code is the allocator's, when it is a library of its own.
fn set_own_text(snapshot: &Snapshot) {
    let here = refresh as *const () as u64;
    // SAFETY: reads the auxiliary vector.
    let program = unsafe { libc::getauxval(libc::AT_ENTRY) };
    let Some(own) = snapshot.find(here) else { return };
    if own.range.contains(&program) {
        return;
    }
    jeprobe_root.text_start.store(own.range.start, Ordering::Relaxed);
    jeprobe_root.text_end.store(own.range.end, Ordering::Relaxed);
}

/// Addresses of the allocator's code; empty when it is not a library of its own.
fn own_text() -> Range<u64> {
    jeprobe_root.text_start.load(Ordering::Relaxed)..jeprobe_root.text_end.load(Ordering::Relaxed)
}

/// Makes the first walker and snapshot ahead of the first sample.
pub(crate) fn prepare() {
    refresh(true);
    drop(take_walker());
}

/// Calls `act` with each module. Keeps the modules from being read again meanwhile.
pub(crate) fn with_modules(act: impl FnOnce(&[modules::ModuleInfo])) {
    let _pause = REFRESH.lock();
    // SAFETY: only the holder of `REFRESH` frees or replaces it.
    if let Some(snapshot) = unsafe { CURRENT.load(Ordering::Acquire).as_ref() } {
        act(&snapshot.modules);
    }
}

pub(crate) fn prefork() {
    REFRESH.lock_for_fork();
    for slot in &WALKERS {
        slot.lock_for_fork();
    }
}

pub(crate) fn postfork_parent() {
    for slot in &WALKERS {
        slot.unlock_for_fork();
    }
    REFRESH.unlock_for_fork();
}

pub(crate) fn postfork_child() {
    for slot in &WALKERS {
        slot.reset_in_child();
    }
    REFRESH.reset_in_child();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[inline(never)]
    fn level(n: u32, out: &mut std::vec::Vec<u64>) -> u32 {
        if n == 0 {
            let mut stack = Stack::UNKNOWN;
            let mut trace = Trace::new().expect("memory");
            let walked = walk(&mut trace, &mut stack, here(), sys::clock_monotonic_ns()).expect("a walker");
            assert!(!walked.truncated);
            *out = trace.frames(walked).collect();
            return 1;
        }
        // The addition keeps this from being a tail call.
        level(core::hint::black_box(n - 1), out) + 1
    }

    #[test]
    fn every_level_of_a_recursion_is_a_frame_and_the_walk_reaches_the_end() {
        std::thread::Builder::new()
            .stack_size(1 << 20)
            .spawn(|| {
                let mut shallow = std::vec::Vec::new();
                let mut deep = std::vec::Vec::new();
                level(1, &mut shallow);
                level(41, &mut deep);
                assert_eq!(deep.len(), shallow.len() + 40);
                // The same return address repeats once per level.
                let repeated = deep.windows(2).filter(|pair| pair[0] == pair[1]).count();
                assert!(repeated >= 38, "{repeated}");
                assert_eq!(deep.last(), shallow.last());
            })
            .expect("thread")
            .join()
            .expect("no panic");
    }

    #[test]
    fn walks_go_on_after_walkers_and_tables_were_let_go() {
        let mut first = None;
        for _ in 0..3 {
            let mut frames = std::vec::Vec::new();
            level(30, &mut frames);
            assert_eq!(*first.get_or_insert_with(|| frames.clone()), frames);
            // Tests of other threads may hold walkers and bring new ones.
            tidy(u64::MAX - 1);
        }
    }

    #[test]
    fn in_a_program_without_a_library_of_its_own_there_is_no_way_out() {
        let mut stack = Stack::UNKNOWN;
        let mut trace = Trace::new().expect("memory");
        assert_eq!(caller(&mut trace, &mut stack, here()), None);
    }

    #[test]
    fn a_stack_that_was_found_once_is_found_again_without_the_mappings() {
        std::thread::spawn(|| {
            let sp = here().sp;
            let (mut found, mut again) = (Stack::UNKNOWN, Stack::UNKNOWN);
            find_stack(&mut found, sp, &mut [0; maps::LINE_BYTES]);
            assert!(found.low < sp && sp < found.high);
            assert_eq!(
                known_stack(thread_pointer() >> 12).load(Ordering::Relaxed) >> PAGES_BITS,
                thread_pointer() >> 12
            );
            assert_eq!(locate(&mut again, sp), Some(()));
            assert_eq!(again.high, found.high);
            assert!((found.low..=sp).contains(&again.low));
        })
        .join()
        .expect("no panic");
        // Those of a program: 8 MiB apart.
        let places: std::collections::BTreeSet<_> =
            (0..16_u64).map(|i| core::ptr::from_ref(known_stack(0x7_f776_b7ff - i * 2048)).addr()).collect();
        assert!(places.len() > 8, "{}", places.len());
    }

    #[test]
    fn a_stack_pointer_outside_any_mapping_gives_an_unknown_stack() {
        let mut stack = Stack { low: 1, high: 2 };
        find_stack(&mut stack, 8, &mut [0; 512]);
        assert_eq!((stack.low, stack.high), (0, 0));
    }

    #[test]
    fn modules_have_build_ids_or_paths_and_hold_the_own_code() {
        refresh(true);
        let here = level as *const () as u64;
        with_modules(|modules| {
            assert!(modules.iter().any(|module| module.range.contains(&here)));
            assert!(modules.iter().any(|module| module.path.ends_with(b"libc.so.6") && module.build_id.len() == 20));
            assert!(modules.windows(2).all(|pair| pair[0].range.end <= pair[1].range.start));
        });
    }
}
