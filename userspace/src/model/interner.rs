//! Every distinct stack once.
//!
//! ```text
//!  frames: [ a0 a1 a2 | b0 b1 | c0 c1 c2 c3 | … ]     shape [u64], all stacks one after another, leaf first
//!  ends:   [ 3,         5,      9,            … ]     ends[id] = end of stack id; its start is ends[id - 1]
//!  table:  ids, found by the hash of their frames     hashes: [id] → that hash, so that growing reads no frames
//! ```
//!
//! Ids are dense and in order of first sight. The hash is keyed per process, so that a hostile file cannot choose
//! stacks that collide. Memory: 8 bytes a frame, and about 25 a stack.
#![forbid(unsafe_code)]

use std::hash::BuildHasher as _;

use foldhash::quality::RandomState;
use hashbrown::HashTable;

use super::stack::StackId;

/// The table of stacks.
#[derive(Clone, Debug, Default)]
pub struct Interner {
    frames: Vec<u64>,
    ends: Vec<usize>,
    table: HashTable<u32>,
    hashes: Vec<u64>,
    hasher: RandomState,
}

impl Interner {
    /// The id of `stack`, new or known.
    pub fn intern(&mut self, stack: &[u64]) -> StackId {
        let hash = self.hasher.hash_one(stack);
        let found = self.table.find(hash, |id| self.frames(StackId(*id)) == stack);
        if let Some(id) = found {
            return StackId(*id);
        }
        let id = u32::try_from(self.ends.len()).expect("fewer than 2^32 distinct stacks");
        self.frames.extend_from_slice(stack);
        self.ends.push(self.frames.len());
        self.hashes.push(hash);
        self.table.insert_unique(hash, id, |id| self.hashes[*id as usize]);
        StackId(id)
    }

    /// Makes room for as many stacks, so that their table need not grow; what is not used of it takes a byte a stack.
    pub fn reserve(&mut self, stacks: usize) {
        self.table.reserve(stacks, |id| self.hashes[*id as usize]);
    }

    /// The id of `stack` when it is known.
    pub fn find(&self, stack: &[u64]) -> Option<StackId> {
        let hash = self.hasher.hash_one(stack);
        self.table.find(hash, |id| self.frames(StackId(*id)) == stack).map(|id| StackId(*id))
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
