//! Where to ask for huge pages.
//!
//! ```text
//!   chunk  │ S │ S │ H │ H │ H │ P │ H │ H … │ H │ P │ …  untouched       runs of 2 MiB
//!            the first MiB in use              probes, ever fewer
//! ```
//!
//! A huge page saves some 500 faults where all of it is used, and costs up to 2 MiB where little is. Asked for is where
//! memory comes into use, run by run, once so much is in use that the run being filled is a small part, and until
//! blocks prove to be used sparsely. That is looked at in probes, runs that keep small pages: of the last few, the
//! kernel says how many pages are resident. Where they are few, all runs keep small pages, and are probes.
//!
//! A request larger than all that is in use is a guess: its first run keeps small pages, so that one of which only the
//! start is used costs nothing. A request for a zeroed block may be sparse as a whole, since tables are made of such: all of it
//! keeps small pages while it is more than a small part of what is in use.
//!
//! A huge page is cheap where the kernel has one at hand that the host of a virtual machine has memory behind; elsewhere it
//! costs several times what its small pages would ([`Price`]). So the first of the process is touched at once, and one in a few
//! after it, and the time taken: after a dear one, runs keep small pages for a while.
//!
//! The last run of a process is filled in part, and it comes late: a program takes most of its memory in a rush and then a
//! little more now and then ([`Pace`]). So a run that comes late keeps small pages while it is a noticeable part of what is in
//! use. That costs its faults once in as long as the process has run before, so it is little of the time.
#![forbid(unsafe_code)]

use super::{Fit, HUGE_PAGE_BYTES, Pages};
use crate::bits::{align_down, align_up};
use crate::conf::{self, Thp};
use crate::emap;
use crate::extent::Extent;
#[cfg(not(test))]
use crate::sys::clock_recent_ns as clock_ns;
#[cfg(test)]
use crate::sys::mock::clock_ns;

/// Huge pages are asked for while this much is in use in the process, so that the run that is being filled is a part of it:
/// a half at most in a process with few arenas,
const PROCESS_MIN_BYTES: usize = 2 * HUGE_PAGE_BYTES;
/// a third in one with more, each of which also leaves the rest of a piece.
const PROCESS_MIN_BYTES_MANY: usize = 3 * HUGE_PAGE_BYTES;
/// Few: that of the first thread, and one more.
const FEW_ARENAS: u32 = 2;
/// In a chunk of an arena's own, also this much in the arena.
const ARENA_MIN_BYTES: usize = HUGE_PAGE_BYTES;
/// Zeroed blocks above this part of what is in use keep small pages.
const ZEROED_PART: usize = 8;
/// Runs that come into use before the first look: until then memory is taken to be used densely.
const FIRST_RUNS: usize = 8;
/// Runs between two looks while memory is used densely: each look that says so again doubles them, within these bounds.
const DENSE_RUNS_MIN: usize = 16;
const DENSE_RUNS_MAX: usize = 256;
/// Runs between two looks while it is not, likewise.
const SPARSE_RUNS_MIN: usize = 2;
const SPARSE_RUNS_MAX: usize = 16;
/// Probes that are remembered: one run by itself may be an odd one.
const PROBES: usize = 4;
/// Probes are dense from this part of their bytes on. A huge page costs what 60 to 200 faults do, so it would pay in time
/// from a third on; but then memory would grow by as much again.
const DENSE_BYTES: usize = HUGE_PAGE_BYTES / 2;

/// A huge page that takes more time of the thread than this is dear: 0.1 to 0.3 ms are usual, 0.8 for small pages all over the
/// run, 5 where the host has no memory behind it.
const DEAR_NS: u64 = 1_500_000;
/// Runs from one that is touched to the next while they are cheap: doubles from 1.
const TOUCH_RUNS_MAX: usize = 4;
/// Runs that keep small pages after a dear one; doubles with each dear one that comes next.
const DEAR_RUNS_MIN: usize = 8;
const DEAR_RUNS_MAX: usize = 128;

