//! `jeprobe run`: a command under the allocator, its profile when it ends.
//!
//! ```text
//!  LD_PRELOAD, options ─► spawn ─► wait ─┬─ signals sent to us ─► the child
//!                                            ├─ now and then: read the child's table
//!                                            └─ child's end ─► heap file of the child, else the last reading
//! ```
//!
//! The child writes its own heap file as it exits. A child that dies by a signal, or leaves through `_exit`, writes none;
//! what is left then is the last reading, and the result says how old it is. Readings start soon after the child and
//! slow down to one a second; their cost is kept below a twentieth of the time. One that ended even before the first reading
//! leaves an empty profile that says so; one that never had the library, as static programs, leaves none.
//!
//! Programs that the child starts inherit the environment and write files too; those with samples are kept in a
//! directory beside the child's profile. Stdout belongs to the child, so the report goes to stderr.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use super::args::RunArgs;
use super::deliver::{self, Finished, Stdout};
use super::outcome::Outcome;
use super::term::Term;
use crate::error::{Error, NotPreloaded};
use crate::input;
use crate::model::Profile;
use crate::outfile;
use crate::preload;
use crate::proc::pids;
use crate::remote::table::Reading;
use crate::remote::target::Target;
use crate::units::{SampleInterval, counted};
use crate::wait::{PidFd, Signals, ready};

/// Passed on to the child. The terminal sends its own to the whole foreground group, so those are not sent twice.
const PASSED_ON: [i32; 6] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGUSR1, libc::SIGUSR2];
/// First and longest pause between readings of the child's table.
const FIRST_PAUSE: Duration = Duration::from_millis(2);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// A pause is at least this many times as long as the reading before it took.
const READ_SHARE: u32 = 20;
/// The same while it has none.
const LONGEST_LOOK: Duration = Duration::from_millis(100);
/// A program that has no table at that age runs without the library; an ordinary one has it within a few milliseconds.
const LOADED_BY: Duration = Duration::from_millis(250);
/// Room that the child's own file may need; where there is less, it is written elsewhere.
const ROOM_BYTES: u64 = 16 << 20;
/// The allocator's, where neither the command line nor `MALLOC_CONF` says another.
const DEFAULT_LG_SAMPLE: u32 = 19;
/// What a shell gives for a command that is not there, and for one that cannot be run.
const NOT_FOUND: u8 = 127;
const NOT_RUNNABLE: u8 = 126;

pub fn run(args: &RunArgs, term: &mut Term) -> Result<Outcome> {
    let library = preload::find_library(args.library.as_deref())?;
    // The child's pid is not known yet; every default name is in the same directory.
    deliver::check(&args.output, std::process::id())?;
    let scratch = Scratch::new(&args.output)?;
    let signals = Signals::block(&PASSED_ON).map_err(|source| Error::System { what: "receive signals", source })?;
    let preload = preload::preload_value(&library, std::env::var_os("LD_PRELOAD").as_deref())?;
    preload::check_library(&library)?;
    let mut child = match spawn(args, &preload, &scratch, &signals) {
        Ok(child) => child,
        Err(source) => {
            let missing = source.kind() == io::ErrorKind::NotFound;
            let program = PathBuf::from(&args.command[0]);
            term.error(&Error::Spawn { program, source }.into());
            return Ok(Outcome::Child(if missing { NOT_FOUND } else { NOT_RUNNABLE }));
        }
    };
    let pid = child.id();
    term.detail(format_args!("process {pid} runs with {}", library.display()));
    let seen = watch(pid, &signals)?;
    let status = child.wait().map_err(|source| Error::System { what: "wait for the child", source })?;
    conclude(args, pid, status, seen, scratch, term)
}

fn spawn(args: &RunArgs, preload: &OsStr, scratch: &Scratch, signals: &Signals) -> io::Result<Child> {
    let before = std::env::var_os(preload::CONF_VARIABLE);
    let conf = preload::conf_value(args.lg_sample, &scratch.prefix(), before.as_deref());
    let mut command = Command::new(&args.command[0]);
    command.args(&args.command[1..]).env("LD_PRELOAD", preload).env(preload::CONF_VARIABLE, conf);
    let mask = signals.mask_before();
    // SAFETY: the closure only calls pthread_sigmask, which is async-signal-safe.
    unsafe { command.pre_exec(move || Signals::unblock_in_child(&mask)) };
    command.spawn()
}

