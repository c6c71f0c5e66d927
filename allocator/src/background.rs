//! The background thread: lets decay advance in processes that do not allocate.
//!
//! | state | moved on by |
//! |---|---|
//! | 0 off | `start` → 1 |
//! | 1 on | `stop` → 2; a fork's child → 0 |
//! | 2 stopping | the thread → 0 when it ends |
//!
//! The thread sleeps on the state word until the next look that any arena wants (at most 5 s), so that a stop wakes it at
//! once. Off by default (`opt.background_thread`), switched at run time by `background_thread`.

use core::ffi::c_void;

use crate::arenas;
use crate::prim::{AtomicU32, AtomicU64, Ordering};
use crate::prof;
use crate::sync::mutex::Mutex;
use crate::sync::rank::Rank;
use crate::sys;
use crate::thread;

const OFF: u32 = 0;
const ON: u32 = 1;
const STOPPING: u32 = 2;
const LONGEST_SLEEP_NS: u64 = 5_000_000_000;
const SHORTEST_SLEEP_NS: u64 = 50_000_000;

static STATE: AtomicU32 = AtomicU32::new(OFF);
static CHANGE: Mutex<()> = Mutex::new(Rank::Background, ());
static RUNS: AtomicU64 = AtomicU64::new(0);

/// True when the thread is on.
pub fn is_on() -> bool {
    // Relaxed: an answer for people.
    STATE.load(Ordering::Relaxed) == ON
}

/// Passes made so far.
pub fn runs() -> u64 {
    RUNS.load(Ordering::Relaxed)
}

/// Starts the thread; false when the system gives none.
pub fn start() -> bool {
    let _guard = CHANGE.lock();
    // Acquire: pairs with the Release in `run`.
    while STATE.load(Ordering::Acquire) == STOPPING {
        sys::sleep_ns(1_000_000);
    }
    if STATE.load(Ordering::Relaxed) == ON {
        return true;
    }
    STATE.store(ON, Ordering::Relaxed);
    let made = spawn();
    if !made {
        STATE.store(OFF, Ordering::Relaxed);
    }
    made
}

/// Asks the thread to end; it does so within a moment.
pub fn stop() {
    let _guard = CHANGE.lock();
    if STATE.compare_exchange(ON, STOPPING, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
        sys::futex_wake(&STATE, 1);
    }
}

fn spawn() -> bool {
    let mut all = core::mem::MaybeUninit::<libc::sigset_t>::uninit();
    let mut old = core::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: fills the set on this stack.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    // SAFETY: both sets are on this stack; the new one was filled. The program's handlers must not run on our thread.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), old.as_mut_ptr()) };
    let mut thread = core::mem::MaybeUninit::<libc::pthread_t>::uninit();
    // SAFETY: the id is written to this stack; default attributes; `run` has the C signature.
    let made = unsafe { libc::pthread_create(thread.as_mut_ptr(), core::ptr::null(), run, core::ptr::null_mut()) } == 0;
    if made {
        // SAFETY: `pthread_create` succeeded, so the id is written.
        let id = unsafe { thread.assume_init() };
        // SAFETY: the thread was just made and is not joined by anybody.
        unsafe { libc::pthread_detach(id) };
    }
    // SAFETY: restores the mask that the first call stored.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, old.as_ptr(), core::ptr::null_mut()) };
    made
}

extern "C" fn run(_: *mut c_void) -> *mut c_void {
    // Relaxed: the word alone carries the request.
    while STATE.load(Ordering::Relaxed) == ON {
        let now_ns = sys::clock_monotonic_ns();
        let mut sleep_ns = LONGEST_SLEEP_NS;
        for arena in arenas::all() {
            arena.decay(now_ns);
            if let Some(next_ns) = arena.next_look_ns() {
                sleep_ns = sleep_ns.min(next_ns.max(SHORTEST_SLEEP_NS));
            }
        }
        thread::sweep_idle(now_ns);
        prof::serve_requests();
        RUNS.fetch_add(1, Ordering::Relaxed);
        sys::futex_wait(&STATE, ON, Some(sleep_ns));
    }
    // Release: pairs with the Acquire in `start`.
    STATE.store(OFF, Ordering::Release);
    core::ptr::null_mut()
}

pub(crate) fn prefork() {
    CHANGE.lock_for_fork();
}

pub(crate) fn postfork_parent() {
    CHANGE.unlock_for_fork();
}

pub(crate) fn postfork_child() {
    CHANGE.reset_in_child();
    STATE.store(OFF, Ordering::Relaxed);
}
