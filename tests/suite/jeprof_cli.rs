//! `jeprof`'s command line: messages, streams, exit codes, and what is ours alone.

use std::fs;
use std::path::PathBuf;

use jeprobe_tests::oracle::{is_installed, ours, same, theirs};
use jeprobe_tests::{Run, TempDir, artefact, skip};

fn report() -> PathBuf {
    artefact::fixture("report")
}

/// Lines of stderr that name what is wrong: all but the usage text.
fn message(stderr: &str) -> Vec<String> {
    let lines: Vec<String> = stderr.lines().map(ToOwned::to_owned).collect();
    match lines.iter().position(|line| line == "Usage:") {
        Some(usage) => {
            let mut kept = lines[..usage].to_vec();
            kept.extend(lines.last().cloned());
            kept
        }
        None => lines,
    }
}

#[test]
fn wrong_command_lines_are_refused_in_the_same_words() {
    if !is_installed() {
        skip!("no perl jeprof");
    }
    for line in [
        "",
        "--text",
        "--text ./leak",
        "--text --dot ./leak hand.heap",
        "--list=x --text ./leak hand.heap",
        "--text --lines --files ./leak hand.heap",
        "--inuse_space --alloc_space ./leak hand.heap",
        "--heap --text ./leak hand.heap",
        "--te ./leak hand.heap",
        "--no ./leak hand.heap",
        "--nodecount=x --text ./leak hand.heap",
        "--nodefraction=1. --text ./leak hand.heap",
        "--focus= --text ./leak hand.heap",
        "--text=3 ./leak hand.heap",
        "--noheapcheck --text ./leak hand.heap",
        "--bogus --bogus2=3 --text ./leak hand.heap",
        "--text ./leak --focus",
        "--lines ../jeprof/sym.prof",
        "--disasm=x ../jeprof/sym.prof",
        "--text ./nosuch hand.heap",
        "--text ./leak ../jeprof/sym.prof",
    ] {
        let args: Vec<&str> = line.split(' ').filter(|word| !word.is_empty()).collect();
        let (got, wanted) = (ours(&report(), &args, ""), theirs(&report(), &args, ""));
        assert_eq!(message(&got.stderr), message(&wanted.stderr), "{line}");
        assert_eq!((got.code(), &got.stdout), (wanted.code(), &wanted.stdout), "{line}");
    }
}

#[test]
fn options_are_spelled_in_many_ways() {
    if !is_installed() {
        skip!("no perl jeprof");
    }
    for line in [
        "-text -show_bytes ./leak hand.heap",
        "+text ./leak hand.heap",
        "./leak --TEXT hand.heap --show_b",
        "--nod=3 --text ./leak hand.heap",
        "--notext --dot ./leak hand.heap",
        "--no-text --collapsed ./leak hand.heap",
        "--text -- ./leak hand.heap",
        "--focus big --text ./leak hand.heap",
        "--text --noshow_bytes ./leak hand.heap",
    ] {
        same(&report(), &line.split(' ').collect::<Vec<_>>());
    }
}

#[test]
fn words_on_stderr_are_the_originals() {
    if !is_installed() {
        skip!("no perl jeprof");
    }
    for line in [
        "--text ./leak hand.heap",
        "--text ./leak hand.heap hand_base.heap",
        "--text ./leak hand.heap hand_base.heap leak.heap",
        "--text ./leak goog_v2.heap",
        "--text ./leak goog_v1.heap",
        "--text ./leak goog_old.heap",
        "--dot ./leak leak.heap",
        "--dot --focus=zzz ./leak hand.heap",
        "--test",
        "--text ../jeprof/sym.prof",
        "--text ./leak ../jeprof/v3.heap",
    ] {
        let args: Vec<&str> = line.split(' ').collect();
        let (got, wanted) = (ours(&report(), &args, ""), theirs(&report(), &args, ""));
        // Several profiles are read by several processes of the original.
        let sorted = |text: &str| {
            let mut lines: Vec<String> = text.lines().map(ToOwned::to_owned).collect();
            lines.sort();
            lines
        };
        assert_eq!(sorted(&got.stderr), sorted(&wanted.stderr), "{line}");
        assert_eq!(got.code(), wanted.code(), "{line}");
    }
}

