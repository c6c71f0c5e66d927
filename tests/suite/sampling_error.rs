//! In-process profiles against truth: twenty sites of known bytes, with and without frame pointers, at three sampling
//! intervals; read by the perl `jeprof` and by `jeprobe report`, whose numbers are equal.

use std::path::PathBuf;

use jeprobe_tests::artefact::{self, Flavour, flavour};
use jeprobe_tests::truth::{self, Frames, Table, Truth};
use jeprobe_tests::{Run, TempDir, sampling, skip};

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
