//! Counts one loss by reason. The only writer of `DROPS`.

use core::intrinsics::{AtomicOrdering, atomic_xadd};

use jeprobe_abi::drops::Reason;

use crate::maps::DROPS;

/// Counts one loss. Atomic, because a program can be preempted by another on the same CPU.
#[inline(always)]
pub(crate) fn count(reason: Reason) {
    if let Some(slot) = DROPS.get_ptr_mut(reason as u32) {
        // Relaxed: a counter publishes nothing else. The target has no compare-and-swap, so `core` offers no
        // `fetch_add` here, but an addition whose result is unused is one BPF instruction.
        // SAFETY: the map's values are aligned u64s that live as long as the map.
        let _ = unsafe { atomic_xadd::<u64, u64, { AtomicOrdering::Relaxed }>(slot, 1) };
    }
}