#[test]
fn help_and_version_come_first() {
    for (option, beginning) in [("--help", "Usage:\n"), ("--version", "jeprof (part of jeprobe ")] {
        let ended = ours(&report(), &[option, "--text", "--dot"], "");
        assert_eq!((ended.code(), ended.stderr.as_str()), (0, ""), "{option}");
        assert!(ended.stdout.starts_with(beginning), "{}", ended.stdout);
    }
}

#[test]
fn the_newer_version_differs_where_it_does() {
    let newer = |args: &[&str]| {
        Run::new(artefact::jeprof()).dir(report()).env("JEPROF_COMPAT", "5.3.1").args(args).finish().ok()
    };
    let two = ["--text", "--show_bytes", "--thread=7", "./leak", "hand.heap", "hand_base.heap"];
    assert!(ours(&report(), &two, "").stdout.starts_with("Total (t7): 829411 B\n"));
    let ended = newer(&two);
    assert_eq!(ended.stdout, "");
    assert!(!ended.stderr.contains("Dynamically gathered"), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("  jeprof \\\n    ./leak \\\n    hand_base.heap \\\n    hand.heap\n\n"),
        "{}",
        ended.stderr
    );
    let bad = Run::new(artefact::jeprof()).env("JEPROF_COMPAT", "5.2").arg("--test").finish();
    assert_eq!((bad.code(), bad.stderr.as_str()), (1, "JEPROF_COMPAT=5.2: only 5.3.0 and 5.3.1 are known\n"));
}

#[test]
fn raw_profiles_of_local_files_can_be_read_again() {
    let directory = TempDir::new("jeprof-raw");
    let raw = ours(&report(), &["--raw", "./leak", "hand.heap"], "").ok();
    fs::write(directory.join("raw"), &raw.stdout).expect("written");
    let direct = ours(&report(), &["--text", "--show_bytes", "./leak", "hand.heap"], "").ok();
    let again = ours(directory.path(), &["--text", "--show_bytes", "raw"], "").ok();
    assert_eq!(again.stdout, direct.stdout);
    let two = ours(&report(), &["--raw", "./leak", "hand.heap", "hand_base.heap"], "");
    assert_eq!(two.code(), 1);
    assert!(two.stderr.contains("--raw writes one profile, not 2"), "{}", two.stderr);
}

#[test]
fn interactive_output_is_redirected_and_failures_do_not_end_it() {
    let directory = TempDir::new("jeprof-interactive");
    let file = directory.join("top.txt");
    let commands = format!("top1 > {}\nlist (\ntop1\n", file.display());
    let ended = ours(&report(), &["--interactive", "--show_bytes", "./leak", "hand.heap"], &commands).ok();
    let expected = "Total: 8886091 B\n 8886091 100.0% 100.0%  8886091 100.0% leaf\n";
    assert_eq!(fs::read_to_string(file).expect("a file"), expected);
    assert_eq!(ended.stdout, format!("Total: 8886091 B\n{expected}"));
    assert!(ended.stderr.contains("not a regular expression"), "{}", ended.stderr);
}

#[test]
fn wrong_expressions_and_skipped_lines_are_told() {
    let ended = ours(&report(), &["--text", "--focus=(", "./leak", "hand.heap"], "");
    assert_eq!(ended.code(), 255, "{ended}");
    assert!(ended.stderr.contains("--focus: not a regular expression"), "{}", ended.stderr);
    let directory = TempDir::new("jeprof-skipped");
    fs::write(directory.join("cut"), "heap_v2/1\n@ 0x401175\n  t*: 2: 64 [2: 64]\n@ 0x401176\n  t*: 1: 3")
        .expect("written");
    let program = report().join("leak");
    let ended = ours(directory.path(), &["--text", program.to_str().expect("UTF-8"), "cut"], "").ok();
    assert!(ended.stderr.contains("cut:5: byte 52: 1 line here and below are no record"), "{}", ended.stderr);
}
