//! Things that go wrong on either side while attached, and targets that are hard to see: the command killed, two of them
//! at once, a target that forks, starts threads, execs or is killed, libraries that are stripped, static, deleted or in
//! another mount namespace, no privilege, no BTF.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use jeprobe_tests::truth::{self, Frames, Table};
use jeprobe_tests::{Ended, Run, Target, TempDir, artefact, compile, privilege, sampling, skip};

use crate::probing::need_probes;
use crate::session::{attach, command, interrupt, semaphores, truth_program};

fn library() -> std::path::PathBuf {
    artefact::library().expect("the library under test")
}

/// Some site of every size class of sites is in the table.
fn has_sites(table: &Table) {
    for site in ["site_00", "site_11", "site_19"] {
        assert!(table.rows.contains_key(site), "no {site} among {:?}", table.rows.keys());
    }
}

#[test]
fn a_killed_command_leaves_the_target_as_it_was() {
    need_probes!();
    let directory = TempDir::new("killed");
    let mut target = truth_program(Frames::Omitted, "");
    assert_eq!(semaphores(target.pid(), &library()), [0; 4]);
    for _ in 0..3 {
        let loader = attach(&target, &directory.join("lost.heap"), &["--mode", "ebpf", "--lg-sample", "12"]);
        let raised = semaphores(target.pid(), &library());
        assert!(raised[0] > 0 && raised[3] > 0, "{raised:?}");
        target.tell("threads");
        target.wait_for("threads done");
        loader.signal(libc::SIGKILL);
        assert_eq!(loader.finish().signal(), Some(libc::SIGKILL));
        // The kernel lowers them when the last descriptor goes, before the process can be waited for.
        assert_eq!(semaphores(target.pid(), &library()), [0; 4]);
        target.tell("threads");
        target.wait_for("threads done");
    }
    let file = directory.join("second.heap");
    let loader = attach(&target, &file, &["--mode", "ebpf"]);
    truth::allocate(&mut target);
    assert_eq!(interrupt(loader).code(), 0);
    has_sites(&truth::our_table(&truth::program(Frames::Omitted), &file, &[]));
    assert_eq!(semaphores(target.pid(), &library()), [0; 4]);
    target.tell("exit");
    assert_eq!(target.finish().code(), 0);
}

#[test]
fn two_commands_at_once() {
    need_probes!();
    sampling::twice(|| {
        let directory = TempDir::new("two");
        let (first, second) = (directory.join("first.heap"), directory.join("second.heap"));
        let mut target = truth_program(Frames::Omitted, "lg_prof_sample:15");
        let one = attach(&target, &first, &["--mode", "ebpf"]);
        let two = attach(&target, &second, &["--mode", "ebpf"]);
        let truth = truth::allocate(&mut target);
        let program = truth::program(Frames::Omitted);
        assert_eq!(interrupt(one).code(), 0);
        target.tell("threads");
        target.wait_for("threads done");
        assert_eq!(interrupt(two).code(), 0);
        for file in [&first, &second] {
            truth.judge(&truth::our_table(&program, file, &[]), f64::from(1 << 15), "one of two")?;
        }
        assert_eq!(semaphores(target.pid(), &library()), [0; 4]);
        Ok(())
    });
}

#[test]
fn forks_threads_and_an_exec_while_attached() {
    need_probes!();
    let directory = TempDir::new("exec");
    let file = directory.join("attached.heap");
    let program = truth::program(Frames::Omitted);
    let mut target = Run::preloaded(&program).arg(&program).spawn();
    target.ready();
    let loader = attach(&target, &file, &["--mode", "ebpf", "--lg-sample", "14"]);
    truth::allocate(&mut target);
    for _ in 0..5 {
        target.tell("fork");
        assert_eq!(target.wait_for("child "), "child 0", "the forked child is unharmed");
        target.tell("threads");
        target.wait_for("threads done");
    }
    target.tell("exec");
    target.ready();
    target.tell("fork");
    assert_eq!(target.wait_for("child "), "child 0");
    let mut loader = loader;
    loader.wait_for_text("until then written to");
    truth::allocate(&mut target);
    let ended = interrupt(loader);
    assert_eq!(ended.code(), 0, "{ended}");
    let images = directory.files("");
    assert_eq!(images.len(), 2, "a profile of each image: {images:?}");
    for image in images {
        has_sites(&truth::our_table(&program, &image, &[]));
    }
    target.tell("exit");
    assert_eq!(target.finish().code(), 0);
}

