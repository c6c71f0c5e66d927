//! Where results of the analysing commands go, what is refused before anything is written, and what is said of options and
//! patterns that do nothing; stacks that are not there.

use std::fs;
use std::path::{Path, PathBuf};

use jeprobe_tests::{Ended, Run, TempDir, artefact, skip};

fn fixture(name: &str) -> PathBuf {
    artefact::fixture("report").join(name)
}

/// A directory with the profiles that may be overwritten.
fn directory() -> TempDir {
    let directory = TempDir::new("report-results");
    for name in ["leak", "hand.heap", "hand_base.heap", "stackless.heap"] {
        fs::copy(fixture(name), directory.path().join(name)).expect("writable");
    }
    directory
}

fn run(directory: &TempDir, args: &[&str]) -> Ended {
    Run::new(artefact::command()).dir(directory.path()).args(args).finish()
}

/// Refused with these words, and no file was written or changed.
#[track_caller]
fn refused(directory: &TempDir, args: &[&str], words: &[&str]) {
    let state = || -> Vec<(PathBuf, Vec<u8>)> {
        let entries = fs::read_dir(directory.path()).expect("readable").map(|entry| entry.expect("entry").path());
        let mut files: Vec<_> = entries.map(|path| (path.clone(), fs::read(path).expect("a file"))).collect();
        files.sort();
        files
    };
    let before = state();
    let ended = run(directory, args);
    assert_eq!((ended.code(), ended.stdout.as_str()), (1, ""), "{args:?}: {ended}");
    for word in words {
        assert!(ended.stderr.contains(word), "{args:?}: {word:?} is missing in {ended}");
    }
    assert!(state() == before, "{args:?} changed a file");
}

#[test]
fn no_result_replaces_what_is_read() {
    let directory = directory();
    fs::hard_link(directory.path().join("hand.heap"), directory.path().join("link.json")).expect("a link");
    for args in [
        &["report", "./leak", "hand.heap", "-o", "link.json"][..],
        &["report", "--format", "text", "./leak", "hand.heap", "-o", "./hand.heap"],
        &["report", "--base", "hand.heap", "hand_base.heap", "-o", "link.json"],
        &["merge", "a=hand.heap", "hand_base.heap", "-o", "hand.heap"],
        &["symbolize", "./leak", "hand.heap", "-o", "hand.heap"],
        &["diff", "--format", "csv", "hand_base.heap", "hand.heap", "-o", "hand.heap"],
    ] {
        refused(&directory, args, &["is read here, and would be replaced", "hint: name another file with -o"]);
    }
    // One name for two results.
    let twice = ["run", "-o", "x", "--flamegraph", "./x", "--", "true"];
    refused(&directory, &twice, &["is named for the profile and for the flame graph"]);
}

#[test]
fn names_stand_for_forms_or_are_refused() {
    let directory = directory();
    for (args, words) in [
        (
            &["report", "./leak", "hand.heap", "-o", "a.png"][..],
            "cannot be written as a.png\nhint: end the name with .txt, .json",
        ),
        (
            &["flamegraph", "hand.heap", "-o", "f.pdf"],
            ".svg, .html or .folded; .pdf is for call graphs: jeprobe report",
        ),
        (&["flamegraph", "--folded", "hand.heap", "-o", "f.svg"], "cannot be written as f.svg"),
        (&["timeline", "hand_base.heap", "hand.heap", "-o", "t.png"], "hint: end the name with .svg, .pdf or .html"),
        (&["run", "-o", "x.pb.gz", "--", "true"], "jeprobe report FILE.heap -o x.pb.gz"),
        (&["run", "--flamegraph", "x.pdf", "--", "true"], "a flame graph cannot be written as x.pdf"),
        (&["report", "--tags", "hand.heap", "-o", "x.json"], "--tags is printed as text, not as json"),
        (&["report", "--peek", "main", "--format", "csv", "hand.heap"], "--peek is printed as text, not as csv"),
    ] {
        refused(&directory, args, &[words]);
    }
    for (args, file, begins) in [
        (&["flamegraph", "hand.heap", "-o", "f.html"][..], "f.html", "<!DOCTYPE html>"),
        (&["flamegraph", "./leak", "hand.heap", "-o", "f.folded"], "f.folded", "main;big_user;leaf 3638089\n"),
        (&["timeline", "hand_base.heap", "hand.heap", "-o", "t.html"], "t.html", "<!DOCTYPE html>"),
        (&["timeline", "hand_base.heap", "hand.heap", "-o", "t.pdf"], "t.pdf", "%PDF-"),
        (&["report", "--tags", "--format", "text", "hand.heap", "-o", "tags.txt"], "tags.txt", "thread: 8.5 MiB\n"),
    ] {
        run(&directory, args).ok().discard();
        let bytes = fs::read(directory.path().join(file)).expect("written");
        assert!(bytes.starts_with(begins.as_bytes()), "{args:?}");
        assert!(!String::from_utf8_lossy(&bytes).contains("src=\"http"), "{args:?} needs the network");
    }
    for args in [&["report", "./leak", "hand.heap", "-o", "-"][..], &["merge", "hand.heap", "-o", "-"]] {
        let ended = run(&directory, args).ok();
        assert!(ended.stdout.contains("Total: 8.5 MiB") || ended.stdout.starts_with("heap_v2/"), "{ended}");
    }
    assert!(!directory.path().join("-").exists(), "standard output has no file");
}

