//! Which functions and which calls a picture of the call graph holds: jeprof's selection.
//!
//! ```text
//!  stacks of keys, leaf first ─► flat, cumulative by key ─► nodes: the largest |cumulative|, above a share of the total
//!                             └► caller → callee sums    ─► edges: between kept nodes, largest first, degrees bounded
//! ```
//!
//! A key that recurs in a stack counts once for its node, and so does each of its edges, among them one to itself: no arrow is
//! larger than its box. Where functions between two that are shown are left out, an edge passes over them. In jeprof every step
//! of a recursion counts, and what is left out leaves no edge ([`Limits::every_step`]). The total, and the limits made from it, are those of the stacks given, that is
//! after focus and ignore.
//!
//! I-GRAPH-1: nodes are sorted by |cumulative| descending, then by name; edges by value descending, then by the names of
//! caller and callee (perl leaves the order of equal edges to chance).
//! I-GRAPH-2: every edge's ends are indexes into the nodes.
//!
//! Draws nothing and formats no number.
#![forbid(unsafe_code)]

use std::cmp::Ordering;
use std::collections::HashMap;

use crate::units::counted;

/// Nodes of a graph that is too full for every edge.
const CROWDED: usize = 400;

/// How much is shown.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Nodes at most.
    pub nodecount: usize,
    /// A node is left out when its |cumulative| is at most this share of the total.
    pub nodefraction: f64,
    /// An edge that is not needed to reach its callee is left out when its |value| is at most this share of the total.
    pub edgefraction: f64,
    /// Edges into and out of one node, those that are needed to reach a callee not counted as a limit.
    pub maxdegree: usize,
    /// Edges are steps of stacks, all of them and no others.
    pub every_step: bool,
}

impl Limits {
    /// For at most `nodecount` nodes; more than by default means that small ones are wanted, too. Small edges only where
    /// there is room between them: of [`CROWDED`] nodes and more those that are needed to reach a node are enough.
    pub fn of(nodecount: usize) -> Limits {
        let limits = Limits::default();
        if nodecount > limits.nodecount {
            let edgefraction = if nodecount < CROWDED { 0.0 } else { limits.edgefraction };
            Limits { nodecount, nodefraction: 0.0, edgefraction, ..limits }
        } else {
            Limits { nodecount, ..limits }
        }
    }

    /// The same with every edge between the nodes that are shown.
    #[must_use]
    pub fn with_all_edges(self) -> Limits {
        Limits { edgefraction: 0.0, maxdegree: usize::MAX, ..self }
    }
}

/// jeprof's numbers.
impl Default for Limits {
    fn default() -> Limits {
        Limits { nodecount: 80, nodefraction: 0.005, edgefraction: 0.001, maxdegree: 8, every_step: false }
    }
}

/// One function, or whatever a key stands for.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    pub name: String,
    /// Index of the key that was given.
    pub key: usize,
    /// Of stacks whose leaf it is; bytes or objects.
    pub flat: f64,
    /// Of stacks that it is in.
    pub cumulative: f64,
}

/// Calls from one node to another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Edge {
    /// Indexes into the nodes.
    pub caller: usize,
    pub callee: usize,
    /// Bytes or objects that were allocated under the call.
    pub value: f64,
    /// No stack has a step from one to the other: what is between them is left out.
    pub is_passing: bool,
}

/// See the module's text.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Graph {
    /// Sum of the flat numbers of all keys, kept or not.
    pub total: f64,
    /// What nodes and edges had to exceed; whole numbers.
    pub node_limit: f64,
    pub edge_limit: f64,
    pub nodes: Vec<Node>,
    pub edges: Vec<Edge>,
    /// Keys that were left out, and calls between kept nodes that were.
    pub dropped_nodes: usize,
    pub dropped_edges: usize,
}

impl Graph {
    /// What is not shown, in words.
    pub fn left_out(&self) -> String {
        let functions = counted(self.dropped_nodes as u64, "function", "functions");
        format!("{functions} and {} left out", counted(self.dropped_edges as u64, "call", "calls"))
    }
}

