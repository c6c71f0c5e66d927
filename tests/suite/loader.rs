//! `dump`, `attach` and `run` without probes, on programs under the allocator.

use std::fs;
use std::path::Path;
use std::time::Duration;

use jeprobe_tests::{Ended, Run, Target, TempDir, artefact, compile};

/// Holds 200 blocks of 100,000 bytes from one site, prints `ready`, then holds as many more as each line says.
fn holder(conf: &str) -> Target {
    let program = compile::program("holder.c", &["-O0", "-g"]);
    let mut target = Run::preloaded(program).conf(conf).spawn();
    target.ready();
    target
}

fn jeprobe(dir: &TempDir, args: &[&str]) -> Ended {
    Run::new(artefact::command()).args(args).dir(dir.path()).finish()
}

/// Bytes in use by the first line of a heap file, unbiased, and the file's text.
fn inuse_bytes(path: &Path) -> (f64, String) {
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let interval: f64 =
        text.lines().next().and_then(|l| l.strip_prefix("heap_v2/")).and_then(|r| r.parse().ok()).expect("a rate");
    let totals = text.lines().nth(1).expect("totals");
    let numbers: Vec<f64> = totals.split(|c: char| !c.is_ascii_digit()).filter_map(|word| word.parse().ok()).collect();
    let (count, bytes) = (numbers[0], numbers[1]);
    let scale = if count > 0.0 { 1.0 / (1.0 - (-(bytes / count) / interval).exp()) } else { 0.0 };
    (bytes * scale, text)
}

/// Within four standard deviations: `√(bytes·interval)` is the most that sampling adds.
#[track_caller]
fn about(bytes: f64, wanted: f64, interval: f64) {
    let tolerance = 4.0 * (wanted * interval).sqrt();
    assert!((bytes - wanted).abs() <= tolerance, "{bytes} is not {wanted} ± {tolerance}");
}

const HELD: f64 = 200.0 * 100_000.0;
const MORE: f64 = 2_000.0 * 100_000.0;

#[test]
fn a_running_and_a_stopped_process_are_dumped() {
    let dir = TempDir::new("dump");
    let target = holder("prof:true,prof_active:true,lg_prof_sample:14");
    let pid = target.pid().to_string();
    for (name, signal) in [("running.heap", None), ("stopped.heap", Some(libc::SIGSTOP))] {
        if let Some(signal) = signal {
            target.signal(signal);
        }
        let ended = jeprobe(&dir, &["dump", "--pid", &pid, "-o", name]).ok();
        assert!(ended.stdout.contains("hold"), "the report names the site: {ended}");
        let (bytes, text) = inuse_bytes(&dir.join(name));
        about(bytes, HELD, f64::from(1 << 14));
        assert!(text.contains("MAPPED_LIBRARIES:") && text.contains("holder"), "{text}");
    }
    target.signal(libc::SIGCONT);
}

#[test]
fn a_profile_on_standard_output_is_alone_there() {
    let dir = TempDir::new("stdout");
    let target = holder("prof:true,prof_active:true,lg_prof_sample:14");
    let ended = jeprobe(&dir, &["dump", "--pid", &target.pid().to_string(), "-o", "-"]).ok();
    assert!(ended.stdout.starts_with("heap_v2/16384\n"), "{ended}");
    assert!(!ended.stdout.contains("Total:") && ended.stderr.contains("Total:"), "{ended}");
    assert_eq!(fs::read_dir(dir.path()).expect("readable").count(), 0);
}