/// What was read of the child.
struct Seen {
    /// The last reading and when it was made.
    last: Option<(Reading, Instant)>,
    /// Last readings of images that an exec replaced.
    images: Vec<Reading>,
    /// It had no table when it was this old.
    without_table_at: Duration,
}

/// Passes signals on and reads the table until the child has ended.
fn watch(pid: u32, signals: &Signals) -> Result<Seen> {
    let pidfd = PidFd::open(pid).map_err(|source| Error::System { what: "watch the child", source })?;
    let mut target: Option<Target> = None;
    let mut seen = Seen { last: None, images: Vec::new(), without_table_at: Duration::ZERO };
    let (began, mut lost_at) = (Instant::now(), None);
    let mut pause = FIRST_PAUSE;
    let mut next_read = Instant::now() + pause;
    loop {
        let now = Instant::now();
        if now >= next_read {
            // Opened again when a reading fails: the child may have started another program.
            target = target.or_else(|| Target::open(pid).ok());
            match target.as_ref().map(Target::read) {
                Some(Ok(reading)) => {
                    let started_ns = reading.root.start_ns;
                    if let Some((before, _)) = seen.last.replace((reading, now))
                        && before.root.start_ns != started_ns
                    {
                        seen.images.push(before);
                    }
                }
                // Soon again: the program that it started has not been read yet.
                Some(Err(_)) => (target, pause, lost_at) = (None, FIRST_PAUSE, Some(now)),
                None => {
                    seen.without_table_at = began.elapsed();
                    // It executes a program that has none.
                    if lost_at.is_some_and(|at: Instant| at.elapsed() >= LOADED_BY) {
                        seen.images.extend(seen.last.take().map(|(reading, _)| reading));
                    }
                }
            }
            pause = match target {
                Some(_) => (pause * 2).min(LONGEST_PAUSE).max(now.elapsed() * READ_SHARE),
                None => (pause * 2).min(LONGEST_LOOK),
            };
            next_read = Instant::now() + pause;
        }
        let left = next_read.saturating_duration_since(Instant::now());
        let woken = ready(&[signals.as_fd(), pidfd.as_fd()], Some(left))
            .map_err(|source| Error::System { what: "wait for the child", source })?;
        if woken[0] {
            while let Some(received) = signals.take() {
                if received.sent_by_process {
                    // Fails only when the child has ended meanwhile.
                    let _gone = pidfd.send(received.signal);
                }
            }
        }
        if woken[1] {
            return Ok(seen);
        }
    }
}

/// Writes and prints what the child left.
fn conclude(
    args: &RunArgs,
    pid: u32,
    status: ExitStatus,
    seen: Seen,
    mut scratch: Scratch,
    term: &mut Term,
) -> Result<Outcome> {
    let ended = Instant::now();
    let code = status.code().map_or_else(|| 128 + status.signal().unwrap_or(0) as u8, |code| code as u8);
    let name = Path::new(&args.command[0]).display().to_string();
    if let Some(signal) = status.signal() {
        term.warn(format_args!("process {pid} ({name}) was killed by signal {signal}"));
    }
    write_images(args, pid, &seen.images, term)?;
    let files = scratch.files();
    let own = files.iter().rev().find(|file| file.pid == pid);
    let from_file = own.map(|file| read_file(&file.path)).transpose()?;
    let (profile, bytes) = match (from_file, seen.last) {
        (Some((profile, bytes)), _) => (profile, Some(bytes)),
        (None, Some((mut reading, at))) => {
            let age = ended.saturating_duration_since(at).as_millis();
            let line = format!("process {pid} wrote no profile as it ended; this is its state {age} ms before");
            reading.profile.add_note(line);
            (reading.profile, None)
        }
        (None, None) => {
            if others(args, pid, &files, &mut scratch, term) {
                term.warn(format_args!("process {pid} ({name}) itself recorded no profile"));
                return Ok(Outcome::Child(code));
            }
            let why = preload::not_preloaded(&args.command[0]);
            let why = why.or((seen.without_table_at >= LOADED_BY).then_some(NotPreloaded::Unknown));
            if let Some(why) = why {
                let error = Error::NothingRecorded { pid, name, why };
                // A command that failed by itself has said why; its code says more than ours.
                return if code == 0 {
                    Err(error.into())
                } else {
                    term.error(&error.into());
                    Ok(Outcome::Child(code))
                };
            }
            let mut empty = Profile::new(SampleInterval(1 << args.lg_sample.unwrap_or(DEFAULT_LG_SAMPLE)));
            empty.set_process(pid, None);
            empty.add_note(format!(
                "process {pid} ({name}) ended within milliseconds and wrote no profile: it was killed, left through _exit, or ran without \
                 the library; what it allocated is not known"
            ));
            (empty, None)
        }
    };
    let finished = Finished { profile: &profile, written: bytes.as_deref(), root: None, stdout: Stdout::Childs };
    deliver::deliver(&finished, &args.output, pid, term)?;
    others(args, pid, &files, &mut scratch, term);
    Ok(Outcome::Child(code))
}

