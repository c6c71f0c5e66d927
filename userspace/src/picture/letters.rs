//! Letters as outlines, of a font that is part of this program: for forms that cannot leave the choice to their reader.
//!
//! Each text is stretched to the width that the layout gave it. The font has Latin, Greek and Cyrillic letters; what it lacks
//! shows as a question mark, and [`Letters::lacking`] says on the picture that there are some.
#![forbid(unsafe_code)]

use std::collections::{BTreeSet, HashMap};

use epaint_default_fonts::UBUNTU_LIGHT;
use ttf_parser::{Face, OutlineBuilder};

use super::font;
use super::scene::{Anchor, GREY, Scene, Shape, Step};

/// Font size of the line that says what is lacking; it stands in the margin under every picture.
const NOTE_FONT: f64 = 7.0;
const NOTE_LEFT: f64 = 4.0;

/// A closed line.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Contour {
    pub(super) start: (f64, f64),
    pub(super) steps: Vec<Step>,
}

/// Outlines of letters, each made once; lengths over font size, y upwards.
pub(super) struct Letters {
    face: Face<'static>,
    known: HashMap<char, Letter>,
}

#[derive(Default)]
struct Letter {
    contours: Vec<Contour>,
    advance: f64,
}

impl Letters {
    pub(super) fn new() -> Letters {
        let face = Face::parse(UBUNTU_LIGHT, 0).expect("the font of this program is whole");
        Letters { face, known: HashMap::new() }
    }

    /// Outlines of a text where the drawing has it; to be filled, what lies in two of a letter's lines is inside or outside
    /// by the way that they run.
    pub(super) fn outlines(&mut self, (x, y): (f64, f64), size: f64, anchor: Anchor, text: &str) -> Vec<Contour> {
        let wanted = font::width(text, size);
        let own: f64 = text.chars().map(|c| self.get(c).advance).sum::<f64>() * size;
        if own <= 0.0 {
            return Vec::new();
        }
        let mut pen = x - anchor.share() * wanted;
        let across = size * wanted / own;
        let mut contours = Vec::new();
        for c in text.chars() {
            let letter = self.get(c);
            let place = |(dx, dy): (f64, f64)| (pen + dx * across, y - dy * size);
            contours.extend(letter.contours.iter().map(|contour| {
                Contour {
                    start: place(contour.start),
                    steps: contour
                        .steps
                        .iter()
                        .map(|step| match *step {
                            Step::To(to) => Step::To(place(to)),
                            Step::Curve(a, b, to) => Step::Curve(place(a), place(b), place(to)),
                        })
                        .collect(),
                }
            }));
            pen += letter.advance * across;
        }
        contours
    }

    /// A line for the margin about characters that `drawn` texts of a drawing have and the font lacks.
    pub(super) fn lacking(&self, scene: &Scene, is_drawn: impl Fn(&str) -> bool) -> Option<Shape> {
        let texts = scene.shapes.iter().filter_map(|shape| match shape {
            Shape::Text { text, .. } => Some(text.as_str()),
            _ => None,
        });
        let lacking: BTreeSet<char> = texts
            .filter(|text| is_drawn(text))
            .flat_map(str::chars)
            .filter(|&c| self.face.glyph_index(c).is_none())
            .collect();
        let count = lacking.len();
        (count > 0).then(|| Shape::Text {
            x: NOTE_LEFT,
            y: scene.height - NOTE_FONT / 2.0,
            size: NOTE_FONT,
            anchor: Anchor::Start,
            is_bold: false,
            colour: GREY,
            text: format!("? stands for {count} characters that the font of this file lacks; an SVG file has them"),
        })
    }

