//! The command line of the commands that read profiles: raw values, as in `args`.
#![forbid(unsafe_code)]
#![expect(clippy::doc_markdown, reason = "doc comments here are the help text, which shows no markup")]

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Which profiles are read and which part of them is shown.
#[derive(Clone, Debug, Args)]
pub struct ProfileArgs {
    /// The program, when it is not at the path on record, and one or more profiles, which are summed; `-` is standard input.
    #[arg(value_name = "[PROGRAM] PROFILE", required = true)]
    pub inputs: Vec<PathBuf>,
    #[command(flatten)]
    pub value: ValueArgs,
    #[command(flatten)]
    pub filter: FilterArgs,
    #[command(flatten)]
    pub sources: SourceArgs,
}

/// Which stacks and functions are shown.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "What is shown")]
pub struct FilterArgs {
    /// Only stacks in which a function, a FILE:LINE or an address matches.
    #[arg(long, value_name = "REGEX")]
    pub focus: Option<String>,
    /// No stacks in which a function, a FILE:LINE or an address matches.
    #[arg(long, value_name = "REGEX")]
    pub ignore: Option<String>,
    /// Without the functions that match; their callers take over what they hold.
    #[arg(long, value_name = "REGEX")]
    pub hide: Option<String>,
    /// Only the functions that match.
    #[arg(long, value_name = "REGEX")]
    pub show: Option<String>,
    /// Without inlined functions.
    #[arg(long)]
    pub no_inlines: bool,
}

/// Where symbols come from.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Symbols")]
pub struct SourceArgs {
    /// Directory that the process saw as /, to find its files in.
    #[arg(long, alias = "root", value_name = "DIR")]
    pub sysroot: Option<PathBuf>,
    /// Directory with separate debug files by build-id, asked before /usr/lib/debug; may be given several times.
    #[arg(long, value_name = "DIR")]
    pub debug_dir: Vec<PathBuf>,
    /// Server of debug files, asked by build-id for those that are not here; may be given several times [default:
    /// $DEBUGINFOD_URLS].
    #[arg(long, value_name = "URL")]
    pub debuginfod: Vec<String>,
    /// Do not keep what was found out about names, nor use what is kept in $JEPROBE_CACHE_DIR or ~/.cache/jeprobe.
    #[arg(long)]
    pub no_cache: bool,
}

/// The number that is shown.
#[derive(Clone, Copy, Debug, Args)]
#[group(multiple = false)]
#[command(next_help_heading = "What is shown")]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
pub struct ValueArgs {
    /// Bytes in use (default).
    #[arg(long = "inuse_space", alias = "inuse-space")]
    pub inuse_space: bool,
    /// Objects in use.
    #[arg(long = "inuse_objects", alias = "inuse-objects")]
    pub inuse_objects: bool,
    /// Bytes ever allocated; needs cumulative counts: a profile of an attachment, or of a program with prof_accum.
    #[arg(long = "alloc_space", alias = "alloc-space")]
    pub alloc_space: bool,
    /// Objects ever allocated; needs cumulative counts: a profile of an attachment, or of a program with prof_accum.
    #[arg(long = "alloc_objects", alias = "alloc-objects")]
    pub alloc_objects: bool,
}

/// What one row of a table is.
#[derive(Clone, Copy, Debug, Args)]
#[group(multiple = false)]
#[command(next_help_heading = "Rows")]
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

