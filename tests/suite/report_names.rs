//! Names and lines of `jeprobe report`: those of `jeprof` on the same profile, and those of programs whose symbols lie
//! elsewhere or that are gone.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use jeprobe_tests::oracle::{profile_of, program};
use jeprobe_tests::target::find;
use jeprobe_tests::{Ended, Run, TempDir, artefact, skip};

pub(crate) const DEBIANS: &str = "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2";

fn report(directory: &Path, args: &[&str]) -> Ended {
    Run::new(artefact::command()).dir(directory).args(["report", "--show_bytes"]).args(args).finish().ok()
}

/// Rows `NAME FILE:LINE` with their flat and cumulative bytes.
fn rows(text: &str) -> BTreeMap<String, (i64, i64)> {
    let mut rows = BTreeMap::new();
    for line in text.lines().skip(1) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number =
            |at: usize| -> i64 { words[at].parse().unwrap_or_else(|_| panic!("a row of six columns: {line}")) };
        let name = words[5..].join(" ").replace(" (inline)", "");
        // binutils' discriminators split a line into several rows.
        let name = name.split(" (discriminator").next().unwrap_or_default();
        let row: &mut (i64, i64) = rows.entry(name.to_owned()).or_default();
        *row = (row.0 + number(0), row.1 + number(3));
    }
    rows
}

