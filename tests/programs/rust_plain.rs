//! An ordinary Rust program: collections, strings, threads, a panic that is caught.

use std::collections::{BTreeMap, HashMap};
use std::sync::mpsc;
use std::thread;

fn main() {
    let (sender, receiver) = mpsc::channel();
    let workers: Vec<_> = (0..8_u64)
        .map(|worker| {
            let sender = sender.clone();
            thread::spawn(move || {
                let mut names = BTreeMap::new();
                for i in 0..20_000_u64 {
                    names.insert(i * 7919 % 10_007, format!("{worker}:{i}"));
                }
                for (key, name) in names {
                    sender.send((key, name)).expect("the receiver lives");
                }
            })
        })
        .collect();
    drop(sender);
    let mut sums: HashMap<u64, u64> = HashMap::new();
    for (key, name) in receiver {
        *sums.entry(key).or_default() += name.bytes().map(u64::from).sum::<u64>() + name.len() as u64;
    }
    for worker in workers {
        worker.join().expect("no worker panics");
    }
    let caught = std::panic::catch_unwind(|| {
        let big = vec![String::from("x"); 1000];
        assert!(big.len() != 1000, "planted");
    });
    let mut keys: Vec<_> = sums.into_iter().collect();
    keys.sort_unstable();
    let checksum = keys.iter().fold(0_u64, |sum, (key, value)| sum.wrapping_mul(31).wrapping_add(key ^ value));
    println!("caught {}", caught.is_err());
    println!("checksum {checksum:016x}");
}
