//! Options of `jeprof` that choose where names come from or whose behaviour is shown, each beside the original; and what
//! files and terminals make it say.

use std::fs;
use std::path::{Path, PathBuf};

use jeprobe_tests::oracle::{is_installed, newer, ours, profile_of, program, same, same_with, theirs};
use jeprobe_tests::target::find;
use jeprobe_tests::{Ended, Run, TempDir, artefact, skip};

const DEBIANS: &str = "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2";
const SHELL: &str = "/bin/sh";

fn report() -> PathBuf {
    artefact::fixture("report")
}

fn jeprof() -> PathBuf {
    artefact::fixture("jeprof")
}

fn words(line: &str) -> Vec<&str> {
    line.split(' ').filter(|word| !word.is_empty()).collect()
}

/// Lines of stderr that `is_wanted`, sorted: the original asks for files again and again.
fn said(ended: &Ended, is_wanted: impl Fn(&str) -> bool) -> Vec<String> {
    let mut lines: Vec<String> = ended.stderr.lines().filter(|line| is_wanted(line)).map(ToOwned::to_owned).collect();
    lines.sort();
    lines.dedup();
    lines
}

#[test]
fn a_library_that_is_named_on_the_command_line_has_names() {
    if !is_installed() {
        skip!("no perl jeprof");
    }
    // Both are mapped at fixed addresses, so code of the one lies where the other has some; added libraries come first.
    for line in [
        "--text --show_bytes --add_lib=./cpp ./leak hand.heap",
        "--text --show_bytes --lines --add_lib=./cpp ./leak hand.heap",
        "--collapsed --add_lib=./leak ./cpp hand.heap",
        "--list=main --add_lib=./leak ./cpp hand.heap",
        "--text --show_bytes --add_lib=./nosuch ./leak hand.heap",
        "--text --show_bytes --add_lib=hand.heap ./leak hand.heap",
    ] {
        same(&report(), &words(line));
    }
}

#[test]
fn debugging_information_is_found_by_build_id() {
    if !is_installed() || find("eu-readelf").is_none() || !Path::new(DEBIANS).exists() {
        skip!("no perl jeprof, no eu-readelf for it, or no libjemalloc2");
    }
    // The C library's debug file (libc6-dbg) is named by its build-id alone; a stack through it has other names then.
    let name = program("report_sites.c", &["-fno-omit-frame-pointer"]);
    let profile = profile_of(Path::new(&name), Path::new(DEBIANS), "lg_prof_sample:0");
    same(profile.path(), &["--lines", "--text", "--debug-syms-by-id", &name, "p.heap"]);
    let is_detail = |line: &str| {
        // The original looks for the debug file of a debug file, too.
        let of_debug_file = line.contains(" for /usr/lib/debug/");
        (line.starts_with("found debug") || line.starts_with("no debug") || line.get(16..17) == Some(":"))
            && !of_debug_file
    };
    for option in ["--debug-syms-by-id", "--nodebug-syms-by-id"] {
        let args = ["--text", "--debug", option, &name, "p.heap"];
        let (got, wanted) = (ours(profile.path(), &args, ""), theirs(profile.path(), &args, ""));
        assert_eq!((got.code(), &got.stdout), (wanted.code(), &wanted.stdout), "{option}");
        let details = said(&got, is_detail);
        assert!(details.len() > 3, "{got}");
        assert_eq!(details, said(&wanted, is_detail), "{option}");
        let by_id = got.stderr.contains("found debug symbol file /usr/lib/debug/.build-id/");
        assert_eq!(by_id, option == "--debug-syms-by-id", "{got}");
    }
}

