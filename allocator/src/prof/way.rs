//! The way out of the allocator: from the place of a walk to the program's frame.
//!
//! ```text
//!  sp of the walk ─► … return addresses into the allocator, at fixed distances … ─► return address into the program
//! ```
//!
//! The allocator's own frames are few and of fixed size, so the way through them is known by the return addresses that
//! stand at its distances: when all of them are the same, so are the rules of the frames between, and with these the
//! program's registers. A thread keeps the ways that it came by last, each for any depth of the program's stack.
//!
//! I-WAY-1: the rules behind a way are those of one generation; the owner forgets the ways of another. I-WAY-2: a way is
//! kept only when each of its steps goes by a distance from the stack pointer, so that it depends on nothing but the
//! words that are compared and those that are read.
#![forbid(unsafe_code)]

use super::rule::{Kind, Registers, Rule};

/// The words of a stack.
pub(crate) trait Words {
    /// A word between the walk's stack pointer and the end of the stack; `None` outside.
    fn read(&self, addr: u64) -> Option<u64>;

    /// True when all of the links, whose slots are addresses, hold the words that they held. All lie where `read` reads.
    fn hold(&self, pairs: &[[Link; 2]]) -> bool {
        pairs.as_flattened().iter().all(|link| self.read(link.slot) == Some(link.value))
    }

    /// How many of `links`, whose slots count from `base`, hold the words that they held, from the last on backwards. All
    /// lie where `read` reads.
    fn holding(&self, base: u64, links: &[Link]) -> usize {
        links.iter().rev().take_while(|link| self.read(base.wrapping_add(link.slot)) == Some(link.value)).count()
    }
}

/// A word of the stack that led a walk.
#[derive(Clone, Copy)]
pub(crate) struct Link {
    pub(crate) slot: u64,
    pub(crate) value: u64,
}

/// Where the program called the allocator: its registers right after the call, as an entry point found them before it had a
/// frame of its own. Whatever is said here, no memory but the thread's stack is read.
#[derive(Clone, Copy, Debug)]
pub struct Caller(pub(super) Registers);

impl Caller {
    /// The way out of the allocator has to be walked.
    pub const UNKNOWN: Caller = Caller::new(0, 0, 0);

    /// `pc`: the return address of the call. One in the allocator itself is as good as none.
    #[must_use]
    pub const fn new(pc: u64, sp: u64, bp: u64) -> Caller {
        Caller(Registers { pc, sp, bp })
    }
}

/// Where a walk begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Start {
    pub(super) at: Registers,
    /// Of the program, right after its call, not of the allocator.
    pub(super) in_program: bool,
}

impl Start {
    /// Right after the program's call.
    pub(super) fn program(at: Registers) -> Start {
        Start { at, in_program: true }
    }

    /// In a function of the allocator that is running.
    pub(super) fn inside(at: Registers) -> Start {
        Start { at, in_program: false }
    }
}

/// Entry points of the allocator that a thread uses in turn: `malloc`, `calloc`, `realloc`, `operator new`, …
const WAYS: usize = 6;
/// Return addresses into the allocator; longer ways are not kept.
const MAX_STEPS: usize = 12;

#[derive(Clone, Copy)]
struct Way {
    /// Where the walk stood; 0 = none.
    first_pc: u64,
    steps: u32,
    /// The program's stack pointer above that of the walk, bytes.
    sp_bytes: u64,
    /// Where the program's frame pointer was saved, bytes above the walk's stack pointer.
    bp_bytes: Option<u64>,
    /// Shape [Link; `MAX_STEPS`], valid ..steps: distances above the walk's stack pointer, below `sp_bytes` - 8, and the
    /// return addresses that stand there.
    links: [Link; MAX_STEPS],
}

impl Way {
    const NONE: Way =
        Way { first_pc: 0, steps: 0, sp_bytes: 0, bp_bytes: None, links: [Link { slot: 0, value: 0 }; MAX_STEPS] };

    #[inline(always)]
    fn follow(&self, first: Registers, words: &impl Words) -> Option<Registers> {
        if self.first_pc != first.pc {
            return None;
        }
        let sp = first.sp.wrapping_add(self.sp_bytes);
        // Within the stack; so are the links, which lie below.
        let pc = words.read(sp.wrapping_sub(8)).filter(|pc| *pc != 0)?;
        let links = self.links.get(..self.steps as usize).unwrap_or(&[]);
        if words.holding(first.sp, links) != links.len() {
            return None;
        }
        let bp = match self.bp_bytes {
            Some(bytes) => words.read(first.sp.wrapping_add(bytes))?,
            None => first.bp,
        };
        Some(Registers { pc, sp, bp })
    }
}

/// The ways of one thread.
pub(super) struct Ways {
    known: [Way; WAYS],
    /// Taken last: tried first.
    last: usize,
    /// Replaced next.
    next: usize,
}

impl Ways {
    pub(super) const NONE: Ways = Ways { known: [Way::NONE; WAYS], last: 0, next: 0 };

    pub(super) fn forget(&mut self) {
        self.known.iter_mut().for_each(|way| way.first_pc = 0);
    }

