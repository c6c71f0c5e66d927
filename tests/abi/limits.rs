//! Memory that is refused, and memory that is given back.

use jeprobe_tests::artefact::{Flavour, flavour};
use jeprobe_tests::facts::{between, is};
use jeprobe_tests::skip;
use jeprobe_tests::target::{Run, facts_of};

/// Under `RLIMIT_AS`: NULL and `ENOMEM`, old blocks intact, and work as before once memory went back.
#[test]
fn out_of_address_space() {
    let facts = facts_of("out_of_memory.c", &[], &[]);
    for round in 0..3 {
        let get = |key: &str| facts.get(&format!("round {round}.{key}")).to_owned();
        assert_eq!(get("failed"), "1");
        assert_eq!(get("errno"), "ENOMEM");
        // 512 MiB of address space hold some 500 blocks of 1 MiB; each round gets about what the first one got.
        let blocks = facts.number(&format!("round {round}.blocks"));
        assert!(blocks >= 400, "round {round} got {blocks} blocks");
        assert!(blocks * 10 >= facts.number("round 0.blocks") * 9, "round {round} got {blocks} blocks");
        assert_eq!(get("calloc"), "ENOMEM");
        assert_eq!(get("posix_memalign"), "ENOMEM");
        assert_eq!(get("untouched"), "1");
        assert_eq!(get("realloc"), "ENOMEM");
        assert_eq!(get("kept"), "1");
        assert_eq!(get("again"), "1", "round {round}");
    }
    facts.check(&[between("small.blocks", 20_000, 140_000).standard(), is("small.again", "1").standard()]);
}

/// 400 MiB freed and purged: less than a tenth stays resident above the start.
#[test]
fn purging_returns_memory() {
    if flavour() == Flavour::Libc {
        skip!("the C library has no mallctl");
    }
    let facts = facts_of("rss.c", &[], &["purge"]);
    let (before, height, after) = (facts.number("before"), facts.number("height"), facts.number("after"));
    assert!(height > before + 380, "before {before} MiB, height {height} MiB");
    assert!(after < before + 40, "before {before} MiB, height {height} MiB, after {after} MiB");
}

/// With decay times of 200 ms, a program that goes on working gives memory back by itself.
#[test]
fn decay_returns_memory() {
    if flavour() == Flavour::Libc {
        skip!("the C library has no decay");
    }
    let program = jeprobe_tests::compile::program("rss.c", &[]);
    let ended = Run::preloaded(program).conf("dirty_decay_ms:200,muzzy_decay_ms:0").finish().ok();
    let facts = ended.facts();
    let (before, height, after) = (facts.number("before"), facts.number("height"), facts.number("after"));
    assert!(height > before + 380, "before {before} MiB, height {height} MiB");
    assert!(after < before + 40, "before {before} MiB, height {height} MiB, after {after} MiB");
}
