//! `system` without probes: sampling is switched on in every process that may be reached, their profile tables are read.
//!
//! Reaches the processes that a debugger of this user would reach. New ones are looked for once a second; each table is
//! read as often, so that something is left of a process that ends in between.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::args::SystemArgs;
use super::harvest::Harvest;
use super::outcome::Outcome;
use super::term::Term;
use crate::error::Error;
use crate::model::Profile;
use crate::proc::pids;
use crate::remote::switch::Switch;
use crate::remote::target::{Target, is_ending};
use crate::remote::unsampled::Unsampled;
use crate::units::counted;
use crate::wait::{PidFd, Signals, ready};

/// Shortest time between two rounds; longer when a round is slow.
const ROUND_EVERY: Duration = Duration::from_secs(1);
const ROUND_SHARE: u32 = 20;

/// A process under observation.
struct Observed {
    target: Target,
    switch: Switch,
    pidfd: PidFd,
    last: Option<Profile>,
    unsampled: Unsampled,
}

pub fn run(args: &SystemArgs, signals: &Signals, mut harvest: Harvest, term: &mut Term) -> Result<Outcome> {
    let deadline = args.duration.map(|duration| Instant::now() + duration);
    let mut observed = BTreeMap::new();
    let mut others = BTreeMap::new();
    look(&mut observed, &mut others, args.lg_sample, term);
    let count = counted(observed.len() as u64, "process has", "processes have");
    term.say(format_args!("{count} the allocator: sampling is on there until the end"));
    term.say("expected cost: about 1.5 us per sample, one reading of each table a second");
    let refused = others.values().filter(|other| other.refused).count();
    if refused > 0 {
        term.say(format_args!("{} not be read by this user", counted(refused as u64, "process may", "processes may")));
    }
    if args.duration.is_none() {
        term.say("end with Ctrl-C");
    }
    let mut next_round = Instant::now() + ROUND_EVERY;
    loop {
        let until = deadline.map_or(next_round, |deadline| deadline.min(next_round));
        let left = until.saturating_duration_since(Instant::now());
        let woken = ready(&[signals.as_fd()], Some(left))
            .map_err(|source| Error::System { what: "wait for events", source })?;
        let stop = woken[0] && signals.take().is_some();
        if stop || deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            break;
        }
        let began = Instant::now();
        round(&mut observed, &mut harvest, term);
        look(&mut observed, &mut others, args.lg_sample, term);
        next_round = Instant::now() + ROUND_EVERY.max(began.elapsed() * ROUND_SHARE);
    }
    round(&mut observed, &mut harvest, term);
    for (pid, mut process) in observed {
        if let Err(error) = process.switch.off()
            && !process.pidfd.has_ended()
        {
            term.warn(format_args!("sampling stays on in process {pid}: {error}"));
        }
        let mut profile = process.last.take();
        if let Some(profile) = &mut profile {
            process.target.add_build_ids(profile);
        }
        harvest.add(&process.target.name, pid, profile, "running", term);
    }
    harvest.finish(&[], term)
}

/// Reads every table; takes out the processes that ended or run another program.
fn round(observed: &mut BTreeMap<u32, Observed>, harvest: &mut Harvest, term: &mut Term) {
    let mut gone = Vec::new();
    for (&pid, process) in &mut *observed {
        match process.target.read() {
            Ok(mut reading) => {
                process.unsampled.look(&reading);
                process.unsampled.tell(&mut reading.profile);
                // Fails when the process ends in this moment, which the next round finds.
                let _gone = process.switch.keep_on(reading.root.prof_active);
                process.last = Some(reading.profile);
            }
            Err(_) => gone.push(pid),
        }
    }
    for pid in gone {
        let Some(mut process) = observed.remove(&pid) else { continue };
        process.switch.disarm();
        let state = if is_ending(pid, &process.pidfd) { "ended" } else { "replaced by exec" };
        harvest.add(&process.target.name, pid, process.last.take(), state, term);
    }
}

/// A process that is not observed, and why it need not be looked at again.
#[derive(Clone, Copy, Debug, Default)]
struct Other {
    /// Start time and inode of the program: another image has others.
    identity: (u64, u64),
    looks: u32,
    refused: bool,
}

/// An image that had no allocator this often gets none any more: looking opens all its files.
const LOOKS: u32 = 3;

/// Takes in processes that are new.
fn look(
    observed: &mut BTreeMap<u32, Observed>,
    others: &mut BTreeMap<u32, Other>,
    lg_sample: Option<u32>,
    term: &mut Term,
) {
    let pids = pids::list().unwrap_or_default();
    others.retain(|pid, _| pids.binary_search(pid).is_ok());
    for pid in pids {
        if observed.contains_key(&pid) {
            continue;
        }
        let program = fs::metadata(format!("/proc/{pid}/exe")).map_or(0, |meta| meta.ino());
        let identity = (pids::start_ticks(pid).unwrap_or(0), program);
        let other = others.entry(pid).or_default();
        if other.identity != identity {
            *other = Other { identity, ..Other::default() };
        }
        if other.looks == LOOKS {
            continue;
        }
        other.looks += 1;
        let pidfd = PidFd::open(pid);
        match switch_on(pid, lg_sample) {
            Ok((target, switch, unsampled)) => {
                // Ended meanwhile: there is nothing to observe.
                let Ok(pidfd) = pidfd else { continue };
                term.detail(format_args!("process {pid} ({}): under observation", target.name));
                observed.insert(pid, Observed { target, switch, pidfd, last: None, unsampled });
            }
            Err(Error::Access { .. }) => other.refused = true,
            Err(_) => {}
        }
    }
}

/// What no sample stands for is read before the switch.
fn switch_on(pid: u32, lg_sample: Option<u32>) -> Result<(Target, Switch, Unsampled), Error> {
    let target = Target::open(pid)?;
    let mut unsampled = Unsampled::default();
    unsampled.look(&target.read()?);
    let switch = Switch::on(&target, lg_sample)?;
    Ok((target, switch, unsampled))
}
