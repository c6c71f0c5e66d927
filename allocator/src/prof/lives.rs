//! Records of live samples: who has which, and where one is found by its block.
//!
//! ```text
//!  block ─► page map ─► Extent ─► SampleMap ─► place of the region ─► LiveCell ─► block
//!
//!  cell    POOLS ── bind, the first time ─► belongs to a place, and to each region that comes to lie there
//! ```
//!
//! A region for sampled blocks that a thread keeps on a shelf has its record at hand, so neither a sample nor its end looks
//! anything up or takes a lock. The record stays in its place when the region goes back to its bin, and when the slab ends,
//! whose map then waits for the next one of the class: records are as many as places that were ever used, which costs a
//! program that samples ever other classes, and spares two searches and a pool to each region that comes and goes.
//! Cells come by arena, as the regions do.
//!
//! I-LIVES-1: a cell is changed by the owner of its block, and by nobody else but for its state: from `LIVE_SET` it is moved
//! on by one exchange, of the owner who frees the block, or of `table::clear`, for which the owner waits. I-LIVES-2: a cell
//! that is bound is in the place of its block, and `usable_bytes` is 0 exactly while the block is not in use. So a block that
//! is freed twice is known at once.
#![forbid(unsafe_code)]

use crate::prim::{AtomicPtr, AtomicU32, AtomicU64, Ordering, spin_loop};
use core::cell::Cell;

use jeprobe_abi::root::{KIND_LIVE, LIVE_BUSY, LIVE_FREE};

use super::records::{Link, LiveCell, Ptr, jeprobe_root};
use super::segments::Appender;
use crate::emap;
use crate::extent::Extent;
use crate::samplemap::{Place, SampleMap};
use crate::sync::mutex::{Guard, Mutex};
use crate::sync::rank::Rank;
use crate::sys;

/// Pools; arenas beyond their number share them.
const HOMES: usize = 32;
/// The first segment of a pool, of seven records.
const FIRST_SEGMENT_BYTES: usize = 512;
/// Maps for large blocks that a thread keeps; half of them go on when there are more.
const KEPT_MAPS: u32 = 16;

#[repr(align(64))]
struct Pool(Mutex<Waiting>);

struct Waiting {
    records: Appender,
    free: Option<Ptr<LiveCell>>,
}

static POOLS: [Pool; HOMES] = [const {
    Pool(Mutex::new(Rank::ProfLives, Waiting { records: Appender::new(KIND_LIVE, FIRST_SEGMENT_BYTES), free: None }))
}; HOMES];

/// Maps of large blocks, each with its record, that no thread keeps.
static MAPS: Mutex<Option<&'static SampleMap>> = Mutex::new(Rank::ProfLives, None);

/// The record of a block that may become a sample, or is one. The block's owner has it.
#[derive(Clone, Copy)]
pub struct Live(pub(super) Ptr<LiveCell>);

impl Live {
    /// The block.
    #[inline(always)]
    pub fn block(self) -> *mut u8 {
        // Relaxed, in this file: the owner's.
        self.0.ptr.load(Ordering::Relaxed)
    }

    /// The block is in use, but no sample.
    pub(crate) fn leave(self, usable: usize) {
        self.0.usable_bytes.store(usable as u64, Ordering::Relaxed);
    }

    /// The block is not in use any more; it may be used again.
    #[inline(always)]
    pub(crate) fn rest(self) {
        self.0.usable_bytes.store(0, Ordering::Relaxed);
    }

    /// False for a block that was freed already.
    #[inline(always)]
    pub(crate) fn is_in_use(self) -> bool {
        self.0.usable_bytes.load(Ordering::Relaxed) != 0
    }

    /// Binds a record to no place, for an object that lies in no extent of ours; `None` without memory.
    pub(super) fn apart(ptr: *mut u8) -> Option<Live> {
        let cell = pool(0).lock().take()?;
        cell.ptr.store(ptr, Ordering::Relaxed);
        Some(Live(cell))
    }

    /// Gives such a record back.
    pub(super) fn recycle(self) {
        pool(0).lock().recycle(self.0);
    }
}

/// Where a thread keeps the record of a region.
pub(crate) struct Record(Link<LiveCell>);

impl Record {
    pub(crate) const fn none() -> Record {
        Record(Link::none())
    }

    #[inline(always)]
    pub(crate) fn get(&self) -> Option<Live> {
        self.0.get().map(Live)
    }

    #[inline(always)]
    pub(crate) fn set(&self, live: Live) {
        self.0.set(Some(live.0));
    }

    pub(crate) fn copy(&self, from: &Record) {
        self.0.set(from.0.get());
    }
}

fn pool(home: u32) -> &'static Mutex<Waiting> {
    &POOLS[home as usize % HOMES].0
}

/// The place of a small block in a slab of sampled blocks, and the index of its arena.
fn place_of(block: *mut u8) -> Option<(&'static Place, u32)> {
    let extent = emap::word(block.addr()).extent()?;
    let offset = block.addr().wrapping_sub(extent.addr().addr());
    Some((extent.samples()?.place_at(offset)?, extent.arena()))
}

/// Binds records to regions, many under one lock as long as they are of one pool. Nothing that may allocate or take a lock but
/// base memory's is done while there is one.
pub(crate) struct Binder {
    held: Option<(usize, Guard<'static, Waiting>)>,
}

impl Binder {
    pub(crate) const fn new() -> Binder {
        Binder { held: None }
    }

    fn pool(&mut self, home: u32) -> Option<&mut Waiting> {
        let place = home as usize % HOMES;
        if self.held.as_ref().is_none_or(|(held, _)| *held != place) {
            // The lock of one pool before that of the next.
            self.held = None;
            self.held = Some((place, pool(home).lock()));
        }
        self.held.as_mut().map(|(_, waiting)| &mut **waiting)
    }

