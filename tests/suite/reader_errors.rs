//! What the commands that read profiles say of input and options that they cannot use: what failed, on what, why, and what
//! to do.

use std::fs;
use std::path::Path;

use jeprobe_tests::{Ended, Run, TempDir, artefact};

fn jeprobe(directory: &Path, args: &[&str]) -> Ended {
    Run::new(artefact::command()).args(args).dir(directory).finish()
}

fn jeprof(directory: &Path, args: &[&str]) -> Ended {
    // A name that is no file is asked for on the network; there is none in a test.
    Run::new(artefact::jeprof()).args(args).dir(directory).env("JEPROF_TMPDIR", directory).finish()
}

/// A directory with some files to be read.
fn directory() -> TempDir {
    let directory = TempDir::new("reader-errors");
    let profile = fs::read(artefact::fixture("report/leak.heap")).expect("a fixture");
    let write = |name: &str, bytes: &[u8]| fs::write(directory.path().join(name), bytes).expect("written");
    write("good.heap", &profile);
    write("cut.heap", &profile[..700]);
    write("empty.heap", b"");
    write("junk.heap", b"\xff\xfe\x80\x81\x82\x83\x84\x85\x86");
    write("text.heap", b"root:x:0:0:root:/root:/bin/bash\n");
    directory
}

#[test]
fn options_that_cannot_be_used() {
    let directory = directory();
    for (args, error, hint) in [
        (
            &["report", "--focus", "(", "good.heap"][..],
            "cannot use the pattern \"(\": unclosed group",
            "put \\ before what shall stand for itself: \\( ",
        ),
        (
            &["report", "--sysroot", "nowhere", "good.heap"],
            "cannot use the directory nowhere of --sysroot\n  caused by: No such file or directory",
            "check the spelling",
        ),
        (
            &["report", "--debug-dir", "good.heap", "good.heap"],
            "cannot use the directory good.heap of --debug-dir\n  caused by: Not a directory",
            "check the spelling",
        ),
        (
            &["report", "--debuginfod", "debuginfod.example", "good.heap"],
            "\"debuginfod.example\" of --debuginfod is no address of a server",
            "name it with its protocol: --debuginfod https://HOST",
        ),
        (
            &["report", "good.heap/x"],
            "cannot read good.heap/x\n  caused by: Not a directory",
            "a part of the path is a file",
        ),
        (
            &["diff", "good.heap"],
            "two profiles are compared, the old and the new one; 1 given",
            "jeprobe diff OLD NEW; ",
        ),
        (&["timeline", "good.heap"], "growth needs at least two profiles, 1 given", "name them in the order of time"),
    ] {
        let ended = jeprobe(directory.path(), args);
        assert_eq!((ended.code(), ended.stdout.as_str()), (1, ""), "{ended}");
        assert!(ended.stderr.starts_with(&format!("jeprobe: error: {error}")), "{ended}");
        assert!(ended.stderr.contains(&format!("\nhint: {hint}")), "{ended}");
    }
    let size = Run::new(artefact::command()).args(["report", "good.heap"]).env("JEPROBE_MEMORY_LIMIT", "much");
    let ended = size.dir(directory.path()).finish();
    assert!(
        ended.code() == 1 && ended.stderr.contains("\"much\" of JEPROBE_MEMORY_LIMIT is no size\nhint: "),
        "{ended}"
    );
}

#[test]
fn what_never_ends_and_is_no_profile_is_refused_at_once() {
    let directory = directory();
    for script in ["\"$0\" report /dev/zero", "yes | \"$0\" report -", "yes | \"$0\" report /dev/stdin"] {
        let run = Run::new("/bin/sh").args(["-c", script]).arg(artefact::command()).dir(directory.path());
        // Read as a whole it would need more.
        let ended = run.env("JEPROBE_MEMORY_LIMIT", "64M").finish();
        assert_eq!((ended.code(), ended.stdout.as_str()), (1, ""), "{script}: {ended}");
        assert!(ended.stderr.starts_with("jeprobe: error: cannot read the profile "), "{script}: {ended}");
        assert!(ended.stderr.contains("\n  caused by: ") && ended.stderr.contains("\nhint: "), "{script}: {ended}");
    }
    let piped = Run::new("/bin/sh").args(["-c", "cat good.heap | \"$0\" report -"]).arg(artefact::command());
    piped.dir(directory.path()).finish().ok().discard();
}

#[test]
fn a_limit_of_file_sizes_is_an_error_and_no_signal() {
    let directory = directory();
    for (script, error) in [
        ("ulimit -f 1; exec \"$0\" report --format html good.heap -o page.html", "cannot write page.html"),
        ("ulimit -f 1; exec \"$0\" report --format html good.heap > page.html", "cannot write to standard output"),
    ] {
        let ended = Run::new("/bin/sh").args(["-c", script]).arg(artefact::command()).dir(directory.path()).finish();
        assert_eq!(ended.code(), 1, "{script}: {ended}");
        assert!(ended.stderr.contains(&format!("jeprobe: error: {error}\n  caused by: File too large")), "{ended}");
        assert!(ended.stderr.contains("\nhint: raise the limit of file sizes in the shell: ulimit -f"), "{ended}");
    }
}