/// A tool that must succeed; what it printed.
pub(crate) fn tool(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output().unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(output.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().expect("a UTF-8 path")
}

/// A copy of a program with its profile, which has the program's build-id on record.
pub(crate) struct Recorded {
    pub(crate) directory: TempDir,
    pub(crate) program: PathBuf,
    pub(crate) build_id: String,
}

impl Recorded {
    pub(crate) fn new(source: &str, flags: &[&str]) -> Recorded {
        let made = program(source, &[flags, &["-Wl,--build-id"]].concat());
        let place = TempDir::new("report-names");
        let program = place.join("a program");
        fs::copy(made, &program).expect("copied");
        let notes = tool("readelf", &["-n", text(&program)]);
        let build_id =
            notes.split("Build ID: ").nth(1).and_then(|rest| rest.lines().next()).expect("a build-id").to_owned();
        let directory = profile_of(&program, Path::new(DEBIANS), "lg_prof_sample:0");
        let heap = directory.join("p.heap");
        let mut profile = fs::read_to_string(&heap).expect("text");
        let _infallible = write!(profile, "# jeprobe 1\n# build-id {build_id} {}\n# end\n", program.display());
        fs::write(&heap, profile).expect("written");
        fs::rename(&program, directory.join("a program")).expect("moved");
        let recorded = Recorded { program: directory.join("a program"), directory, build_id };
        drop(place);
        recorded
    }

    /// `DIR/xx/rest.debug` under a directory of debug files.
    fn debug_path(&self, directory: &str) -> PathBuf {
        let (first, rest) = self.build_id.split_at(2);
        self.directory.join(format!("{directory}/{first}/{rest}.debug"))
    }
}

#[test]
fn names_and_lines_are_jeprofs() {
    if !Path::new(DEBIANS).exists() {
        skip!("no libjemalloc2");
    }
    for (source, flags) in [
        ("report_sites.c", &["-O2", "-fno-omit-frame-pointer"][..]),
        ("report_sites.c", &["-O2", "-gdwarf-4", "-no-pie"]),
        ("exceptions.cc", &["-O2"]),
    ] {
        let name = program(source, flags);
        let directory = profile_of(Path::new(&name), Path::new(DEBIANS), "lg_prof_sample:0");
        let ours = rows(&report(directory.path(), &["--lines", &name, "p.heap"]).stdout);
        let theirs = Run::new(artefact::jeprof())
            .dir(directory.path())
            .args(["--text", "--show_bytes", "--lines", &name, "p.heap"])
            .finish()
            .ok();
        let theirs = rows(&theirs.stdout);
        let mut compared = 0;
        for (name, numbers) in theirs.iter().filter(|(name, _)| name.contains(&format!("{source}:"))) {
            assert_eq!(ours.get(name), Some(numbers), "{source}: {name}: {ours:#?}");
            compared += 1;
        }
        assert!(compared >= 2, "{source}: {theirs:#?}");
    }
}

#[test]
fn a_program_that_is_gone_is_named_by_its_debug_file() {
    if !Path::new(DEBIANS).exists() {
        skip!("no libjemalloc2");
    }
    let recorded = Recorded::new("report_sites.c", &["-O1", "-fno-omit-frame-pointer"]);
    let directory = recorded.directory.path();
    let gone = report(directory, &["p.heap"]);
    assert!(!gone.stdout.contains("site_small") && gone.stdout.contains("a program+0x"), "{gone}");
    let debug = recorded.debug_path("debug/.build-id");
    fs::create_dir_all(debug.parent().expect("a folder")).expect("made");
    tool("objcopy", &["--only-keep-debug", text(&recorded.program), text(&debug)]);
    let named = report(directory, &["--lines", "--debug-dir", "debug", "p.heap"]);
    let whole = report(directory, &["--lines", text(&recorded.program), "p.heap"]);
    assert!(whole.stdout.contains("site_small") && whole.stdout.contains("report_sites.c:"), "{whole}");
    assert_eq!(named.stdout, whole.stdout);
    // Debug information that says nothing but names.
    tool("objcopy", &["--strip-debug", text(&debug)]);
    let named = report(directory, &["--debug-dir", "debug/.build-id", "p.heap"]);
    assert!(named.stdout.contains("site_small"), "{named}");
}

/// The address and size of a function of a program.
fn symbol(program: &Path, name: &str) -> (u64, u64) {
    let listed = tool("nm", &["-S", text(program)]);
    let line = listed.lines().find(|line| line.ends_with(&format!(" {name}"))).unwrap_or_else(|| panic!("no {name}"));
    let mut words = line.split(' ');
    let mut number = || u64::from_str_radix(words.next().expect("address and size"), 16).expect("hexadecimal");
    (number(), number())
}

#[test]
fn symbol_files_of_other_tools_name_a_stripped_program() {
    if !Path::new(DEBIANS).exists() {
        skip!("no libjemalloc2");
    }
    let recorded = Recorded::new("report_sites.c", &["-O1", "-fno-omit-frame-pointer"]);
    let directory = recorded.directory.path();
    let program = text(&recorded.program);
    let (address, size) = symbol(&recorded.program, "site_small");
    let gsym = ["", "-22", "-14"].iter().find_map(|version| find(&format!("llvm-gsymutil{version}")));
    if let Some(gsymutil) = &gsym {
        fs::create_dir(directory.join("gsym")).expect("made");
        tool(text(gsymutil), &["--convert", program, "-o", text(&directory.join("gsym/a program.gsym"))]);
    }
    tool("objcopy", &["--strip-all", program]);
    let bare = report(directory, &[program, "p.heap"]);
    assert!(!bare.stdout.contains("site_small"), "{bare}");
    // Breakpad's identifier: the first 16 bytes, three numbers of them turned round.
    let id = &recorded.build_id;
    let turned = |range: std::ops::Range<usize>| -> String {
        range.step_by(2).rev().map(|at| id[at..at + 2].to_uppercase()).collect()
    };
    let guid = format!("{}{}{}{}0", turned(0..8), turned(8..12), turned(12..16), id[16..32].to_uppercase());
    let folder = directory.join("store/a program").join(&guid);
    fs::create_dir_all(&folder).expect("made");
    let sym = format!(
        "MODULE Linux x86_64 {guid} a program\nFILE 0 /src/of/site.c\nFUNC {address:x} {size:x} 0 site_small\n{address:x} {size:x} 77 0\n"
    );
    fs::write(folder.join("a program.sym"), sym).expect("written");
    let named = report(directory, &["--lines", "--debug-dir", "store", program, "p.heap"]);
    assert!(named.stdout.contains("site_small /src/of/site.c:77"), "{named}");
    if gsym.is_some() {
        let named = report(directory, &["--lines", "--debug-dir", "gsym", program, "p.heap"]);
        assert!(named.stdout.contains("site_small") && named.stdout.contains("report_sites.c:"), "{named}");
    }
}
