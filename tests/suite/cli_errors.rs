//! What the command says when something cannot be done: exit code, message, cause and hint of each situation, reproduced.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use jeprobe_tests::{Ended, Run, Target, TempDir, artefact, compile, skip};

/// The command with arguments, run to its end.
fn jeprobe(args: &[&str]) -> Ended {
    Run::new(artefact::command()).args(args).finish()
}

/// Asserts the code and that stderr is these lines; `*` in a line stands for anything.
#[track_caller]
fn says(ended: &Ended, code: i32, lines: &[&str]) {
    let said: Vec<&str> = ended.stderr.lines().collect();
    let same = said.len() == lines.len() && said.iter().zip(lines).all(|(said, wanted)| matches(said, wanted));
    assert!(ended.code() == code && same, "wanted code {code} and\n{}\n--- got\n{ended}", lines.join("\n"));
}

fn matches(text: &str, pattern: &str) -> bool {
    match pattern.split_once('*') {
        None => text == pattern,
        Some((head, tail)) => text
            .strip_prefix(head)
            .is_some_and(|rest| (0..=rest.len()).any(|at| rest.is_char_boundary(at) && matches(&rest[at..], tail))),
    }
}

/// A process that only waits, without the library.
fn sleeper() -> Target {
    let mut target = Run::new("/bin/sh").args(["-c", "echo ready; read line"]).spawn();
    target.ready();
    target
}

fn is_root() -> bool {
    // SAFETY: reads the ids of this process.
    unsafe { libc::geteuid() == 0 }
}

/// The command as an unprivileged user. Copied first: that user may not enter the build's directory.
fn as_nobody(dir: &TempDir, args: &[&str]) -> Ended {
    let copy = dir.path().join("jeprobe");
    // By a process of its own: a file open for writing here is inherited by what other tests start, and busy for that long.
    let _ = Run::new("cp").arg(artefact::command()).arg(&copy).finish().ok();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).expect("our own directory");
    Run::new("/usr/bin/setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"])
        .arg(copy)
        .args(args)
        .dir(dir.path())
        .finish()
}

#[test]
fn a_pid_that_is_not_there() {
    let pid = {
        let ended = sleeper();
        let pid = ended.pid().to_string();
        ended.finish();
        pid
    };
    for args in [["dump", "--pid", &pid], ["attach", "--pid", &pid]] {
        let ended = jeprobe(&args);
        says(
            &ended,
            1,
            &[
                &format!("jeprobe: error: there is no process with pid {pid}"),
                "hint: list candidates with: pgrep -a NAME",
            ],
        );
    }
}

#[test]
fn a_process_without_the_library() {
    let target = sleeper();
    let pid = target.pid().to_string();
    for mode in [&["dump"][..], &["attach", "--mode", "inprocess"], &["attach"], &["web", "--no-open"]] {
        let ended = jeprobe(&[mode, &["--pid", &pid]].concat());
        says(
            &ended,
            1,
            &[
                &format!("jeprobe: error: process {pid} (sh) does not use the jeprobe allocator"),
                "hint: start it under the allocator: jeprobe run -- COMMAND, or LD_PRELOAD=/path/to/libjeprobe.so COMMAND",
            ],
        );
    }
}

#[test]
fn a_zombie() {
    // The shell's child ends at once and is never waited for, since exec replaces the shell.
    let mut parent = Run::new("/bin/sh").args(["-c", "sh -c 'echo ready $$' & exec cat"]).spawn();
    let line = parent.ready();
    let pid = line.strip_prefix("ready ").expect("a pid").to_owned();
    let stat = format!("/proc/{pid}/stat");
    while !fs::read_to_string(&stat).is_ok_and(|stat| stat.contains(") Z ")) {
        std::thread::yield_now();
    }
    let ended = jeprobe(&["dump", "--pid", &pid]);
    says(&ended, 1, &[&format!("jeprobe: error: process {pid} (sh) has ended and only waits for its parent")]);
}

