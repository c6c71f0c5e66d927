//! Blocks freed by threads of other arenas: a lock-free list that takes whole chains.
//!
//! | field | moved by | order |
//! |---|---|---|
//! | `head` | any thread: one compare-and-swap a chain | Release; pairs with Acquire in `take_all` |
//! | `head` → null | the holder of the bin's lock: one swap | Acquire |
//!
//! ```text
//!   head ─► │ link │ b1 │ b2 │ … │ b7 │ ─► │ link │ b1 │ b2 │ null │ … ─► null      blocks of 64 bytes
//! ```
//!
//! There is no pop of single nodes, hence no ABA problem. The links lie in free blocks; behind its link a node carries the
//! addresses of as many other free blocks as it has room for. So of blocks of 64 bytes seven in eight are touched neither by who
//! gives them nor by who brings them in, whose cache has not their lines. All this is read and written as raw memory, never
//! through a Rust reference, and a block is checked against the page map before it is used.

use crate::prim::{AtomicPtr, Ordering};
#[cfg(not(loom))]
use crate::ptr::BlockPtr;

/// How to reach the link of a node.
pub(crate) trait ChainNode {
    /// Writes the link.
    ///
    /// # Safety
    /// S1: `this` is a node that the caller owns.
    unsafe fn set_next(this: *mut Self, next: *mut Self);
    /// Reads the link.
    ///
    /// # Safety
    /// S1: `this` is a node that the caller owns and whose link was written.
    unsafe fn next(this: *mut Self) -> *mut Self;
}

/// A free block, seen as a node: its first eight bytes are the link.
#[repr(C, align(8))]
pub(crate) struct FreeBlock {
    _opaque: [u8; 8],
}

impl ChainNode for FreeBlock {
    unsafe fn set_next(this: *mut Self, next: *mut Self) {
        // SAFETY: S1; every block has at least eight bytes at a multiple of eight.
        unsafe { this.cast::<*mut Self>().write(next) }
    }

    unsafe fn next(this: *mut Self) -> *mut Self {
        // SAFETY: S1.
        unsafe { this.cast::<*mut Self>().read() }
    }
}

/// Bytes of a node that are used at most.
#[cfg(not(loom))]
const NODE_BYTES_MAX: usize = 512;

/// Addresses that a node of `bytes` carries.
#[cfg(not(loom))]
fn carried(bytes: usize) -> usize {
    bytes.min(NODE_BYTES_MAX) / size_of::<*mut u8>() - 1
}

/// A chain of free blocks under construction.
#[cfg(not(loom))]
pub(crate) struct Chain {
    first: *mut FreeBlock,
    last: *mut FreeBlock,
    len: u32,
    /// Addresses that a node carries.
    carried: usize,
    /// How many more the first node has room for.
    room: usize,
}

#[cfg(not(loom))]
impl Chain {
    /// Empty, for blocks of `bytes`.
    pub(crate) fn new(bytes: usize) -> Chain {
        let none = core::ptr::null_mut();
        Chain { first: none, last: none, len: 0, carried: carried(bytes), room: 0 }
    }

    /// True without blocks.
    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_null()
    }

    /// Number of blocks.
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    /// Adds a block that its client freed, of the chain's length. Its address goes into the first node, if there is room;
    /// otherwise its first bytes become a node's.
    #[inline]
    #[expect(clippy::cast_ptr_alignment, reason = "every block lies at a multiple of eight")]
    pub(crate) fn add(&mut self, block: BlockPtr) {
        self.len += 1;
        if self.room > 0 {
            self.write_next(block.0);
            self.room -= 1;
            return;
        }
        let node = block.0.cast::<FreeBlock>();
        // SAFETY: S1: a `BlockPtr` that reached a cache is freed memory of ours, owned by that cache.
        unsafe { FreeBlock::set_next(node, self.first) };
        if self.last.is_null() {
            self.last = node;
        }
        self.first = node;
        self.room = self.carried;
    }

    /// Writes the next of the addresses that the first node carries, for which it has room.
    #[inline]
    fn write_next(&self, address: *mut u8) {
        let place = self.first.cast::<*mut u8>().wrapping_add(1 + self.carried - self.room);
        // SAFETY: the first node is a block that `add` was given; the words behind its link, `carried` of them, lie in it.
        unsafe { place.write(address) };
    }

    /// Says where the addresses that the first node carries end.
    fn end(&self) {
        if self.room > 0 {
            self.write_next(core::ptr::null_mut());
        }
    }
}

/// The list.
pub(crate) struct RemoteList<N> {
    head: AtomicPtr<N>,
}

impl<N: ChainNode> RemoteList<N> {
    /// Empty.
    #[cfg(not(loom))]
    pub(crate) const fn new() -> RemoteList<N> {
        RemoteList { head: AtomicPtr::new(core::ptr::null_mut()) }
    }

    /// Empty.
    #[cfg(loom)]
    pub(crate) fn new() -> RemoteList<N> {
        RemoteList { head: AtomicPtr::new(core::ptr::null_mut()) }
    }

