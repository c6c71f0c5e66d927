//! Figures of the whole allocator, gathered when asked for.
#![forbid(unsafe_code)]

use crate::arenas;
use crate::base;
use crate::prim::{AtomicU64, Ordering};
use crate::prof;
use crate::sizeclass::{NBINS, SIZES};
use crate::thread;

/// `realloc(p, 0)` calls.
static ZERO_REALLOCS: AtomicU64 = AtomicU64::new(0);

/// Counts one of them.
pub fn count_zero_realloc() {
    // Relaxed: a statistic.
    ZERO_REALLOCS.fetch_add(1, Ordering::Relaxed);
}

/// `realloc(p, 0)` calls since the start.
pub fn zero_reallocs() -> u64 {
    // Relaxed: a statistic.
    ZERO_REALLOCS.load(Ordering::Relaxed)
}

/// The figures of `stats.*`, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Usable bytes of the blocks that clients hold.
    pub allocated: usize,
    /// Bytes in slabs and large blocks.
    pub active: usize,
    /// Bytes of descriptors and tables.
    pub metadata: usize,
    /// Upper bound of what is in memory: active, dirty and muzzy pages, and metadata.
    pub resident: usize,
    /// Address space of active, dirty and muzzy extents and of metadata.
    pub mapped: usize,
    /// Address space kept without memory.
    pub retained: usize,
    /// Bytes of blocks in caches and on remote lists.
    pub cached: usize,
    /// `realloc(p, 0)` calls since the start.
    pub zero_reallocs: u64,
    /// Usable bytes allocated and freed since the start.
    pub total_allocated: u64,
    pub total_deallocated: u64,
}

/// Ns between two refreshes of the gauges that other processes read.
const GAUGE_NS: u64 = 100_000_000;
static GAUGES_AT: AtomicU64 = AtomicU64::new(0);

/// Gathers the figures: takes each lock in turn, so parts may be of slightly different moments.
pub fn snapshot() -> Snapshot {
    let (total_allocated, total_deallocated) = thread::totals();
    let mut sum = Snapshot {
        allocated: total_allocated.saturating_sub(total_deallocated) as usize,
        metadata: base::used_bytes(),
        zero_reallocs: zero_reallocs(),
        total_allocated,
        total_deallocated,
        ..Snapshot::default()
    };
    let (mut idle, mut handed_out) = (0, 0);
    for arena in arenas::all() {
        let pages = arena.page_stats();
        sum.active += pages.active_bytes;
        idle += pages.dirty_bytes + pages.muzzy_bytes;
        sum.retained += pages.retained_bytes;
        handed_out += arena.large_stats().live_bytes;
        handed_out += (0..NBINS).map(|class| arena.bin_stats(class).live as usize * SIZES[class]).sum::<usize>();
    }
    sum.cached = handed_out.saturating_sub(sum.allocated);
    sum.resident = sum.active + idle + sum.metadata;
    sum.mapped = sum.active + idle + base::mapped_bytes();
    prof::set_gauges(sum.allocated as u64, sum.active as u64, sum.resident as u64, sum.mapped as u64);
    sum
}

/// Refreshes the gauges of the profile table, at most every [`GAUGE_NS`]. Called at sample points; `now_ns`: about now.
#[inline]
pub(crate) fn refresh_gauges(now_ns: u64) {
    let last_ns = GAUGES_AT.load(Ordering::Relaxed);
    // Relaxed: the exchange only picks one thread for the work.
    if now_ns.wrapping_sub(last_ns) >= GAUGE_NS
        && GAUGES_AT.compare_exchange(last_ns, now_ns, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    {
        let _ = snapshot();
    }
}
