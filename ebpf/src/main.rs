//! The kernel object: module list, licence and panic handler. README.md has the architecture.
#![cfg_attr(target_arch = "bpf", no_std, no_main, feature(core_intrinsics))]
#![cfg_attr(target_arch = "bpf", expect(internal_features, reason = "core has no fetch_add for this target"))]

#[cfg(target_arch = "bpf")]
mod alloc;
#[cfg(target_arch = "bpf")]
mod args;
#[cfg(target_arch = "bpf")]
mod calls;
#[cfg(target_arch = "bpf")]
mod drops;
#[cfg(target_arch = "bpf")]
mod filter;
#[cfg(target_arch = "bpf")]
mod lifecycle;
#[cfg(target_arch = "bpf")]
mod maps;
#[cfg(target_arch = "bpf")]
mod ring;
#[cfg(target_arch = "bpf")]
mod stack;

/// The kernel refuses the helpers that read user memory to any other licence.
#[cfg(target_arch = "bpf")]
#[unsafe(no_mangle)]
#[unsafe(link_section = "license")]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";

#[cfg(target_arch = "bpf")]
#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

/// Host tools build every package; there is nothing to run here.
#[cfg(not(target_arch = "bpf"))]
fn main() {}
