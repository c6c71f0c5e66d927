//! Fault injection for tests: makes `sys::reserve` fail on the calling thread.
#![forbid(unsafe_code)]

use std::cell::Cell;

std::thread_local! {
    static RESERVATIONS_LEFT: Cell<Option<usize>> = const { Cell::new(None) };
}

/// The next `successes` reservations of this thread succeed, later ones fail; `None` = no fault.
pub(crate) fn fail_after(successes: Option<usize>) {
    RESERVATIONS_LEFT.with(|left| left.set(successes));
}

/// Called by `reserve`: true when this one must fail.
pub(crate) fn reserve_fails() -> bool {
    RESERVATIONS_LEFT
        .try_with(|left| match left.get() {
            None => false,
            Some(0) => true,
            Some(n) => {
                left.set(Some(n - 1));
                false
            }
        })
        .unwrap_or(false)
}
