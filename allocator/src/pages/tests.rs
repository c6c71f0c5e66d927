//! Tests of the page allocator as a whole.
#![forbid(unsafe_code)]

use super::*;
use crate::base;
use crate::ds::list::List;
use crate::sizeclass::GRANULE;
use crate::sys::mock::{Resident, Touch};

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

#[test]
fn free_neighbours_merge_and_are_found_again() {
    let mut pages = Pages::new(7, true, 10_000, 0).expect("memory");
    let extents: std::vec::Vec<_> =
        (0..4).map(|_| pages.alloc(64 * KIB, GRANULE, Fit::Tight).expect("pages")).collect();
    let start = extents[0].addr();
    for pair in extents.windows(2) {
        assert_eq!(pair[0].end(), pair[1].addr().addr());
    }
    for i in [1, 3, 0, 2] {
        pages.dealloc(extents[i]);
        pages.check();
    }
    assert_eq!((pages.quick.bytes(), pages.stats().dirty_bytes), (256 * KIB, 256 * KIB));
    assert!(pages.coalesce() && !pages.coalesce());
    pages.check();
    assert_eq!(pages.dirty.all().len(), 1);
    assert_eq!(pages.stats().active_bytes, 0);
    let whole = pages.alloc(256 * KIB, GRANULE, Fit::Tight).expect("pages");
    assert_eq!((whole.addr(), whole.is_zeroed()), (start, false));
    pages.dealloc(whole);
}

#[test]
fn alignment_is_cut_out_and_nothing_is_lost() {
    let mut pages = Pages::new(8, true, 10_000, 0).expect("memory");
    let before = {
        let extent = pages.alloc(2 << 20, GRANULE, Fit::Tight).expect("pages");
        pages.dealloc(extent);
        let stats = pages.stats();
        stats.dirty_bytes + stats.retained_bytes
    };
    let extent = pages.alloc(16 * KIB, 1 << 20, Fit::Tight).expect("pages");
    assert_eq!(extent.addr().addr() % (1 << 20), 0);
    let stats = pages.stats();
    assert_eq!(stats.active_bytes + stats.dirty_bytes + stats.retained_bytes, before);
    pages.check();
}

/// A random history: blocks never overlap, bytes are conserved, and the page map's words are those of its table.
#[test]
fn any_history_keeps_the_invariants() {
    let mut pages = Pages::new(13, true, 10_000, 0).expect("memory");
    let mut live: std::vec::Vec<&'static Extent> = std::vec::Vec::new();
    let mut seed = 0x9e37_79b9_7f4a_7c15u64;
    let mut random = |below: usize| {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 33) as usize % below
    };
    let mut total = 0;
    for round in 0..4000 {
        match random(10) {
            0..=4 => {
                let bytes = {
                    let lg = random(9);
                    (1 + random(1 << lg)) * GRANULE
                };
                let align = GRANULE << if random(4) == 0 { random(9) } else { 0 };
                let fit = if random(5) == 0 { Fit::Roomy } else { Fit::Tight };
                let extent = pages.alloc(bytes, align, fit).expect("pages");
                assert!(extent.bytes() == bytes && extent.addr().addr().is_multiple_of(align));
                emap::set_large(extent, 0);
                let apart =
                    |other: &&Extent| other.end() <= extent.addr().addr() || extent.end() <= other.addr().addr();
                assert!(live.iter().all(apart), "overlap");
                live.push(extent);
            }
            5..=7 if !live.is_empty() => pages.dealloc(live.swap_remove(random(live.len()))),
            8 if !live.is_empty() => {
                let extent = live[random(live.len())];
                emap::clear_ends(extent);
                let pages_now = extent.bytes() / GRANULE;
                if pages_now > 1 && random(2) == 0 {
                    assert!(pages.shrink_in_place(extent, (1 + random(pages_now - 1)) * GRANULE));
                } else {
                    let may_move = random(2) == 0;
                    pages.grow_in_place(extent, (1 + random(8)) * GRANULE, may_move);
                }
                emap::set_large(extent, 0);
            }
            9 => {
                let which = if random(2) == 0 { Which::Dirty } else { Which::Muzzy };
                let limit = pages.set(which).bytes() / 2;
                let mut busy = List::new();
                pages.take_excess(which, limit, &mut busy);
                while let Some(extent) = busy.pop_front() {
                    let to = if random(2) == 0 { State::Muzzy } else { State::Retained };
                    pages.settle(extent, to, to == State::Retained);
                }
            }
            _ => {}
        }
        let stats = pages.stats();
        assert_eq!(stats.active_bytes, live.iter().map(|extent| extent.bytes()).sum::<usize>());
        let all = stats.active_bytes + stats.dirty_bytes + stats.muzzy_bytes + stats.retained_bytes;
        assert!(all >= total);
        total = all;
        if round % 64 == 0 {
            pages.check();
        }
    }
}