    fn get(&mut self, c: char) -> &Letter {
        let face = &self.face;
        self.known.entry(c).or_insert_with(|| {
            let Some(glyph) = face.glyph_index(c).or_else(|| face.glyph_index('?')) else { return Letter::default() };
            let unit = 1.0 / f64::from(face.units_per_em());
            let mut outline = Outline { contours: Vec::new(), at: (0.0, 0.0), unit };
            let _box_if_any = face.outline_glyph(glyph, &mut outline);
            let advance = f64::from(face.glyph_hor_advance(glyph).unwrap_or(0)) * unit;
            Letter { contours: outline.contours, advance }
        })
    }
}

/// Takes an outline in the font's units.
struct Outline {
    contours: Vec<Contour>,
    at: (f64, f64),
    unit: f64,
}

impl Outline {
    fn point(&self, x: f32, y: f32) -> (f64, f64) {
        (f64::from(x) * self.unit, f64::from(y) * self.unit)
    }

    fn step(&mut self, step: Step, to: (f64, f64)) {
        self.at = to;
        if let Some(contour) = self.contours.last_mut() {
            contour.steps.push(step);
        }
    }
}

impl OutlineBuilder for Outline {
    fn move_to(&mut self, x: f32, y: f32) {
        self.at = self.point(x, y);
        self.contours.push(Contour { start: self.at, steps: Vec::new() });
    }

    fn line_to(&mut self, x: f32, y: f32) {
        let to = self.point(x, y);
        self.step(Step::To(to), to);
    }

    fn quad_to(&mut self, x1: f32, y1: f32, x: f32, y: f32) {
        // The same curve with two control points: each two thirds of the way to the one.
        let (from, control, to) = (self.at, self.point(x1, y1), self.point(x, y));
        let towards = |(x, y): (f64, f64)| (x + (control.0 - x) * 2.0 / 3.0, y + (control.1 - y) * 2.0 / 3.0);
        self.step(Step::Curve(towards(from), towards(to), to), to);
    }

    fn curve_to(&mut self, x1: f32, y1: f32, x2: f32, y2: f32, x: f32, y: f32) {
        let to = self.point(x, y);
        self.step(Step::Curve(self.point(x1, y1), self.point(x2, y2), to), to);
    }

    fn close(&mut self) {}
}

#[cfg(test)]
mod tests {
    use super::super::scene::{Anchor, BLACK, Scene, Shape, Step};
    use super::Letters;

    #[test]
    fn a_text_is_as_wide_as_the_layout_says() {
        let mut letters = Letters::new();
        for text in ["HH", "данные", "λόγος"] {
            let contours = letters.outlines((100.0, 50.0), 10.0, Anchor::Middle, text);
            let points = contours.iter().flat_map(|contour| {
                contour.steps.iter().map(|step| match *step {
                    Step::To(to) | Step::Curve(_, _, to) => to,
                })
            });
            let (mut left, mut right, mut count) = (f64::MAX, f64::MIN, 0);
            for (x, y) in points {
                (left, right, count) = (left.min(x), right.max(x), count + 1);
                assert!((35.0..55.0).contains(&y), "{text}: {y}");
            }
            let half = crate::picture::font::width(text, 10.0) / 2.0;
            assert!(left >= 99.0 - half && right <= 101.0 + half && count > 8, "{text}: {left} {right}");
            assert!((left + right - 200.0).abs() < 2.0, "{text}: {left} {right}");
        }
    }

    #[test]
    fn what_the_font_lacks_is_said() {
        let letters = Letters::new();
        let mut scene = Scene { width: 90.0, height: 60.0, ..Scene::default() };
        scene.text(1.0, 1.0, 9.0, BLACK, "данные");
        assert_eq!(letters.lacking(&scene, |_| true), None);
        scene.text(1.0, 1.0, 9.0, BLACK, "类::方法");
        let Some(Shape::Text { text, .. }) = letters.lacking(&scene, |_| true) else { panic!("nothing said") };
        assert!(text.starts_with("? stands for 3 characters"), "{text}");
        assert_eq!(letters.lacking(&scene, str::is_ascii), None);
    }
}
