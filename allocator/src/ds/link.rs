//! A nullable pointer to a node that lives for ever, readable and writable through a shared reference.

use crate::prim::{AtomicPtr, AtomicUsize, Ordering};

/// Null or a `&'static T`.
#[repr(transparent)]
pub(crate) struct Link<T: 'static>(AtomicPtr<T>);

impl<T: Sync + 'static> Link<T> {
    /// Null.
    pub(crate) const fn null() -> Link<T> {
        Link(AtomicPtr::new(core::ptr::null_mut()))
    }

    /// The node; the caller holds the lock of the container, or the node was published by [`Link::publish`].
    #[inline(always)]
    pub(crate) fn get(&self) -> Option<&'static T> {
        // Relaxed: ordered by the lock of the container.
        let ptr = self.0.load(Ordering::Relaxed);
        // SAFETY: only `set` and `publish` store here, and they store null or a `&'static T`.
        unsafe { ptr.as_ref() }
    }

    /// Replaces the node, under the lock of the container.
    #[inline(always)]
    pub(crate) fn set(&self, node: Option<&'static T>) {
        self.0.store(as_ptr(node), Ordering::Relaxed);
    }

    /// Publishes a node to threads without a lock.
    pub(crate) fn publish(&self, node: Option<&'static T>) {
        // Release: pairs with the Acquire in `get_published`.
        self.0.store(as_ptr(node), Ordering::Release);
    }

    /// The node that another thread may have published.
    #[inline(always)]
    pub(crate) fn get_published(&self) -> Option<&'static T> {
        // Acquire: pairs with the Release in `publish`.
        let ptr = self.0.load(Ordering::Acquire);
        // SAFETY: as in `get`.
        unsafe { ptr.as_ref() }
    }
}

fn as_ptr<T>(node: Option<&'static T>) -> *mut T {
    node.map_or(core::ptr::null_mut(), |node| core::ptr::from_ref(node).cast_mut())
}

/// An even number, or a node that lives for ever. The owner of the word alone reads and changes it, or someone whom the owner
/// handed it to.
pub(crate) struct NumberOrLink<T: 'static>(AtomicPtr<T>);

impl<T: Sync + 'static> NumberOrLink<T> {
    /// Zero.
    pub(crate) const fn zero() -> NumberOrLink<T> {
        const { assert!(align_of::<T>() > 1) };
        NumberOrLink(AtomicPtr::new(core::ptr::null_mut()))
    }

    /// The number; 0 while it is a link.
    #[inline(always)]
    pub(crate) fn number(&self) -> usize {
        let word = self.0.load(Ordering::Relaxed).addr();
        if word & 1 == 0 { word } else { 0 }
    }

    /// Makes it a number, whose lowest bit is lost.
    #[inline(always)]
    pub(crate) fn set_number(&self, number: usize) {
        debug_assert!(number & 1 == 0);
        self.0.store(core::ptr::without_provenance_mut(number & !1), Ordering::Relaxed);
    }

    /// The node; `None` while it is a number.
    #[inline(always)]
    pub(crate) fn link(&self) -> Option<&'static T> {
        let word = self.0.load(Ordering::Relaxed);
        if word.addr() & 1 == 0 {
            return None;
        }
        // SAFETY: only `set_link` stores odd words: a `&'static T` and one.
        unsafe { word.map_addr(|addr| addr - 1).as_ref() }
    }

    /// Makes it a link.
    #[inline(always)]
    pub(crate) fn set_link(&self, node: &'static T) {
        self.0.store(core::ptr::from_ref(node).cast_mut().map_addr(|addr| addr + 1), Ordering::Relaxed);
    }
}

/// A slice that lives for ever, empty until it is set by the owner.
pub(crate) struct Slice<T: 'static> {
    first: AtomicPtr<T>,
    len: AtomicUsize,
}

impl<T: Sync + 'static> Slice<T> {
    /// Empty.
    pub(crate) const fn empty() -> Slice<T> {
        Slice { first: AtomicPtr::new(core::ptr::null_mut()), len: AtomicUsize::new(0) }
    }

    /// Sets the slice, once. Only the owner reads it, or someone whom the owner published it to.
    pub(crate) fn set(&self, slice: &'static [T]) {
        self.first.store(slice.as_ptr().cast_mut(), Ordering::Relaxed);
        // Release: a reader that sees the length sees the pointer; pairs with the Acquire in `get`.
        self.len.store(slice.len(), Ordering::Release);
    }

    /// One value; `None` beyond the end.
    #[inline(always)]
    pub(crate) fn at(&self, index: usize) -> Option<&'static T> {
        if index >= self.len.load(Ordering::Acquire) {
            return None;
        }
        // SAFETY: as in `get`: the pointer was stored before the length, which is that of a slice.
        let value = unsafe { self.first.load(Ordering::Relaxed).add(index) };
        // SAFETY: one of the values of the slice.
        Some(unsafe { &*value })
    }

    /// The slice.
    pub(crate) fn get(&self) -> &'static [T] {
        let len = self.len.load(Ordering::Acquire);
        if len == 0 {
            return &[];
        }
        // SAFETY: `set` stored the parts of a `&'static [T]`, the pointer before the length.
        unsafe { core::slice::from_raw_parts(self.first.load(Ordering::Relaxed), len) }
    }
}

/// True when both are the same node.
#[inline(always)]
pub(crate) fn same<T>(a: &T, b: &T) -> bool {
    core::ptr::eq(a, b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_a_number_or_a_link_and_never_both() {
        static NODE: u64 = 7;
        let word = NumberOrLink::<u64>::zero();
        assert_eq!((word.number(), word.link()), (0, None));
        word.set_number(4096);
        assert_eq!((word.number(), word.link()), (4096, None));
        word.set_link(&NODE);
        assert_eq!((word.number(), word.link()), (0, Some(&NODE)));
        word.set_number(2);
        assert_eq!((word.number(), word.link()), (2, None));
    }
}