/// Selects nodes and edges. `stacks`: indexes into `keys`, leaf first, recursion not removed; and a number each.
pub fn select<'a>(
    keys: &[impl AsRef<str>],
    stacks: impl IntoIterator<Item = (&'a [usize], f64), IntoIter: Clone>,
    limits: &Limits,
) -> Graph {
    let stacks = stacks.into_iter();
    let (flat, cumulative) = sums(keys.len(), stacks.clone());
    let total = flat.iter().flatten().fold(0.0, |sum, value| sum + value);
    let node_limit = (limits.nodefraction * total).trunc();
    let edge_limit = (limits.edgefraction * total).trunc();
    let name = |key: usize| keys[key].as_ref();

    let mut order: Vec<(usize, f64)> =
        cumulative.iter().enumerate().filter_map(|(key, value)| Some((key, (*value)?))).collect();
    let known = order.len();
    order.sort_by(|(a, of_a), (b, of_b)| falling(of_a.abs(), of_b.abs()).then_with(|| name(*a).cmp(name(*b))));
    order.truncate(limits.nodecount);
    while order.last().is_some_and(|(_, value)| value.abs() <= node_limit) {
        order.pop();
    }
    let mut place = vec![usize::MAX; keys.len()];
    let nodes: Vec<Node> = order
        .iter()
        .enumerate()
        .map(|(at, &(key, cumulative))| {
            place[key] = at;
            Node { name: name(key).to_owned(), key, flat: flat[key].unwrap_or(0.0), cumulative }
        })
        .collect();

    let calls = calls(stacks, &place, &nodes, limits.every_step);
    let direct = |edges: &[Edge]| edges.iter().filter(|edge| !edge.is_passing).count();
    let all = direct(&calls);
    let edges = bounded(calls, nodes.len(), edge_limit, limits.maxdegree);
    let (dropped_nodes, dropped_edges) = (known - nodes.len(), all - direct(&edges));
    Graph { total, node_limit, edge_limit, nodes, edges, dropped_nodes, dropped_edges }
}

/// Numbers by key; `None` for keys that no stack has at that place.
type ByKey = Vec<Option<f64>>;

/// Flat and cumulative numbers.
fn sums<'a>(keys: usize, stacks: impl Iterator<Item = (&'a [usize], f64)>) -> (ByKey, ByKey) {
    let (mut flat, mut cumulative): (ByKey, ByKey) = (vec![None; keys], vec![None; keys]);
    // The stack that a key was last seen in, so that recursion counts once.
    let mut seen = vec![usize::MAX; keys];
    for (at, (stack, value)) in stacks.enumerate() {
        if let Some(&leaf) = stack.first() {
            *flat[leaf].get_or_insert(0.0) += value;
        }
        for &key in stack {
            if seen[key] != at {
                seen[key] = at;
                *cumulative[key].get_or_insert(0.0) += value;
            }
        }
    }
    (flat, cumulative)
}

/// Calls between kept nodes, largest first.
fn calls<'a>(
    stacks: impl Iterator<Item = (&'a [usize], f64)>,
    place: &[usize],
    nodes: &[Node],
    every_step: bool,
) -> Vec<Edge> {
    /// Of one pair: the sum, the last stack that counted, whether no stack has a step from one to the other.
    type Sum = (f64, usize, bool);
    let mut sums: HashMap<(usize, usize), Sum> = HashMap::new();
    for (at, (stack, value)) in stacks.enumerate() {
        let mut below = usize::MAX;
        let mut is_passing = false;
        for &key in stack {
            let here = place[key];
            if here == usize::MAX {
                if every_step {
                    below = usize::MAX;
                }
                is_passing = true;
                continue;
            }
            if below != usize::MAX {
                let (sum, last, passing) = sums.entry((here, below)).or_insert((0.0, usize::MAX, true));
                if every_step || *last != at {
                    *sum += value;
                    *last = at;
                }
                *passing &= is_passing;
            }
            (below, is_passing) = (here, false);
        }
    }
    let mut edges: Vec<Edge> = sums
        .into_iter()
        .map(|((caller, callee), (value, _, is_passing))| Edge { caller, callee, value, is_passing })
        .collect();
    edges.sort_by(|a, b| {
        let names = |edge: &Edge| (&nodes[edge.caller].name, &nodes[edge.callee].name);
        falling(a.value, b.value).then_with(|| names(a).cmp(&names(b)))
    });
    edges
}

