//! Every distinct stack once.
//!
//! ```text
//!  frames: [ a0 a1 a2 | b0 b1 | c0 c1 c2 c3 | … ]     shape [u64], all stacks one after another, leaf first
//!  ends:   [ 3,         5,      9,            … ]     ends[id] = end of stack id; its start is ends[id - 1]
//!  heads:  hash → youngest id with that hash; chain: id → next older id with the same hash
//! ```
//!
//! Ids are dense and in order of first sight. The hash is keyed per process, so that a hostile file cannot choose
//! stacks that collide.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use super::stack::StackId;

/// End of a chain.
const NONE: u32 = u32::MAX;

/// The table of stacks.
#[derive(Clone, Debug, Default)]
pub struct Interner {
    frames: Vec<u64>,
    ends: Vec<usize>,
    heads: HashMap<u64, u32>,
    chain: Vec<u32>,
    hasher: RandomState,
}

impl Interner {
    /// The id of `stack`, new or known.
    pub fn intern(&mut self, stack: &[u64]) -> StackId {
        let hash = self.hasher.hash_one(stack);
        if let Some(id) = self.find_in_chain(hash, stack) {
            return id;
        }
        let id = u32::try_from(self.ends.len()).expect("fewer than 2^32 distinct stacks");
        self.frames.extend_from_slice(stack);
        self.ends.push(self.frames.len());
        self.chain.push(self.heads.insert(hash, id).unwrap_or(NONE));
        StackId(id)
    }

    /// The id of `stack` when it is known.
    pub fn find(&self, stack: &[u64]) -> Option<StackId> {
        self.find_in_chain(self.hasher.hash_one(stack), stack)
    }

    /// The frames of a stack, leaf first.
    pub fn frames(&self, id: StackId) -> &[u64] {
        let index = id.index();
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        &self.frames[start..self.ends[index]]
    }

    /// Number of stacks.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// All ids, in order of first sight.
    pub fn ids(&self) -> impl Iterator<Item = StackId> + use<> {
        (0..self.ends.len() as u32).map(StackId)
    }

    fn find_in_chain(&self, hash: u64, stack: &[u64]) -> Option<StackId> {
        let mut id = *self.heads.get(&hash)?;
        while id != NONE {
            if self.frames(StackId(id)) == stack {
                return Some(StackId(id));
            }
            id = self.chain[id as usize];
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::Interner;

    #[test]
    fn equal_stacks_share_an_id_and_others_do_not() {
        let mut interner = Interner::default();
        let a = interner.intern(&[1, 2, 3]);
        let empty = interner.intern(&[]);
        let b = interner.intern(&[1, 2]);
        assert_eq!(interner.intern(&[1, 2, 3]), a);
        assert_eq!(interner.intern(&[]), empty);
        assert_ne!(a, b);
        assert_eq!(interner.frames(b), [1, 2]);
        assert_eq!(interner.frames(empty), [0_u64; 0]);
        assert_eq!(interner.find(&[2, 1]), None);
        assert_eq!(interner.len(), 3);
    }
}
