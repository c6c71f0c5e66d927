//! In-process profiles against truth: twenty sites of known bytes, with and without frame pointers, at three sampling
//! intervals; read by the perl `jeprof` and by `jeprobe report`, whose numbers are equal.

use std::path::PathBuf;

use jeprobe_tests::artefact::{self, Flavour, flavour};
use jeprobe_tests::truth::{self, Frames, Table, Truth};
use jeprobe_tests::{Ended, Run, TempDir, compile, sampling, skip};

/// A profile written at the program's end, with its truth.
struct Profile {
    path: PathBuf,
    truth: Truth,
    _directory: TempDir,
}

fn profile(frames: Frames, lg: u32, conf: &str) -> Profile {
    scaled_profile(frames, lg, conf, 1)
}

fn scaled_profile(frames: Frames, lg: u32, conf: &str, divisor: u32) -> Profile {
    let directory = TempDir::new("truth");
    let prefix = directory.join("mine");
    let mut target = Run::preloaded(truth::program(frames))
        .conf(&format!("prof:true,lg_prof_sample:{lg},prof_final:true,prof_prefix:{}{conf}", prefix.display()))
        .spawn();
    let pid = target.ready()["ready ".len()..].to_owned();
    target.tell(&format!("scale {divisor}"));
    target.wait_for("scaled");
    let truth = truth::allocate(&mut target);
    target.tell("exit");
    let ended = target.finish();
    assert!(ended.status.success() && ended.stderr.is_empty(), "{ended}");
    let files = directory.files(".heap");
    assert_eq!(files, [directory.join(format!("mine.{pid}.0.f.heap"))], "one final profile");
    Profile { path: files[0].clone(), truth, _directory: directory }
}

/// The first line states the interval; the table is that of the perl script, or ours where it is absent.
fn read(frames: Frames, profile: &Profile, options: &[&str]) -> Table {
    let program = truth::program(frames);
    match truth::perl_table(&program, &profile.path, options) {
        Some(table) => table,
        None => truth::our_table(&program, &profile.path, options),
    }
}

fn agree(frames: Frames, lg: u32) {
    if flavour() == Flavour::Libc {
        skip!("the C library has no profiles");
    }
    let interval = f64::from(1_u32 << lg);
    sampling::twice(|| {
        let profile = profile(frames, lg, "");
        let text = std::fs::read_to_string(&profile.path).expect("the profile is text");
        assert!(text.starts_with(&format!("heap_v2/{}\n", 1_u32 << lg)), "{}", &text[..40]);
        profile.truth.judge(&read(frames, &profile, &[]), interval, &format!("{frames:?}, live bytes"))
    });
}

#[test]
fn lg_12_with_frame_pointers() {
    agree(Frames::Pointers, 12);
}

#[test]
fn lg_12_without_frame_pointers() {
    agree(Frames::Omitted, 12);
}

#[test]
fn lg_16_with_frame_pointers() {
    agree(Frames::Pointers, 16);
}

#[test]
fn lg_16_without_frame_pointers() {
    agree(Frames::Omitted, 16);
}

#[test]
fn lg_19_with_frame_pointers() {
    agree(Frames::Pointers, 19);
}

#[test]
fn lg_19_without_frame_pointers() {
    agree(Frames::Omitted, 19);
}

/// Every allocation sampled: the table is the truth, to the byte, also after frees by other threads.
#[test]
fn lg_0_is_exact() {
    if flavour() != Flavour::Jeprobe {
        skip!("jemalloc's large classes differ from what the program sees");
    }
    let profile = scaled_profile(Frames::Omitted, 0, "", 20);
    let table = read(Frames::Omitted, &profile, &[]);
    for site in &profile.truth.sites {
        let written = table.rows.get(&site.name).map_or(0, |row| row.1);
        assert_eq!(written, (site.usable * site.live).cast_signed(), "{site:?}");
    }
}

/// With `prof_accum` the file holds what was ever allocated as well.
#[test]
fn accumulated_bytes() {
    if flavour() == Flavour::Libc {
        skip!("the C library has no profiles");
    }
    sampling::twice(|| {
        let profile = profile(Frames::Omitted, 14, ",prof_accum:true");
        let interval = f64::from(1 << 14);
        profile.truth.judge(&read(Frames::Omitted, &profile, &[]), interval, "live bytes")?;
        let table = read(Frames::Omitted, &profile, &["--alloc_space"]);
        profile.truth.judge_total(&table, interval, "bytes ever allocated")
    });
}

