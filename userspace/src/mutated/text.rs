//! Heap files and lists of mappings, damaged and huge.
#![forbid(unsafe_code)]

use std::fmt::Write as _;

use super::damage::rounds;
use crate::input::heap_v2;
use crate::proc::maps;

const HEAP: &[u8] = b"heap_v2/524288
  t*: 13: 4202496 [15: 4210688]
  t0: 13: 4202496 [15: 4210688] main
@ 0x401175 0x4011c2 0x401280
  t*: 10: 10240 [12: 12288]
  t0: 10: 10240 [12: 12288]
@ 0x401175 0x4011d0
  t*: 3: 4192256 [3: 4198400]
  t0: 3: 4192256 [3: 4198400]

MAPPED_LIBRARIES:
00400000-00401000 r--p 00000000 fe:00 1012 /usr/bin/prog
00401000-00402000 r-xp 00001000 fe:00 1012 /usr/bin/prog with blanks (deleted)
7f0000000000-7f0000100000 r-xp 00026000 fe:00 2024 /usr/lib/libc.so.6
";

const GPERFTOOLS: &[u8] = b"heap profile:      3:   1024 [    5:   4096] @ heap_v2/524288
     1:      512 [     2:     1024] @ 0x401175 0x4011c2
     2:      512 [     3:     3072] @ 0x401180

MAPPED_LIBRARIES:
00401000-00402000 r-xp 00001000 fe:00 1012 /usr/bin/prog
";

#[test]
fn damaged_heap_files_give_errors_or_profiles() {
    for (seed, good) in [(0xace, HEAP), (0xbee, GPERFTOOLS)] {
        rounds(4000, seed, good, 0..good.len(), &mut |bytes| {
            if let Err(error) = heap_v2::read(bytes) {
                assert!(error.line >= 1 && error.byte <= bytes.len() as u64, "{error}");
            }
        });
    }
}

#[test]
fn every_prefix_of_a_heap_file_is_answered() {
    for end in 0..HEAP.len() {
        if let Err(error) = heap_v2::read(&HEAP[..end]) {
            assert!(error.line >= 1 && error.byte <= end as u64, "{error}");
        }
    }
}

#[test]
fn damaged_lists_of_mappings_are_read_as_far_as_they_go() {
    let at = HEAP.windows(9).position(|window| window == b"00400000-").expect("a mapping");
    let good = &HEAP[at..];
    rounds(4000, 0xcafe, good, 0..good.len(), &mut |bytes| {
        let _any = maps::parse(bytes);
    });
}

#[test]
fn a_hundred_thousand_mappings_and_stacks_are_read_whole() {
    let mut text = String::from("heap_v2/524288\n  t*: 1: 1 [0: 0]\n");
    for stack in 0..100_000_u64 {
        let _infallible =
            writeln!(text, "@ {:#x} {:#x}\n  t*: 1: 8 [0: 0]\n  t0: 1: 8 [0: 0]", 0x1000 + stack, stack * 7 + 1);
    }
    text.push_str("\nMAPPED_LIBRARIES:\n");
    for mapping in 0..100_000_u64 {
        let start = 0x1000_0000 + mapping * 0x2000;
        let _infallible =
            writeln!(text, "{start:x}-{:x} r-xp 00000000 fe:00 {mapping} /lib/{mapping}.so", start + 0x1000);
    }
    let profile = heap_v2::read(text.as_bytes()).expect("a good file");
    assert_eq!(profile.totals().count(), 100_000);
    assert_eq!(profile.mappings().iter().count(), 100_000);
    let last = 0x1000_0000 + 99_999 * 0x2000;
    assert!(profile.mappings().find(last).is_some_and(|mapping| mapping.path.ends_with("99999.so")));
}
