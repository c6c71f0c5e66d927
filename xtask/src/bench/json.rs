//! The file with all raw numbers.
//!
//! ```text
//! { "machine": {"kernel", "cpus", "memory_kib"}, "peers": [{"name", "library", "conf", "ours"}],
//!   "runs": [{"workload", "threads", "peer", "round", "wall_ns", "cpu_ns", "peak_kib", "minor_faults"}] }
//! ```
#![forbid(unsafe_code)]

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::peers::Peer;
use super::table::Results;

pub(crate) fn write(file: &Path, peers: &[Peer], results: &[Results]) -> Result<()> {
    let mut text = value(peers, results).to_string();
    text.push('\n');
    fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}

fn value(peers: &[Peer], results: &[Results]) -> Value {
    let mut runs = Vec::new();
    for case in results {
        for (peer, costs) in peers.iter().zip(&case.costs) {
            for (round, cost) in costs.iter().enumerate() {
                runs.push(json!({
                    "workload": case.case.workload.name,
                    "threads": case.case.threads,
                    "peer": peer.name,
                    "round": round,
                    "wall_ns": cost.wall,
                    "cpu_ns": cost.cpu,
                    "peak_kib": cost.peak,
                    "minor_faults": cost.minor_faults,
                }));
            }
        }
    }
    let peers: Vec<Value> = peers
        .iter()
        .map(|peer| json!({ "name": peer.name, "library": peer.library, "conf": peer.conf, "ours": peer.is_ours }))
        .collect();
    json!({ "machine": machine(), "peers": peers, "runs": runs })
}

fn machine() -> Value {
    let read = |file: &str| fs::read_to_string(file).unwrap_or_default().trim().to_owned();
    json!({
        "kernel": read("/proc/sys/kernel/osrelease"),
        "cpus": std::thread::available_parallelism().map_or(0, usize::from),
        "memory_kib": memory_kib(&read("/proc/meminfo"), "MemTotal"),
    })
}

/// A line of `/proc/meminfo`, in KiB.
pub(crate) fn memory_kib(meminfo: &str, name: &str) -> u64 {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::super::run::Cost;
    use super::super::workloads::{ALL, Case};
    use super::*;

    #[test]
    fn every_run_is_written() {
        let peer = |name: &str| Peer {
            name: name.to_owned(),
            is_ours: false,
            library: None,
            conf: String::new(),
            attached: false,
        };
        let case = Case { workload: &ALL[0], threads: 2 };
        let results = [Results { case, costs: vec![vec![Cost::default(); 3], Vec::new()] }];
        let value = value(&[peer("a"), peer("b")], &results);
        assert_eq!(value["runs"].as_array().map(Vec::len), Some(3));
        assert_eq!(value["runs"][2]["round"], 2);
        assert_eq!(value["runs"][0]["threads"], 2);
        assert_eq!(value["peers"][1]["name"], "b");
    }

    #[test]
    fn meminfo_is_read() {
        assert_eq!(memory_kib("MemTotal:       24 kB\nMemAvailable:    7 kB", "MemAvailable"), 7);
        assert_eq!(memory_kib("", "MemTotal"), 0);
    }
}
