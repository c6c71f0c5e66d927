//! Reserving, filling and committing records of the ring, and when the loader is woken.

use aya_ebpf::bindings::{BPF_RB_AVAIL_DATA, BPF_RB_FORCE_WAKEUP, BPF_RB_NO_WAKEUP};
use aya_ebpf::helpers::bpf_ktime_get_ns;
use aya_ebpf::maps::ring_buf::RingBufEntry;
use jeprobe_abi::drops::Reason;
use jeprobe_abi::event::Header;

use crate::drops;
use crate::filter::Task;
use crate::maps::{EVENTS, config};

/// When the loader is woken: it also looks ten times a second, so samples wait until there are 64 KiB of them,
/// and the target is spared an interrupt, about 3 us, per sample.
#[derive(Clone, Copy)]
pub(crate) enum Urgency {
    Batch,
    Now,
}

/// Room for one record, or `None` with the loss counted.
#[inline(always)]
pub(crate) fn reserve<T: 'static>() -> Option<RingBufEntry<T>> {
    let entry = EVENTS.reserve::<T>(0);
    if entry.is_none() {
        drops::count(Reason::RingFull);
    }
    entry
}

#[inline(always)]
pub(crate) fn header<T>(kind: u32, task: Task) -> Header {
    // SAFETY: the helper has no preconditions.
    let time_ns = unsafe { bpf_ktime_get_ns() };
    Header { kind, len: size_of::<T>() as u32, tgid: task.tgid, tid: task.tid, time_ns }
}

/// Bytes above the threshold within which a record still wakes the loader. Wide enough that records reserved on other
/// CPUs at the same time do not jump over it; beyond it the loader knows already.
const WAKE_BAND: u64 = 4096;

/// Flags for committing a record.
#[inline(always)]
pub(crate) fn flags(urgency: Urgency) -> u64 {
    match urgency {
        Urgency::Now => u64::from(BPF_RB_FORCE_WAKEUP),
        Urgency::Batch => {
            let above = EVENTS.query(u64::from(BPF_RB_AVAIL_DATA)).wrapping_sub(config().wakeup_bytes);
            u64::from(if above < WAKE_BAND { BPF_RB_FORCE_WAKEUP } else { BPF_RB_NO_WAKEUP })
        }
    }
}

/// Writes a small record whole.
#[inline(always)]
pub(crate) fn send<T: Copy + 'static>(record: T, urgency: Urgency) {
    if let Some(mut entry) = reserve::<T>() {
        entry.write(record);
        entry.submit(flags(urgency));
    }
}
