//! Descriptors of runs of pages.
//!
//! An extent is a run of whole pages of one arena. Its descriptor lives in metadata memory, is never freed, and is
//! recycled inside its arena, so a stale pointer to one reads a valid descriptor, never garbage. I-EXTENT-1: `arena` changes only
//! while the extent is Busy, and no other thread takes one that is leaving its arena, or has, for one of it ([`Extent::is_of`]).
//!
//! | state | who may change the descriptor | moved on by |
//! |---|---|---|
//! | Unused | the arena's `Pages` lock | `Pages` pool |
//! | Active | slab: the lock of its bin; large: the owner of the block | `Pages::dealloc` |
//! | Dirty, Muzzy, Retained, Quick | the arena's `Pages` lock | `Pages` |
//! | Cached | the owner of the cache | `LargeCache` |
//! | Busy | the thread that took it out of a set to purge it, or to give it to another arena | `Pages::settle`, `Pages::take_in` |
//!
//! The first cache line is all that finding, cutting and merging touch; the second is the bitmap of a slab:
//!
//! ```text
//!   0 addr  8 bytes  16 arena  20 nfree  24 state class slab zeroed  28 sampled  32 links  56 usable or samples  │ 64 free
//! ```
//!
//! An extent is in one container at a time: a set's ring, a bin's heap, the pool or a purge's list. They share the links.
//!
//! Fields: `addr`, `bytes`, `usable` as the state says; `arena` the same; `state` lock:Pages, read by anyone as a hint;
//! links as the state says; `free`, `nfree` lock:Bin; `sampled` lock:Bin
//! for a slab, the owner of the block for a large one; read by anyone who holds a block inside, for whom it is exact.
#![forbid(unsafe_code)]

use crate::ds::bitmap::Bitmap;
use crate::ds::heap::HeapNode;
use crate::ds::link::{Link, NumberOrLink};
use crate::ds::list::ListNode;
use crate::prim::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicUsize, Ordering, fence};
use crate::samplemap::SampleMap;

/// What a run of pages is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum State {
    /// No pages; waits in the pool.
    Unused,
    /// A slab or a large block.
    Active,
    /// Free, resident, old contents.
    Dirty,
    /// Free, offered to the kernel.
    Muzzy,
    /// Free, not resident, reads as zero.
    Retained,
    /// Out of the sets while it is being purged or changes hands.
    Busy,
    /// Free, resident, old contents, kept whole for the next of its length.
    Quick,
    /// A large block in a thread's cache.
    Cached,
}

impl State {
    const ALL: [State; 8] = [
        State::Unused,
        State::Active,
        State::Dirty,
        State::Muzzy,
        State::Retained,
        State::Busy,
        State::Quick,
        State::Cached,
    ];
}

/// Descriptor of a run of pages.
#[repr(C, align(64))]
pub(crate) struct Extent {
    addr: AtomicPtr<u8>,
    bytes: AtomicUsize,
    arena: AtomicU32,
    nfree: AtomicU32,
    state: AtomicU8,
    class: AtomicU8,
    slab: AtomicBool,
    zeroed: AtomicBool,
    sampled: AtomicBool,
    links: [Link<Extent>; 3],
    /// Of a large block; or where its sample, or those of a slab of sampled blocks, are found.
    usable: NumberOrLink<SampleMap>,
    pub(crate) free: Bitmap,
}

const _: () = assert!(core::mem::offset_of!(Extent, free) == 64 && size_of::<Extent>() == 128);

impl Extent {
    /// A descriptor without pages.
    pub(crate) const fn unused(arena: u32) -> Extent {
        Extent {
            addr: AtomicPtr::new(core::ptr::null_mut()),
            bytes: AtomicUsize::new(0),
            arena: AtomicU32::new(arena),
            nfree: AtomicU32::new(0),
            state: AtomicU8::new(State::Unused as u8),
            class: AtomicU8::new(0),
            slab: AtomicBool::new(false),
            zeroed: AtomicBool::new(false),
            sampled: AtomicBool::new(false),
            links: [const { Link::null() }; 3],
            usable: NumberOrLink::zero(),
            free: Bitmap::new(),
        }
    }

    /// Makes the descriptor stand for a run of pages.
    pub(crate) fn assign(&self, addr: *mut u8, bytes: usize, state: State, zeroed: bool) {
        // Relaxed, in this file: ordered by the lock that the state names.
        self.addr.store(addr, Ordering::Relaxed);
        self.bytes.store(bytes, Ordering::Relaxed);
        self.slab.store(false, Ordering::Relaxed);
        self.sampled.store(false, Ordering::Relaxed);
        self.zeroed.store(zeroed, Ordering::Relaxed);
        self.set_state(state);
    }

    /// First byte, with provenance over the mapping.
    #[inline]
    pub(crate) fn addr(&self) -> *mut u8 {
        self.addr.load(Ordering::Relaxed)
    }

