//! `attach` with probes on the allocator's hooks.
//!
//! ```text
//! open ─► print what is attached and its cost ─► pump every 100 ms ─┬─ time, signal ─► stop ─► profile
//!                                                                   ├─ exec ─► profile beside, follow the new image
//!                                                                   └─ target's end ─► profile of what was collected
//! ```
//!
//! Detaching is the kernel's work, also when this command is killed: the semaphores go back to what they were.
#![forbid(unsafe_code)]

use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::args::{AttachArgs, Stacks};
use super::deliver::{self, Finished, Stdout};
use super::outcome::Outcome;
use super::term::Term;
use crate::error::Error;
use crate::member::Member;
use crate::model::{Profile, call_site};
use crate::outfile;
use crate::probe::attach::{self, AttachOptions};
use crate::proc::{exe, pids};
use crate::remote::unsampled::Unsampled;
use crate::session::{Closed, Notice, Session, SessionError};
use crate::track::pace::Way;
use crate::units::counted;
use crate::wait::{PidFd, Signals, ready};

/// Samples wake nobody until many wait in the ring.
const PUMP_EVERY: Duration = Duration::from_millis(100);
/// How long a new program image may take to load the allocator after an exec.
const EXEC_GRACE: Duration = Duration::from_secs(2);
/// What the command line asks for; `every_event`: no table is read instead.
pub fn options(stacks: Stacks, ring_bytes: u32, every_event: bool) -> AttachOptions {
    let stacks = match stacks {
        Stacks::Auto => attach::Stacks::Auto,
        Stacks::Ctx => attach::Stacks::Context,
        Stacks::Kernel => attach::Stacks::Kernel,
    };
    AttachOptions { stacks, ring_bytes, hushed: !every_event }
}

pub fn open(pid: u32, stacks: Stacks, args: &AttachArgs) -> Result<Session, SessionError> {
    Session::process(pid, options(stacks, args.ring_size, args.every_event))
}

/// How it ended and what is left: a running process, or an image that is gone.
enum End {
    Running { early: bool },
    Gone(Box<Closed>),
}

/// `unsampled` has seen the table before the probes were there.
pub fn run(
    mut session: Session,
    pid: u32,
    mut unsampled: Unsampled,
    args: &AttachArgs,
    term: &mut Term,
) -> Result<Outcome> {
    let system = |what| move |source| Error::System { what, source };
    let signals = Signals::block(&[libc::SIGINT, libc::SIGTERM, libc::SIGHUP]).map_err(system("receive signals"))?;
    let pidfd = PidFd::open(pid).map_err(|_| Error::NoProcess { pid })?;
    for line in session.attachment().describe() {
        term.say(line);
    }
    for line in session.attachment().warnings() {
        term.warn(line);
    }
    if session.way(pid).is_some() {
        term.say(
            "the process's profile table is read ten times a second until samples are seldom enough to be probed each",
        );
    }
    let mut sampling_before = match args.lg_sample {
        Some(lg) => session.set_lg_sample(pid, lg)?,
        None => None,
    };
    if args.lg_sample.is_some() && sampling_before.is_none() {
        term.warn("--lg-sample has no effect: the process has no table of ours, or its memory may not be written");
    }
    if let Some(member) = session.member(pid) {
        match member.interval_in_force().0 {
            _ if member.target.is_none() => term.say("sampling: as the process does by itself"),
            0 | 1 => term.say("sampling: every allocation"),
            bytes => term.say(format_args!("sampling: one allocation per {bytes} bytes on average")),
        }
    }
    warn_if_stopped(pid, term);
    if args.duration.is_none() {
        term.say("end with Ctrl-C");
    }
    let deadline = args.duration.map(|duration| Instant::now() + duration);
    let mut images = 0;
    // The interval that a new image is still to be given: it may not have its table yet.
    let mut unset = None;
    let end = loop {
        let now = Instant::now();
        if deadline.is_some_and(|deadline| now >= deadline) {
            break End::Running { early: false };
        }
        let tick = session.next_reading().map_or(PUMP_EVERY, |due| PUMP_EVERY.min(due));
        let tick = deadline.map_or(tick, |deadline| tick.min(deadline - now));
        let woken =
            ready(&[signals.as_fd(), pidfd.as_fd(), session.as_fd()], Some(tick)).map_err(system("wait for events"))?;
        tell(&session.pump(), term);
        set_interval(&mut session, pid, &mut unset, &mut sampling_before);
        if woken[0] && signals.take().is_some() {
            break End::Running { early: true };
        }
        if woken[1] {
            session.sweep();
            tell(&session.pump(), term);
        }
        let Some(closed) = session.take_closed().into_iter().find(|closed| closed.member.pid == pid) else { continue };
        if !closed.by_exec || !follow(&mut session, pid, &pidfd, &signals) {
            break End::Gone(Box::new(closed));
        }
        images += 1;
        unsampled = Unsampled::default();
        (sampling_before, unset) = (None, args.lg_sample);
        set_interval(&mut session, pid, &mut unset, &mut sampling_before);
        tell(&session.pump(), term);
        image_profile(&closed, args, images, term)?;
    };
    match end {
        End::Running { early } => {
            if early {
                term.say("ended early");
            }
            if let Some(before) = sampling_before {
                // Fails only when the process ended in this moment: there is nothing to put back then.
                let _gone = session.set_lg_sample(pid, before);
            }
            // Records the samples that the probes see, too.
            unsampled.look_at(pid);
            tell(&session.stop(), term);
            let Some(mut profile) = session.profile(pid) else {
                // It ended between the last event and the stop.
                let closed = session.take_closed().into_iter().find(|closed| closed.member.pid == pid);
                let closed = closed.ok_or(Error::NoProcess { pid })?;
                return finish_gone(&closed, &session, args, term);
            };
            if let Some(member) = session.member(pid) {
                describe(&mut profile, member);
                unsampled.tell(&mut profile);
            }
            finish(profile, session.way(pid), &session, Some(exe::root_of(pid)), args, term)
        }
        End::Gone(closed) => {
            session.stop();
            finish_gone(&closed, &session, args, term)
        }
    }
}

