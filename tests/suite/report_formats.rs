//! Formats of `jeprobe report`: every one is read again by a reader that shares no code with the command
//! (`programs/totals.py`), and all agree on the totals.

use std::fs;
use std::path::{Path, PathBuf};

use jeprobe_tests::{Ended, Run, TempDir, artefact, skip};

fn fixture(name: &str) -> PathBuf {
    artefact::fixture("report").join(name)
}

fn report(args: &[&str]) -> Ended {
    Run::new(artefact::command()).dir(fixture("")).arg("report").args(args).finish()
}

/// What the independent reader finds in a file.
fn totals(format: &str, file: &Path) -> Vec<(String, i64)> {
    let reader = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/totals.py");
    let ended = Run::new("/usr/bin/python3").arg(reader).arg(format).arg(file).finish();
    assert_eq!(ended.code(), 0, "{format}: {ended}");
    let parse = |line: &str| {
        let (key, value) = line.split_once(" = ").unwrap_or_else(|| panic!("KEY = VALUE: {line}"));
        (key.to_owned(), value.parse().expect("a whole number"))
    };
    ended.stdout.lines().map(parse).collect()
}

/// The number under one of the names.
#[track_caller]
fn number(totals: &[(String, i64)], names: &[&str]) -> i64 {
    let found = totals.iter().find(|(key, _)| names.contains(&key.as_str()));
    found.unwrap_or_else(|| panic!("none of {names:?} in {totals:?}")).1
}

#[test]
fn totals_are_equal_in_every_format() {
    if !Path::new("/usr/bin/python3").exists() {
        skip!("no python3");
    }
    let directory = TempDir::new("report-formats");
    for inputs in [
        &["./leak", "hand.heap"][..],
        &["./leak", "goog_v2.heap"],
        &["./leak", "goog_v1.heap"],
        &["./cpp", "cpp.heap"],
        &["./mix", "mix_unbias_true.heap"],
        &["./threads", "threads.2.heap"],
        &["./leak", "hand_base.heap", "hand.heap"],
        &["./leak", "stackless.heap"],
    ] {
        let write = |format: &str, value: &str| {
            let file = directory.path().join(format!("{}.{value}.{format}", inputs[1]));
            let output = file.to_str().expect("a UTF-8 path");
            let option = format!("--{value}");
            let print = ["--show_bytes", &option, "--format", format, "-o", output];
            let ended = report(&[&print[..], inputs].concat());
            assert_eq!((ended.code(), ended.stdout.as_str()), (0, ""), "{ended}");
            totals(format, &file)
        };
        // The form with every digit.
        let known = write("json", "inuse_space");
        for format in ["speedscope", "callgrind", "pprof", "otlp"] {
            for (value, found) in write(format, "inuse_space") {
                assert_eq!(found, number(&known, &[&value]), "{inputs:?}: {value} in {format}");
            }
        }
        // Whole counts of the file are what readers scale, so a heap file may be off by half an object.
        let heap = directory.path().join(format!("{}.sym", inputs[1]));
        let output = heap.to_str().expect("a UTF-8 path");
        let symbolize = Run::new(artefact::command()).dir(fixture("")).arg("symbolize").args(inputs);
        symbolize.args(["-o", output]).finish().ok().discard();
        for (value, found) in totals("heap", &heap) {
            let known = number(&known, &[&value]);
            // Uniform sampling is none of heap_v2's: half of one of its few counted objects is lost on the way.
            let slack = if inputs[1] == "goog_v1.heap" { known / 40 } else { 1 + known / 10_000 };
            assert!((found - known).abs() <= slack, "{inputs:?}: {value} in a heap file {found}, {known}");
        }
        for value in ["inuse_space", "alloc_objects"] {
            for format in ["text", "tree", "csv", "folded"] {
                let found = number(&write(format, value), &["shown"]);
                assert_eq!(found, number(&known, &[value]), "{inputs:?}: {value} in {format}");
            }
        }
    }
}

