//! The writer's side of the profile table: the structs of `jeprobe_abi::root` with atomics for their words, typed
//! pointers to them. The segments they are appended to are in `segments.rs`.
//!
//! I-REC-1: records live in base memory, which is never freed or moved; so a [`Ptr`] once made stays valid. I-REC-2: a
//! record is complete before `used_bytes` covers it (Release), and before a [`Link`] leads to it (Release). I-REC-3: a
//! `Ptr` is made only in `segments.rs`, of such a record, and a `Link` holds null or a `Ptr`.
//!
//! Fields: plain ones are written once, before publication; atomic ones say who changes them.

use crate::prim::{AtomicPtr, AtomicU16, AtomicU32, AtomicU64, Ordering};
use core::arch::asm;
use core::cell::Cell;
use core::ffi::{CStr, c_char};
use core::ops::Deref;
use core::ptr::NonNull;

use jeprobe_abi::abi::{ABI_VERSION, MAX_FRAMES, ROOT_MAGIC};
use jeprobe_abi::drops::{DROP_REASONS, Reason};
use jeprobe_abi::pack;
use jeprobe_abi::root;

/// Pointer to a published record or value; may be copied freely and never dangles (I-REC-1).
pub(crate) struct Ptr<T>(pub(super) NonNull<T>);

impl<T> Clone for Ptr<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Ptr<T> {}

// SAFETY: a shared reference to memory that lives for ever.
unsafe impl<T: Sync> Send for Ptr<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Ptr<T> {}

impl<T> Ptr<T> {
    /// The address, for readers outside and for hashing.
    pub(crate) fn addr(self) -> usize {
        self.0.addr().get()
    }

    pub(crate) fn same(self, other: Ptr<T>) -> bool {
        self.0 == other.0
    }
}

impl<T> Deref for Ptr<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: I-REC-1, I-REC-3: points to an initialised value that is never freed; shared changes go through
        // atomics.
        unsafe { self.0.as_ref() }
    }
}

/// An atomic word that is 0 or the address of a record.
#[repr(transparent)]
pub(crate) struct Link<T>(AtomicPtr<T>);

impl<T> Link<T> {
    pub(crate) const fn none() -> Link<T> {
        Link(AtomicPtr::new(core::ptr::null_mut()))
    }

    /// Acquire: pairs with the Release in `set`, so the record behind is complete.
    pub(crate) fn get(&self) -> Option<Ptr<T>> {
        NonNull::new(self.0.load(Ordering::Acquire)).map(Ptr)
    }

    /// Release: pairs with the Acquire in `get`.
    pub(crate) fn set(&self, to: Option<Ptr<T>>) {
        let raw = to.map_or(core::ptr::null_mut(), |ptr| ptr.0.as_ptr());
        // The reader outside reaches the record by this address.
        let _ = raw.expose_provenance();
        self.0.store(raw, Ordering::Release);
    }
}

/// A link and the hash of what it leads to, side by side, so that a search looks only at what it looks for.
pub(crate) struct Slot<T> {
    hash: AtomicU64,
    link: Link<T>,
}

impl<T> Slot<T> {
    /// What the slot holds, and its hash.
    #[inline]
    pub(crate) fn get(&self) -> Option<(u64, Ptr<T>)> {
        // The link first: the hash was stored before it.
        let ptr = self.link.get()?;
        Some((self.hash.load(Ordering::Relaxed), ptr))
    }

    /// Caller is the only writer of a slot that is empty.
    pub(crate) fn fill(&self, hash: u64, ptr: Ptr<T>) {
        // Relaxed: published by the link.
        self.hash.store(hash, Ordering::Relaxed);
        self.link.set(Some(ptr));
    }
}

