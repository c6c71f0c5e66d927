//! The call graph: `--dot` as text, and what a picture of it is drawn from.
#![forbid(unsafe_code)]

use std::io::Write;

use regex::Regex;

use crate::output::graph::{self, Graph, Limits};
use crate::picture::{Labels, Scene, call_graph};

use super::options::Options;
use super::reduce::Rows;
use super::stop::Result;
use super::streams::say;
use super::values::{Unit, percent};

/// A graph with what its title says.
pub struct CallGraph {
    pub graph: Graph,
    pub program: String,
    pub unit: Unit,
    /// Before anything was left out.
    pub total: f64,
}

impl CallGraph {
    /// `None`, and a word about it, when nothing is left to draw.
    pub fn new(rows: &Rows, options: &Options, program: &str, unit: Unit, total: f64) -> Option<CallGraph> {
        let count = |number: i64| usize::try_from(number).unwrap_or(0);
        let limits = Limits {
            nodecount: count(options.nodecount),
            nodefraction: options.nodefraction,
            edgefraction: options.edgefraction,
            maxdegree: count(options.maxdegree),
            every_step: true,
        };
        let graph = graph::select(&rows.keys, rows.stacks(), &limits);
        if graph.nodes.is_empty() {
            say(format_args!("No nodes to print\n"));
            return None;
        }
        if graph.node_limit > 0.0 || graph.edge_limit > 0.0 {
            say(format_args!(
                "Dropping nodes with <= {} {}; edges with <= {} abs({})\n",
                unit.text(graph.node_limit),
                unit.name(),
                unit.text(graph.edge_limit),
                unit.name()
            ));
        }
        Some(CallGraph { graph, program: program.to_owned(), unit, total })
    }

    /// Lines of the legend.
    pub fn legend(&self) -> [String; 5] {
        let CallGraph { graph, unit, .. } = self;
        let name = unit.name();
        [
            self.program.clone(),
            format!("Total {name}: {}", unit.text(self.total)),
            format!("Focusing on: {}", unit.text(graph.total)),
            format!("Dropped nodes with <= {} abs({name})", unit.text(graph.node_limit)),
            format!("Dropped edges with <= {} {name}", unit.text(graph.edge_limit)),
        ]
    }

    /// Size of a node's text: 8 points and up to 50 more by its share.
    pub fn font_size(&self, flat: f64) -> f64 {
        if self.graph.total > 0.0 { 8.0 + 50.0 * (flat / self.graph.total).abs().sqrt() } else { 8.0 }
    }

    /// Width of an edge by its share; at least `minimum`.
    pub fn edge_width(&self, value: f64, minimum: f64) -> f64 {
        let share = if self.graph.total == 0.0 { 0.0 } else { (3.0 * (value / self.graph.total)).abs() };
        let width = share.min(1.0) * 2.0;
        if width < 1.0 { width.max(minimum) } else { width }
    }

    /// Numbers of a node: its own, and those of its callees with it where they differ.
    pub fn numbers(&self, flat: f64, cumulative: f64) -> (String, Option<String>) {
        let text = |value: f64| format!("{} ({})", self.unit.text(value), percent(value, self.graph.total));
        (text(flat), (flat - cumulative != 0.0).then(|| format!("of {}", text(cumulative))))
    }

    /// The graph as a drawing.
    pub fn scene(&self) -> Scene {
        let [title, lines @ ..] = self.legend();
        call_graph(&self.graph, &Labels { title, lines: lines.into(), amount: &|value| self.unit.text(value) })
    }

    /// The graph as text for `dot`.
    pub fn write(&self, out: &mut impl Write, options: &Options) -> Result<()> {
        let CallGraph { graph, unit, program, .. } = self;
        let blanks = Regex::new(r"\s+|::").expect("a fixed pattern");
        writeln!(out, "digraph \"{program}; {} {}\" {{", unit.text(self.total), unit.name())?;
        if options.pdf {
            writeln!(out, "size=\"8,11\"")?;
        }
        writeln!(out, "node [width=0.375,height=0.25];")?;
        let legend = self.legend().join("\\l");
        writeln!(out, "Legend [shape=box,fontsize=24,shape=plaintext,label=\"{legend}\\l\"];")?;
        for (at, node) in graph.nodes.iter().enumerate() {
            let (flat, rest) = self.numbers(node.flat, node.cumulative);
            let rest = rest.map_or(String::new(), |rest| format!("\\r{rest}"));
            let style = match node.flat {
                flat if options.heapcheck && flat > 0.0 => ",style=filled,fillcolor=gray",
                flat if options.heapcheck && flat < 0.0 => ",peripheries=3",
                _ => "",
            };
            writeln!(
                out,
                "N{} [label=\"{}\\n{flat}{rest}\\r\",shape=box,fontsize={:.1}{style}];",
                at + 1,
                blanks.replace_all(&node.name, "\\n"),
                self.font_size(node.flat)
            )?;
        }
        let minimum = if options.web || options.svg { 1.0 } else { 0.0 };
        for edge in &graph.edges {
            let weight = edge.value.abs().powf(0.7).min(100_000.0) as u64;
            let dashed = if graph.nodes[edge.callee].name.contains("(inline)") { ",dashed" } else { "" };
            writeln!(
                out,
                "N{} -> N{} [label={}, weight={weight}, style=\"setlinewidth({:.6}){dashed}\"];",
                edge.caller + 1,
                edge.callee + 1,
                unit.text(edge.value),
                self.edge_width(edge.value, minimum)
            )?;
        }
        out.write_all(b"}\n")?;
        Ok(())
    }
}