#[test]
fn members_of_json_stand_in_their_documented_order() {
    let json = report(&["--format", "json", "--base", "hand_base.heap", "./leak", "hand.heap"]).stdout;
    let inside = |from: &str, to: char| {
        json.split_once(from).and_then(|(_, rest)| rest.split_once(to)).unwrap_or_else(|| panic!("{from}: {json}")).0
    };
    let readme = fs::read_to_string(artefact::root().join("userspace/README.md")).expect("readable");
    let listed = readme.split_once("The members of `json`").expect("a list of members").1;
    let listed =
        listed.lines().skip_while(|line| !line.starts_with("|---")).skip(1).take_while(|line| line.starts_with('|'));
    let members = listed.flat_map(|row| row.split('|').nth(1).unwrap_or_default().split(','));
    let members: Vec<&str> = members.map(|member| member.trim().trim_matches('`')).collect();
    assert!(members.len() >= 19, "{members:?}");
    let mut rest = json.as_str();
    for member in &members {
        let after = rest.split_once(&format!("\"{member}\":"));
        rest = after.unwrap_or_else(|| panic!("{member} does not follow those before it: {members:?}: {json}")).1;
    }
    let columns: Vec<&str> = inside("\"columns\":[", ']').split(',').map(|name| name.trim_matches('"')).collect();
    let totals: Vec<(&str, f64)> = inside("\"totals\":{", '}')
        .split(',')
        .map(|total| total.split_once(':').expect("a member"))
        .map(|(name, number)| (name.trim_matches('"'), number.parse().expect("a number")))
        .collect();
    assert_eq!(columns, totals.iter().map(|total| total.0).collect::<Vec<_>>());
    let mut sums = [0.0; 4];
    for numbers in json.split("\"numbers\":[").skip(1) {
        let numbers = numbers.split(']').next().expect("a list").split(',');
        sums.iter_mut().zip(numbers).for_each(|(sum, number)| *sum += number.parse::<f64>().expect("a number"));
    }
    for (sum, (name, total)) in sums.iter().zip(&totals) {
        assert!((sum - total).abs() < 1e-3, "{name}: {sum} is not {total}");
    }
    assert!((sums[0] - sums[1]).abs() > 1.0, "bytes and objects differ: {json}");
}

#[test]
fn the_files_name_chooses_the_format() {
    let directory = TempDir::new("report-names");
    for (name, begins) in [
        ("a.json", "{\"schema\":\"jeprobe-report\""),
        ("a.speedscope.json", "{\"$schema\":\"https://www.speedscope.app/file-format-schema.json\""),
        ("a.csv", "function,flat_bytes,"),
        ("a.folded", "main;big_user;leaf 3638089\n"),
        ("a.callgrind", "# callgrind format\n"),
        ("a.dot", "digraph \"hand.heap: bytes in use\" {"),
        ("a.svg", "<?xml version"),
        ("a.pdf", "%PDF-"),
        ("a.html", "<!DOCTYPE html>"),
        ("a.txt", "Total: 8.5 MiB\n"),
    ] {
        let path = directory.path().join(name);
        report(&["-o", path.to_str().expect("a UTF-8 path"), "./leak", "hand.heap"]).ok().discard();
        let bytes = std::fs::read(&path).expect("written");
        let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(100)]);
        assert!(bytes.starts_with(begins.as_bytes()), "{name}: {shown}");
    }
}

/// Words on the pages of a PDF file.
fn text_of(pdf: &Path) -> String {
    Run::new("/usr/bin/pdftotext").arg(pdf).arg("-").finish().ok().stdout
}

#[test]
fn a_call_graph_as_pdf_holds_names_and_numbers() {
    if !Path::new("/usr/bin/pdftotext").exists() {
        skip!("no pdftotext (poppler-utils)");
    }
    let directory = TempDir::new("report-pdf");
    let path = directory.path().join("a.pdf");
    let output = path.to_str().expect("a UTF-8 path");
    report(&["-o", output, "./leak", "hand.heap"]).ok().discard();
    let text = text_of(&path);
    for part in ["hand.heap: bytes in use", "small_user", "8.5 MiB (100.0%)", "3.5 MiB"] {
        assert!(text.contains(part), "{part:?} is missing in {text}");
    }
    // Of a difference: what changed.
    report(&["-o", output, "--base", "hand_base.heap", "./leak", "hand.heap"]).ok().discard();
    assert!(text_of(&path).contains("big_user"), "{}", text_of(&path));
}

