//! Content: what was written stays, through realloc chains, other threads' frees, and zeroed reuse.

use jeprobe_tests::facts::{between, is};
use jeprobe_tests::target::facts_of;

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
