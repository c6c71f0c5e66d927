//! The command line as clap structs: raw values only, nothing is opened or checked against the system here.
#![forbid(unsafe_code)]

use clap::{Args, Parser, Subcommand};

/// Heap profiler: who holds a process's memory, asked by pid, host-wide or in-process.
#[derive(Debug, Parser)]
#[command(name = "jeprobe", version, max_term_width = 120)]
pub struct Cli {
    #[command(flatten)]
    pub global: GlobalArgs,
    #[command(subcommand)]
    pub command: Command,
}

/// Options of every command.
#[derive(Clone, Copy, Debug, Args)]
pub struct GlobalArgs {
    /// Print results, warnings and errors only.
    #[arg(short, long, global = true)]
    pub quiet: bool,
    /// Print details of what is being done.
    #[arg(short, long, global = true, conflicts_with = "quiet")]
    pub verbose: bool,
    /// Exit with 1 instead of 3 when events were lost or a target failed.
    #[arg(long, global = true)]
    pub strict: bool,
}

/// One variant per file of `cli/`.
#[derive(Debug, Subcommand)]
pub enum Command {}
