//! A hash index over records that are never removed: open addressing, lookups without a lock, insertion by the owner of
//! a lock.
//!
//! ```text
//!  Index ─► Table { slots: [(hash, record); 2^n], at most 3/4 in use }     grown by publishing a larger table
//! ```
//!
//! A lookup in a table that was just replaced, or that races with an insertion, may miss a record; it never finds a
//! wrong one. The caller then looks again under its lock before it inserts. Old tables keep their place, since a thread may
//! still read one, but not their pages: it finds nothing there. The hash stands beside the link: records of other
//! hashes, which mostly are in no cache, are not looked at.
#![forbid(unsafe_code)]

use super::records::{Link, Ptr, Slot};
use super::segments::{alloc_blank, alloc_value, give_back};
use crate::prim::{AtomicUsize, Ordering};

/// Slots of the first table: 1 KiB.
const FIRST_SLOTS: usize = 64;

pub(crate) struct Index<T: 'static> {
    table: Link<Table<T>>,
    /// Records in the index. Changed under its lock.
    count: AtomicUsize,
}

struct Table<T: 'static> {
    slots: &'static [Slot<T>],
}

impl<T> Index<T> {
    pub(crate) const fn new() -> Index<T> {
        Index { table: Link::none(), count: AtomicUsize::new(0) }
    }

    /// Records in the index. A lookup that begins after this was read finds all of them, unless an insertion is under way: so
    /// who then reads the same number under the lock need not look again.
    #[inline]
    pub(crate) fn count(&self) -> usize {
        // Acquire: pairs with the Release in `insert_locked`.
        self.count.load(Ordering::Acquire)
    }

    /// The record of this hash that `matches` accepts.
    pub(crate) fn find(&self, hash: u64, matches: impl Fn(&Ptr<T>) -> bool) -> Option<Ptr<T>> {
        let table = self.table.get()?;
        let mut at = table.start(hash);
        loop {
            // Not full: there is an empty slot at which this ends.
            let (known, record) = table.slots[at].get()?;
            if known == hash && matches(&record) {
                return Some(record);
            }
            at = (at + 1) & (table.slots.len() - 1);
        }
    }

    /// Every record. Caller holds the index's lock, or may miss some.
    pub(crate) fn each(&self, mut act: impl FnMut(Ptr<T>)) {
        if let Some(table) = self.table.get() {
            table.slots.iter().filter_map(Slot::get).for_each(|(_, record)| act(record));
        }
    }

    /// Inserts a record; false without memory. Caller holds the index's lock.
    pub(crate) fn insert_locked(&self, hash: u64, record: Ptr<T>) -> bool {
        // Relaxed: the caller is its only writer.
        let count = self.count.load(Ordering::Relaxed);
        let table = match self.table.get() {
            Some(table) if (count + 1) * 4 <= table.slots.len() * 3 => table,
            old => {
                let slots = old.map_or(FIRST_SLOTS, |old| old.slots.len() * 2);
                let Some(table) = alloc_blank(slots).and_then(|slots| alloc_value(Table { slots })) else {
                    return false;
                };
                for (hash, record) in old.iter().flat_map(|old| old.slots).filter_map(Slot::get) {
                    table.put(hash, record);
                }
                self.table.set(Some(table));
                old.inspect(|old| give_back(old.slots));
                table
            }
        };
        table.put(hash, record);
        // Release: who sees the number sees the record and the table.
        self.count.store(count + 1, Ordering::Release);
        true
    }
}

impl<T> Table<T> {
    /// The remainder, without a division: the length is a power of two, never 0.
    fn start(&self, hash: u64) -> usize {
        spread(hash) as usize & (self.slots.len() - 1)
    }

    fn put(&self, hash: u64, record: Ptr<T>) {
        let mut at = self.start(hash);
        // Not full.
        while self.slots[at].get().is_some() {
            at = (at + 1) & (self.slots.len() - 1);
        }
        self.slots[at].fill(hash, record);
    }
}

/// Moves all bits of a hash into its low ones.
fn spread(hash: u64) -> u64 {
    let mixed = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 32)
}
