//! What the sampler keeps of a thread: the distances that it drew ahead, and whether its samples may go the quick way.
//!
//! [`ThreadProf`] belongs to its thread.
#![forbid(unsafe_code)]

extern crate alloc;

use alloc::boxed::Box;
use core::cell::Cell;
use core::ffi::CStr;

use super::backtrace::Stack;
use super::lives::KeptMaps;
use super::records::{Control, Ptr, TctxCell, ThreadCell, jeprobe_root};
use super::sampler::{Sampler, Weights};
use super::switches::{interval_bytes, lg_sample};
use super::threads;
use super::trace::Trace;
use crate::sys;

/// Distances that a thread draws ahead.
const DRAWS: usize = 16;
/// Who takes that many samples within this time takes them the quick way.
const OFTEN_NS: u64 = 10_000_000;
/// Times that a thread draws between two looks at the clock if all of them lie within `OFTEN_NS`. So many samples in a row, times
/// `DRAWS`, may have the time of the one before them, and what else goes by time waits for as many.
const ROUNDS: u32 = 4;

/// What the sampler keeps per thread. Plain data; interior changes, because the recorder may be entered again by an
/// allocation that it makes itself.
pub struct ThreadProf {
    pub(super) sampler: Cell<Sampler>,
    pub(super) record: Cell<Option<Ptr<ThreadCell>>>,
    pub(super) stack: Cell<Stack>,
    pub(super) weights: Weights,
    pub(super) maps: KeptMaps,
    pub(super) trace: Cell<Option<Box<Trace>>>,
    /// The counts of the stack that `trace` holds.
    pub(super) tctx: Cell<Option<Ptr<TctxCell>>>,
    /// Log2 of the mean distance by which the current one was drawn, and those that wait.
    pub(super) drawn_lg: Cell<u32>,
    /// Distances that wait to be used: the first `draws_left`, from the last on.
    pub(super) draws: [Cell<u64>; DRAWS],
    pub(super) draws_left: Cell<u32>,
    /// What the root has to say for [`quick`](super::quick) to be the way of a sample; nothing that it ever says when it is not.
    pub(super) control: Cell<Control>,
    /// When the thread last looked at the clock, and when it last drew distances, ns.
    pub(super) seen_ns: Cell<u64>,
    pub(super) drew_ns: Cell<u64>,
    /// Times that distances were drawn since the thread last looked at the clock, and how many there may be: none for who draws
    /// them seldom.
    pub(super) drew: Cell<u32>,
    pub(super) rounds: Cell<u32>,
    /// Bytes allocated by the thread when it last reached a sample point.
    pub(super) counted_bytes: Cell<u64>,
    pub(super) depth: Cell<u32>,
    pub(super) active: Cell<bool>,
    pub(super) ready: Cell<bool>,
    pub(super) ended: Cell<bool>,
}

impl ThreadProf {
    #[expect(clippy::declare_interior_mutable_const, reason = "an initial value, copied into each thread's slot")]
    pub const NEW: ThreadProf = ThreadProf {
        sampler: Cell::new(Sampler::seeded(0)),
        record: Cell::new(None),
        stack: Cell::new(Stack::UNKNOWN),
        weights: Weights::NONE,
        maps: KeptMaps::NONE,
        trace: Cell::new(None),
        tctx: Cell::new(None),
        drawn_lg: Cell::new(0),
        draws: [const { Cell::new(0) }; DRAWS],
        draws_left: Cell::new(0),
        control: Cell::new(Control::NONE),
        seen_ns: Cell::new(0),
        drew_ns: Cell::new(0),
        drew: Cell::new(0),
        rounds: Cell::new(0),
        counted_bytes: Cell::new(0),
        depth: Cell::new(0),
        active: Cell::new(true),
        ready: Cell::new(false),
        ended: Cell::new(false),
    };