/// A run comes late that comes this long after the last one,
const LATE_NS: u64 = 40_000_000;
/// or so long, if that is also a good part of the time before.
const LATE_MIN_NS: u64 = 4_000_000;
const LATE_PART: u64 = 2;
/// Above this, the rest of a run is a small part of what is in use.
const LATE_MAX_BYTES: usize = 32 * HUGE_PAGE_BYTES;

/// How fast runs come into use.
struct Pace {
    first_ns: u64,
    last_ns: u64,
}

impl Pace {
    const fn new() -> Pace {
        Pace { first_ns: 0, last_ns: 0 }
    }

    /// Learns that a run comes into use; whether it comes late.
    fn is_late(&mut self, now_ns: u64) -> bool {
        if self.first_ns == 0 {
            (self.first_ns, self.last_ns) = (now_ns, now_ns);
        }
        let (before, since) = (self.last_ns - self.first_ns, now_ns.saturating_sub(self.last_ns));
        self.last_ns = self.last_ns.max(now_ns);
        since > LATE_NS || (since > LATE_MIN_NS && since > before / LATE_PART)
    }
}

/// What huge pages cost of late.
struct Price {
    dear: bool,
    /// Runs until the next one is touched.
    wait: usize,
    /// What `wait` was last.
    distance: usize,
}

impl Price {
    const fn new() -> Price {
        Price { dear: false, wait: 0, distance: 0 }
    }

    /// Counts `runs` that come into use; whether the first of them is to be touched.
    fn is_due(&mut self, runs: usize) -> bool {
        let due = self.wait == 0;
        self.wait = self.wait.saturating_sub(runs);
        due
    }

    /// Learns what a touch took.
    fn learn(&mut self, dear: bool) {
        let (least, most) = if dear { (DEAR_RUNS_MIN, DEAR_RUNS_MAX) } else { (1, TOUCH_RUNS_MAX) };
        self.distance = if dear == self.dear { self.distance * 2 } else { 0 }.clamp(least, most);
        self.dear = dear;
        self.wait = self.distance;
    }
}

/// What is known of how densely memory is used, and of what huge pages cost.
pub(super) struct Density {
    /// Addresses of the last runs that came into use with small pages, the newest first; 0 = none.
    probes: [usize; PROBES],
    /// Runs that came into use since the last look.
    runs: usize,
    /// Runs between two looks.
    distance: usize,
    dense: bool,
    price: Price,
    pace: Pace,
}

impl Density {
    pub(super) const fn new() -> Density {
        Density {
            probes: [0; PROBES],
            runs: 0,
            distance: FIRST_RUNS,
            dense: true,
            price: Price::new(),
            pace: Pace::new(),
        }
    }

    fn keep_small(&mut self, run: usize) {
        self.probes.rotate_right(1);
        self.probes[0] = run;
    }

    /// Looks at the probes when that is due, before `runs` more come into use; true when it was.
    fn look(&mut self, runs: usize) -> bool {
        let due = self.runs >= self.distance;
        if due {
            self.runs = 0;
            self.look_at_probes();
        }
        self.runs = self.runs.saturating_add(runs);
        due
    }

    fn look_at_probes(&mut self) {
        // While all runs keep small pages, the newest is still being filled.
        let filled = self.probes.iter_mut().skip(usize::from(!self.dense)).filter(|probe| **probe != 0);
        let (mut looked, mut resident) = (0, 0);
        for probe in filled {
            match emap::resident_bytes(*probe, HUGE_PAGE_BYTES) {
                Some(bytes) => {
                    looked += 1;
                    resident += bytes;
                }
                None => *probe = 0,
            }
        }
        if looked == 0 {
            // Nothing to look at, or a system that does not say.
            self.distance = (self.distance * 2).min(DENSE_RUNS_MAX);
            return;
        }
        let dense = resident >= looked * DENSE_BYTES;
        let (least, most) = if dense { (DENSE_RUNS_MIN, DENSE_RUNS_MAX) } else { (SPARSE_RUNS_MIN, SPARSE_RUNS_MAX) };
        self.distance = if dense == self.dense { self.distance * 2 } else { 0 }.clamp(least, most);
        self.dense = dense;
        if dense {
            // Runs like those around them again, in one mapping with them.
            for probe in self.probes.iter_mut().filter(|probe| **probe != 0) {
                emap::advise_huge(core::ptr::without_provenance_mut(*probe), HUGE_PAGE_BYTES, true);
                *probe = 0;
            }
        }
    }
}

