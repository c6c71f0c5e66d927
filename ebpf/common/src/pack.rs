//! Frames of a stack in few bytes: each as its distance to the one before, since callers mostly lie near what they call.
//!
//! ```text
//!  frame    n bytes, little-endian:   2 … 0  n - 1 │ 8n - 1 … 3  distance to the frame before (0 before the leaf), zigzag
//!  stack    leaf first, in 64-bit words, the last one filled up with zero bytes
//! ```
//!
//! A recursion takes one byte a frame, code of one library two or three, so a packed stack never takes more than the
//! plain one. Distances of more than 61 bits are no distances between addresses of a program: a stack with one stays plain.
#![forbid(unsafe_code)]

/// Bits of a code that say how many bytes it has.
const LENGTH_BITS: u32 = 3;

/// Small for numbers near 0 on either side.
#[inline]
fn zigzag(distance: u64) -> u64 {
    distance << 1 ^ (distance.cast_signed() >> 63).cast_unsigned()
}

#[inline]
fn unzigzag(code: u64) -> u64 {
    code >> 1 ^ (code & 1).wrapping_neg()
}

/// Bytes that a distance takes; above 8 when it cannot be packed.
#[inline]
fn code_bytes(zigzag: u64) -> u32 {
    (u64::BITS - (zigzag | 1).leading_zeros() + LENGTH_BITS + 7) >> 3
}

/// What a distance from one frame to the next is written as: the code's bytes from the lowest on, and how many. `None` when
/// it cannot be packed. Before the leaf stands 0.
#[inline]
pub fn code(from: u64, to: u64) -> Option<(u64, u32)> {
    let distance = zigzag(to.wrapping_sub(from));
    let bytes = code_bytes(distance);
    (bytes <= 8).then_some((distance << LENGTH_BITS | u64::from(bytes - 1), bytes))
}

/// Packs the frames into the first words of `out`; how many, `None` when they cannot be packed or have no room.
#[inline]
pub fn pack(frames: impl Iterator<Item = u64>, out: &mut [u64]) -> Option<usize> {
    let (mut before, mut words) = (0_u64, 0);
    // The word that is not full yet, and how much of it is.
    let (mut word, mut bits) = (0_u64, 0);
    for frame in frames {
        let (code, bytes) = code(before, frame)?;
        before = frame;
        word |= code << bits;
        bits += 8 * bytes;
        if bits >= u64::BITS {
            *out.get_mut(words)? = word;
            words += 1;
            bits -= u64::BITS;
            // What did not fit; nothing when it ended with the word.
            word = code.unbounded_shr(8 * bytes - bits);
        }
    }
    if bits != 0 {
        *out.get_mut(words)? = word;
        words += 1;
    }
    Some(words)
}

/// The frames of a stack, leaf first; fewer than there should be where the words do not hold them.
#[derive(Clone, Debug)]
pub struct Frames<'a> {
    words: &'a [u64],
    left: usize,
    /// Byte that comes next.
    at: usize,
    before: u64,
}

impl<'a> Frames<'a> {
    /// `depth` packed frames.
    pub fn packed(words: &'a [u64], depth: usize) -> Frames<'a> {
        Frames { words, left: depth, at: 0, before: 0 }
    }
}

impl Iterator for Frames<'_> {
    type Item = u64;

    #[inline]
    fn next(&mut self) -> Option<u64> {
        self.left = self.left.checked_sub(1)?;
        let (index, shift) = (self.at / 8, self.at % 8 * 8);
        let mut code = self.words.get(index)? >> shift;
        if shift != 0 {
            code |= self.words.get(index + 1).map_or(0, |word| word << (64 - shift));
        }
        let bytes = (code & ((1 << LENGTH_BITS) - 1)) as usize + 1;
        if self.at + bytes > self.words.len() * 8 {
            self.left = 0;
            return None;
        }
        self.at += bytes;
        // What is of the next frame goes over the top.
        let above = 64 - 8 * bytes;
        self.before = self.before.wrapping_add(unzigzag(code << above >> above >> LENGTH_BITS));
        Some(self.before)
    }
}

/// Fills `frames` from packed ones; false when the words do not hold so many.
pub fn unpack(words: &[u64], frames: &mut [u64]) -> bool {
    let packed = Frames::packed(words, frames.len());
    let found = frames.iter_mut().zip(packed).map(|(to, frame)| *to = frame).count();
    found == frames.len()
}

#[cfg(test)]
mod tests {
    use super::{Frames, pack};
    use std::vec::Vec;

    fn words_of(frames: &[u64]) -> Option<Vec<u64>> {
        let mut words = std::vec![5; frames.len()];
        let count = pack(frames.iter().copied(), &mut words)?;
        words.truncate(count);
        Some(words)
    }

    fn round(frames: &[u64]) -> Vec<u64> {
        let words = words_of(frames).expect("room");
        assert!(words.len() <= frames.len());
        Frames::packed(&words, frames.len()).collect()
    }

    #[test]
    fn what_is_packed_comes_out_again() {
        let mut state = 1_u64;
        let mut random = || {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            state ^ state >> 29
        };
        for depth in 0..=127 {
            for _ in 0..20 {
                // Near and far ones, in 3 to 47 bits of address.
                let frames: Vec<u64> = (0..depth).map(|_| random() >> (17 + random() % 45)).collect();
                assert_eq!(round(&frames), frames);
            }
        }
    }

    #[test]
    fn the_ends_of_each_length() {
        let mut frames = std::vec![0x7fff_0000_0000_u64];
        for bits in [0, 4, 5, 12, 13, 20, 21, 28, 29, 36, 37, 44, 45, 52, 53, 59] {
            let last = frames[frames.len() - 1];
            frames.extend([last.wrapping_add(1 << bits), last.wrapping_sub(1 << bits), last]);
        }
        assert_eq!(round(&frames), frames);
    }

    #[test]
    fn a_recursion_takes_a_byte_a_frame() {
        let frames = [0x5555_5555_1234_u64; 65];
        assert_eq!(words_of(&frames).map(|words| words.len()), Some(9), "7 bytes and 64");
        assert_eq!(round(&frames), frames);
    }

    #[test]
    fn distances_that_no_program_has_are_refused() {
        assert_eq!(words_of(&[1 << 59, 0]).map(|words| words.len()), Some(2));
        assert_eq!(words_of(&[1 << 60]), None);
        assert_eq!(words_of(&[u64::MAX >> 1, 5]), None);
        assert_eq!(words_of(&[u64::MAX]).map(|words| words.len()), Some(1), "one below 0");
        assert_eq!(pack([1, 1 << 59].into_iter(), &mut [0]), None, "no room");
    }

    #[test]
    fn words_that_are_no_stack_give_fewer_frames() {
        assert_eq!(Frames::packed(&[], 3).count(), 0);
        assert_eq!(Frames::packed(&[u64::MAX], 3).count(), 1);
        assert_eq!(Frames::packed(&[0], 127).count(), 8);
        // A code of two bytes of which one is there.
        assert_eq!(Frames::packed(&[1 << 56], 127).count(), 7);
    }
}
