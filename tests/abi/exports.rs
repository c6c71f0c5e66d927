//! Exported names, and the notes that describe the probe sites.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use jeprobe_tests::artefact::{self, Flavour, flavour};
use jeprobe_tests::{compile, skip};

/// C functions of jemalloc 5.3.
const FUNCTIONS: &[&str] = &[
    "malloc",
    "calloc",
    "realloc",
    "free",
    "posix_memalign",
    "aligned_alloc",
    "memalign",
    "valloc",
    "malloc_usable_size",
    "mallocx",
    "rallocx",
    "xallocx",
    "sallocx",
    "dallocx",
    "sdallocx",
    "nallocx",
    "mallctl",
    "mallctlnametomib",
    "mallctlbymib",
];

/// C functions that 5.3.1 added.
const FUNCTIONS_531: &[&str] = &["free_sized", "free_aligned_sized", "pvalloc"];

/// Names of the C library besides the allocator's.
const OTHERS: &[&str] = &["dlopen"];

/// Exported only once it really prints; its absence is allowed, a stub is not.
const LATER: &[&str] = &["malloc_stats_print", "malloc_conf_2_conf_harder"];

const OPERATORS: &[&str] = &[
    "_Znwm",
    "_Znam",
    "_ZnwmRKSt9nothrow_t",
    "_ZnamRKSt9nothrow_t",
    "_ZnwmSt11align_val_t",
    "_ZnamSt11align_val_t",
    "_ZnwmSt11align_val_tRKSt9nothrow_t",
    "_ZnamSt11align_val_tRKSt9nothrow_t",
    "_ZdlPv",
    "_ZdaPv",
    "_ZdlPvRKSt9nothrow_t",
    "_ZdaPvRKSt9nothrow_t",
    "_ZdlPvm",
    "_ZdaPvm",
    "_ZdlPvSt11align_val_t",
    "_ZdaPvSt11align_val_t",
    "_ZdlPvSt11align_val_tRKSt9nothrow_t",
    "_ZdaPvSt11align_val_tRKSt9nothrow_t",
    "_ZdlPvmSt11align_val_t",
    "_ZdaPvmSt11align_val_t",
];

const DATA: &[&str] = &["malloc_conf", "malloc_message"];

const HOOKS: &[&str] = &["jeprobe_hook_alloc", "jeprobe_hook_free", "jeprobe_hook_dump", "jeprobe_hook_context"];

const OWN_DATA: &[&str] = &[
    "jeprobe_root",
    "jeprobe_alloc_semaphore",
    "jeprobe_free_semaphore",
    "jeprobe_dump_semaphore",
    "jeprobe_ctx_semaphore",
];

/// Dynamic symbols with their type letter as `nm` prints it.
fn exported(path: &Path) -> BTreeMap<String, char> {
    let text = output(Command::new("nm").args(["-D", "--defined-only"]).arg(path));
    text.lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace().skip(1);
            let kind = words.next()?.chars().next()?;
            Some((words.next()?.to_owned(), kind))
        })
        .collect()
}

fn output(command: &mut Command) -> String {
    let result = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(result.status.success(), "{command:?}: {}", String::from_utf8_lossy(&result.stderr));
    String::from_utf8_lossy(&result.stdout).into_owned()
}

#[test]
fn every_name_and_no_other() {
    let Some(library) = artefact::library() else { skip!("no library under test") };
    let symbols = exported(&library);
    let ours = flavour() == Flavour::Jeprobe;
    let mut required: Vec<&str> = [FUNCTIONS, OPERATORS, DATA].concat();
    if ours {
        required.extend(FUNCTIONS_531.iter().chain(OTHERS).chain(HOOKS).chain(OWN_DATA));
    }
    let missing: Vec<&&str> = required.iter().filter(|&&name| !symbols.contains_key(name)).collect();
    assert!(missing.is_empty(), "not exported: {missing:?}");

    for name in DATA.iter().chain(if ours { OWN_DATA } else { &[] }) {
        assert!("DBVdbv".contains(symbols[*name]), "{name} is data, nm says {}", symbols[*name]);
    }
    if ours {
        let known: BTreeSet<&str> = required.iter().chain(LATER).copied().collect();
        let foreign: Vec<&String> = symbols.keys().filter(|name| !known.contains(name.as_str())).collect();
        assert!(foreign.is_empty(), "exported but not part of the interface: {foreign:?}");
    }
}

/// A note of the `stapsdt` kind.
#[derive(Debug)]
struct Note {
    probe: String,
    location: u64,
    base: u64,
    semaphore: u64,
    arguments: usize,
}

