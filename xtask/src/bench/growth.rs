//! Cost of an operation as threads and the live heap grow, by `tests/bench/live_heap.c`: tables, and charts as SVG.
//!
//! An operation replaces a random block of 64 to 512 bytes. Over threads the live heap stays [`THREADS_HEAP`]; what is shown is
//! CPU time, the wall time by the number of CPUs in use, since more threads than CPUs take turns. Over heaps one thread
//! runs; there the processor's caches and its address translation grow slower too, for every allocator.
#![forbid(unsafe_code)]

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use super::chart::{Chart, svg};
use super::json::memory_kib;
use super::peers::Peer;
use super::run::Runner;
use super::stats::median;

const THREADS: &[u32] = &[1, 2, 4, 8, 16, 32];
/// Live bytes of all threads together: more than the caches of a core hold.
const THREADS_HEAP: u64 = 32 << 20;
const HEAPS: &[(&str, u64)] =
    &[("10 MB", 10_000_000), ("100 MB", 100_000_000), ("1 GB", 1_000_000_000), ("8 GB", 8_000_000_000)];
/// Operations of all threads together.
const OPS: f64 = 4e6;

/// Measures, writes the charts if asked for, and gives the tables as Markdown.
pub(crate) fn tables(
    runner: &Runner,
    peers: &[Peer],
    rounds: usize,
    scale: f64,
    file: Option<&Path>,
) -> Result<String> {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let mut threads = Chart {
        title: format!("CPU ns an operation over threads, {} MB live, {cpus} CPUs", THREADS_HEAP >> 20),
        places: THREADS.iter().map(u32::to_string).collect(),
        series: series(peers),
    };
    let mut heaps = Chart {
        title: "ns an operation over the live heap, one thread".to_owned(),
        places: HEAPS.iter().map(|heap| heap.0.to_owned()).collect(),
        series: series(peers),
    };
    for count in THREADS {
        eprintln!("{count} threads");
        let busy = (*count as usize).min(cpus) as f64;
        point(runner, peers, rounds, *count, scale, THREADS_HEAP, busy, &mut threads)?;
    }
    for (name, bytes) in HEAPS {
        let available = memory_kib(&fs::read_to_string("/proc/meminfo").unwrap_or_default(), "MemAvailable") << 10;
        // Blocks are rounded up and marked in a table; a quarter more is what the most wasteful needs.
        if available < bytes + bytes / 4 {
            eprintln!("{name} left out: {} MB of memory are available", available / 1_000_000);
            heaps.series.iter_mut().for_each(|series| series.1.push(None));
            continue;
        }
        eprintln!("{name}");
        point(runner, peers, rounds, 1, scale, *bytes, 1.0, &mut heaps)?;
    }
    let charts = [threads, heaps];
    if let Some(file) = file {
        fs::write(file, svg(&charts)).with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(charts.iter().map(table).collect())
}

fn series(peers: &[Peer]) -> Vec<(String, Vec<Option<f64>>)> {
    peers.iter().map(|peer| (peer.name.clone(), Vec::new())).collect()
}

/// One place of a chart: medians over the rounds.
#[expect(clippy::too_many_arguments, reason = "one call site a chart; a struct would only rename them")]
fn point(
    runner: &Runner,
    peers: &[Peer],
    rounds: usize,
    threads: u32,
    scale: f64,
    bytes: u64,
    busy: f64,
    chart: &mut Chart,
) -> Result<()> {
    let ops = (OPS * scale / f64::from(threads)).max(1.0) as u64;
    let args = [threads.to_string(), ops.to_string(), bytes.to_string()];
    let mut found = vec![Vec::new(); peers.len()];
    for _ in 0..rounds {
        for (peer, list) in peers.iter().zip(&mut found) {
            let output = runner.output(peer, "live_heap", &args)?;
            let ns = output.trim().strip_prefix("ns_per_op = ").and_then(|text| text.parse::<f64>().ok());
            list.push(ns.with_context(|| format!("live_heap printed `{}`", output.trim()))? * busy);
        }
    }
    for (series, list) in chart.series.iter_mut().zip(&found) {
        series.1.push(Some(median(list)));
    }
    Ok(())
}

fn table(chart: &Chart) -> String {
    let mut text = format!(
        "\n{}:\n\n| peer | {} |\n|---|{}\n",
        chart.title,
        chart.places.join(" | "),
        "---|".repeat(chart.places.len())
    );
    for (name, values) in &chart.series {
        let _ = write!(text, "| {name} |");
        for value in values {
            match value {
                Some(value) => {
                    let _ = write!(text, " {value:.0} |");
                }
                None => text.push_str(" - |"),
            }
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_a_peer_and_a_dash_where_nothing_was_measured() {
        let chart = Chart {
            title: "ns".to_owned(),
            places: vec!["1 GB".to_owned(), "8 GB".to_owned()],
            series: vec![("ours".to_owned(), vec![Some(40.4), None])],
        };
        assert_eq!(table(&chart), "\nns:\n\n| peer | 1 GB | 8 GB |\n|---|---|---|\n| ours | 40 | - |\n");
    }
}