/// Keeps what is needed to reach a callee, and else what is large enough where degrees allow.
fn bounded(mut edges: Vec<Edge>, nodes: usize, edge_limit: f64, maxdegree: usize) -> Vec<Edge> {
    let (mut into, mut out) = (vec![0; nodes], vec![0; nodes]);
    edges.retain(|edge| {
        let is_needed = into[edge.callee] == 0;
        let has_room = out[edge.caller] < maxdegree && into[edge.callee] < maxdegree;
        let is_kept = is_needed || (edge.value.abs() > edge_limit && has_room && !edge.is_passing);
        if is_kept {
            out[edge.caller] += 1;
            into[edge.callee] += 1;
        }
        is_kept
    });
    edges
}

fn falling(a: f64, b: f64) -> Ordering {
    b.partial_cmp(&a).unwrap_or(Ordering::Equal)
}

#[cfg(test)]
mod tests {
    use super::{Graph, Limits, select};

    const KEYS: [&str; 5] = ["leaf", "left", "main", "right", "walk"];

    fn graph(stacks: &[(&[usize], f64)], limits: &Limits) -> Graph {
        select(&KEYS, stacks.iter().copied(), limits)
    }

    fn names(graph: &Graph) -> Vec<(&str, f64, f64)> {
        graph.nodes.iter().map(|node| (node.name.as_str(), node.flat, node.cumulative)).collect()
    }

    fn edges(graph: &Graph) -> Vec<(&str, &str, f64)> {
        let name = |at: usize| graph.nodes[at].name.as_str();
        graph.edges.iter().map(|edge| (name(edge.caller), name(edge.callee), edge.value)).collect()
    }

    #[test]
    fn nodes_and_edges_are_summed_and_sorted() {
        let graph = graph(&[(&[0, 1, 2], 30.0), (&[0, 3, 2], 10.0), (&[3, 2], 5.0)], &Limits::default());
        assert_eq!(
            names(&graph),
            [("main", 0.0, 45.0), ("leaf", 40.0, 40.0), ("left", 0.0, 30.0), ("right", 5.0, 15.0)]
        );
        assert_eq!(
            edges(&graph),
            [("left", "leaf", 30.0), ("main", "left", 30.0), ("main", "right", 15.0), ("right", "leaf", 10.0)]
        );
        assert!((graph.total - 45.0).abs() < 1e-9);
    }

    #[test]
    fn recursion_counts_once_but_in_edges_of_jeprof() {
        let stacks: [(&[usize], f64); 1] = [(&[4, 4, 4, 2], 10.0)];
        let steps = graph(&stacks, &Limits { every_step: true, ..Limits::default() });
        assert_eq!(names(&steps), [("main", 0.0, 10.0), ("walk", 10.0, 10.0)]);
        assert_eq!(edges(&steps), [("walk", "walk", 20.0), ("main", "walk", 10.0)]);
        let once = graph(&stacks, &Limits::default());
        assert_eq!(edges(&once), [("main", "walk", 10.0), ("walk", "walk", 10.0)], "no arrow is larger than its box");
    }

    #[test]
    fn edges_pass_over_what_is_left_out() {
        let stacks: [(&[usize], f64); 2] = [(&[0, 1, 2], 10.0), (&[3, 2], 90.0)];
        let limits = Limits { nodecount: 3, ..Limits::default() };
        let passing = graph(&stacks, &limits);
        assert_eq!(edges(&passing), [("main", "right", 90.0), ("main", "leaf", 10.0)]);
        assert_eq!(passing.edges.iter().map(|edge| edge.is_passing).collect::<Vec<_>>(), [false, true]);
        assert_eq!(passing.left_out(), "1 function and 0 calls left out");
        let steps = graph(&stacks, &Limits { every_step: true, ..limits });
        assert_eq!(edges(&steps), [("main", "right", 90.0)]);
    }