/// What is known of a request for memory that comes into use.
#[derive(Clone, Copy)]
pub(super) struct Fresh {
    /// Keep small pages in any case.
    pub(super) small: bool,
    /// It is larger than all that is in use.
    pub(super) longest: bool,
    /// Runs may be looked at later.
    pub(super) probing: bool,
}

impl Density {
    /// Asks for huge pages where `start .. end` comes into use, a part of what reaches to `limit`: in the runs that begin
    /// there, so that none is asked for twice, and none that reaches beyond the limit. `in_use_bytes` are in use in the process.
    pub(super) fn advise(&mut self, start: usize, end: usize, limit: usize, fresh: Fresh, in_use_bytes: usize) {
        let (Some(mut first), Some(last)) = (align_up(start, HUGE_PAGE_BYTES), align_up(end, HUGE_PAGE_BYTES)) else {
            return;
        };
        let last = last.min(align_down(limit, HUGE_PAGE_BYTES));
        if first >= last {
            return;
        }
        let late = self.pace.is_late(clock_ns()) && in_use_bytes < LATE_MAX_BYTES;
        if fresh.probing {
            let due = !fresh.small && self.look((last - first) / HUGE_PAGE_BYTES);
            if fresh.small || fresh.longest || late || due || !self.dense {
                self.keep_small(first);
                first += HUGE_PAGE_BYTES;
            }
        } else if late {
            first += HUGE_PAGE_BYTES;
        }
        if !fresh.small && self.dense && first < last {
            self.ask(first, last - first, fresh.longest);
        }
    }

    /// Asks for `bytes` from `start` on, unless huge pages are dear. `guess`: they may never be touched, so they are not here.
    fn ask(&mut self, start: usize, bytes: usize, guess: bool) {
        let due = !guess && self.price.is_due(bytes / HUGE_PAGE_BYTES);
        if self.price.dear && !due {
            return;
        }
        emap::advise_huge(core::ptr::without_provenance_mut(start), bytes, true);
        if due && let Some(took_ns) = emap::touch_ns(core::ptr::without_provenance_mut(start)) {
            let dear = took_ns > DEAR_NS;
            self.price.learn(dear);
            let rest = bytes - HUGE_PAGE_BYTES;
            if dear && rest > 0 {
                emap::advise_huge(core::ptr::without_provenance_mut(start + HUGE_PAGE_BYTES), rest, false);
            }
        }
    }
}

/// True while a process that uses `bytes` in so many arenas is too small for huge pages.
pub(super) fn is_small(bytes: usize, arenas: u32) -> bool {
    bytes < if arenas > FEW_ARENAS { PROCESS_MIN_BYTES_MANY } else { PROCESS_MIN_BYTES }
}

impl Pages {
    /// Asks for huge pages where `bytes` behind `lead` bytes of a retained extent come into use.
    pub(super) fn advise_fresh(&mut self, extent: &Extent, lead: usize, bytes: usize, fit: Fit) {
        if conf::options().thp != Thp::Default {
            return;
        }
        let (start, limit) = (extent.addr().addr() + lead, extent.end());
        if align_up(start, HUGE_PAGE_BYTES).is_none_or(|first| first >= limit) {
            return;
        }
        let mut shared = self.shared.lock();
        let process_is_small = shared.is_small(&mut self.counted_bytes, self.active_bytes, bytes);
        let fresh = Fresh {
            small: process_is_small || self.active_bytes + bytes < ARENA_MIN_BYTES || self.is_sparse(bytes, fit),
            longest: bytes > self.active_bytes,
            // Without `retain` a probe may be unmapped when it is looked at.
            probing: self.retain,
        };
        shared.advise_range(start, start + bytes, limit, fresh);
    }

    /// True for a zeroed block that is long for what is in use.
    pub(super) fn is_sparse(&self, bytes: usize, fit: Fit) -> bool {
        fit == Fit::Zeroed && bytes > self.active_bytes / ZEROED_PART
    }
}