/// `jeprobe_abi::root::Root`.
#[repr(C)]
pub struct RootCell {
    magic: u64,
    abi_version: u32,
    sizes: [u32; 6],
    pub(crate) state: AtomicU32,
    pub(crate) pid: AtomicU32,
    pub(crate) epoch: AtomicU32,
    pub(crate) prof_active: AtomicU32,
    pub(crate) dump_request: AtomicU32,
    pub(crate) dump_served: AtomicU32,
    pub(crate) lg_sample: AtomicU32,
    pub(crate) opt_prof: AtomicU32,
    pub(crate) opt_accum: AtomicU32,
    pub(crate) max_frames: AtomicU32,
    pad: u32,
    pub(crate) start_ns: AtomicU64,
    pub(crate) samples: AtomicU64,
    pub(crate) frees: AtomicU64,
    pub(crate) dumps: AtomicU64,
    pub(crate) dump_failures: AtomicU64,
    pub(crate) exited_allocated_bytes: AtomicU64,
    pub(crate) exited_deallocated_bytes: AtomicU64,
    drops: [AtomicU64; DROP_REASONS],
    pub(crate) contexts: AtomicPtr<SegmentCell>,
    pub(crate) tctxs: AtomicPtr<SegmentCell>,
    pub(crate) lives: AtomicPtr<SegmentCell>,
    pub(crate) threads: AtomicPtr<SegmentCell>,
    pub(crate) allocated_bytes: AtomicU64,
    pub(crate) active_bytes: AtomicU64,
    pub(crate) resident_bytes: AtomicU64,
    pub(crate) mapped_bytes: AtomicU64,
    pub(crate) text_start: AtomicU64,
    pub(crate) text_end: AtomicU64,
}

/// The table's root: exported by name and described by an ELF note.
#[unsafe(no_mangle)]
pub static jeprobe_root: RootCell = RootCell {
    magic: ROOT_MAGIC,
    abi_version: ABI_VERSION,
    sizes: [
        size_of::<root::Root>() as u32,
        size_of::<root::Segment>() as u32,
        size_of::<root::Context>() as u32,
        size_of::<root::Tctx>() as u32,
        size_of::<root::Live>() as u32,
        size_of::<root::Thread>() as u32,
    ],
    state: AtomicU32::new(root::STATE_UNSET),
    pid: AtomicU32::new(0),
    epoch: AtomicU32::new(0),
    prof_active: AtomicU32::new(0),
    dump_request: AtomicU32::new(0),
    dump_served: AtomicU32::new(0),
    lg_sample: AtomicU32::new(19),
    opt_prof: AtomicU32::new(0),
    opt_accum: AtomicU32::new(0),
    max_frames: AtomicU32::new(MAX_FRAMES as u32),
    pad: 0,
    start_ns: AtomicU64::new(0),
    samples: AtomicU64::new(0),
    frees: AtomicU64::new(0),
    dumps: AtomicU64::new(0),
    dump_failures: AtomicU64::new(0),
    exited_allocated_bytes: AtomicU64::new(0),
    exited_deallocated_bytes: AtomicU64::new(0),
    drops: [const { AtomicU64::new(0) }; DROP_REASONS],
    contexts: AtomicPtr::new(core::ptr::null_mut()),
    tctxs: AtomicPtr::new(core::ptr::null_mut()),
    lives: AtomicPtr::new(core::ptr::null_mut()),
    threads: AtomicPtr::new(core::ptr::null_mut()),
    allocated_bytes: AtomicU64::new(0),
    active_bytes: AtomicU64::new(0),
    resident_bytes: AtomicU64::new(0),
    mapped_bytes: AtomicU64::new(0),
    text_start: AtomicU64::new(0),
    text_end: AtomicU64::new(0),
};

