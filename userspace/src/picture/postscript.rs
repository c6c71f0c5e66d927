//! A drawing as PostScript of one page, level 2, as large as the drawing. Texts with characters that its Helvetica lacks are
//! drawn as outlines.
#![forbid(unsafe_code)]

use std::fmt::Write as _;

use super::letters::{Contour, Letters};
use super::pdf::{encoded, is_encodable};
use super::scene::{Colour, Scene, Shape, Step, Stroke};

/// Short names for what shapes are made of. Fonts are taken in Latin 1.
const PROLOGUE: &str = "\
/latin { dup findfont dup length dict begin { 1 index /FID ne { def } { pop pop } ifelse } forall
  /Encoding ISOLatin1Encoding def currentdict end definefont pop } bind def
/Helvetica latin /Helvetica-Bold latin
/w { setlinewidth } bind def /c { setrgbcolor } bind def /d { setdash } bind def
/m { moveto } bind def /l { lineto } bind def /k { curveto } bind def
/b { 4 2 roll moveto exch dup 0 rlineto exch 0 exch rlineto neg 0 rlineto closepath } bind def
/f { gsave c fill grestore } bind def
/t { gsave moveto 1 -1 scale selectfont dup stringwidth pop 3 -1 roll mul neg 0 rmoveto show grestore } bind def
";

impl Scene {
    /// The text of the file.
    pub fn postscript(&self) -> String {
        let mut out = String::new();
        let (width, height) = (self.width.ceil(), self.height.ceil());
        let _in_memory = write!(
            out,
            "%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 {width} {height}\n%%Pages: 1\n%%LanguageLevel: 2\n%%EndComments\n\
             {PROLOGUE}%%Page: 1 1\n<< /PageSize [{width} {height}] >> setpagedevice\ngsave 0 {height} translate 1 -1 scale\n"
        );
        let mut letters = Letters::new();
        let note = letters.lacking(self, |text| !is_encodable(text));
        for shape in self.shapes.iter().chain(&note) {
            draw(shape, &mut letters, &mut out);
        }
        out.push_str("grestore\nshowpage\n%%EOF\n");
        out
    }
}

fn draw(shape: &Shape, letters: &mut Letters, out: &mut String) {
    let _in_memory = match shape {
        Shape::Box { x, y, width, height, fill, border } => {
            let _in_memory = write!(out, "newpath {x:.2} {y:.2} {width:.2} {height:.2} b ");
            paint(*fill, border.as_ref(), out)
        }
        Shape::Path { start, steps, fill, stroke } => {
            out.push_str("newpath ");
            follow(*start, steps, out);
            paint(*fill, stroke.as_ref(), out)
        }
        Shape::Text { x, y, size, anchor, is_bold: _, colour, text } if !is_encodable(text) => {
            out.push_str("newpath ");
            for Contour { start, steps } in letters.outlines((*x, *y), *size, *anchor, text) {
                follow(start, &steps, out);
                out.push_str("closepath ");
            }
            paint(Some(*colour), None, out)
        }
        Shape::Text { x, y, size, anchor, is_bold, colour, text } => {
            let left = anchor.share();
            let font = if *is_bold { "Helvetica-Bold" } else { "Helvetica" };
            writeln!(out, "{} c {left} {} /{font} {size:.1} {x:.2} {y:.2} t", rgb(*colour), string(text))
        }
        Shape::Open { .. } | Shape::Close => Ok(()),
    };
}

fn follow(start: (f64, f64), steps: &[Step], out: &mut String) {
    let _in_memory = write!(out, "{:.2} {:.2} m ", start.0, start.1);
    for step in steps {
        let _in_memory = match step {
            Step::To((x, y)) => write!(out, "{x:.2} {y:.2} l "),
            Step::Curve(a, b, c) => {
                write!(out, "{:.2} {:.2} {:.2} {:.2} {:.2} {:.2} k ", a.0, a.1, b.0, b.1, c.0, c.1)
            }
        };
    }
}

fn paint(fill: Option<Colour>, stroke: Option<&Stroke>, out: &mut String) -> std::fmt::Result {
    if let Some(colour) = fill {
        write!(out, "{} f ", rgb(colour))?;
    }
    if let Some(Stroke { colour, width, is_dashed }) = stroke {
        let dashes = if *is_dashed { "[4 3]" } else { "[]" };
        write!(out, "{width:.2} w {dashes} 0 d {} c stroke", rgb(*colour))?;
    }
    writeln!(out)
}

fn rgb(Colour(red, green, blue): Colour) -> String {
    let part = |part: u8| format!("{:.3}", f64::from(part) / 255.0);
    format!("{} {} {}", part(red), part(green), part(blue))
}

/// A string literal; Latin 1 has no ellipsis.
fn string(text: &str) -> String {
    let mut out = String::from("(");
    for byte in encoded(&text.replace('…', "...")) {
        let _in_memory = match byte {
            b'(' | b')' | b'\\' => write!(out, "\\{}", byte as char),
            b' '..=b'~' => write!(out, "{}", byte as char),
            _ => write!(out, "\\{byte:03o}"),
        };
    }
    out + ")"
}

#[cfg(test)]
mod tests {
    use super::super::scene::{BLACK, Scene};
    use super::string;

    #[test]
    fn other_letters_are_outlines() {
        let mut scene = Scene { width: 90.0, height: 60.0, ..Scene::default() };
        scene.text(1.0, 20.0, 9.0, BLACK, "данные");
        let text = scene.postscript();
        assert!(text.contains(" k ") && text.contains("closepath") && !text.contains("(?"), "{text}");
        assert!(String::from_utf8_lossy(&scene.pdf()).contains(" c\n"));
    }

    #[test]
    fn names_cannot_leave_their_string() {
        assert_eq!(string("f(a)\\é…"), "(f\\(a\\)\\\\\\351...)");
    }
}
