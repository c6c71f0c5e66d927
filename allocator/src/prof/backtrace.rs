//! Walks the calling thread's stack by unwind tables, with frame pointers where there are none. No lock that the program
//! or its libraries could hold, and no memory but for a trace that grows with the deepest stack.
//!
//! ```text
//!  familiar.rs ─ the counts of a stack by its words ──► done
//!     │ another stack
//!  trace.rs ─ by remembered words, then by known rules ─┐
//!     │ a place without a rule, or an opaque frame      └─► frames
//!     ▼
//!  walker.rs ─ the unwinder
//! ```
//!
//! I-WALK-2: stack memory is read only between the stack pointer and the end of the mapping that holds it, cut at the
//! thread's own control block; a broken frame ends the walk.
//!
//! When a walk meets code that the walkers' snapshot does not know, the modules are read again, rate limited, outside the
//! walk, and the stack is walked once more.

extern crate alloc;

use crate::prim::{AtomicU64, Ordering};
use core::arch::asm;
use core::ops::{ControlFlow, Range};

use jeprobe_abi::abi::MAX_FRAMES;

use super::familiar::Recalled;
use super::maps;
use super::records::{Ptr, TctxCell, jeprobe_root};
use super::rule::{Key, Registers, Rule, Rules, Step};
use super::trace::{Trace, Walked};
use super::walker::{self, generation, own_text, refresh, take_walker};
use super::way::{Caller, Link, Start, Words};
#[cfg(test)]
use crate::sys;

