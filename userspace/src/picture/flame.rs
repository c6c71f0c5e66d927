//! A flame graph as one SVG file that needs nothing else: search, zoom and details work in a browser.
//!
//! Width is the estimated number. A flame graph stands on its root, an icicle graph hangs from it. Colours are derived from
//! names, so that two graphs of one program can be laid beside each other; in a differential graph red frames grew and
//! blue ones shrank, and the width is that of after.
#![forbid(unsafe_code)]

use std::io::{self, ErrorKind, Write};

use inferno::flamegraph::{self, Direction, Palette, color::BasicPalette};
use unicode_width::UnicodeWidthChar as _;

use super::svg::escaped;

/// Pixels; wide enough for three nested C++ names.
const WIDTH: usize = 1600;
/// Left empty at each side, and within a frame beside its label.
const MARGIN: f64 = 10.0;
const PADDING: f64 = 6.0;
const FONT_SIZE: u16 = 13;
/// Of a letter, as part of the font's size; of a sign that takes two columns it is the whole size.
const LETTER: f64 = 0.59;
/// What the drawing library leaves empty and scripts fill in later, so that a viewer without scripts shows no name.
const UNNAMED_ROOT: &str = "<title>all (";
const NO_TEXT: &str = "\"></text>";
/// Whether the graph's script takes the width of the window.
const FIXED: &str = "var fluiddrawing = false;";
const FLUID: &str = "var fluiddrawing = true;";

/// Words and form of a graph.
#[derive(Clone, Debug, Default)]
pub struct Flame {
    pub title: String,
    pub subtitle: String,
    /// Of the numbers: bytes, objects, nanoseconds and so on.
    pub unit: String,
    /// Root at the top.
    pub is_icicle: bool,
}

