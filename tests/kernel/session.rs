//! What the end-to-end tests share: the command attached to the program of known sites, and the semaphores of a process
//! that runs on the real library.

use std::fs;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::Command;

use jeprobe_tests::truth::{self, Frames};
use jeprobe_tests::{Ended, Run, Target, artefact};

/// `truth.c` on the library, ready.
pub(crate) fn truth_program(frames: Frames, conf: &str) -> Target {
    let mut target = Run::preloaded(truth::program(frames)).conf(conf).spawn();
    target.ready();
    target
}

/// The command with its words and results in one stream, so that its progress can be waited for.
pub(crate) fn command(arguments: &[&str]) -> Run {
    Run::new("/bin/sh").args(["-c", "exec \"$0\" \"$@\" 2>&1"]).arg(artefact::command()).args(arguments)
}

/// `jeprobe attach` to the target, attached: it has said how to end it.
pub(crate) fn attach(target: &Target, file: &Path, arguments: &[&str]) -> Target {
    let pid = target.pid().to_string();
    let file = file.display().to_string();
    let mut loader = command(&[&["attach", "--pid", &pid, "-o", &file], arguments].concat()).spawn();
    loader.wait_for_text("end with Ctrl-C");
    loader
}

/// Ends the command as Ctrl-C does.
pub(crate) fn interrupt(loader: Target) -> Ended {
    loader.signal(libc::SIGINT);
    loader.finish()
}

/// The alloc, free, dump and context semaphores of a process that maps `library`.
pub(crate) fn semaphores(pid: i32, library: &Path) -> Vec<u16> {
    let names =
        ["jeprobe_alloc_semaphore", "jeprobe_free_semaphore", "jeprobe_dump_semaphore", "jeprobe_ctx_semaphore"];
    let base = base_address(pid, library);
    let symbols = Command::new("nm").arg("-D").arg(library).output().expect("nm starts").stdout;
    let symbols = String::from_utf8(symbols).expect("nm prints text");
    let mut memory = fs::File::open(format!("/proc/{pid}/mem")).expect("our own child");
    names
        .iter()
        .map(|name| {
            let line = symbols.lines().find(|line| line.ends_with(name)).unwrap_or_else(|| panic!("no {name}"));
            let offset = u64::from_str_radix(&line[..16], 16).expect("nm prints an address");
            let mut word = [0; 2];
            memory.seek(SeekFrom::Start(base + offset)).expect("a seekable file");
            memory.read_exact(&mut word).expect("a mapped word");
            u16::from_le_bytes(word)
        })
        .collect()
}

fn base_address(pid: i32, library: &Path) -> u64 {
    let library = fs::canonicalize(library).unwrap_or_else(|_| PathBuf::from(library));
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("our own child");
    let line = maps
        .lines()
        .find(|line| line.ends_with(&library.display().to_string()) && line.contains(" 00000000 "))
        .unwrap_or_else(|| panic!("{} is not mapped in\n{maps}", library.display()));
    u64::from_str_radix(line.split('-').next().expect("an address"), 16).expect("hexadecimal")
}
