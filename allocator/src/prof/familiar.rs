//! Stacks that a thread is sampled in again and again, and their counts.
//!
//! ```text
//!  program's registers ─ hash ─► a place of [Familiar; 64], or the one beside
//!  Familiar   pc, sp, bp │ end of the stack │ links: the words that led the walk from there to the root │ counts
//! ```
//!
//! A walk from the program's registers by rules of one generation depends on nothing but these registers and the words
//! that it read (`trace.rs`). So where all of them are as they were, the stack is the one that was found then, and neither
//! its frames nor their hash are needed to know whose counts go up: a comparison a frame.
//!
//! I-FAMILIAR-1: what is kept was found by the rules of the owner's generation and for its greatest number of frames; the
//! owner forgets all when either changes. I-FAMILIAR-2: only walks that ended well, without a doubt, and by steps that
//! depend on remembered words alone are kept. I-FAMILIAR-3: the slots of kept links lie between the kept stack pointer
//! and the kept end of the stack less 8 (I-TRACE-4).
//!
//! A stack is kept when its counts were there before: one that never comes again is not worth the copy.
#![forbid(unsafe_code)]

extern crate alloc;

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::records::{Ptr, TctxCell};
use super::rule::Registers;
use super::way::{Link, Words};

/// Times the registers, whose upper bits choose the place; of 32 bits, as an instruction takes it.
const MIX: u64 = -0x61c8_864f_i64 as u64;
/// Places; a program allocates its many small blocks in few places at a time.
const PLACES: usize = 64;

/// What is known of a stack.
#[derive(Clone, Copy)]
pub(crate) struct Recalled {
    pub(crate) tctx: Ptr<TctxCell>,
    /// The walk ended before the outermost frame.
    pub(crate) truncated: bool,
}

/// A stack to keep.
pub(super) struct Kept<'a> {
    pub(super) at: Registers,
    /// The rest depends on `at.bp`.
    pub(super) needs_bp: bool,
    /// End of the stack.
    pub(super) high: u64,
    /// Root first.
    pub(super) links: &'a [Link],
    /// Where the 0 stands that ended the walk, if it was a word.
    pub(super) zero_slot: Option<u64>,
}

/// A cache line.
#[repr(align(64))]
struct Familiar {
    at: Registers,
    /// End of the stack, which is a multiple of 8, and what else is to be looked at.
    high: u64,
    /// From the leaf outwards: what is near the leaf differs most often.
    pairs: Vec<[Link; 2]>,
    /// `None`: nothing is kept here.
    tctx: Option<Ptr<TctxCell>>,
}

/// The rest depends on `at.bp`.
const NEEDS_BP: u64 = 1;
/// The walk ended before the outermost frame.
const TRUNCATED: u64 = 2;
const FLAGS: u64 = 7;

const _: () = assert!(size_of::<Familiar>() == 64);

impl Familiar {
    const NONE: Familiar = Familiar { at: Registers { pc: 0, sp: 0, bp: 0 }, high: 0, pairs: Vec::new(), tctx: None };

    /// The counts, if the stack is this one and was not cut.
    #[inline(always)]
    fn find(&self, at: Registers, high: u64, words: &impl Words) -> Option<Ptr<TctxCell>> {
        if self.at.sp ^ at.sp | self.at.pc ^ at.pc != 0 {
            return None;
        }
        let flags = self.high ^ high;
        if flags != 0 && (flags != NEEDS_BP || self.at.bp != at.bp) {
            return None;
        }
        let tctx = self.tctx?;
        words.hold(&self.pairs).then_some(tctx)
    }

    #[inline]
    fn recall(&self, at: Registers, high: u64, words: &impl Words) -> Option<Recalled> {
        let cut = self.high & TRUNCATED;
        Some(Recalled { tctx: self.find(at, high | cut, words)?, truncated: cut != 0 })
    }
}

/// The familiar stacks of one thread.
pub(super) struct Familiars {
    /// None before the first stack is kept. Not on the stack on the way here: threads may have small ones.
    places: Option<Box<[Familiar; PLACES]>>,
}

impl Familiars {
    pub(super) const NONE: Familiars = Familiars { places: None };

    /// The place of a stack; the one that it may be moved to lies beside.
    #[inline(always)]
    fn place(at: Registers) -> usize {
        let mixed = (at.pc ^ at.sp.rotate_left(32)).wrapping_mul(MIX);
        (mixed >> (64 - PLACES.ilog2())) as usize % PLACES
    }

    /// The counts of the stack that `at` stands on, if it is a familiar one that was not cut.
    #[inline(always)]
    pub(super) fn find(&self, at: Registers, high: u64, words: &impl Words) -> Option<Ptr<TctxCell>> {
        let places = self.places.as_ref()?;
        let place = Familiars::place(at);
        if let Some(tctx) = places[place].find(at, high, words) {
            return Some(tctx);
        }
        places[place ^ 1].find(at, high, words)
    }

    /// As [`Familiars::find`], of all.
    #[inline]
    pub(super) fn recall(&self, at: Registers, high: u64, words: &impl Words) -> Option<Recalled> {
        let places = self.places.as_ref()?;
        let place = Familiars::place(at);
        [place, place ^ 1].into_iter().find_map(|place| places[place].recall(at, high, words))
    }

    /// Keeps a stack; not without memory.
    pub(super) fn keep(&mut self, kept: &Kept<'_>, recalled: Recalled) {
        if kept.high & FLAGS != 0 {
            return;
        }
        if self.places.is_none() {
            let mut places = Vec::new();
            if places.try_reserve_exact(PLACES).is_err() {
                return;
            }
            places.resize_with(PLACES, || Familiar::NONE);
            self.places = places.into_boxed_slice().try_into().ok();
        }
        let Some(places) = &mut self.places else { return };
        let at = Familiars::place(kept.at);
        // The one that is there may come again.
        places.swap(at, at ^ 1);
        let place = &mut places[at];
        place.tctx = None;
        place.pairs.clear();
        if place.pairs.try_reserve(kept.links.len() / 2 + 1).is_err() {
            return;
        }
        let (rest, pairs) = kept.links.as_rchunks();
        place.pairs.extend(pairs.iter().rev().map(|[outer, inner]| [*inner, *outer]));
        // The outermost, and the word that ended the walk; a single one is its own fellow.
        let zero = kept.zero_slot.map(|slot| Link { slot, value: 0 });
        let last = rest.first().copied().or(zero).zip(zero.or(rest.first().copied()));
        place.pairs.extend(last.map(|(inner, outer)| [inner, outer]));
        place.at = kept.at;
        place.high =
            kept.high | if kept.needs_bp { NEEDS_BP } else { 0 } | if recalled.truncated { TRUNCATED } else { 0 };
        place.tctx = Some(recalled.tctx);
    }

    pub(super) fn forget(&mut self) {
        self.places.iter_mut().flat_map(|places| places.iter_mut()).for_each(|place| place.tctx = None);
    }
}
