//! A drawing as pixels.
//!
//! 96 pixels to the inch, as Graphviz draws; a picture of more pixels than [`PIXELS_MOST`], or of a longer side than
//! [`SIDE_MOST`], is scaled down.
#![forbid(unsafe_code)]

use tiny_skia::{FillRule, LineCap, Paint, Path, PathBuilder, Pixmap, Rect, StrokeDash, Transform};

use super::letters::{Contour, Letters};
use super::scene::{Anchor, Colour, Scene, Shape, Step, Stroke};

/// Per point.
const SCALE: f64 = 96.0 / 72.0;
/// Pixels of a side; what a GIF can hold.
const SIDE_MOST: f64 = 65_535.0;
/// 128 MiB while it is drawn.
const PIXELS_MOST: f64 = (32 << 20) as f64;
/// Letters of fewer pixels are not drawn: nobody can read them.
const LETTER_LEAST: f64 = 1.5;
/// Width of the line that makes a letter bold, over font size.
const BOLD: f64 = 0.05;

/// Rows from the top, each from the left.
#[derive(Debug)]
pub(super) struct Pixels {
    pub(super) width: u16,
    pub(super) height: u16,
    /// shape `[(red, green, blue); width * height]`.
    pub(super) colours: Vec<Colour>,
}

impl Scene {
    /// The drawing on white.
    pub(super) fn pixels(&self) -> Pixels {
        let (width, height) = (self.width.max(1.0), self.height.max(1.0));
        let scale = SCALE.min(SIDE_MOST / width.max(height)).min((PIXELS_MOST / (width * height)).sqrt());
        let pixels = |length: f64| (length * scale).ceil().clamp(1.0, SIDE_MOST) as u16;
        let (width, height) = (pixels(width), pixels(height));
        let mut canvas = Pixmap::new(width.into(), height.into()).expect("both sides are above 0 and bounded");
        canvas.fill(tiny_skia::Color::WHITE);
        let mut pen = Pen { canvas, scale, letters: Letters::new() };
        let note = pen.letters.lacking(self, |_| true);
        for shape in self.shapes.iter().chain(&note) {
            pen.draw(shape);
        }
        // Nothing is transparent: the background is not.
        let colours =
            pen.canvas.pixels().iter().map(|pixel| Colour(pixel.red(), pixel.green(), pixel.blue())).collect();
        Pixels { width, height, colours }
    }
}

struct Pen {
    canvas: Pixmap,
    scale: f64,
    letters: Letters,
}

impl Pen {
    fn draw(&mut self, shape: &Shape) {
        let transform = Transform::from_scale(self.scale as f32, self.scale as f32);
        match shape {
            Shape::Box { x, y, width, height, fill, border } => {
                let rect = Rect::from_xywh(*x as f32, *y as f32, *width as f32, *height as f32);
                if let Some(rect) = rect {
                    self.path(&PathBuilder::from_rect(rect), *fill, border.as_ref(), transform);
                }
            }
            Shape::Path { start, steps, fill, stroke } => {
                let mut path = PathBuilder::new();
                follow(*start, steps, &mut path);
                if let Some(path) = path.finish() {
                    self.path(&path, *fill, stroke.as_ref(), transform);
                }
            }
            Shape::Text { x, y, size, anchor, is_bold, colour, text } => {
                if size * self.scale >= LETTER_LEAST {
                    self.text((*x, *y), *size, *anchor, *is_bold, *colour, text);
                }
            }
            Shape::Open { .. } | Shape::Close => {}
        }
    }

    fn path(&mut self, path: &Path, fill: Option<Colour>, stroke: Option<&Stroke>, transform: Transform) {
        if let Some(colour) = fill {
            self.canvas.fill_path(path, &paint(colour), FillRule::Winding, transform, None);
        }
        if let Some(Stroke { colour, width, is_dashed }) = stroke {
            let dash = if *is_dashed { StrokeDash::new(vec![4.0, 3.0], 0.0) } else { None };
            let stroke = tiny_skia::Stroke {
                width: *width as f32,
                dash,
                line_cap: LineCap::Butt,
                ..tiny_skia::Stroke::default()
            };
            self.canvas.stroke_path(path, &paint(*colour), &stroke, transform, None);
        }
    }

    fn text(&mut self, at: (f64, f64), size: f64, anchor: Anchor, is_bold: bool, colour: Colour, text: &str) {
        let mut path = PathBuilder::new();
        for Contour { start, steps } in self.letters.outlines(at, size, anchor, text) {
            follow(start, &steps, &mut path);
            path.close();
        }
        let Some(path) = path.finish() else { return };
        let bold = Stroke { colour, width: size * BOLD, is_dashed: false };
        let transform = Transform::from_scale(self.scale as f32, self.scale as f32);
        self.path(&path, Some(colour), Some(&bold).filter(|_| is_bold), transform);
    }
}

fn follow(start: (f64, f64), steps: &[Step], path: &mut PathBuilder) {
    path.move_to(start.0 as f32, start.1 as f32);
    for step in steps {
        match *step {
            Step::To((x, y)) => path.line_to(x as f32, y as f32),
            Step::Curve(a, b, c) => {
                path.cubic_to(a.0 as f32, a.1 as f32, b.0 as f32, b.1 as f32, c.0 as f32, c.1 as f32);
            }
        }
    }
}

fn paint(Colour(red, green, blue): Colour) -> Paint<'static> {
    let mut paint = Paint { anti_alias: true, ..Paint::default() };
    paint.set_color_rgba8(red, green, blue, 255);
    paint
}

#[cfg(test)]
mod tests {
    use super::super::scene::{BLACK, Colour, Scene, Shape};
    use super::{PIXELS_MOST, SIDE_MOST};

    fn scene(width: f64, height: f64) -> Scene {
        Scene { width, height, ..Scene::default() }
    }

    #[test]
    fn shapes_and_letters_are_where_the_drawing_has_them() {
        let mut scene = scene(60.0, 30.0);
        let fill = Some(Colour(200, 100, 50));
        scene.shapes.push(Shape::Box { x: 3.0, y: 3.0, width: 9.0, height: 9.0, fill, border: None });
        scene.text(30.0, 20.0, 12.0, BLACK, "H");
        let pixels = scene.pixels();
        assert_eq!((pixels.width, pixels.height), (80, 40));
        let at = |x: usize, y: usize| pixels.colours[y * 80 + x];
        assert_eq!(at(8, 8), Colour(200, 100, 50));
        assert_eq!(at(20, 8), Colour(255, 255, 255));
        let dark = |x: std::ops::Range<usize>, y: std::ops::Range<usize>| {
            x.flat_map(|x| y.clone().map(move |y| (x, y))).filter(|&(x, y)| at(x, y).0 < 128).count()
        };
        let letter = dark(40..52, 14..27);
        assert!((12..60).contains(&letter), "{letter} dark pixels of a letter");
        assert_eq!(dark(53..80, 0..40), 0, "a letter is no wider than the layout says");
    }

    #[test]
    fn huge_drawings_are_scaled_down() {
        for (width, height) in [(1e6, 10.0), (1e5, 1e5), (0.0, 0.0)] {
            let pixels = scene(width, height).pixels();
            assert!(f64::from(pixels.width.max(pixels.height)) <= SIDE_MOST);
            assert!(pixels.colours.len() as f64 <= PIXELS_MOST * 1.01, "{} pixels", pixels.colours.len());
            assert_eq!(pixels.colours.len(), usize::from(pixels.width) * usize::from(pixels.height));
        }
    }
}