fn notes(path: &Path) -> Vec<Note> {
    let text = output(Command::new("readelf").args(["-W", "-n"]).arg(path));
    let mut found = Vec::new();
    let mut provider = String::new();
    let mut name = String::new();
    let mut place = Vec::new();
    for line in text.lines().map(str::trim) {
        if let Some((_, value)) = line.split_once("Provider: ") {
            value.clone_into(&mut provider);
        } else if let Some(value) = line.strip_prefix("Name: ") {
            value.clone_into(&mut name);
        } else if line.starts_with("Location: ") {
            place = line
                .split_whitespace()
                .filter_map(|word| u64::from_str_radix(word.trim_end_matches(',').strip_prefix("0x")?, 16).ok())
                .collect();
        } else if let Some(value) = line.strip_prefix("Arguments:") {
            found.push(Note {
                probe: format!("{provider}:{name}"),
                location: place[0],
                base: place[1],
                semaphore: place[2],
                arguments: value.split_whitespace().count(),
            });
        }
    }
    found
}

/// A program header or section that covers addresses: start, size, file offset, flags.
type Range = (u64, u64, u64, String);

fn segments(path: &Path) -> Vec<Range> {
    let hex = |word: &str| u64::from_str_radix(word.trim_start_matches("0x"), 16).expect("a hexadecimal word");
    output(Command::new("readelf").args(["-W", "-l"]).arg(path))
        .lines()
        .filter(|line| line.trim_start().starts_with("LOAD "))
        .map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            (hex(words[2]), hex(words[4]), hex(words[1]), words[6..words.len() - 1].concat())
        })
        .collect()
}

fn relro(path: &Path) -> Vec<(u64, u64)> {
    let hex = |word: &str| u64::from_str_radix(word.trim_start_matches("0x"), 16).expect("a hexadecimal word");
    output(Command::new("readelf").args(["-W", "-l"]).arg(path))
        .lines()
        .filter(|line| line.trim_start().starts_with("GNU_RELRO"))
        .map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            (hex(words[2]), hex(words[5]))
        })
        .collect()
}

/// Each site is a one-byte `nop` in an executable segment; each semaphore is two bytes of zero in a writable, initialised
/// (so it has a file offset), non-RELRO place; no base is 0.
fn check_notes(path: &Path) {
    let notes = notes(path);
    let wanted: BTreeMap<&str, usize> = [
        ("jeprobe:alloc", 5),
        ("jeprobe:free", 3),
        ("jeprobe:dump", 3),
        ("jeprobe:context", 2),
        ("jeprobe:record", 0),
        ("jeprobe:unwind", 0),
        ("otel_memory:alloc", 3),
        ("otel_memory:free", 1),
    ]
    .into();
    let bytes = fs::read(path).expect("the file is readable");
    let segments = segments(path);
    let relro = relro(path);
    for (probe, &arguments) in &wanted {
        let note = notes
            .iter()
            .find(|note| note.probe == *probe)
            .unwrap_or_else(|| panic!("{}: no note {probe} among {notes:?}", path.display()));
        assert_eq!(note.arguments, arguments, "{probe}: number of arguments");
        assert_ne!(note.base, 0, "{probe}: the base section was dropped");
        let inside = |address: u64, flag: char| {
            segments
                .iter()
                .find(|(start, size, _, flags)| (*start..start + size).contains(&address) && flags.contains(flag))
                .map(|(start, _, offset, _)| usize::try_from(address - start + offset).expect("an offset"))
        };
        let site = inside(note.location, 'E').unwrap_or_else(|| panic!("{probe}: site is not in code: {note:?}"));
        assert_eq!(bytes[site], 0x90, "{probe}: the site begins with a one-byte nop");
        assert_ne!(note.semaphore, 0, "{probe}: no semaphore");
        let word =
            inside(note.semaphore, 'W').unwrap_or_else(|| panic!("{probe}: semaphore has no file place: {note:?}"));
        assert_eq!(bytes[word..word + 2], [0, 0], "{probe}: the semaphore starts at 0");
        assert!(
            !relro.iter().any(|(start, size)| (*start..start + size).contains(&note.semaphore)),
            "{probe}: the semaphore becomes read-only"
        );
    }
}

#[test]
fn probe_notes_of_the_library() {
    if flavour() != Flavour::Jeprobe {
        skip!("another allocator has no notes");
    }
    check_notes(&artefact::library().expect("ours is a file"));
}

/// Linkers that collect sections must not drop the base or the notes: bfd, lld and mold, each with `--gc-sections`.
#[test]
fn probe_notes_survive_every_linker() {
    if flavour() != Flavour::Jeprobe {
        skip!("another allocator has no notes");
    }
    let archive = artefact::static_library().display().to_string();
    for linker in ["bfd", "lld", "mold"] {
        let available = if linker == "bfd" { "ld.bfd".to_owned() } else { format!("ld.{linker}") };
        if jeprobe_tests::target::find(&available).is_none() {
            jeprobe_tests::privilege::report_skip(&format!("no {available} here"));
            continue;
        }
        let program =
            compile::program("plain.c", &[&archive, &format!("-fuse-ld={linker}"), "-Wl,--gc-sections", "-lm", "-ldl"]);
        check_notes(&program);
    }
}
