//! A drawing as SVG: one file, or a part of a page.
//!
//! The file holds a script of a few lines for zoom, moving and search, and no reference to anything outside. Every text
//! carries its width, so that a reader's own font does not run over a border.
#![forbid(unsafe_code)]

use std::fmt::Write as _;

use super::font;
use super::scene::{Anchor, Colour, Scene, Shape, Step, Stroke};

const SCRIPT: &str = include_str!("zoom.js");
const FONTS: &str = "Helvetica, Arial, 'Liberation Sans', sans-serif";

impl Scene {
    /// A file of its own, with zoom, moving and search.
    pub fn svg(&self) -> String {
        let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\" standalone=\"no\"?>\n");
        self.open_svg(&mut out, "width=\"100%\" height=\"100%\"");
        out.push_str("<rect width=\"100%\" height=\"100%\" x=\"0\" y=\"0\" fill=\"#ffffff\" class=\"paper\"/>\n");
        self.body(&mut out);
        let _in_memory = write!(out, "<script><![CDATA[\n{SCRIPT}]]></script>\n</svg>\n");
        out
    }

    /// An element for a page that has its own script and style.
    pub fn svg_element(&self) -> String {
        let mut out = String::new();
        self.open_svg(&mut out, "");
        self.body(&mut out);
        out.push_str("</svg>\n");
        out
    }

    fn open_svg(&self, out: &mut String, size: &str) {
        let _in_memory = writeln!(
            out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" {size} viewBox=\"0 0 {:.1} {:.1}\" role=\"img\" aria-label=\"{}\" \
             font-family=\"{FONTS}\">\n<title>{}</title>",
            self.width,
            self.height,
            escaped(&self.title),
            escaped(&self.title)
        );
    }

    fn body(&self, out: &mut String) {
        out.push_str("<g id=\"viewport\">\n");
        for shape in &self.shapes {
            shape_to(shape, out);
        }
        out.push_str("</g>\n");
    }
}

fn shape_to(shape: &Shape, out: &mut String) {
    let _in_memory = match shape {
        Shape::Box { x, y, width, height, fill, border } => writeln!(
            out,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\"{}{}/>",
            filled(*fill),
            stroked(border.as_ref())
        ),
        Shape::Text { x, y, size, anchor, is_bold, colour, text } => {
            let anchor = match anchor {
                Anchor::Start => "",
                Anchor::Middle => " text-anchor=\"middle\"",
                Anchor::End => " text-anchor=\"end\"",
            };
            let weight = if *is_bold { " font-weight=\"bold\"" } else { "" };
            // Bold letters are a little wider; they are squeezed rather than let out of their box.
            writeln!(
                out,
                "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{size:.1}\" textLength=\"{:.1}\" lengthAdjust=\"spacingAndGlyphs\"\
                 {anchor}{weight} fill=\"{}\">{}</text>",
                font::width(text, *size),
                hex(*colour),
                escaped(text)
            )
        }
        Shape::Path { start, steps, fill, stroke } => {
            let mut path = format!("M{:.1},{:.1}", start.0, start.1);
            for step in steps {
                let _in_memory = match step {
                    Step::To((x, y)) => write!(path, "L{x:.1},{y:.1}"),
                    Step::Curve(a, b, c) => {
                        write!(path, "C{:.1},{:.1} {:.1},{:.1} {:.1},{:.1}", a.0, a.1, b.0, b.1, c.0, c.1)
                    }
                };
            }
            writeln!(out, "<path d=\"{path}\"{}{}/>", filled(*fill), stroked(stroke.as_ref()))
        }
        Shape::Open { kind, key, tip } => {
            let key = key.map_or(String::new(), |key| format!(" data-key=\"{key}\""));
            writeln!(out, "<g class=\"{kind}\"{key}>")
                .and_then(|()| if tip.is_empty() { Ok(()) } else { writeln!(out, "<title>{}</title>", escaped(tip)) })
        }
        Shape::Close => writeln!(out, "</g>"),
    };
}

fn hex(Colour(red, green, blue): Colour) -> String {
    format!("#{red:02x}{green:02x}{blue:02x}")
}

fn filled(fill: Option<Colour>) -> String {
    format!(" fill=\"{}\"", fill.map_or_else(|| "none".to_owned(), hex))
}

fn stroked(stroke: Option<&Stroke>) -> String {
    stroke.map_or(String::new(), |Stroke { colour, width, is_dashed }| {
        let dashes = if *is_dashed { " stroke-dasharray=\"4,3\"" } else { "" };
        format!(" stroke=\"{}\" stroke-width=\"{width:.2}\"{dashes}", hex(*colour))
    })
}

/// Text for XML; characters that XML cannot hold are replaced.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' => out.push(c),
            '\u{0}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            _ => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::scene::{BLACK, Scene};

    #[test]
    fn names_cannot_leave_their_text() {
        let mut scene = Scene { width: 10.0, height: 10.0, title: "a\"<b>&'".into(), ..Scene::default() };
        scene.open("node", Some(3), "]]></script><script>");
        scene.text(0.0, 0.0, 10.0, BLACK, "</text><script>\u{1}");
        scene.close();
        for svg in [scene.svg(), scene.svg_element()] {
            assert!(!svg.contains("</text><script>") && !svg.contains("]]></script><script>\n"), "{svg}");
            assert!(
                svg.contains("aria-label=\"a&quot;&lt;b&gt;&amp;&#39;\"") && svg.contains("data-key=\"3\""),
                "{svg}"
            );
            assert!(!svg.contains('\u{1}'));
        }
    }
}
