//! The memory of the profile table: segments of records, values that live for ever, and the process as its own reader.
//!
//! I-REC-1, I-REC-2 and I-REC-3 of `records.rs` are kept here.

use crate::prim::{AtomicPtr, AtomicU64, Ordering, fence};
use core::ptr::NonNull;

use jeprobe_abi::reader::{RemoteMemory, Unreadable};

use super::records::{Link, LiveCell, Ptr, SegmentCell, Slot, jeprobe_root};
use crate::base;
use crate::sys;

/// Largest segment, bytes with its header: below the size from which base memory maps each request by itself.
const MAX_SEGMENT_BYTES: usize = 128 << 10;

const LINE_BYTES: usize = 64;
/// Before a segment: its records, behind the header, then begin with a cache line. Those of 64 and 128 bytes share none
/// with their neighbours, which may be another thread's.
const LEAD_BYTES: usize = LINE_BYTES - size_of::<SegmentCell>();

/// Appends records of one kind; the owner of its lock writes, anyone reads what is published.
pub(crate) struct Appender {
    kind: u32,
    segment: Option<NonNull<SegmentCell>>,
    /// Bytes of the next segment, with its header and what lies before it; 0 = one of a single record each time.
    next_bytes: usize,
    /// Bytes taken from base memory so far.
    pub(crate) taken_bytes: usize,
}

// SAFETY: the segment is base memory (I-REC-1) and only the owner appends to it.
unsafe impl Send for Appender {}

impl Appender {
    pub(crate) const fn new(kind: u32, first_bytes: usize) -> Appender {
        Appender { kind, segment: None, next_bytes: first_bytes, taken_bytes: 0 }
    }

    /// Appends `record`, followed by `words` words, the first of `tail` (0 where it has fewer); `None` without memory.
    /// Other appenders may share `head`.
    pub(crate) fn append<T>(
        &mut self,
        head: &AtomicPtr<SegmentCell>,
        record: T,
        words: usize,
        tail: impl Iterator<Item = u64>,
    ) -> Option<Ptr<T>> {
        const { assert!(size_of::<T>().is_multiple_of(8) && align_of::<T>() == 8) };
        let bytes = size_of::<T>() + words * 8;
        let segment = match self.segment {
            Some(segment) if room(segment) >= bytes => segment,
            _ => self.grow(head, bytes)?,
        };
        // SAFETY: I-REC-1: base memory, initialised by `grow`.
        let header = unsafe { segment.as_ref() };
        // Relaxed: only this owner stores it.
        let used = header.used_bytes.load(Ordering::Relaxed);
        // SAFETY: `room` says that `used + bytes` fits behind the header, in the same base memory.
        let place = unsafe { segment.byte_add(size_of::<SegmentCell>() + used as usize) }.cast::<T>();
        // SAFETY: unpublished memory of the right size and alignment, see above.
        unsafe { place.write(record) };
        // SAFETY: as above; the tail follows the record.
        let mut word = unsafe { place.add(1) }.cast::<u64>();
        for value in tail.chain(core::iter::repeat(0)).take(words) {
            // SAFETY: one of the `words` words behind the record, which nobody else reaches before they are published.
            unsafe { word.write(value) };
            // SAFETY: at most one past the last of these words.
            word = unsafe { word.add(1) };
        }
        // Release: pairs with the Acquire of a reader in this process; one outside reads this word first.
        header.used_bytes.store(used + bytes as u64, Ordering::Release);
        Some(Ptr(place))
    }

    #[cold]
    fn grow(&mut self, head: &AtomicPtr<SegmentCell>, record_bytes: usize) -> Option<NonNull<SegmentCell>> {
        let bytes = self.next_bytes.max(LEAD_BYTES + size_of::<SegmentCell>() + record_bytes);
        let place = base::alloc(bytes, LINE_BYTES)?;
        // SAFETY: at least `LEAD_BYTES` and a header lie there.
        let segment = unsafe { place.byte_add(LEAD_BYTES) }.cast::<SegmentCell>();
        // The reader outside, and the process as its own reader, come by address.
        let _ = segment.as_ptr().expose_provenance();
        let header = SegmentCell {
            next: AtomicPtr::new(core::ptr::null_mut()),
            kind: self.kind,
            pad: 0,
            used_bytes: AtomicU64::new(0),
            capacity_bytes: (bytes - LEAD_BYTES - size_of::<SegmentCell>()) as u64,
        };
        // SAFETY: fresh base memory of at least that size, aligned to 8.
        unsafe { segment.write(header) };
        // SAFETY: initialised above.
        let header = unsafe { segment.as_ref() };
        let mut first = head.load(Ordering::Relaxed);
        loop {
            header.next.store(first, Ordering::Relaxed);
            // Release: publishes the header to whoever follows the head.
            match head.compare_exchange_weak(first, segment.as_ptr(), Ordering::Release, Ordering::Relaxed) {
                Ok(_) => break,
                Err(now) => first = now,
            }
        }
        self.segment = Some(segment);
        self.taken_bytes += bytes;
        self.next_bytes = (self.next_bytes * 2).min(MAX_SEGMENT_BYTES);
        Some(segment)
    }
}

