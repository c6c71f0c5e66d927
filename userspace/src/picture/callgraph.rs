//! The call graph as a drawing: a box per function, an arrow per call, the legend above.
//!
//! | sign | says |
//! |---|---|
//! | font size of a box | what the function holds itself, by the root of its share |
//! | fill of a box | the same: white to orange; blue where a base had more |
//! | width of an arrow | what is held under the call |
//! | dashed arrow | the callee is inlined |
//!
//! Labels of arrows have places of their own in the layout. Beyond [`LABELLED_MOST`] boxes they are only tooltips: numbers of
//! a few pixels would only hide what the eye can still take in.
#![forbid(unsafe_code)]

use super::font::{self, LINE as LINE_HEIGHT, TO_BASELINE};
use super::layered::{LOOP, Layout, Link, Route, Size, layout};
use super::scene::{Anchor, BLACK, Colour, GREY, LINE, Scene, Shape, Step, Stroke};
use crate::output::graph::Graph;

/// Boxes in a graph whose arrows have printed numbers.
pub const LABELLED_MOST: usize = 400;
/// Characters of a line of a box, and lines.
const NAME_LINE: usize = 32;
const NAME_LINES: usize = 6;
const PADDING: f64 = 7.0;
const MARGIN: f64 = 16.0;
const EDGE_FONT: f64 = 9.0;
const ARROW: f64 = 7.0;
const WHITE: Colour = Colour(0xff, 0xff, 0xff);
const WARM: Colour = Colour(0xf2, 0x8e, 0x4e);
const COLD: Colour = Colour(0x6a, 0xa6, 0xd8);
const DARK_WARM: Colour = Colour(0xb3, 0x47, 0x1d);
const DARK_COLD: Colour = Colour(0x1f, 0x5f, 0x99);
const PALE_EDGE: Colour = Colour(0xa8, 0xb0, 0xb9);

/// Words of a drawing.
pub struct Labels<'a> {
    /// First line of the legend.
    pub title: String,
    /// Its other lines.
    pub lines: Vec<String>,
    /// A number for people, with its unit or without.
    pub amount: &'a dyn Fn(f64) -> String,
}

/// Draws a graph. An empty graph gives the legend alone.
pub fn call_graph(graph: &Graph, labels: &Labels<'_>) -> Scene {
    let whole =
        graph.nodes.iter().map(|node| node.cumulative.abs()).fold(graph.total.abs(), f64::max).max(f64::MIN_POSITIVE);
    let boxes: Vec<Label> = graph.nodes.iter().map(|node| Label::of(node, graph.total, whole, labels)).collect();
    let sizes: Vec<Size> = boxes.iter().map(|label| label.size).collect();
    let is_labelled = boxes.len() <= LABELLED_MOST;
    let texts: Vec<String> = graph.edges.iter().map(|edge| (labels.amount)(edge.value)).collect();
    let links: Vec<Link> = graph
        .edges
        .iter()
        .zip(&texts)
        .map(|(edge, text)| Link {
            from: edge.caller,
            to: edge.callee,
            weight: 1.0 + 9.0 * (edge.value.abs() / whole).min(1.0),
            label: if is_labelled { (font::width(text, EDGE_FONT) + 6.0, EDGE_FONT * LINE_HEIGHT) } else { (0.0, 0.0) },
        })
        .collect();
    let layout = layout(&sizes, &links);

    let mut scene = Scene { title: labels.title.clone(), ..Scene::default() };
    let (legend_width, legend_height) = legend(&mut scene, labels);
    let top = MARGIN + legend_height + MARGIN;
    scene.width = (layout.size.0 + 2.0 * MARGIN).max(legend_width + 2.0 * MARGIN);
    scene.height = top + layout.size.1 + MARGIN;
    let (dx, dy) = ((scene.width - layout.size.0) / 2.0, top);
    for (at, edge) in graph.edges.iter().enumerate() {
        let names = (&graph.nodes[edge.caller].name, &graph.nodes[edge.callee].name);
        let way = if edge.is_passing { "→ … →" } else { "→" };
        scene.open("edge", None, format!("{} {way} {}: {}", names.0, names.1, texts[at]));
        let share = (edge.value.abs() / whole).min(1.0);
        let dark = if edge.value < 0.0 { DARK_COLD } else { DARK_WARM };
        let stroke = Stroke {
            colour: PALE_EDGE.towards(dark, share.sqrt()),
            width: 0.8 + 3.2 * share,
            is_dashed: edge.is_passing || names.1.contains("(inline)"),
        };
        let text = is_labelled.then_some(texts[at].as_str());
        if edge.caller == edge.callee {
            draw_loop(&mut scene, at, &layout, (dx, dy), boxes[edge.caller].size, stroke, text);
        } else {
            draw_edge(&mut scene, &layout.routes[at], (dx, dy), stroke, text);
        }
        scene.close();
    }
    for (at, label) in boxes.iter().enumerate() {
        let (x, y) = layout.boxes[at];
        scene.open("node", Some(graph.nodes[at].key), label.tip.clone());
        label.draw(&mut scene, x + dx, y + dy);
        scene.close();
    }
    scene
}

