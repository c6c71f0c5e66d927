//! A walk that remembers the last one.
//!
//! ```text
//!  way      the allocator's own frames, up to the program's (`way.rs`)
//!  familiar stacks that were found before, with their counts (`familiar.rs`)
//!  last     root ─► … ─► leaf      the stack as the last walk found it, and the words that led the walk (`last.rs`)
//!  fresh    leaf ─► …              frames of this walk that the last one did not have
//! ```
//!
//! A walk goes out from the leaf by rules (`rule.rs`) until it stands where the last walk stood: same code, same stack
//! pointer and, where the rest depends on it, same frame pointer. From there on it only reads the words again that led
//! the last walk: the return addresses and those saved frame pointers that a later step uses. What a walk finds is a
//! function of the registers, of these words and of the rules; so when all of them are the same, so is what it finds,
//! however the words came there: deeper calls, coroutines and `longjmp` in between do not matter. At the first word
//! that differs the walk goes on by rules from the frame that it is sure of.
//!
//! I-TRACE-1: rules are those of one generation of the modules; a trace of another is forgotten. I-TRACE-4: what is kept of the
//! last walk is of the stack that ends at `high`.
//!
//! So a match can only be stale as a rule can: code that took the place of other code, at the same address, within the
//! second or two in which nobody looked at the mappings.
//!
//! Owner of a trace is one thread; it is taken out of the thread's state while a walk runs.
#![forbid(unsafe_code)]

extern crate alloc;

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::familiar::{Familiars, Kept, Recalled};
pub(crate) use super::last::Walked;
use super::last::{Fresh, Last};
use super::records::{Ptr, TctxCell};
use super::rule::{self, EndedBy, Key, Kind, Registers, Rule, Rules, Step};
use super::stacks::Frames;
use super::way::{self, Start, Ways, Words};
use jeprobe_abi::abi::MAX_FRAMES;

/// Frames walked at most: those that are kept and some more, of which the outermost are kept.
const MAX_DEPTH: usize = MAX_FRAMES + 20;
/// First room for frames; most stacks are less deep.
const FIRST_ROOM: usize = 40;
/// Generation of no modules.
const NEVER: u64 = u64::MAX;

/// What one thread remembers of its last walk.
pub(crate) struct Trace {
    ways: Ways,
    familiars: Familiars,
    last: Last,
    fresh: Vec<Fresh>,
    generation: u64,
    /// Result for `max` frames.
    found: Walked,
    max: usize,
    /// End of the stack that the frames are of.
    high: u64,
}

impl Trace {
    /// `None` without memory.
    pub(crate) fn new() -> Option<Box<Trace>> {
        let mut trace = Trace {
            ways: Ways::NONE,
            familiars: Familiars::NONE,
            last: Last::new(FIRST_ROOM)?,
            fresh: Vec::new(),
            generation: NEVER,
            found: Walked { depth: 0, hash: 0, truncated: true, doubtful: true, same: false },
            max: 0,
            high: 0,
        };
        trace.fresh.try_reserve_exact(FIRST_ROOM).ok()?;
        Some(Box::new(trace))
    }

    /// Forgets the last walk.
    pub(crate) fn forget(&mut self) {
        self.ways.forget();
        self.forget_counts();
        self.last.forget();
        self.generation = NEVER;
    }

    /// Forgets whose counts go with which stacks.
    pub(crate) fn forget_counts(&mut self) {
        self.familiars.forget();
    }

    /// True when the frames were found by the rules of this generation.
    #[cfg(debug_assertions)]
    pub(crate) fn is_of(&self, generation: Option<u64>) -> bool {
        generation == Some(self.generation)
    }

    /// Walks from `start` to the end of the stack at `high`, by the rules of `generation`. At most `max` frames are kept,
    /// without that of a `start` in the allocator and without the allocator's own at the leaf end.
    pub(crate) fn walk(
        &mut self,
        start: Start,
        high: u64,
        generation: u64,
        max: usize,
        words: &impl Words,
        rules: &mut impl Rules,
    ) -> Walked {
        self.adopt(generation);
        if self.high != high {
            self.last.forget();
            self.high = high;
        }
        let last = self.last.frames.len();
        self.fresh.clear();
        let program = if start.in_program { Step::Caller(start.at) } else { self.leave(start.at, words, rules) };
        let kept = match program {
            Step::Caller(program) => self.meet(program, words, rules),
            end => {
                self.last.end = end;
                0
            }
        };
        if kept == last && kept != 0 && self.fresh.is_empty() && self.max == max {
            self.found.same = true;
            return self.found;
        }
        self.last.take_over(kept, &mut self.fresh);
        if self.max != max {
            self.forget_counts();
            self.max = max;
        }
        self.found = self.last.result(max);
        self.found
    }

