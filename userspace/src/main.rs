//! The command `jeprobe`: parse, run, print the error, exit code. Called as `jeprof` it is that command.

use std::env;
use std::path::Path;
use std::process::ExitCode;

use jeprobe::cli::args::Cli;
use jeprobe::cli::dispatch;
use jeprobe::cli::outcome::Outcome;
use jeprobe::cli::term::Term;
use jeprobe::memory::Bounded;

#[global_allocator]
static MEMORY: Bounded = Bounded;

fn main() -> ExitCode {
    let mut arguments = env::args_os();
    if arguments.next().is_some_and(|name| Path::new(&name).file_name().is_some_and(|name| name == "jeprof")) {
        return ExitCode::from(jeprobe::jeprof::run(arguments.collect()));
    }
    let cli = Cli::of_process();
    let strict = cli.global.strict;
    let mut term = Term::new(cli.global.quiet, cli.global.verbose);
    match dispatch(&cli.command, &mut term) {
        Ok(Outcome::Complete) => ExitCode::SUCCESS,
        Ok(Outcome::Partial) if strict => ExitCode::from(1),
        Ok(Outcome::Partial) => ExitCode::from(3),
        Ok(Outcome::Child(code)) => ExitCode::from(code),
        Err(error) => {
            term.error(&error);
            ExitCode::from(1)
        }
    }
}