    #[inline]
    pub(super) fn draw(&self) -> u64 {
        let left = self.draws_left.get().wrapping_sub(1);
        if let Some(draw) = self.draws.get(left as usize)
            && self.drawn_lg.get() == lg_sample()
        {
            self.draws_left.set(left);
            return draw.get();
        }
        self.draw_all()
    }

    /// Draws as many distances as are kept, and takes one.
    #[cold]
    #[inline(never)]
    fn draw_all(&self) -> u64 {
        let lg = lg_sample();
        if self.drawn_lg.replace(lg) != lg {
            // The root may come to say again what it said when the way was opened: these distances are not of that mean.
            self.close_quick();
        }
        let mut sampler = self.sampler.get();
        let distance = sampler.distance(lg);
        self.sampler.set(sampler);
        self.draw_ahead(lg);
        distance
    }

    #[inline]
    pub(super) fn draw_ahead(&self, lg: u32) {
        let mut sampler = self.sampler.get();
        self.draws.iter().for_each(|draw| draw.set(sampler.distance(lg)));
        self.sampler.set(sampler);
        self.draws_left.set(DRAWS as u32);
        self.drew.set(self.drew.get() + 1);
    }

    /// Opens the way of [`quick`](super::quick), until something changes or the distances that wait are used up. `now_ns`: about now.
    #[inline]
    pub(super) fn open_quick(&self, now_ns: u64) {
        self.seen_ns.set(now_ns);
        let drew = self.drew.replace(0);
        if drew != 0 {
            let took_ns = now_ns.wrapping_sub(self.drew_ns.replace(now_ns)) / u64::from(drew);
            let rounds = if took_ns < OFTEN_NS / u64::from(ROUNDS) { ROUNDS } else { 1 };
            self.rounds.set(if took_ns < OFTEN_NS { rounds } else { 0 });
        }
        let control = jeprobe_root.control();
        let lg = control.lg_sample().min(63);
        if self.rounds.get() != 0
            && control.is_plain()
            && self.active.get()
            && interval_bytes() == 0
            && self.drawn_lg.get() == lg
            && self.weights.are_of(lg)
        {
            self.control.set(control);
        }
    }

    pub(super) fn close_quick(&self) {
        self.control.set(Control::NONE);
    }

    #[inline(always)]
    pub(super) fn record(&self) -> Option<Ptr<ThreadCell>> {
        self.record.get().or_else(|| self.make_record())
    }

    /// Puts the trace back that was taken. There is none meanwhile, so nothing is dropped.
    #[inline(always)]
    pub(super) fn put_trace(&self, trace: Box<Trace>) {
        core::mem::forget(self.trace.replace(Some(trace)));
    }

    #[cold]
    #[inline(never)]
    fn make_record(&self) -> Option<Ptr<ThreadCell>> {
        let record = threads::start(sys::gettid());
        self.record.set(record);
        record
    }
}

/// The distance from here to the next sample point of a thread whose current one was drawn by another mean than the one in
/// force now; `None` when it need not be drawn again. What the thread allocated since its last draw does not matter: the
/// distribution has no memory.
#[inline]
pub fn redraw(thread: &ThreadProf) -> Option<u64> {
    (thread.ready.get() && thread.drawn_lg.get() != lg_sample()).then(|| thread.draw())
}

/// Draws distances for [`quick`](super::quick), where all that it had are used up and nothing but them is missing. False, with
/// nothing done, otherwise, and when the thread is to look at the clock before it draws.
pub fn draw_ahead(thread: &ThreadProf) -> bool {
    let due = thread.draws_left.get() == 0 && thread.drew.get() + 1 < thread.rounds.get();
    // The way is open: the distances are those of the mean in force.
    let due = due && jeprobe_root.is_still(&thread.control);
    if due {
        thread.draw_ahead(thread.drawn_lg.get());
    }
    due
}

/// `thread.prof.active`.
pub fn thread_active(thread: &ThreadProf) -> bool {
    thread.active.get()
}

/// Sets `thread.prof.active`; the old value.
pub fn set_thread_active(thread: &ThreadProf, on: bool) -> bool {
    thread.close_quick();
    thread.active.replace(on)
}