#[test]
fn a_process_of_another_user() {
    if !is_root() {
        skip!("not root: cannot act as another user");
    }
    let target = sleeper();
    let pid = target.pid().to_string();
    let dir = TempDir::new("nobody");
    for args in [&["dump", "--pid", &pid][..], &["attach", "--mode", "inprocess", "--pid", &pid]] {
        says(
            &as_nobody(&dir, args),
            1,
            &[
                &format!("jeprobe: error: cannot read the mappings of process {pid} (sh)"),
                "  caused by: Permission denied (os error 13)",
                "hint: run as the owner of the process (uid 0) or as root: sudo jeprobe *",
            ],
        );
    }
}

#[test]
fn probes_without_privilege() {
    if !is_root() {
        skip!("not root: cannot give privilege up");
    }
    let target = sleeper();
    let dir = TempDir::new("unprivileged");
    let pid = target.pid().to_string();
    for args in [&["attach", "--mode", "ebpf", "--pid", &pid][..], &["system", "--mode", "ebpf", "--duration", "1s"]] {
        let ended = as_nobody(&dir, args);
        says(&ended, 1, &["jeprobe: error: probes cannot be used here: *", "hint: *"]);
    }
}

#[test]
fn results_that_cannot_be_written() {
    let dir = TempDir::new("unwritable");
    let directory = dir.path().to_str().expect("text").to_owned();
    let missing = format!("{directory}/no/such/x.heap");
    // Told before the command is started.
    let ended = jeprobe(&["run", "-o", &missing, "--", "true"]);
    says(
        &ended,
        1,
        &[
            &format!("jeprobe: error: cannot write {missing}"),
            "  caused by: No such file or directory (os error 2)",
            "hint: create the directory first, or name another file with -o",
        ],
    );
    let ended = jeprobe(&["run", "-o", &directory, "--", "true"]);
    says(
        &ended,
        1,
        &[
            &format!("jeprobe: error: cannot write {directory}"),
            "  caused by: Is a directory (os error 21)",
            "hint: that is a directory; name a file in it with -o",
        ],
    );
    says(
        &jeprobe(&["run", "--flamegraph", "-", "--", "true"]),
        1,
        &[
            "jeprobe: error: the flame graph needs a file of its own",
            "hint: name it: --flamegraph FILE.svg; to draw to standard output: jeprobe flamegraph FILE.heap",
        ],
    );
    let ended = jeprobe(&["run", "--flamegraph", "/proc/x.svg", "--", "true"]);
    assert_eq!(ended.code(), 1, "{ended}");
    assert!(ended.stderr.starts_with("jeprobe: error: cannot write /proc/x.svg\n"), "{ended}");
    assert!(
        ended.stderr.ends_with("\nhint: that file system takes no new files; name another file with -o\n"),
        "{ended}"
    );
}

#[test]
fn a_full_disk() {
    let dir = TempDir::new("full");
    let ended = Run::new(artefact::command()).args(["run", "-o", "/dev/full", "--", "true"]).dir(dir.path()).finish();
    assert_eq!(ended.code(), 1, "{ended}");
    assert!(
        ended.stderr.contains(
            "jeprobe: error: cannot write /dev/full\n  caused by: No space left on device (os error 28)\n\
             hint: free some space, or name a file on another disk with -o\n"
        ),
        "{ended}"
    );
    assert_eq!(fs::read_dir(dir.path()).expect("readable").count(), 0, "nothing is left behind");
}

#[test]
fn commands_that_cannot_be_run() {
    let dir = TempDir::new("run");
    let run = |args: &[&str]| Run::new(artefact::command()).args(args).dir(dir.path()).finish();
    says(
        &run(&["run", "--", "jeprobe-no-such-command"]),
        127,
        &[
            "jeprobe: error: cannot run jeprobe-no-such-command",
            "  caused by: No such file or directory (os error 2)",
            "hint: check the spelling and PATH",
        ],
    );
    says(
        &run(&["run", "--", "/etc/passwd"]),
        126,
        &["jeprobe: error: cannot run /etc/passwd", "  caused by: Permission denied (os error 13)"],
    );
    says(
        &run(&["run", "--library", "/no/such/libjeprobe.so", "--", "true"]),
        1,
        &[
            "jeprobe: error: cannot use the library /no/such/libjeprobe.so",
            "  caused by: No such file or directory (os error 2)",
            "hint: name it with --library PATH",
        ],
    );
    let blank = dir.path().join("a b.so");
    fs::write(&blank, b"").expect("writable");
    says(
        &run(&["run", "--library", "a b.so", "--", "true"]),
        1,
        &[
            &format!(
                "jeprobe: error: the dynamic linker cannot preload a path with a blank or a colon: {}",
                blank.display()
            ),
            "hint: copy the library to a path without them and name it with --library",
        ],
    );
}

