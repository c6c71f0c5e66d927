//! The call tree from the root down, as text.
//!
//! ```text
//! Total: 8.5 MiB
//!      8.5 100.0%      0.0 main
//!      5.0  59.1%      0.0 ├─ small_user
//!      5.0  59.1%      5.0 │  leaf                  the only child stands below its parent
//!      3.5  40.9%      0.0 └─ big_user
//! ```
//!
//! Columns: what the node and everything it calls hold, its share of what is shown, what the node holds itself, name.
//! Children are sorted by the first, largest first; those below a share of the total ([`LEAST_SHARE`]), or past the limit,
//! are one line together, so that nothing is missing from the sums.
#![forbid(unsafe_code)]

use std::io::{self, Write};

use super::paths::Paths;
use super::select::{Options, Selection};
use super::text::{amount, percent, unit};

/// Smaller nodes are drawn together: one in 1000.
const LEAST_SHARE: f64 = 0.001;

/// A node: a name called from one stack of names.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Node {
    /// Index into the names of the paths; meaningless for the root.
    pub name: u32,
    pub cumulative: f64,
    pub flat: f64,
    /// Indexes of nodes, in order of name.
    pub children: Vec<u32>,
}

/// All nodes; the first is the root, which stands for everything.
pub fn nodes(paths: &Paths, options: &Options) -> Vec<Node> {
    let mut nodes = vec![Node::default()];
    // The nodes of the path before: sorted paths share beginnings.
    let mut open: Vec<u32> = vec![0];
    let mut last: &[u32] = &[];
    for path in &paths.list {
        let value = path.numbers[options.value as usize];
        let shared = last.iter().zip(&*path.frames).take_while(|(a, b)| a == b).count();
        open.truncate(shared + 1);
        for &name in &path.frames[shared..] {
            let parent = *open.last().expect("the root is never closed");
            let child = nodes.len() as u32;
            nodes.push(Node { name, ..Node::default() });
            nodes[parent as usize].children.push(child);
            open.push(child);
        }
        for &node in &open {
            nodes[node as usize].cumulative += value;
        }
        nodes[*open.last().expect("the root is never closed") as usize].flat += value;
        last = &path.frames;
    }
    nodes
}

/// Writes the tree.
pub fn write(selection: &Selection<'_>, options: &Options, mut out: impl Write) -> io::Result<()> {
    let paths = Paths::new(selection, options);
    let nodes = nodes(&paths, options);
    let heading = format!("Total: {} {}", amount(selection.total(), options), unit(options));
    writeln!(out, "{}", options.style.heading(&heading))?;
    let shown = nodes[0].cumulative;
    // Where shrinking and growing cancel out, shares are of everything that moved.
    let moved: f64 = nodes.iter().map(|node| node.flat.abs()).sum();
    let least = moved * LEAST_SHARE;
    let mut todo = Vec::new();
    plan((&nodes, 0), "", options, least, &mut todo);
    while let Some(line) = todo.pop() {
        match line {
            Line::Node { node, before, below } => {
                let of = &nodes[node as usize];
                let share = percent(of.cumulative, shown);
                let numbers =
                    format!("{:>8} {share:>6} {:>8}", amount(of.cumulative, options), amount(of.flat, options));
                let column = numbers.len() + 1 + before.chars().count();
                let name = options.style.name(&paths.names[of.name as usize], column);
                let numbers = options.style.numbers(&numbers, of.cumulative * 100.0 / shown);
                writeln!(out, "{numbers} {before}{name}")?;
                plan((&nodes, node), &below, options, least, &mut todo);
            }
            Line::Rest { count, value, before } => {
                writeln!(
                    out,
                    "{:>8} {:>6} {:>8} {before}({count} more)",
                    amount(value, options),
                    percent(value, shown),
                    ""
                )?;
            }
        }
    }
    Ok(())
}

enum Line {
    Node { node: u32, before: String, below: String },
    Rest { count: usize, value: f64, before: String },
}

/// Puts the children of a node on the stack of lines, last first. `before` is what stands left of the node's own children.
fn plan((nodes, node): (&[Node], u32), before: &str, options: &Options, least: f64, todo: &mut Vec<Line>) {
    let mut children = nodes[node as usize].children.clone();
    let size = |child: &u32| nodes[*child as usize].cumulative.abs();
    children.sort_by(|a, b| size(b).total_cmp(&size(a)));
    let large = children.iter().take_while(|child| size(child) >= least && size(child) > 0.0).count();
    let shown = large.min(options.limit.unwrap_or(usize::MAX));
    let rest = &children[shown..];
    let value: f64 = rest.iter().map(|child| nodes[*child as usize].cumulative).sum();
    let has_rest = rest.iter().any(|child| size(child) > 0.0);
    let lines = shown + usize::from(has_rest);
    // At the root there is nothing that branches would hang from.
    let branches = lines > 1 && node != 0;
    let joint = |last: bool| if branches { options.style.branch(last) } else { ("", "") };
    if has_rest {
        todo.push(Line::Rest { count: rest.len(), value, before: format!("{before}{}", joint(true).0) });
    }
    for (place, &child) in children[..shown].iter().enumerate().rev() {
        let (own, below) = joint(place + 1 == lines);
        todo.push(Line::Node { node: child, before: format!("{before}{own}"), below: format!("{before}{below}") });
    }
}