/// Text of a box, measured.
struct Label {
    lines: Vec<(String, f64)>,
    size: Size,
    fill: Colour,
    border: Colour,
    tip: String,
}

impl Label {
    fn of(node: &crate::output::graph::Node, total: f64, whole: f64, labels: &Labels<'_>) -> Label {
        let share = (node.flat.abs() / whole).min(1.0);
        let name_size = 10.0 + 12.0 * share.sqrt();
        let number_size = 9.0 + 4.0 * share.sqrt();
        let mut lines: Vec<(String, f64)> =
            font::broken(&node.name, NAME_LINE, NAME_LINES).into_iter().map(|line| (line, name_size)).collect();
        let is_leaf = node.flat.to_bits() == node.cumulative.to_bits();
        let of = |value: f64| format!("{} ({})", (labels.amount)(value), percent(value, total));
        lines.push((of(node.flat), number_size));
        if !is_leaf {
            lines.push((format!("of {}", of(node.cumulative)), number_size));
        }
        let width = lines.iter().map(|(text, size)| font::width(text, *size)).fold(30.0, f64::max);
        let height: f64 = lines.iter().map(|(_, size)| size * LINE_HEIGHT).sum();
        let held = (node.cumulative.abs() / whole).min(1.0);
        let (fill, border) = if node.flat < 0.0 { (COLD, DARK_COLD) } else { (WARM, DARK_WARM) };
        Label {
            lines,
            size: (width + 2.0 * PADDING, height + 2.0 * PADDING),
            fill: WHITE.towards(fill, share.sqrt()),
            border: PALE_EDGE.towards(border, held.sqrt()),
            tip: format!("{}\nitself: {}\nwith what it calls: {}", node.name, of(node.flat), of(node.cumulative)),
        }
    }

    fn draw(&self, scene: &mut Scene, x: f64, y: f64) {
        let (width, height) = self.size;
        scene.shapes.push(Shape::Box {
            x: x - width / 2.0,
            y: y - height / 2.0,
            width,
            height,
            fill: Some(self.fill),
            border: Some(Stroke { colour: self.border, width: 1.0, is_dashed: false }),
        });
        let mut top = y - height / 2.0 + PADDING;
        for (text, size) in &self.lines {
            let line = size * LINE_HEIGHT;
            scene.shapes.push(Shape::Text {
                x,
                y: top + line / 2.0 + size * TO_BASELINE,
                size: *size,
                anchor: Anchor::Middle,
                is_bold: false,
                colour: BLACK,
                text: text.clone(),
            });
            top += line;
        }
    }
}

/// Bold letters are up to a tenth wider.
fn measured(text: &str, size: f64, is_bold: bool) -> f64 {
    font::width(text, size) * if is_bold { 1.1 } else { 1.0 }
}

fn percent(value: f64, total: f64) -> String {
    if total == 0.0 { "-".to_owned() } else { format!("{:.1}%", 100.0 * value / total) }
}

/// Draws the legend at the top left; gives its size.
fn legend(scene: &mut Scene, labels: &Labels<'_>) -> Size {
    let lines = std::iter::once((&labels.title, 14.0, true)).chain(labels.lines.iter().map(|line| (line, 10.0, false)));
    let (mut y, mut width) = (MARGIN, 0.0_f64);
    for (text, size, is_bold) in lines {
        width = width.max(measured(text, size, is_bold));
        let colour = if is_bold { BLACK } else { GREY };
        y += size * LINE_HEIGHT;
        let (x, anchor) = (MARGIN, Anchor::Start);
        scene.shapes.push(Shape::Text { x, y: y - size * 0.25, size, anchor, is_bold, colour, text: text.clone() });
    }
    y += 4.0;
    scene.line((MARGIN, y), (MARGIN + width, y), LINE, 1.0);
    (width, y - MARGIN)
}

