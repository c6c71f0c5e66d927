//! Configuration: `MALLOC_CONF`, `_RJEM_MALLOC_CONF`, the program's `malloc_conf`, the link `/etc/malloc.conf`, and the
//! warning for each key that is not known.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use jeprobe_tests::artefact::{self, Flavour, flavour};
use jeprobe_tests::facts::is;
use jeprobe_tests::{Run, TempDir, compile, privilege, skip};

fn options() -> std::path::PathBuf {
    compile::program("options.c", &[])
}

#[test]
fn values_are_taken_and_nothing_is_said() {
    if flavour() == Flavour::Libc {
        skip!("the C library has no options");
    }
    let ended = Run::preloaded(options())
        .conf("narenas:3,dirty_decay_ms:-1,muzzy_decay_ms:0x64")
        .args(["opt.narenas:u", "opt.dirty_decay_ms:i", "opt.muzzy_decay_ms:i", "opt.prof:b"])
        .finish()
        .ok();
    ended.facts().check(&[
        is("opt.narenas", "3"),
        is("opt.dirty_decay_ms", "-1"),
        is("opt.muzzy_decay_ms", "100"),
        is("opt.prof", "false").since_531(),
    ]);
    assert_eq!(ended.stderr, "");
}

/// The program goes on without it, and it is said.
#[test]
fn a_background_thread_that_cannot_start() {
    if flavour() != Flavour::Jeprobe {
        skip!("others have words of their own");
    }
    if !privilege::is_root() {
        skip!("needs root to become a user whose threads are counted");
    }
    let dir = TempDir::new("limit");
    let library = artefact::library().expect("the library under test");
    for (from, to) in [(library, "lib.so"), (options(), "options")] {
        let _ = Run::new("cp").arg(from).arg(dir.join(to)).finish().ok();
    }
    std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .expect("our own directory");
    let script = "LD_PRELOAD=./lib.so MALLOC_CONF=background_thread:true exec ./options background_thread:b";
    for (processes, is_on) in [("1", "false"), ("100", "true")] {
        let ended = Run::new("setpriv")
            .args(["--reuid=65531", "--regid=65531", "--clear-groups", "prlimit"])
            .arg(format!("--nproc={processes}"))
            .args(["sh", "-c", script])
            .dir(dir.path())
            .finish()
            .ok();
        ended.facts().check(&[is("background_thread", is_on)]);
        assert_eq!(ended.stderr.contains("no background thread"), is_on == "false", "{ended}");
    }
}

/// No configuration, no word.
#[test]
fn without_configuration_nothing_is_said() {
    let ended = Run::preloaded(compile::program("plain.c", &[])).finish().ok();
    assert_eq!(ended.stderr, "");
}

#[test]
fn sampler_options() {
    if flavour() != Flavour::Jeprobe {
        skip!("Debian builds jemalloc without the sampler");
    }
    let ended = Run::preloaded(options())
        .conf("prof:true,prof_active:false,lg_prof_sample:14,prof_accum:true,prof_final:false,prof_prefix:mine")
        .args([
            "opt.prof:b",
            "opt.prof_active:b",
            "opt.lg_prof_sample:z",
            "opt.prof_accum:b",
            "opt.prof_final:b",
            "opt.prof_prefix:s",
            "prof.active:b",
            "prof.lg_sample:z",
        ])
        .finish()
        .ok();
    ended.facts().check(&[
        is("opt.prof", "true"),
        is("opt.prof_active", "false"),
        is("opt.lg_prof_sample", "14"),
        is("opt.prof_accum", "true"),
        is("opt.prof_final", "false"),
        is("opt.prof_prefix", "mine"),
        is("prof.active", "false"),
        is("prof.lg_sample", "14"),
    ]);
    assert_eq!(ended.stderr, "");
}

/// One line per unknown key, naming it; the other pairs count; the program goes on.
#[test]
fn every_unknown_key_is_named() {
    if flavour() == Flavour::Libc {
        skip!("the C library has no options");
    }
    let ended =
        Run::preloaded(options()).conf("planted_one:1,narenas:5,planted_two:x").args(["opt.narenas:u"]).finish().ok();
    ended.facts().check(&[is("opt.narenas", "5")]);
    let lines: Vec<&str> = ended.stderr.lines().collect();
    assert_eq!(lines.len(), 2, "{ended}");
    assert!(lines[0].contains("planted_one") && lines[1].contains("planted_two"), "{ended}");
}

/// A value that does not parse, a string without an end, an illegal character: a line that shows the text, and on.
#[test]
fn malformed_values_are_shown() {
    if flavour() == Flavour::Libc {
        skip!("the C library has no options");
    }
    for (conf, shown) in [
        ("narenas:many", "narenas:many"),
        ("prof_final:maybe", "prof_final:maybe"),
        ("narenas", "narenas"),
        ("nare nas:3", "nare nas"),
        ("narenas:3,", "comma"),
    ] {
        if flavour() == Flavour::Jemalloc530 && matches!(conf, "narenas" | "nare nas:3") {
            continue;
        }
        let ended = Run::preloaded(options()).conf(conf).finish().ok();
        assert!(ended.stderr.contains(shown), "{conf}: {ended}");
    }
}

#[test]
fn the_programs_own_string_and_the_environment_over_it() {
    if flavour() == Flavour::Libc {
        skip!("the C library has no options");
    }
    let program = compile::program("conf_symbol.c", &["-rdynamic"]);
    let own = Run::preloaded(&program).finish().ok();
    own.facts().check(&[is("result", "0"), is("opt.narenas", "3")]);
    assert!(own.stderr.contains("planted_key"), "{own}");
    let over = Run::preloaded(&program).conf("narenas:6").finish().ok();
    over.facts().check(&[is("opt.narenas", "6")]);
}

#[test]
fn the_rust_crates_variable_is_read() {
    if flavour() != Flavour::Jeprobe {
        skip!("the name is that of the Rust crate's build");
    }
    let ended = Run::preloaded(options()).env("_RJEM_MALLOC_CONF", "narenas:7").args(["opt.narenas:u"]).finish().ok();
    ended.facts().check(&[is("opt.narenas", "7")]);
}

/// A link `/etc/malloc.conf` in a mount namespace of its own; its target is the text.
#[test]
fn the_link_in_etc() {
    if flavour() == Flavour::Libc {
        skip!("the C library has no options");
    }
    if !privilege::is_root() {
        skip!("needs root for a private /etc");
    }
    let directory = TempDir::new("etc");
    let copied = Command::new("cp").args(["-a", "/etc/."]).arg(directory.path()).status().expect("cp starts");
    assert!(copied.success(), "cannot copy /etc");
    symlink("narenas:9", directory.join("malloc.conf")).expect("the copy has no malloc.conf");
    let library = artefact::library().expect("a library is under test");
    let run = |text: &str| {
        let script = format!(
            "mount --bind '{}' /etc && {text} LD_PRELOAD='{}' '{}' opt.narenas:u",
            directory.path().display(),
            library.display(),
            options().display()
        );
        Run::new("unshare").args(["-m", "sh", "-c", &script]).finish().ok()
    };
    run("").facts().check(&[is("opt.narenas", "9")]);
    run("MALLOC_CONF=narenas:4").facts().check(&[is("opt.narenas", "4")]);
    assert!(Path::new("/etc/malloc.conf").symlink_metadata().is_err(), "the real /etc is as before");
}
