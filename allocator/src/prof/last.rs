//! The stack as a walk found it, and what can be said of it later without another walk.
//!
//! ```text
//!  frames   root ─► … ─► leaf      pc, sp, bp, rule of each frame
//!  links    root ─► … ─► leaf      the words of the stack that led from each frame to its caller: place, value
//! ```
//!
//! What a walk finds is a function of the registers it began with, of the words that it read and of the rules; so where the
//! links hold from some frame outward, the rest of the stack is as it was.
//!
//! I-LAST-1: the slots of the links that lead outward from a frame lie between its stack pointer and the end of the stack less
//! 8, but for those of the first `loose` links. I-LAST-2: an `Opaque` frame's step may depend on words that are not
//! remembered: its link never holds. I-LAST-3: the outermost frame's step is taken anew ([`Last::ends_as_before`]), as its end
//! may be a word of the stack.
#![forbid(unsafe_code)]

extern crate alloc;

use alloc::vec::Vec;

use jeprobe_abi::logic::{HASH_SEED, hash_end, hash_step};

use super::packed::Packed;
use super::rule::{Kind, Registers, Rule, Step};
use super::way::{Link, Words};

/// A frame that the walk came to by a rule.
#[derive(Clone, Copy)]
pub(super) struct Fresh {
    pub(super) at: Registers,
    pub(super) rule: Rule,
}

#[derive(Clone, Copy)]
pub(super) struct Frame {
    pub(super) at: Registers,
    pub(super) rule: Rule,
    /// Hash of the frames from the root to this one.
    hash: u64,
    /// Bytes of the packed distances from this frame to the root; only among the first `packed_frames`.
    packed_bytes: u16,
    /// Links that lead from this frame to the root: the first so many.
    pub(super) links: u32,
    /// The rest of the walk depends on `at.bp`.
    pub(super) needs_bp: bool,
    /// This frame or one nearer to the root is doubtful.
    doubtful: bool,
}

/// Never holds: the step may depend on words that are not remembered.
const NO_LINK: Link = Link { slot: u64::MAX, value: 0 };

/// What a walk found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Walked {
    /// Frames to keep.
    pub(crate) depth: usize,
    /// Hash of these frames; the same for the same frames.
    pub(crate) hash: u64,
    /// The walk ended before the outermost frame.
    pub(crate) truncated: bool,
    /// The modules may have changed.
    pub(crate) doubtful: bool,
    /// The very frames of the walk before.
    pub(crate) same: bool,
}

/// The stack of one thread.
pub(super) struct Last {
    /// Root first.
    pub(super) frames: Vec<Frame>,
    pub(super) links: Vec<Link>,
    /// Links up to the last one that never holds.
    pub(super) loose: usize,
    /// How the outermost frame ended: `End` or `Broken`.
    pub(super) end: Step,
    packed: Packed,
    /// The first so many frames are in `packed`.
    packed_frames: usize,
}

impl Last {
    /// Nothing, with room for `frames`; `None` without memory.
    pub(super) fn new(frames: usize) -> Option<Last> {
        let mut last = Last {
            frames: Vec::new(),
            links: Vec::new(),
            loose: 0,
            end: Step::Broken,
            packed: Packed::NONE,
            packed_frames: 0,
        };
        last.links.try_reserve_exact(frames).ok()?;
        last.frames.try_reserve_exact(frames).ok()?;
        Some(last)
    }

    pub(super) fn forget(&mut self) {
        self.frames.clear();
        self.links.clear();
        self.loose = 0;
        self.packed_frames = 0;
    }

    /// The outermost frame to which the words still lead that led the last walk from frame `top` outward.
    #[inline]
    pub(super) fn held(&self, top: usize, words: &impl Words) -> usize {
        let count = self.frames.get(top).map_or(0, |frame| frame.links as usize);
        let solid = self.links.get(self.loose..count).unwrap_or(&[]);
        let rest = count - words.holding(0, solid);
        if rest == 0 {
            return 0;
        }
        // Link `rest - 1` does not hold: it is of the step of the frame inside of the outermost one that needs no more.
        let inside = self.frames.get(..=top).unwrap_or(&[]);
        let caller = inside.iter().rposition(|frame| (frame.links as usize) < rest);
        caller.map_or(0, |caller| caller + 1)
    }

    /// Takes the outermost frame's step again. Its frame pointer is the remembered one if the step needs it.
    pub(super) fn ends_as_before(&self, words: &impl Words) -> bool {
        self.frames.first().is_some_and(|root| {
            root.rule.kind() != Kind::Opaque && root.rule.step(root.at, |addr| words.read(addr)) == self.end
        })
    }

