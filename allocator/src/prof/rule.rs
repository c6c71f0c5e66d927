//! How to get from a frame to its caller, as one word, and a table of such words by code address.
//!
//! ```text
//!  Rule   63 … 40            │ 39 … 16            │ 15 … 3 │ 2 … 0
//!         bp slot: words     │ caller's sp: words │ flags  │ kind
//!         above sp           │ above sp           │        │
//!
//!  RULES [4096 × (tag, rule)], 64 KiB that become resident as they are used;  tag = rule ^ key ^ salt(generation)
//! ```
//!
//! A rule is a fact about code, so it holds for every frame of that code until the modules change; each set of modules
//! has a generation, which is part of the tag. The table is shared by all threads without a lock: a reader accepts a
//! rule only when tag and rule belong together, so a torn pair is a miss. Two keys of one place replace each other.
//!
//! Rules come from [`derive`], which watches an unwinder at work: it gives it registers and a stack of pretended values
//! and sees which of them come out. What does not come out as one of the [`Kind`]s for two different pretences is
//! `Opaque`, and the unwinder itself takes each such step: signal frames, frames aligned at run time, code of foreign
//! conventions.
#![forbid(unsafe_code)]

use crate::prim::{AtomicU64, Ordering};

/// Registers of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Registers {
    /// Return address into the frame's function; for the first frame, where it stands.
    pub(crate) pc: u64,
    pub(crate) sp: u64,
    pub(crate) bp: u64,
}

/// The shapes of a step. In all but `End` and `Opaque` the return address is the word below the caller's stack pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// The outermost frame.
    End = 1,
    /// Caller's `sp` at a distance from `sp`; `bp` kept, or restored from a slot (flag).
    Stack = 2,
    /// `bp` points to the saved `bp` and the return address; 0 ends the stack.
    Pointer = 3,
    /// As before, but 0 is an error.
    PointerStrict = 4,
    /// Only the unwinder knows.
    Opaque = 5,
}

/// One rule; never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rule(u64);

const KIND: u64 = 7;
const RESTORES: u64 = 1 << 3;
const DOUBTFUL: u64 = 1 << 4;
const SP_SHIFT: u32 = 16;
const BP_SHIFT: u32 = 40;
/// Words above `sp` that a rule can name: 128 MiB of frame.
const MAX_WORDS: u64 = (1 << 24) - 1;

impl Rule {
    pub(crate) const OPAQUE: Rule = Rule(Kind::Opaque as u64);
    pub(crate) const END: Rule = Rule(Kind::End as u64);

    /// `Opaque` when a number does not fit.
    pub(crate) fn stack(sp_words: u64, bp_words: Option<u64>) -> Rule {
        let bp = bp_words.unwrap_or(0);
        // A caller's frame lies strictly above: walks come to an end.
        if sp_words == 0 || sp_words > MAX_WORDS || bp > MAX_WORDS {
            return Rule::OPAQUE;
        }
        let restores = if bp_words.is_some() { RESTORES } else { 0 };
        Rule(Kind::Stack as u64 | restores | sp_words << SP_SHIFT | bp << BP_SHIFT)
    }

    pub(crate) fn pointer(strict: bool) -> Rule {
        Rule(if strict { Kind::PointerStrict } else { Kind::Pointer } as u64 | RESTORES)
    }

    /// Marks code whose walk may not be right.
    #[must_use]
    pub(crate) fn marked(self, doubtful: bool) -> Rule {
        Rule(self.0 | if doubtful { DOUBTFUL } else { 0 })
    }

    #[inline]
    pub(crate) fn kind(self) -> Kind {
        match self.0 & KIND {
            1 => Kind::End,
            2 => Kind::Stack,
            3 => Kind::Pointer,
            4 => Kind::PointerStrict,
            _ => Kind::Opaque,
        }
    }

    /// True for the shape of nearly all code: told apart with less than [`Rule::kind`] takes.
    #[inline]
    pub(crate) fn is_stack(self) -> bool {
        self.0 & KIND == Kind::Stack as u64
    }

    #[inline]
    pub(crate) fn is_doubtful(self) -> bool {
        self.0 & DOUBTFUL != 0
    }