fn room(segment: NonNull<SegmentCell>) -> usize {
    // SAFETY: I-REC-1: base memory, initialised by `grow`.
    let header = unsafe { segment.as_ref() };
    (header.capacity_bytes - header.used_bytes.load(Ordering::Relaxed)) as usize
}

/// A value in memory that is never freed.
pub(crate) fn alloc_value<T>(value: T) -> Option<Ptr<T>> {
    let place = base::alloc(size_of::<T>(), align_of::<T>())?.cast::<T>();
    // SAFETY: fresh memory of the right size and alignment.
    unsafe { place.write(value) };
    Some(Ptr(place))
}

/// Types for which zero bytes are a valid value.
///
/// # Safety
/// B1: all bytes zero is a value of the type.
pub(crate) unsafe trait Blank {}

// SAFETY: B1: zero is an empty link.
unsafe impl<T> Blank for Link<T> {}
// SAFETY: B1: zero is an empty slot.
unsafe impl<T> Blank for Slot<T> {}

/// `count` blank values in memory that is never freed.
pub(crate) fn alloc_blank<B: Blank>(count: usize) -> Option<&'static [B]> {
    let place = base::alloc(count.checked_mul(size_of::<B>())?, 64)?.cast::<B>();
    // SAFETY: base memory is zero, which is a value of the type by B1, and aligned to 64.
    Some(unsafe { core::slice::from_raw_parts(place.as_ptr(), count) })
}

/// Gives the whole pages of values back, which are blank again then. Others may be reading them.
pub(crate) fn give_back<B: Blank>(values: &'static [B]) {
    let page = sys::page_size();
    let (start, end) = (values.as_ptr().addr(), values.as_ptr_range().end.addr());
    let (first, last) = (start.next_multiple_of(page), end - end % page);
    if first < last {
        let pages = values.as_ptr().cast_mut().cast::<u8>().wrapping_byte_add(first - start);
        // SAFETY: whole pages of base memory that holds these values alone, which B1 allows to become zero; they are read as
        // atomics. Not given back when the system refuses.
        let _ = unsafe { sys::purge_forced(pages, last - first) };
    }
}

/// `count` zero bytes in memory that is never freed; the caller is their only user.
pub(crate) fn alloc_bytes(count: usize) -> Option<&'static mut [u8]> {
    let place = base::alloc(count, 64)?;
    // SAFETY: fresh base memory belongs to the caller alone.
    Some(unsafe { core::slice::from_raw_parts_mut(place.as_ptr(), count) })
}

/// Every record of a live sample, in use or not.
pub(crate) fn each_live(mut each: impl FnMut(Ptr<LiveCell>)) {
    // Acquire, in this function: pairs with the Release of what leads there.
    let mut segment = NonNull::new(jeprobe_root.lives.load(Ordering::Acquire));
    while let Some(at) = segment {
        // SAFETY: I-REC-1: base memory, initialised by `grow`.
        let header = unsafe { at.as_ref() };
        let count = header.used_bytes.load(Ordering::Acquire) as usize / size_of::<LiveCell>();
        for i in 0..count {
            // SAFETY: `used_bytes` covers so many records behind the header (I-REC-2), all of this type, as `kind` says.
            let place = unsafe { at.byte_add(size_of::<SegmentCell>() + i * size_of::<LiveCell>()) };
            each(Ptr(place.cast()));
        }
        segment = NonNull::new(header.next.load(Ordering::Acquire));
    }
}

/// The own process as a source for the table's reader. Only for addresses inside the root and the segments, which the
/// reader takes from the table itself.
pub(crate) struct OwnMemory;

impl RemoteMemory for OwnMemory {
    fn read(&self, addr: u64, buf: &mut [u8]) -> Result<(), Unreadable> {
        if !addr.is_multiple_of(8) || addr == 0 {
            return Err(Unreadable { addr });
        }
        // Acquire: pairs with the Release of heads, links and `used_bytes`.
        fence(Ordering::Acquire);
        let mut from = core::ptr::with_exposed_provenance_mut::<u64>(addr as usize);
        for piece in buf.chunks_mut(8) {
            // SAFETY: the table's lists lead only to base memory and the root (I-REC-3), whose addresses were exposed;
            // all records are whole words, so this one exists; other threads change words only by atomics.
            let word = unsafe { AtomicU64::from_ptr(from) };
            let bytes = word.load(Ordering::Relaxed).to_ne_bytes();
            piece.copy_from_slice(bytes.get(..piece.len()).unwrap_or(&bytes));
            from = from.wrapping_add(1);
        }
        Ok(())
    }
}