    /// Puts the fresh frames, leaf first, above the first `kept`.
    pub(super) fn take_over(&mut self, kept: usize, fresh: &mut Vec<Fresh>) {
        self.frames.truncate(kept);
        self.packed_frames = self.packed_frames.min(kept);
        let mut caller = self.frames.last().copied();
        self.links.truncate(caller.map_or(0, |caller| caller.links as usize));
        if self.loose > self.links.len() {
            self.loose = self.links.iter().rposition(|link| link.slot == u64::MAX).map_or(0, |last| last + 1);
        }
        self.frames.reserve(fresh.len());
        self.links.reserve(2 * fresh.len());
        while let Some(Fresh { at, rule }) = fresh.pop() {
            let mut hash = HASH_SEED;
            let mut rest_needs = false;
            let mut doubtful = rule.is_doubtful();
            if let Some(caller) = &caller {
                hash = caller.hash;
                rest_needs = caller.needs_bp;
                doubtful |= caller.doubtful;
                self.link(at, rule, caller);
            }
            let needs_bp = if rule.is_stack() { rest_needs && !rule.restores_bp() } else { rule.kind() != Kind::End };
            let links = self.links.len() as u32;
            let frame = Frame { at, rule, hash: hash_step(hash, at.pc), packed_bytes: 0, links, needs_bp, doubtful };
            self.frames.push(frame);
            caller = Some(frame);
        }
    }

    #[inline]
    fn link(&mut self, at: Registers, rule: Rule, caller: &Frame) {
        let link = Link { slot: caller.at.sp.wrapping_sub(8), value: caller.at.pc };
        if rule.is_stack() {
            self.links.push(link);
            if caller.needs_bp && rule.restores_bp() {
                self.links.push(Link { slot: rule.bp_slot(at), value: caller.at.bp });
            }
        } else {
            self.link_slow(at, rule, caller, link);
        }
    }

    #[inline(never)]
    fn link_slow(&mut self, at: Registers, rule: Rule, caller: &Frame, link: Link) {
        let slot = rule.bp_slot(at);
        // Below the frame nothing can be relied upon.
        if rule.kind() == Kind::Opaque || (rule.restores_bp() && slot < at.sp) {
            self.links.push(NO_LINK);
            self.loose = self.links.len();
            return;
        }
        self.links.push(link);
        if caller.needs_bp && rule.restores_bp() {
            self.links.push(Link { slot, value: caller.at.bp });
        }
    }

    /// What the walk found, of which at most `max` frames are kept.
    pub(super) fn result(&self, max: usize) -> Walked {
        let frames = self.frames.as_slice();
        let depth = frames.len().min(max);
        let doubtful = self.end == Step::Broken || frames.last().is_some_and(|frame| frame.doubtful);
        let leaf = |frame: &Frame| frame.at.pc.wrapping_sub(1);
        let hash = match frames.get(frames.len() - depth..) {
            Some([below @ .., top]) if frames.len() == depth => {
                hash_step(below.last().map_or(HASH_SEED, |frame| frame.hash), leaf(top))
            }
            Some([below @ .., top]) => {
                hash_step(below.iter().fold(HASH_SEED, |hash, frame| hash_step(hash, frame.at.pc)), leaf(top))
            }
            _ => HASH_SEED,
        };
        let truncated = self.end == Step::Broken || depth < frames.len();
        Walked { depth, hash: hash_end(hash), truncated, doubtful, same: false }
    }

    /// Packs the frames of the walk; bytes of their packed form. `None` when they cannot be packed, reach not to the root, or
    /// without memory.
    pub(super) fn pack(&mut self, walked: Walked) -> Option<u16> {
        if walked.depth != self.frames.len() {
            return None;
        }
        self.packed.prepare()?;
        let (top, callers) = self.frames.split_last_mut()?;
        // The top may be among those that were callers.
        let (packed, others) = callers.split_at_mut(self.packed_frames.min(callers.len()));
        let mut outer = packed.last().map(|frame| (frame.at.pc, frame.packed_bytes));
        for frame in others {
            frame.packed_bytes = match outer {
                Some((caller, behind)) => self.packed.put(frame.at.pc, caller, behind)?,
                None => 0,
            };
            outer = Some((frame.at.pc, frame.packed_bytes));
        }
        self.packed_frames = callers.len();
        // Its place says the leaf, which as a caller's would be another.
        let leaf = top.at.pc.wrapping_sub(1);
        let behind = match outer {
            Some((caller, behind)) => self.packed.put(leaf, caller, behind)?,
            None => 0,
        };
        self.packed.put(0, leaf, behind)
    }

    /// The words of what [`Last::pack`] packed.
    pub(super) fn packed_words(&self, taken: u16) -> &[[u8; 8]] {
        self.packed.words(taken)
    }

    /// The frames of the walk, leaf first: return addresses, but the leaf, which is the last byte of its call.
    pub(super) fn frames(&self, walked: Walked) -> impl Iterator<Item = u64> + Clone {
        let kept = self.frames.get(self.frames.len().saturating_sub(walked.depth)..).unwrap_or(&[]);
        // Readers of heap files take the leaf as it is and one off all others: the leaf is named by the last byte of
        // its call, not by the byte behind it, which may belong to the next line or function.
        let (callers, leaf) = match kept {
            [callers @ .., leaf] => (callers, Some(leaf.at.pc.wrapping_sub(1))),
            [] => (kept, None),
        };
        leaf.into_iter().chain(callers.iter().rev().map(|frame| frame.at.pc))
    }
}
