//! Cells that are set once, without allocation, and readable from then on without a lock.
//!
//! | state | meaning | moved on by |
//! |---|---|---|
//! | 0 | empty | the first `set`: 0 → 1, Relaxed (nothing is read because of it) |
//! | 1 | one thread writes the value | that thread: 1 → 2, Release |
//! | 2 | the value may be read | nobody |
//!
//! [`Once`] runs a procedure once and lets the running thread re-enter: it is told that the work is under way.

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;

use crate::prim::{AtomicU32, Ordering, spin_loop};

const EMPTY: u32 = 0;
const WRITING: u32 = 1;
const SET: u32 = 2;

/// A value that is written at most once.
pub struct OnceCell<T> {
    state: AtomicU32,
    value: UnsafeCell<MaybeUninit<T>>,
}

// SAFETY: the value is written by one thread before SET is stored with Release and only read after it was loaded with
// Acquire (state table above).
unsafe impl<T: Send + Sync> Sync for OnceCell<T> {}

impl<T: Copy> Default for OnceCell<T> {
    fn default() -> OnceCell<T> {
        OnceCell::new()
    }
}

impl<T: Copy> OnceCell<T> {
    /// An empty cell.
    #[cfg(not(loom))]
    pub const fn new() -> OnceCell<T> {
        OnceCell { state: AtomicU32::new(EMPTY), value: UnsafeCell::new(MaybeUninit::uninit()) }
    }

    /// An empty cell.
    #[cfg(loom)]
    pub fn new() -> OnceCell<T> {
        OnceCell { state: AtomicU32::new(EMPTY), value: UnsafeCell::new(MaybeUninit::uninit()) }
    }

    /// Stores the value unless one is there or being written; true when it was stored.
    pub fn set(&self, value: T) -> bool {
        if self.state.compare_exchange(EMPTY, WRITING, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            return false;
        }
        // SAFETY: only the thread that moved the state to WRITING comes here, once, and no reader looks before SET.
        unsafe { (*self.value.get()).write(value) };
        // Release: pairs with the Acquire in `get`.
        self.state.store(SET, Ordering::Release);
        true
    }

    /// The value, once it is set.
    #[inline]
    pub fn get(&self) -> Option<&T> {
        // Acquire: pairs with the Release in `set`.
        if self.state.load(Ordering::Acquire) != SET {
            return None;
        }
        // SAFETY: SET was seen, so nobody writes any more.
        let value = unsafe { &*self.value.get() };
        // SAFETY: SET was seen, so the value is written.
        Some(unsafe { value.assume_init_ref() })
    }
}

/// What [`Once::begin`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begin {
    /// The caller must do the work and then call [`Once::finish`].
    Mine,
    /// The calling thread itself is in the middle of the work.
    Reentered,
    /// The work is done.
    Done,
}

/// Work that is done once. The word holds 0 = not begun, 1 = done, otherwise the thread id (above 1) of the worker.
pub struct Once {
    word: AtomicU32,
}

const ONCE_DONE: u32 = 1;

impl Default for Once {
    fn default() -> Once {
        Once::new()
    }
}

impl Once {
    /// Not begun.
    #[cfg(not(loom))]
    pub const fn new() -> Once {
        Once { word: AtomicU32::new(0) }
    }

    /// Not begun.
    #[cfg(loom)]
    pub fn new() -> Once {
        Once { word: AtomicU32::new(0) }
    }

    /// True when the work is done.
    #[inline]
    pub fn is_done(&self) -> bool {
        // Acquire: pairs with the Release in `finish`.
        self.word.load(Ordering::Acquire) == ONCE_DONE
    }

    /// Claims the work for the thread `me` (a kernel thread id, above 1), or waits until another thread has done it.
    pub fn begin(&self, me: u32) -> Begin {
        loop {
            // Acquire: pairs with the Release in `finish`.
            match self.word.compare_exchange(0, me, Ordering::Relaxed, Ordering::Acquire) {
                Ok(_) => return Begin::Mine,
                Err(ONCE_DONE) => return Begin::Done,
                Err(worker) if worker == me => return Begin::Reentered,
                Err(worker) => wait(&self.word, worker),
            }
        }
    }

    /// Publishes the work.
    pub fn finish(&self) {
        // Release: pairs with the Acquire in `is_done` and `begin`.
        self.word.store(ONCE_DONE, Ordering::Release);
        wake_all(&self.word);
    }
}

#[cfg(not(loom))]
fn wait(word: &AtomicU32, expected: u32) {
    spin_loop();
    crate::sys::futex_wait(word, expected, None);
}

#[cfg(not(loom))]
fn wake_all(word: &AtomicU32) {
    crate::sys::futex_wake(word, i32::MAX);
}

#[cfg(loom)]
fn wait(_: &AtomicU32, _: u32) {
    spin_loop();
    loom::thread::yield_now();
}

#[cfg(loom)]
fn wake_all(_: &AtomicU32) {}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn cell_keeps_the_first_value() {
        let cell = OnceCell::new();
        assert_eq!(cell.get(), None);
        assert!(cell.set(7u32));
        assert!(!cell.set(8));
        assert_eq!(cell.get(), Some(&7));
    }

    #[test]
    fn once_reenters_and_finishes() {
        let once = Once::new();
        assert_eq!(once.begin(10), Begin::Mine);
        assert_eq!(once.begin(10), Begin::Reentered);
        assert!(!once.is_done());
        once.finish();
        assert!(once.is_done());
        assert_eq!(once.begin(11), Begin::Done);
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use loom::cell::UnsafeCell as Tracked;
    use loom::sync::Arc;

    #[test]
    fn work_is_done_once_and_seen_by_all() {
        loom::model(|| {
            let shared = Arc::new((Once::new(), Tracked::new(0u32)));
            let run = |me: u32, shared: &(Once, Tracked<u32>)| {
                if shared.0.begin(me) == Begin::Mine {
                    // SAFETY: loom checks that nobody else touches the cell meanwhile.
                    shared.1.with_mut(|value| unsafe { *value += 1 });
                    shared.0.finish();
                }
                // SAFETY: as above.
                shared.1.with(|value| assert_eq!(unsafe { *value }, 1));
            };
            let other = {
                let shared = Arc::clone(&shared);
                loom::thread::spawn(move || run(2, &shared))
            };
            run(3, &shared);
            other.join().expect("joined");
        });
    }
}
