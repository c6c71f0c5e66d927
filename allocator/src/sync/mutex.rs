//! A mutex of one 32-bit word that spins briefly and then sleeps on a futex.
//!
//! | word | meaning | moved on by |
//! |---|---|---|
//! | 0 | free | `lock`, `try_lock`: 0 → 1, Acquire |
//! | 1 | held, nobody sleeps | holder: → 0, Release; a waiter: → 2 before it sleeps |
//! | 2 | held, someone may sleep | holder: → 0, Release, then one wake |
//!
//! A waiter that was woken takes the lock as 2, because others may still sleep. The lock has a [`Rank`] and, in debug
//! builds, checks the lock order. `fork` takes and releases raw and resets the word in the child.
//!
//! Fields: `word` atomic; `value` lock.

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};

use super::rank::{self, Rank};
use crate::prim::{AtomicU32, Ordering, spin_loop};

const FREE: u32 = 0;
const HELD: u32 = 1;
const CONTENDED: u32 = 2;

/// Looks at a held lock this many times before sleeping: about one microsecond, the length of a typical critical
/// section here. More helps only when there are more CPUs than runnable threads.
const SPINS: u32 = if cfg!(loom) { 1 } else { 100 };

/// A value behind a ranked futex lock.
pub struct Mutex<T> {
    word: AtomicU32,
    rank: Rank,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached only through a guard, which exists once at a time (state table above).
unsafe impl<T: Send> Sync for Mutex<T> {}
// SAFETY: moving the lock moves the value; nothing else refers to it.
unsafe impl<T: Send> Send for Mutex<T> {}

/// Proof of holding the lock.
pub struct Guard<'a, T> {
    mutex: &'a Mutex<T>,
    ranked: bool,
}

impl<T> Mutex<T> {
    /// A free lock.
    #[cfg(not(loom))]
    pub const fn new(rank: Rank, value: T) -> Mutex<T> {
        Mutex { word: AtomicU32::new(FREE), rank, value: UnsafeCell::new(value) }
    }

    /// A free lock.
    #[cfg(loom)]
    pub fn new(rank: Rank, value: T) -> Mutex<T> {
        Mutex { word: AtomicU32::new(FREE), rank, value: UnsafeCell::new(value) }
    }

    /// Takes the lock, waiting for it.
    #[inline]
    pub fn lock(&self) -> Guard<'_, T> {
        rank::acquire(self.rank);
        self.lock_word();
        Guard { mutex: self, ranked: true }
    }

    /// Takes the lock if it is free.
    #[inline]
    pub fn try_lock(&self) -> Option<Guard<'_, T>> {
        // Acquire: pairs with the Release in `unlock_word`.
        self.word.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).ok()?;
        Some(Guard { mutex: self, ranked: rank::acquired_without_waiting(self.rank) })
    }

    /// Takes the lock for `fork`, which holds many of one rank. Ended by [`Mutex::unlock_for_fork`] in the parent and
    /// [`Mutex::reset_in_child`] in the child.
    pub fn lock_for_fork(&self) {
        self.lock_word();
    }

    /// Releases in the parent what [`Mutex::lock_for_fork`] took.
    pub fn unlock_for_fork(&self) {
        self.unlock_word();
    }

    /// Frees the lock in the child of a fork; whoever slept on it exists only in the parent.
    pub fn reset_in_child(&self) {
        // Relaxed: the child has one thread.
        self.word.store(FREE, Ordering::Relaxed);
    }

    /// The value, when the lock cannot be contended.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    #[inline]
    fn lock_word(&self) {
        // Acquire: pairs with the Release in `unlock_word`.
        if self.word.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_err() {
            self.lock_slow();
        }
    }

    #[cold]
    fn lock_slow(&self) {
        for _ in 0..SPINS {
            // Relaxed: only a hint; the exchange below orders.
            if self.word.load(Ordering::Relaxed) == FREE
                && self.word.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok()
            {
                return;
            }
            spin_loop();
        }
        // Acquire: pairs with the Release in `unlock_word`.
        while self.word.swap(CONTENDED, Ordering::Acquire) != FREE {
            wait(&self.word, CONTENDED);
        }
    }

    #[inline]
    fn unlock_word(&self) {
        // Release: pairs with the Acquire in `lock_word`, `lock_slow` and `try_lock`.
        if self.word.swap(FREE, Ordering::Release) == CONTENDED {
            wake_one(&self.word);
        }
    }
}

#[cfg(not(loom))]
fn wait(word: &AtomicU32, expected: u32) {
    crate::sys::futex_wait(word, expected, None);
}

#[cfg(not(loom))]
fn wake_one(word: &AtomicU32) {
    crate::sys::futex_wake(word, 1);
}

#[cfg(loom)]
fn wait(_: &AtomicU32, _: u32) {
    loom::thread::yield_now();
}

#[cfg(loom)]
fn wake_one(_: &AtomicU32) {}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard proves that this thread holds the lock.
        unsafe { &*self.mutex.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard proves that this thread holds the lock, and is borrowed exclusively.
        unsafe { &mut *self.mutex.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.mutex.unlock_word();
        if self.ranked {
            rank::release(self.mutex.rank);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn many_threads_count_exactly() {
        let counter = Arc::new(Mutex::new(Rank::Base, 0u64));
        let threads: std::vec::Vec<_> = (0..4)
            .map(|_| {
                let counter = Arc::clone(&counter);
                std::thread::spawn(move || {
                    for _ in 0..20_000 {
                        *counter.lock() += 1;
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().expect("joined");
        }
        assert_eq!(*counter.lock(), 80_000);
    }

    #[test]
    fn try_lock_fails_while_held_and_fork_reset_frees() {
        let mutex = Mutex::new(Rank::Base, ());
        let guard = mutex.lock();
        assert!(mutex.try_lock().is_none());
        drop(guard);
        assert!(mutex.try_lock().is_some());
        mutex.lock_for_fork();
        assert!(mutex.try_lock().is_none());
        mutex.reset_in_child();
        assert!(mutex.try_lock().is_some());
    }

    #[test]
    fn ranks_are_tracked() {
        let outer = Mutex::new(Rank::Bin, ());
        let inner = Mutex::new(Rank::Pages, ());
        let first = outer.lock();
        let second = inner.lock();
        assert!(!rank::none_held() || !cfg!(debug_assertions));
        drop(second);
        drop(first);
        assert!(rank::none_held());
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use loom::cell::UnsafeCell as Tracked;
    use loom::sync::Arc;

    #[test]
    fn holders_exclude_each_other() {
        loom::model(|| {
            let mutex = Arc::new(Mutex::new(Rank::Base, Tracked::new(0u32)));
            let other = {
                let mutex = Arc::clone(&mutex);
                loom::thread::spawn(move || {
                    // SAFETY: loom checks that nobody else touches the cell meanwhile.
                    mutex.lock().with_mut(|value| unsafe { *value += 1 });
                })
            };
            // SAFETY: as above.
            mutex.lock().with_mut(|value| unsafe { *value += 1 });
            other.join().expect("joined");
            // SAFETY: as above.
            mutex.lock().with(|value| assert_eq!(unsafe { *value }, 2));
        });
    }
}
