//! `jeprof` against the original on recorded and hand-made profiles: stdout byte for byte, exit codes.

use std::fs;
use std::path::{Path, PathBuf};

use jeprobe_tests::oracle::{is_installed, ours, same, same_with};
use jeprobe_tests::{TempDir, artefact, skip};

fn report() -> PathBuf {
    artefact::fixture("report")
}

fn jeprof() -> PathBuf {
    artefact::fixture("jeprof")
}

/// Compares lines of arguments, separated by blanks.
fn all(directory: &Path, lines: &[&str]) {
    for line in lines {
        same(directory, &line.split(' ').collect::<Vec<_>>());
    }
}

#[test]
fn tables_of_heap_profiles() {
    if !is_installed() {
        skip!("no perl jeprof");
    }
    all(
        &report(),
        &[
            "./leak hand.heap",
            "--text ./leak leak.heap",
            "--text --cum --show_bytes ./leak leak.heap",
            "--text --alloc_space --show_bytes ./leak leak.heap",
            "--text --alloc_objects ./leak hand.heap",
            "--text --inuse_objects ./leak hand.heap",
            "--text --show_bytes ./leak hand.heap",
            "--text --lines --show_bytes ./leak hand.heap",
            "--text --files --show_bytes ./leak hand.heap",
            "--text --addresses --show_bytes ./leak hand.heap",
            "--text --show_bytes ./cpp cpp.heap",
            "--text --lines --show_bytes ./cpp cpp.heap",
            "--text --files --show_bytes ./cpp cpp.heap",
            "--text --addresses --show_bytes ./cpp cpp.heap",
            "--text --inuse_objects ./mix mix_unbias_true.heap",
            "--text --show_bytes --lines ./mix mix_unbias_false.heap",
            "--text --thread=1 ./threads threads.2.heap",
            "--text --thread=* ./threads threads.2.heap",
        ],
    );
}

#[test]
fn filters_bases_sums_and_threads() {
    if !is_installed() {
        skip!("no perl jeprof");
    }
    all(
        &report(),
        &[
            "--text --show_bytes --base=hand_base.heap ./leak hand.heap",
            "--text --show_bytes --drop_negative --base=hand_base.heap ./leak hand.heap",
            "--text --show_bytes ./leak hand.heap hand_base.heap",
            "--text --show_bytes ./leak hand.heap hand_base.heap leak.heap",
            "--text --show_bytes --thread=7 ./leak hand.heap",
            "--text --show_bytes --thread=07 ./leak hand.heap",
            "--text --show_bytes --thread=3 ./leak hand.heap",
            "--text --show_bytes --thread=x ./leak hand.heap",
            "--text --show_bytes --thread=* ./leak hand.heap",
            "--text --show_bytes --thread=7 ./leak hand.heap hand_base.heap",
            "--text --show_bytes --focus=big ./leak hand.heap",
            "--text --show_bytes --focus=leak.c:9 ./leak hand.heap",
            "--text --show_bytes --focus=0000401175$ ./leak hand.heap",
            "--text --show_bytes --focus=(?<!small_)user ./leak hand.heap",
            "--text --focus=zzz ./leak hand.heap",
            "--text --show_bytes --ignore=big ./leak hand.heap",
            "--text --show_bytes --retain=user|main ./leak hand.heap",
            "--text --show_bytes --exclude=^leaf$ ./leak hand.heap",
            "--text --show_bytes --exclude=. ./leak hand.heap",
            "--text --show_bytes --retain=grab --focus=main ./cpp cpp.heap",
        ],
    );
}

#[test]
fn other_kinds_of_profiles() {
    if !is_installed() {
        skip!("no perl jeprof");
    }
    all(
        &report(),
        &[
            "--text --show_bytes ./leak goog_v2.heap",
            "--text --show_bytes ./leak goog_v1.heap",
            "--text --show_bytes ./leak goog_hp.heap",
            "--text --show_bytes ./leak goog_growth.heap",
            "--text --show_bytes ./leak goog_old.heap",
            "--text --thread=* ./leak goog_v2.heap",
            "--text ./leak ../jeprof/contention.prof",
            "--text --mean_delay ./leak ../jeprof/contention.prof",
            "--text --contentions ./leak ../jeprof/contention.prof",
            "--text --contentions --mean_delay ./leak ../jeprof/contention.prof",
            "--text --show_bytes ../jeprof/sym.prof",
            "--text --show_bytes ../jeprof/sym.prof ../jeprof/sym.prof",
            "--collapsed ../jeprof/sym.prof",
            "--dot ../jeprof/sym.prof",
            "--files --text ../jeprof/sym.prof",
            "--callgrind ../jeprof/sym.prof",
        ],
    );
}

#[test]
fn other_outputs() {
    if !is_installed() {
        skip!("no perl jeprof");
    }
    all(
        &report(),
        &[
            "--collapsed ./leak hand.heap",
            "--callgrind ./leak hand.heap",
            "--callgrind ./leak leak.heap",
            "--callgrind ./cpp cpp.heap",
            "--dot ./leak leak.heap",
            "--dot --heapcheck --show_bytes ./leak hand.heap",
            "--dot --heapcheck --show_bytes --base=hand_base.heap ./leak hand.heap",
            "--dot --show_bytes --nodecount=6 --maxdegree=2 ./cpp cpp.heap",
            "--dot --show_bytes --nodefraction=0.1 --edgefraction=0.3 ./cpp cpp.heap",
            "--dot --lines ./leak hand.heap",
            "--dot --focus=zzz ./leak hand.heap",
            "--dot --nodecount=0 ./leak hand.heap",
        ],
    );
    let addresses = "0x401175\n0x401213\n  x 0x4012b9 y\n0xdead\n0x0\nnone\n";
    same_with(&report(), &["--symbols", "./leak"], addresses);
    same_with(&report(), &["--symbols", "./cpp"], "0x4012b8\n0x4012dc\n");
}