/// Draws folded lines: `root;caller;leaf NUMBER`, or `… BEFORE AFTER` for a differential graph. Without a line the picture
/// says that there is nothing; where nothing is left of what was before, widths are those of before.
pub fn write(lines: &[String], flame: &Flame, mut out: impl Write) -> io::Result<()> {
    if lines.is_empty() {
        return write_empty(flame, out);
    }
    let gone = all_gone(lines);
    let lines = gone.as_deref().unwrap_or(lines);
    let mut graph = flamegraph::Options::default();
    graph.title.clone_from(&flame.title);
    let left = match &gone {
        Some(_) => "; nothing is left, widths are those of before".to_owned(),
        None => gone_bytes(lines).map_or_else(String::new, |gone| {
            format!("; {} of stacks that are gone have no width", human(gone, &flame.unit))
        }),
    };
    graph.subtitle = Some(format!("{}{left}", flame.subtitle));
    graph.negate_differentials = gone.is_some();
    graph.count_name.clone_from(&flame.unit);
    graph.image_width = Some(WIDTH);
    graph.font_size = usize::from(FONT_SIZE);
    graph.font_width = LETTER;
    graph.hash = true;
    graph.colors = Palette::Basic(BasicPalette::Mem);
    graph.deterministic = true;
    graph.direction = if flame.is_icicle { Direction::Inverted } else { Direction::Straight };
    let mut svg = Vec::new();
    flamegraph::from_lines(&mut graph, lines.iter().map(String::as_str), &mut svg)?;
    let svg = String::from_utf8(svg).map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
    // As wide as the window, where the labels that its script cuts to that are of one width a sign.
    let svg = if svg.is_ascii() { svg.replacen(FIXED, FLUID, 1) } else { fit_wide(&svg) };
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

/// Lines of a difference in which nothing is left, with their numbers exchanged: a frame needs a width.
fn all_gone(lines: &[String]) -> Option<Vec<String>> {
    // A line with one number is never one of nothing.
    let exchanged = |line: &String| {
        let (stack, before) = line.strip_suffix(" 0")?.rsplit_once(' ')?;
        Some(format!("{stack} 0 {before}"))
    };
    lines.iter().map(exchanged).collect()
}

/// What the stacks held of which nothing is left.
fn gone_bytes(lines: &[String]) -> Option<f64> {
    let before = |line: &String| line.strip_suffix(" 0")?.rsplit_once(' ')?.1.parse::<f64>().ok();
    Some(lines.iter().filter_map(before).sum::<f64>()).filter(|sum| *sum > 0.0)
}

/// The graph of a profile with nothing to draw.
fn write_empty(flame: &Flame, mut out: impl Write) -> io::Result<()> {
    let (middle, line) = (WIDTH / 2, 2 * FONT_SIZE);
    let text = |at: u16, text: &str| format!("<text x=\"{middle}\" y=\"{}\">{}</text>\n", at * line, escaped(text));
    writeln!(
        out,
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{}\" \
         font-family=\"monospace\" font-size=\"{FONT_SIZE}\" text-anchor=\"middle\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#f8f8f8\"/>\n{}{}{}</svg>",
        4 * line,
        text(1, &flame.title),
        text(2, &flame.subtitle),
        text(3, "nothing to show")
    )
}

/// Cuts labels with signs of double width (Chinese, Japanese, Korean) to their frames: the drawing library counts signs.
fn fit_wide(svg: &str) -> String {
    const LABEL_END: &str = "</text></g>";
    let mut fitted = String::with_capacity(svg.len());
    let mut rest = svg;
    while let Some(end) = rest.find(LABEL_END) {
        let (frame, after) = rest.split_at(end);
        let label = frame.rfind('>').map_or(end, |at| at + 1);
        fitted.push_str(&frame[..label]);
        match frame_width(&frame[..label]).filter(|_| !frame[label..].is_ascii()) {
            Some(percent) => {
                let room = (WIDTH as f64 - 2.0 * MARGIN) * percent / 100.0 - PADDING;
                fitted.push_str(&fit(&frame[label..], room));
            }
            None => fitted.push_str(&frame[label..]),
        }
        fitted.push_str(LABEL_END);
        rest = &after[LABEL_END.len()..];
    }
    fitted.push_str(rest);
    fitted
}

/// Of the last rectangle, in percent of the whole graph.
fn frame_width(frame: &str) -> Option<f64> {
    let rectangle = &frame[frame.rfind("<rect ")?..];
    let width = &rectangle[rectangle.find(" width=\"")? + " width=\"".len()..];
    width[..width.find("%\"")?].parse().ok()
}

/// As much of an escaped label as has room, in pixels; nothing when that is less than a sign and two dots.
fn fit(label: &str, room: f64) -> String {
    let size = f64::from(FONT_SIZE);
    let width = |sign: char| if sign.width() == Some(2) { size } else { size * LETTER };
    let dots = 2.0 * size * LETTER;
    let (mut used, mut cut, mut is_escape) = (0.0, 0, false);
    for (at, sign) in label.char_indices() {
        // An escape, as `&lt;`, is one sign.
        if is_escape {
            is_escape = sign != ';';
            continue;
        }
        is_escape = sign == '&';
        if used + dots <= room {
            cut = at;
        }
        used += width(sign);
    }
    if used <= room {
        label.to_owned()
    } else if cut == 0 {
        String::new()
    } else {
        format!("{}..", label[..cut].trim_end_matches('.'))
    }
}

/// Bytes with a binary unit, nanoseconds with one of seconds, all others as they are.
pub fn human(value: f64, unit: &str) -> String {
    match unit {
        "bytes" => scaled(value, 1024.0, &["B", "KiB", "MiB", "GiB", "TiB"]),
        "nanoseconds" => scaled(value, 1000.0, &["ns", "us", "ms", "s"]),
        _ => format!("{:.0} {unit}", value.round() + 0.0),
    }
}

/// In the first unit that a number has fewer than `step` of, or the last.
fn scaled(mut value: f64, step: f64, units: &[&str]) -> String {
    let mut at = 0;
    while value.abs() >= step && at + 1 < units.len() {
        value /= step;
        at += 1;
    }
    // Adding 0 takes the sign of what is less than half a one.
    if at == 0 { format!("{:.0} {}", value.round() + 0.0, units[0]) } else { format!("{value:.1} {}", units[at]) }
}

#[cfg(test)]
mod tests {
    use super::{Flame, human, write};

    fn svg(lines: &[&str], is_icicle: bool) -> String {
        let lines: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
        let mut out = Vec::new();
        let flame = Flame { title: "Heap".into(), subtitle: "of it".into(), unit: "bytes".into(), is_icicle };
        write(&lines, &flame, &mut out).expect("memory");
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn totals_are_given_in_the_unit_that_keeps_them_short() {
        assert_eq!(human(1023.0, "bytes"), "1023 B");
        assert_eq!(human(-0.2, "bytes"), "0 B");
        assert_eq!(human(3.5 * 1048576.0, "bytes"), "3.5 MiB");
        assert_eq!(human(f64::from(1 << 30) * 5000.0 * 1024.0, "bytes"), "5000.0 TiB");
        assert_eq!(human(2048.0, "objects"), "2048 objects");
        assert_eq!(human(80_000_000.0, "nanoseconds"), "80.0 ms");
        assert_eq!(human(-7.2e12, "nanoseconds"), "-7200.0 s");
    }

    #[test]
    fn every_frame_has_its_name_without_scripts() {
        for is_icicle in [false, true] {
            let svg = svg(&["main;left 10", "main;right 30"], is_icicle);
            assert!(svg.contains(super::FLUID), "as wide as the window");
            for name in ["all", "main", "left", "right"] {
                assert!(svg.contains(&format!("\">{name}</text>")), "{name}: {svg}");
            }
        }
    }

    #[test]
    fn signs_of_double_width_stay_in_their_frames() {
        let name = "数据库连接池::获取<连接>对象实例方法";
        let (wide, narrow) = (format!("main;{name} 60"), format!("main;{name};leaf 3"));
        let svg = svg(&[&wide, &narrow, "main;other 937"], false);
        let labels: Vec<&str> = svg.match_indices("</text>").map(|(end, _)| &svg[..end]).collect();
        let label = labels.iter().filter_map(|text| text.rsplit('>').next()).find(|label| label.contains('数'));
        // 63 of 1,000 are 99 pixels: six signs of 13, and two dots.
        assert_eq!(label, Some("数据库连接池.."));
        assert_eq!(super::fit("数&lt;据", 1000.0), "数&lt;据");
        assert_eq!(super::fit("数据库", 37.0), "数..");
        assert_eq!(super::fit("&lt;数据", 30.0), "&lt;..");
        assert_eq!(super::fit("数据库", 20.0), "");
    }

    #[test]
    fn nothing_is_a_picture_too() {
        let svg = svg(&[], false);
        assert!(svg.contains(">of it<") && svg.contains(">nothing to show<") && svg.ends_with("</svg>\n"), "{svg}");
    }

    #[test]
    fn what_is_all_gone_is_blue_and_as_wide_as_it_was() {
        let svg = svg(&["main;one 10 0", "main;two 30 0"], false);
        assert!(svg.contains("two (30 bytes, 75.00%; -75.00%)") && svg.contains("nothing is left"), "{svg}");
        assert!(super::all_gone(&["main;one 10 0".into(), "main;two 30 1".into()]).is_none());
        assert!(super::all_gone(&["main;f 10".into()]).is_none());
    }

    #[test]
    fn a_differential_graph_says_what_changed() {
        let svg = svg(&["main;grew 10 30", "main;shrank 30 10", "main;gone 7 0"], false);
        assert!(svg.contains(">of it; 7 B of stacks that are gone have no width<"), "{svg}");
        assert!(
            svg.contains("grew (30 bytes, 75.00%; +50.00%)") && svg.contains("shrank (10 bytes, 25.00%; -50.00%)"),
            "{svg}"
        );
    }
}