#[test]
fn places_of_tools_are_taken_and_none_is_run() {
    if !is_installed() {
        skip!("no perl jeprof");
    }
    for line in [
        "--tools=/usr/bin/ --text ./leak hand.heap",
        "--tools=nm:/usr/bin/nm,addr2line:/usr/bin/addr2line,objdump:/usr/bin/objdump,c++filt:/usr/bin/c++filt --lines --text ./leak hand.heap",
    ] {
        same(&report(), &words(line));
    }
    // Where the original cannot go on, names do not depend on tools here.
    let plain = ours(&report(), &["--text", "./leak", "hand.heap"], "").ok();
    let none = Run::new(artefact::jeprof()).dir(report()).env("JEPROF_TOOLS", "/nosuch/").env("PATH", "/nosuch");
    let none = none.args(["--text", "--tools=/nosuch/", "./leak", "hand.heap"]).finish().ok();
    assert_eq!(none.stdout, plain.stdout);
}

/// Header lines, notes of readers, files that end early: what is said, in which words.
#[test]
fn files_are_commented_in_the_originals_words() {
    if !is_installed() {
        skip!("no perl jeprof");
    }
    let directory = TempDir::new("jeprof-notes");
    let program = report().join("leak");
    let program = program.to_str().expect("UTF-8");
    let heap = fs::read_to_string(report().join("hand.heap")).expect("a profile");
    let symbolized = fs::read_to_string(jeprof().join("sym.prof")).expect("a profile");
    let stack = "0x401175 0x4011c2 0x401280";
    for (name, text, options) in [
        ("warned", format!("%warn  half of it is missing\n%unknown command\n{heap}"), "--text --show_bytes"),
        ("commands", "%warn\n%nothing else\n".to_owned(), "--text"),
        ("empty", String::new(), "--text"),
        ("returns", heap.replace('\n', "\r\n"), "--text --show_bytes"),
        ("marked", format!("--- heap\n{heap}"), "--text --show_bytes"),
        ("unmarked", format!("--- growth\n{heap}"), "--text --show_bytes"),
        (
            "contention",
            format!(
                "--- contention:\nsampling period = 3\nms since reset = 1\ndiscarded samples = 2\nodd = 1\n28000 7 @ {stack}\n"
            ),
            "--text",
        ),
        ("old", format!("--- Stacks:\n5000000 7 @ {stack}\nslow release 7 by thread 3 @ {stack}\n"), "--text"),
        ("one", format!("--- contention:\ncycles/second = 1000\n500 @ {stack}\n"), "--text --contentions"),
        ("after", symbolized.replace("--- heap\n", "--- heap\n%warn late\n"), "--text"),
        ("binary", symbolized.replace("binary=", "odd=3\nbinary="), "--text"),
    ] {
        fs::write(directory.join(name), &text).expect("written");
        let with_program: &[&str] = if text.starts_with("--- symbol") { &[] } else { &[program] };
        let args = [&words(options)[..], with_program, &[name]].concat();
        same(directory.path(), &args);
        let (got, wanted) = (ours(directory.path(), &args, ""), theirs(directory.path(), &args, ""));
        // Not perl's own warnings, nor the tools' words, nor the place that ours adds.
        let is_jeprofs = |line: &str| {
            [" at /usr/bin/jeprof line ", "no record", ": byte "].iter().all(|other| !line.contains(other))
        };
        assert_eq!(said(&got, is_jeprofs), said(&wanted, is_jeprofs), "{name}");
    }
}

#[test]
fn a_frame_that_all_stacks_of_a_processor_profile_share_is_removed() {
    if !is_installed() {
        skip!("no perl jeprof");
    }
    let directory = TempDir::new("jeprof-cpu-shared");
    let mut profile: Vec<u8> = Vec::new();
    for word in
        [0_u64, 3, 0, 10_000, 0, 5, 3, 0x40_1175, 0x40_128a, 0x40_1214, 2, 3, 0x40_1170, 0x40_128a, 0x40_11c2, 0, 1, 0]
    {
        profile.extend(word.to_le_bytes());
    }
    fs::write(directory.join("cpu"), profile).expect("written");
    let program = report().join("leak");
    let args = ["--text", program.to_str().expect("UTF-8"), "cpu"];
    same(directory.path(), &args);
    let said = |ended: Ended| said(&ended, |line| line.starts_with("Removing"));
    let removed = said(ours(directory.path(), &args, ""));
    assert_eq!(removed.len(), 1, "{removed:?}");
    assert_eq!(removed, said(theirs(directory.path(), &args, "")));
}

