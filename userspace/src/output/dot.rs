//! The call graph in Graphviz' language, for other layouts than ours.
//!
//! The selection of nodes and edges is that of `graph`. Boxes hold name, own number and cumulative number; arrows the number
//! under the call. Node names are `N1`, `N2`, … in the order of the graph.
#![forbid(unsafe_code)]

use std::io::{self, Write};

use super::graph::Graph;
use super::select::Options;
use super::text::{amount, percent, unit};

/// Writes the graph under a title.
pub fn write(graph: &Graph, options: &Options, title: &str, mut out: impl Write) -> io::Result<()> {
    let unit = unit(options);
    writeln!(out, "digraph \"{}\" {{", quoted(title))?;
    writeln!(out, "node [shape=box, fontname=\"sans-serif\"];")?;
    writeln!(
        out,
        "Legend [shape=plaintext, label=\"{}\\l{} {unit}; {}\\l\"];",
        quoted(title),
        amount(graph.total, options),
        graph.left_out()
    )?;
    for (node, number) in graph.nodes.iter().zip(1..) {
        let flat = format!("{} {unit} ({})", amount(node.flat, options), percent(node.flat, graph.total));
        let cumulative =
            format!("{} {unit} ({})", amount(node.cumulative, options), percent(node.cumulative, graph.total));
        // 8 points for nothing, 50 more for everything.
        let font = if graph.total == 0.0 { 8.0 } else { 8.0 + 50.0 * (node.flat / graph.total).abs().sqrt() };
        writeln!(out, "N{number} [label=\"{}\\n{flat}\\nof {cumulative}\", fontsize={font:.1}];", quoted(&node.name))?;
    }
    for edge in &graph.edges {
        let share = if graph.total == 0.0 { 0.0 } else { (edge.value / graph.total).abs().min(1.0) };
        writeln!(
            out,
            "N{} -> N{} [label=\"{} {unit}\", weight={}, penwidth={:.2}{}];",
            edge.caller + 1,
            edge.callee + 1,
            amount(edge.value, options),
            1 + (share * 100.0) as u64,
            0.5 + 5.0 * share,
            if edge.is_passing { ", style=dotted" } else { "" }
        )?;
    }
    writeln!(out, "}}")
}

/// Between double quotes; a backslash in a name is no escape.
fn quoted(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace(['\n', '\r'], " ")
}
