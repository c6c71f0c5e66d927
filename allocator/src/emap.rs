//! The page map: from an address to the extent that owns its page.
//!
//! ```text
//!   address  63…47 │ 46 … 30 │ 29 … 12 │ 11 … 0
//!            zero  │ root    │ leaf    │ in the granule of 4 KiB
//!
//!   ROOT [2^17 pointers, 1 MiB of zero pages] ─► leaf [2^18 words, 2 MiB, mapped on demand, never unmapped]
//!
//!   word     63 … 48                │ 47 … 6              │ 5 … 0
//!            fast: offset of the    │ extent descriptor,  │ of a slab: arena,
//!            class's stack, or 0    │ or null             │ its low bits
//! ```
//!
//! | page | word |
//! |---|---|
//! | any page of a slab | extent, fast |
//! | first page of a large block | extent, fast when the class is cached |
//! | last page of a large block of several pages | extent or null, 0 |
//! | first and last page of a free extent | extent, 0 |
//! | any other | null |
//!
//! A slab of sampled blocks and a large block that is a live sample have `fast` 0, so `free` finds the class of an ordinary block with two dependent loads and leaves the fast path for everything else.
//!
//! I-EMAP-1: a word with `fast` != 0 belongs to an active extent. I-EMAP-2: no page inside an extent, other than
//! those of the table above, has a word. I-EMAP-3: a descriptor in a word is never freed (`extent.rs`).
//!
//! Publish order: a leaf is stored into the root with Release after it exists; words are stored Relaxed by the holder
//! of the extent, and reach other threads by whatever hands them the block. Looking up is safe for any address, from
//! any thread, at any time.

use crate::base;
use crate::error::AllocError;
use crate::extent::Extent;
use crate::prim::{AtomicPtr, Ordering};
use crate::ptr::{BlockPtr, UserPtr};
use crate::sizeclass::{GRANULE, LG_GRANULE};
use crate::sys;

const LG_LEAF: u32 = 18;
const LEAF_WORDS: usize = 1 << LG_LEAF;
const LG_ROOT_SHIFT: u32 = LG_GRANULE + LG_LEAF;
const ROOT_WORDS: usize = 1 << (47 - LG_ROOT_SHIFT);
const LEAF_BYTES: usize = LEAF_WORDS * size_of::<Leaf>();
const FAST_SHIFT: u32 = 48;
/// Low bits of a descriptor's address, all zero: the low bits of the arena's index, in the words of a slab.
const ARENA_MASK: usize = align_of::<Extent>() - 1;
const EXTENT_MASK: usize = ((1 << FAST_SHIFT) - 1) & !ARENA_MASK;

/// One word: extent descriptor with the fast offset in the upper 16 bits of the address.
type Leaf = AtomicPtr<Extent>;

/// One entry more than addresses need, always null: a length that is no power of two makes the bound check one compare
/// of the index that is needed anyway. An entry is the address of its leaf less the bytes of the leaves before it, so
/// that a word is found by the whole page number, without a mask.
static ROOT: [AtomicPtr<Leaf>; ROOT_WORDS + 1] = [const { AtomicPtr::new(core::ptr::null_mut()) }; ROOT_WORDS + 1];

/// A page-map word.
#[derive(Clone, Copy)]
pub(crate) struct Word(*mut Extent);

impl Word {
    /// Bytes from the start of a cache to the stack of the class; 0 = leave the fast path.
    #[inline(always)]
    pub(crate) fn fast(self) -> usize {
        self.0.addr() >> FAST_SHIFT
    }

    /// What there is beside the extent.
    #[inline(always)]
    pub(crate) fn tag(self) -> Tag {
        Tag(self.0.addr() & !EXTENT_MASK)
    }

    /// The extent, if the page has one.
    #[inline]
    pub(crate) fn extent(self) -> Option<&'static Extent> {
        let ptr = self.0.map_addr(|addr| addr & EXTENT_MASK);
        // SAFETY: I-EMAP-3: only pointers to descriptors, which live for ever, are stored.
        unsafe { ptr.as_ref() }
    }
}

/// What the words of a class's slabs in an arena have in common: the stack's offset, and low bits of the arena's index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tag(usize);

impl Tag {
    pub(crate) const fn new(fast: usize, arena: u32) -> Tag {
        Tag(fast << FAST_SHIFT | arena as usize & ARENA_MASK)
    }
}

/// The word of an address; null for any address that is not ours.
#[inline(always)]
pub(crate) fn word(addr: usize) -> Word {
    let Some(root) = ROOT.get(addr >> LG_ROOT_SHIFT) else { return Word(core::ptr::null_mut()) };
    // Acquire: pairs with the Release in `ensure`; a plain load on x86-64.
    let leaf = root.load(Ordering::Acquire);
    if leaf.is_null() {
        return Word(core::ptr::null_mut());
    }
    // SAFETY: the bias takes the root's part of the page number away, so this is one of the LEAF_WORDS words of a
    // published leaf, which is never unmapped.
    let word = unsafe { &*leaf.wrapping_add(addr >> LG_GRANULE) };
    // Relaxed: see the publish order in the header.
    Word(word.load(Ordering::Relaxed))
}