    /// True when the caller's `bp` is read from the stack.
    #[inline]
    pub(crate) fn restores_bp(self) -> bool {
        self.0 & RESTORES != 0
    }

    /// Where the caller's `bp` is read from, when the rule restores it.
    #[inline]
    pub(crate) fn bp_slot(self, registers: Registers) -> u64 {
        if self.is_stack() { registers.sp.wrapping_add((self.0 >> BP_SHIFT) * 8) } else { registers.bp }
    }

    /// Caller's stack pointer.
    #[inline]
    fn caller_sp(self, registers: Registers) -> Option<u64> {
        if self.is_stack() {
            registers.sp.checked_add((self.0 >> SP_SHIFT & MAX_WORDS) * 8)
        } else {
            registers.bp.checked_add(16).filter(|sp| *sp > registers.sp)
        }
    }

    /// What told a step that there is no caller.
    pub(crate) fn ended_by(self, registers: Registers) -> EndedBy {
        match self.kind() {
            Kind::End => EndedBy::Registers,
            Kind::Pointer if registers.bp == 0 => EndedBy::Registers,
            Kind::Opaque => EndedBy::Unknown,
            _ => self.caller_sp(registers).map_or(EndedBy::Unknown, |sp| EndedBy::Zero(sp.wrapping_sub(8))),
        }
    }

    /// The caller by a rule of the shape of nearly all code, where there is one; `None`: [`Rule::step`] says why not.
    #[inline(always)]
    pub(crate) fn stack_caller(self, registers: Registers, read: impl Fn(u64) -> Option<u64>) -> Option<Registers> {
        if !self.is_stack() {
            return None;
        }
        // Around the end of the address space there is nothing to read.
        let sp = registers.sp.wrapping_add((self.0 >> SP_SHIFT & MAX_WORDS) * 8);
        let bp =
            if self.restores_bp() { read(registers.sp.wrapping_add((self.0 >> BP_SHIFT) * 8))? } else { registers.bp };
        let pc = read(sp.wrapping_sub(8)).filter(|pc| *pc != 0)?;
        Some(Registers { pc, sp, bp })
    }

    /// Goes to the caller; `read` gives a word of the stack, `None` outside. Not for `Opaque`.
    #[inline]
    pub(crate) fn step(self, registers: Registers, read: impl Fn(u64) -> Option<u64>) -> Step {
        match self.kind() {
            Kind::End => return Step::End,
            Kind::Pointer if registers.bp == 0 => return Step::End,
            _ => {}
        }
        let Some(sp) = self.caller_sp(registers) else { return Step::Broken };
        let mut bp = registers.bp;
        if self.restores_bp() {
            match read(self.bp_slot(registers)) {
                Some(saved) => bp = saved,
                None => return Step::Broken,
            }
        }
        match read(sp.wrapping_sub(8)) {
            None => Step::Broken,
            Some(0) => Step::End,
            Some(pc) => Step::Caller(Registers { pc, sp, bp }),
        }
    }
}

/// Outcome of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Caller(Registers),
    /// There is no caller.
    End,
    /// The caller cannot be found.
    Broken,
}

/// What the end of a walk depended on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndedBy {
    /// The outermost frame's registers alone.
    Registers,
    /// The word at this address, which was 0.
    Zero(u64),
    /// Possibly on more.
    Unknown,
}

/// Who knows the rules of code that has none yet.
pub(crate) trait Rules {
    /// The rule of a place in the code; `None` when it cannot be found now.
    fn find(&mut self, key: Key) -> Option<Rule>;
    /// Takes the step of an `Opaque` frame.
    fn step(&mut self, registers: Registers, first: bool) -> Step;
    /// True for the allocator's own code.
    fn is_own(&self, pc: u64) -> bool;
}

/// What an unwinder did with pretended registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) outcome: Step,
    /// Words of the stack that were read.
    pub(crate) reads: u32,
}

/// The stack of a pretence: a word's value names its place.
pub(crate) fn pretended_word(addr: u64) -> u64 {
    addr ^ PRETENCE
}

const PRETENCE: u64 = 0x5a5a_0000_0000_0005;
/// Two pretences: stack pointer and frame pointer, far apart and, modulo powers of two, unlike.
const PRETENCES: [(u64, u64); 2] = [(0x0100_0000_1000, 0x0200_0000_0740), (0x0300_1234_5678, 0x0500_0abc_def8)];