/// Gives an image the interval that it is still to be given, once it has a table.
fn set_interval(session: &mut Session, pid: u32, unset: &mut Option<u32>, before: &mut Option<u32>) {
    if let Some(lg) = *unset
        && let Ok(Some(found)) = session.set_lg_sample(pid, lg)
    {
        (*before, *unset) = (Some(found), None);
    }
}

/// Waits until the new image has hooks; false when it gets none in time, ends, or the user ends the command.
fn follow(session: &mut Session, pid: u32, pidfd: &PidFd, signals: &Signals) -> bool {
    let give_up = Instant::now() + EXEC_GRACE;
    while Instant::now() < give_up {
        if session.rejoin(pid) {
            return true;
        }
        let woken = ready(&[pidfd.as_fd(), signals.as_fd()], Some(Duration::from_millis(20)));
        if woken.is_ok_and(|woken| woken[0] || woken[1]) {
            return false;
        }
    }
    false
}

/// The profile of an image that an exec replaced goes beside the final one.
fn image_profile(closed: &Closed, args: &AttachArgs, number: u32, term: &mut Term) -> Result<()> {
    let Some(path) = deliver::heap_path(&args.output, closed.member.pid) else { return Ok(()) };
    let path = outfile::beside(&path, &format!("image{number}"));
    let mut profile = closed.profile();
    describe(&mut profile, &closed.member);
    outfile::write(&path, |out| crate::output::heap_v2::write(&profile, out))?;
    term.say(format_args!("profile of {} until then written to {}", closed.member.name, path.display()));
    for note in profile.notes() {
        term.say(format_args!("  {note}"));
    }
    Ok(())
}

fn finish_gone(closed: &Closed, session: &Session, args: &AttachArgs, term: &mut Term) -> Result<Outcome> {
    let member = &closed.member;
    let what = if closed.by_exec { "started a program without the allocator" } else { "ended" };
    let line = format!("process {} ({}) {what}; this is what was collected until then", member.pid, member.name);
    let mut profile = closed.profile();
    profile.add_note(line);
    describe(&mut profile, member);
    let way = if closed.was_read { Some(Way::Table) } else { session.way(member.pid) };
    finish(profile, way, session, None, args, term)?;
    Ok(Outcome::Partial)
}

fn finish(
    mut profile: Profile,
    way: Option<Way>,
    session: &Session,
    root: Option<std::path::PathBuf>,
    args: &AttachArgs,
    term: &mut Term,
) -> Result<Outcome> {
    add_losses(&mut profile, &session.losses());
    if args.stacks == Stacks::Kernel {
        note_short_stacks(&mut profile);
    }
    term.say(match way {
        Some(Way::Table) => "samples were read from the process's profile table",
        Some(Way::Probes) => "each sample was probed once they were seldom enough",
        None => "each sample was probed",
    });
    let finished = Finished { profile: &profile, written: None, root, stdout: Stdout::Ours };
    deliver::deliver(&finished, &args.output, profile.pid().unwrap_or(args.pid), term)
}

