//! For tests of walks: a thread that is none, whose stack is known because it is made up.
#![forbid(unsafe_code)]

use std::cell::Cell;
use std::vec::Vec;

use super::rule::{Key, Registers, Rule, Rules, Step};
use super::way::Words;

pub(super) const HIGH: u64 = 0x7000_0000;
const WORDS: usize = 1 << 14;

/// How a pretended function keeps its frame.
#[derive(Clone, Copy, Debug)]
enum Shape {
    Plain(u64),
    /// Saves `bp` at this word and uses the register for something else.
    Saves(u64, u64),
    /// `bp` points to its frame, whose size varies.
    Pointer,
    /// The caller's stack pointer is a word of the frame.
    Odd,
}

/// A thread that calls and returns, and knows what its stack should look like.
pub(super) struct Machine {
    words: Vec<u64>,
    /// Registers of the frames, root first; the last is the running one.
    pub(super) truth: Vec<Registers>,
    random: u64,
    pub(super) reads: Cell<usize>,
}

pub(super) const OWN: u64 = 0x9_0000;
const ROOT_PC: u64 = 0x8_0000;

impl Machine {
    pub(super) fn new(seed: u64) -> Machine {
        let root = Registers { pc: ROOT_PC, sp: HIGH - 64, bp: 0 };
        Machine { words: std::vec![0; WORDS], truth: std::vec![root], random: seed, reads: Cell::new(0) }
    }

    pub(super) fn draw(&mut self, below: u64) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % below
    }

    fn shape(function: u64) -> Shape {
        match function % 8 {
            0..3 => Shape::Plain(2 + function % 5),
            3 | 4 => Shape::Saves(4 + function % 3, function % 3),
            5 | 6 => Shape::Pointer,
            _ => Shape::Odd,
        }
    }

    /// Each function calls from several places, all of which have its rule.
    pub(super) fn pc(function: u64, place: u64) -> u64 {
        0x1000 + function * 0x100 + place * 16 + 1
    }

    fn rule(key: Key) -> Rule {
        let place = key.place();
        if place == ROOT_PC - 1 || place == ROOT_PC {
            return Rule::END;
        }
        match Machine::shape((place & 0xffff).wrapping_sub(0x1000) / 0x100) {
            Shape::Plain(words) => Rule::stack(words, None),
            Shape::Saves(words, slot) => Rule::stack(words, Some(slot)),
            Shape::Pointer => Rule::pointer(false),
            Shape::Odd => Rule::OPAQUE,
        }
    }

    fn set(&mut self, addr: u64, word: u64) {
        self.words[((HIGH - addr) / 8) as usize] = word;
    }

    pub(super) fn call(&mut self, function: u64, own: bool) {
        let (place, hole) = (self.draw(2), self.draw(9));
        self.call_at(Machine::pc(function, place) + if own { OWN } else { 0 }, function, hole);
    }

    /// `hole`: words of a frame of varying size that nobody writes.
    pub(super) fn call_at(&mut self, pc: u64, function: u64, hole: u64) {
        let caller = *self.truth.last().expect("root");
        self.set(caller.sp - 8, caller.pc);
        let entered = match Machine::shape(function) {
            Shape::Plain(words) => Registers { pc, sp: caller.sp - words * 8, bp: caller.bp },
            Shape::Saves(words, slot) => {
                let sp = caller.sp - words * 8;
                self.set(sp + slot * 8, caller.bp);
                // As often as not something that a frame pointer could be.
                let bp = if self.draw(4) == 0 { self.draw(1 << 30) } else { sp + 8 * self.draw(20) };
                Registers { pc, sp, bp }
            }
            Shape::Pointer => {
                self.set(caller.sp - 16, caller.bp);
                Registers { pc, sp: caller.sp - 16 - 8 * hole, bp: caller.sp - 16 }
            }
            Shape::Odd => {
                let sp = caller.sp - 8 * (2 + self.draw(3));
                self.set(sp, caller.sp);
                Registers { pc, sp, bp: caller.bp }
            }
        };
        self.truth.push(entered);
    }
}

impl Words for Machine {
    fn read(&self, addr: u64) -> Option<u64> {
        self.reads.set(self.reads.get() + 1);
        let sp = self.truth.last().expect("root").sp;
        (sp..HIGH - 7).contains(&addr).then(|| self.words[((HIGH - addr) / 8) as usize])
    }
}

pub(super) struct Pretended<'a> {
    pub(super) machine: &'a Machine,
}

impl Rules for Pretended<'_> {
    fn find(&mut self, key: Key) -> Option<Rule> {
        Some(Machine::rule(key))
    }

    fn step(&mut self, at: Registers, _first: bool) -> Step {
        let Some(sp) = self.machine.read(at.sp) else { return Step::Broken };
        let Some(pc) = self.machine.read(sp - 8) else { return Step::Broken };
        Step::Caller(Registers { pc, sp, bp: at.bp })
    }

    fn is_own(&self, pc: u64) -> bool {
        pc >= OWN
    }
}
