//! The switches and figures of the process's profile that control names and readers outside set and read.
//!
//! Any thread may call this in any order.
#![forbid(unsafe_code)]

use core::ffi::CStr;

use jeprobe_abi::unbias;

use super::dump::{self, DumpError, Kind};
use super::records::jeprobe_root;
use super::table;
use crate::conf;
use crate::prim::{AtomicBool, Ordering};

static THREAD_ACTIVE_INIT: AtomicBool = AtomicBool::new(true);

/// Someone outside asked for a dump that was not made yet.
pub(super) fn dump_requested() -> bool {
    jeprobe_root.dump_request.load(Ordering::Relaxed) != jeprobe_root.dump_served.load(Ordering::Relaxed)
}

/// Makes the dump that someone outside asked for, if any. For the background thread; sample points do it by themselves.
pub fn serve_requests() {
    let wanted = jeprobe_root.dump_request.load(Ordering::Relaxed);
    let served = jeprobe_root.dump_served.load(Ordering::Relaxed);
    // Relaxed: the exchange only picks the one who serves.
    if wanted != served
        && jeprobe_root.dump_served.compare_exchange(served, wanted, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    {
        // A failure was reported on fd 2.
        let _ = dump::dump(None, Kind::Request);
    }
}

/// `prof.active`.
#[inline]
pub fn active() -> bool {
    jeprobe_root.prof_active.load(Ordering::Relaxed) != 0
}

/// Sets `prof.active`; the old value.
pub fn set_active(on: bool) -> bool {
    jeprobe_root.prof_active.swap(on.into(), Ordering::Relaxed) != 0
}

/// `prof.thread_active_init`.
pub fn thread_active_init() -> bool {
    THREAD_ACTIVE_INIT.load(Ordering::Relaxed)
}

/// Sets `prof.thread_active_init`; the old value.
pub fn set_thread_active_init(on: bool) -> bool {
    THREAD_ACTIVE_INIT.swap(on, Ordering::Relaxed)
}

/// `prof.dump`: to `path`, or to a name made of the prefix. The reason of a failure was written to fd 2 as well.
pub fn dump(path: Option<&CStr>) -> Result<(), DumpError> {
    dump::dump(path, Kind::Mallctl)
}

/// `prof.reset`: forgets all samples and counts, and sets the mean distance when one is given.
pub fn reset(lg: Option<u32>) {
    if let Some(lg) = lg {
        jeprobe_root.lg_sample.store(lg.min(63), Ordering::Relaxed);
    }
    table::clear();
}

/// `prof.prefix`.
pub fn set_prefix(prefix: &CStr) {
    dump::set_prefix(prefix);
}

/// `prof.lg_sample`.
pub fn lg_sample() -> u32 {
    jeprobe_root.lg_sample.load(Ordering::Relaxed).min(63)
}

/// `prof.interval`: bytes between interval dumps, 0 = none.
pub fn interval_bytes() -> u64 {
    u32::try_from(conf::options().lg_prof_interval).map_or(0, unbias::interval_bytes)
}

/// Tells readers of the root how large the heap is, bytes.
pub fn set_gauges(allocated: u64, active: u64, resident: u64, mapped: u64) {
    jeprobe_root.allocated_bytes.store(allocated, Ordering::Relaxed);
    jeprobe_root.active_bytes.store(active, Ordering::Relaxed);
    jeprobe_root.resident_bytes.store(resident, Ordering::Relaxed);
    jeprobe_root.mapped_bytes.store(mapped, Ordering::Relaxed);
}