#[test]
fn small_arenas_share_chunks() {
    let mut arenas: std::vec::Vec<_> = (27..31).map(|ind| Pages::new(ind, true, 10_000, 0).expect("memory")).collect();
    let mut blocks = std::vec::Vec::new();
    for round in 0..200 {
        let pages = &mut arenas[round % 4];
        let bytes = (1 + round % 24) * GRANULE;
        let extent = pages.alloc(bytes, GRANULE, Fit::Tight).expect("pages");
        emap::set_large(extent, 0);
        blocks.push((extent.addr().addr(), extent.end()));
    }
    blocks.sort_unstable();
    assert!(blocks.windows(2).all(|pair| pair[0].1 <= pair[1].0), "overlap");
    let (first, last) = (blocks[0].0, blocks[199].1);
    let used: usize = blocks.iter().map(|(start, end)| end - start).sum();
    assert!(last - first <= used + used / 8 + 4 * (128 << 10), "{} for {used}", last - first);
    for pages in &arenas {
        pages.check();
    }
    let more = arenas[0].alloc(32 << 20, GRANULE, Fit::Tight).expect("pages");
    assert!(more.addr().addr() >= last || more.end() <= first, "long blocks have chunks of their own");
    let zeroed = arenas[1].alloc(128 * KIB, GRANULE, Fit::Zeroed).expect("pages");
    assert!(zeroed.is_zeroed() || zeroed.bytes() == 128 * KIB);
}

#[test]
fn growing_and_shrinking_in_place() {
    let mut pages = Pages::new(9, true, 10_000, 0).expect("memory");
    let a = pages.alloc(64 * KIB, GRANULE, Fit::Tight).expect("pages");
    emap::clear_ends(a);
    assert!(pages.grow_in_place(a, 32 * KIB, true));
    assert_eq!(a.bytes(), 96 * KIB);
    let b = pages.alloc(GRANULE, GRANULE, Fit::Tight).expect("pages");
    assert_eq!(b.addr().addr(), a.end());
    assert!(!pages.grow_in_place(a, GRANULE, true));
    assert!(pages.shrink_in_place(a, 16 * KIB));
    assert_eq!((a.bytes(), pages.stats().dirty_bytes), (16 * KIB, 80 * KIB));
    assert_eq!(pages.stats().active_bytes, 20 * KIB);
    pages.check();
}

#[test]
fn excess_is_taken_longest_and_oldest_first_and_settles() {
    let mut pages = Pages::new(10, true, 0, 0).expect("memory");
    let extents: std::vec::Vec<_> =
        (0..8).map(|_| pages.alloc(64 * KIB, GRANULE, Fit::Tight).expect("pages")).collect();
    for i in [0, 2, 4, 6] {
        pages.dealloc(extents[i]);
        pages.coalesce();
    }
    let mut busy = List::new();
    assert_eq!(pages.take_excess(Which::Dirty, 128 * KIB, &mut busy), 2);
    let first = busy.pop_front().expect("taken");
    assert_eq!((first.addr(), first.state()), (extents[0].addr(), State::Busy));
    pages.settle(first, State::Retained, true);
    let second = busy.pop_front().expect("taken");
    pages.settle(second, State::Muzzy, false);
    pages.check();
    assert_eq!(pages.stats().muzzy_bytes, 64 * KIB);
    assert_eq!(pages.stats().purged_bytes, 128 * KIB as u64);
}