    /// The program's registers after its call, when a known way leads there from `first`.
    #[inline(always)]
    pub(crate) fn program(
        &mut self,
        first: Registers,
        generation: u64,
        words: &impl Words,
        is_own: impl Fn(u64) -> bool,
    ) -> Option<Registers> {
        if self.generation == generation { self.ways.out(first, words, is_own) } else { None }
    }

    /// The counts that were kept for the stack of a program with these registers, whose end is `high`, by the rules of
    /// `generation` and for as many frames as the last walk. `None` for a stack that is not familiar.
    #[inline(always)]
    pub(crate) fn recall(
        &self,
        program: Registers,
        high: u64,
        generation: u64,
        words: &impl Words,
    ) -> Option<Recalled> {
        if self.generation == generation { self.familiars.recall(program, high, words) } else { None }
    }

    /// As [`Trace::recall`], but for stacks that were cut.
    #[inline(always)]
    pub(crate) fn familiar(
        &self,
        program: Registers,
        high: u64,
        generation: u64,
        words: &impl Words,
    ) -> Option<Ptr<TctxCell>> {
        if self.generation == generation { self.familiars.find(program, high, words) } else { None }
    }

    /// Keeps the counts of the stack that the last walk found.
    #[inline(never)]
    pub(crate) fn keep(&mut self, tctx: Ptr<TctxCell>) {
        let (Some(root), Some(top)) = (self.last.frames.first(), self.last.frames.last()) else { return };
        if self.generation == NEVER || self.last.loose != 0 || self.found.doubtful || self.last.end != Step::End {
            return;
        }
        let zero_slot = match root.rule.ended_by(root.at) {
            EndedBy::Registers => None,
            EndedBy::Zero(slot) => Some(slot),
            EndedBy::Unknown => return,
        };
        let links = self.last.links.get(..top.links as usize).unwrap_or(&[]);
        let kept = Kept { at: top.at, needs_bp: top.needs_bp, high: self.high, links, zero_slot };
        self.familiars.keep(&kept, Recalled { tctx, truncated: self.found.truncated });
    }

    /// Walks from `first` out of the allocator, by the rules of `generation`, and no further.
    pub(crate) fn caller(
        &mut self,
        first: Registers,
        generation: u64,
        words: &impl Words,
        rules: &mut impl Rules,
    ) -> Option<Registers> {
        self.adopt(generation);
        match self.leave(first, words, rules) {
            Step::Caller(program) => Some(program),
            _ => None,
        }
    }

    /// From here on rules are those of this generation.
    fn adopt(&mut self, generation: u64) {
        if self.generation != generation {
            self.forget();
            self.generation = generation;
        }
    }

    /// The program's registers after its call to the allocator; how the walk ended, when it did before.
    #[inline]
    fn leave(&mut self, first: Registers, words: &impl Words, rules: &mut impl Rules) -> Step {
        match self.ways.out(first, words, |pc| rules.is_own(pc)) {
            Some(program) => Step::Caller(program),
            None => self.leave_by_rules(first, words, rules),
        }
    }

    #[inline(never)]
    fn leave_by_rules(&mut self, first: Registers, words: &impl Words, rules: &mut impl Rules) -> Step {
        let mut way = way::Walked::from(first);
        let (mut at, mut key) = (first, Key::first(first.pc));
        for _ in 0..MAX_DEPTH {
            let Some(rule) = rule::known(key, self.generation).or_else(|| rules.find(key)) else { return Step::Broken };
            let step = take(rule, at, key, words, rules);
            let Step::Caller(caller) = step else { return step };
            let own = rules.is_own(caller.pc);
            way.step(at, rule, caller, own);
            at = caller;
            key = Key::caller(at.pc);
            if !own {
                self.ways.keep(&way);
                return Step::Caller(at);
            }
        }
        Step::Broken
    }

