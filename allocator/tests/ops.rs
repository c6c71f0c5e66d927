//! Sequences of random operations against a shadow map: blocks do not overlap, keep their contents, have the size and
//! alignment asked for, read as zero where promised; and at the end nothing is left.

use std::collections::BTreeMap;
use std::sync::mpsc;

use jeprobe_alloc::api::{self, CacheChoice, Place};
use jeprobe_alloc::{arenas, boot, sizeclass};

/// A small generator with a fixed seed, so that a failure repeats.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        self.0 >> 29
    }

    fn below(&mut self, limit: usize) -> usize {
        self.next() as usize % limit
    }

    /// Sizes of every kind: mostly small, some large, some on and beside class boundaries.
    fn size(&mut self) -> usize {
        match self.below(10) {
            0 => self.below(300_000),
            1 => 1 << self.below(18),
            2 => sizeclass::SIZES[self.below(60)].saturating_sub(1),
            3 => sizeclass::SIZES[self.below(60)] + 1,
            4 => self.below(20_000),
            _ => self.below(600),
        }
    }
}

struct Block {
    size: usize,
    fill: u8,
}

/// Live blocks by address.
#[derive(Default)]
struct Shadow(BTreeMap<usize, (*mut u8, Block)>);

fn fill_of(addr: usize, salt: u64) -> u8 {
    (addr >> 4) as u8 ^ salt as u8 ^ 0x5a
}

impl Shadow {
    /// Takes in a fresh block, checking what must hold of it.
    fn add(&mut self, ptr: *mut u8, size: usize, align: usize, salt: u64) {
        assert!(!ptr.is_null());
        assert_eq!(ptr.addr() % align, 0, "alignment {align} of {ptr:?}, size {size}");
        if size > 8 {
            assert_eq!(ptr.addr() % 16, 0);
        }
        let usable = api::usable_size(ptr);
        assert!(usable >= size, "usable {usable} of {size}");
        if let Some((below, (_, block))) = self.0.range(..=ptr.addr()).next_back() {
            assert!(below + block.size <= ptr.addr(), "block {ptr:?} overlaps {below:#x}");
        }
        if let Some((above, _)) = self.0.range(ptr.addr()..).next() {
            assert!(ptr.addr() + usable <= *above, "block {ptr:?} of {usable} overlaps {above:#x}");
        }
        let fill = fill_of(ptr.addr(), salt);
        // SAFETY: the block was just obtained and has `usable` bytes.
        unsafe { ptr.write_bytes(fill, usable) };
        self.0.insert(ptr.addr(), (ptr, Block { size: usable, fill }));
    }

    fn any(&self, random: &mut Random) -> Option<usize> {
        let addrs: Vec<usize> = self.0.keys().copied().collect();
        (!addrs.is_empty()).then(|| addrs[random.below(addrs.len())])
    }

    /// Takes a block out, checking its contents.
    fn take(&mut self, addr: usize) -> (*mut u8, Block) {
        let (ptr, block) = self.0.remove(&addr).expect("a live block");
        check(ptr, block.size, block.fill);
        (ptr, block)
    }
}

fn check(ptr: *mut u8, bytes: usize, fill: u8) {
    // SAFETY: the block is live, has at least `bytes` bytes, and nobody writes to it now.
    let contents = unsafe { std::slice::from_raw_parts(ptr, bytes) };
    assert!(contents.iter().all(|byte| *byte == fill), "contents of {ptr:?} changed");
}

fn assert_zero(ptr: *mut u8, bytes: usize) {
    check(ptr, bytes, 0);
}

fn place(random: &mut Random) -> Place {
    match random.below(4) {
        0 => Place { cache: CacheChoice::Bypass, arena: None },
        1 => Place { cache: CacheChoice::Bypass, arena: Some(random.below(3) as u32) },
        _ => Place::default(),
    }
}

