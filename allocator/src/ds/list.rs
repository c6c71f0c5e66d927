//! Intrusive doubly linked list, oldest first. Every operation happens under the owner's lock.
#![forbid(unsafe_code)]

use super::link::{Link, same};

/// A node with the two links of a list.
pub(crate) trait ListNode: Sync + Sized + 'static {
    /// Towards the head.
    fn prev(&self) -> &Link<Self>;
    /// Towards the tail.
    fn next(&self) -> &Link<Self>;
}

/// Head and tail.
pub(crate) struct List<T: 'static> {
    head: Link<T>,
    tail: Link<T>,
}

impl<T: ListNode> List<T> {
    /// Empty.
    pub(crate) const fn new() -> List<T> {
        List { head: Link::null(), tail: Link::null() }
    }

    /// The oldest node.
    #[cfg(test)]
    pub(crate) fn first(&self) -> Option<&'static T> {
        self.head.get()
    }

    /// The newest node.
    pub(crate) fn last(&self) -> Option<&'static T> {
        self.tail.get()
    }

    /// Appends a node that is in no list.
    pub(crate) fn push_back(&mut self, node: &'static T) {
        let tail = self.tail.get();
        node.prev().set(tail);
        node.next().set(None);
        match tail {
            Some(tail) => tail.next().set(Some(node)),
            None => self.head.set(Some(node)),
        }
        self.tail.set(Some(node));
    }

    /// Removes a node of this list.
    pub(crate) fn remove(&mut self, node: &'static T) {
        let (prev, next) = (node.prev().get(), node.next().get());
        match prev {
            Some(prev) => prev.next().set(next),
            None => self.head.set(next),
        }
        match next {
            Some(next) => next.prev().set(prev),
            None => self.tail.set(prev),
        }
        node.prev().set(None);
        node.next().set(None);
        debug_assert!(prev.is_none_or(|prev| !same(prev, node)));
    }

    /// Removes the oldest node.
    pub(crate) fn pop_front(&mut self) -> Option<&'static T> {
        let node = self.head.get()?;
        self.remove(node);
        Some(node)
    }

    /// All nodes, oldest first; the list must not change meanwhile.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &'static T> {
        core::iter::successors(self.head.get(), |node| node.next().get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::boxed::Box;
    use std::vec::Vec;

    struct Node(u32, Link<Node>, Link<Node>);
    impl ListNode for Node {
        fn prev(&self) -> &Link<Node> {
            &self.1
        }
        fn next(&self) -> &Link<Node> {
            &self.2
        }
    }

    #[test]
    fn order_and_removal() {
        let nodes: Vec<&'static Node> =
            (0..4).map(|i| &*Box::leak(Box::new(Node(i, Link::null(), Link::null())))).collect();
        let mut list = List::new();
        for node in nodes.iter().copied() {
            list.push_back(node);
        }
        list.remove(nodes[1]);
        list.remove(nodes[3]);
        let left: Vec<u32> = list.iter().map(|node| node.0).collect();
        assert_eq!(left, [0, 2]);
        assert_eq!(list.pop_front().map(|node| node.0), Some(0));
        assert_eq!(list.pop_front().map(|node| node.0), Some(2));
        assert!(list.pop_front().is_none() && list.first().is_none());
    }
}