    /// Walks from the program's registers until the rest is that of the last walk; so many frames of it hold.
    #[inline]
    fn meet(&mut self, mut at: Registers, words: &impl Words, rules: &mut impl Rules) -> usize {
        let generation = self.generation;
        // Frames of the last walk that may still be met.
        let mut still = self.last.frames.as_slice();
        loop {
            while let [outer @ .., frame] = still
                && frame.at.sp < at.sp
            {
                still = outer;
            }
            if let [.., frame] = still
                && frame.at.sp == at.sp
                && frame.at.pc == at.pc
                && (frame.at.bp == at.bp || !frame.needs_bp)
            {
                let left = still.len();
                let held = self.last.held(left - 1, words);
                if held == 0 && self.last.ends_as_before(words) {
                    return left;
                }
                for frame in self.last.frames.get(held + 1..left).unwrap_or(&[]).iter().rev() {
                    // Frame pointers that no step needed were not compared: the remembered one may be old.
                    let frame = Fresh { at: Registers { bp: at.bp, ..frame.at }, rule: frame.rule };
                    if frame.rule.restores_bp() {
                        at.bp = words.read(frame.rule.bp_slot(frame.at)).unwrap_or(0);
                    }
                    self.fresh.push(frame);
                }
                if held + 1 < left
                    && let Some(frame) = self.last.frames.get(held)
                {
                    at = Registers { bp: at.bp, ..frame.at };
                }
                still = self.last.frames.get(..held).unwrap_or(&[]);
            }
            let key = Key::caller(at.pc);
            let Some(rule) = rule::known(key, generation).or_else(|| rules.find(key)) else {
                self.last.end = Step::Broken;
                return 0;
            };
            self.fresh.push(Fresh { at, rule });
            if self.fresh.len() == MAX_DEPTH {
                // No end, but no doubt either. The root is not one: nothing can be taken over.
                self.last.end = Step::End;
                self.generation = NEVER;
                return 0;
            }
            if let Some(caller) = rule.stack_caller(at, |addr| words.read(addr)) {
                at = caller;
                continue;
            }
            match take_slow(rule, at, key, words, rules) {
                Step::Caller(caller) => at = caller,
                end => {
                    self.last.end = end;
                    return 0;
                }
            }
        }
    }

    /// Code of the outermost frame of the last walk.
    pub(crate) fn end_of_walk(&self) -> Option<u64> {
        // Of the call, not behind it.
        self.last.frames.first().map(|frame| frame.at.pc.wrapping_sub(1))
    }

    /// The frames of the last walk, leaf first: return addresses, but the leaf, which is the last byte of its call.
    #[cfg(any(test, debug_assertions))]
    pub(crate) fn frames(&self, walked: Walked) -> impl Iterator<Item = u64> + Clone {
        self.last.frames(walked)
    }

    /// The stack of the last walk, to be looked up.
    pub(crate) fn stack(&mut self, walked: Walked) -> Frames<'_, impl Iterator<Item = u64> + Clone> {
        let packed = self.last.pack(walked);
        let last = &self.last;
        let packed = packed.map(|taken| last.packed_words(taken));
        Frames { depth: walked.depth, hash: walked.hash, leaf_first: last.frames(walked), packed }
    }
}

/// As [`take`], not a part of its caller.
#[inline(never)]
fn take_slow(rule: Rule, at: Registers, key: Key, words: &impl Words, rules: &mut impl Rules) -> Step {
    take(rule, at, key, words, rules)
}

/// Takes the step of a frame.
#[inline]
fn take(rule: Rule, at: Registers, key: Key, words: &impl Words, rules: &mut impl Rules) -> Step {
    if rule.kind() == Kind::Opaque { rules.step(at, key.is_first()) } else { rule.step(at, |addr| words.read(addr)) }
}

#[cfg(test)]
mod tests {
    use super::super::machine::{HIGH, Machine, OWN, Pretended};
    use super::super::segments::alloc_value;
    use super::*;
    use jeprobe_abi::logic::{HASH_SEED, hash_end, hash_step};
    use jeprobe_abi::pack::pack;
    use std::cell::{Cell, RefCell};
    use std::collections::BTreeMap;
    use std::vec::Vec;

    std::thread_local! {
        /// Counts that were given to stacks.
        static COUNTS: RefCell<BTreeMap<Vec<u64>, Ptr<TctxCell>>> = const { RefCell::new(BTreeMap::new()) };
        /// How often a stack was recalled by them.
        static HITS: Cell<usize> = const { Cell::new(0) };
    }

