//! Errors that users see and what they can do about them.
//!
//! Each variant's text says what was being done to what; `source()` says why; [`Error::hint`] says what to do next,
//! with a command to try. Modules with errors of their own give them a `hint()` too; `cli/term.rs` looks for it.
#![forbid(unsafe_code)]

use std::io;
use std::path::{Path, PathBuf};

use jeprobe_abi::reader::TableError;
use thiserror::Error;

/// Errors of the loader's own parts: files, processes, remote memory, children.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    #[error("cannot write to standard output")]
    Stdout(#[source] io::Error),

    #[error("cannot write to standard error")]
    Stderr(#[source] io::Error),

    #[error("cannot read {}", path.display())]
    ReadFile { path: PathBuf, source: io::Error },

    #[error("no profile given, only the program {}", path.display())]
    OnlyProgram { path: PathBuf },

    #[error("standard input can be read once, and - is named twice")]
    StdinTwice,

    #[error("two profiles are compared, the old and the new one; {given} given")]
    NotTwo { given: usize },

    #[error("growth needs at least two profiles, {given} given")]
    NoSeries { given: usize },

    /// `why` is one line.
    #[error("cannot use the pattern {pattern:?}: {why}")]
    Pattern { pattern: String, why: String },

    #[error("cannot use the directory {} of {option}", path.display())]
    Directory { option: &'static str, path: PathBuf, source: io::Error },

    #[error("{url:?} of --debuginfod is no address of a server")]
    Server { url: String },

    #[error("{value:?} of JEPROBE_MEMORY_LIMIT is no size")]
    MemoryLimit { value: String },

    #[error("cannot open {} on 127.0.0.1", if *port == 0 { "a port".to_owned() } else { format!("port {port}") })]
    Port { port: u16, source: io::Error },

    #[error("{format} has no negative numbers, which differences are")]
    NoNegative { format: &'static str },

    #[error("the profile is not of a heap, and heap files hold nothing else")]
    NotHeap,

    /// `forms`: which there are.
    #[error("{what} cannot be written as {}", path.display())]
    Extension { path: PathBuf, what: &'static str, forms: &'static str, by_option: bool },

    #[error("{} would not be what its name says: what is recorded is written as a heap file", path.display())]
    HeapName { path: PathBuf },

    #[error("{} is read here, and would be replaced by the result", path.display())]
    Overwrites { path: PathBuf },

    #[error("the flame graph needs a file of its own")]
    FlameToStdout,

    #[error("{} is named for the profile and for the flame graph", path.display())]
    Twice { path: PathBuf },

    #[error("{option} is printed as text, not as {format}")]
    OnlyText { option: &'static str, format: &'static str },

    #[error("{format} is not text, and not written to a terminal")]
    Binary { format: &'static str },

    #[error("--layout dot draws the call graph as svg or pdf, not {format}")]
    NoLayout { format: &'static str },

    #[error("cannot run dot")]
    NoGraphviz { source: io::Error },

    /// `words` is what it said on stderr.
    #[error("dot drew no picture: {words}")]
    Graphviz { words: String },

    #[error("process {pid} ({name}) ended before its profile table was read")]
    NothingRead { pid: u32, name: String },

    #[error("process {pid} ({name}) recorded no profile")]
    NothingRecorded { pid: u32, name: String, why: NotPreloaded },

    #[error("cannot write {}", path.display())]
    WriteFile { path: PathBuf, source: io::Error },

    #[error("there is no process with pid {pid}")]
    NoProcess { pid: u32 },

    /// `name` is the command name; a zombie has no memory left to read.
    #[error("process {pid} ({name}) has ended and only waits for its parent")]
    Zombie { pid: u32, name: String },

    /// `hint` was made where the reason was known: other user, Yama, a process that is not dumpable.
    #[error("cannot {what} of process {pid} ({name})")]
    Access { pid: u32, name: String, what: &'static str, hint: Option<String>, source: io::Error },

    #[error("process {pid} ({name}) does not use the jeprobe allocator")]
    NoAllocator { pid: u32, name: String },

    #[error("cannot read the profile table of process {pid} ({name})")]
    Table { pid: u32, name: String, source: TableError },

    #[error("process {pid} ({name}) is in a sandbox that would end it when it is sampled: seccomp forbids it {calls}")]
    Sandbox { pid: u32, name: String, calls: String },

    #[error("process {pid} ({name}) did not take the new value of {word}")]
    ControlNotTaken { pid: u32, name: String, word: &'static str },

    #[error("cannot use the library {}", path.display())]
    Library { path: PathBuf, source: io::Error },

    #[error("cannot find {LIBRARY_NAME}")]
    NoLibraryFile { tried: Vec<PathBuf> },

    #[error("the dynamic linker cannot preload a path with a blank or a colon: {}", path.display())]
    LibraryPath { path: PathBuf },

    #[error("cannot run {}", program.display())]
    Spawn { program: PathBuf, source: io::Error },

    #[error("probes cannot be used here: {}", reasons.join("; "))]
    NoEbpf { reasons: Vec<String>, hint: String },

    #[error("no process with the allocator was seen")]
    NobodyHasIt,

    #[error("cannot {what}")]
    System { what: &'static str, source: io::Error },
}

/// Why a program runs without the library that it was started with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotPreloaded {
    Static,
    /// setuid or setgid to another than this one.
    Privileged,
    Unknown,
}

impl NotPreloaded {
    fn hint(self) -> &'static str {
        match self {
            NotPreloaded::Static => {
                "it is a static program, into which nothing is preloaded: link libjeprobe.a into it, and use: jeprobe attach"
            }
            NotPreloaded::Privileged => {
                "it is a setuid or setgid program, into which nothing is preloaded: run this command as the user that it changes to"
            }
            NotPreloaded::Unknown => {
                "it ran without the library: LD_PRELOAD was taken from its environment (env -i, sudo, a script that sets it), or what it \
                 executed is static or setuid; name the program itself: jeprobe run -- PROGRAM"
            }
        }
    }
}

const LIBRARY_NAME: &str = "libjeprobe.so";

/// A result that is larger than a file may be.
const FILE_SIZE: &str = "raise the limit of file sizes in the shell: ulimit -f unlimited";

impl Error {
    /// What the user can do, when there is something.
    pub fn hint(&self) -> Option<String> {
        match self {
            Error::WriteFile { path, source } => match source.raw_os_error() {
                Some(libc::ENOSPC) => Some("free some space, or name a file on another disk with -o".into()),
                Some(libc::EFBIG) => Some(FILE_SIZE.into()),
                Some(libc::EACCES | libc::EPERM | libc::EROFS) => {
                    let mut name = std::ffi::OsString::from("jeprobe");
                    name.extend(path.extension().into_iter().flat_map(|extension| [".".as_ref(), extension]));
                    Some(format!("name a file in a directory you may write to: -o /tmp/{}", name.display()))
                }
                Some(libc::EISDIR) => Some("that is a directory; name a file in it with -o".into()),
                Some(libc::ENOTDIR | libc::EEXIST) => {
                    Some("a part of the path is a file; name a directory that is there or can be made".into())
                }
                Some(libc::ENOENT) if path.parent().is_some_and(Path::is_dir) => {
                    Some("that file system takes no new files; name another file with -o".into())
                }
                Some(libc::ENOENT) => Some("create the directory first, or name another file with -o".into()),
                _ => None,
            },
            Error::ReadFile { path, source } => match source.kind() {
                io::ErrorKind::IsADirectory => Some(format!("name the files in it: {}/*.heap", path.display())),
                io::ErrorKind::NotFound => Some("check the spelling; take a profile with: jeprobe dump --pid P".into()),
                io::ErrorKind::NotADirectory => Some("a part of the path is a file; check the spelling".into()),
                io::ErrorKind::PermissionDenied => Some("read it as its owner or as root: sudo jeprobe ...".into()),
                _ => None,
            },
            Error::NotTwo { .. } => {
                Some("jeprobe diff OLD NEW; for several on a side, sum them first: jeprobe merge A B -o OUT".into())
            }
            Error::NoSeries { .. } => Some("name them in the order of time: jeprobe timeline A B C".into()),
            Error::Pattern { why, .. } if why.contains("look") || why.contains("backreferences") => {
                Some("leave it out here; `jeprof` takes Perl's expressions".into())
            }
            Error::Pattern { .. } => Some(r"put \ before what shall stand for itself: \( \[ \{ \* \+ \? \| \.".into()),
            Error::Directory { .. } => Some("check the spelling".into()),
            Error::Server { .. } => Some("name it with its protocol: --debuginfod https://HOST".into()),
            Error::MemoryLimit { .. } => Some("bytes, or with K, M, G or T, as in 8G; or unlimited".into()),
            Error::Port { source, .. } => (source.kind() == io::ErrorKind::AddrInUse)
                .then(|| "another program listens there; name another with --port N, or leave it out for any free one".into()),
            Error::NoNegative { .. } => Some("use text, tree, csv, json, folded, pprof or otlp".into()),
            Error::NotHeap => Some("name a file for pprof's or OTLP's protobuf: -o FILE.pb.gz or -o FILE.otlp".into()),
            Error::NoLayout { .. } => Some("name the form of the result: --layout dot --format svg".into()),
            Error::NoGraphviz { .. } => Some("install graphviz, or leave --layout dot out: boxes are placed here, too".into()),
            Error::Graphviz { .. } => Some("look at what it was given: --format dot".into()),
            Error::Extension { forms, by_option, .. } => Some(if *by_option {
                format!("end the name with {forms}, or choose with --format")
            } else {
                format!("end the name with {forms}")
            }),
            Error::HeapName { path } => Some(format!(
                "name it FILE.heap, and make the other of it: jeprobe report FILE.heap -o {}",
                path.display()
            )),
            Error::Overwrites { .. } => Some("name another file with -o".into()),
            Error::FlameToStdout => {
                Some("name it: --flamegraph FILE.svg; to draw to standard output: jeprobe flamegraph FILE.heap".into())
            }
            Error::Twice { .. } => Some("name two files: -o FILE.heap --flamegraph FILE.svg".into()),
            Error::OnlyText { option, .. } => Some(format!("leave one of them out; the numbers behind {option} are in json and pprof, too")),
            Error::Binary { .. } => Some("name a file with -o FILE, or pipe it on".into()),
            Error::StdinTwice => Some("write one of them to a file and name that".into()),
            Error::OnlyProgram { path } => Some(format!(
                "name a profile after it: {} FILE.heap; take one with: jeprobe dump --pid P",
                path.display()
            )),
            Error::NoProcess { .. } => Some("list candidates with: pgrep -a NAME".into()),
            Error::Access { hint, .. } => hint.clone(),
            Error::NoEbpf { hint, .. } => Some(hint.clone()),
            Error::NobodyHasIt => Some(
                "start programs under it: LD_PRELOAD=/path/to/libjeprobe.so COMMAND; those that start while this command runs are seen, \
                 too"
                    .into(),
            ),
            Error::Sandbox { .. } => Some(
                "a sample reads /proc/thread-self/maps and libraries to find its callers: have the filter allow these calls, or refuse \
                 them with an errno, which leaves samples without stacks"
                    .into(),
            ),
            Error::NoAllocator { .. } => Some(
                "start it under the allocator: jeprobe run -- COMMAND, or LD_PRELOAD=/path/to/libjeprobe.so COMMAND"
                    .into(),
            ),
            Error::Table { source: TableError::BadVersion { .. } | TableError::BadSizes, .. } => {
                Some("use jeprobe and libjeprobe.so of one version".into())
            }
            Error::Table { source: TableError::NotReady, .. } => {
                Some("wait until the process has allocated, then try again".into())
            }
            Error::Table { .. } => Some("stop the process (kill -STOP PID), try again, then kill -CONT PID".into()),
            Error::NoLibraryFile { tried } => {
                let places: Vec<_> = tried.iter().map(|path| path.display().to_string()).collect();
                Some(format!("name it with --library PATH or JEPROBE_LIBRARY=PATH; looked for {}", places.join(", ")))
            }
            Error::Library { .. } => Some("name it with --library PATH".into()),
            Error::LibraryPath { .. } => {
                Some("copy the library to a path without them and name it with --library".into())
            }
            Error::Spawn { source, .. } if source.kind() == io::ErrorKind::NotFound => {
                Some("check the spelling and PATH".into())
            }
            Error::Spawn { source, .. } | Error::System { source, .. } if source.raw_os_error() == Some(libc::EAGAIN) => {
                Some("raise the limit of processes and threads: ulimit -u, and pids.max of the control group".into())
            }
            Error::NothingRead { .. } => Some("start it under the allocator from the beginning: jeprobe run -- COMMAND".into()),
            Error::NothingRecorded { why, .. } => Some(why.hint().into()),
            Error::Stdout(source) if source.raw_os_error() == Some(libc::ENOSPC) => {
                Some("free some space, or send the result to another disk".into())
            }
            Error::Stdout(source) if source.raw_os_error() == Some(libc::EFBIG) => Some(FILE_SIZE.into()),
            Error::Stdout(_)
            | Error::Stderr(_)
            | Error::Zombie { .. } | Error::ControlNotTaken { .. } | Error::Spawn { .. } | Error::System { .. } => None,
        }
    }
}
