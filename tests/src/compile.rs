//! Programs of `programs/`, compiled once per content.
//!
//! The output's name carries a hash of the compiler's command line, the source and every shared header, so a changed
//! program is compiled again and an unchanged one never. Two tests that need the same program wait for each other.

use std::ffi::OsStr;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::{fs, process};

use crate::artefact;

static COMPILING: Mutex<()> = Mutex::new(());

/// Compiles `programs/SOURCE`; `.c`, `.cc` and `.rs` choose the compiler. Flags come after the source, so libraries
/// may be named among them. C and C++ get `-O1 -g -Wall -Wextra -pthread` and no built-in `malloc` knowledge, which
/// would let the compiler remove the very calls under test.
pub fn program(source: &str, flags: &[&str]) -> PathBuf {
    build(&artefact::programs().join(source), flags, "")
}

/// The same as a shared object.
pub fn shared_object(source: &str, flags: &[&str]) -> PathBuf {
    let mut all = vec!["-shared", "-fPIC"];
    all.extend_from_slice(flags);
    build(&artefact::programs().join(source), &all, ".so")
}

/// Compiles a source that a test generated, wherever it lies.
pub fn build(source: &Path, flags: &[&str], suffix: &str) -> PathBuf {
    let guard = COMPILING.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let command_line = command_line(source, flags);
    let stem = source.file_stem().and_then(OsStr::to_str).expect("a program has a name");
    let directory = artefact::target_dir().join("test-programs");
    let output = directory.join(format!("{stem}-{:016x}{suffix}", content_hash(source, &command_line)));
    if !output.exists() {
        fs::create_dir_all(&directory).unwrap_or_else(|e| panic!("cannot create {}: {e}", directory.display()));
        let partial = directory.join(format!("{stem}.{}.partial", process::id()));
        let mut command = Command::new(&command_line[0]);
        command.args(&command_line[1..]).arg("-o").arg(&partial);
        let result = command.output().unwrap_or_else(|e| panic!("cannot run {}: {e}", command_line[0]));
        assert!(
            result.status.success(),
            "cannot compile {}\n{command:?}\n{}",
            source.display(),
            String::from_utf8_lossy(&result.stderr)
        );
        fs::rename(&partial, &output).unwrap_or_else(|e| panic!("cannot rename to {}: {e}", output.display()));
    }
    drop(guard);
    output
}

fn command_line(source: &Path, flags: &[&str]) -> Vec<String> {
    let path = source.to_str().expect("a UTF-8 path").to_owned();
    let mut line: Vec<String> = Vec::new();
    let mut words = |text: &str| line.extend(text.split_whitespace().map(str::to_owned));
    match source.extension().and_then(OsStr::to_str) {
        Some("c") => words("cc -std=gnu17 -O1 -g -Wall -Wextra -pthread -fno-builtin"),
        Some("cc") => words("c++ -std=gnu++20 -O1 -g -Wall -Wextra -pthread -fno-builtin"),
        Some("rs") => words("rustc --edition 2024 -O -g"),
        other => panic!("{path}: no compiler for {other:?}"),
    }
    if line[0] == "rustc" {
        line.push(path);
    } else {
        line.extend(["-I".to_owned(), artefact::programs().display().to_string(), path]);
    }
    line.extend(flags.iter().map(|&flag| flag.to_owned()));
    line
}

fn content_hash(source: &Path, command_line: &[String]) -> u64 {
    let mut hasher = DefaultHasher::new();
    command_line.hash(&mut hasher);
    let read = |path: &Path| fs::read(path).unwrap_or_else(|e| panic!("cannot read {}: {e}", path.display()));
    read(source).hash(&mut hasher);
    let mut headers: Vec<PathBuf> = fs::read_dir(artefact::programs())
        .expect("programs/ is readable")
        .map(|entry| entry.expect("a readable directory entry").path())
        .filter(|path| path.extension() == Some(OsStr::new("h")))
        .collect();
    // Archives named as flags are part of the program.
    headers.extend(command_line.iter().map(PathBuf::from).filter(|flag| flag.extension() == Some(OsStr::new("a"))));
    headers.sort();
    for header in headers {
        read(&header).hash(&mut hasher);
    }
    hasher.finish()
}
