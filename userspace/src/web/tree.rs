//! The call tree that the page draws from: functions instead of addresses, two profiles at once for a difference, and no
//! more nodes than a browser takes.
//!
//! JSON, arrays side by side: `functions` names; `parents`, `calls` (index of a function) and, per value, `own` numbers of
//! each node; `before` the same of the base. Node 0 is the root and has no function. A parent stands before its children. Stacks
//! below what is kept count to the function where they were cut; `cut` says how small these were.
#![forbid(unsafe_code)]

use std::collections::HashMap;

use serde_json::{Value as Json, json};

use super::dataset::{About, Dataset, ROOT, add};
use crate::model::Kind;
use crate::output::{Numbers, Value};

/// Nodes sent at most, about 3 MB.
const NODES_MOST: usize = 50_000;

#[derive(Clone, Copy)]
struct Node {
    parent: usize,
    function: usize,
    own: [Numbers; 2],
}

/// The tree of a profile, and of its base beside it.
pub(super) fn tree(data: &Dataset, base: Option<&Dataset>) -> Json {
    tree_of(data, base, NODES_MOST)
}

fn tree_of(data: &Dataset, base: Option<&Dataset>, most: usize) -> Json {
    let mut functions: Vec<&str> = Vec::new();
    let mut names: HashMap<&str, usize> = HashMap::new();
    let mut nodes = vec![Node { parent: 0, function: usize::MAX, own: [[0.0; 4]; 2] }];
    let mut index: HashMap<(usize, usize), usize> = HashMap::new();
    for (side, data) in std::iter::once(data).chain(base).enumerate() {
        let mut place = vec![ROOT; data.nodes.len()];
        for at in 0..data.nodes.len() {
            if at != ROOT {
                let name = data.functions[data.function(at)].as_str();
                let function = *names.entry(name).or_insert_with(|| {
                    functions.push(name);
                    functions.len() - 1
                });
                let parent = place[data.nodes[at].parent as usize];
                place[at] = *index.entry((parent, function)).or_insert_with(|| {
                    nodes.push(Node { parent, function, own: [[0.0; 4]; 2] });
                    nodes.len() - 1
                });
            }
            add(&mut nodes[place[at]].own[side], &data.nodes[at].own);
        }
    }
    let cut = prune(&mut nodes, most);
    let column = |side: usize| -> Vec<Vec<f64>> {
        (0..4).map(|value| nodes.iter().map(|node| node.own[side][value].round()).collect()).collect()
    };
    json!({
        "id": data.id,
        "name": data.name,
        "about": about(&data.about),
        "base": base.map(|base| json!({ "id": base.id, "name": base.name, "about": about(&base.about) })),
        "functions": functions,
        "parents": nodes.iter().map(|node| node.parent).collect::<Vec<_>>(),
        "calls": nodes.iter().map(|node| if node.function == usize::MAX { -1 } else { node.function as i64 }).collect::<Vec<_>>(),
        "own": column(0),
        "before": if base.is_some() { column(1) } else { Vec::new() },
        "cut": cut,
    })
}

/// What is said about a profile.
pub(super) fn about(about: &About) -> Json {
    let value = |value: &Value| json!({ "title": value.title_in(&about.kind), "unit": value.unit_in(&about.kind) });
    json!({
        "isHeap": about.kind == Kind::Heap,
        "values": Value::of_kind(&about.kind).iter().map(value).collect::<Vec<_>>(),
        "program": about.program,
        "pid": about.pid,
        "totals": about.totals,
        "errors": about.errors,
        "samples": about.samples,
        "interval": about.interval,
        "coarsest": about.coarsest,
        "hasCumulative": about.has_cumulative,
        "losses": about.losses,
        "notes": about.since.into_iter().chain(about.notes.iter().map(String::as_str)).collect::<Vec<_>>(),
        "unresolved": about.unresolved,
    })
}

/// Merges the smallest nodes into their parents until no more than `most` are left. Gives the share of the whole that a
/// node now has at least, 0 when all are there.
fn prune(nodes: &mut Vec<Node>, most: usize) -> f64 {
    if nodes.len() <= most {
        return 0.0;
    }
    // The largest share that a node has of any value, before or after; what grows to the root, so parents outlive children.
    let mut sums: Vec<[Numbers; 2]> = nodes.iter().map(|node| node.own.map(|own| own.map(f64::abs))).collect();
    for at in (1..nodes.len()).rev() {
        let below = sums[at];
        let parent = &mut sums[nodes[at].parent];
        parent.iter_mut().zip(&below).for_each(|(sum, below)| add(sum, below));
    }
    let whole = sums[ROOT];
    let shares: Vec<f64> = sums
        .iter()
        .map(|sums| {
            let parts = sums.iter().flatten().zip(whole.iter().flatten());
            parts.map(|(part, whole)| if *whole > 0.0 { part / whole } else { 0.0 }).fold(0.0, f64::max)
        })
        .collect();
    let mut sorted = shares.clone();
    sorted.sort_by(|a, b| b.total_cmp(a));
    let least = sorted[most];
    let mut place = vec![ROOT; nodes.len()];
    let mut kept: Vec<Node> = vec![nodes[ROOT]];
    for at in 1..nodes.len() {
        let parent = place[nodes[at].parent];
        if shares[at] > least {
            place[at] = kept.len();
            kept.push(Node { parent, ..nodes[at] });
        } else {
            place[at] = parent;
            let own = nodes[at].own;
            kept[parent].own.iter_mut().zip(&own).for_each(|(sum, own)| add(sum, own));
        }
    }
    *nodes = kept;
    least
}

#[cfg(test)]
mod tests {
    use super::super::dataset::{Dataset, Frame, Node};
    use super::tree_of;

    fn data(names: &[&str], nodes: &[(u32, u32, f64)]) -> Dataset {
        let frames = (0..names.len() as u32).map(|function| Frame { function, ..Frame::default() }).collect();
        let mut all = vec![Node::default()];
        all.extend(nodes.iter().map(|&(parent, frame, own)| Node { parent, frame, own: [own; 4] }));
        let functions = names.iter().map(|name| (*name).to_owned()).collect();
        Dataset { functions, frames, nodes: all, ..Dataset::default() }
    }

    #[test]
    fn functions_are_merged_and_a_base_lies_beside() {
        let after = data(&["main", "leaf"], &[(0, 0, 0.0), (1, 1, 30.0)]);
        let before = data(&["leaf", "main", "gone"], &[(0, 1, 0.0), (1, 0, 10.0), (1, 2, 5.0)]);
        let json = tree_of(&after, Some(&before), 100);
        assert_eq!(json["functions"], serde_json::json!(["main", "leaf", "gone"]));
        assert_eq!(json["parents"], serde_json::json!([0, 0, 1, 1]));
        assert_eq!(json["own"][0], serde_json::json!([0.0, 0.0, 30.0, 0.0]));
        assert_eq!(json["before"][0], serde_json::json!([0.0, 0.0, 10.0, 5.0]));
    }

    #[test]
    fn what_is_cut_counts_to_where_it_was_cut() {
        let data = data(&["main", "big", "small"], &[(0, 0, 1.0), (1, 1, 90.0), (1, 2, 4.0), (1, 2, 5.0)]);
        let json = tree_of(&data, None, 3);
        assert_eq!(json["parents"], serde_json::json!([0, 0, 1]));
        assert_eq!(json["own"][0], serde_json::json!([0.0, 10.0, 90.0]));
        assert!(json["cut"].as_f64().is_some_and(|cut| cut > 0.0));
    }
}
