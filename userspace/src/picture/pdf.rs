//! A drawing as a PDF file of one page, as large as the drawing, with text that can be searched and copied.
//!
//! Helvetica is one of the fonts that every reader has, so none is embedded; texts with characters outside its encoding are
//! drawn as outlines. A page is at most 14,400 points wide and high, a limit of readers: larger drawings are scaled down.
#![forbid(unsafe_code)]

use pdf_writer::types::LineCapStyle;
use pdf_writer::{Content, Finish as _, Name, Pdf, Rect, Ref, Str, TextStr};

use super::font;
use super::letters::{Contour, Letters};
use super::scene::{Colour, Scene, Shape, Step, Stroke};

const PAGE_MOST: f64 = 14_400.0;
const PLAIN: Name<'static> = Name(b"F1");
const BOLD: Name<'static> = Name(b"F2");

impl Scene {
    /// The bytes of the file.
    pub fn pdf(&self) -> Vec<u8> {
        let [catalog, pages, page, plain, bold, content, info] = [1, 2, 3, 4, 5, 6, 7].map(Ref::new);
        let scale = (PAGE_MOST / self.width.max(self.height).max(1.0)).min(1.0);
        let (width, height) = ((self.width * scale) as f32, (self.height * scale) as f32);
        let mut pdf = Pdf::new();
        pdf.catalog(catalog).pages(pages);
        pdf.pages(pages).kids([page]).count(1);
        let mut leaf = pdf.page(page);
        leaf.media_box(Rect::new(0.0, 0.0, width.max(1.0), height.max(1.0))).parent(pages).contents(content);
        leaf.resources().fonts().pair(PLAIN, plain).pair(BOLD, bold);
        leaf.finish();
        for (id, name) in [(plain, &b"Helvetica"[..]), (bold, b"Helvetica-Bold")] {
            pdf.type1_font(id).base_font(Name(name)).encoding_predefined(Name(b"WinAnsiEncoding"));
        }
        pdf.document_info(info).title(TextStr(&self.title)).producer(TextStr("jeprobe"));
        let mut drawn = Content::new();
        // From here on y grows downwards, as in the drawing.
        drawn.transform([scale as f32, 0.0, 0.0, -scale as f32, 0.0, height]);
        drawn.set_line_cap(LineCapStyle::ButtCap);
        let mut letters = Letters::new();
        let note = letters.lacking(self, |text| !is_encodable(text));
        for shape in self.shapes.iter().chain(&note) {
            draw(shape, &mut letters, &mut drawn);
        }
        pdf.stream(content, &drawn.finish());
        pdf.finish()
    }
}

fn draw(shape: &Shape, letters: &mut Letters, out: &mut Content) {
    match shape {
        Shape::Box { x, y, width, height, fill, border } => {
            out.rect(*x as f32, *y as f32, *width as f32, *height as f32);
            paint(*fill, border.as_ref(), out);
        }
        Shape::Path { start, steps, fill, stroke } => {
            follow(*start, steps, out);
            paint(*fill, stroke.as_ref(), out);
        }
        Shape::Text { x, y, size, anchor, is_bold: _, colour, text } if !is_encodable(text) => {
            for Contour { start, steps } in letters.outlines((*x, *y), *size, *anchor, text) {
                follow(start, &steps, out);
                out.close_path();
            }
            paint(Some(*colour), None, out);
        }
        Shape::Text { x, y, size, anchor, is_bold, colour, text } => {
            let left = x - anchor.share() * font::width(text, *size);
            let [red, green, blue] = parts(*colour);
            out.set_fill_rgb(red, green, blue);
            out.begin_text().set_font(if *is_bold { BOLD } else { PLAIN }, *size as f32);
            out.set_text_matrix([1.0, 0.0, 0.0, -1.0, left as f32, *y as f32]);
            out.show(Str(&encoded(text))).end_text();
        }
        Shape::Open { .. } | Shape::Close => {}
    }
}

fn follow(start: (f64, f64), steps: &[Step], out: &mut Content) {
    out.move_to(start.0 as f32, start.1 as f32);
    for step in steps {
        match *step {
            Step::To((x, y)) => out.line_to(x as f32, y as f32),
            Step::Curve(a, b, c) => {
                out.cubic_to(a.0 as f32, a.1 as f32, b.0 as f32, b.1 as f32, c.0 as f32, c.1 as f32)
            }
        };
    }
}

fn paint(fill: Option<Colour>, stroke: Option<&Stroke>, out: &mut Content) {
    if let Some(colour) = fill {
        let [red, green, blue] = parts(colour);
        out.set_fill_rgb(red, green, blue);
    }
    if let Some(Stroke { colour, width, is_dashed }) = stroke {
        let [red, green, blue] = parts(*colour);
        out.set_stroke_rgb(red, green, blue).set_line_width(*width as f32);
        out.set_dash_pattern(
            if *is_dashed { [4.0, 3.0] } else { [0.0; 2] }.into_iter().filter(|dash| *dash > 0.0),
            0.0,
        );
    }
    match (fill.is_some(), stroke.is_some()) {
        (true, true) => out.fill_nonzero_and_stroke(),
        (true, false) => out.fill_nonzero(),
        (false, true) => out.stroke(),
        (false, false) => out.end_path(),
    };
}

fn parts(Colour(red, green, blue): Colour) -> [f32; 3] {
    [red, green, blue].map(|part| f32::from(part) / 255.0)
}

/// Whether [`encoded`] has every character of a text.
pub(super) fn is_encodable(text: &str) -> bool {
    text.chars().all(|c| code(c).is_some())
}

/// Text in `WinAnsi`.
pub(super) fn encoded(text: &str) -> Vec<u8> {
    text.chars().map(|c| code(c).unwrap_or(b'?')).collect()
}

/// A character in `WinAnsi`, which agrees with Latin 1 outside 0x80 to 0x9f; `None` for what it lacks.
fn code(c: char) -> Option<u8> {
    match c {
        ' '..='~' | '\u{a0}'..='\u{ff}' => Some(c as u32 as u8),
        '…' => Some(0x85),
        '–' => Some(0x96),
        '—' => Some(0x97),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::encoded;

    #[test]
    fn what_the_font_lacks_is_a_question_mark() {
        assert_eq!(encoded("aé…→"), [b'a', 0xe9, 0x85, b'?']);
    }
}
