//! Commands of `jeprobe`: one file each, every one `fn run(args, &mut Term) -> anyhow::Result<Outcome>`.

use anyhow::Result;

pub mod args;
pub mod attach;
pub mod deliver;
pub mod diff;
pub mod draw;
pub mod dump;
pub mod explain;
pub mod flamegraph;
pub mod harvest;
pub mod inprocess;
pub mod load;
pub mod merge;
pub mod outcome;
pub mod probes;
pub mod report;
pub mod report_args;
pub mod results;
pub mod run;
pub mod symbolize;
pub mod system;
pub mod tables;
pub mod term;
pub mod timeline;
pub mod web;

use args::Command;
use outcome::Outcome;
use term::Term;

use crate::memory;

/// Runs one parsed command.
pub fn dispatch(command: &Command, term: &mut Term) -> Result<Outcome> {
    let reads_profiles = match command {
        Command::Attach(_) | Command::System(_) | Command::Dump(_) | Command::Run(_) => false,
        Command::Report(_)
        | Command::Diff(_)
        | Command::Merge(_)
        | Command::Symbolize(_)
        | Command::Flamegraph(_)
        | Command::Timeline(_)
        | Command::Web(_) => true,
    };
    memory::survive_file_limit();
    if reads_profiles {
        memory::bound("jeprobe")?;
    }
    if matches!(command, Command::Web(_)) {
        memory::settle();
    }
    match command {
        Command::Attach(args) => attach::run(args, term),
        Command::System(args) => system::run(args, term),
        Command::Dump(args) => dump::run(args, term),
        Command::Run(args) => run::run(args, term),
        Command::Report(args) => report::run(args, term),
        Command::Diff(args) => diff::run(args, term),
        Command::Merge(args) => merge::run(args, term),
        Command::Symbolize(args) => symbolize::run(args, term),
        Command::Flamegraph(args) => flamegraph::run(args, term),
        Command::Timeline(args) => timeline::run(args, term),
        Command::Web(args) => web::run(args, term),
    }
}
