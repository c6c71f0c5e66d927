//! The packed form of the last stack (`jeprobe_abi::pack`), kept from the root on.
//!
//! ```text
//!  bytes   unused … │ leaf │ to its caller │ … │ to the root │ 0 × 8
//!                   └ grows this way
//! ```
//!
//! What is packed of a frame is its distance to the one inside of it, and the root comes last. So a stack that shares its outer
//! frames with the one before shares the end of its packed form, and only the other frames are packed.
#![forbid(unsafe_code)]

extern crate alloc;

use alloc::vec::Vec;

use jeprobe_abi::abi::MAX_FRAMES;
use jeprobe_abi::pack::code;

/// Bytes of a word of the packed form, and at most those of a frame.
const WORD_BYTES: usize = 8;
/// Room for all frames, for the zero bytes behind them and for what the first code writes before its place.
const BYTES: usize = (MAX_FRAMES + 2) * WORD_BYTES;

/// The packed form of frames up to the root.
pub(super) struct Packed {
    /// Empty before the first use, then `BYTES`.
    bytes: Vec<u8>,
}

impl Packed {
    pub(super) const NONE: Packed = Packed { bytes: Vec::new() };

    /// Room for the codes; `None` without memory.
    pub(super) fn prepare(&mut self) -> Option<()> {
        if self.bytes.is_empty() {
            self.bytes.try_reserve_exact(BYTES).ok()?;
            self.bytes.resize(BYTES, 0);
        }
        Some(())
    }

    /// Puts the distance from one frame to the next before the `behind` bytes that are packed; how many then are. `None` when
    /// it cannot be packed, or there is no room.
    #[inline]
    pub(super) fn put(&mut self, from: u64, to: u64, behind: u16) -> Option<u16> {
        let (code, bytes) = code(from, to)?;
        let end = (BYTES - WORD_BYTES).checked_sub(behind.into())?;
        let place = self.bytes.get_mut(end.checked_sub(WORD_BYTES)?..end)?;
        // Ends where the others begin; before it come zero bytes, which the next code replaces.
        place.copy_from_slice(&(code << (u64::BITS - 8 * bytes)).to_le_bytes());
        Some(behind + bytes as u16)
    }

    /// The words of a stack of so many packed bytes.
    #[inline]
    pub(super) fn words(&self, taken: u16) -> &[[u8; WORD_BYTES]] {
        let start = self.bytes.len().saturating_sub(WORD_BYTES + usize::from(taken));
        let rest = self.bytes.get(start..).unwrap_or(&[]);
        // Less than a word stays over of the zero bytes at the end.
        let words = rest.as_chunks::<WORD_BYTES>().0;
        words.get(..usize::from(taken).div_ceil(WORD_BYTES)).unwrap_or(&[])
    }
}