/// What an exec replaced goes beside the profile.
fn write_images(args: &RunArgs, pid: u32, images: &[Reading], term: &mut Term) -> Result<()> {
    let Some(path) = deliver::heap_path(&args.output, pid) else { return Ok(()) };
    for (number, image) in (1..).zip(images.iter().filter(|image| image.root.samples > 0)) {
        let path = outfile::beside(&path, &format!("image{number}"));
        outfile::write(&path, |out| crate::output::heap_v2::write(&image.profile, out))?;
        let program = image.profile.program().map_or_else(String::new, |program| program.display().to_string());
        term.say(format_args!("profile of {program} until an exec, as last read, written to {}", path.display()));
    }
    Ok(())
}

fn read_file(path: &Path) -> Result<(crate::model::Profile, Vec<u8>)> {
    let bytes = fs::read(path).map_err(|source| Error::ReadFile { path: path.to_owned(), source })?;
    let profile = input::heap_v2::read(&bytes).with_context(|| format!("cannot use {}", path.display()))?;
    Ok((profile, bytes))
}

/// Keeps the profiles of the programs that the child started, and names those that still run; false when there are none.
fn others(args: &RunArgs, pid: u32, files: &[HeapFile], scratch: &mut Scratch, term: &mut Term) -> bool {
    let running = scratch.users();
    if let Some(first) = running.first() {
        term.warn(format_args!(
            "{} by the command still running; profiles go to {}; to look now: jeprobe attach --pid {first}",
            counted(running.len() as u64, "process started", "processes started"),
            scratch.dir.display()
        ));
        scratch.keep = true;
        return true;
    }
    let samples = |file: &HeapFile| read_file(&file.path).map_or(0, |(profile, _)| profile.sum().current.raw.objects);
    let kept: Vec<(&HeapFile, u64)> =
        files.iter().filter(|file| file.pid != pid).map(|file| (file, samples(file))).filter(|&(_, n)| n > 0).collect();
    if kept.is_empty() {
        return false;
    }
    let dir = deliver::heap_path(&args.output, pid)
        .unwrap_or_else(|| PathBuf::from(format!("jeprobe.{pid}.heap")))
        .with_extension("children");
    let moved = fs::create_dir_all(&dir).is_ok()
        && kept.iter().all(|(file, _)| fs::rename(&file.path, dir.join(format!("{}.heap", file.pid))).is_ok());
    if moved {
        term.say(format_args!(
            "profiles of {} that the command started are in {dir}; together: jeprobe report {dir}/*.heap (what a forked child got from \
             its parent and still holds counts in both)",
            counted(kept.len() as u64, "more process", "more processes"),
            dir = dir.display()
        ));
    } else {
        let more = counted(kept.len() as u64, "more process", "more processes");
        term.warn(format_args!(
            "cannot move the profiles of {more} to {}; they are in {}",
            dir.display(),
            scratch.dir.display()
        ));
        scratch.keep = true;
    }
    true
}