#[test]
fn a_long_run_decays_in_pieces_from_its_end() {
    let mut pages = Pages::new(12, true, 10_000, 0).expect("memory");
    let run = pages.alloc(32 << 20, GRANULE, Fit::Tight).expect("pages");
    let (start, end) = (run.addr(), run.end());
    pages.dealloc(run);
    let mut busy = List::new();
    assert_eq!(pages.take_excess(Which::Dirty, 29 << 20, &mut busy), 1);
    let piece = busy.pop_front().expect("taken");
    assert_eq!((piece.bytes(), piece.end()), (4 << 20, end));
    assert_eq!(pages.dirty.coldest().map(Extent::addr), Some(start));
    assert_eq!(pages.stats().dirty_bytes, 28 << 20);
    pages.settle(piece, State::Retained, true);
    pages.check();
}

#[test]
fn a_refusing_system_leaves_everything_as_it_was() {
    let mut pages = Pages::new(11, true, 10_000, 0).expect("memory");
    let a = pages.alloc(GRANULE, GRANULE, Fit::Tight).expect("pages");
    let before = pages.stats();
    sys::mock::fail_after(Some(0));
    assert!(pages.alloc(64 << 20, GRANULE, Fit::Tight).is_err());
    sys::mock::fail_after(None);
    assert_eq!(pages.stats(), before);
    pages.check();
    pages.dealloc(a);
    assert!(pages.alloc(64 << 20, GRANULE, Fit::Tight).is_ok());
}

/// Extents of `sizes` MiB side by side.
fn row(pages: &mut Pages, sizes: &[usize]) -> std::vec::Vec<&'static Extent> {
    let whole: usize = sizes.iter().sum();
    let mut last = pages.alloc(whole << 20, GRANULE, Fit::Tight).expect("pages");
    pages.dealloc(last);
    let made = sizes.iter().map(|size| {
        let extent = pages.alloc(size << 20, GRANULE, Fit::Tight).expect("pages");
        last = extent;
        extent
    });
    let row: std::vec::Vec<_> = made.collect();
    assert!(row.windows(2).all(|pair| pair[0].end() == pair[1].addr().addr()));
    row
}

fn purge_all(pages: &mut Pages) {
    let mut busy = List::new();
    while pages.take_excess(Which::Dirty, 0, &mut busy) > 0 {
        while let Some(extent) = busy.pop_front() {
            pages.settle(extent, State::Retained, true);
        }
    }
}

#[test]
fn a_long_block_is_made_of_a_dirty_run_and_its_neighbours() {
    for (arena, dirty_at, wanted) in [(20, 1, 5), (21, 1, 9), (22, 0, 7), (23, 2, 6)] {
        let mut pages = Pages::new(arena, true, 10_000, 0).expect("memory");
        let row = row(&mut pages, &[3, 3, 3, 2]);
        let start = row[0].addr();
        for (i, extent) in row[..3].iter().enumerate() {
            if i != dirty_at {
                pages.dealloc(extent);
            }
        }
        purge_all(&mut pages);
        pages.dealloc(row[dirty_at]);
        let before = pages.stats();
        let block = pages.alloc(wanted << 20, GRANULE, Fit::Tight).expect("pages");
        emap::set_large(block, 0);
        let after = pages.stats();
        assert_eq!((block.bytes(), block.is_zeroed(), after.dirty_bytes), (wanted << 20, false, 0));
        assert_eq!(pages.fresh_bytes, (wanted - 3) << 20, "only what was missing became resident");
        assert_eq!(before.retained_bytes - after.retained_bytes, (wanted - 3) << 20);
        assert!(block.addr() >= start && block.end() <= row[3].addr().addr());
        for page in (block.addr().addr() + GRANULE..block.end()).step_by(GRANULE) {
            assert!(emap::extent_at(page).is_none(), "I-EMAP-2");
        }
        pages.check();
        pages.dealloc(block);
        pages.check();
    }
}