#[test]
fn programs_that_were_loaded_elsewhere() {
    if !is_installed() {
        skip!("no perl jeprof");
    }
    // The map names paths of another machine: the program is not found in it, its addresses stay bare.
    all(
        &jeprof(),
        &[
            "--text --show_bytes ./leak_pie leak_pie.heap",
            "--text --lines --show_bytes ./leak_pie leak_pie.heap",
            "--text --show_bytes ./leak_pie leak_pie_moved.heap",
            "--collapsed ./leak_pie leak_pie.heap",
        ],
    );
    // The same file with the program where it lies here, and the library under a prefix.
    let moved = TempDir::new("jeprof-moved");
    let program = moved.join("leak_pie");
    fs::copy(jeprof().join("leak_pie"), &program).expect("copied");
    let heap = fs::read_to_string(jeprof().join("leak_pie_moved.heap")).expect("a text");
    let here = moved.path().canonicalize().expect("a path");
    let placed = heap.replace("/srv/jeprof/facts/examples/leak_pie", here.join("leak_pie").to_str().expect("UTF-8"));
    fs::write(moved.join("moved.heap"), &placed).expect("written");
    fs::create_dir_all(moved.join("root/libx")).expect("made");
    let library = "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2";
    fs::copy(library, moved.join("root/libx/libjemalloc.so.2")).expect("copied");
    let prefix = format!("--lib_prefix=/nonexistent,{}/root/", moved.path().display());
    for args in [
        &["--text", "--show_bytes", "./leak_pie", "moved.heap"][..],
        &["--text", "--show_bytes", &prefix, "./leak_pie", "moved.heap"],
        &["--text", "--lines", &prefix, "./leak_pie", "moved.heap"],
        &["--callgrind", &prefix, "./leak_pie", "moved.heap"],
        &["--dot", &prefix, "./leak_pie", "moved.heap"],
    ] {
        same(moved.path(), args);
    }
}

#[test]
fn broken_files() {
    if !is_installed() {
        skip!("no perl jeprof");
    }
    for name in ["empty.heap", "junk.heap", "zero.heap", "v3.heap"] {
        same(&jeprof(), &["--text", "../report/leak", name]);
    }
    same(&jeprof(), &["--text", "../report/leak", "sym.prof"]);
    let directory = TempDir::new("jeprof-broken");
    for (name, text, message) in [
        ("address", "heap_v2/1\n@ 0x1 0xzz\n  t*: 1: 1 [1: 1]\n", "address:2: byte 16: '0xzz' is no address"),
        ("long", "heap_v2/1\n@ 0x12345678123456789\n  t*: 1: 1 [1: 1]\n", "long:2: byte 12: "),
        (
            "cpu",
            "\0\0\0\0\x03\0\0\0\0\0\0\0\x10\x27\0\0\0\0\0\0\x01\0\0\0\x05\0\0\0\x01\0\0\0",
            "cpu: byte 32: the file ends",
        ),
        ("contention", "--- contention\ncycles/second = 0\n1 2 @ 0x1\n", "contention:2: byte 15: cycles/second"),
    ] {
        fs::write(directory.join(name), text).expect("written");
        let program = report().join("leak");
        let ended = ours(directory.path(), &["--text", program.to_str().expect("UTF-8"), name], "");
        assert_eq!(ended.code(), 1, "{ended}");
        assert!(ended.stderr.contains(message), "{name}: {}", ended.stderr);
    }
}

/// A CPU profile: words of `size` bytes.
fn cpu_profile(size: usize, big_endian: bool, with_marker: bool) -> Vec<u8> {
    let words: [u64; 19] =
        [0, 3, 0, 10_000, 0, 5, 3, 0x40_1175, 0x40_1214, 0x40_128a, 2, 3, 0x40_1170, 0x40_1214, 0x40_128a, 0, 1, 0, 0];
    let mut bytes = if with_marker { b"--- profile\n".to_vec() } else { Vec::new() };
    for word in &words[..18] {
        let whole = word.to_le_bytes();
        let mut part = whole[..size].to_vec();
        if big_endian {
            part.reverse();
        }
        bytes.extend(part);
    }
    bytes
}

#[test]
fn binary_cpu_profiles() {
    if !is_installed() {
        skip!("no perl jeprof");
    }
    let directory = TempDir::new("jeprof-cpu");
    let program = report().join("leak");
    let program = program.to_str().expect("UTF-8");
    for (size, big_endian, marker) in
        [(8, false, false), (8, true, false), (4, false, false), (4, true, false), (8, false, true)]
    {
        fs::write(directory.join("cpu"), cpu_profile(size, big_endian, marker)).expect("written");
        for mode in ["--text", "--addresses", "--collapsed", "--dot"] {
            same(directory.path(), &[mode, program, "cpu"]);
        }
        same(directory.path(), &["--text", "--test_stride=16", program, "cpu"]);
    }
}
