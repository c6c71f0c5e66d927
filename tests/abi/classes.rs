//! Size classes: every small size, every large boundary, and the alignment of what is returned.
//!
//! The table is made here from its rule (8; 16, 32, 48, 64; then four classes per doubling), not copied from anywhere
//! in the product.

use jeprobe_tests::artefact::{Flavour, flavour};
use jeprobe_tests::skip;
use jeprobe_tests::target::facts_of;

const PAGE: u64 = 4096;
/// Above this a request is rounded up to a page only.
const CLASSES_END: u64 = 32768;

fn classes(limit: u64) -> Vec<u64> {
    let mut all = vec![8, 16, 32, 48, 64];
    let mut base = 64;
    while base < limit {
        all.extend((1..=4).map(|step| base + base / 4 * step));
        base *= 2;
    }
    all
}

fn usable(size: u64) -> u64 {
    if size > CLASSES_END && flavour() == Flavour::Jeprobe {
        return size.next_multiple_of(PAGE);
    }
    *classes(1 << 26).iter().find(|&&class| class >= size).expect("the table is long enough")
}

#[test]
fn sizes_and_alignment() {
    if flavour() == Flavour::Libc {
        skip!("the C library has other classes");
    }
    let facts = facts_of("size_classes.c", &[], &[]);
    assert_eq!(facts.get("disagreements"), "0", "malloc_usable_size and nallocx agree");
    assert_eq!(facts.get("explicit.misaligned"), "0");
    assert_eq!(facts.get("explicit.short"), "0");

    // A line appears at each size where the usable size changes: exactly the sizes just above a class.
    let mut small: Vec<(u64, u64)> = facts
        .iter()
        .filter_map(|(key, value)| Some((key.strip_prefix("class ")?.parse().ok()?, value.parse().ok()?)))
        .collect();
    small.sort_unstable();
    let table = classes(16384);
    let expected: Vec<(u64, u64)> = std::iter::once(0)
        .chain(table.iter().copied())
        .zip(table.iter().copied())
        .map(|(below, class)| (below + 1, class))
        .take_while(|&(from, _)| from <= 16384)
        .collect();
    assert_eq!(small, expected, "(first size, usable size) of the small classes");

    let mut large = 0;
    for (key, value) in facts.iter() {
        if let Some(size) = key.strip_prefix("large ") {
            let size = size.parse().expect("a size");
            assert_eq!(value.parse(), Ok(usable(size)), "malloc({size})");
            large += 1;
        }
    }
    assert_eq!(large, 9 * 4 * 3);

    for (key, value) in facts.iter() {
        if let Some(size) = key.strip_prefix("align ") {
            let (size, seen): (u64, u64) = (size.parse().expect("a size"), value.parse().expect("an alignment"));
            // A small block is aligned to the largest power of two dividing its class, a page at most; a large one
            // starts at any multiple of a cache line (64 bytes).
            let least = if size < 4 * PAGE { (1 << size.trailing_zeros()).min(PAGE) } else { 64 };
            assert!(seen >= least, "blocks of {size} bytes are aligned to {seen}, expected {least}");
        }
    }
}