#[test]
fn fresh_memory_is_exchanged_for_idle_memory() {
    let mut pages = Pages::new(15, true, 10_000, 0).expect("memory");
    let row = row(&mut pages, &[8, 1, 8, 1, 1]);
    pages.dealloc(row[0]);
    pages.dealloc(row[2]);
    assert_eq!(pages.exchange_limit(), None, "nothing was taken");
    let within = pages.alloc(8 << 20, GRANULE, Fit::Tight).expect("pages");
    assert_eq!(pages.exchange_limit(), None, "what is resident was used");
    pages.dealloc(within);
    pages.alloc(12 << 20, GRANULE, Fit::Tight).expect("pages");
    assert_eq!(pages.exchange_limit(), Some(4 << 20));
    pages.alloc(30 << 20, GRANULE, Fit::Tight).expect("pages");
    assert_eq!(pages.exchange_limit(), Some(3 << 20));
    pages.dirty_decay.set_ms(-1, 1, 0);
    assert_eq!(pages.exchange_limit(), None, "the option says never");
}

#[test]
fn a_growing_block_moves_to_idle_memory_and_keeps_its_place_otherwise() {
    let mut pages = Pages::new(16, true, 10_000, 0).expect("memory");
    let row = row(&mut pages, &[6, 1, 2, 4]);
    pages.dealloc(row[3]);
    purge_all(&mut pages);
    pages.dealloc(row[0]);
    emap::clear_ends(row[2]);
    assert!(!pages.grow_in_place(row[2], 1 << 20, true), "6 MiB lie idle");
    assert!(pages.grow_in_place(row[2], GRANULE, true), "a small step is taken where it is");
    assert!(pages.grow_in_place(row[2], 1 << 20, false), "it must not move");
    pages.check();
}

#[test]
fn huge_pages_are_asked_for_once_where_fresh_memory_comes_into_use() {
    const HUGE: usize = HUGE_PAGE_BYTES;
    sys::mock::pretend_resident(Resident::Unknown);
    let mut pages = Pages::new(17, true, 10_000, 0).expect("memory");
    sys::mock::take_huge();
    let mut blocks: std::vec::Vec<_> =
        (0..60).map(|_| pages.alloc(28 * KIB, GRANULE, Fit::Tight).expect("pages")).collect();
    blocks.push(pages.alloc(6 << 20, GRANULE, Fit::Zeroed).expect("pages"));
    assert_eq!(
        sys::mock::take_huge(),
        [],
        "a small arena keeps small pages, and so does a zeroed block larger than all"
    );
    blocks.push(pages.alloc(64 << 20, GRANULE, Fit::Tight).expect("pages"));
    let asked: usize = sys::mock::take_huge().iter().map(|(_, bytes)| bytes).sum();
    assert!((60 << 20..64 << 20).contains(&asked), "{asked}: all of a block larger than all but its first run");
    blocks.extend((0..2000).map(|i| pages.alloc((1 + i % 9) * 28 * KIB, GRANULE, Fit::Tight).expect("pages")));
    let mut asked = sys::mock::take_huge();
    asked.sort_unstable();
    assert!(asked.iter().all(|(addr, bytes)| addr % HUGE == 0 && bytes % HUGE == 0));
    assert!(asked.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0), "none twice");
    let all: usize = asked.iter().map(|(_, bytes)| bytes).sum();
    let fresh: usize = blocks[62..].iter().map(|block| block.bytes()).sum();
    assert!(all > fresh - fresh / 8 && all < fresh + 2 * HUGE, "{all} bytes for {fresh}");
    for (addr, bytes) in asked {
        let within = |page: usize| {
            let held = |extent: &Extent| extent.addr().addr() <= page && page < extent.end();
            blocks.iter().any(|block| held(block)) || pages.retained.all().into_iter().any(held)
        };
        assert!((addr..addr + bytes).step_by(GRANULE * 16).all(within), "memory of others");
    }
    let part = pages.active_bytes() / 8;
    blocks.push(pages.alloc((part + GRANULE) & !(GRANULE - 1), GRANULE, Fit::Zeroed).expect("pages"));
    assert_eq!(sys::mock::take_huge(), [], "a zeroed block that is a large part of all may be sparse");
    blocks.push(pages.alloc(part & !(GRANULE - 1), GRANULE, Fit::Zeroed).expect("pages"));
    let asked: usize = sys::mock::take_huge().iter().map(|(_, bytes)| bytes).sum();
    assert!(asked > part - 3 * HUGE, "{asked} of {part}");
    sys::mock::pretend_resident(Resident::Truth);
    assert_eq!(sys::resident_bytes(blocks[70].addr().addr(), GRANULE), Some(0), "asking touches nothing");
}