    /// Length in bytes.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Changes place and length; the caller keeps the page map in step.
    #[inline]
    pub(crate) fn set_range(&self, addr: *mut u8, bytes: usize) {
        self.addr.store(addr, Ordering::Relaxed);
        self.bytes.store(bytes, Ordering::Relaxed);
    }

    /// Bytes of a large block that the client may use; the rest of the extent is reserve that was never touched for it.
    #[inline]
    pub(crate) fn usable(&self) -> usize {
        match self.usable.number() {
            0 => self.usable.link().map_or(0, SampleMap::usable),
            bytes => bytes,
        }
    }

    /// Of a block that is no live sample.
    pub(crate) fn set_usable(&self, bytes: usize) {
        self.usable.set_number(bytes);
    }

    /// Where live samples are found.
    #[inline(always)]
    pub(crate) fn samples(&self) -> Option<&'static SampleMap> {
        self.usable.link()
    }

    /// Gives an extent its map, which says the usable bytes of a large block from now on, until [`Extent::set_usable`].
    pub(crate) fn put_samples(&self, map: &'static SampleMap) {
        self.usable.set_link(map);
    }

    /// Address behind the last byte.
    pub(crate) fn end(&self) -> usize {
        self.addr().addr() + self.bytes()
    }

    /// Index of the arena that owns the pages.
    #[inline]
    pub(crate) fn arena(&self) -> u32 {
        self.arena.load(Ordering::Relaxed)
    }

    /// Gives the pages to another arena: while they are Busy.
    pub(crate) fn set_arena(&self, arena: u32) {
        self.arena.store(arena, Ordering::Relaxed);
        // Release: whoever sees a later state sees this arena; pairs with the Acquire in `is_of`.
        fence(Ordering::Release);
    }

    /// True for an extent in `state` of an arena whose `Pages` lock the caller holds.
    #[inline]
    pub(crate) fn is_of(&self, arena: u32, state: State) -> bool {
        if self.state() != state {
            return false;
        }
        // Acquire: pairs with the Release in `set_arena`.
        fence(Ordering::Acquire);
        self.arena() == arena
    }

    /// Current state; exact under the lock that the state names, a hint otherwise.
    #[inline]
    pub(crate) fn state(&self) -> State {
        State::ALL.get(usize::from(self.state.load(Ordering::Relaxed))).copied().unwrap_or(State::Unused)
    }

    /// True for a slab or a large block in use.
    #[inline]
    pub(crate) fn is_active(&self) -> bool {
        self.state.load(Ordering::Relaxed) == State::Active as u8
    }

    /// True for a large block in use that is no live sample.
    #[inline]
    pub(crate) fn is_plain_large(&self) -> bool {
        self.is_active() && !self.is_slab() && !self.is_sampled()
    }

    pub(crate) fn set_state(&self, state: State) {
        self.state.store(state as u8, Ordering::Relaxed);
    }

    /// Size class of the blocks, or of the block.
    #[inline]
    pub(crate) fn class(&self) -> usize {
        usize::from(self.class.load(Ordering::Relaxed))
    }

    /// True when the pages are cut into regions of a small class.
    #[inline]
    pub(crate) fn is_slab(&self) -> bool {
        self.slab.load(Ordering::Relaxed)
    }

    /// Sets what an active extent is.
    pub(crate) fn set_use(&self, class: usize, slab: bool) {
        self.class.store(class as u8, Ordering::Relaxed);
        self.slab.store(slab, Ordering::Relaxed);
    }

    /// True when every byte reads as zero.
    pub(crate) fn is_zeroed(&self) -> bool {
        self.zeroed.load(Ordering::Relaxed)
    }

    pub(crate) fn set_zeroed(&self, zeroed: bool) {
        self.zeroed.store(zeroed, Ordering::Relaxed);
    }

    /// True for a slab of sampled blocks, and for a large block that is a live sample.
    #[inline]
    pub(crate) fn is_sampled(&self) -> bool {
        self.sampled.load(Ordering::Relaxed)
    }

    pub(crate) fn set_sampled(&self, sampled: bool) {
        self.sampled.store(sampled, Ordering::Relaxed);
    }

    /// Free regions of a slab.
    #[inline]
    pub(crate) fn nfree(&self) -> u32 {
        self.nfree.load(Ordering::Relaxed)
    }

    pub(crate) fn set_nfree(&self, nfree: u32) {
        self.nfree.store(nfree, Ordering::Relaxed);
    }
}

impl HeapNode for Extent {
    fn child(&self) -> &Link<Extent> {
        &self.links[0]
    }
    fn before(&self) -> &Link<Extent> {
        &self.links[1]
    }
    fn after(&self) -> &Link<Extent> {
        &self.links[2]
    }
    fn key(&self) -> usize {
        self.addr().addr()
    }
}

impl ListNode for Extent {
    fn prev(&self) -> &Link<Extent> {
        &self.links[0]
    }
    fn next(&self) -> &Link<Extent> {
        &self.links[1]
    }
}
