//! `jeprobe system`: every process of the host that has the allocator, those that start later included.
//!
//! One attachment per file serves all processes that map it. Each process gets a heap file as it ends, or at the end.
//! Where probes are refused, the profile tables of all processes are read instead (`cli/tables.rs`).
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::args::{Mode, Stacks, SystemArgs};
use super::harvest::Harvest;
use super::outcome::Outcome;
use super::term::Term;
use super::{probes, tables};
use crate::error::Error;
use crate::outfile;
use crate::probe::discover::Finder;
use crate::probe::privilege;
use crate::remote::sandbox;
use crate::remote::unsampled::Unsampled;
use crate::session::{Session, SessionError};
use crate::units::counted;
use crate::wait::{Signals, ready};

const PUMP_EVERY: Duration = Duration::from_millis(100);
/// Shortest time between two looks at all processes; longer when a look is slow.
const SCAN_EVERY: Duration = Duration::from_secs(1);
const SCAN_SHARE: u32 = 20;

pub fn run(args: &SystemArgs, term: &mut Term) -> Result<Outcome> {
    let missing = if args.mode == Mode::Inprocess { Vec::new() } else { privilege::check() };
    if let (Some(first), Mode::Ebpf) = (missing.first(), args.mode) {
        let reasons = missing.iter().map(ToString::to_string).collect();
        return Err(Error::NoEbpf { reasons, hint: first.hint.clone() }.into());
    }
    fs::create_dir_all(&args.out_dir).map_err(|source| Error::WriteFile { path: args.out_dir.clone(), source })?;
    let mut harvest = Harvest::new(&args.out_dir);
    outfile::check(&harvest.merged_path())?;
    let signals = Signals::block(&[libc::SIGINT, libc::SIGTERM, libc::SIGHUP])
        .map_err(|source| Error::System { what: "receive signals", source })?;
    for reason in &missing {
        term.warn(format_args!("no probes: {reason}"));
    }
    if let Some(first) = missing.first() {
        term.say(format_args!("hint: {}", first.hint));
    }
    if args.mode == Mode::Inprocess || !missing.is_empty() {
        return read_tables(args, &signals, harvest, term);
    }
    check_sandboxes(term)?;
    let mut session = match Session::host(probes::options(args.stacks, args.ring_size, args.every_event)) {
        Ok(session) => session,
        Err(SessionError::Attach(error)) if args.mode == Mode::Auto => {
            let error = anyhow::Error::from(error);
            term.warn(format_args!("no probes: {error:#}"));
            return read_tables(args, &signals, harvest, term);
        }
        Err(error) => return Err(error.into()),
    };
    for line in session.attachment().describe() {
        term.say(line);
    }
    for line in session.attachment().warnings() {
        term.warn(line);
    }
    let count = counted(session.members().count() as u64, "process has", "processes have");
    term.say(format_args!("{count} the allocator; new ones are followed"));
    if args.duration.is_none() {
        term.say("end with Ctrl-C");
    }
    // Those that start later are sampled from their first block on.
    let mut unsampled: BTreeMap<u32, Unsampled> =
        session.members().map(|member| (member.pid, Unsampled::default())).collect();
    look(&mut unsampled);
    let mut rates = Rates { lg: args.lg_sample, before: BTreeMap::new() };
    rates.set(&mut session);
    watch(&mut session, &signals, args.duration, (&mut rates, &mut unsampled), &mut harvest, term)?;
    look(&mut unsampled);
    rates.restore(&mut session);
    probes::tell(&session.stop(), term);
    take_closed(&mut session, (&mut rates, &mut unsampled), &mut harvest, term);
    for member in session.members() {
        let profile = session.profile(member.pid).map(|mut profile| {
            probes::describe(&mut profile, member);
            if let Some(unsampled) = unsampled.get(&member.pid) {
                unsampled.tell(&mut profile);
            }
            profile
        });
        harvest.add(&member.name, member.pid, profile, "running", term);
    }
    harvest.finish(&session.losses(), term)
}

/// Probes of a file reach every process that maps it: none of them may be one that its sandbox would end for it. Those that start
/// later are not asked.
fn check_sandboxes(term: &mut Term) -> Result<()> {
    let host = Finder::new().host().map_err(|source| Error::System { what: "list the processes", source })?;
    for process in host.processes {
        if let Some(unknown) = sandbox::check(process.pid)? {
            term.warn(unknown);
        }
    }
    Ok(())
}

