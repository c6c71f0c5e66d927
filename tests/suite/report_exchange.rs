//! Profiles across programs, builds and processes: `go tool pprof` and perl jeprof read what is written here, what they and
//! others write is read here, and comparing and merging finds equal code wherever it was mapped.

use std::fs;
use std::path::{Path, PathBuf};

use jeprobe_tests::{Ended, Run, TempDir, artefact, compile, skip};

use super::report_golden::equal_rows_by_name;
use super::report_names::tool;

const GO: &str = "/usr/bin/go";
const JEPROF: &str = "/usr/bin/jeprof";

fn fixture() -> PathBuf {
    artefact::fixture("report")
}

fn jeprobe(directory: &Path, args: &[&str]) -> Ended {
    Run::new(artefact::command()).dir(directory).args(args).finish()
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a UTF-8 path")
}

/// (name, flat, cumulative) of a table in bytes, sorted by name.
fn rows(table: &str) -> Vec<(String, i64, i64)> {
    let mut rows: Vec<_> = table
        .lines()
        .filter(|line| !line.starts_with("Total: "))
        .map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let number = |place: usize| words[place].parse().unwrap_or_else(|_| panic!("a row: {line:?}"));
            (words[5..].join(" "), number(0), number(3))
        })
        .collect();
    rows.sort();
    rows
}

/// Rows are equal but for whole numbers that a format has rounded.
#[track_caller]
fn assert_near(found: &str, wanted: &str) {
    let (found, wanted) = (rows(found), rows(wanted));
    let near = |a: i64, b: i64| (a - b).abs() <= 3;
    let same = found.len() == wanted.len()
        && found.iter().zip(&wanted).all(|(a, b)| a.0 == b.0 && near(a.1, b.1) && near(a.2, b.2));
    assert!(same, "found\n{found:#?}\nwanted\n{wanted:#?}");
}

/// The profile that a program leaves at its end.
fn profile_of(program: &Path, directory: &Path, name: &str) -> PathBuf {
    let prefix = directory.join(name);
    let conf = format!("prof:true,prof_final:true,prof_accum:true,lg_prof_sample:0,prof_prefix:{}", prefix.display());
    Run::preloaded(program).conf(&conf).finish().ok().discard();
    let is_ours = |path: &PathBuf| {
        path.file_name().is_some_and(|file| file.to_string_lossy().starts_with(&format!("{name}.")))
            && path.extension().is_some_and(|extension| extension == "heap")
    };
    let files = fs::read_dir(directory).expect("the directory is there");
    files.filter_map(Result::ok).map(|entry| entry.path()).find(is_ours).expect("prof_final leaves a profile")
}

#[test]
fn go_tool_pprof_reads_our_protobuf() {
    if !Path::new(GO).exists() {
        skip!("no {GO} (golang-go)");
    }
    let directory = TempDir::new("report-pprof");
    let pprof = |args: &[&str]| {
        let home = directory.path();
        Run::new(GO).dir(home).env("HOME", home).env("PPROF_TMPDIR", home).args(["tool", "pprof"]).args(args).finish()
    };
    let file = directory.path().join("cpp.pb.gz");
    jeprobe(&fixture(), &["report", "-o", text(&file), "./cpp", "cpp.heap"]).ok().discard();
    let top = pprof(&["-top", "-unit=B", "-nodefraction=0", text(&file)]).ok();
    let ours = jeprobe(&fixture(), &["report", "--show_bytes", "./cpp", "cpp.heap"]).ok();
    // pprof joins a function's inlined and other instances.
    let whole = rows(&ours.stdout).into_iter().filter(|row| !row.0.ends_with(" (inline)") && !row.0.contains('('));
    for (name, flat, cumulative) in whole {
        let row = top.stdout.lines().find(|line| line.ends_with(&format!("  {name}")));
        let row = row.unwrap_or_else(|| panic!("{name} is missing in {top}"));
        let words: Vec<&str> = row.split_whitespace().collect();
        let bytes = |word: &str| word.trim_end_matches('B').parse::<i64>().unwrap_or(0);
        assert_eq!((bytes(words[0]), bytes(words[3])), (flat, cumulative), "{name}: {row}");
    }
    let raw = pprof(&["-raw", text(&file)]).ok();
    for part in [
        "PeriodType: space bytes",
        "Period: 1\n",
        "inuse_space/bytes[dflt]",
        "app::Pool::grab",
        "thread:[",
        "[FN][FL][LN][IN]",
    ] {
        assert!(raw.stdout.contains(part), "{part:?} is missing in {raw}");
    }
    if Path::new("/usr/bin/dot").exists() {
        let svg = pprof(&["-svg", text(&file)]).ok();
        assert!(svg.stdout.contains("</svg>"), "{svg}");
    }
}

