//! Where to ask for huge pages.
//!
//! ```text
//!   chunk  │ S │ S │ S │ H │ H │ P │ H │ H … │ H │ P │ …  untouched       runs of 2 MiB
//!            the first MiB in use              probes, one of 16
//! ```
//!
//! A huge page saves some 500 faults where all of it is used, and costs up to 2 MiB where little is. Asked for is where
//! memory comes into use, run by run, once the arena is so large that the run it is filling is a small part, and while
//! its blocks are used densely. That is looked at in probes, runs that keep small pages: of the last but one that came
//! into use, the kernel says how many pages are resident. Where they are few, all runs keep small pages, and are probes.
//!
//! A request larger than all that is in use keeps small pages: it may be touched here and there only.
#![forbid(unsafe_code)]

use super::{HUGE_PAGE_BYTES, Pages};
use crate::bits::{align_down, align_up};
use crate::conf::{self, Thp};
use crate::emap;
use crate::extent::Extent;
use crate::prim::{AtomicUsize, Ordering};

/// An arena asks for huge pages while this much is in use in the process, so that the run that a lone arena is filling is
/// half of it at most,
const PROCESS_MIN_BYTES: usize = 2 * HUGE_PAGE_BYTES;
/// and this much in the arena.
const ARENA_MIN_BYTES: usize = HUGE_PAGE_BYTES;
/// Of so many runs, one is a probe; each is looked at 32 to 64 MiB later.
const PROBE_RUNS: usize = 16;
/// Runs without huge pages between two looks.
const SPARSE_RUNS: usize = 4;
/// A probe is dense from this part of its bytes on. A huge page costs what 60 to 200 faults do, so it would pay in time
/// from a third on; but then memory would grow by as much again.
const DENSE_BYTES: usize = HUGE_PAGE_BYTES / 2;

/// Bytes in use in all arenas, as of the last time that each took fresh memory.
static IN_USE: AtomicUsize = AtomicUsize::new(0);

/// What is known of how densely an arena's memory is used.
pub(super) struct Density {
    /// Addresses of the last two runs that came into use with small pages; 0 = none.
    newest: usize,
    probe: usize,
    /// Runs that came into use since the last look.
    runs: usize,
    dense: bool,
    /// The arena's part of `IN_USE`.
    counted: usize,
}

impl Density {
    pub(super) const fn new() -> Density {
        Density { newest: 0, probe: 0, runs: PROBE_RUNS, dense: true, counted: 0 }
    }

    /// Bytes in use in the process, of which `bytes` are this arena's.
    fn in_use(&mut self, bytes: usize) -> usize {
        let change = bytes.wrapping_sub(self.counted);
        self.counted = bytes;
        // Relaxed: a sum for a decision that may come early or late.
        IN_USE.fetch_add(change, Ordering::Relaxed).wrapping_add(change)
    }

    fn keep_small(&mut self, run: usize) {
        self.probe = self.newest;
        self.newest = run;
    }

    /// Looks at the probe when it is due; true when it did.
    fn look(&mut self, runs: usize) -> bool {
        self.runs = self.runs.saturating_add(runs);
        if self.runs < if self.dense { PROBE_RUNS } else { SPARSE_RUNS } {
            return false;
        }
        self.runs = 0;
        let resident = if self.probe == 0 { None } else { emap::resident_bytes(self.probe, HUGE_PAGE_BYTES) };
        if let Some(bytes) = resident {
            self.dense = bytes >= DENSE_BYTES;
            if self.dense {
                // A run like those around it again, in one mapping with them.
                emap::advise_huge(core::ptr::without_provenance_mut(self.probe), HUGE_PAGE_BYTES, true);
                self.probe = 0;
            }
        }
        true
    }
}

impl Pages {
    /// Asks for huge pages where `bytes` behind `lead` bytes of a retained extent come into use: in the runs that begin
    /// there, so that none is asked for twice, and none that reaches out of the extent.
    pub(super) fn advise_fresh(&mut self, extent: &Extent, lead: usize, bytes: usize) {
        if conf::options().thp != Thp::Default {
            return;
        }
        let start = extent.addr().addr() + lead;
        let ends = (align_up(start, HUGE_PAGE_BYTES), align_up(start + bytes, HUGE_PAGE_BYTES));
        let (Some(mut first), Some(last)) = ends else { return };
        let last = last.min(align_down(extent.end(), HUGE_PAGE_BYTES));
        if first >= last {
            return;
        }
        // Without `retain` a probe may be unmapped when it is looked at.
        let probing = self.retain;
        let in_use = self.density.in_use(self.active_bytes);
        let small = in_use < PROCESS_MIN_BYTES || self.active_bytes < ARENA_MIN_BYTES.max(bytes);
        if probing && (small || self.density.look((last - first) / HUGE_PAGE_BYTES) || !self.density.dense) {
            self.density.keep_small(first);
            first += HUGE_PAGE_BYTES;
        }
        if !small && self.density.dense && first < last {
            emap::advise_huge(core::ptr::without_provenance_mut(first), last - first, true);
        }
    }
}
