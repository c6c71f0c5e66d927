//! `jeprobe attach`: profile a running process. Chooses between probes and reading the table, and says why.
#![forbid(unsafe_code)]

use anyhow::Result;

use super::args::{AttachArgs, Mode, Stacks};
use super::deliver;
use super::outcome::Outcome;
use super::term::Term;
use super::{inprocess, probes};
use crate::error::Error;
use crate::probe::privilege;
use crate::remote::sandbox;
use crate::remote::target::{self, Target};
use crate::remote::unsampled::Unsampled;
use crate::session::SessionError;

pub fn run(args: &AttachArgs, term: &mut Term) -> Result<Outcome> {
    if args.mode == Mode::Inprocess {
        check_sandbox(target::present(args.pid)?.0, term)?;
        return read_table(args, term);
    }
    let (pid, _) = target::present(args.pid)?;
    deliver::check(&args.output, pid)?;
    check_sandbox(pid, term)?;
    let missing = privilege::check();
    if !missing.is_empty() {
        if args.mode == Mode::Ebpf {
            let reasons = missing.iter().map(ToString::to_string).collect();
            return Err(Error::NoEbpf { reasons, hint: missing[0].hint.clone() }.into());
        }
        for reason in &missing {
            term.warn(format_args!("no probes: {reason}"));
        }
        term.say(format_args!("hint: {}", missing[0].hint));
        return read_table(args, term);
    }
    let mut unsampled = Unsampled::default();
    unsampled.look_at(pid);
    match probes::open(pid, stacks(pid, args.stacks, term), args) {
        Ok(session) => probes::run(session, pid, unsampled, args, term),
        // What is wrong with the process is wrong in either mode; only the kernel's refusal leaves the other way.
        Err(SessionError::Attach(error)) if args.mode == Mode::Auto => {
            target::present(pid)?;
            let error = anyhow::Error::from(error);
            term.warn(format_args!("no probes: {error:#}"));
            read_table(args, term)
        }
        // No hooks, or only such as must not be probed; the table may be there all the same.
        Err(SessionError::Discover(error)) if args.mode == Mode::Auto && Target::open(pid).is_ok() => {
            term.warn(format_args!("no probes: {error}"));
            read_table(args, term)
        }
        // Who may not read the mappings may not read the memory: opened again for the reason that this has here. Who has no
        // hooks mostly has no table: told in the words of the other commands.
        Err(SessionError::Discover(error)) if error.is_plain() => {
            Err(Target::open(pid).err().map_or_else(|| error.into(), Into::into))
        }
        Err(error) => Err(error.into()),
    }
}

/// Sampling makes system calls in the process, which must not end it.
fn check_sandbox(pid: u32, term: &mut Term) -> Result<()> {
    if let Some(unknown) = sandbox::check(pid)? {
        term.warn(unknown);
    }
    Ok(())
}

/// Where stacks come from. The hooks of a process that unwinds its own stacks are reached through its unwinder, where the chain of
/// frame pointers ends.
fn stacks(pid: u32, wanted: Stacks, term: &mut Term) -> Stacks {
    let unwinds = || Target::open(pid).and_then(|target| target.root()).is_ok_and(|root| root.prof_active != 0);
    if wanted == Stacks::Kernel && unwinds() {
        term.say("the process samples and unwinds by itself, which leaves the kernel nothing to walk: these stacks are its own");
        return Stacks::Auto;
    }
    wanted
}

fn read_table(args: &AttachArgs, term: &mut Term) -> Result<Outcome> {
    if args.stacks == Stacks::Kernel {
        term.warn("--stacks kernel needs probes: these stacks are the process's own");
    }
    if args.every_event {
        term.warn("--every-event needs probes: what a killed process did since the last reading will be missing");
    }
    inprocess::run(args, term)
}
