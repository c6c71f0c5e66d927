//! The cache of stacks of large profiles: what is printed is the same without it, while it fills, from it, when the profile
//! was changed in place, and when the cache is damaged.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use jeprobe_tests::{Ended, Run, TempDir, artefact};

/// Stacks; with them a profile has 5 MB, from 4 MiB on stacks are kept.
const STACKS: u64 = 36_000;

/// A profile with all that a reader finds: stacks that repeat, empty ones, threads, lines that are no record, carriage returns, a
/// memory map, an end behind a stack.
fn profile(seed: u64, is_cut: bool) -> String {
    let mut state = seed;
    let mut below = |limit: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % limit
    };
    let mut text = String::from("heap_v2/524288\n  t*: 3: 9 [0: 0]\n");
    for number in 0..STACKS {
        text.push('@');
        for _ in 0..below(12) {
            write!(text, " {:#x}", 0x40_0000 + below(3000) * 16).expect("memory");
        }
        let (objects, bytes) = (1 + below(5), 1 + below(100_000));
        let end = if number % 1000 == 0 { "\r\n" } else { "\n" };
        writeln!(text, "{end}  t*: {objects}: {bytes} [7: 8888]{end}  t{}: {objects}: {bytes} [7: 8888]", number % 3)
            .expect("memory");
        if number % 9000 == 8999 {
            text.push_str("this is no record\n");
        }
        text.push_str("                                                        \n");
    }
    if is_cut {
        text.push_str("@ 0x400000 0x400010\n");
    } else {
        text.push_str("\nMAPPED_LIBRARIES:\n00400000-00500000 r-xp 00000000 08:01 77 /nowhere/program\n\r\n\nlast");
    }
    assert!(text.len() > 4 << 20, "{}", text.len());
    text
}

fn jeprof(cache: &Path, folder: &Path, args: &[&str]) -> Ended {
    Run::new(artefact::jeprof()).dir(folder).env("JEPROBE_CACHE_DIR", cache).args(args).finish()
}

fn kept(cache: &Path) -> Vec<PathBuf> {
    let list = fs::read_dir(cache).into_iter().flatten().flatten().map(|entry| entry.path());
    list.filter(|path| path.extension().is_some_and(|extension| extension == "stacks")).collect()
}

fn same(what: &str, got: &Ended, wanted: &Ended) {
    assert!(got.stdout == wanted.stdout, "{what}: stdout");
    assert_eq!(got.stderr, wanted.stderr, "{what}: stderr");
    assert_eq!(got.code(), wanted.code(), "{what}: exit code");
}

const NONE: &str = "";

#[test]
fn output_is_the_same_without_it_while_it_fills_and_from_it() {
    let (folder, cache) = (TempDir::new("stacks"), TempDir::new("stacks-cache"));
    fs::write(folder.join("a"), profile(1, false)).expect("space");
    fs::write(folder.join("b"), profile(2, false)).expect("space");
    fs::write(folder.join("cut"), profile(3, true)).expect("space");
    let mut runs = 0;
    for args in [
        &["--text", "/bin/true", "a"] as &[_],
        &["--text", "--addresses", "--alloc_space", "/bin/true", "a"],
        &["--collapsed", "/bin/true", "b"],
        &["--text", "--base=a", "/bin/true", "b"],
        &["--text", "--drop_negative", "--base=b", "/bin/true", "a"],
        &["--text", "/bin/true", "a", "b"],
        &["--raw", "/bin/true", "a"],
        &["--text", "--focus=0x400010", "/bin/true", "a"],
        &["--text", "--thread=1", "/bin/true", "a"],
        &["--text", "/bin/true", "cut"],
    ] {
        let without = jeprof(Path::new(NONE), folder.path(), args);
        for run in ["fills", "from it"] {
            same(&format!("{args:?} {run}"), &jeprof(cache.path(), folder.path(), args), &without);
        }
        runs += usize::from(without.code() == 0);
        assert!(!kept(cache.path()).is_empty(), "{args:?}: something is kept");
    }
    assert!(runs >= 8, "{runs}");
    // By file, and of the first one also by value: what is shown differs, what is read does not.
    assert_eq!(kept(cache.path()).len(), 4);
}

#[test]
fn a_profile_that_was_changed_in_place_is_another_one() {
    let (folder, cache) = (TempDir::new("stacks"), TempDir::new("stacks-cache"));
    let path = folder.join("a");
    let mut text = profile(1, false).into_bytes();
    fs::write(&path, &text).expect("space");
    let then = fs::metadata(&path).and_then(|meta| meta.modified()).expect("our own file");
    let args = ["--text", "--addresses", "/bin/true", "a"];
    let before = jeprof(cache.path(), folder.path(), &args).ok();
    // One digit of a count, with the size and the time of before.
    let middle = text.len() / 2;
    let count = middle + text[middle..].windows(5).position(|bytes| bytes == b" t*: ").expect("a count") + 5;
    text[count] = if text[count] == b'9' { b'8' } else { b'9' };
    fs::write(&path, &text).expect("space");
    File::options().write(true).open(&path).and_then(|file| file.set_modified(then)).expect("our own file");
    let without = jeprof(Path::new(NONE), folder.path(), &args).ok();
    assert!(without.stdout != before.stdout, "the change is seen");
    same("changed in place", &jeprof(cache.path(), folder.path(), &args), &without);
    assert_eq!(kept(cache.path()).len(), 2);
}

#[test]
fn a_damaged_file_is_told_once_and_replaced() {
    let (folder, cache) = (TempDir::new("stacks"), TempDir::new("stacks-cache"));
    fs::write(folder.join("a"), profile(1, false)).expect("space");
    let args = ["--text", "--addresses", "/bin/true", "a"];
    let without = jeprof(Path::new(NONE), folder.path(), &args).ok();
    jeprof(cache.path(), folder.path(), &args).ok().discard();
    let [file] = &kept(cache.path())[..] else { panic!("one file") };
    let sound = fs::read(file).expect("our own file");
    let flipped = |at: usize| {
        let mut bytes = sound.clone();
        bytes[at] ^= 0x10;
        bytes
    };
    let damages = [flipped(100), flipped(sound.len() / 2), flipped(0), sound[..sound.len() / 2].to_vec(), Vec::new()];
    for (number, bytes) in damages.into_iter().enumerate() {
        fs::write(file, bytes).expect("our own file");
        let after = jeprof(cache.path(), folder.path(), &args);
        assert!(after.stdout == without.stdout, "{number}");
        let said = after.stderr.lines().filter(|line| line.contains("is damaged")).count();
        assert_eq!(said, 1, "{number}: {}", after.stderr);
        same("replaced", &jeprof(cache.path(), folder.path(), &args), &without);
    }
    // Another version, which may hold anything behind its number.
    fs::write(file, flipped(8)).expect("our own file");
    same("of another version", &jeprof(cache.path(), folder.path(), &args), &without);
    assert!(fs::read(file).expect("our own file") == sound, "made anew");
}

#[test]
fn small_profiles_are_not_kept() {
    let cache = TempDir::new("stacks-cache");
    let folder = artefact::fixture("report");
    jeprof(cache.path(), &folder, &["--text", "./leak", "leak.heap"]).ok().discard();
    assert!(kept(cache.path()).is_empty());
}