    /// Walks the machine's stack and compares with what should be there, as well as what is recalled of it; words read.
    fn walk(machine: &Machine, trace: &mut Trace, max: usize) -> usize {
        let first = *machine.truth.last().expect("root");
        let program = trace.program(first, 1, machine, |pc| pc >= OWN).filter(|_| trace.max == max);
        let recalled = program.and_then(|program| trace.recall(program, HIGH, 1, machine));
        if let Some(tctx) = program.and_then(|program| trace.familiar(program, HIGH, 1, machine)) {
            assert!(recalled.is_some_and(|recalled| recalled.tctx.same(tctx) && !recalled.truncated));
        }
        let before = machine.reads.get();
        let walked = trace.walk(Start::inside(first), HIGH, 1, max, machine, &mut Pretended { machine });
        let reads = machine.reads.get() - before;
        let outer = machine.truth.len() - 1;
        let own = machine.truth[..outer].iter().rev().take_while(|frame| frame.pc >= OWN).count();
        let mut want: Vec<u64> = machine.truth[..outer - own].iter().rev().map(|frame| frame.pc).take(max).collect();
        if let Some(leaf) = want.first_mut() {
            *leaf -= 1;
        }
        let got: Vec<u64> = trace.frames(walked).collect();
        assert_eq!(got, want);
        // Not of each walk: what was packed lasts over some.
        if walked.depth != 0 && !walked.hash.is_multiple_of(3) {
            let mut words = [0; MAX_FRAMES];
            let count = pack(want.iter().copied(), &mut words).filter(|_| !walked.truncated);
            let packed = trace.stack(walked).packed;
            let packed: Option<Vec<u64>> = packed.map(|words| words.iter().copied().map(u64::from_le_bytes).collect());
            assert_eq!(packed.as_deref(), count.map(|count| &words[..count]));
        }
        assert_eq!(walked.truncated, outer - own > max);
        assert_eq!(walked.depth, want.len());
        assert_eq!(walked.hash, hash_end(want.iter().rev().fold(HASH_SEED, |hash, pc| hash_step(hash, *pc))));
        COUNTS.with_borrow_mut(|counts| {
            let tctx = *counts.entry(want).or_insert_with(|| alloc_value(TctxCell::blank()).expect("memory"));
            if let Some(recalled) = recalled {
                assert!(recalled.tctx.same(tctx), "another stack was recalled");
                assert_eq!(recalled.truncated, walked.truncated);
                HITS.set(hits() + 1);
            }
            trace.keep(tctx);
        });
        reads
    }

    fn hits() -> usize {
        HITS.get()
    }

    /// Two stacks in turn, at places of their own: each is known by its words alone, until one of these changes.
    #[test]
    fn familiar_stacks_are_known_by_their_words() {
        let mut machine = Machine::new(7);
        let mut trace = Trace::new().expect("memory");
        for _ in 0..20 {
            machine.call(0, false);
        }
        let turn = |machine: &mut Machine, trace: &mut Trace, function: u64| {
            let pc = Machine::pc(function, 0);
            machine.call_at(pc, function, 0);
            machine.call_at(Machine::pc(2, 0) + OWN, 2, 0);
            let before = hits();
            walk(machine, trace, MAX_FRAMES);
            machine.truth.truncate(machine.truth.len() - 2);
            hits() - before
        };
        for round in 0..3 {
            for function in [0, 1, 8] {
                assert_eq!(turn(&mut machine, &mut trace, function), usize::from(round > 0));
            }
        }
        // The same registers above another frame.
        machine.truth.truncate(15);
        for _ in 0..6 {
            let pc = Machine::pc(0, 1);
            machine.call_at(pc, 0, 0);
        }
        assert_eq!(turn(&mut machine, &mut trace, 0), 0);
        assert_eq!(turn(&mut machine, &mut trace, 0), 1);
        trace.forget_counts();
        assert_eq!(turn(&mut machine, &mut trace, 0), 0);
    }

