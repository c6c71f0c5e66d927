//! C, C++ and jemalloc symbols of `jeprobe-alloc`, as `libjeprobe.so` and `libjeprobe.a`.
#![no_std]

extern crate jeprobe_alloc as _;

mod rt;

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // SAFETY: `abort` takes no arguments and does not return.
    unsafe { libc::abort() }
}