/// How rows are chosen and printed.
#[derive(Debug, Args)]
#[command(next_help_heading = "Rows")]
pub struct RowArgs {
    #[command(flatten)]
    pub granularity: GranularityArgs,
    /// Bytes instead of MiB.
    #[arg(long = "show_bytes", alias = "show-bytes")]
    pub show_bytes: bool,
    /// Order of rows [default: flat].
    #[arg(long, value_enum, value_name = "KEY")]
    pub sort: Option<SortKey>,
    /// Sort by the cumulative column: the same as --sort cum.
    #[arg(long)]
    pub cum: bool,
    /// Print at most N rows; in a tree, N children of each node; in a call graph, N boxes.
    #[arg(short = 'n', long = "top", alias = "limit", value_name = "N")]
    pub top: Option<usize>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum SortKey {
    /// What the row holds itself.
    #[default]
    Flat,
    /// What it and everything it calls hold.
    Cum,
    /// The name.
    Name,
}

/// Where a result goes and how it looks on a terminal.
#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
pub struct PrintArgs {
    /// Form of the result; with -o, the file's extension says it too [default: text].
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub format: Option<Format>,
    /// Write to this file instead of standard output.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Who places the boxes of a call graph as svg or pdf: this program, or dot of Graphviz.
    #[arg(long, value_enum, value_name = "WHO", default_value_t)]
    pub layout: Layout,
    /// In call graphs, draw every call between the functions that are shown, however small.
    #[arg(long)]
    pub all_edges: bool,
    /// Colours in tables and trees; auto: on a terminal, unless NO_COLOR is set.
    #[arg(long, value_enum, value_name = "WHEN", default_value_t)]
    pub color: Color,
    /// Do not show the result through $PAGER on a terminal.
    #[arg(long)]
    pub no_pager: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Color {
    #[default]
    Auto,
    Always,
    Never,
}

/// Who places the boxes of a call graph.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Layout {
    /// This program.
    #[default]
    Own,
    /// Graphviz; always the call graph, also of a difference.
    Dot,
}

/// Form of a result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// jeprof's table.
    #[default]
    Text,
    /// The call tree from the root down.
    Tree,
    /// Everything, in the schema of userspace/README.md.
    Json,
    /// The table as comma-separated values.
    Csv,
    /// One line for each stack: root;caller;leaf NUMBER.
    Folded,
    /// For https://speedscope.app.
    Speedscope,
    /// For callgrind_annotate and KCachegrind.
    Callgrind,
    /// pprof's protobuf, gzipped, with all values.
    Pprof,
    /// OpenTelemetry's protobuf, with all values.
    Otlp,
    /// The call graph, for Graphviz.
    Dot,
    /// The call graph as a picture; with a base, the differential flame graph.
    Svg,
    /// The call graph as a picture on one page; with a base, of what changed.
    Pdf,
    /// Flame graph, call graph and table as one page.
    Html,
}

impl Format {
    /// As the option names it.
    pub fn name(self) -> &'static str {
        match self {
            Format::Text => "text",
            Format::Tree => "tree",
            Format::Json => "json",
            Format::Csv => "csv",
            Format::Folded => "folded",
            Format::Speedscope => "speedscope",
            Format::Callgrind => "callgrind",
            Format::Pprof => "pprof",
            Format::Otlp => "otlp",
            Format::Dot => "dot",
            Format::Svg => "svg",
            Format::Pdf => "pdf",
            Format::Html => "html",
        }
    }
}

#[derive(Debug, Args)]
pub struct ReportArgs {
    #[command(flatten)]
    pub profile: ProfileArgs,
    #[command(flatten)]
    pub rows: RowArgs,
    #[command(flatten)]
    pub print: PrintArgs,
    /// The table that is printed in any case; accepted because scripts give it to jeprof.
    #[arg(long, conflicts_with = "format")]
    pub text: bool,
    /// What each thread, process, host or other label holds; or only the label KEY.
    #[arg(long, value_name = "KEY", num_args = 0..=1, default_missing_value = "", require_equals = true)]
    pub tags: Option<String>,
    /// Callers and callees of the functions that match.
    #[arg(long, value_name = "REGEX", conflicts_with = "tags")]
    pub peek: Option<String>,
    /// Subtract this profile.
    #[arg(long, value_name = "PROFILE")]
    pub base: Option<PathBuf>,
    /// Count as 0 what the base had more of.
    #[arg(long = "drop_negative", alias = "drop-negative", requires = "base")]
    pub drop_negative: bool,
}