impl RootCell {
    /// Counts one loss.
    pub(crate) fn drop_one(&self, reason: Reason) {
        if let Some(count) = self.drops.get(reason as usize) {
            // Relaxed: a statistic.
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How many losses of one kind there were.
    pub fn drops_of(&self, reason: Reason) -> u64 {
        self.drops.get(reason as usize).map_or(0, |count| count.load(Ordering::Relaxed))
    }

    /// Does what a process outside does to ask for a dump.
    pub fn ask_for_dump(&self) {
        self.dump_request.fetch_add(1, Ordering::Relaxed);
    }

    /// Address by which readers reach the table.
    pub(crate) fn addr(&'static self) -> u64 {
        core::ptr::from_ref(self).expose_provenance() as u64
    }
}

/// What the root said of sampling when a thread last looked: its words from `epoch` to `max_frames`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(16))]
pub(crate) struct Control([u32; 8]);

impl Control {
    /// Such as no root is.
    pub(crate) const NONE: Control = Control([u32::MAX; 8]);

    pub(crate) fn lg_sample(self) -> u32 {
        self.0[4]
    }

    /// Samples are taken, no dump is asked for, and no cumulative counts.
    pub(crate) fn is_plain(self) -> bool {
        let [_, active, request, served, _, _, accum, _] = self.0;
        active != 0 && request == served && accum == 0
    }
}

const _: () = assert!(
    core::mem::offset_of!(RootCell, max_frames) - core::mem::offset_of!(RootCell, epoch) == 28
        && core::mem::offset_of!(RootCell, lg_sample) - core::mem::offset_of!(RootCell, epoch) == 16
);

impl RootCell {
    pub(crate) fn control(&self) -> Control {
        let words = [
            &self.epoch,
            &self.prof_active,
            &self.dump_request,
            &self.dump_served,
            &self.lg_sample,
            &self.opt_prof,
            &self.opt_accum,
            &self.max_frames,
        ];
        Control(words.map(|word| word.load(Ordering::Relaxed)))
    }

    /// Compares all of these words with what they were: by two loads, and with one result.
    #[inline(always)]
    pub(crate) fn is_still(&self, known: &Cell<Control>) -> bool {
        let same: u32;
        // SAFETY: reads the 32 bytes of the words, which anyone may write at any time: in assembly, as Rust has no atomic of that
        // size; each word by itself is whole. The other operand is the caller's, aligned to 16.
        unsafe {
            asm!(
                "movdqu {low}, [{root} + {words}]",
                "movdqu {high}, [{root} + {words} + 16]",
                "pcmpeqd {low}, [{known}]",
                "pcmpeqd {high}, [{known} + 16]",
                "pand {low}, {high}",
                "pmovmskb {same:e}, {low}",
                root = in(reg) core::ptr::from_ref(self),
                known = in(reg) known.as_ptr(),
                words = const core::mem::offset_of!(RootCell, epoch),
                low = out(xmm_reg) _,
                high = out(xmm_reg) _,
                same = out(reg) same,
                options(nostack, readonly, preserves_flags),
            );
        }
        same == 0xffff
    }
}

/// `jeprobe_abi::root::Segment`.
#[repr(C)]
pub(crate) struct SegmentCell {
    pub(super) next: AtomicPtr<SegmentCell>,
    pub(super) kind: u32,
    pub(super) pad: u32,
    pub(super) used_bytes: AtomicU64,
    pub(super) capacity_bytes: u64,
}

/// A counter that one thread at a time changes, and anyone reads.
#[repr(transparent)]
pub(crate) struct Own(AtomicU64);

impl Own {
    pub(crate) const fn new() -> Own {
        Own(AtomicU64::new(0))
    }

    /// Relaxed, here and below: statistics.
    #[inline]
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Caller is its only writer.
    #[inline]
    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// Caller is its only writer.
    #[inline]
    pub(crate) fn add(&self, more: u64) {
        self.set(self.get().wrapping_add(more));
    }
}

/// `jeprobe_abi::root::Counts`.
#[repr(C)]
pub(crate) struct CountsCell {
    objects: AtomicU64,
    bytes: AtomicU64,
    weight_objects8: AtomicU64,
    weight_bytes: AtomicU64,
}

/// What one sample adds to counts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share {
    pub(crate) bytes: u64,
    pub(crate) weight_objects8: u64,
    pub(crate) weight_bytes: u64,
}

impl CountsCell {
    pub(crate) const fn new() -> CountsCell {
        CountsCell {
            objects: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            weight_objects8: AtomicU64::new(0),
            weight_bytes: AtomicU64::new(0),
        }
    }

    // Relaxed throughout: readers expect words that belong to slightly different moments.

    /// Adds from any thread.
    pub(crate) fn add(&self, share: Share) {
        self.objects.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(share.bytes, Ordering::Relaxed);
        self.weight_objects8.fetch_add(share.weight_objects8, Ordering::Relaxed);
        self.weight_bytes.fetch_add(share.weight_bytes, Ordering::Relaxed);
    }

    /// Adds; the caller is the only writer.
    #[inline]
    pub(crate) fn add_own(&self, share: Share) {
        self.change(u64::wrapping_add, share);
    }

    /// Takes off; the caller is the only writer.
    #[inline]
    pub(crate) fn sub_own(&self, share: Share) {
        self.change(u64::wrapping_sub, share);
    }

    #[inline]
    fn change(&self, change: impl Fn(u64, u64) -> u64, share: Share) {
        let apply = |word: &AtomicU64, by| word.store(change(word.load(Ordering::Relaxed), by), Ordering::Relaxed);
        apply(&self.objects, 1);
        apply(&self.bytes, share.bytes);
        apply(&self.weight_objects8, share.weight_objects8);
        apply(&self.weight_bytes, share.weight_bytes);
    }

