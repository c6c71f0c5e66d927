//! Large profiles within a limit of memory that grows with the distinct stacks, not with the file.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use jeprobe_tests::{Ended, Run, TempDir, artefact, skip};

const PRLIMIT: &str = "/usr/bin/prlimit";
/// What the commands take without a profile, and a limit of their threads' stacks and buffers.
const BASE_MIB: u64 = 96;

/// Runs a command with at most this much writable memory.
fn within(mib: u64, program: PathBuf, args: &[&str], profile: &Path) -> Ended {
    let limit = format!("--data={}", mib << 20);
    let run = Run::new(PRLIMIT).arg(limit).arg(program).args(args).arg(profile).env("MALLOC_ARENA_MAX", "2");
    run.finish().ok()
}

/// Writes stacks of `depth` frames: `distinct` ones, in turn.
fn write_stacks(path: &Path, records: u64, distinct: u64, depth: u64) {
    let mut out = BufWriter::with_capacity(1 << 20, File::create(path).expect("a temporary file"));
    writeln!(out, "heap_v2/1\n  t*: 1: 1 [0: 0]").expect("written");
    let mut line = String::new();
    for record in 0..records {
        line.clear();
        line.push('@');
        for level in 0..depth {
            let site = ((record % distinct) >> (8 * level)) & 0xff;
            let _ = write!(line, " {:#x}", 0x7f00_0000_0000 + level * 0x1_0000 + site * 16);
        }
        writeln!(out, "{line}\n  t*: 1: 1024 [0: 0]\n  t7: 1: 1024 [0: 0]").expect("written");
    }
    writeln!(out, "\nMAPPED_LIBRARIES:\n00400000-00401000 r-xp 00000000 fe:00 12 /bin/true").expect("written");
    out.flush().expect("written");
}

#[test]
fn memory_grows_with_distinct_stacks() {
    if !Path::new(PRLIMIT).exists() {
        skip!("no prlimit");
    }
    let directory = TempDir::new("huge");
    let profile = directory.join("huge.heap");
    // 48 MB of text; the sum is 400,000 KiB either way.
    for (distinct, mib) in [(1_000, BASE_MIB), (400_000, BASE_MIB + 200)] {
        write_stacks(&profile, 400_000, distinct, 6);
        let text = within(mib, artefact::jeprof(), &["--text", "/bin/true"], &profile).stdout;
        assert!(text.starts_with("Total: 390.6 MB\n"), "{}", &text[..text.len().min(300)]);
        let text = within(mib + 100, artefact::command(), &["report", "--top=3"], &profile).stdout;
        assert!(text.starts_with("Total: 390.6 MiB\n"), "{}", &text[..text.len().min(300)]);
    }
}

#[test]
fn memory_that_is_refused_is_said() {
    if !Path::new(PRLIMIT).exists() {
        skip!("no prlimit");
    }
    let directory = TempDir::new("refused");
    let profile = directory.join("refused.heap");
    write_stacks(&profile, 300_000, 300_000, 6);
    for (program, args, name) in
        [(artefact::jeprof(), &["--text", "/bin/true"][..], "jeprof"), (artefact::command(), &["report"], "jeprobe")]
    {
        let by_variable =
            Run::new(program.clone()).args(args).arg(&profile).env("JEPROBE_MEMORY_LIMIT", "24M").finish();
        let by_others = Run::new(PRLIMIT).arg("--data=25165824").arg(program).args(args).arg(&profile).finish();
        for limited in [by_variable, by_others] {
            assert_eq!((limited.code(), limited.stdout.as_str()), (1, ""), "{limited}");
            let said = limited.stderr.lines().rev().nth(1).unwrap_or_default();
            assert!(said.starts_with(&format!("{name}: error: out of memory")), "{limited}");
            assert!(said.contains(" reading ") && said.contains("refused.heap: "), "{limited}");
            assert!(said.ends_with(" MiB more were refused; the limit is 24 MiB"), "{limited}");
            assert!(
                limited.stderr.lines().last().is_some_and(|hint| hint.starts_with("hint: memory grows with ")),
                "{limited}"
            );
        }
    }
}

#[test]
fn a_hundred_thousand_mappings_are_read_through() {
    if !Path::new(PRLIMIT).exists() {
        skip!("no prlimit");
    }
    let directory = TempDir::new("mappings");
    let profile = directory.join("mappings.heap");
    let mut text = String::from("heap_v2/1\n@ 0x401000 0x10000b4b0801\n  t*: 1: 1024 [0: 0]\n\nMAPPED_LIBRARIES:\n");
    for number in 0..100_000_u64 {
        let start = 0x1000_0000_0000 + number * 0x2000;
        let _ = writeln!(text, "{start:x}-{:x} r-xp 00000000 08:01 9 /nowhere/lib{}.so", start + 0x1000, number % 50);
    }
    // As many files, each with a stack: time must not grow with the square.
    let mut many = String::from("heap_v2/1\n");
    for number in 0..100_000_u64 {
        let address = 0x1000_0000_0010 + number * 0x2000;
        let _ = writeln!(many, "@ {address:#x}\n  t*: 1: 1024 [0: 0]");
    }
    many.push_str("\nMAPPED_LIBRARIES:\n");
    for number in 0..100_000_u64 {
        let start = 0x1000_0000_0000 + number * 0x2000;
        let _ = writeln!(many, "{start:x}-{:x} r-xp 00000000 08:01 9 /nowhere/lib{number}.so", start + 0x1000);
    }
    let files = directory.join("files.heap");
    std::fs::write(&files, many).expect("a temporary file");
    let ours = within(BASE_MIB + 128, artefact::command(), &["report", "--show_bytes", "--top=1"], &files);
    assert!(ours.stdout.starts_with("Total: 102400000 B\n"), "{}", ours.stdout);
    std::fs::write(&profile, text).expect("a temporary file");
    let ours = within(BASE_MIB + 64, artefact::jeprof(), &["--text", "--show_bytes", "/bin/true"], &profile);
    assert!(ours.stdout.starts_with("Total: 1024 B\n"), "{}", ours.stdout);
    // Each file once, and not for each of its mappings.
    assert!(ours.stderr.lines().count() < 100, "{}", ours.stderr);
    let ours = within(BASE_MIB + 64, artefact::command(), &["report", "--show_bytes"], &profile);
    assert!(ours.stdout.starts_with("Total: 1024 B\n"), "{}", ours.stdout);
    assert!(ours.stdout.contains("lib28.so+0x"), "{}", ours.stdout);
}