#[test]
fn options_without_effect_are_named() {
    let directory = directory();
    for (args, words) in [
        (
            &["--format", "tree", "--sort", "cum"][..],
            "--sort has no effect on tree; it has on text, csv, json and html",
        ),
        (&["--format", "folded", "--top", "3"], "--top has no effect on folded"),
        (&["--format", "csv", "--all-edges"], "--all-edges has no effect on csv; it has on call graphs"),
        (&["--format", "pprof", "--lines"], "--lines has no effect on pprof"),
        (&["--format", "svg", "--show_bytes"], "--show_bytes has no effect on svg"),
        (&["--format", "svg", "--base", "hand_base.heap", "--top", "3"], "--top has no effect on a flame graph"),
        (&["--format", "callgrind", "--inuse_objects"], "the choice of a value has no effect on callgrind"),
        (&["--peek", "main", "--cum"], "--cum has no effect on --peek"),
        (&["--sort", "name", "--cum"], "--sort has no effect beside --cum"),
        (&["--format", "csv", "--show_bytes"], "--show_bytes has no effect on csv; it has on text, tree, dot"),
    ] {
        let ended = run(&directory, &[&["report"], args, &["./leak", "hand.heap", "-o", "/dev/null"]].concat());
        assert!(ended.code() == 0 && ended.stderr.contains(words), "{args:?}: {ended}");
    }
    for args in [&["--folded"][..], &["-o", "f.folded"]] {
        let ended = run(&directory, &[&["flamegraph", "--icicle"], args, &["./leak", "hand.heap"]].concat()).ok();
        assert!(ended.stderr.contains("--icicle has no effect on folded; it has on pictures"), "{args:?}: {ended}");
    }
    for args in [
        &["--sort", "name", "--top", "1", "--lines", "--show_bytes"][..],
        &["--format", "dot", "--all-edges", "--top", "3"],
    ] {
        let ended = run(&directory, &[&["report"], args, &["./leak", "hand.heap"]].concat());
        assert!(!ended.stderr.contains("no effect"), "{args:?}: {ended}");
    }
}

#[test]
fn patterns_that_find_nothing_are_named() {
    let directory = directory();
    for option in ["--focus", "--ignore", "--hide", "--show"] {
        let what = if matches!(option, "--focus" | "--ignore") { "stack" } else { "function" };
        for command in [&["report"][..], &["flamegraph", "-o", "/dev/null"], &["diff", "hand_base.heap"]] {
            let ended = run(&directory, &[command, &[option, "nowhere", "hand.heap"]].concat());
            let words = format!("jeprobe: warning: no {what} matches {option} \"nowhere\"\n");
            assert!(ended.stderr.contains(&words), "{command:?} {option}: {ended}");
            assert_eq!(ended.code(), 0, "{command:?} {option}: {ended}");
        }
    }
    let both = run(&directory, &["report", "--focus", "big", "--ignore", "main", "./leak", "hand.heap"]).ok();
    assert!(both.stderr.contains("--focus and --ignore together leave no stack"), "{both}");
    let found = run(&directory, &["report", "--focus", "big", "--hide", "leaf", "./leak", "hand.heap"]);
    assert!(!found.stderr.contains("matches"), "{found}");
    // What was hidden on purpose is no lost stack.
    let hidden = run(&directory, &["report", "--show", "big_user", "./leak", "stackless.heap"]).ok();
    assert!(hidden.stdout.contains("% [hidden]\n") && hidden.stdout.contains("% [no stack]\n"), "{hidden}");
}

