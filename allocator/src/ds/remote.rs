//! Blocks freed by threads of other arenas: a lock-free list that takes whole chains.
//!
//! | field | moved by | order |
//! |---|---|---|
//! | `head` | any thread: one compare-and-swap a chain | Release; pairs with Acquire in `take_all` |
//! | `head` → null | the holder of the bin's lock: one swap | Acquire |
//!
//! ```text
//!   head ─► │ link │ b1 │ b2 │ … │ b7 │ ─► │ link │ a1+1 │ mask │ b1 │ null │ … ─► null      blocks of 64 bytes
//! ```
//!
//! There is no pop of single nodes, hence no ABA problem. The links lie in free blocks; behind its link a node tells of as many
//! other free blocks as it has room for: by their addresses, or, of many that lie together, by the address of a region, which is
//! marked by its lowest bit, and a mask of it and the 63 behind it. So most blocks are touched neither by who gives them nor by
//! who brings them in, whose cache has not their lines, and a slab that comes back whole is a few words. A node is one of the
//! blocks that it stands for; whether its own mask tells of it, too, the lowest bit of the link that leads to it says. All this is
//! read and written as raw memory, never through a Rust reference, and a block is checked against the page map before it is used.

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
const NODE_BYTES_MAX: usize = 256;
/// Words behind the link of a node, at most.
#[cfg(not(loom))]
const CARRIED_MAX: usize = NODE_BYTES_MAX / size_of::<usize>() - 1;
/// Words that tell of a run.
#[cfg(not(loom))]
const RUN_WORDS: usize = 2;
/// In an address that a node carries: a mask follows. In a link: a mask of the node that it leads to tells of that node, too.
#[cfg(not(loom))]
const MARK: usize = 1;

/// Words that a node of `bytes` carries.
#[cfg(not(loom))]
fn carried(bytes: usize) -> usize {
    bytes.min(NODE_BYTES_MAX) / size_of::<usize>() - 1
}

/// Blocks of one length that a list tells of.
#[cfg(not(loom))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Freed {
    One(*mut u8),
    /// Of the regions from here on, those whose bits are set.
    Run(*mut u8, u64),
}

/// A chain of free blocks under construction.
#[cfg(not(loom))]
pub(crate) struct Chain {
    /// Marked when a mask tells of the node.
    first: *mut FreeBlock,
    last: *mut FreeBlock,
    len: u32,
    /// Words that a node carries.
    carried: u32,
    /// How many more the first node has room for.
    room: u32,
    /// Of a block.
    bytes: u32,
}

#[cfg(not(loom))]
impl Chain {
    /// In the place of a chain.
    pub(crate) const fn none() -> Chain {
        let none = core::ptr::null_mut();
        Chain { first: none, last: none, len: 0, carried: 0, room: 0, bytes: 0 }
    }

