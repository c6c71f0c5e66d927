//! Growth over a series of profiles as a stacked area chart: who held how much at each of them.
//!
//! The largest holders have a band and a name each, the rest is one band; what is held now is at the right. The names
//! stand beside the right end of their bands, moved apart where bands are thin, with a line to the band.
#![forbid(unsafe_code)]

use super::font::{self, TO_BASELINE};
use super::scene::{Anchor, BLACK, Colour, GREY, LINE, Scene, Shape, Step, Stroke};

const PLOT: (f64, f64) = (820.0, 420.0);
const LEFT: f64 = 84.0;
const TOP: f64 = 70.0;
const BOTTOM: f64 = 64.0;
const NAMES: f64 = 330.0;
/// Lines about the numbers, at most; one more says how many are not there.
const REMARKS: usize = 5;
const REMARK_FONT: f64 = 10.0;
const REMARK_STEP: f64 = 14.0;
const NAME_FONT: f64 = 11.0;
const NAME_STEP: f64 = 15.0;
/// Bands are told apart by hue and by neighbouring lightness.
const COLOURS: [Colour; 10] = [
    Colour(0x3b, 0x75, 0xaf),
    Colour(0xef, 0x86, 0x36),
    Colour(0x51, 0x9d, 0x3e),
    Colour(0xc5, 0x3a, 0x32),
    Colour(0x8d, 0x69, 0xb8),
    Colour(0x84, 0x58, 0x4e),
    Colour(0xd5, 0x7d, 0xbf),
    Colour(0xbc, 0xbd, 0x45),
    Colour(0x57, 0xbc, 0xcc),
    Colour(0x4d, 0x4d, 0x9f),
];
const REST: Colour = Colour(0xb8, 0xbe, 0xc6);

/// What is drawn.
pub struct Series<'a> {
    pub title: String,
    pub subtitle: String,
    /// One per profile: what stands under the axis, and its place on it (a time; equal steps when not rising).
    pub moments: Vec<(String, f64)>,
    /// Largest last value first: name and one value per profile. Negative values count as 0.
    pub bands: Vec<(String, Vec<f64>)>,
    /// Everything else.
    pub rest: Vec<f64>,
    /// What is to be known about the numbers, a line each below the axis.
    pub remarks: Vec<String>,
    pub amount: &'a dyn Fn(f64) -> String,
}

/// Draws a series; with one moment it is a single column.
pub fn area(series: &Series<'_>) -> Scene {
    let remarks = remark_lines(&series.remarks);
    let mut scene = Scene {
        width: LEFT + PLOT.0 + NAMES,
        height: TOP + PLOT.1 + BOTTOM + REMARK_STEP * remarks.len() as f64,
        title: series.title.clone(),
        ..Scene::default()
    };
    let title = Shape::Text {
        x: LEFT,
        y: 28.0,
        size: 16.0,
        anchor: Anchor::Start,
        is_bold: true,
        colour: BLACK,
        text: series.title.clone(),
    };
    scene.shapes.push(title);
    scene.text(LEFT, 48.0, 11.0, GREY, series.subtitle.clone());
    let mut bands: Vec<(&str, &[f64], Colour)> = series
        .bands
        .iter()
        .enumerate()
        .map(|(at, (name, values))| (name.as_str(), values.as_slice(), COLOURS[at % COLOURS.len()]))
        .collect();
    if series.rest.iter().any(|value| *value > 0.0) {
        bands.push(("everything else", &series.rest, REST));
    }
    let xs = places(&series.moments);
    let totals: Vec<f64> = (0..xs.len()).map(|at| bands.iter().map(|(_, values, _)| value(values, at)).sum()).collect();
    let (step, count) = lines(totals.iter().copied().fold(0.0, f64::max));
    let top = step * count as f64;
    let y_of = |value: f64| TOP + PLOT.1 * (1.0 - value / top);
    axes(&mut scene, series, &xs, (step, count));
    for (line, at) in remarks.iter().zip(1_u32..) {
        let y = TOP + PLOT.1 + BOTTOM - 20.0 + REMARK_STEP * f64::from(at);
        scene.text(LEFT, y, REMARK_FONT, GREY, font::fitted(line, REMARK_FONT, PLOT.0 + NAMES - 20.0));
    }
    if bands.iter().all(|(_, values, _)| values.iter().all(|value| *value <= 0.0)) {
        let (x, y, size) = (LEFT + PLOT.0 / 2.0, TOP + PLOT.1 / 2.0, 14.0);
        let text = "nothing to show".to_owned();
        scene.shapes.push(Shape::Text { x, y, size, anchor: Anchor::Middle, is_bold: false, colour: GREY, text });
    }

    // From the bottom up; the largest lies lowest, where its shape is not bent by others.
    let mut floor = vec![0.0; xs.len()];
    let mut names = Vec::new();
    for (name, values, colour) in &bands {
        let roof: Vec<f64> = floor.iter().enumerate().map(|(at, below)| below + value(values, at)).collect();
        scene.open("band", None, format!("{name}: {}", (series.amount)(value(values, xs.len().saturating_sub(1)))));
        let point = |at: usize, line: &[f64]| (xs[at], y_of(line[at]));
        let mut steps: Vec<Step> = (1..xs.len()).map(|at| Step::To(point(at, &roof))).collect();
        steps.extend((0..xs.len()).rev().map(|at| Step::To(point(at, &floor))));
        if !xs.is_empty() {
            let stroke = Some(Stroke { colour: Colour(255, 255, 255), width: 0.5, is_dashed: false });
            scene.shapes.push(Shape::Path { start: point(0, &roof), steps, fill: Some(*colour), stroke });
        }
        scene.close();
        let last = xs.len().saturating_sub(1);
        let middle = f64::midpoint(floor.get(last).copied().unwrap_or(0.0), roof.get(last).copied().unwrap_or(0.0));
        names.push((y_of(middle), *name, value(values, last), *colour));
        floor = roof;
    }
    draw_names(&mut scene, &names, series);
    scene
}