#[test]
fn graphviz_draws_where_it_is_asked_to() {
    if !Path::new("/usr/bin/dot").exists() {
        skip!("no dot (graphviz)");
    }
    let drawn = |format: &str| report(&["--layout", "dot", "--format", format, "./leak", "hand.heap"]);
    let svg = drawn("svg").ok().stdout;
    assert!(svg.contains("Generated by graphviz") && svg.contains(">small_user<") && svg.contains("</svg>"), "{svg}");
    let change = ["--layout", "dot", "--format", "svg", "--base", "hand_base.heap", "./leak", "hand.heap"];
    assert!(report(&change).ok().stdout.contains(">big_user<"));
    let directory = TempDir::new("report-layout");
    let path = directory.path().join("a.pdf");
    report(&["--layout", "dot", "-o", path.to_str().expect("a UTF-8 path"), "./leak", "hand.heap"]).ok().discard();
    assert!(std::fs::read(&path).expect("written").starts_with(b"%PDF-"));
    let text = drawn("text");
    assert_eq!(text.code(), 1, "{text}");
    assert!(text.stderr.contains("--layout dot draws the call graph as svg or pdf, not text"), "{text}");
    let run = Run::new(artefact::command()).dir(fixture("")).env("PATH", directory.path());
    let none = run.args(["report", "--layout", "dot", "--format", "svg", "./leak", "hand.heap"]).finish();
    assert_eq!((none.code(), none.stdout.as_str()), (1, ""), "{none}");
    for part in ["cannot run dot", "caused by: No such file", "hint: install graphviz, or leave --layout dot out"] {
        assert!(none.stderr.contains(part), "{none}");
    }
}

#[test]
fn callgrind_annotate_reads_the_callgrind_format() {
    let annotate = "/usr/bin/callgrind_annotate";
    if !Path::new(annotate).exists() {
        skip!("no {annotate}");
    }
    let directory = TempDir::new("report-callgrind");
    let path = directory.path().join("callgrind.out.1");
    report(&["-o", path.to_str().expect("a UTF-8 path"), "./leak", "hand.heap"]).ok().discard();
    let ended = Run::new(annotate).arg("--inclusive=yes").arg(&path).finish().ok();
    let row = |name: &str| ended.stdout.lines().find(|line| line.ends_with(name)).unwrap_or_default().to_owned();
    assert!(row("leak.c:main").trim_start().starts_with("8,886,091"), "{ended}");
    assert!(row("leak.c:small_user").trim_start().starts_with("5,248,001"), "{ended}");
}

#[test]
fn a_tree_keeps_the_calls_and_peek_both_sides() {
    let run = |locale: &str, more: &[&str]| {
        let run = Run::new(artefact::command()).dir(fixture("")).env("LC_ALL", locale);
        run.args(["report", "--format", "tree", "./leak", "hand.heap"]).args(more).finish().ok().stdout
    };
    let tree = "Total: 8.5 MiB\n     8.5 100.0%      0.0 main\n     5.0  59.1%      0.0 ├─ small_user\n     5.0  59.1%      \
                5.0 │  leaf\n     3.5  40.9%      0.0 └─ big_user\n     3.5  40.9%      3.5    leaf\n";
    assert_eq!(run("C.UTF-8", &[]), tree);
    let ascii = tree.replace("├─", "|-").replace("└─", "`-").replace('│', "|");
    assert_eq!(run("C", &[]), ascii, "a terminal of another character set shows no Unicode");
    let directory = TempDir::new("report-tree");
    let path = directory.join("tree.txt");
    run("C", &["-o", path.to_str().expect("a UTF-8 path")]);
    assert_eq!(fs::read_to_string(&path).expect("a file"), tree, "files are read elsewhere, too");
    let peek = report(&["--peek", "^small", "./leak", "hand.heap"]).ok();
    assert_eq!(
        peek.stdout,
        "small_user: 5.0 MiB (59.1%) in and below it, 0.0 MiB (0.0%) itself\n     5.0 100.0%   called by main\n     5.0 \
         100.0%   calls leaf\n"
    );
    let none = report(&["--peek", "nowhere", "./leak", "hand.heap"]).ok();
    assert!(none.stdout.is_empty() && none.stderr.contains("no function matches \"nowhere\""), "{none}");
}