/// Finds the extent of a block of ours (I-PTR-1): active, the pointer within it.
#[inline]
pub(crate) fn lookup(ptr: UserPtr) -> Option<(BlockPtr, &'static Extent)> {
    let extent = word(ptr.addr()).extent()?;
    Some((BlockPtr(ptr.0), extent))
}

/// Makes sure that the pages of `addr .. addr + bytes` have words to write to. Called before a chunk is used; after
/// that, writing words cannot fail.
pub(crate) fn ensure(addr: usize, bytes: usize) -> Result<(), AllocError> {
    let first = addr >> LG_ROOT_SHIFT;
    let last = addr.checked_add(bytes - 1).ok_or(AllocError::TooLarge)? >> LG_ROOT_SHIFT;
    let slots = ROOT.get(first..=last).ok_or(AllocError::NoMemory)?;
    let missing = slots.iter().filter(|slot| slot.load(Ordering::Acquire).is_null()).count();
    if missing == 0 {
        return Ok(());
    }
    // One mapping for all: a request of terabytes needs thousands of leaves, which are never touched.
    let block = sys::reserve(missing * LEAF_BYTES, GRANULE).ok_or(AllocError::NoMemory)?;
    base::count_outside(missing * LEAF_BYTES);
    let mut leaf = block.cast::<Leaf>().as_ptr();
    for (slot, index) in slots.iter().zip(first..) {
        if slot.load(Ordering::Acquire).is_null() {
            let biased = leaf.wrapping_sub(index << LG_LEAF);
            // Release: publishes the zeroed leaf; pairs with the Acquire in `word`. A leaf that loses the race, or that
            // another thread made superfluous, stays unused address space.
            let _ = slot.compare_exchange(core::ptr::null_mut(), biased, Ordering::Release, Ordering::Relaxed);
            leaf = leaf.wrapping_add(LEAF_WORDS);
            if leaf.addr() >= block.as_ptr().addr() + missing * LEAF_BYTES {
                break;
            }
        }
    }
    if slots.iter().any(|slot| slot.load(Ordering::Acquire).is_null()) {
        return Err(AllocError::NoMemory);
    }
    Ok(())
}

#[inline]
fn store(addr: usize, extent: Option<&'static Extent>, fast: usize) {
    store_tagged(addr, extent, Tag::new(fast, 0));
}

#[inline]
fn store_tagged(addr: usize, extent: Option<&'static Extent>, tag: Tag) {
    let ptr = extent.map_or(core::ptr::null_mut(), |extent| core::ptr::from_ref(extent).cast_mut());
    let packed = ptr.map_addr(|addr| addr | tag.0);
    let leaf = ROOT.get(addr >> LG_ROOT_SHIFT).map_or(core::ptr::null_mut(), |root| root.load(Ordering::Acquire));
    debug_assert!(!leaf.is_null(), "word stored before `ensure`");
    if leaf.is_null() {
        return;
    }
    // SAFETY: as in `word`.
    let word = unsafe { &*leaf.wrapping_add(addr >> LG_GRANULE) };
    word.store(packed, Ordering::Relaxed);
}

fn last_page(extent: &Extent) -> usize {
    extent.end() - GRANULE
}

/// Writes the words of a free extent.
pub(crate) fn set_free(extent: &'static Extent) {
    store(extent.addr().addr(), Some(extent), 0);
    store(last_page(extent), Some(extent), 0);
}

/// Writes the word of the first page of a free extent.
#[inline]
pub(crate) fn set_start(extent: &'static Extent) {
    store(extent.addr().addr(), Some(extent), 0);
}

/// Writes the word of the last page of a free extent.
#[inline]
pub(crate) fn set_end(extent: &'static Extent) {
    store(last_page(extent), Some(extent), 0);
}

/// Writes the word of a large block; `fast` 0 = not cached.
#[inline]
pub(crate) fn set_large(extent: &'static Extent, fast: usize) {
    store(extent.addr().addr(), Some(extent), fast);
}

/// Writes the words of a slab.
pub(crate) fn set_slab(extent: &'static Extent, fast: usize) {
    let tag = Tag::new(fast, extent.arena());
    for page in pages(extent) {
        store_tagged(page, Some(extent), tag);
    }
}

/// Removes the words inside a slab that ends; the boundary words are left to `set_free`.
pub(crate) fn clear_slab(extent: &'static Extent) {
    for page in pages(extent) {
        store(page, None, 0);
    }
}