/// Derives the rule of a code address from what `unwind` does with pretended `(sp, bp)`, reading [`pretended_word`]s.
pub(crate) fn derive(mut unwind: impl FnMut(u64, u64) -> Seen) -> Rule {
    let mut rules = PRETENCES.map(|(sp, bp)| shape(sp, bp, unwind(sp, bp)));
    if rules[0] == Rule::pointer(false) {
        // What does it make of the frame pointer 0?
        match unwind(PRETENCES[0].0, 0).outcome {
            Step::End => {}
            Step::Broken => {
                rules = rules.map(|rule| if rule == Rule::pointer(false) { Rule::pointer(true) } else { rule });
            }
            Step::Caller(_) => return Rule::OPAQUE,
        }
    }
    if rules[0] == rules[1] { rules[0] } else { Rule::OPAQUE }
}

fn shape(sp: u64, bp: u64, seen: Seen) -> Rule {
    let caller = match seen.outcome {
        Step::Caller(caller) => caller,
        Step::End if seen.reads == 0 => return Rule::END,
        _ => return Rule::OPAQUE,
    };
    // Words from `sp` up to a place, if it is one that a rule can name.
    let words = |place: u64| place.checked_sub(sp).filter(|d| d.is_multiple_of(8) && d / 8 <= MAX_WORDS).map(|d| d / 8);
    if caller.pc != pretended_word(caller.sp.wrapping_sub(8)) {
        return Rule::OPAQUE;
    }
    let slot = pretended_word(caller.bp);
    if caller.sp == bp.wrapping_add(16) && slot == bp && seen.reads == 2 {
        return Rule::pointer(false);
    }
    match (words(caller.sp), caller.bp == bp, words(slot)) {
        (Some(sp_words), true, _) if seen.reads == 1 => Rule::stack(sp_words, None),
        (Some(sp_words), false, Some(bp_words)) if seen.reads == 2 => Rule::stack(sp_words, Some(bp_words)),
        _ => Rule::OPAQUE,
    }
}

const LG_NEAR: u32 = 8;
const LG_FAR: u32 = 12;

struct Entry {
    /// Relaxed, both: neither leads to other memory.
    tag: AtomicU64,
    rule: AtomicU64,
}

/// The first rules, on a page or two: the stacks of a program that samples rarely pass few places, and each would touch a
/// page of the large table.
static NEAR: [Entry; 1 << LG_NEAR] = [const { Entry::unused() }; 1 << LG_NEAR];
/// Those whose place there is taken.
static FAR: [Entry; 1 << LG_FAR] = [const { Entry::unused() }; 1 << LG_FAR];

/// Names a code address: one byte before a return address; a place of its own kind for a first frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key(u64);

const FIRST: u64 = 1 << 63;

impl Key {
    pub(crate) fn first(pc: u64) -> Key {
        Key(pc | FIRST)
    }

    #[inline]
    pub(crate) fn caller(pc: u64) -> Key {
        Key(pc.wrapping_sub(1) & !FIRST)
    }

    pub(crate) fn is_first(self) -> bool {
        self.0 & FIRST != 0
    }

    /// A byte of the instruction that stands there.
    pub(crate) fn place(self) -> u64 {
        self.0 & !FIRST
    }

    /// The program counter of a frame there.
    pub(crate) fn pc(self) -> u64 {
        if self.is_first() { self.place() } else { self.0.wrapping_add(1) }
    }

    #[inline]
    fn entries(self) -> [&'static Entry; 2] {
        let hash = self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        [&NEAR[(hash >> (64 - LG_NEAR)) as usize % NEAR.len()], &FAR[(hash >> (64 - LG_FAR)) as usize % FAR.len()]]
    }
}

impl Entry {
    const fn unused() -> Entry {
        Entry { tag: AtomicU64::new(0), rule: AtomicU64::new(0) }
    }

    /// The rule of a key, if that is what the entry holds.
    #[inline]
    fn get(&self, key: Key, generation: u64) -> Option<Rule> {
        let rule = self.rule.load(Ordering::Relaxed);
        let tag = self.tag.load(Ordering::Relaxed);
        (tag ^ rule == key.0 ^ salt(generation) && rule != 0).then_some(Rule(rule))
    }

