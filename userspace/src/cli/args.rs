//! The command line as clap structs: raw values only, nothing is opened or checked against the system here.
#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, Parser, Subcommand, ValueEnum};

use super::report_args::{
    DiffArgs, FlamegraphArgs, Format, MergeArgs, ReportArgs, SymbolizeArgs, TimelineArgs, WebArgs,
};
use crate::memory;

/// Heap profiler: who holds a process's memory, asked by pid, host-wide or in-process.
#[derive(Debug, Parser)]
#[command(name = "jeprobe", version, max_term_width = 120)]
pub struct Cli {
    #[command(flatten)]
    pub global: GlobalArgs,
    #[command(subcommand)]
    pub command: Command,
}

impl Cli {
    /// The command line of this process; ends it where that is wrong, or asks for help.
    pub fn of_process() -> Cli {
        Cli::try_parse().unwrap_or_else(|error| with_advice(error).exit())
    }
}

/// Says of options that are jeprof's which ones they are here, and does not advise to take an option for the name of a file.
fn with_advice(mut error: clap::Error) -> clap::Error {
    let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg) else { return error };
    if error.kind() != ErrorKind::UnknownArgument {
        return error;
    }
    let name = option.trim_start_matches('-');
    let advice = match Format::from_str(name, false) {
        Ok(format) => Some(format!("that form has the option --format {}", format.name())),
        Err(_) if name == "web" => Some("the page has a command of its own: jeprobe web FILE".to_owned()),
        Err(_) => None,
    };
    error.remove(ContextKind::Suggested);
    if let Some(advice) = advice {
        error.remove(ContextKind::SuggestedArg);
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![advice.into()]));
    }
    error
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
    /// Profile a running process: who allocates and holds its memory from now on, merged with what it knew before.
    Attach(AttachArgs),
    /// Profile every process of the host that has the allocator, those that start later included.
    System(SystemArgs),
    /// Write the profile of a process at once, by reading its memory; it may be stopped or hung.
    Dump(DumpArgs),
    /// Run a command under the allocator and print its profile when it ends, on standard error. Exits with the command's code, or
    /// with 1 when that is 0 and there is no profile.
    Run(RunArgs),
    /// Print profiles: as a table, a call tree, or in another tool's format.
    Report(Box<ReportArgs>),
    /// What grew, shrank, came and went between two profiles.
    Diff(Box<DiffArgs>),
    /// Make one profile of those of several processes or hosts.
    Merge(MergeArgs),
    /// Write a profile with the names of its functions, so that it can be read without the program's files.
    Symbolize(SymbolizeArgs),
    /// Draw a profile as a flame graph, an SVG file on standard output.
    Flamegraph(FlamegraphArgs),
    /// Draw who held how much over a series of profiles, a stacked area chart on standard output.
    Timeline(TimelineArgs),
    /// Show profiles or a running process as a page in the browser, served to this machine only.
    Web(WebArgs),
}

#[derive(Debug, Args)]
pub struct AttachArgs {
    /// Process to profile.
    #[arg(short, long)]
    pub pid: u32,
    /// End after this time: 30, 500ms, 30s, 5m, 1h. Without it, at Ctrl-C or when the process ends.
    #[arg(short, long, value_parser = parse_duration)]
    pub duration: Option<Duration>,
    #[command(flatten)]
    pub output: OutputArgs,
    /// Where stacks come from: the process's own records, or the kernel's frame-pointer walk.
    #[arg(long, value_enum, default_value_t)]
    pub stacks: Stacks,
    /// How to collect: probes on the allocator's hooks, or reading its profile table.
    #[arg(long, value_enum, default_value_t)]
    pub mode: Mode,
    /// Mean bytes between samples, as a power of two, while attached; restored afterwards.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=63))]
    pub lg_sample: Option<u32>,
    /// Probe each sampled allocation and free, however many there are, and lose none when the process is killed; else the
    /// table of a process that samples more than a thousand times a second is read instead.
    #[arg(long)]
    pub every_event: bool,
    /// Memory for what the probes tell until it is read, 4K to 1G; raise it when events are lost because it was full.
    #[arg(long, value_name = "BYTES", default_value = "8M", value_parser = parse_ring)]
    pub ring_size: u32,
}

#[derive(Debug, Args)]
pub struct SystemArgs {
    /// End after this time: 30, 500ms, 30s, 5m, 1h. Without it, at Ctrl-C.
    #[arg(short, long, value_parser = parse_duration)]
    pub duration: Option<Duration>,
    /// Directory of the heap files; made when it is not there.
    #[arg(short, long, value_name = "DIR", default_value = "jeprobe.system")]
    pub out_dir: PathBuf,
    /// Where stacks come from: the process's own records, or the kernel's frame-pointer walk.
    #[arg(long, value_enum, default_value_t)]
    pub stacks: Stacks,
    /// How to collect: probes on the allocator's hooks, or reading the profile tables.
    #[arg(long, value_enum, default_value_t)]
    pub mode: Mode,
    /// Mean bytes between samples, as a power of two, in every process; restored afterwards.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=63))]
    pub lg_sample: Option<u32>,
    /// Probe each sampled allocation and free, however many there are; else tables are read as soon as a process samples more
    /// than a thousand times a second.
    #[arg(long)]
    pub every_event: bool,
    /// Memory for what the probes tell until it is read, 4K to 1G; raise it when events are lost because it was full.
    #[arg(long, value_name = "BYTES", default_value = "8M", value_parser = parse_ring)]
    pub ring_size: u32,
}

