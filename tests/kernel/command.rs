//! `jeprobe attach` and `jeprobe system` with probes, on a program under the library.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use jeprobe_tests::{Run, Target, TempDir, artefact, compile};

use crate::probing::need_probes;
use crate::session::semaphores;

/// Bytes that one order makes the program hold, and the interval that is in force before the attach, which the first
/// distances were drawn with.
const ORDERED: f64 = 2_000.0 * 100_000.0;
const INTERVAL: f64 = 524_288.0;
/// What it holds before it says that it is ready.
const HELD: f64 = 200.0 * 100_000.0;

fn holder() -> Target {
    let program = compile::program("holder.c", &["-O0", "-g"]);
    let mut target = Run::preloaded(program).spawn();
    target.ready();
    target
}

fn order(target: &mut Target, blocks: &str) {
    target.tell(blocks);
    target.wait_for("done");
}

/// Starts the command and waits until it is attached.
fn start(dir: &TempDir, args: &[&str]) -> Target {
    let command = Run::new(artefact::command()).args(args).dir(dir.path()).spawn();
    while !command.stderr().contains("end with Ctrl-C") {
        thread::yield_now();
    }
    command
}

fn attach(dir: &TempDir, target: &Target, file: &str) -> Target {
    attach_with(dir, target, file, &[])
}

fn attach_with(dir: &TempDir, target: &Target, file: &str, more: &[&str]) -> Target {
    let pid = target.pid().to_string();
    start(dir, &[&["attach", "--mode", "ebpf", "--pid", &pid, "--lg-sample", "14", "-o", file], more].concat())
}

/// Live bytes of a file, by the command's own report.
fn inuse_bytes(path: &Path) -> f64 {
    bytes_of(path, &[])
}

fn bytes_of(path: &Path, value: &[&str]) -> f64 {
    let ended = Run::new(artefact::command()).args(["report", "--show_bytes"]).args(value).arg(path).finish().ok();
    let total = ended.stdout.lines().next().and_then(|line| line.strip_prefix("Total: ")).expect("a total");
    total.split_whitespace().next().and_then(|number| number.parse().ok()).expect("a number")
}

#[track_caller]
fn about(bytes: f64, wanted: f64) {
    let tolerance = 4.0 * (wanted * INTERVAL).sqrt();
    assert!((bytes - wanted).abs() <= tolerance, "{bytes} is not {wanted} ± {tolerance}");
}

#[test]
fn attach_reports_what_was_allocated_meanwhile() {
    need_probes!();
    let dir = TempDir::new("attach");
    let mut target = holder();
    let command = attach(&dir, &target, "a.heap");
    order(&mut target, "2000");
    command.signal(libc::SIGINT);
    let ended = command.finish().ok();
    assert!(ended.stderr.contains("jeprobe:record") && ended.stderr.contains("expected cost"), "{ended}");
    assert!(ended.stderr.contains("ended early") && ended.stdout.contains("hold"), "{ended}");
    about(inuse_bytes(&dir.join("a.heap")), ORDERED);
}

#[test]
fn a_target_that_is_killed_leaves_what_was_collected() {
    need_probes!();
    let dir = TempDir::new("killed");
    let mut target = holder();
    let command = attach_with(&dir, &target, "a.heap", &["--every-event"]);
    order(&mut target, "2000");
    target.signal(libc::SIGKILL);
    let ended = command.finish();
    assert_eq!(ended.code(), 3, "{ended}");
    assert!(ended.stderr.contains("this is what was collected until then"), "{ended}");
    about(inuse_bytes(&dir.join("a.heap")), ORDERED);
}

