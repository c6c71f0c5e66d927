//! Intrusive pairing heap: the node with the smallest key first. Every operation happens under the owner's lock.
//!
//! ```text
//!   root ─child─► a ─next─► b ─next─► c        prev of the first child is its parent,
//!                 └child─► …                   prev of the others is the left sibling
//! ```
//!
//! I-HEAP-1: a node's key is at least its parent's. Insert is constant time; removal is logarithmic, amortised. The
//! merge of the children is a loop, so the depth of the stack does not depend on the heap.
#![forbid(unsafe_code)]

use super::link::{Link, same};

/// A node with the three links of a heap.
pub(crate) trait HeapNode: Sync + Sized + 'static {
    /// First child.
    fn child(&self) -> &Link<Self>;
    /// Left sibling, or the parent.
    fn before(&self) -> &Link<Self>;
    /// Right sibling.
    fn after(&self) -> &Link<Self>;
    /// Order; must not change while the node is in a heap.
    fn key(&self) -> usize;
}

/// The root.
pub(crate) struct Heap<T: 'static> {
    root: Link<T>,
}

impl<T: HeapNode> Heap<T> {
    /// Empty.
    pub(crate) const fn new() -> Heap<T> {
        Heap { root: Link::null() }
    }

    /// True without nodes.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.root.get().is_none()
    }

    /// The node with the smallest key.
    #[cfg(test)]
    pub(crate) fn first(&self) -> Option<&'static T> {
        self.root.get()
    }

    /// Adds a node that is in no heap.
    pub(crate) fn insert(&self, node: &'static T) {
        clear(node);
        let root = match self.root.get() {
            Some(root) => meld(root, node),
            None => node,
        };
        self.root.set(Some(root));
    }

    /// Removes a node of this heap.
    pub(crate) fn remove(&self, node: &'static T) {
        let orphans = merge_children(node);
        match self.root.get() {
            Some(root) if same(root, node) => self.root.set(orphans),
            Some(root) => {
                unlink(node);
                if let Some(orphans) = orphans {
                    self.root.set(Some(meld(root, orphans)));
                }
            }
            None => debug_assert!(false, "removal from an empty heap"),
        }
        clear(node);
    }

    /// Removes the node with the smallest key.
    pub(crate) fn pop(&self) -> Option<&'static T> {
        let node = self.root.get()?;
        self.remove(node);
        Some(node)
    }
}

fn clear<T: HeapNode>(node: &'static T) {
    node.child().set(None);
    node.before().set(None);
    node.after().set(None);
}

/// Takes a node that is not the root out of its siblings.
fn unlink<T: HeapNode>(node: &'static T) {
    let (before, after) = (node.before().get(), node.after().get());
    if let Some(before) = before {
        if before.child().get().is_some_and(|first| same(first, node)) {
            before.child().set(after);
        } else {
            before.after().set(after);
        }
    }
    if let Some(after) = after {
        after.before().set(before);
    }
}

/// Joins two roots; the one with the smaller key becomes the parent.
fn meld<T: HeapNode>(a: &'static T, b: &'static T) -> &'static T {
    let (parent, node) = if a.key() <= b.key() { (a, b) } else { (b, a) };
    let first = parent.child().get();
    node.after().set(first);
    if let Some(first) = first {
        first.before().set(Some(node));
    }
    node.before().set(Some(parent));
    parent.child().set(Some(node));
    parent.before().set(None);
    parent.after().set(None);
    parent
}

/// Joins the children of `node` to one root: pairs from left to right, then the pairs from right to left.
fn merge_children<T: HeapNode>(node: &'static T) -> Option<&'static T> {
    let mut next = node.child().get();
    let mut pairs: Option<&'static T> = None;
    while let Some(a) = next {
        let b = a.after().get();
        next = b.and_then(|b| b.after().get());
        let joined = match b {
            Some(b) => meld(a, b),
            None => a,
        };
        joined.before().set(None);
        // The right link chains the pairs, newest first.
        joined.after().set(pairs);
        pairs = Some(joined);
    }
    let mut root = pairs?;
    let mut rest = root.after().get();
    root.after().set(None);
    while let Some(pair) = rest {
        rest = pair.after().get();
        root = meld(root, pair);
    }
    Some(root)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::boxed::Box;
    use std::collections::BTreeSet;
    use std::vec::Vec;

    struct Node(usize, [Link<Node>; 3]);
    impl HeapNode for Node {
        fn child(&self) -> &Link<Node> {
            &self.1[0]
        }
        fn before(&self) -> &Link<Node> {
            &self.1[1]
        }
        fn after(&self) -> &Link<Node> {
            &self.1[2]
        }
        fn key(&self) -> usize {
            self.0
        }
    }

    #[test]
    fn behaves_like_an_ordered_set() {
        let nodes: Vec<&'static Node> = (0..200)
            .map(|i| &*Box::leak(Box::new(Node(i * 7919 % 200, [Link::null(), Link::null(), Link::null()]))))
            .collect();
        let heap = Heap::new();
        let mut model = BTreeSet::new();
        let mut state = 12345u64;
        for _ in 0..20_000 {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let node = nodes[(state >> 33) as usize % nodes.len()];
            match (state >> 20) % 4 {
                0 | 1 if !model.contains(&node.0) => {
                    heap.insert(node);
                    model.insert(node.0);
                }
                2 if model.remove(&node.0) => heap.remove(node),
                3 => assert_eq!(heap.pop().map(|node| node.0), model.pop_first()),
                _ => {}
            }
            assert_eq!(heap.first().map(|node| node.0), model.first().copied());
        }
        while let Some(node) = heap.pop() {
            assert_eq!(Some(node.0), model.pop_first());
        }
        assert!(model.is_empty() && heap.is_empty());
    }
}