#[test]
fn parts_of_a_sum_that_do_not_count_what_was_allocated_are_named() {
    let directory = directory();
    let counted = "heap_v2/1\n@ 0x10\n  t*: 1: 100 [2: 300]\n\nMAPPED_LIBRARIES:\n";
    fs::write(directory.join("counted.heap"), counted).expect("written");
    fs::write(directory.join("live.heap"), counted.replace("[2: 300]", "[0: 0]")).expect("written");
    let line = "what was ever allocated is without live.heap: no cumulative counts there";
    let sum = jeprobe(directory.path(), &["report", "--alloc_space", "counted.heap", "live.heap"]).ok();
    assert!(sum.stderr.contains(line), "{sum}");
    jeprobe(directory.path(), &["merge", "live.heap", "counted.heap", "-o", "sum.heap"]).ok().discard();
    let merged = jeprobe(directory.path(), &["report", "--alloc_space", "sum.heap"]).ok();
    assert!(merged.stderr.contains(line), "{merged}");
    let series = jeprobe(directory.path(), &["timeline", "--alloc_space", "live.heap", "counted.heap"]);
    assert_eq!((series.code(), series.stdout.as_str()), (1, ""), "{series}");
    assert!(series.stderr.contains("live.heap: no cumulative counts there"), "{series}");
    let focused = jeprobe(directory.path(), &["report", "--show_bytes", "--focus", "0x10", "counted.heap"]).ok();
    assert!(focused.stdout.contains(" 100.0% 0000000000000010\n"), "an address as the file has it: {focused}");
}

#[test]
fn files_that_are_no_profiles_say_what_they_are() {
    let directory = directory();
    jeprobe(directory.path(), &["report", "--format", "json", "good.heap", "-o", "x.json"]).ok().discard();
    let words: Vec<u8> = "heap_v2/1\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    fs::write(directory.join("wide.heap"), [vec![0xff, 0xfe], words].concat()).expect("written");
    for (args, hint) in [
        (&["report", "x.json"][..], "jeprobe writes that form and does not read it"),
        (&["report", "wide.heap"], "if it is a profile in UTF-16, convert it first"),
        (&["report", "/bin/true", "/bin/true", "good.heap"], "it is a program; one program may be named"),
    ] {
        let ended = jeprobe(directory.path(), args);
        assert_eq!((ended.code(), ended.stdout.as_str()), (1, ""), "{ended}");
        assert!(ended.stderr.contains(&format!("\nhint: {hint}")), "{ended}");
    }
}

#[test]
fn profiles_that_measure_other_things_are_no_series() {
    let directory = directory();
    let words = [0_u64, 3, 0, 10_000, 0, 5, 1, 0x40_1000, 0, 1, 0];
    let cpu: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    fs::write(directory.join("cpu.prof"), cpu).expect("written");
    let ended = jeprobe(directory.path(), &["timeline", "good.heap", "cpu.prof"]);
    assert_eq!((ended.code(), ended.stdout.as_str()), (1, ""), "{ended}");
    assert!(ended.stderr.contains("cpu.prof measures samples and cpu, the others objects and space"), "{ended}");
}

#[test]
fn a_difference_of_nothing_has_no_empty_headings() {
    let directory = directory();
    let ended = jeprobe(directory.path(), &["diff", "good.heap", "good.heap"]).ok();
    assert!(ended.stdout.contains("0 grown, 0 shrunk, 0 new, 0 gone"), "{ended}");
    assert!(!ended.stderr.contains("the old profile:"), "nothing is to be said of it: {ended}");
    assert!(ended.stderr.starts_with("the new profile:\nunresolved: "), "{ended}");
}

#[test]
fn jeprof_says_what_a_file_is_instead() {
    let directory = directory();
    for (name, words) in [
        ("empty.heap", "empty.heap:1: byte 0: the file is empty\n"),
        ("junk.heap", "junk.heap:1: byte 0: not a heap, growth, contention or CPU profile\n"),
        (
            "text.heap",
            "not a heap, growth, contention or CPU profile; it begins with \"root:x:0:0:root:/root:/bin/bash\"\n",
        ),
        (
            "nowhere.heap",
            "nowhere.heap: No such file or directory; what is no plain file is taken for the name of a server\n",
        ),
        (".", ".: is a directory; what is no plain file is taken for the name of a server\n"),
    ] {
        let ended = jeprof(directory.path(), &["--text", "/bin/true", name]);
        assert_eq!((ended.code(), ended.stdout.as_str()), (1, ""), "{ended}");
        assert!(ended.stderr.ends_with(words), "{ended}");
    }
    let cut = jeprof(directory.path(), &["--text", "/bin/true", "cut.heap"]).ok();
    assert!(
        cut.stderr.contains("cut.heap:13: byte 620: the file ends behind this stack and has no numbers of it"),
        "{cut}"
    );
}