#[test]
fn go_tool_pprof_keeps_functions_of_rust_apart() {
    if !Path::new(GO).exists() {
        skip!("no {GO} (golang-go)");
    }
    let directory = TempDir::new("report-pprof-rust");
    let home = directory.path();
    let (named, file) = (home.join("named.heap"), home.join("r.pb.gz"));
    let profile = "--- symbol\nbinary=/opt/server\n0x0000000000401000 <a::Log as a::Store>::put\n\
                   0x0000000000402000 <a::Map as a::Store>::put\n---\n--- heap\nheap profile: 2: 3000 [0: 0] @ heap_v2/1\n\
                   1: 1000 [0: 0] @ 0x401000\n1: 2000 [0: 0] @ 0x402000\n";
    fs::write(&named, profile).expect("a profile");
    jeprobe(home, &["report", "-o", text(&file), text(&named)]).ok().discard();
    let pprof = Run::new(GO).dir(home).env("HOME", home).env("PPROF_TMPDIR", home);
    let top = pprof.args(["tool", "pprof", "-top", "-unit=B", "-nodefraction=0", text(&file)]).finish().ok();
    let row = |name: &str| top.stdout.lines().find(|line| line.ends_with(name)).map(str::trim_start);
    for (name, bytes) in [("  <a::Log as a::Store>::put", "1000B "), ("  <a::Map as a::Store>::put", "2000B ")] {
        assert!(row(name).is_some_and(|row| row.starts_with(bytes)), "{name}: {top}");
    }
}

#[test]
fn pprof_and_symbolized_profiles_print_as_the_original() {
    let directory = TempDir::new("report-again");
    for inputs in [["./cpp", "cpp.heap"], ["./leak", "hand.heap"], ["./mix", "mix_unbias_true.heap"]] {
        for options in [&["--show_bytes"][..], &["--show_bytes", "--lines"], &["--show_bytes", "--alloc_space"]] {
            let report = |files: &[&str]| jeprobe(&fixture(), &[&["report"], options, files].concat()).ok();
            let original = report(&inputs);
            let pprof = directory.path().join("a.pb.gz");
            jeprobe(&fixture(), &["report", "-o", text(&pprof), inputs[0], inputs[1]]).ok().discard();
            assert_near(&report(&[text(&pprof)]).stdout, &original.stdout);
            // Self-contained forms keep the allocator's frames, and are cut again when they are shown.
            for name in ["b.pb.gz", "b.sym"] {
                let file = directory.path().join(name);
                jeprobe(&fixture(), &["symbolize", inputs[0], inputs[1], "-o", text(&file)]).ok().discard();
                assert_near(&report(&[text(&file)]).stdout, &original.stdout);
            }
        }
    }
}

