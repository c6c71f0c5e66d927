//! Fault injection for tests, on the calling thread: makes `sys::reserve` or advice on memory fail, and notes what was advised.
#![forbid(unsafe_code)]

use std::cell::{Cell, RefCell};
use std::vec::Vec;

std::thread_local! {
    static RESERVATIONS_LEFT: Cell<Option<usize>> = const { Cell::new(None) };
    static ADVICE_FAILS: Cell<bool> = const { Cell::new(false) };
    static RESIDENT: Cell<Resident> = const { Cell::new(Resident::Truth) };
    static TOUCH: Cell<Touch> = const { Cell::new(Touch::Unknown) };
    static CLOCK_NS: Cell<u64> = const { Cell::new(1) };
    static TOUCHED: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
    static HUGE: RefCell<Vec<(usize, usize)>> = const { RefCell::new(Vec::new()) };
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

/// Lets time pass on the clock of [`clock_ns`].
pub(crate) fn pass_ns(ns: u64) {
    CLOCK_NS.with(|now| now.set(now.get() + ns));
}

/// A clock of this thread that stands still but for [`pass_ns`].
pub(crate) fn clock_ns() -> u64 {
    CLOCK_NS.try_with(Cell::get).unwrap_or(1)
}

/// From now on purges and advice of this thread are refused, or not.
pub(crate) fn refuse_advice(refuse: bool) {
    ADVICE_FAILS.with(|fails| fails.set(refuse));
}

/// Called by purges and advice: true when this one must fail.
pub(crate) fn advice_fails() -> bool {
    ADVICE_FAILS.try_with(Cell::get).unwrap_or(false)
}

/// Called when huge pages are asked for.
pub(crate) fn note_huge(addr: usize, bytes: usize) {
    let _ = HUGE.try_with(|huge| huge.borrow_mut().push((addr, bytes)));
}

/// Ranges for which this thread asked for huge pages since the last call: shape [(address, bytes)], in the order of asking.
pub(crate) fn take_huge() -> Vec<(usize, usize)> {
    HUGE.with(RefCell::take)
}

/// What is answered when the resident bytes of a range are asked for.
#[derive(Clone, Copy)]
pub(crate) enum Resident {
    /// What the kernel says.
    Truth,
    /// The system does not say.
    Unknown,
    /// So many.
    Bytes(usize),
}

/// Sets the answer for this thread.
pub(crate) fn pretend_resident(answer: Resident) {
    RESIDENT.with(|resident| resident.set(answer));
}

/// Called when resident pages are asked for.
pub(crate) fn resident() -> Resident {
    RESIDENT.try_with(Cell::get).unwrap_or(Resident::Truth)
}

/// What a touch is said to have taken.
#[derive(Clone, Copy)]
pub(crate) enum Touch {
    /// What it takes.
    Truth,
    /// The system does not say; nothing is touched, as long as nothing else is set.
    Unknown,
    /// So many ns; nothing is touched.
    Took(u64),
}

/// Sets the answer for this thread.
pub(crate) fn pretend_touch(answer: Touch) {
    TOUCH.with(|touch| touch.set(answer));
}

/// Called when a page is to be touched.
pub(crate) fn touch(addr: usize) -> Touch {
    let _ = TOUCHED.try_with(|touched| touched.borrow_mut().push(addr));
    TOUCH.try_with(Cell::get).unwrap_or(Touch::Unknown)
}

/// Pages that this thread had touched since the last call.
pub(crate) fn take_touched() -> Vec<usize> {
    TOUCHED.with(RefCell::take)
}
