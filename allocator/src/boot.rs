//! Bringing the allocator up, once: at the first call of any thread, before any constructor if need be.
//!
//! | step | may it allocate? |
//! |---|---|
//! | options | no: environment and links are read without the C library's buffers |
//! | arena 0 | from `base` |
//! | thread key | no |
//! | — boot is done; other threads go on — | |
//! | late: sampler, fork handlers, background thread | yes: served through the calling thread's slot |
//!
//! A call that comes back into the allocator during the first steps gets null; none of them makes one.
#![forbid(unsafe_code)]

use crate::arenas;
use crate::background;
use crate::conf;
use crate::diag::Line;
use crate::fork;
use crate::prim::{AtomicBool, Ordering};
use crate::prof;
use crate::sync::once::{Begin, Once};
use crate::sys;
use crate::thread::{self, Slot};

static BOOT: Once = Once::new();
static LATE: AtomicBool = AtomicBool::new(false);

/// Boots if need be; false inside boot and when there is no memory.
#[inline]
fn ensure() -> bool {
    BOOT.is_done() || run()
}

#[cold]
fn run() -> bool {
    match BOOT.begin(sys::gettid()) {
        Begin::Done => true,
        Begin::Reentered => false,
        Begin::Mine => {
            conf::load();
            let up = arenas::boot();
            thread::make_key();
            BOOT.finish();
            up
        }
    }
}

/// The part of boot that may allocate; done by the first thread that is ready.
fn late() {
    // Relaxed: the flag only picks one thread.
    if !LATE.load(Ordering::Relaxed) && !LATE.swap(true, Ordering::Relaxed) {
        late_once();
    }
}

/// A function of its own, so that the start of a thread does not touch the pages of its stack that a message is made on.
#[cold]
#[inline(never)]
fn late_once() {
    prof::boot(conf::options());
    fork::install();
    if conf::options().background_thread && !background::start() {
        Line::new()
            .text("no background thread: the system starts no more threads; memory is given back by others")
            .send();
    }
}

/// The slot of the calling thread, starting the thread (and the allocator) if need be; the closed slot while either is
/// under way.
#[inline]
pub fn current() -> &'static Slot {
    match thread::get() {
        Some(slot) => slot,
        None => start_slow(),
    }
}

#[cold]
#[inline(never)]
fn start_slow() -> &'static Slot {
    // Starting: what the calls below allocate goes through the closed slot.
    let closed = thread::begin();
    let slot = if ensure() { thread::start() } else { None };
    if let Some(slot) = slot {
        late();
        return slot;
    }
    thread::give_up();
    closed
}
