//! Address space for an arena: reserving chunks.
#![forbid(unsafe_code)]

use super::{FIRST_GROWTH_BYTES, HUGE_PAGE_BYTES, Pages};
use crate::bits::align_up;
use crate::conf::{self, Thp};
use crate::emap;
use crate::error::AllocError;
use crate::extent::{Extent, State};
use crate::sizeclass::{page_class_bytes, page_index_ceil};
use crate::sys;

/// Growth stops doubling here: 512 MiB a step is 2048 mappings per TiB.
const MAX_GROWTH_BYTES: usize = 512 << 20;

impl Pages {
    /// Reserves a chunk of at least `need` bytes and files it as retained.
    pub(super) fn grow(&mut self, need: usize, align: usize) -> Result<&'static Extent, AllocError> {
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
