//! A drawing as a GIF of one frame.
//!
//! The format has 256 colours. The most frequent ones are taken that are not nearly the same as one taken before; every
//! pixel gets the nearest. Backgrounds, boxes and letters keep theirs: what is lost are shades at their edges.
#![forbid(unsafe_code)]

use std::borrow::Cow;
use std::collections::HashMap;

use gif::{Encoder, EncodingError, Frame};

use super::raster::Pixels;
use super::scene::{Colour, Scene};

const COLOURS: usize = 256;
/// Squared distance below which two colours are nearly the same.
const NEAR: i32 = 3 * 4 * 4;

impl Scene {
    /// The bytes of the file.
    pub fn gif(&self) -> Result<Vec<u8>, EncodingError> {
        let Pixels { width, height, colours } = self.pixels();
        let (palette, place) = palette(&colours);
        let buffer: Vec<u8> = colours.iter().map(|colour| place[colour]).collect();
        drop(colours);
        let table: Vec<u8> = palette.iter().flat_map(|&Colour(red, green, blue)| [red, green, blue]).collect();
        let mut bytes = Vec::new();
        let mut encoder = Encoder::new(&mut bytes, width, height, &table)?;
        encoder.write_frame(&Frame { width, height, buffer: Cow::Owned(buffer), ..Frame::default() })?;
        drop(encoder);
        Ok(bytes)
    }
}

/// The colours of the file, and which of them stands for each of the picture.
fn palette(colours: &[Colour]) -> (Vec<Colour>, HashMap<Colour, u8>) {
    let mut counts: HashMap<Colour, usize> = HashMap::new();
    for run in colours.chunk_by(|a, b| a == b) {
        *counts.entry(run[0]).or_default() += run.len();
    }
    let mut order: Vec<(Colour, usize)> = counts.into_iter().collect();
    order.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
    let mut chosen: Vec<Colour> = Vec::new();
    let few = order.len() <= COLOURS;
    for (colour, _) in &order {
        if chosen.len() == COLOURS {
            break;
        }
        if few || chosen.iter().all(|known| distance(*known, *colour) > NEAR) {
            chosen.push(*colour);
        }
    }
    let nearest = |colour: Colour| {
        let places = chosen.iter().zip(0..=u8::MAX);
        places.min_by_key(|(known, _)| distance(**known, colour)).map_or(0, |(_, place)| place)
    };
    let place = order.iter().map(|(colour, _)| (*colour, nearest(*colour))).collect();
    (chosen, place)
}

fn distance(a: Colour, b: Colour) -> i32 {
    let part = |a: u8, b: u8| (i32::from(a) - i32::from(b)).pow(2);
    part(a.0, b.0) + part(a.1, b.1) + part(a.2, b.2)
}

#[cfg(test)]
mod tests {
    use super::super::scene::{BLACK, Colour, Scene, Shape};
    use super::{COLOURS, palette};

    #[test]
    fn a_reader_finds_the_picture_again() {
        let mut scene = Scene { width: 60.0, height: 30.0, ..Scene::default() };
        let fill = Some(Colour(200, 100, 50));
        scene.shapes.push(Shape::Box { x: 3.0, y: 3.0, width: 9.0, height: 9.0, fill, border: None });
        scene.text(30.0, 20.0, 12.0, BLACK, "keep");
        let bytes = scene.gif().expect("memory");
        let mut options = gif::DecodeOptions::new();
        options.set_color_output(gif::ColorOutput::RGBA);
        let mut decoder = options.read_info(&bytes[..]).expect("a GIF file");
        assert_eq!((decoder.width(), decoder.height()), (80, 40));
        let frame = decoder.read_next_frame().expect("whole").expect("one frame").clone();
        let at = |x: usize, y: usize| &frame.buffer[(y * 80 + x) * 4..][..4];
        assert_eq!((at(8, 8), at(0, 39)), (&[200, 100, 50, 255][..], &[255; 4][..]));
        assert!(decoder.read_next_frame().expect("whole").is_none());
    }

    #[test]
    fn many_colours_become_the_nearest_of_few() {
        let shades: Vec<Colour> = (0..64_u8)
            .flat_map(|red| (0..64_u8).map(move |green| Colour(red * 4, green * 4, 0)))
            .chain([Colour(255, 255, 255); 100])
            .collect();
        let (chosen, place) = palette(&shades);
        assert_eq!((chosen.len(), chosen[0]), (COLOURS, Colour(255, 255, 255)));
        assert_eq!(place.len(), 64 * 64 + 1);
        let white = chosen[usize::from(place[&Colour(255, 255, 255)])];
        assert_eq!(white, Colour(255, 255, 255));
    }
}
