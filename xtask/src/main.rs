//! `cargo xtask COMMAND`: builds, tests and checks that need more than one cargo call. Dispatch only; each command is
//! one file.
#![forbid(unsafe_code)]

mod bench;
mod bench_report;
mod build_alloc;
mod build_ebpf;
mod check;
mod ci;
mod cmd;
mod demo;
mod deps;
mod dist;
mod fuzz;
mod mutate;
mod references;
mod test;
mod toolchain;
mod vendor;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Build, test and check jeprobe")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Install what the build and the tests need (apt as root, bpf-linker through cargo)
    Deps,
    /// Start a leaking program, attach to it and print who leaks
    Demo,
    /// Build libjeprobe.so and libjeprobe.a into target/capi
    BuildAlloc,
    /// Build the kernel object into ebpf/prebuilt
    BuildEbpf,
    /// Build jeprobe and jeprof as one static file into target/dist
    Dist,
    /// Run the test tiers, all of them by default
    Test {
        /// Tiers to run, in this order whatever the order given
        #[arg(value_enum)]
        tiers: Vec<test::Tier>,
    },
    /// Run the structure checks, all of them by default
    Check {
        #[arg(value_enum)]
        checks: Vec<check::Check>,
    },
    /// Measure the allocator against others
    Bench(bench::Bench),
    /// Measure jeprof and jeprobe report against the perl jeprof
    BenchReport(bench_report::BenchReport),
    /// Look for inputs that the readers of userspace cannot take
    Fuzz(fuzz::Fuzz),
    /// Run .ci/run on a clean clone of the current commit
    Ci,
}

fn run(args: &Args) -> Result<()> {
    match &args.command {
        Command::Deps => deps::run(),
        Command::Demo => demo::run(),
        Command::BuildAlloc => build_alloc::run().map(drop),
        Command::BuildEbpf => build_ebpf::run(),
        Command::Dist => dist::run().map(drop),
        Command::Test { tiers } => test::run(tiers),
        Command::Check { checks } => check::run(checks),
        Command::Bench(args) => bench::run(args),
        Command::BenchReport(args) => bench_report::run(args),
        Command::Fuzz(args) => fuzz::run(args),
        Command::Ci => ci::run(),
    }
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
