//! The tables: a line a case, a column a peer, as ratios; closing lines with geometric means.
#![forbid(unsafe_code)]

use std::fmt::Write as _;

use super::peers::{AGAIN, Peer};
use super::run::Cost;
use super::stats::{Ratio, geometric_mean, median, paired};
use super::workloads::Case;

/// All runs of a case. shape: `costs[peer][round]`; a peer that cannot run the case has no rounds.
pub(crate) struct Results {
    pub(crate) case: Case,
    pub(crate) costs: Vec<Vec<Cost>>,
}

/// What of a cost a table is about.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Measure {
    Time,
    Cpu,
    Peak,
}

impl Measure {
    fn of(self, cost: &Cost) -> f64 {
        match self {
            Measure::Time => cost.wall,
            Measure::Cpu => cost.cpu,
            Measure::Peak => cost.peak,
        }
    }

    fn title(self) -> &'static str {
        match self {
            Measure::Time => "time",
            Measure::Cpu => "CPU time",
            Measure::Peak => "peak resident memory",
        }
    }

    fn show(self, value: f64) -> String {
        match self {
            Measure::Time | Measure::Cpu => format!("{:.0} ms", value / 1e6),
            Measure::Peak => format!("{:.1} MB", value / 1024.0),
        }
    }
}

impl Results {
    fn values(&self, peer: usize, measure: Measure) -> Vec<f64> {
        self.costs[peer].iter().map(|cost| measure.of(cost)).collect()
    }

    /// The peer of the smallest median, ours left out; the first when all are ours.
    fn best(&self, peers: &[Peer], measure: Measure) -> usize {
        (0..peers.len())
            .filter(|peer| !peers[*peer].is_ours && !self.costs[*peer].is_empty())
            .min_by(|a, b| median(&self.values(*a, measure)).total_cmp(&median(&self.values(*b, measure))))
            .unwrap_or(0)
    }

    fn ratio(&self, peer: usize, base: usize, measure: Measure) -> Option<Ratio> {
        if self.costs[peer].is_empty() || self.costs[base].is_empty() {
            return None;
        }
        Some(paired(&self.values(peer, measure), &self.values(base, measure)))
    }
}

/// All tables, as Markdown.
pub(crate) fn text(peers: &[Peer], results: &[Results]) -> String {
    let mut text = String::new();
    for measure in [Measure::Time, Measure::Cpu, Measure::Peak] {
        one(&mut text, peers, results, measure);
    }
    control(&mut text, peers, results);
    text
}

fn one(text: &mut String, peers: &[Peer], results: &[Results], measure: Measure) {
    let ours = peers.iter().position(|peer| peer.is_ours);
    let mut rows: Vec<(f64, String)> = Vec::new();
    // shape [peer][case]; the ratios that the closing lines average
    let mut ratios = vec![Vec::new(); peers.len()];
    for case in results {
        let best = case.best(peers, measure);
        let mut row = format!(
            "| {} | {} {} |",
            case.case.name(),
            peers[best].name,
            measure.show(median(&case.values(best, measure)))
        );
        let mut order = 0.0;
        for (peer, list) in ratios.iter_mut().enumerate() {
            match case.ratio(peer, best, measure) {
                Some(ratio) => {
                    let _ = write!(row, " {:.2}", ratio.median);
                    if Some(peer) == ours {
                        let _ = write!(row, " ({:.2}..{:.2})", ratio.least, ratio.greatest);
                        order = ratio.median;
                    }
                    row.push_str(" |");
                    list.push(ratio.median);
                }
                None => row.push_str(" - |"),
            }
        }
        rows.push((order, row));
    }
    rows.sort_by(|a, b| b.0.total_cmp(&a.0));
    let (to, base) = if peers.iter().any(|peer| !peer.is_ours) {
        ("the best of the other peers on each workload", "best")
    } else {
        ("the first peer", "first")
    };
    let _ = writeln!(text, "\n{}, relative to {to}:\n", measure.title());
    let _ = write!(text, "| workload | {base} |");
    for peer in peers {
        let _ = write!(text, " {} |", peer.name);
    }
    let _ = writeln!(text, "\n|---|---|{}", "---|".repeat(peers.len()));
    for (_, row) in &rows {
        let _ = writeln!(text, "{row}");
    }
    let _ = write!(text, "| **geometric mean** | |");
    for list in &ratios {
        let _ = write!(text, " **{:.3}** |", geometric_mean(list.iter().copied()));
    }
    let _ = write!(text, "\n| greatest | |");
    for list in &ratios {
        let _ = write!(text, " {:.2} |", list.iter().copied().fold(f64::NAN, f64::max));
    }
    text.push('\n');
    if let Some(base) = peers.iter().position(|peer| peer.name == "jemalloc")
        && measure == Measure::Peak
    {
        let _ = write!(text, "| mean relative to jemalloc | |");
        for peer in 0..peers.len() {
            let all = results.iter().filter_map(|case| case.ratio(peer, base, measure));
            let _ = write!(text, " {:.3} |", geometric_mean(all.map(|ratio| ratio.median)));
        }
        text.push('\n');
    }
}

