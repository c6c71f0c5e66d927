//! Line charts as SVG: a panel a chart, values from 0 up, the places on the x axis evenly spaced.
//!
//! ```text
//!   y unit  ┌───────────────┐
//!           │  a line a     │ name at the end of
//!           │  series       │ its line
//!           └─┬────┬────┬───┘
//!            x labels
//! ```
#![forbid(unsafe_code)]

use std::fmt::Write as _;

/// One panel.
pub(crate) struct Chart {
    pub(crate) title: String,
    pub(crate) places: Vec<String>,
    /// Name, and a value for each place; `None` = not measured.
    pub(crate) series: Vec<(String, Vec<Option<f64>>)>,
}

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 320.0;
const LEFT: f64 = 60.0;
const RIGHT: f64 = 130.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 40.0;

/// Told apart by people who see no red or no green.
const COLOURS: &[&str] = &["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#8c6d31"];

/// The panels, one below the other.
pub(crate) fn svg(charts: &[Chart]) -> String {
    let height = HEIGHT * charts.len() as f64;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n"
    );
    for (at, chart) in charts.iter().enumerate() {
        let _ = writeln!(text, "<g transform=\"translate(0 {})\">", HEIGHT * at as f64);
        panel(&mut text, chart);
        text.push_str("</g>\n");
    }
    text.push_str("</svg>\n");
    text
}

fn panel(text: &mut String, chart: &Chart) {
    let greatest = chart.series.iter().flat_map(|series| series.1.iter().flatten()).copied().fold(0.0, f64::max);
    let step = step_of(greatest);
    let top = (greatest / step).ceil().max(1.0) * step;
    let steps = chart.places.len().saturating_sub(1).max(1) as f64;
    let x = |place: usize| LEFT + (WIDTH - LEFT - RIGHT) * place as f64 / steps;
    let y = |value: f64| HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * value / top;

    let _ = writeln!(text, "<text x=\"{LEFT}\" y=\"22\" font-size=\"14\">{}</text>", escape(&chart.title));
    for line in 0..=(top / step).round() as u32 {
        let value = f64::from(line) * step;
        let at = y(value);
        let _ = writeln!(text, "<path d=\"M{LEFT} {at:.1}H{:.1}\" stroke=\"#dddddd\"/>", WIDTH - RIGHT);
        let _ =
            writeln!(text, "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{value}</text>", LEFT - 6.0, at + 4.0);
    }
    for (place, label) in chart.places.iter().enumerate() {
        let (at, below) = (x(place), HEIGHT - BOTTOM + 18.0);
        let _ = writeln!(text, "<text x=\"{at:.1}\" y=\"{below:.1}\" text-anchor=\"middle\">{}</text>", escape(label));
    }
    let mut ends = Vec::new();
    for ((name, values), colour) in chart.series.iter().zip(COLOURS.iter().cycle()) {
        let points: Vec<(f64, f64)> =
            values.iter().enumerate().filter_map(|(place, value)| Some((x(place), y((*value)?)))).collect();
        let path: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let _ = writeln!(
            text,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
            path.join(" ")
        );
        for (x, y) in &points {
            let _ = writeln!(text, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>");
        }
        if let Some((x, y)) = points.last() {
            ends.push((*y, *x, name, *colour));
        }
    }
    // Names side by side with their lines' ends, moved down where they would lie on each other.
    ends.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut below = f64::NEG_INFINITY;
    for (y, x, name, colour) in ends {
        let y = (y + 4.0).max(below + 13.0);
        below = y;
        let _ = writeln!(text, "<text x=\"{:.1}\" y=\"{y:.1}\" fill=\"{colour}\">{}</text>", x + 8.0, escape(name));
    }
}

/// A round distance of lines for values up to `greatest`: 1, 2 or 5 times a power of ten, at most ten lines.
fn step_of(greatest: f64) -> f64 {
    let mut power = 1e-3;
    loop {
        for factor in [1.0, 2.0, 5.0] {
            if greatest <= 10.0 * power * factor || power > 1e30 {
                return power * factor;
            }
        }
        power *= 10.0;
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_a_series_and_a_gap_where_nothing_was_measured() {
        let chart = Chart {
            title: "ns < 10".to_owned(),
            places: vec!["1".to_owned(), "2".to_owned(), "4".to_owned()],
            series: vec![
                ("ours".to_owned(), vec![Some(10.0), Some(10.0), None]),
                ("other".to_owned(), vec![Some(20.0), None, Some(20.0)]),
            ],
        };
        let text = svg(&[chart]);
        assert!(text.contains("ns &lt; 10"));
        assert_eq!(text.matches("<polyline").count(), 2);
        assert_eq!(text.matches("<circle").count(), 4);
        // 20 is the top line, 10 half way; both values lie on lines of the grid.
        assert!(text.contains("points=\"60.0,160.0 345.0,160.0\""), "{text}");
        assert!(text.contains("points=\"60.0,40.0 630.0,40.0\""), "{text}");
    }

    #[test]
    fn steps_are_round() {
        assert!((step_of(20.0) - 2.0).abs() < 1e-9);
        assert!((step_of(21.0) - 5.0).abs() < 1e-9);
        assert!((step_of(0.0) - 1e-3).abs() < 1e-9);
    }
}