#[test]
fn huge_pages_follow_how_densely_the_memory_is_used() {
    /// Bytes asked for while 64 MiB more come into use.
    fn asked(pages: &mut Pages) -> usize {
        sys::mock::take_huge();
        for _ in 0..64 {
            pages.alloc(1 << 20, GRANULE, Fit::Tight).expect("pages");
        }
        sys::mock::take_huge().iter().map(|(_, bytes)| bytes).sum()
    }
    let mut pages = Pages::new(24, true, 10_000, 0).expect("memory");
    sys::mock::pretend_resident(Resident::Bytes(HUGE_PAGE_BYTES));
    let first = asked(&mut pages);
    assert!((54 << 20..64 << 20).contains(&first), "{first}: at once, but for the first run and a probe");
    let dense: usize = (0..8).map(|_| asked(&mut pages)).sum();
    assert!(dense >= 504 << 20, "{dense}: ever fewer probes");
    sys::mock::pretend_resident(Resident::Bytes(HUGE_PAGE_BYTES / 4));
    assert!((0..9).any(|_| asked(&mut pages) == 0), "found within as much again");
    assert_eq!(asked(&mut pages), 0);
    sys::mock::pretend_resident(Resident::Bytes(HUGE_PAGE_BYTES));
    asked(&mut pages);
    assert!(asked(&mut pages) >= 56 << 20, "found sooner");
    sys::mock::pretend_resident(Resident::Truth);
}

#[test]
fn a_run_that_comes_late_keeps_small_pages() {
    const MS: u64 = 1_000_000;
    /// Bytes asked for while `mib` more come into use, each MiB `ms` after the last.
    fn asked(pages: &mut Pages, mib: usize, ms: u64) -> usize {
        sys::mock::take_huge();
        for _ in 0..mib {
            sys::mock::pass_ns(ms * MS);
            pages.alloc(1 << 20, GRANULE, Fit::Tight).expect("pages");
        }
        sys::mock::take_huge().iter().map(|(_, bytes)| bytes).sum()
    }
    for retain in [true, false] {
        let mut pages = Pages::new(32, retain, 10_000, 0).expect("memory");
        pages.counted_bytes = Some(0);
        sys::mock::pretend_resident(Resident::Bytes(HUGE_PAGE_BYTES));
        pages.shared = std::boxed::Box::leak(std::boxed::Box::new(Mutex::new(
            crate::sync::rank::Rank::Chunks,
            shared::Shared::new(),
        )));
        assert_eq!(asked(&mut pages, 12, 2), 8 << 20, "{retain}: in a rush");
        sys::mock::pass_ns(16 * MS);
        assert_eq!(asked(&mut pages, 2, 1), 0, "{retain}: late, since as much took 24 ms");
        assert_eq!(asked(&mut pages, 2, 6), 2 << 20, "{retain}: a rush again");
        sys::mock::pass_ns(60 * MS);
        assert_eq!(asked(&mut pages, 2, 6), 0, "{retain}");
        asked(&mut pages, 4, 15);
        assert_eq!(asked(&mut pages, 4, 15), 4 << 20, "{retain}: steady");
        assert_eq!(asked(&mut pages, 4, 30), 0, "{retain}: few enough that faults cost nothing");
        asked(&mut pages, 40, 0);
        assert!(asked(&mut pages, 8, 30) >= 4 << 20, "{retain}: the rest of a run is a small part of all");
    }
    sys::mock::pretend_resident(Resident::Truth);
}

