//! Running a program.
//!
//! [`Run`] describes it; [`Run::finish`] waits for its end, [`Run::spawn`] gives a [`Target`] that is talked to while
//! it runs. The conversation is by lines: the program prints `ready …` when it stands where the test wants it, the
//! test answers on its standard input.
//!
//! Every program has a time limit ([`LIMIT`] unless told otherwise) after which its process group is killed and the
//! test fails, showing what the program had printed. A program starts in a process group of its own; only that group
//! is ever signalled. It ends with the thread that started it, so that a test run that is cut off leaves nothing behind.

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};
use std::{env, thread};

use crate::artefact;
use crate::facts::Facts;
use crate::tempdir::TempDir;

/// Time limit of one program: long enough for a loaded 2-CPU machine, short enough to see a hang.
pub const LIMIT: Duration = Duration::from_mins(2);

/// A program to run.
#[derive(Clone, Debug)]
pub struct Run {
    program: PathBuf,
    args: Vec<OsString>,
    envs: Vec<(OsString, OsString)>,
    directory: Option<PathBuf>,
    input: Option<Vec<u8>>,
    limit: Duration,
}

/// How a program ended.
#[derive(Clone, Debug)]
pub struct Ended {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
    shown: String,
}

/// A running program.
#[derive(Debug)]
pub struct Target {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    seen: Vec<String>,
    limit: Duration,
    shown: String,
    streams: TempDir,
    reaped: bool,
}

impl Run {
    /// Nothing is preloaded and no `MALLOC_CONF` is inherited.
    pub fn new(program: impl AsRef<Path>) -> Self {
        Self {
            program: program.as_ref().to_path_buf(),
            args: Vec::new(),
            envs: Vec::new(),
            directory: None,
            input: None,
            limit: LIMIT,
        }
    }

    /// The same with the library under test preloaded.
    pub fn preloaded(program: impl AsRef<Path>) -> Self {
        Self::new(program).preload()
    }

    #[must_use]
    pub fn preload(self) -> Self {
        match artefact::library() {
            Some(library) => self.env("LD_PRELOAD", library),
            None => self,
        }
    }

    #[must_use]
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.args.push(arg.as_ref().to_owned());
        self
    }

    #[must_use]
    pub fn args<S: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.args.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    #[must_use]
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.envs.push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// `MALLOC_CONF`.
    #[must_use]
    pub fn conf(self, text: &str) -> Self {
        self.env("MALLOC_CONF", text)
    }

    #[must_use]
    pub fn dir(mut self, directory: impl AsRef<Path>) -> Self {
        self.directory = Some(directory.as_ref().to_path_buf());
        self
    }

    /// Standard input of [`Run::finish`]; empty otherwise.
    #[must_use]
    pub fn input(mut self, text: impl AsRef<[u8]>) -> Self {
        self.input = Some(text.as_ref().to_vec());
        self
    }

    #[must_use]
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Runs to the end. Panics when the program cannot start or outlives its limit.
    pub fn finish(self) -> Ended {
        let streams = TempDir::new("streams");
        let (mut command, shown) = self.command();
        let input = match &self.input {
            None => Stdio::null(),
            Some(bytes) => {
                let path = streams.join("stdin");
                fs::write(&path, bytes).expect("the temporary directory is writable");
                Stdio::from(File::open(&path).expect("just written"))
            }
        };
        command.stdin(input).stdout(create(&streams, "stdout")).stderr(create(&streams, "stderr"));
        let mut child = started(&mut command, &shown);
        let status = wait(&mut child, self.limit);
        let (stdout, stderr) = (read(&streams, "stdout"), read(&streams, "stderr"));
        let Some(status) = status else {
            panic!("{shown}\nstill runs after {:?}\n--- stdout\n{stdout}\n--- stderr\n{stderr}", self.limit);
        };
        Ended { status, stdout, stderr, shown }
    }

    /// Starts it with pipes to its standard input and output.
    pub fn spawn(self) -> Target {
        let streams = TempDir::new("streams");
        let (mut command, shown) = self.command();
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(create(&streams, "stderr"));
        let mut child = started(&mut command, &shown);
        let input = child.stdin.take();
        let output = child.stdout.take().expect("stdout is piped");
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
                if sender.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                    break;
                }
            }
        });
        Target { child, input, lines, seen: Vec::new(), limit: self.limit, shown, streams, reaped: false }
    }

    fn command(&self) -> (Command, String) {
        let mut command = Command::new(&self.program);
        command.args(&self.args).process_group(0);
        // SAFETY: the closure makes one system call, which is allowed between fork and exec.
        unsafe { command.pre_exec(end_with_parent) };
        for name in ["LD_PRELOAD", "MALLOC_CONF", "_RJEM_MALLOC_CONF", "JEPROBE_TEST_LIBRARY"] {
            command.env_remove(name);
        }
        command.envs(self.envs.iter().map(|(name, value)| (name, value)));
        if let Some(directory) = &self.directory {
            command.current_dir(directory);
        }
        let mut shown = String::new();
        for (name, value) in &self.envs {
            let _ = write!(shown, "{}='{}' ", name.display(), value.display());
        }
        let _ = write!(shown, "{}", self.program.display());
        for arg in &self.args {
            let _ = write!(shown, " '{}'", arg.display());
        }
        (command, shown)
    }
}

