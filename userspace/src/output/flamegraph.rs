//! A flame graph as one SVG file that needs nothing else: search, zoom and details work in a browser.
//!
//! Width is the estimated number, root at the bottom. Colours are derived from names, so that two graphs of one program can be
//! laid beside each other.
#![forbid(unsafe_code)]

use std::io::{self, ErrorKind, Write};

use inferno::flamegraph;

use super::folded;
use super::select::{Options, Selection};
use crate::symbolize::Symbols;

/// Pixels; wide enough for three nested C++ names.
const WIDTH: usize = 1600;

/// Writes the graph. `subject` says of what: file names, or a process. Nothing to draw is an error of kind `InvalidInput`.
pub fn write(
    selection: &Selection<'_>,
    symbols: &Symbols,
    options: &Options,
    subject: &str,
    mut out: impl Write,
) -> io::Result<()> {
    let lines = folded::lines(selection, symbols, options);
    if lines.is_empty() {
        return Err(io::Error::new(ErrorKind::InvalidInput, "no stack has anything to draw"));
    }
    let unit = if options.value.is_bytes() { "bytes" } else { "objects" };
    let mut graph = flamegraph::Options::default();
    graph.title = format!("Heap: {}", options.value.title());
    graph.subtitle = Some(format!("{subject}: {} (estimated)", human(selection.total(), options.value.is_bytes())));
    unit.clone_into(&mut graph.count_name);
    graph.image_width = Some(WIDTH);
    graph.font_size = 13;
    graph.hash = true;
    graph.colors = flamegraph::Palette::Basic(flamegraph::color::BasicPalette::Mem);
    graph.deterministic = true;
    flamegraph::from_lines(&mut graph, lines.iter().map(String::as_str), &mut out)
}

/// Bytes with a binary unit, objects as they are.
fn human(value: f64, is_bytes: bool) -> String {
    if !is_bytes {
        return format!("{value:.0} objects");
    }
    let mut value = value;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if value.abs() < 1024.0 {
            return format!("{value:.1} {unit}");
        }
        value /= 1024.0;
    }
    format!("{value:.1} TiB")
}

#[cfg(test)]
mod tests {
    use super::human;

    #[test]
    fn totals_are_given_in_the_unit_that_keeps_them_short() {
        assert_eq!(human(1023.0, true), "1023.0 B");
        assert_eq!(human(3.5 * 1048576.0, true), "3.5 MiB");
        assert_eq!(human(2048.0, false), "2048 objects");
    }
}