/// One file, two readers: every function has the same flat and cumulative bytes in both tables.
#[test]
fn perl_jeprof_and_our_report_print_the_same_numbers() {
    if flavour() != Flavour::Jeprobe {
        skip!("about our profiles");
    }
    for (frames, lg) in [(Frames::Omitted, 12), (Frames::Pointers, 16), (Frames::Omitted, 19)] {
        let profile = profile(frames, lg, "");
        let program = truth::program(frames);
        let Some(perl) = truth::perl_table(&program, &profile.path, &[]) else {
            skip!("no /usr/bin/jeprof");
        };
        let ours = truth::our_table(&program, &profile.path, &[]);
        assert_eq!(ours.total, perl.total, "total at lg {lg}");
        for site in &profile.truth.sites {
            assert_eq!(ours.rows.get(&site.name), perl.rows.get(&site.name), "{} at lg {lg}", site.name);
        }
        for name in ["populate", "main", "second"] {
            assert_eq!(
                ours.rows.get(name).map(|row| row.1),
                perl.rows.get(name).map(|row| row.1),
                "{name}, cumulative, at lg {lg}"
            );
        }
    }
}

/// `jeprobe run` profiles a command without any configuration of ours and reports the same sites.
#[test]
fn run_profiles_a_command() {
    if flavour() != Flavour::Jeprobe {
        skip!("about our command");
    }
    sampling::twice(|| {
        let directory = TempDir::new("run");
        let file = directory.join("run.heap");
        let mut target = Run::new(artefact::command())
            .args(["run", "--lg-sample", "14", "-o"])
            .arg(&file)
            .arg("--")
            .arg(truth::program(Frames::Omitted))
            .dir(directory.path())
            .spawn();
        target.ready();
        let truth = truth::allocate(&mut target);
        target.tell("exit");
        let ended = target.finish().ok();
        assert!(ended.stdout.contains("site_19"), "the report names the sites: {ended}");
        let table = truth::our_table(&truth::program(Frames::Omitted), &file, &[]);
        truth.judge(&table, f64::from(1 << 14), "jeprobe run")
    });
}

/// The line about what a result rests on.
fn estimated(ended: &Ended) -> String {
    let line = ended.stderr.lines().find(|line| line.starts_with("estimated from "));
    line.unwrap_or_else(|| panic!("no estimate: {ended}")).to_owned()
}

/// 49 samples of 16 bytes at one per 524288 make 49 · 524288 bytes ± √49 · 524288 (14.3 %), 709 at one per 16384 make
/// 709 · 16384 ± √709 · 16384: together 37306368 ± √(3670016² + 436259²) = 3695854, 9.9 %.
#[test]
fn samples_of_several_intervals_keep_their_error() {
    let directory = TempDir::new("intervals");
    for (name, interval, count) in [("a.heap", 524_288, 49), ("b.heap", 16384, 709)] {
        let counts = format!("  t*: {count}: {} [0: 0]\n", count * 16);
        let text = format!("heap_v2/{interval}\n{counts}@ 0x400100 0x400200\n{counts}\nMAPPED_LIBRARIES:\n");
        std::fs::write(directory.join(name), text).expect("written");
    }
    let run = |args: &[&str]| Run::new(artefact::command()).dir(directory.path()).args(args).finish().ok();
    let coarse = "estimated from 49 samples, one per 524288 bytes; standard error of the total 14.3%";
    let both = "estimated from 758 samples, one per 16384 to 524288 bytes; standard error of the total 9.9%";
    assert_eq!(estimated(&run(&["report", "a.heap"])), coarse);
    assert_eq!(estimated(&run(&["report", "a.heap", "b.heap"])), both);
    assert_eq!(estimated(&run(&["report", "b.heap", "a.heap"])), both);
    assert_eq!(estimated(&run(&["merge", "a.heap", "b.heap", "-o", "m.heap"])), both);
    for copy in ["s.heap", "s.pb.gz"] {
        // No address has a name, so the result is not complete.
        let args = ["symbolize", "m.heap", "-o", copy];
        let named = Run::new(artefact::command()).dir(directory.path()).args(args).finish();
        assert_eq!((named.code(), estimated(&named).as_str()), (3, both));
    }
    for file in ["m.heap", "s.heap", "s.pb.gz"] {
        assert_eq!(estimated(&run(&["report", file])), both, "{file}");
    }
    let difference = run(&["diff", "a.heap", "m.heap"]);
    assert!(difference.stderr.contains(coarse) && difference.stderr.contains(both), "{difference}");
    // The line is none to other readers.
    let nothing = std::path::Path::new("/bin/true");
    if let Some(perl) = truth::perl_table(nothing, &directory.join("m.heap"), &[]) {
        assert_eq!(perl.total, truth::our_table(nothing, &directory.join("m.heap"), &[]).total);
    }
}