#[test]
fn perl_jeprof_reads_our_symbolized_profiles() {
    if !Path::new(JEPROF).exists() {
        skip!("no {JEPROF}");
    }
    if artefact::library().is_none() {
        skip!("the C library's allocator writes no profiles");
    }
    let directory = TempDir::new("report-symbolized");
    let program = compile::program("report_sites.c", &["-fno-omit-frame-pointer"]);
    let heap = profile_of(&program, directory.path(), "sites");
    for inputs in [&["./leak", "hand.heap"][..], &[text(&heap)]] {
        let file = directory.path().join("a.sym");
        jeprobe(&fixture(), &[&["symbolize"], inputs, &["-o", text(&file)]].concat()).ok().discard();
        let theirs = Run::new(JEPROF).args(["--text", "--show_bytes", text(&file)]).finish().ok();
        let ours = jeprobe(&fixture(), &["report", "--show_bytes", text(&file)]).ok();
        let total = |table: &str| table.lines().next().unwrap_or_default().to_owned();
        assert_eq!(total(&ours.stdout), total(&theirs.stdout));
        let wanted = rows(&theirs.stdout);
        let mut shared = 0;
        for (name, flat, cumulative) in rows(&ours.stdout) {
            if let Some((_, of, whole)) = wanted.iter().find(|row| row.0 == name) {
                shared += 1;
                assert!((flat - of).abs() <= 1 && (cumulative - whole).abs() <= 1, "{name}: {theirs} {ours}");
            }
        }
        assert!(shared >= 4, "{theirs} {ours}");
    }
}

#[test]
fn a_difference_matches_functions_of_another_build_at_the_same_path() {
    if artefact::library().is_none() {
        skip!("the C library's allocator writes no profiles");
    }
    let directory = TempDir::new("report-diff");
    let at = |name: &str| directory.path().join(name);
    let program = at("program");
    let (old, new) = (
        compile::program("report_sites.c", &["-fno-omit-frame-pointer", "-pie", "-fPIE", "-O0"]),
        compile::program("report_sites.c", &["-fno-omit-frame-pointer", "-pie", "-fPIE", "-O1"]),
    );
    fs::copy(&old, &program).expect("copied");
    let before = profile_of(&program, directory.path(), "before");
    let kept = at("before.sym");
    jeprobe(directory.path(), &["symbolize", text(&before), "-o", text(&kept)]).ok().discard();
    fs::remove_file(&program).expect("removed");
    fs::copy(&new, &program).expect("copied");
    let after = profile_of(&program, directory.path(), "after");
    // The same allocations in another address space, process and build: nothing of the program's changed.
    let same = jeprobe(directory.path(), &["diff", "--show_bytes", text(&kept), text(&after)]).ok();
    for function in ["site_small", "site_large", "caller_mixed"] {
        assert!(!same.stdout.lines().any(|line| line.ends_with(&format!(" {function}"))), "{same}");
    }
    assert!(
        same.stdout.contains("Total: ") && !same.stderr.contains("the old profile:"),
        "nothing is to be said of it: {same}"
    );
    // Without its names the old build is told apart, not taken for the new one.
    let apart = jeprobe(directory.path(), &["diff", "--show_bytes", text(&before), text(&after)]).ok();
    assert!(apart.stderr.contains("is another build"), "{apart}");
    // Everything is new against nothing.
    let empty = at("empty.heap");
    fs::write(&empty, "heap_v2/1\n\nMAPPED_LIBRARIES:\n# jeprobe 1\n# end\n").expect("written");
    let new = jeprobe(directory.path(), &["diff", "--show_bytes", text(&empty), text(&after)]).ok();
    assert!(new.stdout.contains(" new    site_small\n") && new.stdout.contains(" 0 gone\n"), "{new}");
    let gone = jeprobe(directory.path(), &["diff", "--show_bytes", text(&after), text(&empty)]).ok();
    assert!(
        gone.stdout.contains(" gone   site_small\n") && gone.stdout.contains("0 grown, 0 shrunk, 0 new,"),
        "{gone}"
    );
    let svg = jeprobe(directory.path(), &["diff", "--format", "svg", text(&empty), text(&after)]).ok();
    assert!(svg.stdout.contains("red grew, blue shrank") && svg.stdout.contains("site_small"), "{}", svg.stderr);
}