    pub(crate) fn clear(&self) {
        self.objects.store(0, Ordering::Relaxed);
        self.bytes.store(0, Ordering::Relaxed);
        self.weight_objects8.store(0, Ordering::Relaxed);
        self.weight_bytes.store(0, Ordering::Relaxed);
    }
}

/// `jeprobe_abi::root::Context`, followed by `words` words.
#[repr(C)]
pub(crate) struct ContextCell {
    pub(crate) hash: u64,
    /// lock: `ProfTctxs` to change.
    pub(crate) tctxs: Link<TctxCell>,
    pub(crate) depth: u16,
    pub(crate) words: u16,
    pub(crate) flags: u16,
    /// Its tctxs, as far as they are counted. lock: `ProfTctxs` to change.
    pub(crate) tctxs_count: AtomicU16,
}

/// The frames of a context.
pub(crate) enum StackFrames {
    Packed(pack::Frames<'static>),
    Plain(core::slice::Iter<'static, u64>),
}

impl Iterator for StackFrames {
    type Item = u64;

    #[inline]
    fn next(&mut self) -> Option<u64> {
        match self {
            StackFrames::Packed(frames) => frames.next(),
            StackFrames::Plain(frames) => frames.next().copied(),
        }
    }
}

impl Ptr<ContextCell> {
    #[inline]
    fn words(self) -> &'static [u64] {
        // SAFETY: the words lie behind the record, inside the same segment.
        let start = unsafe { self.0.as_ptr().add(1) }.cast::<u64>();
        // SAFETY: `append` wrote `words` words there before it made this pointer, and nobody writes them again.
        unsafe { core::slice::from_raw_parts(start, self.words.into()) }
    }

    /// The words of the packed frames; `None` when they are plain.
    #[inline]
    pub(crate) fn packed(self) -> Option<&'static [u64]> {
        (self.flags & root::CONTEXT_PLAIN == 0).then(|| self.words())
    }

    /// Leaf first, unit avma.
    pub(crate) fn frames(self) -> StackFrames {
        match self.packed() {
            Some(words) => StackFrames::Packed(pack::Frames::packed(words, self.depth.into())),
            None => StackFrames::Plain(self.words().iter()),
        }
    }
}

/// `jeprobe_abi::root::Tctx`.
#[repr(C)]
pub(crate) struct TctxCell {
    pub(crate) context: Link<ContextCell>,
    pub(crate) next: Link<TctxCell>,
    pub(crate) thread: Link<ThreadCell>,
    /// lock: `ProfTctxs` to change.
    pub(crate) apart: Link<ApartCell>,
    /// By `thread` alone.
    pub(crate) kept: CountsCell,
}

/// `jeprobe_abi::root::Apart`. A cache line, since any thread writes it.
#[repr(C, align(64))]
pub(crate) struct ApartCell {
    /// By others than the thread.
    pub(crate) freed: CountsCell,
    pub(crate) cumulative: CountsCell,
}

impl TctxCell {
    /// Counts of nothing, of no stack and no thread yet.
    pub(crate) const fn blank() -> TctxCell {
        TctxCell {
            context: Link::none(),
            next: Link::none(),
            thread: Link::none(),
            apart: Link::none(),
            kept: CountsCell::new(),
        }
    }
}

/// `jeprobe_abi::root::Live`. Changed by the owner of the block (`lives.rs`), readable by anyone.
#[repr(C)]
pub(crate) struct LiveCell {
    pub(crate) ptr: AtomicPtr<u8>,
    /// 0 while the block is not in use.
    pub(crate) usable_bytes: AtomicU64,
    pub(crate) requested_bytes: AtomicU64,
    pub(crate) weight_bytes: AtomicU64,
    pub(crate) tctx: Link<TctxCell>,
    pub(crate) time_ns: AtomicU64,
    pub(crate) next: Link<LiveCell>,
    pub(crate) state: AtomicU32,
    pub(crate) epoch: AtomicU32,
}

/// `jeprobe_abi::root::Thread`. lock: `ProfThreads` for identity, the thread itself for its counters.
#[repr(C)]
pub(crate) struct ThreadCell {
    pub(crate) uid: AtomicU32,
    pub(crate) tid: AtomicU32,
    pub(crate) alive: AtomicU32,
    pub(crate) pad: u32,
    /// Two words, so that a reader sees a name whole or cut, never mixed within a word.
    pub(crate) name: [AtomicU64; 2],
    pub(crate) samples: Own,
    pub(crate) frees: Own,
    pub(crate) allocated_bytes: AtomicU64,
    pub(crate) deallocated_bytes: AtomicU64,
    /// Live samples of the thread: these less those.
    pub(crate) kept: Own,
    pub(crate) freed: AtomicU64,
}

/// Bytes of a thread's name that are kept, without the NUL.
const NAME_BYTES: usize = 15;

impl Ptr<ThreadCell> {
    /// For the thread itself, which alone changes its name.
    pub(crate) fn name(self) -> &'static CStr {
        let start = self.0.as_ptr().wrapping_byte_add(core::mem::offset_of!(ThreadCell, name)).cast::<c_char>();
        // SAFETY: 16 bytes of which the last is always 0, in memory that is never freed.
        unsafe { CStr::from_ptr(start) }
    }