    /// Calls, returns and jumps out of many frames at once at random, walking now and then: a walk that remembers finds
    /// what is there, not what was. Few functions and frames of varying size with words left from earlier calls in them:
    /// what was looks much like what is.
    #[test]
    fn remembered_walks_find_what_is_there() {
        for seed in 0..25 {
            let mut machine = Machine::new(seed);
            let mut trace = Trace::new().expect("memory");
            for _ in 0..4000 {
                match machine.draw(8) {
                    0..3 if machine.truth.len() < 90 => {
                        let function = machine.draw(9);
                        machine.call(function, false);
                    }
                    3 | 4 if machine.truth.len() > 1 => {
                        machine.truth.pop();
                    }
                    5 if machine.draw(20) == 0 => {
                        let depth = 1 + machine.draw(machine.truth.len() as u64) as usize;
                        machine.truth.truncate(depth);
                    }
                    _ => {
                        // The allocator, from which the walk begins.
                        let depth = machine.truth.len();
                        for _ in 0..machine.draw(4) {
                            let function = machine.draw(9);
                            machine.call(function, true);
                        }
                        let max = if machine.draw(10) == 0 { 7 } else { MAX_FRAMES };
                        walk(&machine, &mut trace, max);
                        machine.truth.truncate(depth);
                    }
                }
            }
        }
        assert!(hits() > 100, "{}", hits());
    }

    /// The saved frame pointer tells two stacks apart whose return addresses look the same.
    #[test]
    fn a_saved_frame_pointer_that_changed_is_seen() {
        let pc = |function| Machine::pc(function, 0);
        let mut machine = Machine::new(1);
        let mut trace = Trace::new().expect("memory");
        machine.call_at(pc(0), 0, 0);
        machine.call_at(pc(8), 8, 0);
        machine.call_at(pc(5), 5, 2);
        machine.call_at(pc(3), 3, 0);
        walk(&machine, &mut trace, MAX_FRAMES);
        let sp = machine.truth.last().expect("frame").sp;
        // Without the frame of function 8, whose words stay in a hole of the same length.
        machine.truth.truncate(2);
        machine.call_at(pc(5), 5, 2 + (2 + 8 % 5));
        machine.call_at(pc(3), 3, 0);
        assert_eq!(machine.truth.last().expect("frame").sp, sp);
        walk(&machine, &mut trace, MAX_FRAMES);
    }

    /// A frame pointer that no step needed is remembered anew when one comes to need it.
    #[test]
    fn a_frame_pointer_that_comes_to_matter_is_not_an_old_one() {
        let pc = |function| Machine::pc(function, 0);
        let mut machine = Machine::new(1);
        let mut trace = Trace::new().expect("memory");
        let root = machine.truth[0];
        // The frame pointer that the last stack will have, in a register that nobody needs yet.
        machine.truth[0].bp = root.sp - 16 - 16;
        let below = |machine: &mut Machine| {
            machine.call_at(pc(0), 0, 0);
            machine.call_at(pc(2), 2, 0);
        };
        // First without frame pointers: functions 0 and 8 take 2 + 5 words, where 5 with a hole of 5 will be.
        machine.call_at(pc(0), 0, 0);
        machine.call_at(pc(8), 8, 0);
        below(&mut machine);
        let sp = machine.truth.last().expect("frame").sp;
        walk(&machine, &mut trace, MAX_FRAMES);
        machine.truth.truncate(1);
        machine.call_at(pc(5), 5, 5);
        below(&mut machine);
        assert_eq!(machine.truth.last().expect("frame").sp, sp);
        walk(&machine, &mut trace, MAX_FRAMES);
        machine.truth.truncate(1);
        machine.call_at(pc(0), 0, 0);
        machine.call_at(pc(5), 5, 3);
        below(&mut machine);
        assert_eq!(machine.truth.last().expect("frame").sp, sp);
        walk(&machine, &mut trace, MAX_FRAMES);
    }

    #[test]
    fn a_stack_that_did_not_change_costs_a_word_a_frame() {
        let mut machine = Machine::new(5);
        let mut trace = Trace::new().expect("memory");
        for _ in 0..40 {
            machine.call(0, false);
        }
        assert_eq!(walk(&machine, &mut trace, MAX_FRAMES), 40);
        machine.truth.truncate(38);
        machine.call(1, false);
        machine.call(1, false);
        assert_eq!(walk(&machine, &mut trace, MAX_FRAMES), 39);
        assert_eq!(walk(&machine, &mut trace, MAX_FRAMES), 39);
    }

    #[test]
    fn what_is_too_deep_is_cut_at_the_root() {
        let mut machine = Machine::new(9);
        let mut trace = Trace::new().expect("memory");
        for _ in 0..4 * MAX_DEPTH {
            machine.call(0, false);
        }
        walk(&machine, &mut trace, MAX_FRAMES);
        machine.truth.truncate(20);
        walk(&machine, &mut trace, MAX_FRAMES);
    }
}
