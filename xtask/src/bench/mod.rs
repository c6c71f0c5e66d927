//! Measures this allocator against others: every workload under every peer by preload, in interleaved rounds.
//!
//! ```text
//! workloads.rs  what runs            peers.rs  under which library     build.rs  programs compiled
//!        └──────────────┬────────────────┘
//!                    run.rs  one run, costs from outside
//!        ┌──────────────┼────────────────┐
//!    table.rs        json.rs     latency.rs, growth.rs → chart.rs     instructions.rs (callgrind)
//! ```
//!
//! Order within a round is rotated from round to round, so that no peer always runs after the same one.
#![forbid(unsafe_code)]

mod build;
mod chart;
mod growth;
pub(crate) mod instructions;
mod json;
mod latency;
mod peers;
mod run;
mod stats;
mod table;
mod workloads;

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use clap::Args;

use self::peers::Peer;
use self::run::Runner;
use self::table::Results;
use crate::build_alloc;

/// Touched before the first run; a quarter of what is available at most.
const WARM_BYTES: u64 = 4 << 30;

/// What to measure.
#[derive(Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of the command line")]
pub(crate) struct Bench {
    /// Allocators, separated by commas; `--list` names them
    #[arg(long, value_delimiter = ',')]
    peers: Vec<String>,
    /// Workloads, `NAME` or `NAME/THREADS`, separated by commas; all by default
    #[arg(long, value_delimiter = ',')]
    workloads: Vec<String>,
    /// Only these thread counts
    #[arg(long, value_delimiter = ',')]
    threads: Vec<u32>,
    /// Rounds; differences under 10 % on one workload need more than three
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Factor on the operations of the workload programs
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// Another libjeprobe.so as `ours` (nothing is built then)
    #[arg(long, value_name = "PATH")]
    lib: Option<PathBuf>,
    /// One more build of this allocator, to compare with
    #[arg(long, value_name = "NAME=PATH")]
    variant: Vec<String>,
    /// One more foreign allocator, such as a library of the system
    #[arg(long, value_name = "NAME=PATH")]
    other: Vec<String>,
    /// Write all raw numbers here
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Measure the latency of single calls instead of workloads
    #[arg(long)]
    latency: bool,
    /// Measure the cost of an operation over threads and live heaps instead
    #[arg(long)]
    growth: bool,
    /// Draw what --growth measures
    #[arg(long, value_name = "FILE", requires = "growth")]
    svg: Option<PathBuf>,
    /// Count the instructions of single calls with callgrind instead
    #[arg(long)]
    instructions: bool,
    /// Name peers and workloads, and end
    #[arg(long)]
    list: bool,
}

pub(crate) fn run(args: &Bench) -> Result<()> {
    if args.list {
        list();
        return Ok(());
    }
    if args.rounds == 0 || args.scale.is_nan() || args.scale <= 0.0 {
        bail!("--rounds and --scale must be greater than 0");
    }
    if args.instructions {
        println!("{}", instructions::table(&library(args)?)?);
        return Ok(());
    }
    let cases = workloads::select(&args.workloads, &args.threads)?;
    let peers = find_peers(args)?;
    let runner = Runner::new(build::programs()?, args.scale)?;
    warm();
    if args.growth {
        println!("{}", growth::tables(&runner, &peers, args.rounds, args.scale, args.svg.as_deref())?);
        return Ok(());
    }
    if args.latency {
        println!("{}", latency::table(&runner, &peers, args.rounds, args.scale)?);
        return Ok(());
    }
    let mut results = Vec::new();
    for (at, case) in cases.iter().enumerate() {
        eprintln!("{}/{} {}", at + 1, cases.len(), case.name());
        let mut costs = vec![Vec::new(); peers.len()];
        for round in 0..args.rounds {
            for turn in 0..peers.len() {
                let peer = (round + turn) % peers.len();
                if Runner::can_run(case, &peers[peer]) {
                    costs[peer].push(runner.run(case, &peers[peer])?);
                }
            }
        }
        results.push(Results { case: *case, costs });
        if let Some(file) = &args.json {
            // After each case: a run that is cut off leaves what it measured.
            json::write(file, &peers, &results)?;
        }
    }
    println!("{} rounds, scale {}", args.rounds, args.scale);
    println!("{}", table::text(&peers, &results));
    Ok(())
}

/// Touches memory before anything is measured. A host may give a virtual machine its memory page by page when it is first
/// touched; who comes first would wait for that: 0.6 s for 260 MiB were seen.
fn warm() {
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let available = json::memory_kib(&meminfo, "MemAvailable") << 10;
    let mut memory = vec![0_u8; WARM_BYTES.min(available / 4) as usize];
    for page in memory.chunks_mut(4096) {
        page[0] = 1;
    }
    std::hint::black_box(&memory);
}

/// The library under test.
fn library(args: &Bench) -> Result<PathBuf> {
    match &args.lib {
        Some(path) => std::fs::canonicalize(path).with_context(|| format!("--lib {}", path.display())),
        None => Ok(build_alloc::run()?.join("libjeprobe.so")),
    }
}

fn find_peers(args: &Bench) -> Result<Vec<Peer>> {
    let ours = library(args)?;
    let names = if args.peers.is_empty() {
        peers::DEFAULT.iter().map(|name| (*name).to_owned()).collect()
    } else {
        args.peers.clone()
    };
    let mut found = peers::find(&names, &ours)?;
    for text in &args.variant {
        found.push(peers::given(text, true)?);
    }
    for text in &args.other {
        found.push(peers::given(text, false)?);
    }
    Ok(found)
}

fn list() {
    println!("peers: {}", peers::names().collect::<Vec<_>>().join(" "));
    println!("without --peers: {}", peers::DEFAULT.join(" "));
    println!("workloads:");
    for workload in workloads::ALL {
        let threads: Vec<String> = workload.threads.iter().map(u32::to_string).collect();
        println!("  {} on {} threads", workload.name, threads.join(", "));
    }
}
