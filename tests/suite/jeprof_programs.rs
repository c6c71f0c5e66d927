//! `jeprof` against the original on profiles of programs that run here: C, C++ and Rust, at fixed and at other
//! addresses, stripped with their debugging information elsewhere.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use jeprobe_tests::oracle::{is_installed, profile_of, program, same, same_with};
use jeprobe_tests::{Run, TempDir, artefact, skip};

const DEBIANS: &str = "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2";

/// Everything that is printed of a profile.
fn modes(directory: &Path, program: &str, pattern: &str) {
    let list = format!("--list={pattern}");
    let disasm = format!("--disasm={pattern}");
    for options in [
        &["--text"][..],
        &["--text", "--show_bytes", "--cum"],
        &["--text", "--show_bytes", "--lines"],
        &["--text", "--show_bytes", "--files"],
        &["--text", "--show_bytes", "--addresses"],
        &["--text", "--inuse_objects"],
        &["--text", "--alloc_space"],
        &["--text", "--thread=*"],
        &["--collapsed"],
        &["--callgrind"],
        &["--dot", "--show_bytes"],
        &["--dot", "--lines"],
        &["--show_bytes", &list],
        &["--show_bytes", &disasm],
    ] {
        let mut args = options.to_vec();
        args.extend([program, "p.heap"]);
        same(directory, &args);
    }
}

/// The profile with the names of a program, also of one that lies elsewhere.
fn check(source: &str, flags: &[&str], pattern: &str) {
    if !is_installed() || !Path::new(DEBIANS).exists() {
        skip!("no perl jeprof, or no libjemalloc2");
    }
    let name = program(source, flags);
    let directory = profile_of(Path::new(&name), Path::new(DEBIANS), "lg_prof_sample:0");
    modes(directory.path(), &name, pattern);
}

#[test]
fn c_at_fixed_addresses() {
    check("report_sites.c", &["-no-pie", "-fno-omit-frame-pointer"], "^(main|.*_site|keep)");
}

#[test]
fn c_at_other_addresses() {
    check("report_sites.c", &["-pie", "-fPIE", "-O2"], "^main");
}

#[test]
fn cpp_with_inlined_calls() {
    if !is_installed() || !Path::new(DEBIANS).exists() {
        skip!("no perl jeprof, or no libjemalloc2");
    }
    let name = program("exceptions.cc", &["-O2"]);
    let directory = profile_of(Path::new(&name), Path::new(DEBIANS), "lg_prof_sample:0");
    for options in [
        &["--text", "--show_bytes"][..],
        &["--text", "--lines"],
        &["--text", "--files"],
        &["--text", "--addresses"],
        &["--collapsed"],
        &["--callgrind"],
        &["--dot", "--show_bytes"],
        &["--list=^main"],
        &["--disasm=^main"],
    ] {
        let mut args = options.to_vec();
        args.extend([name.as_str(), "p.heap"]);
        same(directory.path(), &args);
    }
}

#[test]
fn rust() {
    check("rust_plain.rs", &[], "rust_plain.*main");
}

#[test]
fn our_own_library() {
    if !is_installed() || artefact::library().is_none() {
        skip!("no perl jeprof, or no profile without our library");
    }
    let library = artefact::library().expect("asked above");
    let name = program("report_sites.c", &["-fno-omit-frame-pointer"]);
    let directory = profile_of(Path::new(&name), &library, "lg_prof_sample:12");
    modes(directory.path(), &name, "^main");
}

#[test]
fn interactive_commands() {
    if !is_installed() || !Path::new(DEBIANS).exists() {
        skip!("no perl jeprof, or no libjemalloc2");
    }
    let name = program("report_sites.c", &["-fno-omit-frame-pointer"]);
    let directory = profile_of(Path::new(&name), Path::new(DEBIANS), "lg_prof_sample:0");
    let commands = "top3\ntop --cum\ntop2 -main\ntext4 -lines\nlist main\ndisasm ^main -nothing\n\nbogus\nhelp\ntop5 --lines --cum\ncallgrind out.cg\nquit\ntop\n";
    same_with(directory.path(), &["--interactive", "--show_bytes", &name, "p.heap"], commands);
    let written = |name: &str| fs::read_to_string(directory.join(name)).unwrap_or_default();
    assert!(written("out.cg").starts_with("events: Hits\n"));
    let own = Run::new(artefact::jeprof()).dir(directory.path()).args(["--interactive", &name, "p.heap"]);
    own.input("callgrind > redirected.cg\ntop > top.txt\nweblist main > page.html\ntop >> top.txt\nquit\n")
        .finish()
        .ok()
        .discard();
    // The other file may be the original's, whose order is chance.
    assert!(written("redirected.cg").starts_with("events: Hits\n\nfl="), "{}", written("redirected.cg"));
    assert_eq!(written("top.txt").matches("Total: ").count(), 2, "{}", written("top.txt"));
    assert!(written("page.html").starts_with("<!DOCTYPE html>"), "{}", written("page.html"));
}

/// Runs a tool that must succeed.
fn tool(program: &str, args: &[&str]) {
    let output = Command::new(program).args(args).output().unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(output.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A stripped copy of a program, its debugging information in `DIRECTORY/.debug`, found by its link.
fn stripped(name: &str, directory: &TempDir) -> PathBuf {
    let copy = directory.join("stripped");
    let debug = directory.join(".debug");
    fs::create_dir_all(&debug).expect("made");
    let debug = debug.join("stripped.debug");
    let (copy_text, debug_text) = (copy.to_str().expect("UTF-8"), debug.to_str().expect("UTF-8"));
    tool("objcopy", &["--only-keep-debug", name, debug_text]);
    tool("objcopy", &["--strip-all", name, copy_text]);
    tool("objcopy", &[&format!("--add-gnu-debuglink={debug_text}"), copy_text]);
    copy
}

#[test]
fn debugging_information_by_its_link() {
    if !is_installed() || !Path::new(DEBIANS).exists() {
        skip!("no perl jeprof, or no libjemalloc2");
    }
    let name = program("report_sites.c", &["-no-pie", "-fno-omit-frame-pointer"]);
    let directory = TempDir::new("jeprof-stripped");
    let copy = stripped(&name, &directory);
    let profile = profile_of(&copy, Path::new(DEBIANS), "lg_prof_sample:0");
    let copy = copy.to_str().expect("UTF-8");
    for options in [&["--text"][..], &["--text", "--lines"], &["--collapsed"], &["--callgrind"]] {
        let mut args = options.to_vec();
        args.extend([copy, "p.heap"]);
        same(profile.path(), &args);
    }
}
