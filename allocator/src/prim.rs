//! The one place that names atomics, the spin hint and thread yield: `core`, or `loom` under `cfg(loom)`.
//!
//! Everything above the operating system takes its atomics from here, so that the models in `sync` and `ds` run the
//! same code that ships. Loom's atomics cannot be made in constants, therefore files with statics are left out of a
//! loom build (see `lib.rs`).
#![forbid(unsafe_code)]

#[cfg(not(loom))]
pub(crate) use core::hint::spin_loop;
#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{
    AtomicBool, AtomicI64, AtomicU8, AtomicU16, AtomicU64, AtomicUsize, compiler_fence, fence,
};
#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

#[cfg(loom)]
pub(crate) use loom::hint::spin_loop;
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