/// Too many samples to be probed: the table is read, all of it in the end and what was there a moment before a kill; with
/// `--every-event` nothing is ever read.
#[test]
fn a_process_that_samples_often_is_read_and_not_probed() {
    need_probes!();
    let dir = TempDir::new("busy");
    let mut target = holder();
    let command = attach(&dir, &target, "a.heap");
    let library = artefact::library().expect("the library under test");
    assert_eq!(semaphores(target.pid(), &library), [1, 0, 1, 1], "it samples and unwinds, and tells of no free");
    order(&mut target, "2000");
    command.signal(libc::SIGINT);
    let ended = command.finish().ok();
    assert!(ended.stderr.contains("samples were read from the process's profile table"), "{ended}");
    about(inuse_bytes(&dir.join("a.heap")), ORDERED);
    // Allocated is what is live at the attachment and what comes then: not all that another command saw before.
    order(&mut target, "-1500");
    let again = attach(&dir, &target, "b.heap");
    order(&mut target, "2000");
    thread::sleep(Duration::from_millis(700));
    target.signal(libc::SIGKILL);
    let ended = again.finish();
    assert_eq!(ended.code(), 3, "{ended}");
    assert!(ended.stderr.contains("was read for the last time"), "{ended}");
    about(inuse_bytes(&dir.join("b.heap")), 1.25 * ORDERED);
    about(bytes_of(&dir.join("b.heap"), &["--alloc_space"]), 1.25 * ORDERED);
}

/// The distances that were drawn at a rate that practically never samples do not outlive it.
#[test]
fn a_change_of_the_sampling_rate_reaches_threads_that_drew_before() {
    need_probes!();
    let dir = TempDir::new("rate");
    let mut target = holder();
    let pid = target.pid().to_string();
    let first = start(&dir, &["attach", "--pid", &pid, "--lg-sample", "63", "-o", "a.heap"]);
    assert!(first.stderr().contains("one allocation per 9223372036854775808 bytes"), "{}", first.stderr());
    order(&mut target, "2000");
    first.signal(libc::SIGINT);
    let ended = first.finish().ok();
    // The distance from before ends with a sample, if any.
    assert!(
        ended.stderr.contains("no live sampled memory") || inuse_bytes(&dir.join("a.heap")) < ORDERED / 20.0,
        "{ended}"
    );
    let second = start(&dir, &["attach", "--pid", &pid, "-o", "b.heap"]);
    order(&mut target, "2000");
    second.signal(libc::SIGINT);
    let ended = second.finish().ok();
    assert!(ended.stdout.contains("hold"), "{ended}");
    about(inuse_bytes(&dir.join("b.heap")), ORDERED);
}

/// Seldom enough for two seconds: probes, which lose nothing when the process is killed; then a burst, and the table.
#[test]
fn a_calm_process_is_probed_until_it_is_calm_no_more() {
    need_probes!();
    let dir = TempDir::new("calm");
    let mut target = holder();
    let library = artefact::library().expect("the library under test");
    let mut command = Run::new("/bin/sh")
        .args(["-c", "exec \"$0\" \"$@\" 2>&1"])
        .arg(artefact::command())
        .args(["attach", "--pid", &target.pid().to_string(), "--lg-sample", "14", "-o", "a.heap"])
        .dir(dir.path())
        .spawn();
    command.wait_for_text("samples seldom");
    assert_eq!(semaphores(target.pid(), &library), [2, 1, 1, 2], "probes on top of what keeps it sampling");
    order(&mut target, "2000");
    command.wait_for_text("samples too often");
    assert_eq!(semaphores(target.pid(), &library), [1, 0, 1, 1]);
    order(&mut target, "2000");
    command.signal(libc::SIGINT);
    let ended = command.finish().ok();
    assert!(!ended.stdout.contains("never arrived"), "{ended}");
    about(inuse_bytes(&dir.join("a.heap")), 2.0 * ORDERED);
    about(bytes_of(&dir.join("a.heap"), &["--alloc_space"]), 2.0 * ORDERED);
}

#[test]
fn two_commands_on_one_target_see_the_same_and_one_killed_harms_neither() {
    need_probes!();
    let dir = TempDir::new("two");
    let mut target = holder();
    let first = attach(&dir, &target, "first.heap");
    let second = attach(&dir, &target, "second.heap");
    let third = attach(&dir, &target, "third.heap");
    third.signal(libc::SIGKILL);
    assert_eq!(third.finish().signal(), Some(libc::SIGKILL));
    order(&mut target, "2000");
    for (command, file) in [(first, "first.heap"), (second, "second.heap")] {
        command.signal(libc::SIGINT);
        let _ended = command.finish().ok();
        about(inuse_bytes(&dir.join(file)), ORDERED);
    }
    assert!(!dir.join("third.heap").exists());
    order(&mut target, "1");
    assert_eq!(target.finish().code(), 0);
}

