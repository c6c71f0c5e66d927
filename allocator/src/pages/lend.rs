//! Idle memory of one arena for another, which would else take fresh memory while this lies idle.
//!
//! An arena that is about to use memory that is not resident says so first, once in so many bytes; the caller, who holds no
//! lock of pages then, finds an arena that lends, and files what that one gave. A run that changes hands is Busy.
#![forbid(unsafe_code)]

use super::{Pages, Which};
use crate::extent::{Extent, State};

/// Fresh bytes between two questions that nobody said yes to.
const ASK_BYTES: usize = 64 << 10;

impl Pages {
    /// True when others are to be asked before `need` bytes of fresh memory are used.
    pub(super) fn asks(&mut self, need: usize) -> bool {
        self.unasked_bytes = self.unasked_bytes.saturating_add(need);
        let due = self.unasked_bytes >= ASK_BYTES && self.dirty_decay.ms() != 0;
        if due {
            self.unasked_bytes = 0;
        }
        due
    }

    /// Gives a run of `need` bytes at least away, and of `wanted` at most: the upper end of the shortest that has as many, so that
    /// long ones stay whole, or else of the longest.
    pub(crate) fn lend(&mut self, need: usize, wanted: usize) -> Option<&'static Extent> {
        if self.idle_bytes(Which::Dirty) < need {
            return None;
        }
        if self.dirty.longest_bytes() < wanted {
            self.coalesce();
        }
        self.stock_descriptors(1).ok()?;
        let run = self.dirty.find(wanted).or_else(|| self.dirty.coldest().filter(|run| run.bytes() >= need))?;
        let bytes = run.bytes().min(wanted);
        let part = self.carve(run, run.bytes() - bytes, bytes);
        part.set_state(State::Busy);
        Some(part)
    }

    /// Files what another arena gave.
    pub(crate) fn take_in(&mut self, run: &'static Extent) {
        run.set_arena(self.arena);
        self.insert_merged(run, State::Dirty);
        // Whoever lent this may have more.
        self.unasked_bytes = ASK_BYTES;
    }
}
