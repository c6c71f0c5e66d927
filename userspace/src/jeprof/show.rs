//! From a profile with names to what is printed: filters, rows, and the writer of the chosen mode.
#![forbid(unsafe_code)]

use std::borrow::Cow;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::address::Width;
use super::callgrind::{self, Calls};
use super::code::{ByAddress, Code, Sources, Style};
use super::collapsed;
use super::disasm;
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
use super::temp;
use super::text;
use super::values::{Kind, Unit};
use super::viewers;
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
}

/// Steps before rows are made: the total of all stacks, and the stacks that are left.
pub fn filtered<'a>(stacks: &'a Stacks, shown: &Shown, options: &Options) -> Result<(f64, Cow<'a, Stacks>)> {
    let named = shown.named();
    let total = stacks.total();
    let mut left = filter::without_uninteresting(stacks, named, shown.kind, options)?;
    if !options.focus.is_empty() {
        left = Cow::Owned(filter::focus(&left, named, &options.focus)?);
    }
    if !options.ignore.is_empty() {
        left = Cow::Owned(filter::ignore(&left, named, &options.ignore)?);
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

/// Code with the values of stacks whose rows are bare addresses.
fn code<'a>(stacks: &Stacks, shown: &'a Shown, options: &'a Options, tools: &'a mut Tools) -> Code<'a> {
    let (rows, sums) = Rows::summed(stacks, shown.named(), options, &mut tools.callers);
    Code {
        regions: &shown.regions,
        values: ByAddress::new(&rows, &sums),
        style: Style { unit: Unit::of(shown.kind, options), width: shown.width },
        options,
        images: &mut tools.images,
        sources: &mut tools.sources,
    }
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
    disasm::write(out, &mut code(stacks, shown, options, tools), expression)
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
    list::write(out, &mut code(stacks, shown, options, tools), expression, false).map(|_| ())
}

/// The same as a page in the browser.
pub fn page(
    out: &mut Output,
    (total, stacks): (f64, &Stacks),
    expression: &str,
    shown: &Shown,
    options: &Options,
    tools: &mut Tools,
) -> Result<()> {
    let mut code = code(stacks, shown, options, tools);
    let mut text = Vec::new();
    weblist::head(&mut text, &shown.program, total, code.style.unit)?;
    let listed = list::write(&mut text, &mut code, expression, true)?;
    weblist::foot(&mut text)?;
    if out.is_file() {
        out.write_all(&text)?;
    } else if listed > 0 {
        viewers::web(&save("html", &text)?);
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
        viewers::gv(&save("ps", graph.scene().postscript().as_bytes())?, options.scale, waits);
    } else if options.evince {
        viewers::evince(&save("pdf", &graph.scene().pdf())?, waits);
    } else if options.ps {
        out.write_all(graph.scene().postscript().as_bytes())?;
    } else if options.pdf {
        out.write_all(&graph.scene().pdf())?;
    } else if options.web {
        let path = save("svg", graph.scene().svg().as_bytes())?;
        viewers::web(&path);
        if waits {
            viewers::remove_later(&path);
        }
    } else if options.svg {
        out.write_all(graph.scene().svg().as_bytes())?;
    } else if options.gif {
        let picture = graph.scene().gif();
        out.write_all(&picture.map_err(|error| Stop::error(format!("--gif: {error}\n")))?)?;
    } else {
        graph.write(out, options)?;
    }
    Ok(true)
}

/// Keeps something in a temporary file.
fn save(extension: &str, bytes: &[u8]) -> Result<PathBuf> {
    temp::save(extension, bytes).map_err(|(path, error)| unwritten(&path, &error))
}

fn unwritten(path: &Path, error: &io::Error) -> Stop {
    Stop::error(format!("{}: {}\n", shown(path), reason(error)))
}

/// A callgrind file of all stacks, for a viewer when it has no name.
pub fn callgrind_file(stacks: &Stacks, name: &str, shown: &Shown) -> Result<()> {
    let mut text = Vec::new();
    callgrind::write(&mut text, &Calls::new(stacks, shown.named()))?;
    let announce = |path: &Path| say(format_args!("Writing callgrind file to '{}'.\n", path.display()));
    if name.is_empty() {
        let path = save("callgrind", &text)?;
        announce(&path);
        viewers::kcachegrind(&path);
    } else {
        let path = Path::new(name);
        announce(path);
        fs::write(path, &text).map_err(|error| unwritten(path, &error))?;
    }
    Ok(())
}
