//! Every way a program can get the library: preloaded, linked, as an archive, opened late, beside plugins that bind to
//! the C library, and in Rust programs; and pointers that the library never gave out.

use std::process::Command;

use jeprobe_tests::artefact::{self, Flavour, flavour};
use jeprobe_tests::facts::is;
use jeprobe_tests::target::facts_of;
use jeprobe_tests::{Ended, Run, compile, skip};

/// The sum that `plain.c` prints, from its definition.
fn plain_sum() -> String {
    (1..3000_u64).map(|i| i % 256).sum::<u64>().to_string()
}

fn check_plain(ended: Ended) {
    let facts = ended.ok().facts();
    assert_eq!(facts.get("sum"), plain_sum());
    // 33 bytes are 48 in jemalloc's classes and 40 in glibc: it tells whose malloc answered.
    assert_eq!(facts.get("malloc(33).usable"), if flavour() == Flavour::Libc { "40" } else { "48" });
}

#[test]
fn preloaded() {
    check_plain(Run::preloaded(compile::program("plain.c", &[])).finish());
}

#[test]
fn linked_at_build_time() {
    let Some(library) = artefact::library() else { skip!("no library under test") };
    let path = library.display().to_string();
    let directory = library.parent().expect("a file lies in a directory").display().to_string();
    let program = compile::program("plain.c", &["-Wl,--no-as-needed", &path, &format!("-Wl,-rpath,{directory}")]);
    // The name inside the library may be the one it is installed under.
    check_plain(Run::new(program).env("LD_LIBRARY_PATH", directory).finish());
}

#[test]
fn linked_from_the_archive() {
    if flavour() != Flavour::Jeprobe {
        skip!("about our archive");
    }
    let archive = artefact::static_library().display().to_string();
    check_plain(Run::new(compile::program("plain.c", &[&archive, "-lm", "-ldl"])).finish());
    let storm = compile::program("fork_storm.c", &[&archive, "-lm", "-ldl"]);
    Run::new(storm).arg("50").finish().ok().facts().check(&[is("good children", "50")]);
    let life = compile::program("thread_life.cc", &[&archive, "-lm", "-ldl"]);
    Run::new(life).finish().ok().facts().check(&[is("key rounds", "1600"), is("atexit", "1")]);
}

#[test]
fn linked_into_a_static_program() {
    if flavour() != Flavour::Jeprobe {
        skip!("about our archive");
    }
    let archive = artefact::static_library().display().to_string();
    check_plain(Run::new(compile::program("plain.c", &["-static", &archive, "-lm"])).finish());
    let program = compile::program("cross_thread.c", &["-static", &archive, "-lm"]);
    Run::new(program).args(["queue", "20000"]).finish().ok().facts().check(&[is("wrong", "0")]);
}

/// Opened by a program that has been running on the C library's malloc, then by one that runs on the library itself.
#[test]
fn opened_late() {
    let Some(library) = artefact::library() else { skip!("no library under test") };
    let program = compile::program("dlopen_late.c", &[]);
    let modes: &[&[&str]] = if flavour() == Flavour::Jeprobe { &[&[], &["deepbind"]] } else { &[&[]] };
    // Debian's library needs more static TLS than a late dlopen has left.
    let preloads: &[bool] = if flavour() == Flavour::Jemalloc530 { &[true] } else { &[false, true] };
    for &preload in preloads {
        for mode in modes {
            let run = if preload { Run::preloaded(&program) } else { Run::new(&program) };
            run.arg(&library).args(*mode).finish().ok().facts().check(&[
                is("own.damaged", "0"),
                is("dlclose", "0"),
                is("kept", "kept"),
                is("works", "1"),
            ]);
        }
    }
}

/// Like `opened_late`, while profiling is on in the late library.
#[test]
fn opened_late_with_the_sampler_on() {
    if flavour() != Flavour::Jeprobe {
        skip!("about our sampler");
    }
    let library = artefact::library().expect("ours is a file");
    let program = compile::program("dlopen_late.c", &[]);
    let ended = Run::new(&program).arg(&library).conf("prof:true,lg_prof_sample:6").finish().ok();
    ended.facts().check(&[is("own.damaged", "0"), is("works", "1")]);
}

/// A plugin loaded with `RTLD_DEEPBIND` would bind to the C library's malloc and free, and ours would meet them.
#[test]
fn deepbind_plugin() {
    if flavour() == Flavour::Jemalloc530 {
        skip!("jemalloc crashes on foreign pointers");
    }
    let plugin = compile::shared_object("plugin.c", &[]);
    let program = compile::program("deepbind_host.c", &[]);
    Run::preloaded(program).arg(plugin).finish().ok().facts().check(&[is("wrong", "0"), is("works", "1")]);
}

#[test]
fn foreign_blocks_are_passed_on() {
    if flavour() == Flavour::Jemalloc530 {
        skip!("jemalloc crashes on foreign pointers");
    }
    for case in ["free", "realloc", "usable"] {
        let facts = facts_of("foreign.c", &["-Wno-free-nonheap-object"], &[case]);
        facts.check(&[is("after", "1").standard()]);
        match case {
            "realloc" => facts.check(&[is("content", "kept").standard()]),
            "usable" => facts.check(&[is("usable", "1").standard()]),
            _ => {}
        }
    }
}

/// An address that is nobody's block: either passed on to the C library, which says `invalid pointer` and aborts, or
/// reported by us with an abort. Never followed: no SIGSEGV, no silence.
#[test]
fn wrong_addresses_are_reported() {
    if flavour() == Flavour::Jemalloc530 {
        skip!("jemalloc crashes on foreign pointers");
    }
    let program = compile::program("foreign.c", &["-Wno-free-nonheap-object"]);
    let cases: &[&str] =
        if flavour() == Flavour::Libc { &["static", "stack"] } else { &["static", "stack", "low", "kernel"] };
    for &case in cases {
        let ended = Run::preloaded(&program).arg(case).finish();
        assert_eq!(ended.signal(), Some(libc::SIGABRT), "{case}: {ended}");
        assert!(!ended.stderr.trim().is_empty(), "{case}: nothing said: {ended}");
    }
}

#[test]
fn rust_program_preloaded() {
    let program = compile::program("rust_plain.rs", &[]);
    let without = Run::new(&program).finish().ok();
    let with = Run::preloaded(&program).finish().ok();
    assert_eq!(with.stdout, without.stdout);
    assert!(with.stdout.contains("checksum"), "{with}");
}

/// A header that C and C++ accept, with the macros' values of 5.3.1.
#[test]
fn header_compiles_as_c_and_cxx() {
    if flavour() != Flavour::Jeprobe {
        skip!("about our header");
    }
    let include = artefact::include_dir();
    for (compiler, language) in [("cc", "c"), ("c++", "c++")] {
        let result = Command::new(compiler)
            .args(["-x", language, "-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only", "-I"])
            .arg(&include)
            .arg(artefact::programs().join("header_use.inc"))
            .output()
            .expect("the compiler starts");
        assert!(result.status.success(), "{language}: {}", String::from_utf8_lossy(&result.stderr));
    }
}