#[test]
fn bytes_without_a_stack_are_a_row_of_every_form() {
    let directory = directory();
    let of = |args: &[&str]| run(&directory, &[args, &["./leak", "stackless.heap"]].concat()).ok().stdout;
    let text = of(&["report", "--show_bytes"]);
    assert!(text.contains(" 3638089  40.9% 100.0%  3638089  40.9% [no stack]\n"), "{text}");
    for format in ["tree", "csv", "json", "folded", "speedscope", "callgrind", "dot", "svg", "html"] {
        assert!(of(&["report", "--format", format]).contains("[no stack]"), "{format}");
    }
    assert!(of(&["report", "--peek", "no stack"]).starts_with("[no stack]: 3.5 MiB (40.9%)"));
    assert!(!of(&["report", "--ignore", r"\[no stack\]"]).contains("no stack"));
    assert!(of(&["flamegraph"]).contains("[no stack]"));
}

#[test]
fn heap_files_say_in_jeprofs_words_what_has_no_stack() {
    let jeprof = "/usr/bin/jeprof";
    if !Path::new(jeprof).exists() {
        skip!("no {jeprof}");
    }
    let directory = directory();
    run(&directory, &["merge", "stackless.heap", "-o", "m.heap"]).ok().discard();
    let original = Run::new(jeprof).dir(directory.path());
    let original = original.args(["--text", "--show_bytes", "./leak", "m.heap"]).finish().ok().stdout;
    let wanted = run(&directory, &["report", "--show_bytes", "./leak", "stackless.heap"]).ok().stdout;
    assert_eq!(original.replace("0x7fffffffffffffff", "[no stack]"), wanted);
    let own = Run::new(artefact::jeprof())
        .dir(directory.path())
        .args(["--text", "--show_bytes", "./leak", "m.heap"])
        .finish();
    assert_eq!(own.stdout, original);
    assert!(!own.stderr.contains("no record"), "{own}");
    assert_eq!(run(&directory, &["report", "--show_bytes", "./leak", "m.heap"]).ok().stdout, wanted);
}

#[test]
fn otlp_is_written_and_not_read() {
    let directory = directory();
    run(&directory, &["merge", "hand.heap", "-o", "m.otlp"]).ok().discard();
    refused(
        &directory,
        &["report", "m.otlp"],
        &["which is written and not read", "hint: read the heap file or .pb.gz"],
    );
}

#[test]
fn a_host_of_the_command_line_is_no_escape() {
    let directory = directory();
    run(&directory, &["merge", "\u{1b}[31mred=hand.heap", "-o", "m.heap"]).ok().discard();
    let tags = run(&directory, &["report", "--tags", "m.heap"]).ok();
    assert!(tags.stdout.contains(" \u{fffd}[31mred\n") && !tags.stdout.contains('\u{1b}'), "{tags}");
}

#[test]
fn counts_since_an_attachment_are_said_to_be() {
    let directory = directory();
    let heap = fs::read_to_string(fixture("hand.heap")).expect("readable")
        + "# jeprobe 1\n# config alloc_since=attach\n# end\n";
    fs::write(directory.path().join("attached.heap"), heap).expect("writable");
    let line = "allocated is what was live when the attachment began and what was allocated since";
    let of = |args: &[&str]| run(&directory, &[&["report"], args, &["./leak", "attached.heap"]].concat()).ok();
    assert!(of(&["--alloc_space"]).stderr.contains(line));
    assert!(!of(&[]).stderr.contains(line));
    assert!(of(&["--format", "json"]).stdout.contains("\"alloc_since\":\"attach\""));
    assert!(of(&["--alloc_space", "--format", "html"]).stdout.contains(line));
    let pprof = ["report", "--format", "pprof", "attached.heap", "-o", "a.pb.gz"];
    run(&directory, &pprof).ok().discard();
    let packed = directory.path().join("a.pb.gz");
    let unpacked = Run::new("/usr/bin/env").args(["gzip", "-dc"]).arg(packed).finish().ok();
    assert!(unpacked.stdout.contains(line), "no comment");
}

