//! What an arena does as a whole.
#![forbid(unsafe_code)]

use super::Arena;
use crate::base;
use crate::pages::{Fit, Which};
use crate::sizeclass::GRANULE;
use crate::sys;

const MIB: usize = 1 << 20;

/// While the system takes no pages back, what is free is used before fresh memory, and nothing is given up for it.
#[test]
fn what_the_system_does_not_take_is_used_again() {
    let arena = base::alloc_value(Arena::new(4010, true, 10_000, 0).expect("arena")).expect("memory");
    let alloc = |bytes: usize| arena.alloc_large(bytes, GRANULE, Fit::Tight).expect("pages");
    // Every other one, so that none lies beside another.
    let blocks: std::vec::Vec<_> = (0..64).map(|_| alloc(2 * MIB)).collect();
    let blocks: std::vec::Vec<_> = blocks.into_iter().step_by(2).collect();
    for block in blocks {
        arena.free_large(block);
    }
    sys::mock::refuse_advice(true);
    arena.purge_to(Which::Dirty, 32 * MIB);
    let stats = arena.page_stats();
    assert_eq!((stats.dirty_bytes, stats.purge_calls), (64 * MIB, 0));
    // Fresh memory, which would have idle one go in exchange.
    let passes = stats.purge_passes;
    for _ in 0..4 {
        alloc(4 * MIB);
    }
    assert_eq!(arena.page_stats().purge_passes, passes);
    for _ in 0..32 {
        alloc(2 * MIB);
    }
    assert_eq!(arena.page_stats().dirty_bytes, 0);

    let more = alloc(8 * MIB);
    arena.free_large(more);
    sys::mock::refuse_advice(false);
    arena.purge_to(Which::Dirty, 0);
    let stats = arena.page_stats();
    assert_eq!((stats.dirty_bytes, stats.purged_bytes), (0, 8 * MIB as u64));
}

/// What became due while nobody looked would else make one call of the program wait for all of it.
#[test]
fn much_that_is_due_goes_by_parts() {
    let arena = base::alloc_value(Arena::new(4011, true, 10_000, 0).expect("arena")).expect("memory");
    let block = arena.alloc_large(1024 * MIB, GRANULE, Fit::Tight).expect("pages");
    let second = 1_000_000_000;
    arena.decay_if_idle(1000 * second);
    arena.free_large(block);
    arena.decay_if_idle(1001 * second);
    let mut before = arena.page_stats().dirty_bytes;
    for look in 0..60 {
        arena.decay_if_idle((1020 + look) * second);
        let now = arena.page_stats().dirty_bytes;
        assert!(before - now <= (before / 8).max(32 * MIB) + 4 * MIB, "{before} to {now}");
        before = now;
    }
    assert_eq!(before, 0);
    let block = arena.alloc_large(1024 * MIB, GRANULE, Fit::Tight).expect("pages");
    arena.free_large(block);
    arena.decay(2000 * second);
    arena.decay(2020 * second);
    assert_eq!(arena.page_stats().dirty_bytes, 0);
}