#[test]
fn a_library_that_is_nowhere() {
    let dir = TempDir::new("nolibrary");
    let copy = dir.path().join("jeprobe");
    fs::copy(artefact::command(), &copy).expect("writable");
    let ended = Run::new(&copy).args(["run", "--", "true"]).dir(dir.path()).finish();
    says(
        &ended,
        1,
        &[
            "jeprobe: error: cannot find libjeprobe.so",
            "hint: name it with --library PATH or JEPROBE_LIBRARY=PATH; looked for *",
        ],
    );
}

#[test]
fn a_static_program_records_nothing() {
    let program = compile::program("plain.c", &["-static"]);
    let dir = TempDir::new("static");
    let ended = Run::new(artefact::command()).args(["run", "--"]).arg(program).dir(dir.path()).finish();
    assert_eq!(ended.code(), 1, "{ended}");
    assert!(
        ended.stderr.contains("recorded no profile\nhint: it is a static program, into which nothing is preloaded"),
        "{ended}"
    );
}

/// The code is that of the command, whatever it left in its few milliseconds; what is not known is said.
#[test]
fn a_command_that_leaves_through_exit_at_once_keeps_its_code() {
    let dir = TempDir::new("fleeting");
    for (code, script) in [(0, "true"), (7, "exit 7")] {
        let run = Run::new(artefact::command()).args(["run", "-o", "a.heap", "--", "sh", "-c", script]).dir(dir.path());
        let ended = run.finish();
        assert_eq!(ended.code(), code, "{ended}");
        assert!(
            ended.stderr.contains("profile written to a.heap\nTotal: 0.0 MiB\nno live sampled memory: "),
            "{ended}"
        );
        assert!(ended.stderr.contains("wrote no profile"), "{ended}");
        let _read = Run::new(artefact::command()).arg("report").arg(dir.join("a.heap")).finish().ok();
    }
}

#[test]
fn a_program_that_loses_the_library_on_its_way_records_nothing() {
    let dir = TempDir::new("cleared");
    let ended = Run::new(artefact::command())
        .args(["run", "--", "env", "LD_PRELOAD=", "sh", "-c", "read line; sleep 1"])
        .dir(dir.path())
        .finish();
    assert_eq!(ended.code(), 1, "{ended}");
    assert!(ended.stderr.contains("recorded no profile\nhint: it ran without the library"), "{ended}");
    assert_eq!(fs::read_dir(dir.path()).expect("readable").count(), 0, "nothing is left behind");
}

/// The process writes its profile elsewhere, the report is printed, and the file is what fails.
#[test]
fn a_full_file_system_does_not_take_the_report() {
    if !is_root() {
        skip!("not root: cannot mount a small file system");
    }
    let dir = TempDir::new("small");
    let program = compile::program("holder.c", &["-O0", "-g"]);
    let place = dir.path().display();
    let script = format!(
        "mount -t tmpfs -o size=4k none '{place}' && head -c 4096 /dev/zero > '{place}/full' && \
         exec '{}' run --lg-sample 14 -o '{place}/a.heap' -- '{}' exit 0",
        artefact::command().display(),
        program.display()
    );
    let ended = Run::new("unshare").args(["-m", "sh", "-c", &script]).finish();
    assert_eq!(ended.code(), 1, "{ended}");
    assert!(ended.stderr.contains("Total: ") && ended.stderr.contains(" hold\n"), "{ended}");
    assert!(ended.stderr.contains("a.heap\n  caused by: No space left on device"), "{ended}");
}

