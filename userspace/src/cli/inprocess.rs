//! `attach` without probes: the process samples by itself, its profile table is read from outside.
//!
//! ```text
//! open ─► prof_active := 1 (read back) ─► wait, reading the table now and then ─► last reading ─► prof_active := before
//! ```
//!
//! The readings in between are what is left when the process dies. The switch is put back at the end, also when that end is
//! a signal. Nothing can put it back when this command itself is killed with SIGKILL: the process then goes on sampling
//! until the next `attach` ends, or until it clears `prof.active` itself. Attaching with probes has no such state.
#![forbid(unsafe_code)]

use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::args::AttachArgs;
use super::deliver::{self, Finished, Stdout};
use super::outcome::Outcome;
use super::probes;
use super::term::Term;
use crate::error::Error;
use crate::member::overlaid;
use crate::model::Mapping;
use crate::outfile;
use crate::proc::exe;
use crate::remote::switch::Switch;
use crate::remote::table::Reading;
use crate::remote::target::{Target, is_ending};
use crate::remote::unsampled::Unsampled;
use crate::wait::{PidFd, Signals, ready};

/// Shortest time between two readings; longer when a reading is slow, so that reading costs at most a twentieth.
const READ_EVERY: Duration = Duration::from_secs(1);
const READ_SHARE: u32 = 20;
/// How long a new program image may take to load the allocator after an exec.
const EXEC_GRACE: Duration = Duration::from_secs(2);

/// Why the collection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Time,
    Signal,
    TargetEnded,
    /// The process runs another program now.
    Exec,
}

pub fn run(args: &AttachArgs, term: &mut Term) -> Result<Outcome> {
    let mut target = Target::open(args.pid)?;
    deliver::check(&args.output, target.pid)?;
    let signals = Signals::block(&[libc::SIGINT, libc::SIGTERM, libc::SIGHUP])
        .map_err(|source| Error::System { what: "receive signals", source })?;
    let pidfd = PidFd::open(target.pid).map_err(|_| Error::NoProcess { pid: target.pid })?;
    let deadline = args.duration.map(|duration| Instant::now() + duration);
    let mut images = 0;
    loop {
        let (end, reading) = collect(&target, args, &signals, &pidfd, deadline, term)?;
        let next = if end == End::Exec { reopen(target.pid, &pidfd) } else { None };
        let Some(next) = next else { return finish(&target, args, end, reading, term) };
        images += 1;
        term.say(format_args!("process {} started another program, {}: following it", target.pid, next.name));
        // The profile of the image that is gone goes beside the final one.
        if let (Some(reading), Some(path)) = (reading, deliver::heap_path(&args.output, target.pid)) {
            let path = outfile::beside(&path, &format!("image{images}"));
            outfile::write(&path, |out| crate::output::heap_v2::write(&reading.profile, out))?;
            term.say(format_args!("profile of {} until then written to {}", target.name, path.display()));
        }
        target = next;
    }
}

/// Samples one image until the end; the last reading that succeeded, if any.
fn collect(
    target: &Target,
    args: &AttachArgs,
    signals: &Signals,
    pidfd: &PidFd,
    deadline: Option<Instant>,
    term: &mut Term,
) -> Result<(End, Option<Reading>)> {
    let mut unsampled = Unsampled::default();
    // Before anything is said, so that something is left of a process that dies at once.
    let mut last: Option<Reading> = target.read().ok();
    if let Some(reading) = &mut last {
        target.add_build_ids(&mut reading.profile);
        unsampled.look(reading);
    }
    let mut switch = Switch::on(target, args.lg_sample)?;
    describe(target, switch.was_on(), args, term);
    let mut next_read = Instant::now();
    let end = loop {
        let now = Instant::now();
        if deadline.is_some_and(|deadline| now >= deadline) {
            break End::Time;
        }
        if now >= next_read {
            // Once more: the thread through which the memory was reached may have ended meanwhile.
            match target.read().or_else(|_| target.read()) {
                Ok(mut reading) => {
                    switch.keep_on(reading.root.prof_active)?;
                    keep_unloaded(&mut reading, last.as_ref(), target);
                    unsampled.look(&reading);
                    last = Some(reading);
                }
                Err(_) if is_ending(target.pid, pidfd) => break End::TargetEnded,
                // The table is no longer where it was: another program, or damage, which opening it again will tell.
                Err(_) => break End::Exec,
            }
            next_read = Instant::now() + READ_EVERY.max(now.elapsed() * READ_SHARE);
        }
        let until = deadline.map_or(next_read, |deadline| deadline.min(next_read));
        let woken = ready(&[signals.as_fd(), pidfd.as_fd()], Some(until.saturating_duration_since(Instant::now())))
            .map_err(|source| Error::System { what: "wait for events", source })?;
        if woken[1] {
            break End::TargetEnded;
        }
        if woken[0] && signals.take().is_some() {
            break End::Signal;
        }
    };
    if matches!(end, End::Time | End::Signal) {
        match target.read() {
            Ok(mut reading) => {
                keep_unloaded(&mut reading, last.as_ref(), target);
                unsampled.look(&reading);
                last = Some(reading);
            }
            Err(_) if pidfd.has_ended() => return Ok((End::TargetEnded, told(last, &unsampled))),
            Err(error) if last.is_none() => return Err(error.into()),
            Err(error) => term.warn(format_args!("{error}; the profile is that of the last reading")),
        }
        if let Some(reading) = &mut last {
            target.add_build_ids(&mut reading.profile);
        }
        switch.off()?;
    }
    switch.disarm();
    Ok((end, told(last, &unsampled)))
}