fn step(shadow: &mut Shadow, random: &mut Random) {
    let salt = random.next();
    match random.below(12) {
        0..=3 => {
            let size = random.size();
            shadow.add(api::malloc(size), size, 8.min(size.next_power_of_two()), salt);
        }
        4 => {
            let size = random.size();
            let ptr = api::calloc(1, size);
            assert_zero(ptr, size);
            shadow.add(ptr, size, 8, salt);
        }
        5 => {
            let (size, align) = (random.size(), 1 << random.below(17));
            let zeroed = random.below(2) == 0;
            let ptr = api::allocate(size, align, zeroed, place(random));
            if zeroed {
                assert_zero(ptr, api::usable_size(ptr));
            }
            shadow.add(ptr, size, align, salt);
        }
        6 | 7 => {
            let Some(addr) = shadow.any(random) else { return };
            let (ptr, block) = shadow.take(addr);
            let size = random.size().max(1);
            // SAFETY: S1: the shadow gave up the block.
            let moved = unsafe { api::realloc_placed(ptr, size, 1, false, place(random)) };
            check(moved, block.size.min(size), block.fill);
            shadow.add(moved, size, 8, salt);
        }
        8 => {
            let Some(addr) = shadow.any(random) else { return };
            let (ptr, block) = shadow.take(addr);
            let (size, extra) = (random.size().max(1), random.below(50_000));
            // SAFETY: S1: the block is live and ours.
            let usable = unsafe { api::resize_in_place(ptr, size, extra, 1, false) };
            assert_eq!(usable, api::usable_size(ptr));
            check(ptr, block.size.min(usable), block.fill);
            shadow.add(ptr, 0, 1, salt);
        }
        _ => {
            let Some(addr) = shadow.any(random) else { return };
            let (ptr, _) = shadow.take(addr);
            // SAFETY: S1: the shadow gave up the block.
            unsafe { api::free_placed(ptr, place(random)) };
        }
    }
    if random.below(500) == 0 {
        let arena = boot::current().arena().expect("an arena");
        if random.below(2) == 0 { arena.purge() } else { boot::current().flush_cache() }
    }
}

fn run(seed: u64, steps: usize) -> Shadow {
    let mut random = Random(seed);
    let mut shadow = Shadow::default();
    for _ in 0..steps {
        step(&mut shadow, &mut random);
        while shadow.0.len() > 400 {
            let addr = shadow.any(&mut random).expect("blocks");
            let (ptr, _) = shadow.take(addr);
            // SAFETY: S1: the shadow gave up the block.
            unsafe { api::free(ptr) };
        }
    }
    shadow
}

#[test]
fn random_operations_keep_every_promise() {
    for seed in 1..=6 {
        let mut shadow = run(seed, 6_000);
        let addrs: Vec<usize> = shadow.0.keys().copied().collect();
        for addr in addrs {
            let (ptr, _) = shadow.take(addr);
            // SAFETY: S1: the shadow gave up the block.
            unsafe { api::free(ptr) };
        }
    }
}

/// A block on its way to another thread.
struct Sent(*mut u8, usize, u8);

// SAFETY: the receiver is the only user of the block.
unsafe impl Send for Sent {}