/// The stack that a thread was last seen on: addresses `low..high` are mapped as long as the thread runs there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stack {
    low: u64,
    pub(crate) high: u64,
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
    fn hold(&self, pairs: &[[Link; 2]]) -> bool {
        let holds = |link: &Link| {
            debug_assert!(link.slot.wrapping_sub(self.sp) < self.span);
            let place = core::ptr::with_exposed_provenance::<u64>(link.slot as usize);
            // SAFETY: by the trait's contract (I-FAMILIAR-3) a place that `read` reads.
            unsafe { place.read_unaligned() == link.value }
        };
        pairs.iter().all(|[first, second]| holds(first) && holds(second))
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

/// Where a walk begins that is made for `caller`: in the program, if it is known where, else in the calling function.
#[inline(always)]
pub(crate) fn start(caller: Caller) -> Start {
    if walker::is_in_program(caller.0.pc) { Start::program(caller.0) } else { Start::inside(here()) }
}

/// Frames of a stack that are kept.
#[inline(always)]
fn max_frames() -> usize {
    (jeprobe_root.max_frames.load(Ordering::Relaxed) as usize).clamp(1, MAX_FRAMES)
}

/// The registers of `caller`, if it is known to be in the program.
#[inline(always)]
pub(crate) fn in_program(caller: Caller) -> Option<Registers> {
    walker::is_in_program(caller.0.pc).then_some(caller.0)
}

/// The counts of the stack of a program that called with the registers `at`, when it is one that `trace` keeps
/// (`Trace::keep`).
#[inline(always)]
pub(crate) fn recall(trace: &mut Trace, stack: Stack, at: Registers, now_ns: u64) -> Option<Recalled> {
    if now_ns >= walker::routine_refresh_ns() || !(stack.low..stack.high).contains(&at.sp) {
        return None;
    }
    let words = StackWords::new(at.sp, stack.high);
    let recalled = trace.recall(at, stack.high, generation()?, &words)?;
    #[cfg(debug_assertions)]
    compare_recalled(recalled, here(), stack.high);
    Some(recalled)
}

/// As [`recall`], in a row of samples in which the modules need not be looked at: no more is asked than what makes it right. A
/// caller that is not known is no familiar one, nor is one in the allocator itself.
#[inline(always)]
pub(crate) fn familiar(trace: &Trace, high: u64, caller: Caller) -> Option<Ptr<TctxCell>> {
    let at = caller.0;
    let tctx = trace.familiar(at, high, walker::generation_word(), &StackWords::new(at.sp, high))?;
    #[cfg(debug_assertions)]
    compare_recalled(Recalled { tctx, truncated: false }, here(), high);
    Some(tctx)
}

/// As [`recall`], from registers of a function of the allocator that is running.
pub(crate) fn recall_from(trace: &mut Trace, stack: Stack, first: Registers, now_ns: u64) -> Option<Recalled> {
    if now_ns >= walker::routine_refresh_ns() || !(stack.low..stack.high).contains(&first.sp) {
        return None;
    }
    let words = StackWords::new(first.sp, stack.high);
    let own = own_text();
    let generation = generation()?;
    let program = trace.program(first, generation, &words, |pc| own.contains(&pc))?;
    let recalled = trace.recall(program, stack.high, generation, &words)?;
    #[cfg(debug_assertions)]
    compare_recalled(recalled, first, stack.high);
    Some(recalled)
}

/// Walks the stack from `start` on, in a function that is running; the frames are in `trace`, leaf first, without
/// the allocator's own when it is a library of its own. `None` when no stack can be walked.
#[inline(never)]
pub(crate) fn walk(trace: &mut Trace, stack: &mut Stack, start: Start, now_ns: u64) -> Option<Walked> {
    let max = max_frames();
    if walker::knows_nothing() {
        // Without a snapshot there is no stack at all: worth waiting for.
        refresh(true);
    } else if now_ns >= walker::routine_refresh_ns() {
        refresh(false);
    }
    if !(stack.low..stack.high).contains(&start.at.sp) {
        locate(stack, start.at.sp)?;
    }
    let words = StackWords::new(start.at.sp, stack.high);
    let generation = generation()?;
    let walked = trace.walk(start, stack.high, generation, max, &words, &mut Tables::new(words));
    let walked = if walked.doubtful
        && (now_ns >= walker::next_refresh_ns() || trace.end_of_walk().is_some_and(walker::is_news))
    {
        walk_again(trace, start, stack.high, generation, max, words, walked)?
    } else {
        walked
    };
    #[cfg(debug_assertions)]
    if !start.in_program {
        compare(trace, walked, start.at, stack.high, max);
    } else if !own_text().is_empty() {
        compare(trace, walked, here(), stack.high, max);
    }
    Some(walked)
}

/// Looks at the modules again and, when they have changed, walks again.
#[cold]
#[inline(never)]
fn walk_again(
    trace: &mut Trace,
    start: Start,
    high: u64,
    generation: u64,
    max: usize,
    words: StackWords,
    walked: Walked,
) -> Option<Walked> {
    let looked = refresh(false);
    let newer = walker::generation()?;
    let walked =
        if newer == generation { walked } else { trace.walk(start, high, newer, max, &words, &mut Tables::new(words)) };
    if looked
        && walked.doubtful
        && let Some(place) = trace.end_of_walk().filter(|pc| walker::is_news(*pc))
    {
        walker::note_strange(place);
    }
    Some(walked)
}

/// The program's own registers as they are right after its call into the allocator. `None` without a walker, when the
/// walk fails, and for a `start` inside when the allocator is not a library of its own.
#[inline(never)]
pub(crate) fn caller(trace: &mut Trace, stack: &mut Stack, start: Start) -> Option<Registers> {
    if start.in_program {
        return Some(start.at);
    }
    let first = start.at;
    // The allocator's own code does not move: a snapshot that knows it never grows too old for this.
    if walker::knows_nothing() {
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
            walker.as_mut().and_then(|slot| slot.as_mut()).map(|walker| walker.step(registers, first, &self.words));
        step.unwrap_or(Step::Broken)
    }

    #[inline]
    fn is_own(&self, pc: u64) -> bool {
        self.own.contains(&pc)
    }
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
        take_walker()?.as_mut()?.with_buffer(|buf| find_stack(stack, sp, buf));
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

/// Walks the stack a second time, by the unwinder alone, and compares.
#[cfg(debug_assertions)]
fn compare(trace: &Trace, found: Walked, first: Registers, high: u64, max: usize) {
    let before = generation();
    // Without a library of its own the frames of the allocator are not told from the program's.
    if own_text().is_empty() {
        return;
    }
    let Some((frames, truncated)) = frames_by_tables(first, high, max) else { return };
    if generation() == before && trace.is_of(before) {
        let kept: alloc::vec::Vec<u64> = trace.frames(found).collect();
        assert_eq!((kept, found.truncated), (frames, truncated), "remembered walk against one by tables");
    }
}

/// The same for a stack that was recalled.
#[cfg(debug_assertions)]
fn compare_recalled(recalled: Recalled, first: Registers, high: u64) {
    let before = generation();
    // Without a library of its own the frames of the allocator are not told from the program's.
    if own_text().is_empty() {
        return;
    }
    let Some((frames, truncated)) = frames_by_tables(first, high, max_frames()) else { return };
    if generation() == before {
        let kept = recalled.tctx.context.get().map(|context| context.frames().collect());
        assert_eq!((kept, recalled.truncated), (Some(frames), truncated), "recalled stack against one by tables");
    }
}

#[cfg(debug_assertions)]
fn frames_by_tables(first: Registers, high: u64, max: usize) -> Option<(alloc::vec::Vec<u64>, bool)> {
    let words = StackWords::new(first.sp, high);
    let mut slot = take_walker()?;
    let mut frames = alloc::vec::Vec::new();
    let truncated = slot.as_deref_mut()?.walk(first, &words, max, |frame| frames.push(frame));
    Some((frames, truncated))
}

/// Walks the stack by the unwinder alone; number of frames. For measurements.
#[inline(never)]
pub(crate) fn walk_by_unwinder(stack: &mut Stack) -> Option<usize> {
    let first = here();
    let mut slot = take_walker()?;
    let walker = slot.as_deref_mut()?;
    if !(stack.low..stack.high).contains(&first.sp) {
        walker.with_buffer(|buf| find_stack(stack, first.sp, buf));
    }
    let words = StackWords::new(first.sp, stack.high);
    let mut depth = 0;
    walker.walk(first, &words, MAX_FRAMES, |_| depth += 1);
    Some(depth)
}

#[cfg(test)]
mod tests {
    use super::super::walker::{tidy, with_modules};
    use super::*;

    #[inline(never)]
    fn level(n: u32, out: &mut std::vec::Vec<u64>) -> u32 {
        if n == 0 {
            let mut stack = Stack::UNKNOWN;
            let mut trace = Trace::new().expect("memory");
            let walked =
                walk(&mut trace, &mut stack, Start::inside(here()), sys::clock_monotonic_ns()).expect("a walker");
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
        // The rounds call from one place: not unrolled, nor the first by itself.
        let mut first = core::hint::black_box(None);
        for _ in 0..core::hint::black_box(3) {
            let mut frames = std::vec::Vec::new();
            level(30, &mut frames);
            assert_eq!(*first.get_or_insert_with(|| frames.clone()), frames);
            // Tests of other threads may hold walkers and bring new ones.
            tidy(u64::MAX - 1);
        }
    }

    #[test]
    fn without_a_library_of_its_own_only_entry_points_know_their_callers() {
        refresh(true);
        let (mut stack, mut trace) = (Stack::UNKNOWN, Trace::new().expect("memory"));
        let mut of = |from| caller(&mut trace, &mut stack, start(from));
        assert_eq!(of(Caller::UNKNOWN), None);
        assert_eq!(of(Caller::new(1, 2, 3)), Some(Registers { pc: 1, sp: 2, bp: 3 }));
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
    fn code_of_no_module_is_news_until_it_was_looked_for() {
        refresh(true);
        assert!(!walker::is_news(level as *const () as u64));
        let nowhere = 0x10_0000_0000;
        assert!(walker::is_news(nowhere));
        walker::note_strange(nowhere);
        assert!(!walker::is_news(nowhere + 64), "of the same place");
        assert!(walker::is_news(nowhere + (1 << 30)));
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