/// Why a thread cannot be named so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameError {
    /// A byte is neither printable nor blank.
    Unprintable,
    NoMemory,
}

/// `thread.prof.name`; empty when never set.
pub fn thread_name(thread: &ThreadProf) -> &'static CStr {
    thread.record.get().map_or(c"", Ptr::<ThreadCell>::name)
}

/// Sets `thread.prof.name`; 15 bytes are kept.
pub fn set_thread_name(thread: &ThreadProf, name: &CStr) -> Result<(), NameError> {
    if name.to_bytes().iter().any(|&b| !(b.is_ascii_graphic() || b == b' ' || b == b'\t')) {
        return Err(NameError::Unprintable);
    }
    thread.record().ok_or(NameError::NoMemory)?.set_name(name.to_bytes());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_drawn_ahead_are_those_of_the_mean_in_force() {
        let thread = ThreadProf::NEW;
        thread.sampler.set(Sampler::seeded(5));
        let lg = lg_sample();
        let mut sampler = Sampler::seeded(5);
        let mut want: std::vec::Vec<u64> = (0..2 * (DRAWS + 1)).map(|_| sampler.distance(lg)).collect();
        let mut got: std::vec::Vec<u64> = (0..want.len()).map(|_| thread.draw()).collect();
        want.sort_unstable();
        got.sort_unstable();
        assert_eq!(got, want);
        thread.draw();
        assert_eq!(thread.draws_left.get(), DRAWS as u32);
        // As if they had been drawn by another.
        thread.drawn_lg.set(lg ^ 1);
        thread.draw();
        assert_eq!((thread.drawn_lg.get(), thread.draws_left.get()), (lg, DRAWS as u32));
    }

    #[test]
    fn the_quick_way_is_open_to_who_draws_often_only() {
        let thread = ThreadProf::NEW;
        let open = |drew, at_ns| {
            thread.drew.set(drew);
            thread.open_quick(at_ns);
            thread.rounds.get()
        };
        let began_ns = 1_000_000_000_000;
        assert_eq!(open(1, began_ns), 0);
        assert_eq!(open(1, began_ns + OFTEN_NS - 1), 1);
        assert_eq!(open(1, began_ns + 2 * OFTEN_NS), 0);
        assert_eq!(open(1, began_ns + 2 * OFTEN_NS + OFTEN_NS / 4 - 1), ROUNDS);
        // Nothing was drawn.
        assert_eq!(open(0, began_ns + 4 * OFTEN_NS), ROUNDS);
        assert_eq!(open(4, began_ns + 4 * OFTEN_NS), 1);
        assert_eq!(thread.seen_ns.get(), began_ns + 4 * OFTEN_NS);
    }

    /// Else the way would be open again, with these distances, as soon as the mean is what it was.
    #[test]
    fn the_quick_way_is_closed_to_who_drew_by_another_mean() {
        let thread = ThreadProf::NEW;
        thread.control.set(jeprobe_root.control());
        // No mean is that.
        thread.drawn_lg.set(64);
        thread.draw();
        assert_eq!(thread.control.get(), Control::NONE);
    }

    #[test]
    fn the_quick_way_draws_a_few_times_before_it_looks_at_the_clock() {
        let thread = ThreadProf::NEW;
        thread.draw();
        thread.draws_left.set(0);
        thread.rounds.set(ROUNDS);
        assert!(!draw_ahead(&thread), "the way is closed");
        // Other tests may change what the root says.
        let drawn = |rounds| {
            (0..1000).any(|_| {
                thread.drew.set(1);
                thread.rounds.set(rounds);
                thread.draws_left.set(0);
                thread.control.set(jeprobe_root.control());
                draw_ahead(&thread) && thread.draws_left.get() == DRAWS as u32 && thread.drew.get() == 2
            })
        };
        assert!(drawn(ROUNDS) && drawn(3) && !drawn(2) && !drawn(0));
        assert!(!draw_ahead(&thread), "there are some left");
    }
}