#[test]
fn a_killed_target_leaves_its_profile() {
    need_probes!();
    let directory = TempDir::new("dead");
    let file = directory.join("attached.heap");
    let mut target = truth_program(Frames::Omitted, "");
    let loader = attach(&target, &file, &["--mode", "ebpf", "--every-event", "--lg-sample", "14"]);
    truth::allocate(&mut target);
    target.signal(libc::SIGKILL);
    assert_eq!(target.finish().signal(), Some(libc::SIGKILL));
    let ended = loader.finish();
    assert_eq!(ended.code(), 3, "{ended}");
    assert!(ended.stdout.contains("ended") && ended.stdout.contains("collected"), "it says so: {ended}");
    has_sites(&truth::our_table(&truth::program(Frames::Omitted), &file, &[]));
}

#[test]
fn the_whole_host_with_a_process_that_starts_later() {
    need_probes!();
    let directory = TempDir::new("system");
    let out = directory.join("out");
    let mut early = truth_program(Frames::Omitted, "lg_prof_sample:14");
    let mut loader = command(&["system", "--mode", "ebpf", "--out-dir", &out.display().to_string()]).spawn();
    loader.wait_for_text("end with Ctrl-C");
    let mut later = truth_program(Frames::Pointers, "lg_prof_sample:14");
    truth::allocate(&mut early);
    truth::allocate(&mut later);
    let ended = interrupt(loader);
    // Other processes of the host may have ended meanwhile, which is code 3.
    assert!([0, 3].contains(&ended.code()), "{ended}");
    let files: Vec<String> = fs::read_dir(&out)
        .expect("the directory was made")
        .map(|entry| entry.expect("readable").file_name().to_string_lossy().into_owned())
        .collect();
    for (target, frames) in [(&early, Frames::Omitted), (&later, Frames::Pointers)] {
        let pid = target.pid().to_string();
        assert!(ended.stdout.contains(&pid), "{pid} in the table of processes: {ended}");
        let file = files.iter().find(|name| name.contains(&pid)).unwrap_or_else(|| panic!("{pid}: {files:?}"));
        has_sites(&truth::our_table(&truth::program(frames), &out.join(file), &[]));
    }
    assert!(files.len() >= 3, "one profile per process and one merged: {files:?}");
}

/// Attaches with probes while the target allocates; the profile is complete and `program` names its sites. Returns what
/// the command said.
fn attached_while_it_allocates(target: &mut Target, program: &Path, file: &Path) -> Ended {
    let loader = attach(target, file, &["--mode", "ebpf", "--lg-sample", "14"]);
    truth::allocate(target);
    let ended = interrupt(loader);
    assert_eq!(ended.code(), 0, "{ended}");
    has_sites(&truth::our_table(program, file, &[]));
    ended
}

fn strip(path: &Path) {
    let status = Command::new("strip").arg("--strip-all").arg(path).status().expect("strip starts");
    assert!(status.success());
}

/// A copy of the library at another place, changed by `change`, and a target that runs on it.
fn hidden_library(change: impl Fn(&Path), gone: bool) {
    let directory = TempDir::new("hidden");
    let copy = directory.join("libhidden.so");
    fs::copy(library(), &copy).expect("the library is readable");
    change(&copy);
    let program = truth::program(Frames::Omitted);
    let mut target = Run::new(&program).env("LD_PRELOAD", &copy).spawn();
    target.ready();
    if gone {
        fs::remove_file(&copy).expect("just copied");
    }
    attached_while_it_allocates(&mut target, &program, &directory.join("attached.heap"));
}

#[test]
fn a_stripped_library() {
    need_probes!();
    hidden_library(strip, false);
}

#[test]
fn a_deleted_library() {
    need_probes!();
    hidden_library(|_| {}, true);
}

#[test]
fn a_static_stripped_program() {
    need_probes!();
    let directory = TempDir::new("static");
    let archive = artefact::static_library().display().to_string();
    let program = compile::program("truth.c", &["-O2", "-static", &archive, "-lm"]);
    let stripped = directory.join("stripped");
    fs::copy(&program, &stripped).expect("just compiled");
    strip(&stripped);
    let mut target = Run::new(&stripped).spawn();
    target.ready();
    // The unstripped twin has the same addresses and knows the names.
    attached_while_it_allocates(&mut target, &program, &directory.join("attached.heap"));
}

