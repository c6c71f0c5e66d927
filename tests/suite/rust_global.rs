//! A Rust program with our allocator as its global one: linked into the program, no library of its own, no C exports.

use std::fs;
use std::path::Path;
use std::process::Command;

use jeprobe_tests::facts::is;
use jeprobe_tests::{Run, Target, TempDir, artefact};

const PROGRAM: &str = env!("CARGO_BIN_EXE_rust_global");

/// Four threads hold 200 blocks of 100,000 bytes each; all are sampled at this interval but for 1 in 450.
const SAMPLED: &str = "prof:true,prof_active:true,lg_prof_sample:14";
const HELD_BLOCKS: u64 = 4 * 200;

fn holder(conf: &str) -> Target {
    let mut target = Run::new(PROGRAM).arg("hold").conf(conf).spawn();
    target.ready();
    target
}

/// Samples that the second line of a heap file counts as live.
fn live_samples(path: &Path) -> u64 {
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let totals = text.lines().nth(1).expect("totals");
    let count = totals.trim().strip_prefix("t*: ").and_then(|rest| rest.split(':').next());
    count.and_then(|count| count.parse().ok()).unwrap_or_else(|| panic!("no count in {totals:?}"))
}

/// The whole report: what is printed after a collection ends after 20 rows, of which the standard library takes most.
#[track_caller]
fn names_the_site(dir: &TempDir) {
    let report = Run::new(artefact::command()).args(["report", "a.heap"]).dir(dir.path()).finish().ok();
    assert!(report.stdout.contains("rust_global::hold_blocks"), "the report names the site: {report}");
}

#[test]
fn it_computes_what_it_should() {
    let blocks: u64 = (0..2000).map(|i| 1 + i * 13 % 9000).sum();
    let checksum = blocks * (1..=8).sum::<u64>();
    for conf in ["", "prof:true,prof_active:true,lg_prof_sample:10"] {
        let ended = Run::new(PROGRAM).conf(conf).finish().ok();
        let facts = ended.facts();
        facts.check(&[is("words", "20000"), is("wrong", "0"), is("misaligned", "0"), is("dirty", "0")]);
        assert_eq!(facts.number("checksum"), checksum);
    }
}

#[test]
fn hooks_and_table_are_in_the_program() {
    let listed = Command::new("nm").args(["--defined-only", PROGRAM]).output().expect("nm starts");
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    for (name, kind) in [
        ("jeprobe_hook_alloc", "T"),
        ("jeprobe_hook_free", "T"),
        ("jeprobe_hook_dump", "T"),
        ("jeprobe_hook_context", "T"),
        ("jeprobe_root", "D"),
    ] {
        assert!(listed.lines().any(|line| line.ends_with(&format!(" {kind} {name}"))), "{name} is not there");
    }
}

#[test]
fn it_is_dumped_with_the_names_of_its_functions() {
    let dir = TempDir::new("rust-dump");
    let target = holder(SAMPLED);
    let pid = target.pid().to_string();
    let dumped = Run::new(artefact::command()).args(["dump", "--pid", &pid, "-o", "a.heap"]).dir(dir.path()).finish();
    assert_eq!(dumped.code(), 0, "{dumped}");
    names_the_site(&dir);
    let samples = live_samples(&dir.join("a.heap"));
    assert!((HELD_BLOCKS * 97 / 100..=HELD_BLOCKS * 103 / 100).contains(&samples), "{samples} samples");
}

#[test]
fn it_is_attached_to() {
    let dir = TempDir::new("rust-attach");
    let mut target = holder("");
    let pid = target.pid().to_string();
    let attach = Run::new(artefact::command())
        .args(["attach", "--mode", "inprocess", "--pid", &pid, "-o", "a.heap"])
        .dir(dir.path())
        .spawn();
    while !attach.stderr().contains("end with Ctrl-C") {
        std::thread::yield_now();
    }
    // 400 MB at one sample per 512 KiB: 763 intervals, of which one holds what was drawn before.
    target.tell("4000");
    target.wait_for("done");
    attach.signal(libc::SIGINT);
    let ended = attach.finish().ok();
    names_the_site(&dir);
    let samples = live_samples(&dir.join("a.heap"));
    // p = 1 - e^(-0.19) of 4000 blocks: 696 ± 24.
    assert!((590..800).contains(&samples), "{samples} samples: {ended}");
}