#[test]
fn sampling_is_switched_on_from_outside_and_off_again() {
    let dir = TempDir::new("attach");
    let mut target = holder("");
    let pid = target.pid().to_string();
    let attach = Run::new(artefact::command())
        .args(["-v", "attach", "--mode", "inprocess", "--pid", &pid, "--lg-sample", "14", "-o", "a.heap"])
        .dir(dir.path())
        .spawn();
    // What it says comes after the switch.
    while !attach.stderr().contains("sampling switched on") {
        std::thread::yield_now();
    }
    // The distances drawn before the switch belong to the old interval and are used up first.
    target.tell("2000");
    target.wait_for("done");
    target.tell("2000");
    target.wait_for("done");
    // The allocator's gauge of live bytes is refreshed at sample points, but at most every 100 ms.
    std::thread::sleep(Duration::from_millis(150));
    target.tell("20");
    target.wait_for("done");
    attach.signal(libc::SIGINT);
    let ended = attach.finish().ok();
    assert!(
        ended.stderr.contains("ended early") && ended.stderr.contains("allocated while sampling was off"),
        "{ended}"
    );
    let (bytes, _) = inuse_bytes(&dir.join("a.heap"));
    about(bytes, 2.0 * MORE, f64::from(1 << 19));
    // Off again: what comes now is not sampled.
    target.tell("2000");
    target.wait_for("done");
    let _ended = jeprobe(&dir, &["dump", "--pid", &pid, "-o", "b.heap"]).ok();
    let (after, _) = inuse_bytes(&dir.join("b.heap"));
    assert!((after - bytes).abs() < 1e6, "{bytes} became {after}");
}

#[test]
fn a_target_that_is_killed_leaves_its_last_reading() {
    let dir = TempDir::new("killed");
    let target = holder("prof:true,prof_active:true,lg_prof_sample:14");
    let attach = Run::new(artefact::command())
        .args(["attach", "--mode", "inprocess", "--pid", &target.pid().to_string(), "-o", "a.heap"])
        .dir(dir.path())
        .spawn();
    while !attach.stderr().contains("end with Ctrl-C") {
        std::thread::yield_now();
    }
    // The first reading follows at once; a second one proves that it is over.
    std::thread::sleep(Duration::from_millis(1500));
    target.signal(libc::SIGKILL);
    let ended = attach.finish();
    assert_eq!(ended.code(), 3, "{ended}");
    assert!(ended.stderr.contains("ended; this is its profile at the last reading"), "{ended}");
    about(inuse_bytes(&dir.join("a.heap")).0, HELD, f64::from(1 << 14));
}

fn run_holder(dir: &TempDir, args: &[&str]) -> Ended {
    let program = compile::program("holder.c", &["-O0", "-g"]);
    Run::new(artefact::command())
        .args(["run", "--lg-sample", "14", "-o", "r.heap", "--library"])
        .arg(artefact::library().expect("our library"))
        .arg("--")
        .arg(program)
        .args(args)
        .dir(dir.path())
        .finish()
}

#[test]
fn run_writes_the_profile_and_passes_the_code_on() {
    let dir = TempDir::new("run");
    let ended = run_holder(&dir, &["exit", "7"]);
    assert_eq!(ended.code(), 7, "{ended}");
    assert!(ended.stdout.starts_with("ready\n") && !ended.stdout.contains("Total:"), "stdout is the child's: {ended}");
    assert!(ended.stderr.contains("Total:") && ended.stderr.contains("hold"), "{ended}");
    about(inuse_bytes(&dir.join("r.heap")).0, HELD, f64::from(1 << 14));
    let left: Vec<_> = fs::read_dir(dir.path()).expect("readable").flatten().map(|e| e.file_name()).collect();
    assert_eq!(left, ["r.heap"]);
}

#[test]
fn run_keeps_what_it_read_of_a_child_that_is_killed() {
    let dir = TempDir::new("runkill");
    let ended = run_holder(&dir, &["kill"]);
    assert_eq!(ended.code(), 128 + 9, "{ended}");
    assert!(
        ended.stderr.contains("was killed by signal 9") && ended.stderr.contains("wrote no profile as it ended"),
        "{ended}"
    );
    about(inuse_bytes(&dir.join("r.heap")).0, HELD, f64::from(1 << 14));
}