#[test]
fn huge_pages_are_left_alone_while_they_are_dear() {
    /// Runs asked for, and touched, while 128 more come into use.
    fn runs(pages: &mut Pages) -> (usize, usize) {
        sys::mock::take_huge();
        sys::mock::take_touched();
        for _ in 0..256 {
            pages.alloc(1 << 20, GRANULE, Fit::Tight).expect("pages");
        }
        let asked: usize = sys::mock::take_huge().iter().map(|(_, bytes)| bytes / HUGE_PAGE_BYTES).sum();
        (asked, sys::mock::take_touched().len())
    }
    let mut pages = Pages::new(25, true, 10_000, 0).expect("memory");
    sys::mock::pretend_resident(Resident::Bytes(HUGE_PAGE_BYTES));
    sys::mock::pretend_touch(Touch::Took(200_000));
    pages.alloc(64 << 20, GRANULE, Fit::Tight).expect("pages");
    assert_eq!(sys::mock::take_touched(), [], "of a block larger than all maybe only the start is used");
    let (asked, touched) = runs(&mut pages);
    assert!(asked > 110 && (16..48).contains(&touched), "{asked} asked for, {touched} touched");
    sys::mock::pretend_touch(Touch::Took(5_000_000));
    let (asked, touched) = runs(&mut pages);
    assert!(asked < 12 && touched < 8, "{asked} asked for, {touched} touched");
    let (asked, touched) = (0..4).map(|_| runs(&mut pages)).fold((0, 0), |sum, (a, t)| (sum.0 + a, sum.1 + t));
    assert!(asked <= 6 && touched <= 6, "{asked} asked for, {touched} touched: ever fewer");
    sys::mock::pretend_touch(Touch::Took(200_000));
    runs(&mut pages);
    let (asked, _) = runs(&mut pages);
    assert!(asked > 110, "{asked}: found again");
    sys::mock::pretend_touch(Touch::Unknown);
    let (asked, _) = runs(&mut pages);
    assert!(asked > 110, "{asked}: a system that does not say is taken to be cheap");
    sys::mock::pretend_resident(Resident::Truth);
}

#[test]
fn a_touch_brings_a_page_in() {
    let mut pages = Pages::new(26, true, 10_000, 0).expect("memory");
    let block = pages.alloc(64 * KIB, GRANULE, Fit::Tight).expect("pages");
    sys::mock::pretend_touch(Touch::Truth);
    let took = emap::touch_ns(block.addr());
    sys::mock::pretend_touch(Touch::Unknown);
    let resident = sys::resident_bytes(block.addr().addr(), 64 * KIB);
    assert!(took.is_none() || resident.is_none_or(|bytes| bytes >= GRANULE), "{took:?}, {resident:?}");
}

#[test]
fn a_system_that_refuses_advice_costs_only_its_benefit() {
    let mut pages = Pages::new(18, true, 10_000, 0).expect("memory");
    sys::mock::refuse_advice(true);
    let row = row(&mut pages, &[8, 8, 8]);
    pages.dealloc(row[1]);
    let mut busy = List::new();
    pages.take_excess(Which::Dirty, 0, &mut busy);
    let piece = busy.pop_front().expect("taken");
    let zeroed = emap::purge_forced(piece);
    pages.settle(piece, State::Retained, zeroed);
    let again = pages.alloc(8 << 20, GRANULE, Fit::Tight).expect("pages");
    assert!(again.addr() == row[1].addr() && !again.is_zeroed(), "old contents are not taken for zero");
    pages.check();
    sys::mock::refuse_advice(false);
}

#[test]
fn what_is_kept_whole_stays_a_small_part() {
    let mut pages = Pages::new(19, true, 10_000, 0).expect("memory");
    let live = pages.alloc(256 << 20, GRANULE, Fit::Tight).expect("pages");
    let row: std::vec::Vec<_> =
        (0..640).map(|i| pages.alloc((17 + i % 16) * 4 * KIB, GRANULE, Fit::Tight).expect("pages")).collect();
    for extent in row {
        pages.dealloc(extent);
        assert!(pages.quick.bytes() <= pages.active_bytes / QUICK_PART + 128 * KIB);
    }
    let short: std::vec::Vec<_> =
        (0..6000).map(|i| pages.alloc((1 + i % 8) * 4 * KIB, GRANULE, Fit::Tight).expect("pages")).collect();
    let whole: usize = short.iter().map(|extent| extent.bytes()).sum();
    let mut most = 0;
    for extent in short {
        pages.dealloc(extent);
        most = most.max(pages.quick.bytes());
        assert!(pages.quick.bytes() <= pages.active_bytes / QUICK_PART_SHORT);
    }
    // As far as the lists' own bounds go.
    assert!(most >= 4 << 20 && most < whole, "{most} bytes kept");
    pages.dealloc(live);
    pages.check();
}

