//! Targets and commands with less than a plain process has: other roots, namespaces, users, sandboxes, programs that are gone.

use std::fs;
use std::path::Path;

use jeprobe_tests::{Run, Target, TempDir, artefact, compile};

use crate::probing::need_probes;
use crate::session::{attach, command, interrupt, semaphores};

const ORDERED: &str = "500";

fn order(target: &mut Target, what: &str) {
    target.tell(what);
    target.wait_for("done");
}

/// The first process below this one, itself included, that runs `program`.
fn descendant(pid: i32, program: &str) -> u32 {
    let mut pid = pid;
    for _ in 0..10 {
        if fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| program.starts_with(name.trim())) {
            break;
        }
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).expect("it runs");
        pid = children.split_whitespace().next().and_then(|child| child.parse().ok()).expect("a child");
    }
    pid.cast_unsigned()
}

/// Attaches in each way and compares what the process holds with what is found, by its name.
fn is_profiled(wrapper: &[&str], orders: &[&str], row: &str) {
    let program = compile::program("sealed.c", &["-O1", "-g"]);
    let name = program.file_name().and_then(|name| name.to_str()).expect("a name").to_owned();
    for mode in [&["--mode", "ebpf"][..], &["--mode", "ebpf", "--every-event"], &["--mode", "inprocess"]] {
        let dir = TempDir::new("confined");
        let (first, rest) = wrapper.split_first().unwrap_or((&"", &[]));
        let mut target = if wrapper.is_empty() {
            Run::preloaded(&program).spawn()
        } else {
            Run::preloaded(first).args(rest).arg(&program).spawn()
        };
        target.ready();
        for what in orders {
            order(&mut target, what);
        }
        let (pid, file) = (descendant(target.pid(), &name).to_string(), dir.join("a.heap").display().to_string());
        let arguments = [&["attach", "--pid", &pid, "-o", &file, "--lg-sample", "16"], mode].concat();
        let mut loader = command(&arguments).spawn();
        loader.wait_for_text("end with Ctrl-C");
        order(&mut target, ORDERED);
        let ended = interrupt(loader).ok();
        let found = ended.stdout.lines().find(|line| line.ends_with(row));
        let share = found.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
        assert!(share.is_some_and(|mib| (40.0..58.0).contains(&mib)), "{wrapper:?} {orders:?} {mode:?}: {ended}");
        assert_eq!(target.finish().code(), 0, "{wrapper:?} {orders:?} {mode:?}");
    }
}

#[test]
fn in_namespaces_of_its_own() {
    need_probes!();
    is_profiled(
        &["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc", "--net", "--ipc"],
        &[],
        " main",
    );
}

#[test]
fn as_another_user_who_may_gain_no_rights() {
    need_probes!();
    // Its memory is nobody's but root's.
    let wrapper = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--no-new-privs"];
    is_profiled(&wrapper, &["private"], " main");
}

/// Without `/proc` there is nothing to unwind by; what is held is known all the same, and why it has no stacks.
#[test]
fn behind_a_root_without_proc() {
    need_probes!();
    let dir = TempDir::new("root");
    is_profiled(&[], &[&format!("root {}", dir.path().display())], " [no stack]");
}

#[test]
fn in_a_sandbox_that_refuses_files() {
    need_probes!();
    is_profiled(&[], &["sandbox"], " [no stack]");
}

/// Sampling would end the process; so it is left alone.
#[test]
fn in_a_sandbox_that_ends_who_opens_files() {
    need_probes!();
    for mode in ["ebpf", "inprocess", "auto"] {
        let dir = TempDir::new("strict");
        let mut target = Run::preloaded(compile::program("sealed.c", &["-O1", "-g"])).spawn();
        target.ready();
        order(&mut target, "strict");
        let (pid, file) = (target.pid().to_string(), dir.join("a.heap").display().to_string());
        let ended = command(&["attach", "--pid", &pid, "-o", &file, "--mode", mode]).finish();
        assert_eq!(ended.code(), 1, "{ended}");
        for words in ["is in a sandbox that would end it when it is sampled: seccomp forbids it openat", "hint: "] {
            assert!(ended.stdout.contains(words), "{words}: {ended}");
        }
        assert!(!Path::new(&file).exists());
        let raised = semaphores(target.pid(), &artefact::library().expect("the library under test"));
        assert_eq!(raised, [0; 4], "nothing was attached");
        order(&mut target, ORDERED);
        assert_eq!(target.finish().code(), 0, "it lives");
    }
}

#[test]
fn whose_program_was_deleted() {
    need_probes!();
    let dir = TempDir::new("deleted");
    let program = dir.join("gone");
    fs::copy(compile::program("sealed.c", &["-O1", "-g"]), &program).expect("copied");
    let mut target = Run::preloaded(&program).spawn();
    target.ready();
    fs::remove_file(&program).expect("removed");
    // Another one of that name.
    fs::copy("/bin/true", &program).expect("copied");
    let loader = attach(&target, &dir.join("a.heap"), &["--lg-sample", "16"]);
    order(&mut target, ORDERED);
    let ended = interrupt(loader).ok();
    assert!(ended.stdout.lines().any(|line| line.ends_with(" main")), "{ended}");
    assert_eq!(target.finish().code(), 0);
}

/// As in containers whose seccomp profile keeps their programs from each other's memory: probes need none of it.
#[test]
fn a_command_that_may_not_read_memory() {
    need_probes!();
    let denied = compile::program("denied.c", &["-O1"]);
    let calls = format!("{},{}", libc::SYS_process_vm_readv, libc::SYS_process_vm_writev);
    let dir = TempDir::new("unread");
    let mut target = Run::preloaded(compile::program("sealed.c", &["-O1", "-g"])).spawn();
    target.ready();
    let (pid, file) = (target.pid().to_string(), dir.join("a.heap").display().to_string());
    let jeprobe = artefact::command().display().to_string();
    let attach = |mode| {
        let words = "exec \"$0\" \"$@\" 2>&1";
        let arguments = ["attach", "--pid", &pid, "-o", &file, "--lg-sample", "16", "--mode", mode];
        Run::new("/bin/sh").args(["-c", words]).arg(&denied).args([&calls, &jeprobe]).args(arguments)
    };
    let mut loader = attach("ebpf").spawn();
    loader.wait_for_text("--lg-sample has no effect");
    loader.wait_for_text("end with Ctrl-C");
    order(&mut target, "5000");
    let ended = interrupt(loader).ok();
    assert!(ended.stdout.lines().any(|line| line.ends_with(" main")), "{ended}");
    let ended = attach("inprocess").finish();
    assert_eq!(ended.code(), 1, "{ended}");
    assert!(ended.stdout.contains("cannot read the memory") && ended.stdout.contains("seccomp profile"), "{ended}");
    assert_eq!(target.finish().code(), 0);
}