    /// The program's registers after its call, when a known way leads there from `first`. `is_own` tells the allocator's
    /// code.
    #[inline(always)]
    pub(super) fn out(
        &mut self,
        first: Registers,
        words: &impl Words,
        is_own: impl Fn(u64) -> bool,
    ) -> Option<Registers> {
        if let Some(at) = self.known.get(self.last).and_then(|way| way.follow(first, words))
            // A way may be the beginning of a longer one.
            && !is_own(at.pc)
        {
            return Some(at);
        }
        self.other(first, words, is_own)
    }

    #[inline(never)]
    fn other(&mut self, first: Registers, words: &impl Words, is_own: impl Fn(u64) -> bool) -> Option<Registers> {
        let end = |way: &Way| way.follow(first, words).filter(|at| !is_own(at.pc));
        let (found, at) = self.known.iter().enumerate().find_map(|(i, way)| Some((i, end(way)?)))?;
        self.last = found;
        Some(at)
    }

    /// Keeps a way that was walked by rules.
    pub(super) fn keep(&mut self, walked: &Walked) {
        if let Some(way) = walked.way
            && let Some(slot) = self.known.get_mut(self.next)
        {
            *slot = way;
            self.last = self.next;
            self.next = (self.next + 1) % WAYS;
        }
    }
}

/// A way in the making.
pub(super) struct Walked {
    first: Registers,
    /// `None` when it cannot be kept.
    way: Option<Way>,
}

impl Walked {
    pub(super) fn from(first: Registers) -> Walked {
        Walked { first, way: Some(Way { first_pc: first.pc, ..Way::NONE }) }
    }

    /// Goes on from `at` by `rule` to `caller`; `own`: that is the allocator's code as well.
    pub(super) fn step(&mut self, at: Registers, rule: Rule, caller: Registers, own: bool) {
        self.way = self.way.take().and_then(|mut way| {
            if rule.kind() != Kind::Stack {
                return None;
            }
            let above = |place: u64| place.wrapping_sub(self.first.sp);
            if rule.restores_bp() {
                way.bp_bytes = Some(above(rule.bp_slot(at)));
            }
            way.sp_bytes = above(caller.sp);
            if own {
                let step = way.steps as usize;
                *way.links.get_mut(step)? = Link { slot: way.sp_bytes.wrapping_sub(8), value: caller.pc };
                way.steps += 1;
            }
            Some(way)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: u64 = 0x9000;

    fn is_own(pc: u64) -> bool {
        pc >= OWN
    }

    /// A stack of words from address 0x100 on.
    struct At<'a>(&'a [u64]);

    impl Words for At<'_> {
        fn read(&self, addr: u64) -> Option<u64> {
            self.0.get((addr.checked_sub(0x100)? / 8) as usize).copied()
        }
    }

    /// The way of two own frames, of 3 words and of 2 with a saved frame pointer in the first.
    fn known() -> Ways {
        let first = Registers { pc: OWN + 1, sp: 0x100, bp: 7 };
        let inner = Registers { pc: OWN + 2, sp: 0x118, bp: 7 };
        let program = Registers { pc: 0x11, sp: 0x128, bp: 0x700 };
        let mut walked = Walked::from(first);
        walked.step(first, Rule::stack(3, None), inner, true);
        walked.step(inner, Rule::stack(2, Some(0)), program, false);
        let mut ways = Ways::NONE;
        ways.keep(&walked);
        ways
    }

    #[test]
    fn the_same_way_leads_out_at_any_depth_and_to_any_caller() {
        let mut ways = known();
        let first = Registers { pc: OWN + 1, sp: 0x108, bp: 9 };
        let words = [0, 0, 0, OWN + 2, 0x44, 0x22];
        let out = ways.out(first, &At(&words), is_own);
        assert_eq!(out, Some(Registers { pc: 0x22, sp: 0x130, bp: 0x44 }));
    }

    #[test]
    fn another_way_is_not_taken_for_it() {
        let mut ways = known();
        let first = Registers { pc: OWN + 1, sp: 0x100, bp: 9 };
        // Another frame of the allocator, one frame more of it, the end of the stack, another place of the walk.
        assert_eq!(ways.out(first, &At(&[0, 0, OWN + 3, 0x44, 0x22]), is_own), None);
        assert_eq!(ways.out(first, &At(&[0, 0, OWN + 2, 0x44, OWN + 9]), is_own), None);
        assert_eq!(ways.out(first, &At(&[0, 0, OWN + 2, 0x44]), is_own), None);
        let words = [0, 0, OWN + 2, 0x44, 0x22];
        assert_eq!(ways.out(Registers { pc: OWN + 4, ..first }, &At(&words), is_own), None);
        assert!(ways.out(first, &At(&words), is_own).is_some());
        ways.forget();
        assert_eq!(ways.out(first, &At(&words), is_own), None);
    }

    #[test]
    fn a_step_that_needs_more_than_distances_is_not_kept() {
        let first = Registers { pc: OWN + 1, sp: 0x100, bp: 0x108 };
        for rule in [Rule::pointer(false), Rule::OPAQUE] {
            let mut walked = Walked::from(first);
            walked.step(first, rule, Registers { pc: 0x11, sp: 0x118, bp: 1 }, false);
            let mut ways = Ways::NONE;
            ways.keep(&walked);
            assert_eq!(ways.out(first, &At(&[0, 0, 0x11]), is_own), None);
        }
    }
}
