//! Threads: a first one that ends before the others, and those that sample while probes come and go.

use std::thread;
use std::time::Duration;

use jeprobe::probe::attach::{AttachOptions, Stacks};
use jeprobe::remote::target::Target as Table;
use jeprobe::session::Session;
use jeprobe_tests::{Ended, Run, Target, TempDir, artefact, compile};

use crate::probing::need_probes;
use crate::session::{attach, interrupt};

/// Bytes that an order of 2,000 blocks holds, and the mean distance between samples.
const ORDERED: f64 = 2_000.0 * 100_000.0;
const INTERVAL: f64 = 65_536.0;

fn program() -> Target {
    let mut target = Run::preloaded(compile::program("first_thread.c", &["-O0", "-g", "-pthread"])).spawn();
    target.ready();
    target
}

fn order(target: &mut Target, what: &str) {
    target.tell(what);
    target.wait_for("done");
}

/// Live bytes of the profile, within what chance and a first distance of half a megabyte explain.
#[track_caller]
fn about(dir: &TempDir, file: &str, bytes: f64, ended: &Ended) {
    let report = Run::new(artefact::command()).args(["report", "--show_bytes"]).arg(dir.join(file)).finish().ok();
    let total = report.stdout.lines().next().and_then(|line| line.strip_prefix("Total: "));
    let total = total.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    let tolerance = 4.0 * (bytes * INTERVAL).sqrt() + 4.0 * 524_288.0;
    assert!(
        total.is_some_and(|total| (total - bytes).abs() < tolerance),
        "{total:?} is not {bytes} ± {tolerance}: {ended}"
    );
}

/// By reading and by probes; with each way what is allocated in between counts, too.
#[test]
fn a_process_is_followed_when_its_first_threads_end() {
    need_probes!();
    for mode in [&["--mode", "ebpf"][..], &["--mode", "ebpf", "--every-event"], &["--mode", "inprocess"]] {
        let dir = TempDir::new("first-thread");
        let mut target = program();
        let command = attach(&target, &dir.join("a.heap"), &[mode, &["--lg-sample", "16"]].concat());
        order(&mut target, "2000");
        for step in ["leave", "next"] {
            order(&mut target, step);
            order(&mut target, "1000");
            // Longer than it takes to notice.
            thread::sleep(Duration::from_millis(400));
            order(&mut target, "1000");
        }
        let ended = interrupt(command).ok();
        about(&dir, "a.heap", 3.0 * ORDERED, &ended);
        for words in ["another program", "lost", "missing"] {
            assert!(!ended.stdout.contains(words), "{words}, {mode:?}: {ended}");
        }
        assert_eq!(target.finish().code(), 0);
    }
}

/// Threads that end while probes are being bound to them.
#[test]
fn a_process_whose_threads_end_all_the_time_is_followed() {
    need_probes!();
    for (more, lives_ms) in [(&[][..], 5), (&["--every-event"], 5), (&["--every-event"], 20)] {
        let dir = TempDir::new("handed-on");
        let mut target = program();
        let pid = target.pid().cast_unsigned();
        let command = attach(&target, &dir.join("a.heap"), &[&["--mode", "ebpf", "--lg-sample", "16"], more].concat());
        order(&mut target, "leave");
        for _ in 0..100 {
            order(&mut target, "next");
            order(&mut target, "50");
            thread::sleep(Duration::from_millis(lives_ms));
        }
        let ended = interrupt(command).ok();
        about(&dir, "a.heap", 2.5 * ORDERED, &ended);
        assert!(ended.stdout.contains("its profile table is read until they are set for another one"), "{ended}");
        let root = Table::open(pid).and_then(|table| table.root()).expect("it has a table");
        assert_eq!(root.prof_active, 0, "the process was told to sample, and then no more");
        assert_eq!(target.finish().code(), 0);
    }
}

