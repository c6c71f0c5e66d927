//! Address space for an arena: reserving chunks.
#![forbid(unsafe_code)]

use core::ptr::NonNull;

use super::huge::Fresh;
use super::shared::Shared;
use super::{FIRST_GROWTH_BYTES, Fit, HUGE_PAGE_BYTES, Pages, ROOM};
use crate::bits::{align_down, align_up};
use crate::conf::{self, Thp};
use crate::emap;
use crate::error::AllocError;
use crate::extent::{Extent, State};
use crate::sizeclass::{page_class_bytes, page_index_ceil};
use crate::sys;

/// Growth stops doubling here: 512 MiB a step is 2048 mappings per TiB.
const MAX_GROWTH_BYTES: usize = 512 << 20;
/// An arena takes pieces of shared chunks while less than this is in use in it: the rest of a huge page of its own would
/// be a large part of it.
const SHARING_MAX_BYTES: usize = 8 * HUGE_PAGE_BYTES;
/// A piece is this part of what is in use in the arena, within these bounds.
const PIECE_PART: usize = 16;
const PIECE_MIN_BYTES: usize = 64 << 10;
const PIECE_MAX_BYTES: usize = HUGE_PAGE_BYTES;

impl Pages {
    /// Takes more address space and files it as retained; an extent of at least `need` bytes.
    pub(super) fn grow(&mut self, need: usize, align: usize, fit: Fit) -> Result<&'static Extent, AllocError> {
        if self.active_bytes < SHARING_MAX_BYTES && need <= PIECE_MAX_BYTES {
            while let Some(extent) = self.grow_by_piece(need, fit) {
                if extent.bytes() >= need {
                    return Ok(extent);
                }
            }
        }
        self.grow_by_chunk(need, align)
    }

    /// Takes a piece of a shared chunk, which may be shorter than `need`, the end of one; `None` when there is none to be had.
    fn grow_by_piece(&mut self, need: usize, fit: Fit) -> Option<&'static Extent> {
        let whole = align_up(need, PIECE_MIN_BYTES)?;
        let sparse = self.is_sparse(need, fit);
        let wanted = match fit {
            _ if sparse => whole,
            Fit::Roomy => whole * ROOM,
            Fit::Tight | Fit::Zeroed => self.piece_bytes(whole),
        };
        let fresh = self.fresh_piece(need, sparse);
        self.file_piece(|shared| shared.take(whole, wanted.min(PIECE_MAX_BYTES), sparse, fresh))
    }

    /// Bytes that are taken at a time when `need` are needed.
    pub(super) fn piece_bytes(&self, need: usize) -> usize {
        let piece = align_down(self.active_bytes / PIECE_PART, PIECE_MIN_BYTES);
        need.max(piece.clamp(PIECE_MIN_BYTES, PIECE_MAX_BYTES))
    }

    /// Takes the piece behind an extent, of at least `need` bytes, if it comes next in a shared chunk.
    pub(super) fn grow_behind(&mut self, extent: &Extent, need: usize) -> Option<&'static Extent> {
        if self.active_bytes >= SHARING_MAX_BYTES || need > PIECE_MAX_BYTES {
            return None;
        }
        let fresh = self.fresh_piece(need, false);
        let wanted = align_up(need, PIECE_MIN_BYTES)?;
        self.file_piece(|shared| shared.take_at(extent.end(), wanted, fresh))
    }

    fn fresh_piece(&mut self, need: usize, sparse: bool) -> Fresh {
        let small = self.shared.lock().is_small(&mut self.counted_bytes, self.active_bytes, need);
        Fresh { small: small || sparse, longest: false, probing: self.retain }
    }

    fn file_piece(
        &mut self,
        take: impl FnOnce(&mut Shared) -> Option<(NonNull<u8>, usize)>,
    ) -> Option<&'static Extent> {
        let extent = self.descriptor()?;
        let piece = take(&mut self.shared.lock());
        let Some((addr, bytes)) = piece else {
            self.retire(extent);
            return None;
        };
        extent.assign(addr.as_ptr(), bytes, State::Retained, true);
        Some(self.insert_merged(extent, State::Retained))
    }

    /// Reserves a chunk of at least `need` bytes and files it as retained.
    fn grow_by_chunk(&mut self, need: usize, align: usize) -> Result<&'static Extent, AllocError> {
        let page = sys::page_size();
        let mut bytes = need.max(self.growth_bytes);
        let mut chunk = if bytes > FIRST_GROWTH_BYTES {
            // Whole huge pages.
            bytes = align_up(bytes, HUGE_PAGE_BYTES).unwrap_or(bytes);
            sys::reserve(bytes, HUGE_PAGE_BYTES)
        } else {
            sys::reserve(bytes, page)
        };
        if chunk.is_none() && bytes > need {
            bytes = need;
            chunk = sys::reserve(bytes, page);
        }
        if chunk.is_none() && align > page {
            // The slack may be what does not fit: ask for the alignment itself.
            bytes = need - (align - page);
            chunk = sys::reserve(bytes, align);
        }
        let chunk = chunk.ok_or(AllocError::NoMemory)?;
        if bytes >= self.growth_bytes && self.growth_bytes < MAX_GROWTH_BYTES {
            // Longer than what was asked for last: so long blocks lie side by side, and share the huge pages at their ends.
            let next = page_class_bytes(page_index_ceil(bytes.min(MAX_GROWTH_BYTES)) + 1);
            self.growth_bytes = align_up(next, HUGE_PAGE_BYTES).unwrap_or(next);
        }
        match conf::options().thp {
            Thp::Always => emap::advise_huge(chunk.as_ptr(), bytes, true),
            Thp::Never => emap::advise_huge(chunk.as_ptr(), bytes, false),
            Thp::Default => {}
        }
        let extent = self.descriptor().ok_or(AllocError::NoMemory)?;
        if let Err(error) = emap::ensure(chunk.as_ptr().addr(), bytes) {
            // Without words the chunk cannot be used; it stays reserved, untouched, and is lost.
            self.retire(extent);
            return Err(error);
        }
        extent.assign(chunk.as_ptr(), bytes, State::Retained, true);
        Ok(self.insert_merged(extent, State::Retained))
    }
}
