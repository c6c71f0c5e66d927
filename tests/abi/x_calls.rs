//! mallocx, rallocx, xallocx, sallocx, dallocx, sdallocx, nallocx: flags, sizes, in-place rules, errno left alone.

use jeprobe_tests::artefact::{Flavour, flavour};
use jeprobe_tests::facts::is;
use jeprobe_tests::skip;
use jeprobe_tests::target::facts_of;

#[test]
fn flags_sizes_and_in_place_rules() {
    if flavour() == Flavour::Libc {
        skip!("the C library has no mallocx");
    }
    let facts = facts_of("x_calls.c", &[], &[]);
    facts.check(&[
        is("mallocx(0).usable", "8"),
        is("mallocx(10).usable", "16"),
        is("mallocx(10).errno", "kept"),
        is("mallocx(10).agrees", "1"),
        is("mallocx(100000).usable", "102400").since_531(),
        is("mallocx(100000).agrees", "1"),
        is("mallocx(1,lg12).usable", "4096"),
        is("mallocx(1,lg12).misaligned", "0"),
        is("mallocx(1,lg13).usable", "16384"),
        is("mallocx(1,lg13).misaligned", "0"),
        is("mallocx(100,lg21).misaligned", "0"),
        is("mallocx(100,lg21).agrees", "1"),
        is("mallocx(SIZE_MAX).null", "1"),
        is("mallocx(1,lg63).null", "1"),
        is("mallocx(100,none).usable", "112"),
        is("mallocx(100,arena0).usable", "112"),
        is("zero.dirty bytes", "0"),
    ]);
    facts.check(&[
        is("rallocx(zero).damaged", "0"),
        is("rallocx(zero).dirty tail", "0"),
        is("rallocx(zero).usable", "5120"),
        is("rallocx(SIZE_MAX).null", "1"),
        is("rallocx(SIZE_MAX).damaged", "0"),
        is("rallocx(SIZE_MAX).errno", "kept"),
        is("rallocx(lg11).misaligned", "0"),
        is("rallocx(lg11).damaged", "0"),
        is("rallocx(p,0).usable", "8"),
    ]);
    facts.check(&[
        is("xallocx(small,100)", "16"),
        is("xallocx(small,1)", "16"),
        is("xallocx(small,SIZE_MAX)", "16"),
        is("xallocx(small,10,SIZE_MAX)", "16"),
        is("xallocx.errno", "kept"),
        is("xallocx(100000 to 50000)", "53248").since_531(),
        is("xallocx(100000 to 50000).sallocx", "53248").since_531(),
        is("xallocx(large to 100)", "53248").since_531(),
        is("xallocx(grow).in range", "1"),
        is("xallocx(grow).agrees", "1"),
        is("xallocx.damaged", "0"),
        is("xallocx(large,SIZE_MAX).unchanged", "1"),
    ]);
    facts.check(&[
        is("nallocx(0)", "8"),
        is("nallocx(1)", "8"),
        is("nallocx(SIZE_MAX)", "0"),
        is("nallocx(1,lg62)", "16384"),
        is("nallocx(1,lg63)", "0"),
        is("sdallocx.rounds", "3000"),
    ]);
}

/// `arenas.create` hands out an index that `MALLOCX_ARENA` takes, where the tree has the name.
#[test]
fn a_created_arena_serves() {
    if flavour() == Flavour::Libc {
        skip!("the C library has no arenas.create");
    }
    let facts = facts_of("x_calls.c", &[], &[]);
    if facts.get("arenas.create") == libc::ENOENT.to_string() {
        skip!("arenas.create does not exist yet");
    }
    facts.check(&[is("arenas.create", "0"), is("arena.damaged", "0")]);
}