#[test]
fn numbers_of_options_are_read_as_perl_reads_them() {
    if !is_installed() {
        skip!("no perl jeprof");
    }
    for line in [
        "--dot --nodecount=-1 ./leak hand.heap",
        "--dot --nodecount=2 --maxdegree=0 ./leak hand.heap",
        "--dot --nodefraction=1e-3 --edgefraction=.5 ./leak hand.heap",
        "--dot --nodefraction=0 --edgefraction=0 ./cpp cpp.heap",
        "--dot --maxdegree=1 ./cpp cpp.heap",
        "--text --scale=7 --seconds=3 ./leak hand.heap",
        "--text --thread= ./leak hand.heap",
        "--text --thread=7.0 ./leak hand.heap",
        "--text --thread=0x7 ./leak hand.heap",
        "--dot --thread=7 ./leak hand.heap",
        "--collapsed --thread=* ./leak hand.heap",
        "--callgrind --thread=7 ./leak hand.heap",
        "--list=leaf --thread=7 ./leak hand.heap",
        "--text --heapcheck ./leak hand.heap",
    ] {
        same(&report(), &words(line));
    }
}

#[test]
fn what_is_left_of_nothing_is_zero() {
    if !is_installed() {
        skip!("no perl jeprof");
    }
    same_with(&report(), &["--interactive", "./leak", "hand.heap"], "gv nosuch\nevince leaf -leaf\ntop3 -.\n");
}

#[test]
fn the_newer_version_is_the_newer_script() {
    let Some(script) = newer() else {
        skip!("no jeprof 5.3.1: cargo xtask deps fetches it");
    };
    // A program whose frames have the names that only the newer one takes for the allocator's.
    let directory = TempDir::new("jeprof-newer");
    let source = "#include <stdlib.h>\n\
        __attribute__((noinline)) void *imalloc_body(int n) { return malloc(n); }\n\
        __attribute__((noinline)) void *prof_alloc_prep(int n) { void *p = imalloc_body(n); __asm__(\"\" : : \"r\"(p)); return p; }\n\
        __attribute__((noinline)) void *own(int n) { void *p = prof_alloc_prep(n); __asm__(\"\" : : \"r\"(p)); return p; }\n\
        int main(void) { for (int i = 0; i < 9; i++) own(100); return 0; }\n";
    fs::write(directory.join("own.c"), source).expect("written");
    Run::new("cc")
        .dir(directory.path())
        .args(words("-g -O1 -fno-omit-frame-pointer -no-pie own.c -o own"))
        .finish()
        .ok()
        .discard();
    let symbols = Run::new("nm").dir(directory.path()).arg("own").finish().ok().stdout;
    let address = |name: &str| {
        let line = symbols.lines().find(|line| line.ends_with(&format!(" {name}"))).expect("a symbol");
        u64::from_str_radix(&line[..16], 16).expect("an address") + 6
    };
    let stack = |names: &[&str]| {
        let addresses: Vec<String> = names.iter().map(|name| format!("{:#x}", address(name))).collect();
        addresses.join(" ")
    };
    let here = directory.path().canonicalize().expect("a path");
    let heap = |more: &str| {
        format!(
            "heap_v2/1\n  t*: 2: 300 [0: 0]\n@ {}\n  t*: 1: 100 [0: 0]\n  t1: 1: 100 [0: 0]\n@ {}\n  t*: 1: 200 [0: 0]\n  t2: 1: 200 [0: 0]\n\n\
             MAPPED_LIBRARIES:\n{more}",
            stack(&["imalloc_body", "prof_alloc_prep", "own", "main"]),
            stack(&["own", "main"])
        )
    };
    let cooked = format!("00400000-00402000: {}/own\n00700000-00701000: /l/libx.dylib\n", here.display());
    fs::write(directory.join("a.heap"), heap("")).expect("written");
    fs::write(directory.join("b.heap"), heap(&cooked)).expect("written");
    let run = |program: &Path, args: &[&str]| {
        Run::new(program).dir(directory.path()).env("JEPROF_COMPAT", "5.3.1").args(args).finish()
    };
    for line in [
        "--text --show_bytes ./own a.heap",
        "--text --show_bytes ./own b.heap",
        "--text --show_bytes ./own a.heap b.heap",
        "--text --show_bytes --thread=* ./own a.heap b.heap",
        "--text --show_bytes --base=a.heap ./own b.heap",
        "--list=own ./own b.heap",
    ] {
        let (got, wanted) = (run(&artefact::jeprof(), &words(line)), run(&script, &words(line)));
        assert_eq!((got.code(), &got.stdout), (wanted.code(), &wanted.stdout), "{line}\n{}", got.stderr);
        let own = |line: &str| !line.starts_with("Using local") && !line.contains("libx.dylib");
        assert_eq!(said(&got, own), said(&wanted, own), "{line}");
    }
    let plain = run(&artefact::jeprof(), &["--text", "--show_bytes", "./own", "a.heap"]);
    assert!(!plain.stdout.contains("prof_alloc_prep"), "{plain}");
    let older = ours(directory.path(), &["--text", "--show_bytes", "./own", "a.heap"], "");
    assert!(older.stdout.contains("prof_alloc_prep"), "{older}");
    // The recorded profiles: C++ names with blanks before them stay in view.
    for line in ["--text --show_bytes ./cpp cpp.heap", "--dot ./cpp cpp.heap", "--text ./mix mix_unbias_true.heap"] {
        let run =
            |program: &Path| Run::new(program).dir(report()).env("JEPROF_COMPAT", "5.3.1").args(words(line)).finish();
        let sorted = |text: &str| {
            let mut lines: Vec<String> = text.lines().map(ToOwned::to_owned).collect();
            lines.sort();
            lines
        };
        assert_eq!(sorted(&run(&artefact::jeprof()).stdout), sorted(&run(&script).stdout), "{line}");
    }
}

