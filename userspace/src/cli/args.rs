//! The command line as clap structs: raw values only, nothing is opened or checked against the system here.
#![forbid(unsafe_code)]
#![expect(clippy::doc_markdown, reason = "doc comments here are the help text, which shows no markup")]

use std::path::PathBuf;

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
pub enum Command {
    /// Print a profile as a table: jeprof's text layout.
    Report(ReportArgs),
    /// Draw a profile as a flame graph, an SVG file on standard output.
    Flamegraph(FlamegraphArgs),
}

/// Which profiles are read and which part of them is shown.
#[derive(Debug, Args)]
pub struct ProfileArgs {
    /// The program, when it is not at the path on record, and one or more profiles, which are summed.
    #[arg(value_name = "[PROGRAM] PROFILE", required = true)]
    pub inputs: Vec<PathBuf>,
    #[command(flatten)]
    pub value: ValueArgs,
    /// Only stacks in which a function, a FILE:LINE or an address matches.
    #[arg(long, value_name = "REGEX")]
    pub focus: Option<String>,
    /// No stacks in which a function, a FILE:LINE or an address matches.
    #[arg(long, value_name = "REGEX")]
    pub ignore: Option<String>,
    /// Directory that the process saw as /, to find its files in.
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,
}

/// The number that is shown.
#[derive(Clone, Copy, Debug, Args)]
#[group(multiple = false)]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
pub struct ValueArgs {
    /// Bytes in use (default).
    #[arg(long = "inuse_space", alias = "inuse-space")]
    pub inuse_space: bool,
    /// Objects in use.
    #[arg(long = "inuse_objects", alias = "inuse-objects")]
    pub inuse_objects: bool,
    /// Bytes ever allocated; needs profiles with cumulative counts (prof_accum).
    #[arg(long = "alloc_space", alias = "alloc-space")]
    pub alloc_space: bool,
    /// Objects ever allocated; needs profiles with cumulative counts (prof_accum).
    #[arg(long = "alloc_objects", alias = "alloc-objects")]
    pub alloc_objects: bool,
}

/// What one row of a table is.
#[derive(Clone, Copy, Debug, Args)]
#[group(multiple = false)]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
pub struct GranularityArgs {
    /// One row for each function (default).
    #[arg(long)]
    pub functions: bool,
    /// One row for each source line.
    #[arg(long)]
    pub lines: bool,
    /// One row for each source file.
    #[arg(long)]
    pub files: bool,
    /// One row for each address.
    #[arg(long)]
    pub addresses: bool,
}

#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
pub struct ReportArgs {
    #[command(flatten)]
    pub profile: ProfileArgs,
    #[command(flatten)]
    pub granularity: GranularityArgs,
    /// The table that is printed in any case; accepted because scripts give it to jeprof.
    #[arg(long)]
    pub text: bool,
    /// Bytes instead of MB.
    #[arg(long = "show_bytes", alias = "show-bytes")]
    pub show_bytes: bool,
    /// Sort by the cumulative column.
    #[arg(long)]
    pub cum: bool,
    /// Subtract this profile.
    #[arg(long, value_name = "PROFILE")]
    pub base: Option<PathBuf>,
    /// Count as 0 what the base had more of.
    #[arg(long = "drop_negative", alias = "drop-negative", requires = "base")]
    pub drop_negative: bool,
    /// Print at most N rows.
    #[arg(short = 'n', long, value_name = "N")]
    pub limit: Option<usize>,
}

#[derive(Debug, Args)]
pub struct FlamegraphArgs {
    #[command(flatten)]
    pub profile: ProfileArgs,
    /// Print folded stacks, one line each, instead of the picture.
    #[arg(long)]
    pub folded: bool,
    /// Write to this file instead of standard output.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use super::Cli;
    use clap::CommandFactory as _;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }
}