    fn set(&self, key: Key, generation: u64, rule: Rule) {
        self.rule.store(rule.0, Ordering::Relaxed);
        self.tag.store(rule.0 ^ key.0 ^ salt(generation), Ordering::Relaxed);
    }

    /// True when it holds the rule of another key in the same generation: what is none gives no address of the program's
    /// half of memory, but once in 2^16 times.
    fn is_taken(&self, key: Key, generation: u64) -> bool {
        let rule = self.rule.load(Ordering::Relaxed);
        let holds = Key(self.tag.load(Ordering::Relaxed) ^ rule ^ salt(generation));
        rule != 0 && holds != key && holds.place() < 1 << 47
    }
}

/// Spreads a generation over all bits, so that no two tags of unlike generations meet.
#[inline]
fn salt(generation: u64) -> u64 {
    generation.wrapping_mul(0xd6e8_feb8_6659_fd93)
}

/// The rule of a place in the modules of `generation`, if it is known.
#[inline]
pub(crate) fn known(key: Key, generation: u64) -> Option<Rule> {
    let [near, far] = key.entries();
    near.get(key, generation).or_else(|| far.get(key, generation))
}

/// Keeps a rule.
pub(crate) fn learn(key: Key, generation: u64, rule: Rule) {
    let [near, far] = key.entries();
    let entry = if near.is_taken(key, generation) { far } else { near };
    entry.set(key, generation, rule);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(rule: Rule) -> impl FnMut(u64, u64) -> Seen {
        move |sp, bp| {
            let reads = core::cell::Cell::new(0);
            let outcome = rule.step(Registers { pc: 7, sp, bp }, |addr| {
                reads.set(reads.get() + 1);
                Some(pretended_word(addr))
            });
            Seen { outcome, reads: reads.get() }
        }
    }

    #[test]
    fn each_shape_is_told_from_what_it_does() {
        for rule in [
            Rule::END,
            Rule::stack(1, None),
            Rule::stack(40, None),
            Rule::stack(9, Some(3)),
            Rule::stack(2, Some(0)),
            Rule::stack(MAX_WORDS, Some(MAX_WORDS)),
            Rule::pointer(false),
            Rule::pointer(true),
        ] {
            assert_eq!(derive(run(rule)), rule);
        }
    }

    #[test]
    fn what_depends_on_more_than_distances_stays_with_the_unwinder() {
        let odd: [fn(u64, u64) -> Registers; 6] = [
            // A frame that was aligned at run time.
            |sp, bp| caller((sp + 64) & !31, bp),
            // The caller's stack pointer lies on the stack.
            |sp, bp| caller(pretended_word(sp + 16), bp),
            // Frame pointer with another distance.
            |_, bp| Registers { bp: pretended_word(bp + 8), ..caller(bp + 32, 0) },
            // The return address is not below the caller's frame.
            |sp, bp| Registers { pc: pretended_word(sp), ..caller(sp + 64, bp) },
            // A frame that does not end, and one that goes down.
            |sp, bp| caller(sp, bp),
            |sp, bp| caller(sp - 64, bp),
        ];
        for step in odd {
            let seen = |sp, bp| Seen { outcome: Step::Caller(step(sp, bp)), reads: 1 };
            assert_eq!(derive(seen), Rule::OPAQUE);
        }
        assert_eq!(derive(|_, _| Seen { outcome: Step::Broken, reads: 0 }), Rule::OPAQUE);
        assert_eq!(derive(|_, _| Seen { outcome: Step::End, reads: 1 }), Rule::OPAQUE);
    }

    fn caller(sp: u64, bp: u64) -> Registers {
        Registers { pc: pretended_word(sp.wrapping_sub(8)), sp, bp }
    }

    #[test]
    fn a_rule_is_known_for_its_place_and_generation_only() {
        let key = Key::caller(0x5555_1234_5678);
        let rule = Rule::stack(3, None).marked(true);
        learn(key, 77, rule);
        assert_eq!(known(key, 77), Some(rule));
        assert_eq!(known(key, 78), None);
        assert_eq!(known(Key::first(0x5555_1234_5677), 77), None);
        assert!(rule.is_doubtful() && !Rule::stack(3, None).is_doubtful());
    }
}