    /// Empty, for blocks of `bytes`.
    #[inline]
    pub(crate) fn new(bytes: usize) -> Chain {
        Chain { carried: carried(bytes) as u32, bytes: bytes as u32, ..Chain::none() }
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
    pub(crate) fn add(&mut self, block: BlockPtr) {
        self.len += 1;
        if self.room > 0 {
            self.write_next(block.0.expose_provenance());
        } else {
            self.begin_node(block.0, 0);
        }
    }

    /// Adds those of the regions from `first` on whose bits are set, all freed by their clients and of the chain's length.
    #[inline]
    pub(crate) fn add_run(&mut self, first: *mut u8, mask: u64) {
        let block = |bit: u32| first.wrapping_add(bit as usize * self.bytes as usize);
        let lowest = block(mask.trailing_zeros());
        if mask & mask.wrapping_sub(1) == 0 {
            return self.add(BlockPtr(lowest));
        }
        if (self.carried as usize) < RUN_WORDS {
            let bytes = self.bytes as usize;
            let mut left = mask;
            while left != 0 {
                self.add(BlockPtr(first.wrapping_add(left.trailing_zeros() as usize * bytes)));
                left &= left - 1;
            }
            return;
        }
        self.len += mask.count_ones();
        if (self.room as usize) < RUN_WORDS {
            self.end();
            self.begin_node(lowest, MARK);
        }
        self.write_next(first.expose_provenance() | MARK);
        self.write_next(mask as usize);
    }

    /// Makes `block` the first node.
    #[inline]
    #[expect(clippy::cast_ptr_alignment, reason = "every block lies at a multiple of eight")]
    fn begin_node(&mut self, block: *mut u8, mark: usize) {
        let node = block.cast::<FreeBlock>();
        // SAFETY: S1: blocks that reached a cache are freed memory of ours, owned by that cache.
        unsafe { FreeBlock::set_next(node, self.first) };
        if self.last.is_null() {
            self.last = node;
        }
        self.first = node.map_addr(|addr| addr | mark);
        self.room = self.carried;
    }

    /// Writes the next of the words that the first node carries, for which it has room.
    #[inline]
    fn write_next(&mut self, word: usize) {
        let node = self.first.map_addr(|addr| addr & !MARK);
        let place = node.cast::<usize>().wrapping_add(1 + (self.carried - self.room) as usize);
        // SAFETY: the first node is a block that `begin_node` was given; the words behind its link, `carried` of them, lie in it.
        unsafe { place.write(word) };
        self.room -= 1;
    }

    /// Says where the words that the first node carries end.
    #[inline]
    fn end(&mut self) {
        if self.room > 0 {
            self.write_next(0);
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
    /// Adds a chain.
    pub(crate) fn push(&self, chain: &mut Chain) {
        if !chain.is_empty() {
            chain.end();
            // SAFETY: S1 by `Chain`: linked from first to last, made of freed blocks, and given up here.
            unsafe { self.push_chain(chain.first, chain.last) };
        }
    }

    /// Takes everything, chains of blocks of `bytes`, and reports the blocks, which the receiver then owns. `most`: blocks that may
    /// be here, and so nodes. More are none: a block that was freed twice leads back to itself, and the rest is lost then.
    pub(crate) fn drain(&self, bytes: usize, most: u64, mut each: impl FnMut(Freed)) {
        let mut link = self.take_all();
        for _ in 0..most {
            if link.is_null() {
                break;
            }
            let node = link.map_addr(|addr| addr & !MARK);
            let is_told = link.addr() & MARK != 0;
            // SAFETY: nodes taken from the list belong to this thread, and their links were written by `Chain`.
            link = unsafe { FreeBlock::next(node) };
            // All is read before any of it is reported: the node's memory may be gone after that.
            let mut words = [0; CARRIED_MAX];
            let mut len = 0;
            for (word, place) in words.iter_mut().zip(1..=carried(bytes)) {
                // SAFETY: as above; the words up to the first null were written by `Chain`, and all lie in the block.
                *word = unsafe { node.cast::<usize>().wrapping_add(place).read() };
                if *word == 0 {
                    break;
                }
                len += 1;
            }
            let mut rest = words.iter().take(len);
            while let Some(word) = rest.next() {
                let block = core::ptr::with_exposed_provenance_mut(word & !MARK);
                if word & MARK == 0 {
                    each(Freed::One(block));
                } else if let Some(mask) = rest.next() {
                    each(Freed::Run(block, *mask as u64));
                }
            }
            if !is_told {
                each(Freed::One(node.cast()));
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::vec::Vec;

    fn blocks_of(freed: Freed, bytes: usize) -> Vec<*mut u8> {
        match freed {
            Freed::One(block) => std::vec![block],
            Freed::Run(first, mask) => {
                (0..64).filter(|bit| mask >> bit & 1 == 1).map(|bit| first.wrapping_add(bit * bytes)).collect()
            }
        }
    }

    #[test]
    fn runs_and_blocks_arrive_once() {
        for words in [1, 2, 3, 4, 8, 100] {
            let bytes = words * size_of::<usize>();
            let mut memory = std::vec![usize::MAX; 64 * 12 * words];
            let start: *mut u8 = memory.as_mut_ptr().cast();
            let masks =
                [1, u64::MAX, 0b101, 1 << 63, 3 << 62, 0xff00_ff00_ff00_ff00, 2, 4, 8, 6, 0x8000_0000_0000_0001, 0xf0];
            let list = RemoteList::<FreeBlock>::new();
            let mut wanted = BTreeSet::new();
            for per_chain in [5, 7] {
                let mut chain = Chain::new(bytes);
                for i in if per_chain == 5 { 0..5 } else { 5..12 } {
                    let first = start.wrapping_add(i * 64 * bytes);
                    chain.add_run(first, masks[i]);
                    wanted.extend(blocks_of(Freed::Run(first, masks[i]), bytes));
                }
                list.push(&mut chain);
            }
            let mut seen = Vec::new();
            list.drain(bytes, u64::MAX, |freed| {
                // The receiver may do what it likes with what it is told of.
                for block in blocks_of(freed, bytes) {
                    // SAFETY: the block lies in `memory`.
                    unsafe { block.write_bytes(0xff, bytes) };
                    seen.push(block);
                }
            });
            assert_eq!(seen.len(), wanted.len(), "{words} words");
            assert_eq!(seen.iter().copied().collect::<BTreeSet<_>>(), wanted);
            assert!(list.is_empty());
        }
    }

    /// A block that was freed twice, the second time while it waited as a node, leads back to itself.
    #[test]
    fn a_circle_ends() {
        let bytes = 2 * size_of::<usize>();
        let mut memory = std::vec![usize::MAX; 3 * 2];
        let blocks: Vec<*mut u8> = memory.chunks_mut(2).map(|block| block.as_mut_ptr().cast()).collect();
        let list = RemoteList::<FreeBlock>::new();
        for block in [blocks[0], blocks[1], blocks[2], blocks[0]] {
            let mut chain = Chain::new(bytes);
            chain.add(BlockPtr(block));
            list.push(&mut chain);
        }
        let mut seen = 0;
        list.drain(bytes, 3, |_| seen += 1);
        assert_eq!((seen, list.is_empty()), (3, true));
    }

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
                    list.push(&mut chain);
                    rest = &rest[*count..];
                }
                let mut seen = Vec::new();
                list.drain(bytes, u64::MAX, |freed| seen.extend(blocks_of(freed, bytes)));
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