/// A profile of a program with two functions of one name, which start elsewhere with other code before them.
fn rebuilt(directory: &TempDir, name: &str, count: u32, before: &str) -> PathBuf {
    let place = directory.path().join(name);
    fs::create_dir(&place).expect("made");
    let part = |file: &str, text: String| {
        let path = place.join(file);
        fs::write(&path, text).expect("written");
        path
    };
    let other = part(
        "other.c",
        "#include <stdlib.h>\n\
         static __attribute__((noinline)) void *remember(long size) { return malloc(size); }\n\
         void *other(long size) { void *volatile kept = remember(size); return kept; }\n"
            .to_owned(),
    );
    let main = part(
        "main.c",
        format!(
            "#include <stdlib.h>\nvoid *other(long);\nvoid *kept[20];\n{before}\
             static __attribute__((noinline)) void *remember(long size) {{ return malloc(size); }}\n\
             int main(void) {{\n\
             for (int i = 0; i < {count}; i++) kept[i] = remember(98304);\nkept[19] = other(49152);\nreturn 0; }}\n"
        ),
    );
    let program = place.join("program");
    let flags = ["-fno-omit-frame-pointer", "-fno-optimize-sibling-calls", "-O1", "-fno-builtin", "-Wl,--build-id"];
    tool("cc", &[&flags[..], &[text(&main), text(&other), "-o", text(&program)]].concat());
    profile_of(&program, directory.path(), name)
}

#[test]
fn rows_of_two_builds_are_joined_by_name() {
    if artefact::library().is_none() {
        skip!("the C library's allocator writes no profiles");
    }
    let directory = TempDir::new("report-rebuilt");
    let old = rebuilt(&directory, "old", 5, "");
    let new = rebuilt(&directory, "new", 8, "void *unused(void) { return kept[3]; }\nint more(void) { return 7; }\n");
    let (old, new) = (text(&old), text(&new));
    let run = |args: &[&str]| jeprobe(directory.path(), args).ok().stdout;
    let named = |table: &str| -> Vec<(i64, i64)> {
        assert!(!table.contains("remember@"), "{table}");
        rows(table).iter().filter(|row| row.0 == "remember").map(|row| (row.1, row.2)).collect()
    };
    // One build alone tells its two apart.
    let alone = run(&["report", "--show_bytes", new]);
    assert_eq!(alone.lines().filter(|line| line.contains(" remember@")).count(), 2, "{alone}");
    // Both sizes are size classes.
    assert_eq!(named(&run(&["report", "--show_bytes", new, "--base", old])), [(3 * 98_304, 3 * 98_304)]);
    assert_eq!(
        named(&run(&["report", "--show_bytes", old, new])),
        [(13 * 98_304 + 2 * 49_152, 13 * 98_304 + 2 * 49_152)]
    );
    let folded = run(&["flamegraph", "--folded", new, "--base", old]);
    let line = format!("main;remember {} {}", 5 * 98_304, 8 * 98_304);
    assert!(folded.lines().any(|folded| folded.ends_with(&line)), "{folded}");
    assert!(!folded.contains("remember@"), "{folded}");
    // The old build's names, from the time when it was there.
    let kept = directory.path().join("old.sym");
    run(&["symbolize", old, "-o", text(&kept)]);
    assert_eq!(named(&run(&["report", "--show_bytes", new, "--base", text(&kept)])), [(3 * 98_304, 3 * 98_304)]);
}

#[test]
fn a_difference_of_nothing_is_a_total_of_nothing() {
    let same = jeprobe(&fixture(), &["report", "./leak", "hand.heap", "--base", "hand.heap"]).ok();
    assert_eq!(same.stdout, "Total: 0.0 MiB\n");
    let directory = TempDir::new("report-nothing");
    let empty = directory.path().join("empty.heap");
    fs::write(&empty, "heap_v2/1\n\nMAPPED_LIBRARIES:\n# jeprobe 1\n# end\n").expect("written");
    let nothing = jeprobe(&fixture(), &["diff", text(&empty), text(&empty)]).ok();
    assert!(nothing.stdout.starts_with("Total: 0.0 MiB before, 0.0 MiB after: 0.0 MiB\n"), "{nothing}");
    let bare = jeprobe(&fixture(), &["report", text(&empty)]).ok();
    assert_eq!(bare.stdout, "Total: 0.0 MiB\n", "as a tree and a difference say it");
}

