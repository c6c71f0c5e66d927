//! A drawing as a list of shapes: what every picture here is before it becomes SVG, PDF, PostScript or pixels.
//!
//! Units are points, 1/72 inch, taken as pixels on screens; the origin is at the top left and y grows downwards. Shapes are
//! drawn in order. A group says what its shapes stand for; only SVG keeps that, for scripts and for tooltips.
#![forbid(unsafe_code)]

/// Red, green, blue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Colour(pub u8, pub u8, pub u8);

pub(super) const BLACK: Colour = Colour(0x1f, 0x23, 0x28);
pub(super) const GREY: Colour = Colour(0x6e, 0x77, 0x81);
pub(super) const LINE: Colour = Colour(0xd0, 0xd7, 0xde);

impl Colour {
    /// Between this and another, `share` from 0 to 1.
    pub(super) fn towards(self, other: Colour, share: f64) -> Colour {
        let mix = |a: u8, b: u8| (f64::from(a) + (f64::from(b) - f64::from(a)) * share.clamp(0.0, 1.0)).round() as u8;
        Colour(mix(self.0, other.0), mix(self.1, other.1), mix(self.2, other.2))
    }
}

/// Where a text stands about its x.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

impl Anchor {
    /// Part of the text's width that stands left of its x.
    pub(super) fn share(self) -> f64 {
        match self {
            Anchor::Start => 0.0,
            Anchor::Middle => 0.5,
            Anchor::End => 1.0,
        }
    }
}

/// A line or a curve.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Stroke {
    pub(super) colour: Colour,
    pub(super) width: f64,
    pub(super) is_dashed: bool,
}

/// A step of a path.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Step {
    To((f64, f64)),
    /// Cubic: two control points and the end.
    Curve((f64, f64), (f64, f64), (f64, f64)),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Shape {
    Box {
        x: f64,
        y: f64,
        width: f64,
        height: f64,
        fill: Option<Colour>,
        border: Option<Stroke>,
    },
    /// `y` is the base line.
    Text {
        x: f64,
        y: f64,
        size: f64,
        anchor: Anchor,
        is_bold: bool,
        colour: Colour,
        text: String,
    },
    Path {
        start: (f64, f64),
        steps: Vec<Step>,
        fill: Option<Colour>,
        stroke: Option<Stroke>,
    },
    /// `kind` is a class name, `key` the number of what it stands for, `tip` a tooltip.
    Open {
        kind: &'static str,
        key: Option<usize>,
        tip: String,
    },
    Close,
}

/// See the module's text.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scene {
    pub(super) width: f64,
    pub(super) height: f64,
    pub(super) title: String,
    pub(super) shapes: Vec<Shape>,
}

impl Scene {
    /// Width and height, in points.
    pub fn size(&self) -> (f64, f64) {
        (self.width, self.height)
    }

    pub(super) fn text(&mut self, x: f64, y: f64, size: f64, colour: Colour, text: impl Into<String>) {
        self.shapes.push(Shape::Text { x, y, size, anchor: Anchor::Start, is_bold: false, colour, text: text.into() });
    }

    pub(super) fn line(&mut self, start: (f64, f64), end: (f64, f64), colour: Colour, width: f64) {
        let stroke = Some(Stroke { colour, width, is_dashed: false });
        self.shapes.push(Shape::Path { start, steps: vec![Step::To(end)], fill: None, stroke });
    }

    pub(super) fn open(&mut self, kind: &'static str, key: Option<usize>, tip: impl Into<String>) {
        self.shapes.push(Shape::Open { kind, key, tip: tip.into() });
    }

    pub(super) fn close(&mut self) {
        self.shapes.push(Shape::Close);
    }
}