impl Ended {
    /// Panics, showing both streams, unless the exit code is 0.
    #[must_use]
    pub fn ok(self) -> Self {
        assert!(self.status.success(), "{self}");
        self
    }

    /// The exit code; panics when a signal ended the program.
    pub fn code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| panic!("{self}"))
    }

    pub fn signal(&self) -> Option<i32> {
        self.status.signal()
    }

    /// Ends a chain whose output does not matter.
    pub fn discard(self) {}

    pub fn facts(&self) -> Facts {
        Facts::parse(&self.stdout)
    }
}

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { status, stdout, stderr, shown } = self;
        write!(f, "{shown}\nended with {status}\n--- stdout\n{stdout}\n--- stderr\n{stderr}")
    }
}

impl Target {
    pub fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    /// Waits for a line that starts with `prefix` and returns it; earlier lines are kept in [`Target::seen`].
    pub fn wait_for(&mut self, prefix: &str) -> String {
        self.wait_until(prefix, |line| line.starts_with(prefix))
    }

    /// Waits for a line that holds `text` anywhere.
    pub fn wait_for_text(&mut self, text: &str) -> String {
        self.wait_until(text, |line| line.contains(text))
    }

    fn wait_until(&mut self, wanted: &str, accept: impl Fn(&str) -> bool) -> String {
        let deadline = Instant::now() + self.limit;
        loop {
            match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    self.seen.push(line.clone());
                    if accept(&line) {
                        return line;
                    }
                }
                Err(RecvTimeoutError::Timeout) => panic!("no line {wanted:?} within {:?}\n{}", self.limit, self.show()),
                Err(RecvTimeoutError::Disconnected) => {
                    let status = wait(&mut self.child, self.limit);
                    self.reaped = status.is_some();
                    panic!("ended ({status:?}) before printing {wanted:?}\n{}", self.show())
                }
            }
        }
    }

    /// Waits for `ready`.
    pub fn ready(&mut self) -> String {
        self.wait_for("ready")
    }

    /// Lines printed so far and read by `wait_for`.
    pub fn seen(&self) -> &[String] {
        &self.seen
    }

    /// Writes a line to the program's standard input.
    pub fn tell(&mut self, line: &str) {
        let input = self.input.as_mut().expect("standard input is open");
        writeln!(input, "{line}").and_then(|()| input.flush()).unwrap_or_else(|e| panic!("cannot write {line:?}: {e}"));
    }

    /// Text on standard error so far.
    pub fn stderr(&self) -> String {
        read(&self.streams, "stderr")
    }

    /// Sends a signal to this process alone.
    pub fn signal(&self, signal: i32) {
        assert!(!self.reaped, "the process has ended");
        // SAFETY: kill has no memory effects; the pid is our own child, not yet reaped, so it cannot be another's.
        let result = unsafe { libc::kill(self.pid(), signal) };
        assert_eq!(result, 0, "cannot signal {}", self.pid());
    }

    /// Closes standard input and waits for the end.
    pub fn finish(mut self) -> Ended {
        drop(self.input.take());
        let status = wait(&mut self.child, self.limit);
        self.reaped = true;
        let Some(status) = status else { panic!("still runs after {:?}\n{}", self.limit, self.show()) };
        // A grandchild may hold the pipe: take what has come, wait no longer than for lines already written.
        while let Ok(line) = self.lines.recv_timeout(Duration::from_secs(2)) {
            self.seen.push(line);
        }
        let stdout = self.seen.iter().fold(String::new(), |text, line| text + line + "\n");
        Ended { status, stdout, stderr: self.stderr(), shown: self.shown.clone() }
    }

    fn show(&self) -> String {
        format!("{}\n--- stdout\n{}\n--- stderr\n{}", self.shown, self.seen.join("\n"), self.stderr())
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if !self.reaped {
            kill_group(&mut self.child);
        }
    }
}

