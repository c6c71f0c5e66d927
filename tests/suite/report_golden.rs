//! `jeprobe report` against the perl `jeprof`: its text on checked-in profiles byte for byte, its numbers on profiles
//! of programs that run here.
//!
//! Where names differ by intent, rows of equal name are compared: stripped libraries (jeprof gives the nearest exported
//! name, jeprobe the module and offset) and allocator frames that jeprof fails to cut because no name of its list is
//! found for them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use jeprobe_tests::facts::is;
use jeprobe_tests::{Ended, Run, TempDir, artefact, compile, golden, skip};

const JEPROF: &str = "/usr/bin/jeprof";

/// jeprof prints whole bytes of floating sums whose order is not fixed: the last digit may differ.
const SLACK: i64 = 1;

fn fixture(name: &str) -> PathBuf {
    artefact::fixture("report").join(name)
}

fn report(args: &[&str]) -> Ended {
    Run::new(artefact::command()).dir(fixture("")).arg("report").args(args).finish()
}

/// (flat, cumulative) by name.
type Rows = BTreeMap<String, (i64, i64)>;

/// Total and rows of a table printed with `--show_bytes`.
fn parse(text: &str) -> (i64, Rows) {
    let mut rows = Rows::new();
    let mut total = 0;
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("Total: ") {
            total = rest.split(' ').next().and_then(|n| n.parse().ok()).expect("a total in bytes");
            continue;
        }
        let mut words = line.split_whitespace();
        let mut word = || words.next().unwrap_or_else(|| panic!("a row of six columns: {line:?}"));
        let flat: i64 = word().parse().expect("flat bytes");
        let (_, _) = (word(), word());
        let cumulative: i64 = word().parse().expect("cumulative bytes");
        let _percent = word();
        let name = words.collect::<Vec<_>>().join(" ");
        // Symbol versions and binutils' discriminators, which split a line into several rows, are not compared.
        let name = name.split("@@").next().unwrap_or_default();
        let row = rows.entry(name.split(" (discriminator").next().unwrap_or_default().to_owned()).or_default();
        *row = (row.0 + flat, row.1 + cumulative);
    }
    (total, rows)
}

fn near(a: i64, b: i64) -> bool {
    (a - b).abs() <= SLACK
}

/// Runs both programs; `None` when there is no jeprof here.
fn both(directory: &Path, args: &[&str]) -> Option<((i64, Rows), (i64, Rows))> {
    if !Path::new(JEPROF).exists() {
        return None;
    }
    let ours = Run::new(artefact::command()).dir(directory).args(["report", "--show_bytes"]).args(args).finish().ok();
    let theirs = Run::new(JEPROF).dir(directory).args(["--text", "--show_bytes"]).args(args).finish().ok();
    Some((parse(&ours.stdout), parse(&theirs.stdout)))
}

/// A table with rows of equal flat numbers in the order of names, as jeprof has them.
pub(super) fn equal_rows_by_name(table: &str) -> String {
    let mut lines: Vec<&str> = table.lines().collect();
    let flat = |line: &str| line.split_whitespace().next().unwrap_or_default().to_owned();
    for rows in lines.chunk_by_mut(|a, b| flat(a) == flat(b)) {
        rows.sort_by_key(|row| row.split_whitespace().skip(5).collect::<Vec<_>>().join(" "));
    }
    lines.join("\n") + "\n"
}

#[test]
fn text_is_jeprofs_but_for_unit_and_order_of_equal_rows() {
    for (golden, args) in [
        ("e04_inuse_objects_scaled", &["--inuse_objects", "./leak", "hand.heap"][..]),
        ("e05_text_scaled", &["--text", "--show_bytes", "./leak", "hand.heap"]),
        ("e20_base_dropneg", &["--show_bytes", "--drop_negative", "--base=hand_base.heap", "./leak", "hand.heap"]),
        ("e24_focus", &["--show_bytes", "--focus=big", "./leak", "hand.heap"]),
        ("e25_ignore", &["--show_bytes", "--ignore=big", "./leak", "hand.heap"]),
        ("e31_goog_v2", &["--show_bytes", "./leak", "goog_v2.heap"]),
        ("e32_goog_v1", &["--show_bytes", "./leak", "goog_v1.heap"]),
        ("e33_goog_heapprofile", &["--show_bytes", "./leak", "goog_hp.heap"]),
        ("e34_goog_growth", &["--show_bytes", "./leak", "goog_growth.heap"]),
        ("e35_goog_old", &["--show_bytes", "./leak", "goog_old.heap"]),
        ("e48_nothing_to_show", &["--focus=zzz", "./leak", "hand.heap"]),
    ] {
        let ended = report(args).ok();
        // What jeprof calls MB is MiB here.
        let shown = equal_rows_by_name(&ended.stdout).replacen(" MiB\n", " MB\n", 1);
        golden::compare(&format!("report/jeprof/{golden}.txt"), &shown);
    }
}