#[test]
fn names_that_end_in_gz_are_packed_and_every_reader_unpacks() {
    let directory = directory();
    let file = |name: &str| fs::read(directory.path().join(name)).expect("written");
    let ok = |args: &[&str]| run(&directory, args).ok();
    ok(&["merge", "hand.heap", "-o", "m.heap.gz"]).discard();
    ok(&["symbolize", "./leak", "hand.heap", "-o", "s.heap.gz"]).discard();
    ok(&["report", "./leak", "hand.heap", "-o", "r.pb.gz"]).discard();
    for (args, name, unpacked) in [
        (&["report", "./leak", "hand.heap", "-o", "r.folded.gz"][..], "r.folded.gz", "main;big_user;leaf 3638089\n"),
        (&["report", "./leak", "hand.heap", "-o", "r.json.gz"], "r.json.gz", "{\"schema\":\"jeprobe-report\""),
        (&["report", "./leak", "hand.heap", "-o", "r.gz"], "r.gz", "Total: 8.5 MiB\n"),
        (&["flamegraph", "./leak", "hand.heap", "-o", "f.folded.gz"], "f.folded.gz", "main;big_user;leaf 3638089\n"),
        (&["timeline", "m.heap.gz", "hand.heap", "-o", "t.svg.gz"], "t.svg.gz", "<?xml"),
        (&["diff", "m.heap.gz", "hand.heap", "-o", "d.csv.gz"], "d.csv.gz", "name,state,"),
    ] {
        ok(args).discard();
        assert!(file(name).starts_with(&[0x1f, 0x8b]), "{args:?}");
        let text = Run::new("/usr/bin/env").args(["gzip", "-dc"]).arg(directory.path().join(name)).finish().ok().stdout;
        assert!(text.starts_with(unpacked), "{args:?}: {}", &text[..text.len().min(200)]);
    }
    let wanted = ok(&["report", "--show_bytes", "./leak", "hand.heap"]).stdout;
    for name in ["m.heap.gz", "s.heap.gz"] {
        assert_eq!(ok(&["report", "--show_bytes", "./leak", name]).stdout, wanted, "{name}");
    }
    // Protobuf packs itself: not twice. It has whole numbers.
    assert_eq!(ok(&["report", "./leak", "r.pb.gz"]).stdout, ok(&["report", "./leak", "hand.heap"]).stdout);
    for (kind, directory_of) in [
        ("goog_v2.heap", "report"),
        ("goog_growth.heap", "report"),
        ("contention.prof", "jeprof"),
        ("sym.prof", "jeprof"),
    ] {
        fs::copy(artefact::fixture(directory_of).join(kind), directory.path().join(kind)).expect("writable");
        let plain = ok(&["report", kind]);
        Run::new("/usr/bin/env").args(["gzip", "-f"]).arg(directory.path().join(kind)).finish().ok().discard();
        let packed = ok(&["report", &format!("{kind}.gz")]);
        assert_eq!(packed.stdout, plain.stdout, "{kind}");
    }
}

#[test]
fn a_profile_of_nothing_is_a_result_of_every_command() {
    let directory = directory();
    fs::write(directory.path().join("empty.heap"), "heap_v2/524288\n  t*: 0: 0 [0: 0]\n\nMAPPED_LIBRARIES:\n")
        .expect("writable");
    for (args, shown) in [
        (&["report", "empty.heap"][..], "Total: 0.0 MiB\n"),
        (&["report", "--format", "tree", "empty.heap"], "Total: 0.0 MiB\n"),
        (&["report", "--format", "csv", "empty.heap"], "function,flat_bytes"),
        (&["report", "--format", "json", "empty.heap"], "\"rows\":[]"),
        (&["report", "--format", "html", "empty.heap"], "nothing to show"),
        (&["report", "--peek", "main", "empty.heap"], ""),
        (&["report", "--tags", "empty.heap"], ""),
        (&["diff", "empty.heap", "empty.heap"], "0 grown, 0 shrunk, 0 new, 0 gone\n"),
        (&["diff", "--format", "svg", "empty.heap", "empty.heap"], ">nothing to show<"),
        (&["diff", "--format", "svg", "hand.heap", "empty.heap"], "; nothing is left, widths are those of before<"),
        (&["flamegraph", "empty.heap"], ">nothing to show<"),
        (&["flamegraph", "--folded", "empty.heap"], ""),
        (&["flamegraph", "--base", "hand.heap", "empty.heap"], "; nothing is left, widths are those of before<"),
        (&["flamegraph", "--alloc_space", "empty.heap"], ">nothing to show<"),
        (&["timeline", "empty.heap", "empty.heap"], ">nothing to show<"),
        (&["merge", "empty.heap", "-o", "-"], "heap_v2/524288\n"),
        (&["symbolize", "empty.heap", "-o", "-"], "heap_v2/524288\n"),
    ] {
        let ended = run(&directory, args);
        assert_eq!(ended.code(), 0, "{args:?}: {ended}");
        assert!(ended.stdout.contains(shown), "{args:?}: {ended}");
        let why = if args.contains(&"--alloc_space") { "no cumulative counts" } else { "no live sampled memory: " };
        assert!(ended.stderr.contains(why), "{args:?}: {ended}");
    }
}