/// A small C program's usual way: compile, preload, run, succeed, read its facts.
pub fn facts_of(source: &str, flags: &[&str], args: &[&str]) -> Facts {
    Run::preloaded(crate::compile::program(source, flags)).args(args).finish().ok().facts()
}

/// Waits for the child without a busy loop; kills its group and returns `None` when the limit passes.
fn wait(child: &mut Child, limit: Duration) -> Option<ExitStatus> {
    if let Some(pidfd) = pidfd(child.id())
        && !readable(&pidfd, limit)
    {
        kill_group(child);
        return None;
    }
    Some(child.wait().expect("our own child can be waited for"))
}

/// `None` when the child was reaped already.
fn pidfd(pid: u32) -> Option<OwnedFd> {
    // SAFETY: the call takes two integers and returns a new descriptor or -1.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, libc::c_long::from(pid), 0) };
    let fd = i32::try_from(fd).ok().filter(|&fd| fd >= 0)?;
    // SAFETY: the kernel just made this descriptor for us and nothing else owns it.
    Some(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn readable(fd: &OwnedFd, limit: Duration) -> bool {
    use std::os::fd::AsRawFd;
    let deadline = Instant::now() + limit;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let mut entry = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let timeout = i32::try_from(left.as_millis()).unwrap_or(i32::MAX);
        // SAFETY: `entry` is one valid pollfd that outlives the call.
        let count = unsafe { libc::poll(&raw mut entry, 1, timeout) };
        if count == 1 {
            return true;
        }
        if left.is_zero() {
            return false;
        }
    }
}

fn kill_group(child: &mut Child) {
    // SAFETY: no memory effects; the group was made for this child at its start and bears its pid.
    unsafe { libc::kill(-child.id().cast_signed(), libc::SIGKILL) };
    let _ = child.wait();
}

/// Starts a program. One that a test has just written may be busy for a moment: a child that another thread forked while the
/// file was open for writing has it open, too, until it executes its own program.
fn started(command: &mut Command, shown: &str) -> Child {
    let give_up = Instant::now() + Duration::from_secs(10);
    loop {
        match command.spawn() {
            Err(error) if error.kind() == ErrorKind::ExecutableFileBusy && Instant::now() < give_up => {
                thread::sleep(Duration::from_millis(5));
            }
            started => return started.unwrap_or_else(|e| panic!("cannot start {shown}: {e}")),
        }
    }
}

/// Has the kernel kill this process when the thread that started it ends: a test run that is cut off leaves nothing running.
fn end_with_parent() -> std::io::Result<()> {
    // SAFETY: the call takes integers only.
    match unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

fn create(directory: &TempDir, name: &str) -> File {
    File::create(directory.join(name)).expect("the temporary directory is writable")
}

fn read(directory: &TempDir, name: &str) -> String {
    fs::read(directory.join(name)).map_or_else(|_| String::new(), |bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// `name` on the search path.
pub fn find(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|directory| directory.join(name)).find(|candidate| candidate.is_file())
}