#[test]
fn percentages_of_a_difference_are_jeprofs() {
    let args = ["--show_bytes", "--base", "hand.heap", "./leak", "hand_base.heap"];
    let ours = jeprobe(&fixture(), &[&["report"], &args[..]].concat()).ok().stdout;
    let jeprof = Run::new(artefact::jeprof()).dir(fixture()).arg("--text").args(args).finish().ok().stdout;
    assert!(ours.contains('-'), "something shrank: {ours}");
    assert_eq!(equal_rows_by_name(&ours), jeprof);
}

#[test]
fn a_difference_in_every_form() {
    let diff =
        |args: &[&str]| jeprobe(&fixture(), &[&["diff"], args, &["./leak", "hand_base.heap", "hand.heap"]].concat());
    let table = diff(&["--show_bytes"]).ok();
    assert_eq!(
        table.stdout.lines().next(),
        Some("Total: 6294912 B before, 8886091 B after: +2591179 B (+41.2%)"),
        "{table}"
    );
    assert!(table.stdout.ends_with("3 grown, 0 shrunk, 1 new, 0 gone\n"), "{table}");
    let folded = diff(&["--format", "folded"]).ok();
    assert_eq!(folded.stdout, "main 4195711 0\nmain;big_user;leaf 0 3638089\nmain;small_user;leaf 2099201 5248002\n");
    let csv = diff(&["--format", "csv"]).ok();
    assert!(csv.stdout.contains("\r\nbig_user,new,0,0,0,3638089\r\n"), "{csv}");
    for format in ["callgrind", "speedscope"] {
        let refused = diff(&["--format", format]);
        assert_eq!(refused.code(), 1);
        assert!(refused.stderr.contains(&format!("{format} has no negative numbers")), "{refused}");
    }
    let one = jeprobe(&fixture(), &["diff", "./leak", "hand.heap"]);
    assert!(one.code() == 1 && one.stderr.contains("two profiles are compared"), "{one}");
}

#[test]
fn go_tool_pprof_knows_what_a_difference_is_of() {
    if !Path::new(GO).exists() {
        skip!("no {GO} (golang-go)");
    }
    let directory = TempDir::new("report-pprof-diff");
    let file = directory.join("diff.pb.gz");
    jeprobe(&fixture(), &["diff", "./leak", "hand_base.heap", "hand.heap", "-o", text(&file)]).ok().discard();
    let run = Run::new(GO).dir(directory.path()).env("HOME", directory.path()).env("PPROF_TMPDIR", directory.path());
    let top = run.args(["tool", "pprof", "-top", "-unit=B", "-nodefraction=0", text(&file)]).finish().ok();
    // Of what was there before, as `pprof -diff_base` has it, and not of both sides together.
    assert!(top.stdout.contains("accounting for 2591179B, 41.16% of 6294912B total"), "{top}");
    let again = jeprobe(directory.path(), &["report", "--show_bytes", text(&file)]).ok();
    assert!(again.stdout.starts_with("Total: 2591179 B\n"), "{again}");
}

#[test]
fn texts_of_go_have_their_names() {
    if !Path::new(GO).exists() {
        skip!("no {GO} (golang-go)");
    }
    let directory = TempDir::new("report-go");
    let source = "package main\nimport (\n\t\"os\"\n\t\"runtime\"\n\t\"runtime/pprof\"\n)\nvar keep [][]byte\n\
                  func leaf(n int) []byte { return make([]byte, n) }\n\
                  func holder(n int) { keep = append(keep, leaf(n)) }\n\
                  func main() {\n\truntime.MemProfileRate = 4096\n\tfor i := 0; i < 4000; i++ { holder(3000) }\n\truntime.GC()\n\
                  \ttext, _ := os.Create(\"heap.txt\")\n\tpprof.Lookup(\"heap\").WriteTo(text, 1)\n\
                  \tpacked, _ := os.Create(\"heap.pb.gz\")\n\tpprof.Lookup(\"heap\").WriteTo(packed, 0)\n}\n";
    std::fs::write(directory.join("main.go"), source).expect("written");
    let run = Run::new(GO).dir(directory.path()).env("HOME", directory.path()).env("GO111MODULE", "off");
    run.args(["run", "main.go"]).finish().ok().discard();
    let report = |name: &str| jeprobe(directory.path(), &["report", name]).ok();
    let (plain, packed) = (report("heap.txt"), report("heap.pb.gz"));
    let row = |ended: &Ended, name: &str| {
        let row = ended.stdout.lines().find(|line| line.contains(name)).unwrap_or_else(|| panic!("{name}: {ended}"));
        row.split_whitespace().next().and_then(|flat| flat.parse::<f64>().ok()).expect("a number")
    };
    let (text, proto) = (row(&plain, " main.leaf"), row(&packed, " main.leaf"));
    assert!((text - proto).abs() <= 0.1 && text > 8.0, "as Go estimates it: {text} {proto}");
    assert!(!plain.stderr.contains("the file was cut short") && !plain.stderr.contains("not understood"), "{plain}");
    let lines = jeprobe(directory.path(), &["report", "--lines", "heap.txt"]).ok();
    assert!(lines.stdout.contains("main.go:8"), "{lines}");
}