#[test]
fn a_series_says_what_its_numbers_rest_on() {
    let directory = directory();
    let heap = fs::read_to_string(fixture("hand.heap")).expect("readable");
    let noted = format!("{heap}# jeprobe 1\n# loss ring-full 3\n# note about 2.0 MiB were never sampled\n# end\n");
    fs::write(directory.path().join("noted.heap"), noted).expect("writable");
    let ended = run(&directory, &["timeline", "hand.heap", "noted.heap", "hand_base.heap"]).ok();
    for line in [
        "estimated from ",
        " bytes; standard error of a total ",
        "jeprobe: warning: noted.heap: lost: 3 ",
        "jeprobe: warning: noted.heap: about 2.0 MiB were never sampled\n",
    ] {
        assert!(ended.stderr.contains(line), "{line:?} is missing in {ended}");
    }
    for text in [">estimated from ", ">noted.heap: about 2.0 MiB were never sampled<"] {
        assert!(ended.stdout.contains(text), "{text:?} is missing in the picture");
    }
    assert!(ended.stderr.contains(" no name in hand.heap\n"), "{ended}");
}

#[test]
fn a_difference_says_how_far_it_may_be_off() {
    let directory = directory();
    for args in [
        &["diff", "hand_base.heap", "hand.heap"][..],
        &["report", "--base", "hand_base.heap", "hand.heap"],
        &["flamegraph", "--base", "hand_base.heap", "hand.heap"],
    ] {
        let ended = run(&directory, args).ok();
        for line in ["the old profile:\n", "the new profile:\n", "standard error of the difference: at most "] {
            assert!(ended.stderr.contains(line), "{args:?}: {line:?} is missing in {ended}");
        }
    }
    // Counts of what was allocated in one of them only: unknown is not 0.
    let heap = fs::read_to_string(fixture("hand.heap")).expect("readable");
    let without: String = heap
        .lines()
        .map(|line| match line.split_once(" [") {
            Some((live, _)) => format!("{live} [0: 0]\n"),
            None => format!("{line}\n"),
        })
        .collect();
    fs::write(directory.path().join("without.heap"), without).expect("writable");
    for args in [
        &["diff", "--alloc_space", "hand.heap", "without.heap"][..],
        &["report", "--alloc_space", "--base", "hand.heap", "without.heap"],
        &["flamegraph", "--alloc_space", "--base", "hand.heap", "without.heap"],
    ] {
        refused(
            &directory,
            args,
            &["the new profile has no cumulative counts, so what was allocated cannot be compared"],
        );
    }
}

#[test]
fn tags_know_the_processes_of_a_sum() {
    let directory = directory();
    let heap = fs::read_to_string(fixture("hand.heap")).expect("readable");
    for (name, pid) in [("one.heap", 7), ("two.heap", 8)] {
        let own = format!("{heap}# jeprobe 1\n# process {pid} /bin/x\n# end\n");
        fs::write(directory.path().join(name), own).expect("writable");
    }
    let summed = run(&directory, &["report", "--tags", "one.heap", "two.heap"]).ok();
    run(&directory, &["merge", "one.heap", "two.heap", "-o", "m.heap"]).ok().discard();
    let merged = run(&directory, &["report", "--tags", "m.heap"]).ok();
    assert_eq!(summed.stdout, merged.stdout);
    let shares = summed
        .stdout
        .lines()
        .filter(|line| line.contains("50.0%") && (line.ends_with(" 7 x") || line.ends_with(" 8 x")));
    assert_eq!(shares.count(), 2, "{summed}");
    // A number that is 0 is no label to pprof.
    run(&directory, &["report", "m.heap", "-o", "m.pb.gz"]).ok().discard();
    let again = run(&directory, &["report", "--tags", "m.pb.gz"]).ok();
    assert!(again.stdout.contains("thread: "), "{again}");
}

#[test]
fn json_tells_every_interval_and_the_error() {
    let directory = directory();
    let heap = fs::read_to_string(fixture("hand.heap")).expect("readable");
    let mixed = format!("{heap}# jeprobe 1\n# sampled live 90 1000000000000 256 524288\n# end\n");
    fs::write(directory.path().join("mixed.heap"), mixed).expect("writable");
    let ended = run(&directory, &["report", "--format", "json", "mixed.heap"]).ok();
    let wanted = "{\"value\":\"inuse_space\",\"samples\":90,\"standard_error\":1000000.0,\"finest_interval_bytes\":256,\
                  \"coarsest_interval_bytes\":524288}";
    assert!(ended.stdout.contains(wanted), "{}", &ended.stdout[..ended.stdout.len().min(2000)]);
    assert!(ended.stderr.contains("estimated from 90 samples, one per 256 to 524288 bytes; "), "{ended}");
}
