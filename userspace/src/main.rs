//! The command `jeprobe`: parse, run, print the error, exit code.

use std::process::ExitCode;

use clap::Parser as _;
use jeprobe::cli::args::Cli;
use jeprobe::cli::dispatch;
use jeprobe::cli::outcome::Outcome;
use jeprobe::cli::term::Term;

fn main() -> ExitCode {
    let cli = Cli::parse();
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