fn draw_edge(scene: &mut Scene, route: &Route, (dx, dy): (f64, f64), stroke: Stroke, text: Option<&str>) {
    let mut points: Vec<(f64, f64)> = route.points.iter().map(|(x, y)| (x + dx, y + dy)).collect();
    let [.., before, last] = points[..] else { return };
    // The line ends where the head begins.
    let head = ARROW + stroke.width;
    let down = if last.1 >= before.1 { 1.0 } else { -1.0 };
    let at = points.len() - 1;
    points[at].1 -= down * head * 0.8;
    let mut steps = Vec::new();
    for (at, pair) in points.windows(2).enumerate() {
        let ((x0, y0), (x1, y1)) = (pair[0], pair[1]);
        if at % 2 == 1 {
            steps.push(Step::To((x1, y1)));
        } else {
            let half = f64::midpoint(y0, y1);
            steps.push(Step::Curve((x0, half), (x1, half), (x1, y1)));
        }
    }
    draw_arrow(scene, points[0], steps, last, (0.0, down), stroke);
    if let Some(text) = text {
        edge_text(scene, route.label.0 + dx, route.label.1 + dy, Anchor::Middle, text);
    }
}

fn draw_loop(
    scene: &mut Scene,
    at: usize,
    layout: &Layout,
    (dx, dy): (f64, f64),
    size: Size,
    stroke: Stroke,
    text: Option<&str>,
) {
    let Some(&(x, y)) = layout.routes[at].points.first() else { return };
    let (right, y) = (x + dx + size.0 / 2.0, y + dy);
    let reach = (size.1 / 4.0).min(12.0);
    let head = ARROW + stroke.width;
    let steps =
        vec![Step::Curve((right + LOOP, y + reach), (right + LOOP, y - reach), (right + head * 0.8, y - reach))];
    draw_arrow(scene, (right, y + reach), steps, (right, y - reach), (-1.0, 0.0), stroke);
    if let Some(text) = text {
        edge_text(scene, right + LOOP, y, Anchor::Start, text);
    }
}

/// A line with a head whose point is `tip`, looking along `way`.
fn draw_arrow(
    scene: &mut Scene,
    start: (f64, f64),
    steps: Vec<Step>,
    tip: (f64, f64),
    way: (f64, f64),
    stroke: Stroke,
) {
    let (head, half, colour) = (ARROW + stroke.width, (ARROW + stroke.width) * 0.38, stroke.colour);
    scene.shapes.push(Shape::Path { start, steps, fill: None, stroke: Some(stroke) });
    let base = (tip.0 - way.0 * head, tip.1 - way.1 * head);
    let steps = vec![
        Step::To((base.0 + way.1 * half, base.1 + way.0 * half)),
        Step::To((base.0 - way.1 * half, base.1 - way.0 * half)),
        Step::To(tip),
    ];
    scene.shapes.push(Shape::Path { start: tip, steps, fill: Some(colour), stroke: None });
}

fn edge_text(scene: &mut Scene, x: f64, y: f64, anchor: Anchor, text: &str) {
    // The line is interrupted behind the number.
    let (width, height) = (font::width(text, EDGE_FONT) + 2.0, EDGE_FONT * LINE_HEIGHT);
    if anchor == Anchor::Middle {
        let (x, y) = (x - width / 2.0, y - height / 2.0);
        scene.shapes.push(Shape::Box { x, y, width, height, fill: Some(WHITE), border: None });
    }
    scene.shapes.push(Shape::Text {
        x,
        y: y + EDGE_FONT * TO_BASELINE,
        size: EDGE_FONT,
        anchor,
        is_bold: false,
        colour: GREY,
        text: text.to_owned(),
    });
}

#[cfg(test)]
mod tests {
    use super::{Labels, call_graph};
    use crate::output::graph::{Graph, Limits, select};

    fn drawn(graph: &Graph) -> super::Scene {
        let amount = |value: f64| format!("{value:.1} MiB");
        call_graph(graph, &Labels { title: "server".into(), lines: vec!["10 functions".into()], amount: &amount })
    }

    #[test]
    fn every_name_and_number_is_in_each_form() {
        let keys = ["app::audit_log_append", "main", "walk (inline)"];
        let stacks: [(&[usize], f64); 2] = [(&[0, 1], 30.0), (&[2, 2, 1], 10.0)];
        let scene = drawn(&select(&keys, stacks, &Limits::default()));
        let svg = scene.svg();
        for text in ["audit_log_append", ">main<", ">30.0 MiB (75.0%)<", ">of 40.0 MiB (100.0%)<", "stroke-dasharray"] {
            assert!(svg.contains(text), "{text}: {svg}");
        }
        assert!(scene.postscript().contains("(of 40.0 MiB \\(100.0%\\))"));
        let pdf = scene.pdf();
        let text = String::from_utf8_lossy(&pdf);
        assert!(text.starts_with("%PDF-") && text.contains("audit_log_append"));
    }

    #[test]
    fn an_empty_graph_is_its_legend() {
        assert!(drawn(&Graph::default()).svg().contains(">server<"));
    }
}
