//! Pictures of a selection: the call graph as SVG, as PDF or for Graphviz, a flame graph, and all of it as one page.
//!
//! The page needs nothing else and no network: heading, losses, call graph, flame graph, table. A differential selection has
//! a red and blue flame graph. Graphviz is run for `--layout dot` alone.
#![forbid(unsafe_code)]

use std::fmt::Write as _;
use std::io::{self, Write};
use std::process::{Command, Stdio};
use std::thread;

use crate::error::Error;
use crate::memory;
use crate::output::graph::{self, Graph, Limits};
use crate::output::table::Table;
use crate::output::{Options, Selection, dot, folded};
use crate::picture::flame::{self, Flame, human};
use crate::picture::svg::escaped;
use crate::picture::{Labels, Scene, call_graph};

/// Graphviz' program for layers.
const DOT: &str = "dot";
/// Rows of the page's table.
const PAGE_ROWS: usize = 100;

/// Nodes of a graph when no number is asked for.
fn selected(selection: &Selection<'_>, options: &Options) -> Graph {
    let keyed = selection.keyed(options);
    let stacks = keyed.stacks.iter().map(|(stack, value)| (stack.as_slice(), *value));
    let limits = options.limit.map_or_else(Limits::default, Limits::of);
    let limits = if options.all_edges { limits.with_all_edges() } else { limits };
    graph::select(&keyed.keys, stacks, &limits)
}

fn title(options: &Options, subject: &str) -> String {
    format!("{subject}: {}", options.title())
}

fn scene(selection: &Selection<'_>, options: &Options, subject: &str) -> Scene {
    let graph = selected(selection, options);
    let unit = options.unit();
    let lines = vec![
        format!("{}{}", human(selection.total(), &unit), selection.remark()),
        if graph.nodes.is_empty() { "nothing to show".to_owned() } else { graph.left_out() },
    ];
    let amount = |value: f64| human(value, &unit);
    call_graph(&graph, &Labels { title: title(options, subject), lines, amount: &amount })
}

/// The call graph for Graphviz.
pub(super) fn dot(selection: &Selection<'_>, options: &Options, subject: &str, out: &mut dyn Write) -> io::Result<()> {
    dot::write(&selected(selection, options), options, &title(options, subject), out)
}

/// The call graph as a picture; of a difference, the flame graph.
pub(super) fn svg(selection: &Selection<'_>, options: &Options, subject: &str, out: &mut dyn Write) -> io::Result<()> {
    if selection.has_base() {
        return flame(selection, options, subject, out);
    }
    out.write_all(scene(selection, options, subject).svg().as_bytes())
}

/// The call graph on one page, also of a difference.
pub(super) fn pdf(selection: &Selection<'_>, options: &Options, subject: &str, out: &mut dyn Write) -> io::Result<()> {
    out.write_all(&scene(selection, options, subject).pdf())
}

/// Fails when Graphviz is not there.
pub(super) fn find_dot() -> Result<(), Error> {
    let ran = Command::new(DOT).arg("-V").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    ran.map(|_any| ()).map_err(|source| Error::NoGraphviz { source })
}

