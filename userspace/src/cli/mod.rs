//! Commands of `jeprobe`: one file each, every one `fn run(args, &mut Term) -> anyhow::Result<Outcome>`.
//!
//! Exit codes: 0 complete; 1 failed, nothing usable written; 2 usage (clap's own); 3 written, but events were lost or a
//! target failed (`--strict` makes it 1). `run` passes the child's code through once the profile is saved.

use anyhow::Result;

pub mod args;
pub mod attach;
pub mod deliver;
pub mod dump;
pub mod flamegraph;
pub mod inprocess;
pub mod report;
pub mod run;
pub mod term;
pub mod unsampled;

use args::Command;
use term::Term;

/// How a command ended when it did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Everything asked for was done and nothing was lost.
    Complete,
    /// A result was written, but events were lost or a target failed; what and why was printed.
    Partial,
    /// `run`: the profile was saved and the child ended with this code.
    Child(u8),
}

/// Runs one parsed command.
pub fn dispatch(command: &Command, term: &mut Term) -> Result<Outcome> {
    match command {
        Command::Attach(args) => attach::run(args, term),
        Command::Dump(args) => dump::run(args, term),
        Command::Run(args) => run::run(args, term),
        Command::Report(args) => report::run(args, term),
        Command::Flamegraph(args) => flamegraph::run(args, term),
    }
}