/// Says it when the kernel found no frame pointers to follow.
pub fn note_short_stacks(profile: &mut Profile) {
    let (mut all, mut short) = (0, 0);
    for (_, frames, values) in profile.totals() {
        let samples = values.current.raw.objects.max(values.cumulative.raw.objects);
        let outside = frames.iter().enumerate().filter(|&(depth, &avma)| !profile.is_allocator(call_site(depth, avma)));
        all += samples;
        short += if outside.count() <= 1 { samples } else { 0 };
    }
    if short > all / 2 {
        profile.add_note(format!(
            "stacks of {short} of {} have one frame or none: the program is built without frame pointers; leave --stacks kernel out, or \
             build it with -fno-omit-frame-pointer",
            counted(all, "sample", "samples")
        ));
    }
}

pub fn warn_if_stopped(pid: u32, term: &mut Term) {
    if pids::status(pid).is_ok_and(|status| matches!(status.state, 'T' | 't')) {
        term.warn(format_args!("process {pid} is stopped: nothing is allocated until it continues"));
    }
}

pub fn add_losses(profile: &mut Profile, losses: &[u64]) {
    use jeprobe_abi::drops::Reason;
    for &reason in Reason::ALL {
        match losses.get(reason as usize) {
            Some(&count) if count > 0 => profile.add_loss(reason, count),
            _ => {}
        }
    }
}

/// Adds to the profile what the process did meanwhile.
pub fn describe(profile: &mut Profile, member: &Member) {
    if member.forks > 0 {
        let named: Vec<String> = member.children.iter().map(|(pid, name)| format!("{pid} ({name})")).collect();
        let more = member.forks - member.children.len() as u64;
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        profile.add_note(format!(
            "{} forked and not in this profile: {}{more}",
            counted(member.forks, "child was", "children were"),
            named.join(", ")
        ));
    }
    let calls: Vec<String> = member
        .mallctls
        .iter()
        .filter(|(name, _)| name.starts_with("prof."))
        .map(|(name, count)| format!("{name} {count}x"))
        .collect();
    if !calls.is_empty() {
        profile.add_note(format!("the process called mallctl: {}", calls.join(", ")));
    }
    if member.unread_calls > 0 {
        profile.add_note(format!(
            "the process called mallctl {} with a name that cannot be read",
            counted(member.unread_calls, "time", "times")
        ));
    }
}

/// Prints what happened.
pub fn tell(notices: &[Notice], term: &mut Term) {
    for notice in notices {
        match notice {
            Notice::Joined { pid, name } => term.detail(format_args!("process {pid} ({name}): under observation")),
            Notice::Dumped { pid, path, merged: Ok(merged) } => term.say(format_args!(
                "process {pid} wrote {}; merged profile written to {}",
                path.display(),
                merged.display()
            )),
            Notice::Dumped { pid, path, merged: Err(error) } => {
                let cause = std::error::Error::source(error).map(|cause| format!(": {cause}")).unwrap_or_default();
                term.warn(format_args!("process {pid} wrote {}, but {error}{cause}", path.display()));
            }
            Notice::Mallctl { pid, name } => term.detail(format_args!("process {pid} called mallctl(\"{name}\")")),
            Notice::Forked { pid, child, name } => {
                term.detail(format_args!("process {pid} ({name}) forked {child}, which is not followed"));
            }
            Notice::Exec { pid, before } => {
                term.say(format_args!("process {pid} ({before}) started another program"));
            }
            Notice::Exited { pid, name } => term.detail(format_args!("process {pid} ({name}) ended")),
            Notice::Bridged { pid, name } => term.say(format_args!(
                "the thread that the probes of process {pid} ({name}) belonged to ended: its profile table is read until they are set \
                 for another one"
            )),
            Notice::Hushed { pid, name } => term.say(format_args!(
                "process {pid} ({name}) samples too often to be probed: from now on the profile table of each process is read, ten times \
                 a second at most, and those that sample seldom are probed one by one"
            )),
            Notice::Way { pid, name, way, is_one_of_many: true } => term.detail(format_args!(
                "process {pid} ({name}): {}",
                if *way == Way::Table { "its profile table is read" } else { "each sample and free is probed" }
            )),
            Notice::Way { pid, name, way: Way::Table, .. } => term.say(format_args!(
                "process {pid} ({name}) samples too often to be probed: reading its profile table instead, ten times a second"
            )),
            Notice::Way { pid, name, way: Way::Probes, .. } => {
                term.say(format_args!("process {pid} ({name}) samples seldom enough: from now on each sample and free is probed"));
            }
            Notice::File { path, result: Ok(()) } => term.say(format_args!("attached to {}", path.display())),
            Notice::File { path, result: Err(error) } => {
                term.warn(format_args!("cannot attach to {}: {error}", path.display()));
            }
        }
    }
}
