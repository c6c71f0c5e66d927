//! Attached profiles against truth: the program of twenty known sites, watched from before its first object, at three
//! sampling intervals, with the process's own stacks and with the kernel's; read by `jeprobe report` and perl `jeprof`.

use jeprobe_tests::truth::{self, Frames};
use jeprobe_tests::{Run, TempDir, artefact, compile, sampling};

use crate::probing::need_probes;
use crate::session::{attach, interrupt, truth_program};

fn agree(frames: Frames, lg: u32, stacks: &str) {
    need_probes!();
    let interval = f64::from(1_u32 << lg);
    sampling::twice(|| {
        let directory = TempDir::new("attached");
        let file = directory.join("attached.heap");
        let mut target = truth_program(frames, "");
        let loader = attach(&target, &file, &["--mode", "ebpf", "--stacks", stacks, "--lg-sample", &lg.to_string()]);
        let truth = truth::allocate(&mut target);
        let ended = interrupt(loader);
        assert_eq!(ended.code(), 0, "complete, nothing lost: {ended}");
        let program = truth::program(frames);
        let ours = truth::our_table(&program, &file, &[]);
        if let Some(perl) = truth::perl_table(&program, &file, &[]) {
            assert_eq!(ours.total, perl.total);
            for site in &truth.sites {
                // Stacks of the kernel begin inside the library, which the perl script does not cut: flat bytes stand
                // one frame higher there.
                let cumulative = |table: &truth::Table| table.rows.get(&site.name).map(|row| row.1);
                assert_eq!(cumulative(&ours), cumulative(&perl), "{}", site.name);
            }
        }
        truth.judge(&ours, interval, &format!("attached, {frames:?}, --stacks {stacks}"))?;

        // The target goes on unharmed and sampling is off again.
        target.tell("free");
        target.wait_for("freed");
        target.tell("exit");
        assert_eq!(target.finish().code(), 0);
        Ok(())
    });
}

#[test]
fn own_stacks_with_frame_pointers_lg_12() {
    agree(Frames::Pointers, 12, "ctx");
}

#[test]
fn own_stacks_without_frame_pointers_lg_12() {
    agree(Frames::Omitted, 12, "ctx");
}

#[test]
fn own_stacks_without_frame_pointers_lg_16() {
    agree(Frames::Omitted, 16, "ctx");
}

#[test]
fn own_stacks_without_frame_pointers_lg_19() {
    agree(Frames::Omitted, 19, "ctx");
}

#[test]
fn kernel_stacks_lg_12() {
    agree(Frames::Pointers, 12, "kernel");
}

#[test]
fn kernel_stacks_lg_16() {
    agree(Frames::Pointers, 16, "kernel");
}

#[test]
fn kernel_stacks_lg_19() {
    agree(Frames::Pointers, 19, "kernel");
}

/// A process that recorded itself before: the attached profile holds both parts, and so does the one written beside the
/// process's own `prof.dump`.
#[test]
fn what_was_recorded_before_is_merged() {
    need_probes!();
    sampling::twice(|| {
        let directory = TempDir::new("merged");
        let file = directory.join("attached.heap");
        let dump = directory.join("own.heap");
        let mut target = truth_program(Frames::Omitted, "prof:true,lg_prof_sample:14");
        truth::allocate(&mut target);
        let mut loader = attach(&target, &file, &["--mode", "ebpf"]);
        // The program's counts go on from those of its first turn.
        let truth = truth::allocate(&mut target);
        target.tell(&format!("dump {}", dump.display()));
        target.wait_for("dump 0");
        let line = loader.wait_for_text("merged profile written to ");
        let merged = line.rsplit_once("written to ").expect("just matched").1.to_owned();
        let ended = interrupt(loader);
        assert_eq!(ended.code(), 0, "{ended}");
        let interval = f64::from(1 << 14);
        let program = truth::program(Frames::Omitted);
        for (file, what) in [(file.as_path(), "attached"), (merged.as_ref(), "beside prof.dump"), (&dump, "own")] {
            truth.judge(&truth::our_table(&program, file, &[]), interval, what)?;
        }
        Ok(())
    });
}

/// Memory that was live before and never sampled is said, not passed over.
#[test]
fn memory_that_was_never_sampled_is_a_line() {
    need_probes!();
    let directory = TempDir::new("unsampled");
    let file = directory.join("attached.heap");
    let mut target = truth_program(Frames::Omitted, "");
    truth::allocate(&mut target);
    let loader = attach(&target, &file, &["--mode", "ebpf"]);
    let ended = interrupt(loader);
    assert_eq!(ended.code(), 0, "{ended}");
    let text = format!("{}{}", ended.stdout, ended.stderr).to_lowercase();
    let said = ["never sampled", "not sampled", "unsampled"].iter().any(|words| text.contains(words));
    assert!(said, "no line about the memory that was live before: {ended}");
}

/// Allocated bytes are of one span of time for all sites, those that free and those that hold: what is sampled while probes are
/// set counts for both.
#[test]
fn what_is_freed_while_attaching_counts_as_what_is_held() {
    need_probes!();
    let program = compile::program("held_freed.c", &["-O0", "-g"]);
    for more in [&[][..], &["--every-event"]] {
        let directory = TempDir::new("held-freed");
        let file = directory.join("a.heap");
        let mut target = Run::preloaded(&program).conf("lg_prof_sample:10").spawn();
        target.ready();
        let pid = target.pid().to_string();
        let attach = Run::new(artefact::command()).args(["attach", "--pid", &pid, "--duration", "400ms"]);
        let _attached = attach.args(["--mode", "ebpf", "-o"]).arg(&file).args(more).finish().ok();
        target.tell("");
        assert_eq!(target.finish().code(), 0);
        let table = truth::our_table(&program, &file, &["--alloc_space"]);
        let bytes = |name: &str| table.rows.get(name).map_or(0.0, |row| row.0 as f64);
        let ratio = bytes("freed") / bytes("held");
        assert!((7.8..8.2).contains(&ratio), "{ratio}");
    }
}