#[test]
fn a_file_that_is_named_twice_is_counted_twice_and_said_to_be() {
    let directory = TempDir::new("twice");
    let text = "heap_v2/1024\n  t*: 1: 16 [0: 0]\n@ 0x400100\n  t*: 1: 16 [0: 0]\n";
    for name in ["a.heap", "b.heap"] {
        std::fs::write(directory.join(name), text).expect("written");
    }
    let run = |args: &[&str]| Run::new(artefact::command()).dir(directory.path()).args(args).finish().ok();
    let said = "a.heap is named twice, counted twice";
    assert!(!run(&["report", "a.heap", "b.heap"]).stderr.contains("is named"));
    assert!(run(&["report", "a.heap", "./a.heap"]).stderr.contains(said));
    assert!(run(&["merge", "a.heap", "host=a.heap", "-o", "m.heap"]).stderr.contains(said));
    let thrice = run(&["report", "b.heap", "a.heap", "b.heap", "b.heap"]);
    assert!(thrice.stderr.contains("b.heap is named 3 times, counted 3 times"), "{thrice}");
}

/// Blocks that were sampled at one per 524288 bytes keep their error in a session at one per 256.
#[test]
fn live_samples_of_the_interval_before_keep_their_error() {
    if flavour() != Flavour::Jeprobe {
        skip!("about our profiles");
    }
    let directory = TempDir::new("before");
    let program = compile::program("holder.c", &["-O0", "-g"]);
    let mut target = Run::preloaded(program).conf("prof:true,prof_active:true,lg_prof_sample:19").spawn();
    target.ready();
    target.tell("800");
    target.wait_for("done");
    let pid = target.pid().to_string();
    let run = |args: &[&str]| Run::new(artefact::command()).dir(directory.path()).args(args).finish().ok();
    let before = estimated(&run(&["dump", "--pid", &pid, "-o", "before.heap"]));
    assert!(before.contains("one per 524288 bytes"), "{before}");
    let attach = ["attach", "--mode", "inprocess", "-d", "1", "--lg-sample", "8", "--pid", &pid, "-o", "after.heap"];
    let wanted = before.replace("one per ", "one per 256 to ");
    assert_eq!(estimated(&run(&attach)), wanted, "nothing was allocated in between");
    assert_eq!(estimated(&run(&["report", "after.heap"])), wanted);
}

/// The allocator is part of the program and has no range of addresses of its own: its frames are not to be the leaves.
#[test]
fn stacks_of_a_static_program_end_in_its_own_functions() {
    if flavour() != Flavour::Jeprobe {
        skip!("about our archive");
    }
    let directory = TempDir::new("static-truth");
    let archive = artefact::static_library().display().to_string();
    let program = compile::program("truth.c", &["-O2", "-static", &archive, "-lm"]);
    let conf = format!("prof:true,lg_prof_sample:12,prof_final:true,prof_prefix:{}", directory.join("mine").display());
    let mut target = Run::new(&program).conf(&conf).spawn();
    target.ready();
    let _truth = truth::allocate(&mut target);
    target.tell("exit");
    target.finish().ok().discard();
    let files = directory.files(".heap");
    let report =
        Run::new(artefact::command()).args(["report", "--format", "folded"]).arg(&program).arg(&files[0]).finish();
    let report = report.ok();
    let sites: Vec<&str> = report.stdout.lines().filter(|line| line.contains(";site_")).collect();
    assert!(sites.len() >= 16, "{report}");
    for line in sites {
        let leaf = line.rsplit(';').next().expect("a line has a frame");
        assert!(leaf.starts_with("site_") || leaf.starts_with("by_posix_memalign"), "{line}");
    }
}