/// A target whose library is mounted only in its own mount namespace, as in a container.
#[test]
fn another_mount_namespace() {
    need_probes!();
    let directory = TempDir::new("namespace");
    let place = directory.join("place");
    fs::create_dir(&place).expect("our own directory");
    let inside = directory.join("inside");
    fs::create_dir(&inside).expect("our own directory");
    fs::copy(library(), inside.join("libinside.so")).expect("the library is readable");
    let program = truth::program(Frames::Omitted);
    let script = format!(
        "mount --bind '{}' '{place}' && mount -t tmpfs none '{}' && LD_PRELOAD='{place}/libinside.so' exec '{}'",
        inside.display(),
        inside.display(),
        program.display(),
        place = place.display()
    );
    let mut target = Run::new("unshare").args(["-m", "sh", "-c", &script]).spawn();
    target.ready();
    assert!(!place.join("libinside.so").exists(), "the path leads nowhere outside");
    let ended = attached_while_it_allocates(&mut target, &program, &directory.join("attached.heap"));
    assert!(ended.stdout.contains("site_"), "symbols are found through the target's root: {ended}");
}

/// A user without any capability profiles a process of the same user: the command says why there are no probes and reads
/// the table instead.
#[test]
fn no_privilege_falls_back() {
    if !privilege::is_root() {
        skip!("needs root to become another user");
    }
    sampling::twice(|| {
        let directory = TempDir::new("nobody");
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o777)).expect("our own directory");
        let program = truth::program(Frames::Omitted);
        let copies = [(library(), "lib.so"), (artefact::command(), "jeprobe"), (program.clone(), "truth")];
        for (from, to) in copies {
            fs::copy(&from, directory.join(to)).unwrap_or_else(|e| panic!("{}: {e}", from.display()));
        }
        let nobody = ["--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all", "--"];
        let mut target = Run::new("setpriv")
            .args(nobody)
            .args(["env".to_owned(), format!("LD_PRELOAD={}", directory.join("lib.so").display())])
            .arg(directory.join("truth"))
            .spawn();
        target.ready();
        let pid = target.pid().to_string();
        let file = directory.join("attached.heap");
        let mut loader = Run::new("setpriv")
            .args(nobody)
            .args(["sh", "-c", "exec \"$0\" \"$@\" 2>&1"])
            .arg(directory.join("jeprobe"))
            .args(["attach", "--pid", &pid, "--lg-sample", "14", "-o"])
            .arg(&file)
            .dir(directory.path())
            .spawn();
        loader.wait_for_text("no probes");
        loader.wait_for_text("end with Ctrl-C");
        let truth = truth::allocate(&mut target);
        let ended = interrupt(loader);
        assert_eq!(ended.code(), 0, "{ended}");
        truth.judge(&truth::our_table(&program, &file, &[]), f64::from(1 << 14), "without privilege")
    });
}

/// Kernel BTF hidden: probes or table, the profile comes.
#[test]
fn no_btf() {
    need_probes!();
    let directory = TempDir::new("btf");
    let file = directory.join("attached.heap");
    let mut target = truth_program(Frames::Omitted, "");
    let script = format!(
        "mount -t tmpfs none /sys/kernel/btf && exec '{}' attach --pid {} --lg-sample 14 -o '{}' 2>&1",
        artefact::command().display(),
        target.pid(),
        file.display()
    );
    let mut loader = Run::new("unshare").args(["-m", "sh", "-c", &script]).spawn();
    loader.wait_for_text("end with Ctrl-C");
    truth::allocate(&mut target);
    let ended = interrupt(loader);
    assert_eq!(ended.code(), 0, "{ended}");
    has_sites(&truth::our_table(&truth::program(Frames::Omitted), &file, &[]));
}

/// No room for the profile: the command fails with the reason, the target is unharmed.
#[test]
fn a_full_disk_at_the_end() {
    need_probes!();
    let directory = TempDir::new("full");
    let mut target = truth_program(Frames::Omitted, "");
    let script = format!(
        "mount -t tmpfs -o size=4k none '{dir}' && exec '{}' attach --pid {} --lg-sample 12 -o '{dir}/a.heap' 2>&1",
        artefact::command().display(),
        target.pid(),
        dir = directory.path().display()
    );
    let mut loader = Run::new("unshare").args(["-m", "sh", "-c", &script]).spawn();
    loader.wait_for_text("end with Ctrl-C");
    truth::allocate(&mut target);
    let ended = interrupt(loader);
    assert_eq!(ended.code(), 1, "{ended}");
    assert!(ended.stdout.to_lowercase().contains("no space left"), "{ended}");
    assert_eq!(semaphores(target.pid(), &library()), [0; 4]);
    target.tell("exit");
    assert_eq!(target.finish().code(), 0);
}