fn remark_lines(remarks: &[String]) -> Vec<String> {
    let mut lines = remarks.to_vec();
    if lines.len() > REMARKS + 1 {
        lines.truncate(REMARKS);
        lines.push(format!("and {} more remarks", remarks.len() - REMARKS));
    }
    lines
}

fn value(values: &[f64], at: usize) -> f64 {
    values.get(at).copied().filter(|value| value.is_finite()).unwrap_or(0.0).max(0.0)
}

/// Where on the x axis each moment stands.
fn places(moments: &[(String, f64)]) -> Vec<f64> {
    let rises = moments.windows(2).all(|pair| pair[0].1 < pair[1].1) && moments.len() > 1;
    let steps = moments.len().saturating_sub(1).max(1) as f64;
    let (first, last) = (moments.first().map_or(0.0, |m| m.1), moments.last().map_or(1.0, |m| m.1));
    let share = |at: usize| {
        if rises { (moments[at].1 - first) / (last - first) } else { at as f64 / steps }
    };
    (0..moments.len()).map(|at| LEFT + PLOT.0 * share(at)).collect()
}

/// Lines of the y axis above 0, at most.
const LINES: f64 = 5.0;

/// From line to line of the y axis, and how many lines there are above 0: 1, 2, 2.5 or 5 times a power of ten, so that the
/// largest value lies under the last.
fn lines(value: f64) -> (f64, usize) {
    if value <= 0.0 || !value.is_finite() {
        return (1.0, 1);
    }
    // Byte axes read best in powers of two.
    let unit = 1024_f64.powf(value.log(1024.0).floor().max(0.0));
    let least = value / unit / LINES;
    let power = 10_f64.powf(least.log10().floor());
    let nice = [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().find(|nice| nice * power >= least).unwrap_or(10.0);
    let step = nice * power * unit;
    (step, (value / step).ceil().clamp(1.0, LINES) as usize)
}

fn axes(scene: &mut Scene, series: &Series<'_>, xs: &[f64], (step, count): (f64, usize)) {
    for at in 0..=count {
        let share = at as f64 / count as f64;
        let y = TOP + PLOT.1 * (1.0 - share);
        scene.line((LEFT, y), (LEFT + PLOT.0, y), LINE, 0.7);
        let text = (series.amount)(step * at as f64);
        let (x, y) = (LEFT - 8.0, y + 10.0 * TO_BASELINE);
        scene.shapes.push(Shape::Text { x, y, size: 10.0, anchor: Anchor::End, is_bold: false, colour: GREY, text });
    }
    // As many labels as have room, the last one always.
    let mut taken = f64::INFINITY;
    for (at, x) in xs.iter().enumerate().rev() {
        let text = font::fitted(&series.moments[at].0, 10.0, 150.0);
        let half = font::width(&text, 10.0) / 2.0;
        let base = TOP + PLOT.1;
        if x + half + 8.0 < taken {
            taken = x - half;
            scene.line((*x, base), (*x, base + 5.0), GREY, 1.0);
            let (x, y, size) = (*x, base + 19.0, 10.0);
            scene.shapes.push(Shape::Text { x, y, size, anchor: Anchor::Middle, is_bold: false, colour: GREY, text });
        } else {
            scene.line((*x, base), (*x, base + 3.0), LINE, 1.0);
        }
    }
}

fn draw_names(scene: &mut Scene, names: &[(f64, &str, f64, Colour)], series: &Series<'_>) {
    // From the top down, each at least a line below the one before, all inside the picture.
    let mut ys: Vec<f64> = names.iter().map(|(y, ..)| *y).collect();
    let floor = TOP + PLOT.1 + BOTTOM - 14.0;
    for at in 0..ys.len() {
        let most = if at == 0 { floor } else { ys[at - 1] - NAME_STEP };
        ys[at] = ys[at].min(most);
    }
    for at in (0..ys.len()).rev() {
        let least = if at + 1 == ys.len() { TOP - 10.0 } else { ys[at + 1] + NAME_STEP };
        ys[at] = ys[at].max(least);
    }
    let edge = LEFT + PLOT.0;
    for ((middle, name, last, colour), y) in names.iter().zip(ys) {
        scene.line((edge + 2.0, *middle), (edge + 18.0, y), *colour, 1.2);
        let amount = (series.amount)(*last);
        let room = NAMES - 40.0 - font::width(&amount, NAME_FONT);
        let text = format!("{amount}  {}", font::fitted_end(name, NAME_FONT, room));
        scene.text(edge + 22.0, y + NAME_FONT * TO_BASELINE, NAME_FONT, BLACK, text);
    }
}

#[cfg(test)]
mod tests {
    use super::{Series, area, lines, places};

    #[test]
    fn tops_are_round() {
        const MIB: f64 = 1048576.0;
        for (value, expected) in [
            (0.0, (1.0, 1)),
            (3.0, (1.0, 3)),
            (1025.0, (256.0, 5)),
            (70.0 * MIB, (20.0 * MIB, 4)),
            (259.0 * MIB, (100.0 * MIB, 3)),
        ] {
            let (step, count) = lines(value);
            assert!((step - expected.0).abs() < 1e-6 && count == expected.1, "{value}: {step} {count}");
            assert!(step * count as f64 >= value);
        }
    }

    #[test]
    fn moments_stand_at_their_times_when_these_rise() {
        let named = |times: &[f64]| times.iter().map(|time| (String::new(), *time)).collect::<Vec<_>>();
        let (rising, equal) = (places(&named(&[0.0, 1.0, 4.0])), places(&named(&[3.0, 3.0, 3.0])));
        assert!(rising[1] - rising[0] < rising[2] - rising[1]);
        assert!((equal[1] - equal[0] - (equal[2] - equal[1])).abs() < 1e-9);
    }

    #[test]
    fn odd_series_are_drawn() {
        let amount = |value: f64| format!("{value:.0}");
        for (moments, values) in [(0, vec![]), (1, vec![5.0]), (2, vec![-1.0, f64::NAN]), (3, vec![1.0])] {
            let moments = (0..moments).map(|at| (at.to_string(), 0.0)).collect();
            let bands = vec![("a".repeat(500), values)];
            let (title, subtitle) = ("t".into(), String::new());
            let remarks = (0..9).map(|at| format!("remark {at}{}", "x".repeat(500))).collect();
            let series = Series { title, subtitle, moments, bands, rest: vec![], remarks, amount: &amount };
            let svg = area(&series).svg();
            assert!(!svg.contains("NaN"));
            assert!(svg.contains("remark 4x") && !svg.contains("remark 5x") && svg.contains("and 4 more remarks"));
        }
    }
}
