//! The life of threads and processes: before main, after exit, dying threads, small stacks, fork, vfork, spawn.

use jeprobe_tests::facts::is;
use jeprobe_tests::target::facts_of;
use jeprobe_tests::{Run, compile};

#[test]
fn before_main_and_in_every_destructor() {
    let program = compile::program("thread_life.cc", &[]);
    for conf in ["", "prof:true,lg_prof_sample:0"] {
        Run::preloaded(&program).conf(conf).finish().ok().facts().check(&[
            is("before main.damaged", "0").standard(),
            is("thread_local ends", "400").standard(),
            is("key rounds", "1600").standard(),
            is("static destructor", "50").standard(),
            is("atexit", "1").standard(),
        ]);
    }
}

#[test]
fn threads_with_the_smallest_stack() {
    facts_of("small_stack.c", &[], &[]).check(&[is("threads", "400").standard()]);
}

#[test]
fn threads_with_the_smallest_stack_under_the_sampler() {
    let program = compile::program("small_stack.c", &[]);
    let ended = Run::preloaded(&program).conf("prof:true,lg_prof_sample:10").finish().ok();
    ended.facts().check(&[is("threads", "400").standard()]);
}

#[test]
fn a_thousand_forks_from_eight_allocating_threads() {
    facts_of("fork_storm.c", &[], &["1000"]).check(&[
        is("good children", "1000").standard(),
        is("spawned", "100").standard(),
        is("parent worked", "1").standard(),
    ]);
}

#[test]
fn forks_under_the_sampler() {
    let program = compile::program("fork_storm.c", &[]);
    let ended = Run::preloaded(&program).conf("prof:true,lg_prof_sample:8").arg("200").finish().ok();
    ended.facts().check(&[is("good children", "200").standard(), is("spawned", "100").standard()]);
}