/// Removes the words of the pages that touch where two neighbours become one; the outer words stay as they are.
#[inline]
pub(crate) fn clear_inner(below: &'static Extent, above: &'static Extent) {
    if below.bytes() > GRANULE {
        store(last_page(below), None, 0);
    }
    if above.bytes() > GRANULE {
        store(above.addr().addr(), None, 0);
    }
}

/// Removes the words of the ends of an extent.
#[inline]
pub(crate) fn clear_ends(extent: &'static Extent) {
    store(extent.addr().addr(), None, 0);
    store(last_page(extent), None, 0);
}

/// The extent whose last page lies right below `addr`.
pub(crate) fn extent_below(addr: usize) -> Option<&'static Extent> {
    word(addr.wrapping_sub(GRANULE)).extent()
}

/// The extent whose first page is at `addr`.
pub(crate) fn extent_at(addr: usize) -> Option<&'static Extent> {
    word(addr).extent()
}

/// Offers the pages of a busy extent to the kernel; true when it agreed.
pub(crate) fn purge_lazy(extent: &'static Extent) -> bool {
    // SAFETY: S1: a Busy extent is whole pages of ours that nobody uses, taken out of its set by this thread.
    unsafe { sys::purge_lazy(extent.addr(), extent.bytes()) }
}

/// Gives the pages of a busy extent back; true when they read as zero now.
pub(crate) fn purge_forced(extent: &'static Extent) -> bool {
    // SAFETY: S1: as in `purge_lazy`.
    unsafe { sys::purge_forced(extent.addr(), extent.bytes()) }
}

/// Asks for huge pages, or for none, in memory that is not in use yet.
pub(crate) fn advise_huge(chunk: *mut u8, bytes: usize, wanted: bool) {
    // SAFETY: S1: the range is part of a chunk, by the caller. What the kernel refuses is a lost chance, no error.
    unsafe { sys::advise_huge(chunk, bytes, wanted) };
}

/// Brings in the page at `page` of a chunk, which is to be handed out; time of the thread that it took, ns, if the kernel says.
pub(crate) fn touch_ns(page: *mut u8) -> Option<u64> {
    // SAFETY: S1: the page is part of a chunk and its contents are nobody's, by the caller.
    unsafe { sys::touch_ns(page) }
}

/// Bytes of a range of ours that are resident; `None` when the system does not say.
pub(crate) fn resident_bytes(addr: usize, bytes: usize) -> Option<usize> {
    sys::resident_bytes(addr, bytes)
}

/// Unmaps the pages of a busy extent.
pub(crate) fn purge_unmap(extent: &'static Extent) {
    // SAFETY: S1: as in `purge_lazy`; its words were removed.
    unsafe { sys::release(extent.addr(), extent.bytes()) }
}

fn pages(extent: &Extent) -> impl Iterator<Item = usize> {
    (extent.addr().addr()..extent.end()).step_by(GRANULE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extent::State;
    use std::boxed::Box;

    #[test]
    fn wild_addresses_are_unknown() {
        for addr in [0, 1, 4096, 0x7fff_ffff_f000, 1 << 47, usize::MAX, usize::MAX - 4095] {
            assert!(word(addr).extent().is_none() || addr < 1 << 47);
            assert_eq!(word(addr).fast(), 0);
        }
    }

    #[test]
    fn words_follow_the_table() {
        let bytes = 4 * GRANULE;
        let memory = sys::reserve(bytes, GRANULE).expect("memory").as_ptr();
        ensure(memory.addr(), bytes).expect("leaves");
        let extent: &'static Extent = Box::leak(Box::new(Extent::unused(0)));
        extent.assign(memory, bytes, State::Active, true);
        let found = |page: usize| word(memory.addr() + page * GRANULE + 17);
        extent.set_use(3, true);
        set_slab(extent, 96);
        for page in 0..4 {
            assert!(core::ptr::eq(found(page).extent().expect("known"), extent));
            assert_eq!(found(page).fast(), 96);
        }
        set_slab(extent, 0);
        assert!(found(2).fast() == 0 && found(2).extent().is_some());
        clear_slab(extent);
        set_free(extent);
        assert!(found(0).extent().is_some() && found(3).extent().is_some());
        assert!(found(1).extent().is_none() && found(2).extent().is_none());
        assert!(core::ptr::eq(extent_below(memory.addr() + bytes).expect("known"), extent));
        extent.set_use(40, false);
        set_large(extent, 64);
        assert_eq!(found(0).fast(), 64);
        clear_ends(extent);
        assert!(found(0).extent().is_none() && found(3).extent().is_none());
    }

    #[test]
    fn terabytes_need_one_mapping_of_leaves() {
        let addr = 0x1000_0000_0000;
        ensure(addr, 1 << 42).expect("leaves");
        assert!(word(addr + (1 << 41)).extent().is_none());
        store(addr + (1 << 41), None, 0);
    }
}