#[test]
fn processes_and_hosts_are_merged_and_stay_known() {
    let directory = TempDir::new("report-merge");
    for name in ["merged.heap", "merged.pb.gz"] {
        let merged = directory.path().join(name);
        let args = ["merge", "web1=hand.heap", "web2=goog_v2.heap", "cpp.heap", "-o", text(&merged)];
        let ended = jeprobe(&fixture(), &args).ok();
        assert!(ended.stderr.contains("3 profiles merged into"), "{ended}");
        let total = |args: &[&str]| {
            let ended = jeprobe(&fixture(), &[&["report", "--show_bytes"], args].concat()).ok();
            let words: Vec<&str> = ended.stdout.split_whitespace().collect();
            words[1].parse::<i64>().expect("a total")
        };
        let parts = total(&["hand.heap"]) + total(&["goog_v2.heap"]) + total(&["cpp.heap"]);
        assert!((total(&[text(&merged)]) - parts).abs() <= 3, "{name}");
        let tags = jeprobe(&fixture(), &["report", "--tags", text(&merged)]).ok();
        for row in
            ["host: ", "% web1\n", "% web2\n", "% (none)\n", "process: ", "% cpp.heap\n", "thread: ", " main thread\n"]
        {
            assert!(tags.stdout.contains(row), "{name}: {row:?} is missing in {tags}");
        }
        let hosts = jeprobe(&fixture(), &["report", "--tags=host", text(&merged)]).ok();
        assert!(hosts.stdout.starts_with("host: ") && !hosts.stdout.contains("process: "), "{hosts}");
    }
    let one = directory.path().join("one.heap");
    let text_of_one = "heap_v2/1024\n@ 0x10\n  t*: 3: 3000 [0: 0]\n\nMAPPED_LIBRARIES:\n00001000-00002000 r-xp 00000000 00:00 1 \
                       /no/such/file\n# jeprobe 1\n# process 77 /usr/bin/server\n# end\n";
    std::fs::write(&one, text_of_one).expect("a file can be written");
    let tags = jeprobe(&fixture(), &["report", "--show_bytes", "--tags", text(&one)]).ok();
    assert!(tags.stdout.contains("process: ") && tags.stdout.contains("100.0% 77 server\n"), "{tags}");
    let none = jeprobe(&fixture(), &["report", "--tags=pod", "hand.heap"]).ok();
    assert!(none.stdout.is_empty() && none.stderr.contains("no label \"pod\""), "{none}");
}

