//! Names of code that a program made itself: node's functions, from the files that it writes for perf.

use std::fs;
use std::path::PathBuf;

use jeprobe_tests::target::find;
use jeprobe_tests::{Run, TempDir, artefact, skip};

const SCRIPT: &str = r"
const kept = [];
function grow() { const block = Buffer.alloc(60000); kept.push(block); return block.length; }
function handle(count) { let sum = 0; for (let i = 0; i < count; i++) sum += grow(); return sum; }
let sum = 0;
for (let i = 0; i < 40; i++) sum += handle(20);
console.log('ready', sum);
process.stdin.on('data', () => process.exit(0));
";

/// A list of functions in `/tmp`.
#[test]
fn functions_of_node_are_named_when_it_has_ended() {
    functions_are_named("--perf-basic-prof");
}

/// Records beside the program, with the code.
#[test]
fn functions_of_a_jitdump_are_named_when_it_is_gone() {
    functions_are_named("--perf-prof");
}

fn functions_are_named(option: &str) {
    let Some(node) = find("node") else { skip!("no node") };
    if artefact::library().is_none() {
        skip!("the C library's allocator has no profile");
    }
    let directory = TempDir::new("report-jit");
    let script = directory.join("leak.js");
    fs::write(&script, SCRIPT).expect("written");
    // It also writes a log where it is started.
    let mut target = Run::preloaded(node)
        .dir(directory.path())
        .conf("prof:true,prof_active:true,lg_prof_sample:15")
        .args([option, "--interpreted-frames-native-stack"])
        .arg(&script)
        .spawn();
    target.ready();
    let map = PathBuf::from(format!("/tmp/perf-{}.map", target.pid()));
    let pid = target.pid().to_string();
    let dump =
        Run::new(artefact::command()).dir(directory.path()).args(["dump", "--pid", &pid, "-o", "p.heap"]).finish();
    target.tell("end");
    target.finish().discard();
    let _not_written = fs::remove_file(&map);
    let _not_written = fs::remove_file(directory.join(format!("jit-{pid}.dump")));
    let dump = dump.ok();
    assert!(dump.stderr.contains("profile written"), "{dump}");
    let heap = fs::read_to_string(directory.join("p.heap")).expect("text");
    assert!(heap.lines().any(|line| line.starts_with("# jit ") && line.contains("grow ")), "no names in the profile");
    let report = |args: &[&str]| {
        Run::new(artefact::command()).dir(directory.path()).arg("report").args(args).arg("p.heap").finish().ok()
    };
    let table = report(&["--show_bytes", "--cum", "--lines"]);
    let row = table.stdout.lines().find(|line| line.contains(" grow ")).unwrap_or_else(|| panic!("no grow: {table}"));
    assert!(row.contains("leak.js:3"), "{row}");
    let cumulative: u64 = row.split_whitespace().nth(3).and_then(|bytes| bytes.parse().ok()).expect("bytes");
    assert!(cumulative > 30_000_000, "grow holds 48 MB: {row}");
    // What calls it is named as well, and reads back from the other forms.
    let folded = report(&["--format", "folded"]);
    assert!(folded.stdout.contains(";handle;grow;"), "{folded}");
}