    pub(crate) fn set_name(self, name: &[u8]) {
        let mut bytes = [0; NAME_BYTES + 1];
        for (to, from) in bytes.iter_mut().take(NAME_BYTES).zip(name) {
            *to = *from;
        }
        for (word, piece) in self.name.iter().zip(bytes.as_chunks::<8>().0) {
            word.store(u64::from_ne_bytes(*piece), Ordering::Relaxed);
        }
    }
}

const _: () = {
    assert!(size_of::<RootCell>() == size_of::<root::Root>());
    assert!(core::mem::offset_of!(RootCell, state) == core::mem::offset_of!(root::Root, state));
    assert!(core::mem::offset_of!(RootCell, prof_active) == core::mem::offset_of!(root::Root, prof_active));
    assert!(core::mem::offset_of!(RootCell, drops) == core::mem::offset_of!(root::Root, drops));
    assert!(core::mem::offset_of!(RootCell, contexts) == core::mem::offset_of!(root::Root, contexts));
    assert!(core::mem::offset_of!(RootCell, text_end) == core::mem::offset_of!(root::Root, text_end));
    assert!(size_of::<SegmentCell>() == size_of::<root::Segment>());
    assert!(core::mem::offset_of!(SegmentCell, used_bytes) == core::mem::offset_of!(root::Segment, used_bytes));
    assert!(size_of::<CountsCell>() == size_of::<root::Counts>());
    assert!(size_of::<ContextCell>() == size_of::<root::Context>());
    assert!(core::mem::offset_of!(ContextCell, depth) == core::mem::offset_of!(root::Context, depth));
    assert!(size_of::<TctxCell>() == size_of::<root::Tctx>());
    assert!(core::mem::offset_of!(TctxCell, apart) == core::mem::offset_of!(root::Tctx, apart));
    assert!(core::mem::offset_of!(TctxCell, kept) == core::mem::offset_of!(root::Tctx, kept));
    assert!(size_of::<ApartCell>() == size_of::<root::Apart>());
    assert!(core::mem::offset_of!(ApartCell, cumulative) == core::mem::offset_of!(root::Apart, cumulative));
    assert!(size_of::<LiveCell>() == size_of::<root::Live>());
    assert!(core::mem::offset_of!(LiveCell, tctx) == core::mem::offset_of!(root::Live, tctx));
    assert!(core::mem::offset_of!(LiveCell, state) == core::mem::offset_of!(root::Live, state));
    assert!(size_of::<ThreadCell>() == size_of::<root::Thread>());
    assert!(core::mem::offset_of!(ThreadCell, name) == core::mem::offset_of!(root::Thread, name));
    assert!(core::mem::offset_of!(ThreadCell, samples) == core::mem::offset_of!(root::Thread, samples));
    assert!(core::mem::offset_of!(ThreadCell, freed) == core::mem::offset_of!(root::Thread, freed));
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_any_word_that_says_whether_to_sample_is_seen() {
        let root = &jeprobe_root;
        let same = Cell::new(root.control());
        // Other tests change them as well.
        assert!((0..1000).any(|_| {
            same.set(root.control());
            root.is_still(&same)
        }));
        for word in 0..8 {
            let mut other = root.control();
            // What nobody sets.
            other.0[word] ^= 0x4000_0000;
            assert!(!root.is_still(&Cell::new(other)), "{word}");
        }
        assert!(!root.is_still(&Cell::new(Control::NONE)));
        assert!(!Control::NONE.is_plain() && Control([7, 1, 3, 3, 19, 1, 0, 127]).is_plain());
        for plain in [Control([7, 0, 3, 3, 19, 1, 0, 127]), Control([7, 1, 4, 3, 19, 1, 0, 127])] {
            assert!(!plain.is_plain());
        }
        assert!(!Control([7, 1, 3, 3, 19, 1, 1, 127]).is_plain());
        assert_eq!(Control([7, 1, 3, 3, 19, 1, 0, 127]).lg_sample(), 19);
    }
}
