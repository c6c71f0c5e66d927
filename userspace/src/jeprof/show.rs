//! From a profile with names to what is printed: filters, rows, and the writer of the chosen mode.
#![forbid(unsafe_code)]

use std::fs;
use std::io::Write;
use std::path::PathBuf;

use super::address::Width;
use super::callgrind::{self, Calls};
use super::code::{ByAddress, Sources};
use super::collapsed;
use super::disasm::{self, Style};
use super::dot::CallGraph;
use super::filter::{self, Named};
use super::images::{Images, Region, shown};
use super::list;
use super::options::{Options, truth};
use super::raw;
use super::reduce::{CallerIds, Rows};
use super::stacks::{Pcs, Stacks};
use super::stop::{Result, Stop, reason};
use super::streams::{Output, say};
use super::symbols::Symbols;
use super::text;
use super::values::{Kind, Unit};
use super::viewers::{self, TempFiles};
use super::weblist;

/// Everything about the profile that is shown.
pub struct Shown {
    pub pcs: Pcs,
    pub symbols: Symbols,
    pub regions: Vec<Region>,
    pub kind: Kind,
    pub width: Width,
    pub program: String,
    /// Files the profile was read from, that of the command line's first last.
    pub files: Vec<PathBuf>,
}

impl Shown {
    pub fn named(&self) -> Named<'_> {
        Named { pcs: &self.pcs, symbols: &self.symbols, width: self.width }
    }
}

/// What writers keep from one call to the next.
#[derive(Default)]
pub struct Tools {
    pub images: Images,
    pub sources: Sources,
    pub callers: CallerIds,
    pub temp: TempFiles,
}

/// Steps before rows are made: the total of all stacks, and the stacks that are left.
pub fn filtered(stacks: &Stacks, shown: &Shown, options: &Options) -> Result<(f64, Stacks)> {
    let named = shown.named();
    let total = stacks.total();
    let mut left = filter::without_uninteresting(stacks, named, shown.kind, options)?;
    if !options.focus.is_empty() {
        left = filter::focus(&left, named, &options.focus)?;
    }
    if !options.ignore.is_empty() {
        left = filter::ignore(&left, named, &options.ignore)?;
    }
    Ok((total, left))
}

/// Shows stacks in the mode of the options. `thread`: whose they are.
pub fn write(
    out: &mut Output,
    (total, stacks): (f64, &Stacks),
    thread: Option<u64>,
    shown: &Shown,
    options: &Options,
    tools: &mut Tools,
) -> Result<()> {
    let named = shown.named();
    let unit = Unit::of(shown.kind, options);
    if truth(&options.disasm) {
        return disassembly(out, stacks, &options.disasm, shown, options, tools);
    }
    if truth(&options.list) {
        return listing(out, stacks, &options.list, shown, options, tools);
    }
    if options.text {
        if total != 0.0 {
            let of = thread.map_or(String::new(), |thread| format!(" (t{thread})"));
            writeln!(out, "Total{of}: {} {}", unit.text(total), unit.name())?;
        }
        return table(out, stacks, None, shown, options, tools);
    }
    if options.raw {
        return raw::write(out, &shown.symbols, shown.width, &shown.program, shown.kind, &shown.files);
    }
    if options.collapsed {
        return collapsed::write(out, stacks, named);
    }
    if options.callgrind {
        return callgrind::write(out, &Calls::new(stacks, named));
    }
    if graph(out, (total, stacks), shown, options, tools, true)? { Ok(()) } else { Err(Stop::Quiet(1)) }
}

/// Rows of a table, at most `limit`.
pub fn table(
    out: &mut Output,
    stacks: &Stacks,
    limit: Option<usize>,
    shown: &Shown,
    options: &Options,
    tools: &mut Tools,
) -> Result<()> {
    let (rows, sums) = Rows::summed(stacks, shown.named(), options, &mut tools.callers);
    text::write(out, (&rows, &sums), shown.named(), options, Unit::of(shown.kind, options), limit)
}

fn by_address(stacks: &Stacks, shown: &Shown, options: &Options, tools: &mut Tools) -> ByAddress {
    let (rows, sums) = Rows::summed(stacks, shown.named(), options, &mut tools.callers);
    ByAddress::new(&rows, &sums)
}

