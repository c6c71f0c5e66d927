//! `jeprobe dump`: the profile of a process at once, read from its memory. The process may run, be stopped or hang.
#![forbid(unsafe_code)]

use anyhow::Result;

use super::args::DumpArgs;
use super::deliver::{self, Finished, Stdout};
use super::outcome::Outcome;
use super::term::Term;
use crate::proc::exe;
use crate::remote::target::Target;
use crate::remote::unsampled::Unsampled;

pub fn run(args: &DumpArgs, term: &mut Term) -> Result<Outcome> {
    let target = Target::open(args.pid)?;
    deliver::check(&args.output, target.pid)?;
    let mut reading = target.read()?;
    target.add_build_ids(&mut reading.profile);
    if target.copies > 1 {
        term.warn(format_args!(
            "process {} has {} copies of the allocator; this is the profile of the busiest, in {}",
            target.pid,
            target.copies,
            target.located.file.path().display()
        ));
    }
    if reading.root.samples == 0 {
        let why = if reading.root.prof_active == 0 { "sampling is off" } else { "nothing was sampled yet" };
        term.warn(format_args!("process {} ({}) has no samples: {why}", target.pid, target.name));
        term.say(format_args!("hint: switch sampling on for a while: jeprobe attach --pid {}", target.pid));
    }
    let mut unsampled = Unsampled::default();
    unsampled.look(&reading);
    unsampled.tell(&mut reading.profile);
    let finished = Finished {
        profile: &reading.profile,
        written: None,
        root: Some(exe::root_of(target.pid)),
        stdout: Stdout::Ours,
    };
    deliver::deliver(&finished, &args.output, target.pid, term)
}