#[test]
fn system_takes_processes_that_were_there_and_that_start_later() {
    need_probes!();
    let dir = TempDir::new("system");
    let mut before = holder();
    let command = start(&dir, &["system", "--mode", "ebpf", "--out-dir", "out"]);
    let mut after = holder();
    for target in [&mut before, &mut after] {
        order(target, "2000");
    }
    // One that starts later is seen from its first block on.
    let wanted = [(before.pid(), ORDERED), (after.pid(), HELD + ORDERED)];
    after.signal(libc::SIGKILL);
    after.finish();
    command.signal(libc::SIGINT);
    let ended = command.finish();
    assert!(matches!(ended.code(), 0 | 3), "{ended}");
    for (pid, bytes) in wanted {
        assert!(ended.stdout.lines().any(|line| line.trim_start().starts_with(&pid.to_string())), "{ended}");
        about(inuse_bytes(&file_of(&dir, pid)), bytes);
    }
    assert!(dir.join("out/merged.heap").exists());
}

/// One process samples too often: all are read from then on, the calm ones probed one by one, and those that start later are
/// seen from their first block on.
#[test]
fn system_reads_tables_once_a_process_samples_too_often() {
    need_probes!();
    let dir = TempDir::new("system-read");
    let library = artefact::library().expect("the library under test");
    let mut calm = holder();
    let mut busy = Run::preloaded(compile::program("churn.c", &["-pthread"])).conf("lg_prof_sample:16").spawn();
    busy.ready();
    let mut command = Run::new("/bin/sh")
        .args(["-c", "exec \"$0\" \"$@\" 2>&1"])
        .arg(artefact::command())
        .args(["system", "--mode", "ebpf", "--verbose", "--out-dir", "out"])
        .dir(dir.path())
        .spawn();
    command.wait_for_text("end with Ctrl-C");
    assert_eq!(semaphores(calm.pid(), &library), [2, 1, 1, 2], "every process is probed");
    order(&mut busy, "run");
    told(&mut command, busy.pid(), "samples too often");
    told(&mut command, calm.pid(), "each sample and free is probed");
    assert_eq!(semaphores(calm.pid(), &library), [2, 1, 1, 2], "one of its own");
    assert_eq!(semaphores(busy.pid(), &library), [1, 0, 1, 1], "it samples, and is not trapped");
    let mut late = holder();
    told(&mut command, late.pid(), "under observation");
    for target in [&mut calm, &mut late] {
        order(target, "2000");
    }
    // What a probed process did before it was killed is all there.
    calm.signal(libc::SIGKILL);
    let calm_pid = calm.pid();
    calm.finish();
    told(&mut command, calm_pid, "ended");
    command.signal(libc::SIGINT);
    let ended = command.finish();
    assert!(matches!(ended.code(), 0 | 3), "{ended}");
    for (pid, bytes) in [(calm_pid, ORDERED), (late.pid(), HELD + ORDERED)] {
        about(inuse_bytes(&file_of(&dir, pid)), bytes);
    }
    assert!(file_of(&dir, busy.pid()).exists(), "{ended}");
    assert_eq!(semaphores(late.pid(), &library), [0; 4]);
}

/// Waits for a line of the command about a process.
fn told(command: &mut Target, pid: i32, what: &str) {
    let of_process = format!("process {pid} (");
    while !command.wait_for_text(&of_process).contains(what) {}
}

/// The file that `system` wrote of a process.
#[track_caller]
fn file_of(dir: &TempDir, pid: i32) -> PathBuf {
    let end = format!(".{pid}.heap");
    let mut files = fs::read_dir(dir.join("out")).expect("written").flatten().map(|entry| entry.path());
    files.find(|path| path.to_string_lossy().ends_with(&end)).unwrap_or_else(|| panic!("no profile of {pid}"))
}