/// The same library twice: how far apart equal things measure.
fn control(text: &mut String, peers: &[Peer], results: &[Results]) {
    let Some(again) = peers.iter().position(|peer| peer.name == AGAIN) else { return };
    let Some(ours) = peers.iter().position(|peer| peer.name == "ours") else { return };
    let ratios: Vec<f64> =
        results.iter().filter_map(|case| case.ratio(again, ours, Measure::Time)).map(|ratio| ratio.median).collect();
    let far = ratios.iter().map(|ratio| ratio.max(1.0 / ratio)).fold(1.0, f64::max);
    let _ = writeln!(
        text,
        "\nControl, the same library twice: time {:.3} in the mean, at most a factor {far:.2} on one workload.",
        geometric_mean(ratios),
    );
}

#[cfg(test)]
mod tests {
    use super::super::workloads::ALL;
    use super::*;

    fn peer(name: &str, is_ours: bool) -> Peer {
        Peer { name: name.to_owned(), is_ours, library: None, conf: String::new(), attached: false }
    }

    fn costs(times: &[f64]) -> Vec<Cost> {
        times.iter().map(|ms| Cost { wall: ms * 1e6, cpu: ms * 1e6, peak: 1024.0, minor_faults: 0.0 }).collect()
    }

    #[test]
    fn ratios_are_to_the_best_other_peer() {
        let peers = [peer("ours", true), peer("ours-again", true), peer("jemalloc", false), peer("glibc", false)];
        let results = [Results {
            case: Case { workload: &ALL[0], threads: 1 },
            costs: vec![costs(&[8.0, 9.0]), costs(&[9.0, 9.0]), costs(&[10.0, 10.0]), costs(&[20.0, 20.0])],
        }];
        let text = text(&peers, &results);
        assert!(text.contains("| churn/1 | jemalloc 10 ms | 0.85 (0.80..0.90) | 0.90 | 1.00 | 2.00 |"), "{text}");
        assert!(text.contains("| **geometric mean** | | **0.850** | **0.900** | **1.000** | **2.000** |"), "{text}");
        assert!(text.contains("| mean relative to jemalloc | | 1.000 |"), "{text}");
        assert!(text.contains("at most a factor 1.06"), "{text}");
    }

    #[test]
    fn a_peer_that_did_not_run_has_no_ratio() {
        let peers = [peer("ours", true), peer("ours-attached", true), peer("glibc", false)];
        let case = Case { workload: &ALL[0], threads: 1 };
        let results = [Results { case, costs: vec![costs(&[1.0]), Vec::new(), costs(&[2.0])] }];
        assert!(text(&peers, &results).contains("| 0.50 (0.50..0.50) | - | 1.00 |"));
        let ours = [Results { case, costs: vec![costs(&[2.0]), costs(&[1.0])] }];
        assert!(text(&peers[..2], &ours).contains("| ours 2 ms | 1.00 (1.00..1.00) | 0.50 |"));
    }
}
