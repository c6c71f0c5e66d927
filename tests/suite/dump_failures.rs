//! A profile that cannot be written: the process says why and lives on with its exit code unchanged.

use jeprobe_tests::artefact::{Flavour, flavour};
use jeprobe_tests::truth::{self, Frames};
use jeprobe_tests::{Run, TempDir, artefact, privilege, skip};

/// `prof_final` into a directory that is not there.
#[test]
fn an_unwritable_prefix() {
    if flavour() == Flavour::Libc {
        skip!("the C library has no profiles");
    }
    let mut target = Run::preloaded(truth::program(Frames::Omitted))
        .conf("prof:true,prof_final:true,prof_prefix:/nonexistent/dir/mine")
        .spawn();
    target.ready();
    target.tell("dump /nonexistent/dir/other");
    assert_eq!(target.wait_for("dump "), format!("dump {}", libc::EFAULT));
    target.tell("exit");
    let ended = target.finish();
    assert_eq!(ended.code(), 0, "{ended}");
    assert!(ended.stderr.contains("/nonexistent/dir/mine"), "the final dump names its file: {ended}");
    if flavour() == Flavour::Jeprobe {
        assert!(ended.stderr.contains("/nonexistent/dir/other"), "prof.dump says why, too: {ended}");
    }
}

/// A file system without room: the reason on stderr, `EFAULT` to the caller.
#[test]
fn a_full_disk() {
    if flavour() != Flavour::Jeprobe {
        skip!("jemalloc stays silent here");
    }
    if !privilege::is_root() {
        skip!("needs root for a small file system");
    }
    let directory = TempDir::new("full");
    let script = format!(
        "mount -t tmpfs -o size=4k none '{dir}' && LD_PRELOAD='{}' MALLOC_CONF=prof:true,lg_prof_sample:12 exec '{}'",
        artefact::library().expect("ours is a file").display(),
        truth::program(Frames::Omitted).display(),
        dir = directory.path().display()
    );
    let mut target = Run::new("unshare").args(["-m", "sh", "-c", &script]).spawn();
    target.ready();
    truth::allocate(&mut target);
    target.tell(&format!("dump {}/full.heap", directory.path().display()));
    assert_eq!(target.wait_for("dump "), format!("dump {}", libc::EFAULT));
    target.tell("free");
    target.wait_for("freed");
    target.tell("exit");
    let ended = target.finish();
    assert_eq!(ended.code(), 0, "{ended}");
    assert!(ended.stderr.contains("full.heap"), "it says which file and why: {ended}");
}