#[test]
fn hidden_functions_give_what_they_hold_to_their_callers() {
    let hidden = report(&["--show_bytes", "--hide", "^leaf$", "./leak", "hand.heap"]).ok();
    assert!(hidden.stdout.contains(" 59.1%  59.1%  5248001  59.1% small_user\n"), "{hidden}");
    assert!(!hidden.stdout.contains("leaf"), "{hidden}");
    let shown = report(&["--show_bytes", "--show", "^(main|leaf)$", "./leak", "hand.heap"]).ok();
    assert_eq!(shown.stdout.lines().count(), 3, "{shown}");
    let sorted = report(&["--sort", "name", "--top", "2", "./leak", "hand.heap"]).ok();
    let names: Vec<_> = sorted.stdout.lines().skip(1).filter_map(|line| line.split_whitespace().last()).collect();
    assert_eq!(names, ["big_user", "leaf"]);
}

#[test]
fn a_terminal_gets_colours_a_pager_and_names_that_fit() {
    if !Path::new("/usr/bin/python3").exists() {
        skip!("no python3 to make a terminal");
    }
    let terminal = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/terminal.py");
    let on_terminal = |environment: &[(&str, &str)]| {
        let mut run = Run::new("/usr/bin/python3").dir(fixture("")).arg(&terminal).arg("40").arg(artefact::command());
        run = run.env("LC_ALL", "C.UTF-8");
        for (key, value) in environment {
            run = run.env(key, value);
        }
        run.args(["report", "--lines", "./leak", "hand.heap"]).finish().ok()
    };
    let paged = on_terminal(&[("PAGER", "sed s/^/paged:/"), ("TERM", "xterm")]);
    assert!(paged.stdout.contains("paged:\u{1b}[1mTotal: 8.5 MiB\u{1b}[0m"), "{paged}");
    let missing = on_terminal(&[("PAGER", "/proc/no-pager"), ("TERM", "xterm")]);
    assert!(missing.stdout.contains("Total: 8.5 MiB"), "{missing}");
    let failing = on_terminal(&[("PAGER", "exit 3"), ("TERM", "xterm")]);
    assert!(failing.stdout.contains("the pager `exit 3` failed (exit status: 3)"), "{failing}");
    assert!(failing.stdout.contains("Total: 8.5 MiB"), "{failing}");
    let dumb = on_terminal(&[("PAGER", "sed s/^/paged:/"), ("TERM", "dumb")]);
    assert!(dumb.stdout.contains("Total: 8.5 MiB") && !dumb.stdout.contains("paged:"), "{dumb}");
    let plain = on_terminal(&[("PAGER", "cat"), ("TERM", "xterm"), ("NO_COLOR", "1")]);
    assert!(plain.stdout.contains("Total: 8.5 MiB") && !plain.stdout.contains('\u{1b}'), "{plain}");
    // The pager marked every line, and cut names leave no line longer than the terminal.
    assert!(plain.stdout.lines().any(|line| line.contains('…')), "{plain}");
    let forced = report(&["--color", "always", "./leak", "hand.heap"]).ok();
    assert!(forced.stdout.starts_with("\u{1b}[1mTotal"), "{forced}");
}

#[test]
fn what_is_no_profile_is_refused_with_advice() {
    for (args, error, hint) in [
        (&["./leak"][..], "no profile given, only the program ./leak", "name a profile after it: ./leak FILE.heap"),
        (&["."], "cannot read .", "name the files in it: ./*.heap"),
        (&["./nowhere.heap"], "cannot read ./nowhere.heap", "take a profile with: jeprobe dump --pid P"),
        (&["hand.heap", "./leak"], "cannot read the profile ./leak", "one program may be named, before the profiles"),
        (&["-", "-"], "standard input can be read once", "write one of them to a file"),
    ] {
        let ended = report(args);
        assert_eq!((ended.code(), ended.stdout.as_str()), (1, ""), "{ended}");
        assert!(ended.stderr.contains(error) && ended.stderr.contains(hint), "{ended}");
    }
}