    #[test]
    fn the_limit_is_a_whole_number_that_must_be_exceeded() {
        let stacks: [(&[usize], f64); 2] = [(&[0, 2], 990.9), (&[3, 2], 10.0)];
        let limits = |nodefraction| Limits { nodefraction, ..Limits::default() };
        assert_eq!(graph(&stacks, &limits(0.0099)).dropped_nodes, 0, "1000.9 times 0.0099 is cut to 9");
        let small = graph(&stacks, &limits(0.01));
        assert_eq!((small.dropped_nodes, small.node_limit as u64), (1, 10));
        assert_eq!(small.left_out(), "1 function and 0 calls left out");
        assert_eq!(edges(&small), [("main", "leaf", 990.9)]);
        assert_eq!(graph(&stacks, &limits(2.0)).nodes, []);
    }

    #[test]
    fn nodecount_cuts_before_the_fraction_does() {
        let limits = Limits { nodecount: 1, ..Limits::default() };
        assert_eq!(names(&graph(&[(&[0, 2], 30.0), (&[3, 2], 10.0)], &limits)), [("main", 0.0, 40.0)]);
    }

    #[test]
    fn a_first_edge_into_a_node_is_kept_and_others_need_room() {
        // main calls all three; leaf is called by both others too.
        let stacks: [(&[usize], f64); 4] = [(&[0, 2], 50.0), (&[0, 1, 2], 30.0), (&[0, 3, 2], 20.0), (&[1, 3], 0.5)];
        let limits =
            |maxdegree, edgefraction| Limits { maxdegree, edgefraction, nodefraction: 0.0, ..Limits::default() };
        let none = graph(&stacks, &limits(0, 0.0));
        assert_eq!(edges(&none), [("main", "leaf", 50.0), ("main", "left", 30.0), ("main", "right", 20.0)]);
        assert_eq!(none.dropped_edges, 3);
        assert_eq!(graph(&stacks, &limits(2, 0.0)).edges.len(), 5, "leaf has two callers, and right calls left");
        assert_eq!(graph(&stacks, &limits(8, 0.2)).edges.len(), 4, "20 of 100.5 is not more than a fifth");
    }

    #[test]
    fn in_a_crowd_small_edges_are_those_that_lead_to_a_node() {
        for (nodes, edges) in [(super::CROWDED - 1, 4), (super::CROWDED, 3)] {
            let stacks: [(&[usize], f64); 3] = [(&[0, 1, 2], 9990.0), (&[0, 3, 2], 5.0), (&[3, 2], 5.0)];
            let kept = graph(&stacks, &Limits::of(nodes));
            assert_eq!((kept.edges.len(), kept.dropped_edges), (edges, 4 - edges));
            let all = graph(&stacks, &Limits { maxdegree: 0, ..Limits::of(nodes) }.with_all_edges());
            assert_eq!((all.edges.len(), all.dropped_edges), (4, 0));
        }
    }

    #[test]
    fn negative_numbers_are_kept_by_size_and_ordered_by_value() {
        let graph = graph(&[(&[0, 2], -50.0), (&[1, 2], 80.0)], &Limits::default());
        assert_eq!(names(&graph), [("left", 80.0, 80.0), ("leaf", -50.0, -50.0), ("main", 0.0, 30.0)]);
        assert_eq!(edges(&graph), [("main", "left", 80.0), ("main", "leaf", -50.0)]);
    }

    #[test]
    fn nothing_gives_an_empty_graph() {
        assert_eq!(graph(&[], &Limits::default()), Graph::default());
        assert_eq!(graph(&[(&[], 10.0)], &Limits::default()), Graph::default());
    }
}