/// Instructions of functions.
pub fn disassembly(
    out: &mut Output,
    stacks: &Stacks,
    expression: &str,
    shown: &Shown,
    options: &Options,
    tools: &mut Tools,
) -> Result<()> {
    let values = by_address(stacks, shown, options, tools);
    let style = Style { unit: Unit::of(shown.kind, options), width: shown.width };
    let places = (&mut tools.images, &mut tools.sources);
    disasm::write(out, &shown.regions, &values, expression, style, options, places)
}

/// Source of functions.
pub fn listing(
    out: &mut Output,
    stacks: &Stacks,
    expression: &str,
    shown: &Shown,
    options: &Options,
    tools: &mut Tools,
) -> Result<()> {
    let values = by_address(stacks, shown, options, tools);
    let style = Style { unit: Unit::of(shown.kind, options), width: shown.width };
    let places = (&mut tools.images, &mut tools.sources);
    list::write(out, &shown.regions, &values, expression, style, options, places, false).map(|_| ())
}

/// The same as a page in the browser.
pub fn page(
    (total, stacks): (f64, &Stacks),
    expression: &str,
    shown: &Shown,
    options: &Options,
    tools: &mut Tools,
) -> Result<()> {
    let values = by_address(stacks, shown, options, tools);
    let style = Style { unit: Unit::of(shown.kind, options), width: shown.width };
    let mut text = Vec::new();
    weblist::head(&mut text, &shown.program, total, style.unit)?;
    let places = (&mut tools.images, &mut tools.sources);
    let listed = list::write(&mut text, &shown.regions, &values, expression, style, options, places, true)?;
    weblist::foot(&mut text)?;
    if listed > 0 {
        let path = tools.temp.name("html");
        save(&path, &text)?;
        viewers::web(&path);
    }
    Ok(())
}

/// The call graph, as text or as a picture; false when there is nothing to draw. `waits`: until a viewer ends.
pub fn graph(
    out: &mut Output,
    (total, stacks): (f64, &Stacks),
    shown: &Shown,
    options: &Options,
    tools: &mut Tools,
    waits: bool,
) -> Result<bool> {
    let rows = Rows::new(stacks, shown.named(), options, &mut tools.callers);
    let Some(graph) = CallGraph::new(&rows, options, &shown.program, Unit::of(shown.kind, options), total) else {
        return Ok(false);
    };
    if options.gv {
        let path = tools.temp.name("ps");
        save(&path, graph.scene().postscript().as_bytes())?;
        viewers::gv(&path, options.scale, waits);
    } else if options.evince {
        let path = tools.temp.name("pdf");
        save(&path, &graph.scene().pdf())?;
        viewers::evince(&path, waits);
    } else if options.ps {
        out.write_all(graph.scene().postscript().as_bytes())?;
    } else if options.pdf {
        out.write_all(&graph.scene().pdf())?;
    } else if options.web {
        let path = tools.temp.name("svg");
        save(&path, graph.scene().svg().as_bytes())?;
        viewers::web(&path);
    } else if options.svg {
        out.write_all(graph.scene().svg().as_bytes())?;
    } else if options.gif {
        return Err(Stop::error(
            "--gif: there is no writer for this format here; --svg and --pdf draw the same picture\n",
        ));
    } else {
        graph.write(out, options)?;
    }
    Ok(true)
}

fn save(path: &std::path::Path, bytes: &[u8]) -> Result<()> {
    fs::write(path, bytes).map_err(|error| Stop::error(format!("{}: {}\n", shown(path), reason(&error))))
}

/// A callgrind file of all stacks, for a viewer when it has no name.
pub fn callgrind_file(stacks: &Stacks, name: &str, shown: &Shown, tools: &mut Tools) -> Result<()> {
    let path = if name.is_empty() { tools.temp.name("callgrind") } else { PathBuf::from(name) };
    say(format_args!("Writing callgrind file to '{}'.\n", path.display()));
    let mut text = Vec::new();
    callgrind::write(&mut text, &Calls::new(stacks, shown.named()))?;
    save(&path, &text)?;
    if name.is_empty() {
        viewers::kcachegrind(&path);
    }
    Ok(())
}