#[test]
fn blocks_freed_by_other_threads_come_back() {
    // Boot first: before it, the next index is one of the automatic arenas, which other tests use.
    assert!(boot::current().arena().is_some());
    let arena = arenas::create().expect("an arena");
    let ind = arena.ind();
    let (sender, receiver) = mpsc::channel::<Sent>();
    let makers: Vec<_> = (0..3u64)
        .map(|maker| {
            let sender = sender.clone();
            std::thread::spawn(move || {
                boot::current().set_arena(arenas::get(ind).expect("made above"));
                let mut random = Random(maker + 77);
                for _ in 0..30_000 {
                    let size = random.below(2_000) + 1;
                    let ptr = api::malloc(size);
                    let fill = fill_of(ptr.addr(), maker);
                    // SAFETY: the block was just obtained and has `size` bytes.
                    unsafe { ptr.write_bytes(fill, size) };
                    sender.send(Sent(ptr, size, fill)).expect("a receiver");
                }
            })
        })
        .collect();
    drop(sender);
    let taker = std::thread::spawn(move || {
        for Sent(ptr, size, fill) in receiver {
            check(ptr, size, fill);
            // SAFETY: S1: the block was sent here to be freed.
            unsafe { api::free(ptr) };
        }
        boot::current().flush_cache();
    });
    for maker in makers {
        maker.join().expect("joined");
    }
    taker.join().expect("joined");
    // Threads have ended and given their caches back; what waits on remote lists comes in with a purge.
    arena.purge();
    for class in 0..sizeclass::NBINS {
        assert_eq!(arena.bin_stats(class).live, 0, "class {class}");
    }
    let pages = arena.page_stats();
    assert_eq!((pages.dirty_bytes, pages.muzzy_bytes), (0, 0));
}

#[test]
fn large_zeroed_blocks_are_zero_whether_fresh_or_reused() {
    for _ in 0..50 {
        let ptr = api::calloc(1, 300_000);
        assert_zero(ptr, 300_000);
        // SAFETY: the block was just obtained and has this many bytes.
        unsafe { ptr.write_bytes(0xff, 300_000) };
        // SAFETY: S1: not used again.
        unsafe { api::free(ptr) };
    }
}

#[test]
fn large_blocks_beyond_what_the_cache_keeps_go_to_their_arena() {
    let arena = boot::current().arena().expect("an arena");
    let blocks: Vec<*mut u8> = (0..60).map(|i| api::malloc([100_000, 300_000][i % 2])).collect();
    let before = arena.large_stats().frees;
    for block in &blocks {
        // SAFETY: S1: not used again.
        unsafe { api::free(*block) };
    }
    // A MiB stays: ten of the shorter ones at most.
    let returned = arena.large_stats().frees - before;
    assert!(returned >= 50, "{returned} went back");
    // Once more: nothing is handed out twice.
    let mut again: Vec<*mut u8> = (0..60).map(|i| api::malloc([100_000, 300_000][i % 2])).collect();
    again.sort_unstable();
    assert!(again.windows(2).all(|pair| pair[1].addr() - pair[0].addr() >= 100_000));
    for block in again {
        // SAFETY: S1: not used again.
        unsafe { api::free(block) };
    }
}

#[test]
fn explicit_caches_serve_and_end() {
    let id = jeprobe_alloc::tcache::create().expect("a cache");
    let place = Place { cache: CacheChoice::Explicit(id), arena: None };
    let blocks: Vec<*mut u8> = (0..500).map(|i| api::allocate(i + 1, 1, false, place)).collect();
    let distinct: std::collections::BTreeSet<usize> = blocks.iter().map(|block| block.addr()).collect();
    assert_eq!(distinct.len(), blocks.len());
    for block in blocks {
        // SAFETY: S1: not used again.
        unsafe { api::free_placed(block, place) };
    }
    let arena = boot::current().arena().expect("an arena");
    assert!(jeprobe_alloc::tcache::flush(id, arena));
    assert!(jeprobe_alloc::tcache::destroy(id, arena));
    assert!(!jeprobe_alloc::tcache::destroy(id, arena));
}

#[test]
fn impossible_sizes_give_null() {
    assert!(api::malloc(usize::MAX).is_null());
    assert!(api::calloc(usize::MAX, 2).is_null());
    assert!(api::allocate(1 << 40, 1 << 62, false, Place::default()).is_null());
    let ptr = api::malloc(100);
    // SAFETY: S1: a failed call leaves the block alone.
    let refused = unsafe { api::realloc(ptr, usize::MAX) };
    assert!(refused.is_null());
    // SAFETY: S1: not used again.
    unsafe { api::free(ptr) };
}
