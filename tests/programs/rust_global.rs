//! A Rust program whose global allocator is ours.
//!
//! Prints facts. With the argument `hold` it also takes 200 blocks of 100,000 bytes on each of four threads, prints
//! `ready`, and takes as many more as each line of its standard input says, until that ends.

use std::alloc::{Layout, alloc, alloc_zeroed, dealloc, realloc};
use std::collections::HashMap;
use std::io::{BufRead as _, stdin};
use std::{env, thread};

#[global_allocator]
static GLOBAL: jeprobe_alloc::Jeprobe = jeprobe_alloc::Jeprobe;

const HELD_BYTES: usize = 100_000;

fn main() {
    words();
    threads();
    layouts();
    if env::args().nth(1).as_deref() == Some("hold") {
        hold();
    }
}

/// Strings and vectors in a map that grows.
fn words() {
    let mut words = HashMap::new();
    for i in 0..20_000_u32 {
        words.insert(format!("word {i}"), vec![i; (i % 50) as usize]);
    }
    println!("words = {}", words.len());
    let wrong = words.iter().filter(|(word, list)| !list.iter().all(|i| word.ends_with(&format!(" {i}")))).count();
    println!("wrong = {wrong}");
}

/// Blocks of eight threads, read and freed by this one.
fn threads() {
    let threads: Vec<_> = (1..=8_u8)
        .map(|seed| {
            thread::spawn(move || (0..2000_usize).map(|i| vec![seed; 1 + i * 13 % 9000]).collect::<Vec<Vec<u8>>>())
        })
        .collect();
    let mut checksum = 0_u64;
    for handle in threads {
        let blocks = handle.join().expect("no thread panics");
        checksum += blocks.iter().map(|block| block.iter().map(|&byte| u64::from(byte)).sum::<u64>()).sum::<u64>();
    }
    println!("checksum = {checksum}");
}

/// All four functions of a global allocator, at every alignment up to 128 KiB.
fn layouts() {
    let (mut misaligned, mut dirty) = (0_usize, 0_usize);
    for shift in 0..18 {
        for size in [1_usize, 100, 5000, 70_000] {
            let layout = Layout::from_size_align(size, 1 << shift).expect("a legal layout");
            // SAFETY: the layout's size is not zero.
            let plain = unsafe { alloc(layout) };
            misaligned += plain.addr() % layout.align();
            // SAFETY: `plain` holds `size` bytes and was just allocated.
            unsafe { plain.write_bytes(0xa5, size) };
            // SAFETY: `plain` came from `alloc` with this layout; the new size is not zero and does not overflow.
            let grown = unsafe { realloc(plain, layout, size * 2) };
            misaligned += grown.addr() % layout.align();
            // SAFETY: `grown` holds `2 * size` bytes, the first `size` of them initialised.
            dirty += unsafe { std::slice::from_raw_parts(grown, size) }.iter().filter(|&&byte| byte != 0xa5).count();
            let doubled = Layout::from_size_align(size * 2, 1 << shift).expect("a legal layout");
            // SAFETY: `grown` is a live block of this layout.
            unsafe { dealloc(grown, doubled) };
            // SAFETY: the layout's size is not zero.
            let zeroed = unsafe { alloc_zeroed(doubled) };
            misaligned += zeroed.addr() % layout.align();
            // SAFETY: `zeroed` holds `2 * size` initialised bytes.
            dirty += unsafe { std::slice::from_raw_parts(zeroed, size * 2) }.iter().filter(|&&byte| byte != 0).count();
            // SAFETY: `zeroed` is a live block of this layout.
            unsafe { dealloc(zeroed, doubled) };
        }
    }
    println!("misaligned = {misaligned}");
    println!("dirty = {dirty}");
}

#[inline(never)]
fn hold_blocks(count: usize) -> Vec<Vec<u8>> {
    (0..count).map(|_| vec![1; HELD_BYTES]).collect()
}

fn hold() {
    let threads: Vec<_> = (0..4).map(|_| thread::spawn(|| hold_blocks(200))).collect();
    let mut held: Vec<_> = threads.into_iter().map(|handle| handle.join().expect("no thread panics")).collect();
    println!("ready");
    for line in stdin().lock().lines() {
        let count = line.expect("text").parse().expect("a number");
        held.push(hold_blocks(count));
        println!("done");
    }
    println!("held = {}", held.iter().map(Vec::len).sum::<usize>());
}