    /// Gives a region of a slab of sampled blocks, which the caller owns, its record; `None` without memory.
    pub(crate) fn bind(&mut self, block: *mut u8) -> Option<Live> {
        let (place, home) = place_of(block)?;
        let cell = match place.get() {
            Some(cell) => cell,
            None => self.pool(home)?.take()?,
        };
        cell.ptr.store(block, Ordering::Relaxed);
        place.set(Some(cell));
        Some(Live(cell))
    }
}

/// Binds one record.
pub(crate) fn bind(block: *mut u8) -> Option<Live> {
    Binder::new().bind(block)
}

/// The record of a small block in a slab, if it has one.
#[inline(always)]
pub(crate) fn find(block: *mut u8, slab: &Extent) -> Option<Live> {
    let offset = block.addr().wrapping_sub(slab.addr().addr());
    slab.samples()?.place_at(offset)?.get().map(Live)
}

/// Waits while `table::clear` is at a cell.
#[cold]
#[inline(never)]
pub(super) fn wait_for_clear(cell: Ptr<LiveCell>) {
    let mut looks = 0_u32;
    while cell.state.load(Ordering::Acquire) == LIVE_BUSY {
        looks += 1;
        // It may have lost its processor.
        if looks.is_multiple_of(1000) {
            sys::sleep_ns(10_000);
        }
        spin_loop();
    }
}

/// Maps of large blocks that a thread keeps, each with its record.
pub(super) struct KeptMaps {
    first: Cell<Option<&'static SampleMap>>,
    count: Cell<u32>,
}

impl KeptMaps {
    #[expect(clippy::declare_interior_mutable_const, reason = "an initial value, copied into each thread's slot")]
    pub(super) const NONE: KeptMaps = KeptMaps { first: Cell::new(None), count: Cell::new(0) };

    /// A map whose record is that of `block`; `None` without memory.
    #[inline]
    pub(super) fn take(&self, block: *mut u8) -> Option<&'static SampleMap> {
        let map = match self.first.get() {
            Some(map) => {
                self.first.set(map.next.get());
                self.count.set(self.count.get() - 1);
                map
            }
            None => fresh_map()?,
        };
        live_of(map)?.0.ptr.store(block, Ordering::Relaxed);
        Some(map)
    }

    /// Keeps a map whose record is free.
    #[inline]
    pub(super) fn give(&self, map: &'static SampleMap) {
        if self.count.get() == KEPT_MAPS {
            self.pass_on(KEPT_MAPS / 2);
        }
        map.next.set(self.first.get());
        self.first.set(Some(map));
        self.count.set(self.count.get() + 1);
    }

    #[cold]
    #[inline(never)]
    fn pass_on(&self, count: u32) {
        let mut others = MAPS.lock();
        for _ in 0..count {
            let Some(map) = self.first.get() else { break };
            self.first.set(map.next.get());
            self.count.set(self.count.get() - 1);
            map.next.set(*others);
            *others = Some(map);
        }
    }
}

/// The record of the large block that has `map`.
#[inline(always)]
pub(crate) fn live_of(map: &SampleMap) -> Option<Live> {
    map.first()?.get().map(Live)
}

#[cold]
#[inline(never)]
fn fresh_map() -> Option<&'static SampleMap> {
    let waiting = {
        let mut others = MAPS.lock();
        others.inspect(|map| *others = map.next.get())
    };
    waiting.or_else(|| {
        let cell = pool(0).lock().take()?;
        let map = SampleMap::of_block()?;
        map.first()?.set(Some(cell));
        Some(map)
    })
}

impl Waiting {
    fn take(&mut self) -> Option<Ptr<LiveCell>> {
        if let Some(cell) = self.free {
            self.free = cell.next.get();
            cell.next.set(None);
            return Some(cell);
        }
        let blank = LiveCell {
            ptr: AtomicPtr::new(core::ptr::null_mut()),
            usable_bytes: AtomicU64::new(0),
            requested_bytes: AtomicU64::new(0),
            weight_bytes: AtomicU64::new(0),
            tctx: Link::none(),
            time_ns: AtomicU64::new(0),
            next: Link::none(),
            state: AtomicU32::new(LIVE_FREE),
            epoch: AtomicU32::new(0),
        };
        self.records.append(&jeprobe_root.lives, blank, 0, core::iter::empty())
    }

    fn recycle(&mut self, cell: Ptr<LiveCell>) {
        cell.next.set(self.free);
        self.free = Some(cell);
    }
}

pub(super) fn prefork() {
    for pool in &POOLS {
        pool.0.lock_for_fork();
    }
    MAPS.lock_for_fork();
}

pub(super) fn postfork_parent() {
    MAPS.unlock_for_fork();
    for pool in &POOLS {
        pool.0.unlock_for_fork();
    }
}

pub(super) fn postfork_child() {
    MAPS.reset_in_child();
    for pool in &POOLS {
        pool.0.reset_in_child();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arenas;

    #[test]
    fn a_region_that_comes_again_has_the_record_that_it_had() {
        let arena = arenas::create().expect("arena");
        let class = 4;
        let region = arena.alloc_sampled(class).expect("memory");
        let live = bind(region).expect("memory");
        live.leave(16);
        assert!(live.is_in_use() && live.block() == region);
        live.rest();
        let slab = emap::word(region.addr()).extent().expect("slab");
        let found = || find(region, slab).expect("record");
        // In the bin.
        assert!(!found().is_in_use() && found().0.same(live.0));
        assert!(bind(region).is_some_and(|again| again.0.same(live.0)));
        let other = arena.alloc_sampled(class).expect("memory");
        assert!(bind(other).is_some_and(|of_other| !of_other.0.same(live.0)));
    }
}
