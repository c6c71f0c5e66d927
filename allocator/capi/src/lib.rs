//! C, C++ and jemalloc symbols of `jeprobe-alloc`, as `libjeprobe.so` and `libjeprobe.a`.
//!
//! | file | owns |
//! |---|---|
//! | `rt` | panic handler, personality shim, constructor |
//! | `meta` | the library's own Rust allocator |
//! | `std_c` | `malloc` and its family, and the way on to the next allocator |
//! | `jemalloc` | `mallocx` and its family |
//! | `ctl` | `mallctl` and its companions, the variables shared with the program |
//! | `cxx` | the C++ operators |
//! | `loading` | `dlopen` |
//!
//! Nothing depends on this package: it owns the panic handler, which a program with `std` must not have twice.
#![no_std]

pub mod ctl;
mod cxx;
pub mod jemalloc;
mod loading;
mod meta;
mod rt;
pub mod std_c;