#[test]
fn lines_files_and_addresses_name_the_source() {
    for (golden, option) in [("lines", "--lines"), ("files", "--files"), ("addresses", "--addresses")] {
        let ended = report(&["--show_bytes", option, "./leak", "hand.heap"]).ok();
        golden::compare(&format!("report/{golden}.txt"), &ended.stdout);
    }
}

#[test]
fn numbers_are_jeprofs_on_recorded_profiles() {
    for args in [
        &["./leak", "leak.heap"][..],
        &["--alloc_space", "./leak", "leak.heap"],
        &["./cpp", "cpp.heap"],
        &["--lines", "./leak", "leak.heap"],
        &["./mix", "mix_unbias_true.heap"],
        &["--inuse_objects", "./mix", "mix_unbias_false.heap"],
        &["./threads", "threads.2.heap"],
        &["./leak", "hand_base.heap", "hand.heap"],
    ] {
        let Some(((total, ours), (want, theirs))) = both(&fixture(""), args) else { skip!("no {JEPROF}") };
        assert!(near(total, want), "{args:?}: total {total}, jeprof {want}");
        let mut shared = 0;
        for (name, (_, cumulative)) in &theirs {
            if let Some((_, found)) = ours.get(name) {
                shared += 1;
                assert!(near(*found, *cumulative), "{args:?}: {name}: {found}, jeprof {cumulative}");
            }
        }
        assert!(shared * 2 > theirs.len().min(8), "{args:?}: {ours:?} and {theirs:?} share too little");
    }
}

#[test]
fn numbers_are_jeprofs_on_a_program_that_runs_here() {
    if artefact::library().is_none() {
        skip!("the C library's allocator writes no profiles");
    }
    let program = compile::program("report_sites.c", &["-fno-omit-frame-pointer"]);
    let name = program.to_str().expect("a UTF-8 path");
    for lg in [0, 12] {
        let directory = TempDir::new("report-sites");
        let prefix = directory.path().join("p");
        let conf =
            format!("prof:true,prof_final:true,prof_accum:true,lg_prof_sample:{lg},prof_prefix:{}", prefix.display());
        let ended = Run::preloaded(&program).conf(&conf).finish().ok();
        ended.facts().check(&[is("kept", "15120")]);
        let heap = fs::read_dir(directory.path())
            .expect("the directory is there")
            .filter_map(Result::ok)
            .find(|entry| entry.path().extension().is_some_and(|extension| extension == "heap"))
            .expect("prof_final leaves a profile");
        let heap = heap.path();
        let heap = heap.to_str().expect("a UTF-8 path");
        for option in ["--inuse_space", "--alloc_objects"] {
            let Some(((total, ours), (want, theirs))) = both(directory.path(), &[option, name, heap]) else {
                skip!("no {JEPROF}")
            };
            assert!(near(total, want), "lg {lg} {option}: total {total}, jeprof {want}");
            assert!(total > 0, "lg {lg} {option}: an empty profile");
            for function in
                ["main", "caller_mixed", "caller_large", "site_small", "site_large", "site_grown", "site_freed"]
            {
                match (ours.get(function), theirs.get(function)) {
                    (Some(found), Some(want)) => assert!(
                        near(found.0, want.0) && near(found.1, want.1),
                        "lg {lg} {option}: {function}: {found:?}, jeprof {want:?}"
                    ),
                    // A site that no sample hit, or nothing of which is left.
                    (None, None) => {}
                    (found, want) => panic!("lg {lg} {option}: {function}: {found:?}, jeprof {want:?}"),
                }
            }
            if lg == 0 {
                let kept = |name: &str| ours.get(name).map_or(0, |row| row.0);
                let least = if option == "--alloc_objects" { 15_000 } else { 15_000 * 48 };
                assert!(kept("site_small") >= least, "{option}: {ours:?}");
            }
        }
    }
}

#[test]
fn losses_notes_and_unnamed_addresses_are_on_stderr() {
    let directory = TempDir::new("report-words");
    let heap = directory.path().join("a.heap");
    fs::write(
        &heap,
        "heap_v2/1024\n@ 0x10 0x20\n  t*: 3: 300 [0: 0]\n\nMAPPED_LIBRARIES:\n00001000-00002000 r-xp 00000000 00:00 1 \
         /no/such/file\n# jeprobe 1\n# loss ring-full 3\n# note allocated before attach and never sampled: 5 MB\n# end\n",
    )
    .expect("a file can be written");
    let ended = report(&[heap.to_str().expect("a UTF-8 path")]).ok();
    assert!(ended.stdout.starts_with("Total: 0.0 MiB\n"), "{}", ended.stdout);
    assert!(ended.stdout.contains("0000000000000010"), "{}", ended.stdout);
    for text in [
        "estimated from 3 samples, one per 1024 bytes",
        "lost: 3 events lost because the ring buffer was full; raise --ring-size",
        "allocated before attach and never sampled: 5 MB",
        "unresolved: 2 of 2 addresses have no name",
    ] {
        assert!(ended.stderr.contains(text), "{text:?} is missing in {}", ended.stderr);
    }
    let path = heap.to_str().expect("a UTF-8 path");
    let summed = report(&[path, path]).ok();
    assert!(summed.stderr.contains("a.heap: allocated before attach"), "{}", summed.stderr);
}

