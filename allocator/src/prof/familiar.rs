//! Stacks that a thread is sampled in again and again, and their counts.
//!
//! ```text
//!  program's registers ─ hash ─► two places of [Familiar; 64]
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

use alloc::vec::Vec;

use super::records::{Ptr, TctxCell};
use super::rule::Registers;
use super::way::{Link, Words};

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

struct Familiar {
    at: Registers,
    needs_bp: bool,
    high: u64,
    links: Vec<Link>,
    /// `None`: nothing is kept here.
    recalled: Option<Recalled>,
}

impl Familiar {
    const NONE: Familiar =
        Familiar { at: Registers { pc: 0, sp: 0, bp: 0 }, needs_bp: false, high: 0, links: Vec::new(), recalled: None };

    #[inline(always)]
    fn recall(&self, at: Registers, high: u64, words: &impl Words) -> Option<Recalled> {
        if self.at.sp != at.sp || self.at.pc != at.pc || self.high != high || (self.needs_bp && self.at.bp != at.bp) {
            return None;
        }
        let recalled = self.recalled?;
        (words.holding(0, &self.links) == self.links.len()).then_some(recalled)
    }
}

/// The familiar stacks of one thread.
pub(super) struct Familiars {
    /// None before the first stack is kept; then [`PLACES`]. Not on the stack on the way here: threads may have small ones.
    places: Vec<Familiar>,
    /// Which place of a pair is given up next.
    turn: usize,
}

impl Familiars {
    pub(super) const NONE: Familiars = Familiars { places: Vec::new(), turn: 0 };

    /// The first of the pair of places for these registers.
    #[inline(always)]
    fn pair(at: Registers) -> usize {
        let mixed = (at.pc ^ at.sp.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> (64 - PLACES.ilog2())) as usize & !1 & (PLACES - 1)
    }

    /// The counts of the stack that `at` stands on, if it is a familiar one.
    #[inline(always)]
    pub(super) fn recall(&self, at: Registers, high: u64, words: &impl Words) -> Option<Recalled> {
        let pair = Familiars::pair(at);
        if let Some(recalled) = self.places.get(pair)?.recall(at, high, words) {
            return Some(recalled);
        }
        self.places.get(pair + 1)?.recall(at, high, words)
    }

    /// Keeps a stack; not without memory.
    pub(super) fn keep(&mut self, kept: &Kept<'_>, recalled: Recalled) {
        if self.places.is_empty() {
            if self.places.try_reserve_exact(PLACES).is_err() {
                return;
            }
            self.places.resize_with(PLACES, || Familiar::NONE);
        }
        self.turn ^= 1;
        let Some(place) = self.places.get_mut(Familiars::pair(kept.at) + self.turn) else { return };
        place.recalled = None;
        place.links.clear();
        if place.links.try_reserve(kept.links.len() + 1).is_err() {
            return;
        }
        // Compared from the last on: what is near the leaf differs most often.
        place.links.extend(kept.zero_slot.map(|slot| Link { slot, value: 0 }));
        place.links.extend_from_slice(kept.links);
        place.at = kept.at;
        place.needs_bp = kept.needs_bp;
        place.high = kept.high;
        place.recalled = Some(recalled);
    }

    pub(super) fn forget(&mut self) {
        self.places.iter_mut().for_each(|place| place.recalled = None);
    }
}