/// What one arena lends leaves its sets, merges with what the other holds, and is used before fresh memory.
#[test]
fn idle_runs_change_hands() {
    let mut lender = Pages::new(9, true, 10_000, 0).expect("memory");
    let mut borrower = Pages::new(10, true, 10_000, 0).expect("memory");
    let whole = lender.alloc(4 << 20, GRANULE, Fit::Tight).expect("pages");
    let end = whole.end();
    lender.dealloc(whole);
    assert!(lender.lend(8 << 20, 8 << 20).is_none());
    // The upper end first; what it gives next lies below that.
    for part in 1..=2 {
        let answer = borrower.alloc_or_borrow(MIB / 2, GRANULE, Fit::Tight, true).expect("pages");
        let Answer::Borrow { need, wanted } = answer else { panic!("fresh memory without a question") };
        assert_eq!((need, wanted), (MIB / 2, MIB / 2));
        let run = lender.lend(need, MIB).expect("idle memory");
        assert_eq!((run.bytes(), run.end(), run.state()), (MIB, end - (part - 1) * MIB, State::Busy));
        borrower.take_in(run);
        lender.check();
        borrower.check();
        assert_eq!(lender.stats().dirty_bytes, (4 - part) * MIB);
        assert_eq!(borrower.stats().dirty_bytes + borrower.stats().active_bytes, part * MIB);
        for half in [end - part * MIB, end - part * MIB + MIB / 2] {
            let block = borrower.alloc(MIB / 2, GRANULE, Fit::Tight).expect("pages");
            assert_eq!((block.addr().addr(), block.arena()), (half, 10));
        }
    }
    assert_eq!(borrower.fresh_bytes, 0);
}

/// An arena that was refused asks again after some fresh memory only, and never when it keeps nothing.
#[test]
fn questions_are_some_way_apart() {
    let mut pages = Pages::new(11, true, 10_000, 0).expect("memory");
    let mut asked = 0;
    for _ in 0..64 {
        if let Answer::Borrow { .. } = pages.alloc_or_borrow(16 * KIB, GRANULE, Fit::Tight, true).expect("pages") {
            asked += 1;
            pages.alloc(16 * KIB, GRANULE, Fit::Tight).expect("pages");
        }
    }
    assert_eq!(asked, 16);
    let mut pages = Pages::new(12, true, 0, 0).expect("memory");
    let answer = pages.alloc_or_borrow(MIB, GRANULE, Fit::Tight, true).expect("pages");
    assert!(matches!(answer, Answer::Block(_)));
}

/// Without memory for descriptors a part of the free pages becomes metadata: not of the run that is about to be cut for a purge.
#[test]
fn a_purge_without_memory_takes_what_is_left() {
    let mut pages = Pages::new(31, true, 10_000, 0).expect("memory");
    let run = pages.alloc(320 * KIB, GRANULE, Fit::Tight).expect("pages");
    pages.dealloc(run);
    pages.coalesce();
    while pages.pool_count > 2 {
        pages.descriptor();
    }
    sys::mock::fail_after(Some(0));
    while base::alloc(GRANULE, 8).is_some() {}
    while base::alloc(64, 8).is_some() {}
    let mut busy = List::new();
    pages.take_excess(Which::Dirty, 0, &mut busy);
    sys::mock::fail_after(None);
    let taken: std::vec::Vec<_> = busy.iter().map(|piece| (piece.addr(), piece.bytes())).collect();
    let bytes: usize = taken.iter().map(|(_, bytes)| bytes).sum();
    assert!(pages.stats().dirty_bytes == 0 && [256 * KIB, 320 * KIB].contains(&bytes), "{taken:?}");
    pages.check();
}