#[derive(Debug, Args)]
pub struct DumpArgs {
    /// Process to read.
    #[arg(short, long)]
    pub pid: u32,
    #[command(flatten)]
    pub output: OutputArgs,
}

#[derive(Debug, Args)]
pub struct RunArgs {
    /// Mean bytes between samples, as a power of two [default: that of `MALLOC_CONF`, else 19].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=63))]
    pub lg_sample: Option<u32>,
    #[command(flatten)]
    pub output: OutputArgs,
    /// The allocator's library, when it is not beside the command or in a system directory.
    #[arg(long, value_name = "PATH")]
    pub library: Option<PathBuf>,
    /// Command and its arguments.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

/// Where results go.
#[derive(Clone, Debug, Args)]
pub struct OutputArgs {
    /// Heap profile to write; `-` is standard output, and the table goes to standard error then [default: jeprobe.PID.heap].
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Write a flame graph too.
    #[arg(long, value_name = "FILE")]
    pub flamegraph: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Stacks {
    /// The process's own stacks; the kernel's where it has none.
    #[default]
    Auto,
    /// Only the process's own.
    Ctx,
    /// Only the kernel's frame-pointer walk.
    Kernel,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// Probes; reading the table when they are refused.
    #[default]
    Auto,
    /// Probes or an error.
    Ebpf,
    /// Reading the table; needs no more rights than a debugger.
    Inprocess,
}

/// A number with an optional unit; seconds without one.
fn parse_duration(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: f64 = number.parse().map_err(|_| format!("not a duration: {text} (examples: 30, 500ms, 5m)"))?;
    let seconds = match unit {
        "ms" => number / 1e3,
        "" | "s" => number,
        "m" | "min" => number * 60.0,
        "h" => number * 3600.0,
        _ => return Err(format!("unknown unit {unit} (ms, s, m or h)")),
    };
    Duration::try_from_secs_f64(seconds).map_err(|_| format!("too long: {text}"))
}

/// Bytes, or with K, M or G.
fn parse_ring(text: &str) -> Result<u32, String> {
    let bytes = memory::parse(text).ok_or_else(|| format!("not a size: {text} (examples: 64K, 32M)"))?;
    u32::try_from(bytes)
        .ok()
        .filter(|bytes| (4 << 10..=1 << 30).contains(bytes))
        .ok_or_else(|| format!("{text} is not between 4K and 1G"))
}

#[cfg(test)]
mod tests {
    use super::{Cli, Command, parse_duration, parse_ring, with_advice};
    use clap::{CommandFactory as _, Parser as _};
    use std::time::Duration;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn durations() {
        assert_eq!(parse_duration("30"), Ok(Duration::from_secs(30)));
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("1.5m"), Ok(Duration::from_secs(90)));
        for bad in ["", "s", "5x", "-1", "1e99", "99999999999999999999999h"] {
            parse_duration(bad).expect_err(bad);
        }
    }

    #[test]
    fn sizes_of_the_ring() {
        assert_eq!(parse_ring("64K"), Ok(64 << 10));
        assert_eq!(parse_ring("1G"), Ok(1 << 30));
        for bad in ["", "x", "0", "1K", "2G", "unlimited", "99999999T"] {
            parse_ring(bad).expect_err(bad);
        }
    }

    #[test]
    fn options_of_jeprof_are_told_by_their_names_here() {
        let said = |args: &[&str]| {
            let args = ["jeprobe"].iter().chain(args);
            with_advice(Cli::try_parse_from(args).expect_err("an unknown option")).to_string()
        };
        assert!(said(&["report", "--svg", "a"]).contains("that form has the option --format svg"));
        assert!(said(&["report", "--web", "a"]).contains("a command of its own: jeprobe web FILE"));
        let wrong = said(&["report", "--top", "-1", "a"]);
        assert!(wrong.contains("'-1'") && !wrong.contains("as a value"), "{wrong}");
    }

    #[test]
    fn options_of_a_command_that_is_run_are_not_ours() {
        let cli = Cli::try_parse_from(["jeprobe", "run", "--lg-sample", "12", "--", "ls", "-v", "--strict"]);
        let Ok(Cli { global, command: Command::Run(run) }) = cli else { panic!("parses as run") };
        assert_eq!(run.command, ["ls", "-v", "--strict"]);
        assert!(!global.verbose && !global.strict && run.lg_sample == Some(12));
        Cli::try_parse_from(["jeprobe", "run", "--lg-sample", "64", "ls"]).expect_err("out of range");
    }
}