/// A command on a terminal of its own; the next line of `keys` is typed whenever it asks for one.
fn on_terminal(home: &Path, keys: &str) -> String {
    let terminal = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/terminal.py");
    Run::new("/usr/bin/python3")
        .dir(report())
        .env("HOME", home)
        .env("TERM", "xterm")
        // What the editor sends when it begins to read a line.
        .env("TERMINAL_PROMPT", "\u{1b}[?2004h")
        .env("TERMINAL_KEYS", keys)
        .arg(terminal)
        .arg("100")
        .arg(artefact::jeprof())
        .args(["--show_bytes", "./leak", "hand.heap"])
        .finish()
        .ok()
        .stdout
}

#[test]
fn on_a_terminal_commands_are_read_edited_and_remembered() {
    if !Path::new("/usr/bin/python3").exists() {
        skip!("no python3 to make a terminal");
    }
    let home = TempDir::new("jeprof-home");
    // A typing error is taken back, then the line before is fetched again; a signal by key ends no session.
    let shown = on_terminal(home.path(), "topp\u{7f}1\n\u{1b}[A\n\u{3}\nquit\n");
    assert!(shown.contains("Welcome to jeprof!"), "{shown}");
    assert_eq!(shown.matches(" 8886091 100.0% 100.0%  8886091 100.0% leaf").count(), 2, "{shown}");
    let history = fs::read_to_string(home.join(".jeprof_history")).expect("a history");
    assert!(history.lines().any(|line| line == "top1"), "{history}");
    // The next session has it.
    let shown = on_terminal(home.path(), "\u{1b}[A\u{1b}[A\n\u{4}");
    assert_eq!(shown.matches("100.0% leaf").count(), 1, "{shown}");
}

#[test]
fn a_closed_stdout_ends_it_in_silence() {
    let command = format!("'{}' --callgrind ./cpp cpp.heap | true; exit 0", artefact::jeprof().display());
    let ended = Run::new(SHELL).dir(report()).args(["-c", &command]).finish().ok();
    assert!(!ended.stderr.contains("write"), "{ended}");
}