/// The call graph as Graphviz draws it. `form`: its name for the output.
pub(super) fn by_dot(
    selection: &Selection<'_>,
    options: &Options,
    subject: &str,
    form: &str,
) -> Result<Vec<u8>, Error> {
    let mut text = Vec::new();
    dot(selection, options, subject, &mut text).expect("writing to memory does not fail");
    let failed = |source| Error::NoGraphviz { source };
    memory::settle();
    let mut child = Command::new(DOT)
        .arg(format!("-T{form}"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let mut input = child.stdin.take().expect("a pipe was asked for");
    // It may end before it has read everything: then its words and its exit say so.
    let writer = thread::spawn(move || input.write_all(&text));
    let output = child.wait_with_output().map_err(failed)?;
    let _unread = writer.join();
    if !output.status.success() || output.stdout.is_empty() {
        let words = String::from_utf8_lossy(&output.stderr);
        let words = words.lines().next().map_or_else(|| output.status.to_string(), ToOwned::to_owned);
        return Err(Error::Graphviz { words });
    }
    Ok(output.stdout)
}

/// A flame graph.
fn flame(selection: &Selection<'_>, options: &Options, subject: &str, out: &mut dyn Write) -> io::Result<()> {
    let unit = options.unit();
    let change = human(selection.total(), &unit);
    let (lines, subtitle) = if selection.has_base() {
        let sign = if selection.total() > 0.0 { "+" } else { "" };
        (folded::differences(selection, options), format!("{subject}: {sign}{change}; red grew, blue shrank"))
    } else {
        (folded::lines(selection, options), format!("{subject}: {change}{}", selection.remark()))
    };
    let title = format!("{}: {}", options.kind.title(), options.title());
    flame::write(&lines, &Flame { title, subtitle, unit, is_icicle: false }, out)
}

/// A picture as a page of its own.
pub(super) fn page(title: &str, svg: &[u8], out: &mut dyn Write) -> io::Result<()> {
    let (title, picture) = (escaped(title), percent_encoded(svg));
    writeln!(
        out,
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title>\n\
         <style>html,body,iframe{{margin:0;width:100%;height:100%;border:0;display:block}}</style></head>\n\
         <body><iframe title=\"{title}\" src=\"data:image/svg+xml,{picture}\"></iframe></body></html>"
    )
}

/// Everything as one page.
pub(super) fn html(selection: &Selection<'_>, options: &Options, subject: &str, out: &mut dyn Write) -> io::Result<()> {
    let heading = escaped(&title(options, subject));
    write!(
        out,
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{heading}</title>\n<style>{STYLE}</style></head>\
         <body>\n<h1>{heading}</h1>\n<p>{}</p>\n",
        escaped(&human(selection.total(), &options.unit()))
    )?;
    let profile = selection.profile();
    let since = profile.allocated_since().filter(|_| options.value.is_cumulative());
    if profile.losses().next().is_some() || !profile.notes().is_empty() || since.is_some() {
        writeln!(out, "<ul class=\"lost\">")?;
        let notes = since.into_iter().chain(profile.notes().iter().map(String::as_str)).map(ToOwned::to_owned);
        for line in profile.lost().chain(notes) {
            writeln!(out, "<li>{}</li>", escaped(&line))?;
        }
        writeln!(out, "</ul>")?;
    }
    let mut picture = Vec::new();
    flame(selection, options, subject, &mut picture)?;
    // A frame of its own, since the picture has scripts and a size of its own.
    let height = height(&picture).unwrap_or(f64::MAX);
    writeln!(
        out,
        "<h2>Flame graph</h2>\n<iframe title=\"flame graph\" style=\"height:min(60vh,{:.0}px)\" src=\"data:image/svg+xml,{}\"></iframe>",
        (height + 24.0).min(1e6),
        percent_encoded(&picture)
    )?;
    writeln!(
        out,
        "<h2>Call graph</h2>\n<div class=\"graph\">{}</div>",
        scene(selection, options, subject).svg_element()
    )?;
    table(selection, options, out)?;
    writeln!(out, "</body></html>")
}

/// Of a picture, in its own units: what it says last in its first tag.
fn height(svg: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(svg).ok()?;
    let tag = &text[text.find("<svg")?..];
    let frame = tag[..tag.find('>')?].split("viewBox=\"").nth(1)?.split('"').next()?;
    frame.split(' ').nth(3)?.parse().ok()
}

fn table(selection: &Selection<'_>, options: &Options, out: &mut dyn Write) -> io::Result<()> {
    let table = Table::new(selection, options);
    let unit = options.unit();
    writeln!(
        out,
        "<h2>Table</h2>\n<table><thead><tr><th>flat</th><th>flat %</th><th>cumulative</th><th>cumulative %</th><th>name</th>\
         </tr></thead><tbody>"
    )?;
    let share = |value: f64| if table.shown == 0.0 { 0.0 } else { value * 100.0 / table.shown };
    for row in table.rows.iter().take(options.limit.unwrap_or(PAGE_ROWS)) {
        writeln!(
            out,
            "<tr><td>{}</td><td>{:.1}</td><td>{}</td><td>{:.1}</td><td>{}</td></tr>",
            human(row.flat, &unit),
            share(row.flat),
            human(row.cumulative, &unit),
            share(row.cumulative),
            escaped(&row.name)
        )?;
    }
    writeln!(out, "</tbody></table>")
}

/// For a `data:` address.
fn percent_encoded(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for &byte in bytes {
        if byte.is_ascii_alphanumeric() || b"-_.~ /:=;,()".contains(&byte) {
            text.push(char::from(byte));
        } else {
            let _infallible = write!(text, "%{byte:02X}");
        }
    }
    text
}

const STYLE: &str = "body{font:14px sans-serif;margin:16px;background:Canvas;color:CanvasText;color-scheme:light dark}\
iframe{width:100%;height:60vh;border:1px solid #8884;background:#fff}\
.graph{overflow:auto;max-height:80vh;border:1px solid #8884;background:#fff;color:#000}\
.lost{color:#b30000}td,th{padding:2px 10px;text-align:right}td:last-child,th:last-child{text-align:left;font-family:monospace}";

#[cfg(test)]
mod tests {
    use super::percent_encoded;

    #[test]
    fn a_data_address_holds_no_quote_and_no_fragment() {
        assert_eq!(percent_encoded(b"<a b=\"c#1\">"), "%3Ca b=%22c%231%22%3E");
    }
}