/// The thread through which it could be attached to has mostly ended by then.
#[test]
fn a_process_whose_threads_end_all_the_time_is_attached_to() {
    need_probes!();
    let dir = TempDir::new("handed-over");
    let mut target = program();
    order(&mut target, "leave");
    let pid = target.pid().to_string();
    let file = dir.join("a.heap").display().to_string();
    let arguments = ["attach", "--pid", &pid, "-o", &file, "--mode", "ebpf", "--every-event", "--duration", "2s"];
    let command = crate::session::command(&arguments).spawn();
    for _ in 0..400 {
        order(&mut target, "next");
        thread::sleep(Duration::from_millis(4));
    }
    let ended = command.finish().ok();
    assert!(ended.stdout.contains("profile written to"), "{ended}");
    assert_eq!(target.finish().code(), 0);
}

#[test]
fn a_process_whose_first_thread_has_ended_is_attached_to() {
    need_probes!();
    for mode in ["ebpf", "inprocess"] {
        let dir = TempDir::new("without-first");
        let mut target = program();
        order(&mut target, "leave");
        let command = attach(&target, &dir.join("a.heap"), &["--mode", mode, "--lg-sample", "16"]);
        order(&mut target, "2000");
        let ended = interrupt(command).ok();
        about(&dir, "a.heap", ORDERED, &ended);
        assert!(ended.stdout.contains(" work\n"), "{ended}");
        let dumped = Run::new(artefact::command())
            .args(["dump", "--pid", &target.pid().to_string(), "-o"])
            .arg(dir.join("b.heap"))
            .finish()
            .ok();
        about(&dir, "b.heap", ORDERED, &dumped);
        // Its end is seen, too.
        let again = attach(&target, &dir.join("c.heap"), &["--mode", mode]);
        assert_eq!(target.finish().code(), 0);
        let ended = again.finish();
        assert!(ended.code() == 3 && ended.stdout.contains("ended"), "{ended}");
    }
}

/// The kernel ends the first thread, to which the probes belong, and gives its id to the one that executes.
#[test]
fn another_thread_executes_a_program() {
    need_probes!();
    for more in [&[][..], &["--every-event"]] {
        let dir = TempDir::new("thread-exec");
        let mut target = program();
        let mut command =
            attach(&target, &dir.join("a.heap"), &[&["--mode", "ebpf", "--lg-sample", "16"], more].concat());
        order(&mut target, "1000");
        target.tell("exec");
        target.ready();
        // Followed from its start, but for the moment until that is seen; at the interval that was asked for.
        command.wait_for_text("until then written to");
        order(&mut target, "2000");
        let ended = interrupt(command).ok();
        about(&dir, "a.heap", ORDERED, &ended);
        assert!(ended.stdout.contains("started another program"), "{ended}");
        assert!(ended.stdout.contains("one per 65536 "), "{ended}");
    }
}

/// What a process samples while an attachment comes or goes has its stack: those are asked for first and let go of last.
#[test]
fn no_sample_is_without_a_stack_while_probes_come_and_go() {
    need_probes!();
    let mut target = Run::preloaded(compile::program("churn.c", &["-pthread"]))
        .conf("prof:true,prof_active:false,prof_accum:true,lg_prof_sample:14")
        .spawn();
    target.ready();
    order(&mut target, "run");
    let pid = target.pid().cast_unsigned();
    for round in 0..4 {
        let hushed = round % 2 == 0;
        let options = AttachOptions { stacks: Stacks::Context, ring_bytes: 64 << 20, hushed };
        let mut session = Session::process(pid, options).expect("attached");
        let _noticed = session.pump();
        let _noticed = session.stop();
        let profile = session.profile(pid).expect("it runs");
        let stackless = profile.totals().filter(|(_, frames, values)| frames.is_empty() && !values.is_zero()).count();
        assert_eq!(stackless, 0, "round {round}");
        drop(session);
        let table = Table::open(pid).and_then(|table| table.read()).expect("it has a table").profile;
        assert!(table.sum().cumulative.raw.objects > 0, "it samples");
        let stackless = table.totals().filter(|(_, frames, values)| frames.is_empty() && !values.is_zero()).count();
        assert_eq!(stackless, 0, "round {round}, in the table");
    }
}
