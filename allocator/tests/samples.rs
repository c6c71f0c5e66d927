//! Sampled blocks through the allocator's front: each allocation is a sample, and a block that is freed wrongly ends the
//! process (`abort:true`).

use std::collections::HashSet;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::sync::mpsc::sync_channel;
use std::sync::{Mutex, Once};

use jeprobe_alloc::{api, prof};

/// Set in the process that frees a block twice.
const CHILD: &str = "JEPROBE_TEST_CHILD";

fn boot() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the tests of this file begin with this call, and read no variable at the same time.
        unsafe { std::env::set_var("MALLOC_CONF", "prof:true,lg_prof_sample:0,abort:true") };
        assert!(!api::malloc(1).is_null());
        assert!(prof::active() && prof::lg_sample() == 0);
    });
}

/// A block of `size` bytes that is full of `mark`.
fn marked(size: usize, mark: u8) -> (usize, usize, u8) {
    let block = api::malloc(size);
    assert!(!block.is_null() && api::usable_size(block) >= size);
    // SAFETY: the block has `size` bytes.
    unsafe { block.write_bytes(mark, size) };
    (block.expose_provenance(), size, mark)
}

/// Frees a block whose bytes are as they were written.
fn release((addr, size, mark): (usize, usize, u8)) {
    let block = std::ptr::with_exposed_provenance_mut::<u8>(addr);
    // SAFETY: a live block of `size` bytes.
    let bytes = unsafe { std::slice::from_raw_parts(block, size) };
    assert!(bytes.iter().all(|byte| *byte == mark), "{addr:#x} of {size}");
    // SAFETY: live, and given up here.
    unsafe { api::free(block) };
}

/// Blocks go from threads that allocate to threads that only free, which have no shelves, and to threads that do both.
#[test]
fn sampled_blocks_are_handed_between_threads() {
    boot();
    let sizes = [1, 16, 48, 200, 1000, 3000, 9000, 14_000, 20_000, 40_000, 150_000, 500_000];
    for round in 0..4 {
        let (send, receive) = sync_channel(64);
        let receive = Mutex::new(receive);
        let receive = &receive;
        std::thread::scope(|scope| {
            for giver in 0..2_u8 {
                let send = send.clone();
                scope.spawn(move || {
                    for i in 0..400 {
                        send.send(marked(sizes[i % sizes.len()], round << 2 | giver)).expect("a taker");
                    }
                });
            }
            drop(send);
            for taker in 0..3 {
                scope.spawn(move || {
                    let mut addresses = HashSet::new();
                    let mut kept = Vec::new();
                    while let Ok(block) = { receive.lock().expect("unpoisoned").recv() } {
                        assert!(addresses.insert(block.0), "handed out twice");
                        kept.push(block);
                        if taker == 1 {
                            let own = marked(block.1, 99);
                            assert!(addresses.insert(own.0), "handed out twice");
                            kept.push(own);
                        }
                        if kept.len() > 50 {
                            for block in kept.drain(..30) {
                                addresses.remove(&block.0);
                                release(block);
                            }
                        }
                    }
                    kept.into_iter().for_each(release);
                });
            }
        });
    }
}

#[test]
fn a_sample_stays_one_when_its_block_grows_or_shrinks_in_place_and_ends_with_it() {
    boot();
    for (size, other) in [(100, 104), (100, 5000), (20_000, 60_000), (300_000, 100_000), (100_000, 90)] {
        let (addr, ..) = marked(size, 3);
        let block = std::ptr::with_exposed_provenance_mut::<u8>(addr);
        // SAFETY: a live block, which is given up.
        let moved = unsafe { api::realloc(block, other) };
        // SAFETY: it holds at least the smaller number of bytes.
        let bytes = unsafe { std::slice::from_raw_parts(moved, size.min(other)) };
        assert!(bytes.iter().all(|byte| *byte == 3), "{size} {other}");
        assert!(api::usable_size(moved) >= other);
        // SAFETY: live, and given up here.
        unsafe { api::free(moved) };
    }
}

#[test]
fn a_sampled_block_that_is_freed_twice_is_found_at_once() {
    boot();
    if std::env::var_os(CHILD).is_some() {
        let block = api::malloc(100);
        // SAFETY: live, and given up.
        unsafe { api::free(block) };
        // SAFETY: not live any more: what is to be found.
        unsafe { api::free(block) };
        unreachable!("the second free ends the process");
    }
    let output = Command::new(std::env::current_exe().expect("own path"))
        .args(["--exact", "a_sampled_block_that_is_freed_twice_is_found_at_once"])
        .env(CHILD, "1")
        .output()
        .expect("runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{said}");
    assert!(said.contains("was freed twice"), "{said}");
}