/// One heap file of the child or of what it started.
#[derive(Debug)]
struct HeapFile {
    pid: u32,
    sequence: u64,
    path: PathBuf,
}

/// A directory of our own beside the output, gone with the value.
#[derive(Debug)]
struct Scratch {
    dir: PathBuf,
    keep: bool,
}

impl Scratch {
    /// Beside the output, so that files move there by renaming; elsewhere when the option syntax could not name it.
    fn new(output: &super::args::OutputArgs) -> Result<Scratch, Error> {
        let beside = deliver::heap_path(output, 0).and_then(|path| path.parent().map(Path::to_owned));
        let beside = beside.filter(|path| fs::metadata(path).is_ok_and(|meta| meta.is_dir()));
        let beside = beside.unwrap_or_else(|| PathBuf::from("."));
        let failed = |path: &Path, source| Error::WriteFile { path: path.to_owned(), source };
        let absolute = beside.canonicalize().map_err(|source| failed(&beside, source))?;
        // A comma ends the value of an option, and files under /dev and /proc are no place for others. On a full disk the result
        // cannot be written, but still be shown.
        let has_room =
            rustix::fs::statvfs(&absolute).is_ok_and(|fs| fs.f_bavail.saturating_mul(fs.f_frsize) >= ROOM_BYTES);
        let usable = !absolute.as_os_str().as_bytes().contains(&b',') && !absolute.starts_with("/dev") && has_room;
        let parent = if usable { absolute } else { std::env::temp_dir() };
        let dir = parent.join(format!(".jeprobe-run.{}", std::process::id()));
        fs::create_dir(&dir).map_err(|source| failed(&dir, source))?;
        Ok(Scratch { dir, keep: false })
    }

    fn prefix(&self) -> PathBuf {
        self.dir.join("run")
    }

    /// `run.PID.SEQUENCE.KIND.heap`, ordered by process and time.
    fn files(&self) -> Vec<HeapFile> {
        let entries = fs::read_dir(&self.dir).into_iter().flatten().flatten();
        let mut files: Vec<HeapFile> = entries
            .filter_map(|entry| {
                let name = entry.file_name().into_string().ok()?;
                let mut parts = name.split('.').skip(1);
                let pid = parts.next()?.parse().ok()?;
                let sequence = parts.next()?.parse().ok()?;
                Path::new(&name).extension().is_some_and(|end| end == "heap").then(|| HeapFile {
                    pid,
                    sequence,
                    path: entry.path(),
                })
            })
            .collect();
        files.sort_by_key(|file| (file.pid, file.sequence));
        files
    }

    /// Processes that would write here: those with our prefix in their environment.
    fn users(&self) -> Vec<u32> {
        let needle = self.dir.as_os_str().as_bytes();
        let mentions = |pid: &u32| {
            fs::read(format!("/proc/{pid}/environ"))
                .is_ok_and(|environ| environ.windows(needle.len()).any(|window| window == needle))
        };
        let zombie = |pid: &u32| pids::status(*pid).is_ok_and(|status| status.state == 'Z');
        pids::list().unwrap_or_default().into_iter().filter(|pid| mentions(pid) && !zombie(pid)).collect()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if !self.keep {
            // What cannot be removed stays visible by its name; the result does not depend on it.
            let _left_behind = fs::remove_dir_all(&self.dir);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{HeapFile, Scratch};
    use std::fs;

    #[test]
    fn heap_files_are_ordered_by_process_and_time() {
        let dir = std::env::temp_dir().join(format!("jeprobe-run-test-{}", std::process::id()));
        fs::create_dir_all(&dir).expect("temp dir");
        for name in ["run.7.10.f.heap", "run.7.2.m2.heap", "run.5.0.f.heap", "run.5.0.f.heap.tmp", "other"] {
            fs::write(dir.join(name), b"").expect("writable");
        }
        let scratch = Scratch { dir: dir.clone(), keep: false };
        let found: Vec<_> = scratch.files().iter().map(|HeapFile { pid, sequence, .. }| (*pid, *sequence)).collect();
        assert_eq!(found, [(5, 0), (7, 2), (7, 10)]);
        drop(scratch);
        assert!(!dir.exists());
    }
}
