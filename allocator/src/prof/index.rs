//! A hash index over records that are never removed: open addressing, lookups without a lock, insertion by the owner of
//! a lock.
//!
//! ```text
//!  Index ─► Table { links: [_; 2^n], at most half in use }     grown by making a larger table and publishing it
//! ```
//!
//! A lookup in a table that was just replaced, or that races with an insertion, may miss a record; it never finds a
//! wrong one. The caller then looks again under its lock before it inserts. Old tables are not freed (a thread may
//! still read one); together they are smaller than the current one.
#![forbid(unsafe_code)]

use super::records::{Link, Ptr, alloc_links, alloc_value};

/// Slots of the first table: 8 KiB.
const FIRST_SLOTS: usize = 1024;

pub(crate) struct Index<T: 'static> {
    table: Link<Table<T>>,
}

struct Table<T: 'static> {
    slots: &'static [Link<T>],
}

impl<T> Index<T> {
    pub(crate) const fn new() -> Index<T> {
        Index { table: Link::none() }
    }

    /// The record of this hash that `matches` accepts.
    pub(crate) fn find(&self, hash: u64, matches: impl Fn(&Ptr<T>) -> bool) -> Option<Ptr<T>> {
        let table = self.table.get()?;
        table.probe(hash).map_while(Link::get).find(|record| matches(record))
    }

    /// Every record. Caller holds the index's lock, or may miss some.
    pub(crate) fn each(&self, mut act: impl FnMut(Ptr<T>)) {
        if let Some(table) = self.table.get() {
            table.slots.iter().filter_map(Link::get).for_each(&mut act);
        }
    }

    /// Inserts a record; `count` is the number of records in the index. False without memory. Caller holds the index's
    /// lock.
    pub(crate) fn insert_locked(
        &self,
        hash: u64,
        record: Ptr<T>,
        count: usize,
        hash_of: impl Fn(Ptr<T>) -> u64,
    ) -> bool {
        let table = match self.table.get() {
            Some(table) if (count + 1) * 2 <= table.slots.len() => table,
            old => {
                let slots = old.map_or(FIRST_SLOTS, |old| old.slots.len() * 2);
                let Some(table) = alloc_links(slots).and_then(|slots| alloc_value(Table { slots })) else {
                    return false;
                };
                for record in old.iter().flat_map(|old| old.slots).filter_map(Link::get) {
                    table.put(hash_of(record), record);
                }
                self.table.set(Some(table));
                table
            }
        };
        table.put(hash, record);
        true
    }
}

impl<T> Table<T> {
    fn probe(&self, hash: u64) -> impl Iterator<Item = &Link<T>> {
        let start = spread(hash) as usize % self.slots.len();
        self.slots.iter().skip(start).chain(self.slots.iter().take(start))
    }

    fn put(&self, hash: u64, record: Ptr<T>) {
        if let Some(free) = self.probe(hash).find(|link| link.get().is_none()) {
            free.set(Some(record));
        }
    }
}

/// Moves all bits of a hash into its low ones.
fn spread(hash: u64) -> u64 {
    let mixed = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 32)
}
