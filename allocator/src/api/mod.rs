//! What programs call, in Rust terms. The C symbols in `capi` and the `GlobalAlloc` are thin layers over this.
//!
//! Null means failure throughout; no function here touches `errno`.

pub mod alloc;
pub mod flags;
pub mod foreign;
pub mod free;
pub mod global;
pub mod realloc;

pub use alloc::{
    allocate, allocate_for, calloc, calloc_cached, calloc_rest, calloc_sampled, calloc_slow_for, malloc, malloc_cached,
    malloc_rest, malloc_sampled, malloc_slow, malloc_slow_for, memalign, memalign_cached, memalign_rest,
    memalign_sampled, memalign_slow_for,
};
pub use flags::{CacheChoice, Flags, Place};
pub use free::{arena_of_ptr, free, free_placed, usable_size};
pub use realloc::{
    Outlook, outlook, realloc, realloc_for, realloc_moving, realloc_placed, realloc_rest, resize_in_place,
};
