//! The cache of names: what is printed is the same without it, while it fills, from it, and when it is damaged.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use jeprobe_tests::{Ended, Run, TempDir, artefact};

/// Folder of fixtures, arguments of `jeprof`.
const RECORDED: &[(&str, &[&str])] = &[
    ("report", &["./leak", "leak.heap"]),
    ("report", &["./cpp", "cpp.heap"]),
    ("report", &["./mix", "mix_unbias_true.heap"]),
    ("report", &["./threads", "threads.2.heap"]),
    ("jeprof", &["./leak_pie", "leak_pie.heap"]),
    ("jeprof", &["./leak_pie", "leak_pie_moved.heap"]),
];

/// `cache`: the directory; empty for none.
fn jeprof(cache: &Path, folder: &str, args: &[&str]) -> Ended {
    Run::new(artefact::jeprof()).dir(artefact::fixture(folder)).env("JEPROBE_CACHE_DIR", cache).args(args).finish()
}

/// Without a directory of its own, in a home.
fn at_home(home: &Path, args: &[&str]) -> Ended {
    let run = Run::new("/usr/bin/env").dir(artefact::fixture("report")).env("HOME", home);
    run.args(["-u", "JEPROBE_CACHE_DIR", "-u", "XDG_CACHE_HOME"]).arg(artefact::jeprof()).args(args).finish()
}

fn report(cache: &Path, folder: &str, args: &[&str]) -> Ended {
    let run = Run::new(artefact::command()).dir(artefact::fixture(folder)).env("JEPROBE_CACHE_DIR", cache);
    run.arg("report").args(args).finish()
}

fn files(cache: &Path) -> Vec<PathBuf> {
    fs::read_dir(cache).map_or_else(|_| Vec::new(), |list| list.flatten().map(|entry| entry.path()).collect())
}

fn same(what: &str, got: &Ended, wanted: &Ended) {
    assert_eq!(got.stdout, wanted.stdout, "{what}: stdout");
    assert_eq!(got.stderr, wanted.stderr, "{what}: stderr");
    assert_eq!(got.code(), wanted.code(), "{what}: exit code");
}

#[test]
fn recorded_profiles_look_the_same_without_it_while_it_fills_and_from_it() {
    for (folder, profile) in RECORDED {
        let cache = TempDir::new("names-cache");
        for mode in ["--text", "--lines", "--files", "--addresses", "--collapsed", "--dot", "--callgrind"] {
            let args = [&[mode], *profile].concat();
            let without = jeprof(Path::new(""), folder, &args);
            for run in ["fills", "from it"] {
                same(&format!("jeprof {args:?} {run}"), &jeprof(cache.path(), folder, &args), &without);
            }
        }
        let by_jeprof = files(cache.path());
        assert!(!by_jeprof.is_empty(), "{profile:?}: something is kept");
        for mode in ["--format=text", "--format=folded", "--format=csv", "--lines", "--addresses"] {
            let args = [&[mode], *profile].concat();
            let without = report(Path::new(""), folder, &args);
            for run in ["fills", "from it"] {
                same(&format!("report {args:?} {run}"), &report(cache.path(), folder, &args), &without);
            }
        }
        assert!(files(cache.path()).len() > by_jeprof.len(), "{profile:?}: the two read images differently");
        let text = [&["--text"], *profile].concat();
        same("after reports", &jeprof(cache.path(), folder, &text), &jeprof(Path::new(""), folder, &text));
    }
}

#[test]
fn a_damaged_cache_is_told_once_and_replaced() {
    let cache = TempDir::new("names-cache");
    let args = ["--text", "./cpp", "cpp.heap"];
    let without = jeprof(Path::new(""), "report", &args);
    jeprof(cache.path(), "report", &args).ok().discard();
    assert!(files(cache.path()).len() > 1, "several images");
    for file in files(cache.path()) {
        let mut bytes = fs::read(&file).expect("a file of the cache");
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(&file, bytes).expect("our own file");
    }
    let damaged = jeprof(cache.path(), "report", &args);
    assert_eq!(damaged.stdout, without.stdout);
    let said: Vec<_> = damaged.stderr.lines().filter(|line| line.contains("is damaged")).collect();
    assert_eq!(said.len(), 1, "{}", damaged.stderr);
    same("replaced", &jeprof(cache.path(), "report", &args), &without);
}

#[test]
fn without_a_place_for_it_nothing_is_said() {
    let args = ["--text", "./cpp", "cpp.heap"];
    let without = jeprof(Path::new(""), "report", &args);
    for home in ["/proc/nowhere", "relative", ""] {
        same(&format!("HOME={home}"), &at_home(Path::new(home), &args), &without);
    }
    same("no directory", &jeprof(Path::new("/proc/nowhere"), "report", &args), &without);
    let absent = TempDir::new("no-home").join("gone");
    same("an account without a home", &at_home(&absent, &args), &without);
    assert!(!absent.exists(), "a home is not ours to make");
}

#[test]
fn a_place_that_others_may_write_to_is_told_once_and_not_used() {
    let cache = TempDir::new("names-cache");
    let args = ["--text", "./cpp", "cpp.heap"];
    let without = jeprof(Path::new(""), "report", &args);
    fs::set_permissions(cache.path(), fs::Permissions::from_mode(0o777)).expect("our own directory");
    let told = |ended: &Ended| ended.stderr.lines().filter(|line| line.contains("others may write to it")).count();
    let open = jeprof(cache.path(), "report", &args);
    assert_eq!((&open.stdout, told(&open)), (&without.stdout, 1), "{open}");
    let reported = report(cache.path(), "report", &["./cpp", "cpp.heap"]).ok();
    assert_eq!(told(&reported), 1, "{reported}");
    assert!(files(cache.path()).is_empty());
}

#[test]
fn no_cache_keeps_nothing() {
    let cache = TempDir::new("names-cache");
    report(cache.path(), "report", &["--no-cache", "./cpp", "cpp.heap"]).ok().discard();
    assert!(files(cache.path()).is_empty());
    let home = TempDir::new("names-home");
    at_home(home.path(), &["./cpp", "cpp.heap"]).ok().discard();
    assert!(!files(&home.join(".cache/jeprobe")).is_empty(), "the usual place");
}

#[test]
fn runs_at_one_time_do_not_disturb_each_other() {
    let cache = TempDir::new("names-cache");
    let args = ["--text", "./cpp", "cpp.heap"];
    let without = jeprof(Path::new(""), "report", &args);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| same("one of eight", &jeprof(cache.path(), "report", &args), &without));
        }
    });
    same("afterwards", &jeprof(cache.path(), "report", &args), &without);
}
