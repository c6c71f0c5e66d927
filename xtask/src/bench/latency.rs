//! Latency of single calls: median and tails of malloc and free under each peer, by `tests/bench/latency.c`.
#![forbid(unsafe_code)]

use std::fmt::Write as _;

use anyhow::{Context as _, Result};

use super::peers::Peer;
use super::run::Runner;
use super::stats::median;

/// Calls of each kind a thread.
const CALLS: f64 = 2e6;
const THREADS: &[u32] = &[1, 2, 8];

/// Nanoseconds: p50, p99, p99.99.
type Tails = [f64; 3];

/// The table, as Markdown: medians over the rounds.
pub(crate) fn table(runner: &Runner, peers: &[Peer], rounds: usize, scale: f64) -> Result<String> {
    let mut text =
        String::from("\nlatency in ns, p50 / p99 / p99.99:\n\n| threads | peer | malloc | free |\n|---|---|---|---|\n");
    for threads in THREADS {
        let calls = CALLS * scale / f64::from((*threads).max(2)) * 2.0;
        let args = [threads.to_string(), (calls as u64).max(1).to_string()];
        let mut found: Vec<Vec<(Tails, Tails)>> = vec![Vec::new(); peers.len()];
        for _ in 0..rounds {
            for (peer, list) in peers.iter().zip(&mut found) {
                list.push(parse(&runner.output(peer, "latency", &args)?)?);
            }
        }
        for (peer, list) in peers.iter().zip(&found) {
            let row = |of: fn(&(Tails, Tails)) -> &Tails| {
                let at = |i: usize| median(&list.iter().map(|pair| of(pair)[i]).collect::<Vec<_>>());
                format!("{:.0} / {:.0} / {:.0}", at(0), at(1), at(2))
            };
            let _ = writeln!(text, "| {threads} | {} | {} | {} |", peer.name, row(|pair| &pair.0), row(|pair| &pair.1));
        }
    }
    Ok(text)
}

fn parse(output: &str) -> Result<(Tails, Tails)> {
    let line = |name: &str| -> Option<Tails> {
        let values = output.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" = "))?;
        let values: Vec<f64> = values.split(' ').map(str::parse).collect::<Result<_, _>>().ok()?;
        values.try_into().ok()
    };
    let pair = line("malloc").zip(line("free"));
    pair.with_context(|| format!("latency printed `{}`", output.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_lines_are_read() {
        assert_eq!(
            parse("malloc = 1.5 20.0 300.0\nfree = 1.0 2.0 3.0\n").unwrap(),
            ([1.5, 20.0, 300.0], [1.0, 2.0, 3.0])
        );
        assert!(parse("malloc = 1.5 20.0 300.0\n").is_err());
        assert!(parse("malloc = 1.5 20.0\nfree = 1 2 3\n").is_err());
    }
}