/// A limit of threads that is reached: what needs one says so, what does not goes on.
#[test]
fn no_thread_can_be_started() {
    if !is_root() {
        skip!("not root: cannot act as a user whose processes are counted");
    }
    let dir = TempDir::new("threads");
    fs::write(dir.join("a.heap"), "heap_v2/1\n  t*: 1: 100 [0: 0]\n@ 0x1000\n  t*: 1: 100 [0: 0]\n").expect("writable");
    let copy = dir.join("jeprobe");
    let library = artefact::library().expect("the library under test");
    for (from, to) in [(artefact::command(), copy.clone()), (library, dir.join("libjeprobe.so"))] {
        let _ = Run::new("cp").arg(from).arg(to).finish().ok();
    }
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).expect("our own directory");
    let limited = |args: &[&str]| {
        Run::new("/usr/bin/setpriv")
            .args(["--reuid=65533", "--regid=65533", "--clear-groups", "prlimit", "--nproc=1", "--"])
            .arg(&copy)
            .args(args)
            .dir(dir.path())
            .finish()
    };
    let cause = "  caused by: Resource temporarily unavailable (os error 11)";
    let hint = "hint: raise the limit of processes and threads: ulimit -u, and pids.max of the control group";
    says(&limited(&["web", "--no-open", "a.heap"]), 1, &["jeprobe: error: cannot start the server", cause, hint]);
    let _read = limited(&["report", "a.heap"]).ok();
    says(
        &limited(&["run", "--library", "libjeprobe.so", "--", "true"]),
        126,
        &["jeprobe: error: cannot run true", cause, hint],
    );
}

#[test]
fn a_library_of_others() {
    let dir = TempDir::new("foreign");
    let libc = fs::read_to_string("/proc/self/maps").expect("ours");
    let libc =
        libc.lines().find_map(|line| Some(format!("/{}", line.split_once(" /")?.1)).filter(|p| p.contains("libc.so")));
    let ended = Run::new(artefact::command())
        .args(["run", "--library", &libc.expect("this program has a C library"), "--", "true"])
        .dir(dir.path())
        .finish();
    says(
        &ended,
        1,
        &[
            "jeprobe: error: cannot use the library *libc.so*",
            "  caused by: it is not jeprobe's: it has no profile table",
            "hint: name it with --library PATH",
        ],
    );
}

#[test]
fn usage() {
    for args in [
        &["dump"][..],
        &["attach", "--pid", "x"],
        &["attach", "--pid", "1", "--duration", "5x"],
        &["run"],
        &["nonsense"],
    ] {
        let ended = jeprobe(args);
        assert_eq!(ended.code(), 2, "{ended}");
        assert!(
            ended.stderr.starts_with("error: ") && ended.stderr.ends_with("For more information, try '--help'.\n"),
            "{ended}"
        );
    }
}

#[test]
fn web_needs_profiles_or_a_pid() {
    let ended = jeprobe(&["web"]);
    assert_eq!(ended.code(), 2, "{ended}");
    assert!(ended.stderr.contains("PROFILE...\n       jeprobe web [OPTIONS] --pid PID\n"), "{ended}");
}

#[test]
fn names_of_files_do_not_reach_the_terminal_as_they_are() {
    let ended = jeprobe(&["report", "no\u{1b}[31m.heap"]);
    assert_eq!(ended.code(), 1, "{ended}");
    assert!(ended.stderr.starts_with("jeprobe: error: cannot read no\u{fffd}[31m.heap\n"), "{ended}");
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let dir = TempDir::new("pipe");
    let heap = dir.path().join("a.heap");
    fs::write(&heap, "heap_v2/1\n  t*: 1: 100 [0: 0]\n@ 0x1000\n  t*: 1: 100 [0: 0]\n").expect("writable");
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let status = std::process::Command::new(artefact::command())
        .arg("report")
        .arg(&heap)
        .stdout(Stdio::from(writer))
        .stderr(Stdio::null())
        .status()
        .expect("the command runs");
    assert_eq!(status.code(), Some(0));
    let full = fs::OpenOptions::new().write(true).open("/dev/full").expect("there");
    let output = std::process::Command::new(artefact::command())
        .arg("report")
        .arg(&heap)
        .stdout(Stdio::from(full))
        .output()
        .expect("the command runs");
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).starts_with(
        "jeprobe: error: cannot write to standard output\n  caused by: No space left on device (os error 28)\nhint: free some \
         space, or send the result to another disk\n"
    ));
}