#[test]
fn another_build_of_a_file_is_refused() {
    let directory = TempDir::new("report-build-id");
    let leak = fixture("leak");
    let heap = directory.path().join("a.heap");
    let text = |id: &str| {
        format!(
            "heap_v2/1\n@ 0x401175 0x4011c2\n  t*: 1: 100 [0: 0]\n\nMAPPED_LIBRARIES:\n00401000-00402000 r-xp 00001000 \
             00:00 1 {path}\n# jeprobe 1\n# build-id {id} {path}\n# end\n",
            path = leak.display()
        )
    };
    fs::write(&heap, text("00112233")).expect("a file can be written");
    let refused = report(&[heap.to_str().expect("a UTF-8 path")]).ok();
    assert!(!refused.stdout.contains("small_user"), "{}", refused.stdout);
    assert!(refused.stdout.contains("leak+0x11c1"), "{}", refused.stdout);
    assert!(refused.stderr.contains("is another build"), "{}", refused.stderr);
    let id = refused.stderr.split("its build-id is ").nth(1).and_then(|rest| rest.split(',').next());
    fs::write(&heap, text(id.expect("the message names the file's build-id"))).expect("a file can be written");
    let accepted = report(&[heap.to_str().expect("a UTF-8 path")]).ok();
    assert!(accepted.stdout.contains("small_user"), "{} {}", accepted.stdout, accepted.stderr);
}

#[test]
fn damaged_files_end_with_one_error_that_names_the_place() {
    let directory = TempDir::new("report-damage");
    let heap = directory.path().join("a.heap");
    let path = heap.to_str().expect("a UTF-8 path");
    for (bytes, place) in [
        (&b""[..], "line 1, byte 0: the file is empty"),
        (b"hello world\n", "line 1, byte 0: not a heap profile"),
        (b"heap_v2/1\n@ 0x1 0x2\n  t*: 1: 2 [", "line 3, byte 20: not a count line"),
        (b"heap_v2/1\n@ 0x1\n", "a stack without its `t*` counts"),
        (b"heap_v2/1\n\xff\xfe\n", "line 2, byte 10: not understood"),
    ] {
        fs::write(&heap, bytes).expect("a file can be written");
        let ended = report(&[path]);
        assert_eq!(ended.code(), 1, "{}", ended.stderr);
        assert_eq!(ended.stdout, "");
        assert!(ended.stderr.contains(&format!("jeprobe: error: cannot read the profile {path}")), "{}", ended.stderr);
        assert!(ended.stderr.contains(place), "{place:?} is missing in {}", ended.stderr);
    }
    let missing = report(&["/no/such/file.heap"]);
    assert_eq!(missing.code(), 1);
    assert!(missing.stderr.contains("cannot read /no/such/file.heap"), "{}", missing.stderr);
}

#[test]
fn folded_stacks_and_the_graph_hold_every_byte() {
    let run = |args: &[&str]| Run::new(artefact::command()).dir(fixture("")).arg("flamegraph").args(args).finish();
    let folded = run(&["--folded", "./leak", "hand.heap"]).ok();
    assert_eq!(folded.stdout, "main;big_user;leaf 3638089\nmain;small_user;leaf 5248002\n");
    let graph = run(&["./leak", "hand.heap"]).ok();
    assert!(graph.stdout.starts_with("<?xml") && graph.stdout.trim_end().ends_with("</svg>"), "{}", graph.stdout);
    for text in ["Heap: bytes in use", "hand.heap: 8.5 MiB", "8,886,091 bytes", "small_user"] {
        assert!(graph.stdout.contains(text), "{text:?} is missing in the picture");
    }
    let nothing = run(&["--focus=zzz", "./leak", "hand.heap"]).ok();
    assert!(nothing.stdout.contains("nothing to show"), "{}", nothing.stdout);
}

#[test]
fn a_million_stacks_are_reported_in_bounded_time() {
    let directory = TempDir::new("report-million");
    let heap = directory.path().join("a.heap");
    let mut text = String::from("heap_v2/1024\n");
    for stack in 0..1_000_000_u64 {
        use std::fmt::Write as _;
        let _infallible = writeln!(
            text,
            "@ {:#x} {:#x} 0x401281\n  t*: 1: {} [0: 0]",
            stack % 1000,
            stack / 1000 + 0x10000,
            stack % 900 + 8
        );
    }
    text.push_str("\nMAPPED_LIBRARIES:\n");
    fs::write(&heap, text).expect("a file can be written");
    // The time limit of the harness is the bound.
    let ended = report(&["-n", "3", "./leak", heap.to_str().expect("a UTF-8 path")]).ok();
    assert_eq!(ended.stdout.lines().count(), 4, "{}", ended.stdout);
}
