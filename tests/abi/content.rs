//! Content: what was written stays, through realloc chains, other threads' frees, and zeroed reuse.

use jeprobe_tests::artefact::{Flavour, flavour};
use jeprobe_tests::facts::{between, is};
use jeprobe_tests::target::facts_of;
use jeprobe_tests::{Run, TempDir, compile};

#[test]
fn realloc_chains_and_calloc_after_dirty_reuse() {
    facts_of("realloc_chain.c", &[], &[]).check(&[
        is("chain.wrong bytes", "0").standard(),
        between("chain.steps", 100, 1000).standard(),
        is("random.wrong bytes", "0").standard(),
        is("calloc.dirty bytes", "0").standard(),
    ]);
}

#[test]
fn every_free_is_remote() {
    facts_of("cross_thread.c", &[], &["queue", "30000"])
        .check(&[is("consumed", "120000").standard(), is("wrong", "0").standard()]);
}

#[test]
fn objects_outlive_their_threads() {
    facts_of("cross_thread.c", &[], &["stress"])
        .check(&[is("generations", "4").standard(), is("wrong", "0").standard()]);
}

/// The same under the sampler, which marks, looks up and forgets blocks on the way.
#[test]
fn remote_frees_under_the_sampler() {
    let program = jeprobe_tests::compile::program("cross_thread.c", &[]);
    for conf in ["prof:true,lg_prof_sample:0", "prof:true,lg_prof_sample:12"] {
        let run = |args: &[&str]| jeprobe_tests::Run::preloaded(&program).conf(conf).args(args).finish().ok();
        run(&["queue", "5000"]).facts().check(&[is("consumed", "20000").standard(), is("wrong", "0").standard()]);
        run(&["stress"]).facts().check(&[is("wrong", "0").standard()]);
    }
}

/// Each entry point tells the sampler who called it in a way of its own.
#[test]
fn sampled_blocks_of_every_entry_point_are_those_of_its_caller() {
    if flavour() != Flavour::Jeprobe {
        return;
    }
    let dir = TempDir::new("entries");
    let profile = dir.path().join("profile.heap");
    let program = compile::program("entries.c", &[]);
    let facts = Run::preloaded(&program).conf("prof:true,lg_prof_sample:0").arg(&profile).finish().ok().facts();
    for (entry, bytes) in [
        ("malloc", "48"),
        ("calloc", "48"),
        ("realloc", "48"),
        ("moved", "48"),
        ("grown", "20480"),
        ("large", "20480"),
        ("memalign", "64"),
        ("aligned_alloc", "64"),
        ("posix_memalign", "64"),
        ("new_aligned", "64"),
        ("mallocx", "48"),
        ("mallocx_zeroed", "48"),
        ("mallocx_aligned", "64"),
        ("rallocx", "48"),
    ] {
        for (fact, want) in [("objects", "300"), ("bytes each", bytes), ("stacks", "1"), ("dirty bytes", "0")] {
            assert_eq!(facts.get(&format!("{entry}.{fact}")), want, "{entry}: {fact}");
        }
    }
}

/// Sampled blocks are zeroed and moved as others are.
#[test]
fn realloc_chains_and_calloc_after_dirty_reuse_under_the_sampler() {
    let program = compile::program("realloc_chain.c", &[]);
    for conf in ["prof:true,lg_prof_sample:0", "prof:true,lg_prof_sample:9"] {
        Run::preloaded(&program).conf(conf).finish().ok().facts().check(&[
            is("chain.wrong bytes", "0"),
            is("random.wrong bytes", "0"),
            is("calloc.dirty bytes", "0"),
        ]);
    }
}