#[derive(Debug, Args)]
pub struct DiffArgs {
    /// The program, when it is not at the path on record, and the two profiles; `-` is standard input.
    #[arg(value_name = "[PROGRAM] OLD NEW", required = true)]
    pub inputs: Vec<PathBuf>,
    #[command(flatten)]
    pub value: ValueArgs,
    #[command(flatten)]
    pub filter: FilterArgs,
    #[command(flatten)]
    pub sources: SourceArgs,
    #[command(flatten)]
    pub rows: RowArgs,
    #[command(flatten)]
    pub print: PrintArgs,
}

#[derive(Debug, Args)]
pub struct MergeArgs {
    /// Profiles; HOST=FILE labels one with its host.
    #[arg(value_name = "[HOST=]PROFILE", required = true)]
    pub inputs: Vec<PathBuf>,
    /// The merged profile: a heap file, or .pb.gz or .otlp; `-` is standard output.
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
}

#[derive(Debug, Args)]
pub struct SymbolizeArgs {
    /// The program, when it is not at the path on record, and one or more profiles, which are summed; `-` is standard input.
    #[arg(value_name = "[PROGRAM] PROFILE", required = true)]
    pub inputs: Vec<PathBuf>,
    #[command(flatten)]
    pub sources: SourceArgs,
    /// The result: a heap file with names, or .pb.gz or .otlp; `-` is standard output.
    #[arg(short, long, value_name = "FILE", help_heading = "Output")]
    pub output: PathBuf,
}

#[derive(Debug, Args)]
pub struct FlamegraphArgs {
    #[command(flatten)]
    pub profile: ProfileArgs,
    /// Draw the difference from this profile: red grew, blue shrank; stacks are matched by name.
    #[arg(long, value_name = "PROFILE", help_heading = "Output")]
    pub base: Option<PathBuf>,
    /// Root at the top instead of the bottom.
    #[arg(long, help_heading = "Output")]
    pub icicle: bool,
    /// Print folded stacks, one line each, instead of the picture; with --base two numbers, before and after.
    #[arg(long, help_heading = "Output")]
    pub folded: bool,
    /// Write to this file instead of standard output; .svg, .html and .folded by the end of its name.
    #[arg(short, long, value_name = "FILE", help_heading = "Output")]
    pub output: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct TimelineArgs {
    /// The program, when it is not at the path on record, and the profiles in the order of time.
    #[arg(value_name = "[PROGRAM] PROFILE", required = true)]
    pub inputs: Vec<PathBuf>,
    #[command(flatten)]
    pub value: ValueArgs,
    #[command(flatten)]
    pub sources: SourceArgs,
    /// Write to this file instead of standard output; .svg, .pdf and .html by the end of its name.
    #[arg(short, long, value_name = "FILE", help_heading = "Output")]
    pub output: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(override_usage = "jeprobe web [OPTIONS] [PROGRAM] PROFILE...\n       jeprobe web [OPTIONS] --pid PID")]
pub struct WebArgs {
    /// The program, when it is not at the path on record, and one or more profiles: a series in the order of time.
    #[arg(value_name = "[PROGRAM] PROFILE", required_unless_present = "pid", conflicts_with = "pid")]
    pub inputs: Vec<PathBuf>,
    /// Watch this process instead: its profile is read again and again while the page is open.
    #[arg(short, long)]
    pub pid: Option<u32>,
    /// Show the difference from this profile at first.
    #[arg(long, value_name = "PROFILE", conflicts_with = "pid")]
    pub base: Option<PathBuf>,
    /// Port on 127.0.0.1; any free one by default.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub port: u16,
    /// Print the address only, open no browser.
    #[arg(long)]
    pub no_open: bool,
    #[command(flatten)]
    pub sources: SourceArgs,
}