#[test]
fn other_kinds_of_profiles_have_their_units() {
    let directory = TempDir::new("report-kinds");
    let contention = directory.path().join("contention");
    let body = "--- contention\ncycles/second = 1000000000\nsampling period = 1\n3000000000 3 @ 0x401175 0x4011c2\n";
    fs::write(&contention, body).expect("written");
    let waited = jeprobe(&fixture(), &["report", "./leak", text(&contention)]).ok();
    assert!(waited.stdout.starts_with("Total: 3.000 seconds\n"), "{waited}");
    let counted = jeprobe(&fixture(), &["report", "--inuse_objects", "./leak", text(&contention)]).ok();
    assert!(counted.stdout.starts_with("Total: 3 contentions\n") && counted.stdout.contains("leaf"), "{counted}");
    let refused =
        jeprobe(&fixture(), &["symbolize", "./leak", text(&contention), "-o", text(&directory.path().join("x"))]);
    assert!(refused.code() == 1 && refused.stderr.contains("not of a heap"), "{refused}");
    let pprof = directory.path().join("x.pb.gz");
    jeprobe(&fixture(), &["symbolize", "./leak", text(&contention), "-o", text(&pprof)]).ok().discard();
    let again = jeprobe(&fixture(), &["report", text(&pprof)]).ok();
    assert!(again.stdout.starts_with("Total: 3.000 seconds\n"), "{again}");
}

#[test]
fn every_form_has_the_units_of_the_profile() {
    let directory = TempDir::new("report-units");
    let contention = directory.path().join("contention.prof");
    let body = "--- contention:\ncycles/second = 1000000000\nsampling period = 1\n3000000000 3 @ 0x401175 0x4011c2\n";
    fs::write(&contention, body).expect("written");
    let contention = text(&contention);
    let run = |args: &[&str]| jeprobe(&fixture(), args).ok().stdout;
    let report = |form: &[&str]| run(&[&["report", "./leak", contention, "--format"], form].concat());
    for (made, words) in [
        (
            report(&["json"]),
            &[
                "\"value\":\"delay\"",
                "\"unit\":\"nanoseconds\"",
                "\"delay\":3000000000.0",
                "\"columns\":[\"delay\",\"contentions\"]",
            ][..],
        ),
        (report(&["csv"]), &["function,flat_nanoseconds,", ",3000000000,"]),
        (report(&["csv", "--inuse_objects"]), &["function,flat_contentions,", ",3,"]),
        (
            report(&["speedscope"]),
            &["\"name\":\"delay\",\"unit\":\"nanoseconds\"", "\"name\":\"contentions\",\"unit\":\"none\""],
        ),
        (report(&["callgrind"]), &["events: delay contentions\n"]),
        (report(&["svg"]), &["time waited for locks", "3.0 s"]),
        (report(&["html"]), &["time waited for locks", "<td>3.0 s</td>"]),
        (
            run(&["flamegraph", "./leak", contention]),
            &["Contention: time waited for locks", "contention.prof: 3.0 s", "3,000,000,000 nanoseconds"],
        ),
        (run(&["timeline", "./leak", contention, contention]), &["Contention: time waited for locks", "3.0 s"]),
    ] {
        for word in words {
            assert!(made.contains(word), "{word:?} is missing in {made}");
        }
        for wrong in ["estimated", "in use", "MiB", "GiB", "inuse", "alloc_space"] {
            assert!(!made.contains(wrong), "{wrong:?} is in {made}");
        }
    }
}

#[test]
fn damaged_protobuf_and_gzip_end_with_one_error() {
    let directory = TempDir::new("report-damaged");
    let whole = directory.path().join("whole.pb.gz");
    jeprobe(&fixture(), &["report", "-o", text(&whole), "./cpp", "cpp.heap"]).ok().discard();
    let bytes = fs::read(&whole).expect("written");
    let damaged = directory.path().join("damaged");
    for (content, message) in [
        (&bytes[..bytes.len() / 2], "cannot be unpacked"),
        (&[0x0a, 0x05, 1, 2][..], "a field of 5 bytes where 2 are left"),
        (&[0x12, 0x02, 0x08, 0x07][..], "names no sample type"),
        (&[0x1f, 0x8b, 8, 0][..], "cannot be unpacked"),
        (&[0, 0, 0, 0, 0, 0, 0, 0, 9][..], "not a CPU profile"),
    ] {
        fs::write(&damaged, content).expect("written");
        let ended = jeprobe(&fixture(), &["report", text(&damaged)]);
        assert_eq!((ended.code(), ended.stdout.as_str()), (1, ""), "{ended}");
        assert!(ended.stderr.contains(message), "{message:?} is missing in {ended}");
    }
}