/// Keeps in a reading what the one before knows of libraries that were unloaded meanwhile.
fn keep_unloaded(reading: &mut Reading, before: Option<&Reading>, target: &Target) {
    let Some(before) = before.map(|before| &before.profile) else { return };
    let is_new = |mapping: &Mapping| {
        mapping.is_executable() && mapping.is_file() && before.mappings().find(mapping.start).is_none()
    };
    for path in reading.profile.mappings_mut().keep_unloaded(before.mappings()) {
        reading.profile.add_note(overlaid(&path));
    }
    for note in before.notes() {
        reading.profile.add_note(note.clone());
    }
    // While their files can still be read.
    if reading.profile.mappings().iter().any(is_new) {
        target.add_build_ids(&mut reading.profile);
    }
}

fn told(mut last: Option<Reading>, unsampled: &Unsampled) -> Option<Reading> {
    if let Some(reading) = &mut last {
        unsampled.tell(&mut reading.profile);
    }
    last
}

/// Opens the image that an exec started, once it has loaded the allocator.
fn reopen(pid: u32, pidfd: &PidFd) -> Option<Target> {
    let give_up = Instant::now() + EXEC_GRACE;
    loop {
        match Target::open(pid) {
            Ok(target) if target.root().is_ok() => return Some(target),
            _ if Instant::now() >= give_up => return None,
            _ => {}
        }
        // Ends early when the process does.
        if ready(&[pidfd.as_fd()], Some(Duration::from_millis(20))).ok()? == [true] {
            return None;
        }
    }
}

fn describe(target: &Target, was_on: bool, args: &AttachArgs, term: &mut Term) {
    let root = target.root();
    let interval = root.as_ref().map_or(0, |root| 1_u64.checked_shl(root.lg_sample).unwrap_or(u64::MAX));
    term.say(format_args!(
        "process {} ({}): reading the profile table of {} from outside, {}",
        target.pid,
        target.name,
        target.located.file.path().display(),
        if was_on { "sampling was on already" } else { "sampling switched on until the end" }
    ));
    term.say(format_args!(
        "expected cost: one sample (about 1.5 us) per {interval} bytes allocated, one reading of the table a second"
    ));
    if args.duration.is_none() {
        term.say("end with Ctrl-C");
    }
    probes::warn_if_stopped(target.pid, term);
}

fn finish(target: &Target, args: &AttachArgs, end: End, reading: Option<Reading>, term: &mut Term) -> Result<Outcome> {
    let Some(mut reading) = reading else {
        return Err(Error::NothingRead { pid: target.pid, name: target.name.clone() }.into());
    };
    match end {
        End::Time => {}
        End::Signal => term.say("ended early"),
        End::TargetEnded | End::Exec => {
            let what = if end == End::Exec { "started a program without the allocator" } else { "ended" };
            let line =
                format!("process {} ({}) {what}; this is its profile at the last reading", target.pid, target.name);
            reading.profile.add_note(line);
        }
    }
    let lives = matches!(end, End::Time | End::Signal);
    let finished = Finished {
        profile: &reading.profile,
        written: None,
        root: lives.then(|| exe::root_of(target.pid)),
        stdout: Stdout::Ours,
    };
    let outcome = deliver::deliver(&finished, &args.output, target.pid, term)?;
    Ok(if lives { outcome } else { Outcome::Partial })
}