/// The sampling interval of every process, while it is observed.
struct Rates {
    lg: Option<u32>,
    before: BTreeMap<u32, Rate>,
}

/// Of one process.
#[derive(Clone, Copy, Default)]
struct Rate {
    /// `None` where it could not be set.
    before: Option<u32>,
    tries: u32,
}

/// A process that has just started gets its table within this many looks; others have none.
const RATE_TRIES: u32 = 3;

impl Rates {
    /// Another image runs in the process, with an interval of its own.
    fn forget(&mut self, pid: u32) {
        self.before.remove(&pid);
    }

    /// Sets it in the processes that are new.
    fn set(&mut self, session: &mut Session) {
        let Some(lg) = self.lg else { return };
        self.before.retain(|pid, _| session.member(*pid).is_some());
        let pids: Vec<u32> = session.members().map(|member| member.pid).collect();
        for pid in pids {
            let rate = self.before.entry(pid).or_default();
            if rate.before.is_none() && rate.tries < RATE_TRIES {
                rate.tries += 1;
                rate.before = session.set_lg_sample(pid, lg).ok().flatten();
            }
        }
    }

    fn restore(&self, session: &mut Session) {
        for (&pid, rate) in &self.before {
            if let Some(before) = rate.before {
                // Fails only when the process ended in this moment: there is nothing to put back then.
                let _gone = session.set_lg_sample(pid, before);
            }
        }
    }
}

/// Reads the tables.
fn look(unsampled: &mut BTreeMap<u32, Unsampled>) {
    for (&pid, unsampled) in unsampled {
        unsampled.look_at(pid);
    }
}

/// What is known of processes besides their samples.
type Known<'k> = (&'k mut Rates, &'k mut BTreeMap<u32, Unsampled>);

fn watch(
    session: &mut Session,
    signals: &Signals,
    duration: Option<Duration>,
    (rates, unsampled): Known<'_>,
    harvest: &mut Harvest,
    term: &mut Term,
) -> Result<()> {
    let deadline = duration.map(|duration| Instant::now() + duration);
    let mut next_scan = Instant::now() + SCAN_EVERY;
    loop {
        let now = Instant::now();
        if deadline.is_some_and(|deadline| now >= deadline) {
            return Ok(());
        }
        if now >= next_scan {
            session.sweep();
            session.rescan();
            rates.set(session);
            next_scan = Instant::now() + SCAN_EVERY.max(now.elapsed() * SCAN_SHARE);
        }
        let tick = deadline.map_or(PUMP_EVERY, |deadline| PUMP_EVERY.min(deadline.saturating_duration_since(now)));
        let woken = ready(&[signals.as_fd(), session.as_fd()], Some(tick))
            .map_err(|source| Error::System { what: "wait for events", source })?;
        probes::tell(&session.pump(), term);
        take_closed(session, (rates, unsampled), harvest, term);
        if woken[0] && signals.take().is_some() {
            term.say("ended early");
            return Ok(());
        }
    }
}

fn read_tables(args: &SystemArgs, signals: &Signals, harvest: Harvest, term: &mut Term) -> Result<Outcome> {
    if args.stacks == Stacks::Kernel {
        term.warn("--stacks kernel needs probes: these stacks are the processes' own");
    }
    tables::run(args, signals, harvest, term)
}

/// Takes the images that are gone.
fn take_closed(session: &mut Session, (rates, unsampled): Known<'_>, harvest: &mut Harvest, term: &mut Term) {
    for closed in session.take_closed() {
        rates.forget(closed.member.pid);
        let unsampled = unsampled.remove(&closed.member.pid);
        let profile = closed.image.is_some().then(|| {
            let mut profile = closed.profile();
            probes::describe(&mut profile, &closed.member);
            if let Some(unsampled) = &unsampled {
                unsampled.tell(&mut profile);
            }
            profile
        });
        let state = if closed.by_exec { "replaced by exec" } else { "ended" };
        harvest.add(&closed.member.name, closed.member.pid, profile, state, term);
    }
}