    /// True when nothing waits; a hint.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        // Relaxed: a hint, nothing is read because of it.
        self.head.load(Ordering::Relaxed).is_null()
    }

    /// Adds the chain `first … last`.
    ///
    /// # Safety
    /// S1: the chain is linked from `first` to `last`, all its nodes are free and owned by the caller, who gives them
    /// up.
    pub(crate) unsafe fn push_chain(&self, first: *mut N, last: *mut N) {
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            // SAFETY: S1: `last` is owned until the exchange succeeds.
            unsafe { N::set_next(last, head) };
            // Release: publishes the links; pairs with the Acquire in `take_all`.
            match self.head.compare_exchange_weak(head, first, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => head = now,
            }
        }
    }

    /// Takes everything, as a chain that ends in null.
    pub(crate) fn take_all(&self) -> *mut N {
        // Acquire: pairs with the Release in `push_chain`.
        self.head.swap(core::ptr::null_mut(), Ordering::Acquire)
    }
}

#[cfg(not(loom))]
impl RemoteList<FreeBlock> {
    /// Adds a chain that is not empty.
    pub(crate) fn push(&self, chain: &Chain) {
        if !chain.is_empty() {
            chain.end();
            // SAFETY: S1 by `Chain`: linked from first to last, made of freed blocks, and given up here.
            unsafe { self.push_chain(chain.first, chain.last) };
        }
    }

    /// Takes everything, chains of blocks of `bytes`, and reports each block, which the receiver then owns.
    pub(crate) fn drain(&self, bytes: usize, mut each: impl FnMut(*mut u8)) {
        let mut node = self.take_all();
        while !node.is_null() {
            // SAFETY: S1: nodes taken from the list belong to this thread, and their links were written by `Chain`.
            let next = unsafe { FreeBlock::next(node) };
            for word in 1..=carried(bytes) {
                let place = node.cast::<*mut u8>().wrapping_add(word);
                // SAFETY: as above; the words up to the first null were written by `Chain`, and all lie in the block.
                let block = unsafe { place.read() };
                if block.is_null() {
                    break;
                }
                each(block);
            }
            each(node.cast());
            node = next;
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::vec::Vec;

    #[test]
    fn blocks_of_any_size_arrive_once() {
        for words in [1, 2, 3, 8, 64, 100] {
            let bytes = words * size_of::<usize>();
            for counts in [&[1][..], &[2], &[words, 1], &[words + 1, 3], &[0, 500]] {
                let list = RemoteList::<FreeBlock>::new();
                let total: usize = counts.iter().sum();
                let mut memory = std::vec![usize::MAX; total * words];
                let blocks: Vec<*mut u8> = memory.chunks_mut(words).map(|block| block.as_mut_ptr().cast()).collect();
                let mut rest = &blocks[..];
                for count in counts {
                    let mut chain = Chain::new(bytes);
                    rest[..*count].iter().for_each(|block| chain.add(BlockPtr(*block)));
                    assert_eq!((chain.len() as usize, chain.is_empty()), (*count, *count == 0));
                    list.push(&chain);
                    rest = &rest[*count..];
                }
                let mut seen = Vec::new();
                list.drain(bytes, |block| seen.push(block));
                assert_eq!(seen.len(), total, "{words} words, chains of {counts:?}");
                assert_eq!(seen.iter().collect::<BTreeSet<_>>(), blocks.iter().collect());
                assert!(list.is_empty());
            }
        }
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use loom::cell::UnsafeCell as Tracked;
    use loom::sync::Arc;
    use std::boxed::Box;
    use std::vec::Vec;

    struct Node {
        next: Tracked<*mut Node>,
        value: u32,
    }

    impl ChainNode for Node {
        unsafe fn set_next(this: *mut Self, next: *mut Self) {
            // SAFETY: S1; loom checks that the accesses are ordered.
            unsafe { (*this).next.with_mut(|link| *link = next) }
        }
        unsafe fn next(this: *mut Self) -> *mut Self {
            // SAFETY: S1.
            unsafe { (*this).next.with(|link| *link) }
        }
    }

    fn node(value: u32) -> *mut Node {
        Box::into_raw(Box::new(Node { next: Tracked::new(core::ptr::null_mut()), value }))
    }

    #[test]
    fn chains_arrive_whole_and_once() {
        loom::model(|| {
            let list = Arc::new(RemoteList::<Node>::new());
            let pusher = |base: u32, list: Arc<RemoteList<Node>>| {
                let (first, last) = (node(base), node(base + 1));
                // SAFETY: S1: fresh nodes.
                unsafe { Node::set_next(first, last) };
                // SAFETY: S1: a chain of two fresh nodes.
                unsafe { list.push_chain(first, last) };
            };
            let threads: Vec<_> = [10, 20]
                .into_iter()
                .map(|base| {
                    let list = Arc::clone(&list);
                    loom::thread::spawn(move || pusher(base, list))
                })
                .collect();
            let mut seen = Vec::new();
            let mut drain = |mut chain: *mut Node| {
                while !chain.is_null() {
                    // SAFETY: S1: taken nodes belong to this thread.
                    let next = unsafe { Node::next(chain) };
                    // SAFETY: made by `Box::into_raw` and taken once.
                    seen.push(unsafe { Box::from_raw(chain) }.value);
                    chain = next;
                }
            };
            drain(list.take_all());
            for thread in threads {
                thread.join().expect("joined");
            }
            drain(list.take_all());
            seen.sort_unstable();
            assert_eq!(seen, [10, 11, 20, 21]);
        });
    }
}
