//! What the processor can do beyond the x86-64 that the library is built for.
//!
//! Asked at first need, not at boot: under a hypervisor each question costs microseconds, and most processes never come to
//! where the answer matters.

use core::arch::x86_64::{__cpuid, __cpuid_count, _xgetbv};

use crate::prim::{AtomicU8, Ordering};

const UNKNOWN: u8 = 0;
const NO: u8 = 1;
const YES: u8 = 2;

static WIDE: AtomicU8 = AtomicU8::new(UNKNOWN);

/// True when the instructions of AVX2, BMI1, BMI2 and POPCNT may be used: the processor has them, and the kernel saves the
/// registers.
#[inline]
pub(crate) fn is_wide() -> bool {
    // Relaxed: the answer is the same whoever asks.
    match WIDE.load(Ordering::Relaxed) {
        UNKNOWN => ask(),
        known => known == YES,
    }
}

#[cold]
fn ask() -> bool {
    let wide = detect();
    WIDE.store(if wide { YES } else { NO }, Ordering::Relaxed);
    wide
}

/// Leaves and bits: Intel's Software Developer's Manual, volume 2, CPUID; volume 1, 14.3 (AVX needs OSXSAVE and XCR0).
fn detect() -> bool {
    const POPCNT: u32 = 1 << 23;
    const OSXSAVE: u32 = 1 << 27;
    const AVX: u32 = 1 << 28;
    const BMI1: u32 = 1 << 3;
    const AVX2: u32 = 1 << 5;
    const BMI2: u32 = 1 << 8;
    const XMM_AND_YMM: u64 = 0b110;
    let has = |word: u32, bits: u32| word & bits == bits;
    if __cpuid(0).eax < 7 || !has(__cpuid(1).ecx, POPCNT | OSXSAVE | AVX) {
        return false;
    }
    // SAFETY: OSXSAVE says that the instruction may be used.
    let saved = unsafe { xcr0() };
    saved & XMM_AND_YMM == XMM_AND_YMM && has(__cpuid_count(7, 0).ebx, BMI1 | AVX2 | BMI2)
}

/// # Safety
/// S1: the kernel has switched the instruction on (OSXSAVE).
#[target_feature(enable = "xsave")]
unsafe fn xcr0() -> u64 {
    // SAFETY: S1.
    unsafe { _xgetbv(0) }
}
