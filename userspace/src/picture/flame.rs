//! A flame graph as one SVG file that needs nothing else: search, zoom and details work in a browser.
//!
//! Width is the estimated number. A flame graph stands on its root, an icicle graph hangs from it. Colours are derived from
//! names, so that two graphs of one program can be laid beside each other; in a differential graph red frames grew and
//! blue ones shrank, and the width is that of after.
#![forbid(unsafe_code)]

use std::io::{self, ErrorKind, Write};

use inferno::flamegraph::{self, Direction, Palette, color::BasicPalette};

/// Pixels; wide enough for three nested C++ names.
const WIDTH: usize = 1600;
/// What the drawing library leaves empty and scripts fill in later, so that a viewer without scripts shows no name.
const UNNAMED_ROOT: &str = "<title>all (";
const NO_TEXT: &str = "\"></text>";

/// Words and form of a graph.
#[derive(Clone, Debug, Default)]
pub struct Flame {
    pub title: String,
    pub subtitle: String,
    /// Of the numbers: bytes or objects.
    pub unit: &'static str,
    /// Root at the top.
    pub is_icicle: bool,
}

/// Draws folded lines: `root;caller;leaf NUMBER`, or `… BEFORE AFTER` for a differential graph. No line is an error of kind
/// `InvalidInput`.
pub fn write(lines: &[String], flame: &Flame, mut out: impl Write) -> io::Result<()> {
    if lines.is_empty() {
        return Err(io::Error::new(ErrorKind::InvalidInput, "no stack has anything to draw"));
    }
    let mut graph = flamegraph::Options::default();
    graph.title.clone_from(&flame.title);
    graph.subtitle = Some(flame.subtitle.clone());
    flame.unit.clone_into(&mut graph.count_name);
    graph.image_width = Some(WIDTH);
    graph.font_size = 13;
    graph.hash = true;
    graph.colors = Palette::Basic(BasicPalette::Mem);
    graph.deterministic = true;
    graph.direction = if flame.is_icicle { Direction::Inverted } else { Direction::Straight };
    let mut svg = Vec::new();
    flamegraph::from_lines(&mut graph, lines.iter().map(String::as_str), &mut svg)?;
    let svg = String::from_utf8(svg).map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
    // Later `all (` titles would be functions of that name, which have their text.
    let root = svg.find(UNNAMED_ROOT).and_then(|at| Some(at + svg[at..].find(NO_TEXT)?));
    match root {
        Some(at) => {
            let text = at + NO_TEXT.find('<').unwrap_or(0);
            out.write_all(&svg.as_bytes()[..text])?;
            out.write_all(b"all")?;
            out.write_all(&svg.as_bytes()[text..])
        }
        None => out.write_all(svg.as_bytes()),
    }
}

/// Bytes with a binary unit, objects as they are.
pub fn human(value: f64, is_bytes: bool) -> String {
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
    use super::{Flame, human, write};

    fn svg(lines: &[&str], is_icicle: bool) -> String {
        let lines: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
        let mut out = Vec::new();
        let flame = Flame { title: "Heap".into(), subtitle: "of it".into(), unit: "bytes", is_icicle };
        write(&lines, &flame, &mut out).expect("memory");
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn totals_are_given_in_the_unit_that_keeps_them_short() {
        assert_eq!(human(1023.0, true), "1023.0 B");
        assert_eq!(human(3.5 * 1048576.0, true), "3.5 MiB");
        assert_eq!(human(2048.0, false), "2048 objects");
    }

    #[test]
    fn every_frame_has_its_name_without_scripts() {
        for is_icicle in [false, true] {
            let svg = svg(&["main;left 10", "main;right 30"], is_icicle);
            for name in ["all", "main", "left", "right"] {
                assert!(svg.contains(&format!("\">{name}</text>")), "{name}: {svg}");
            }
        }
    }

    #[test]
    fn a_differential_graph_says_what_changed() {
        let svg = svg(&["main;grew 10 30", "main;shrank 30 10"], false);
        assert!(
            svg.contains("grew (30 bytes, 75.00%; +50.00%)") && svg.contains("shrank (10 bytes, 25.00%; -50.00%)"),
            "{svg}"
        );
    }
}
