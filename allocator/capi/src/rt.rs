//! What a `no_std` library needs to stand alone: panic handler, unwinding personality, constructor.

use jeprobe_alloc::diag::Line;

// The prebuilt `core` names the personality although nothing unwinds here; without a definition the library links and
// then fails to load. Weak, so that a Rust program that links the archive keeps its own.
core::arch::global_asm!(
    ".pushsection .text.rust_eh_personality,\"ax\",@progbits",
    ".weak rust_eh_personality",
    ".hidden rust_eh_personality",
    ".type rust_eh_personality, @function",
    "rust_eh_personality:",
    "ud2",
    ".size rust_eh_personality, . - rust_eh_personality",
    ".popsection",
);

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    let line = Line::new().text("internal error, please report it: ");
    match info.location() {
        Some(place) => line.text(place.file()).text(":").dec(u64::from(place.line())).abort(),
        None => line.text("unknown place").abort(),
    }
}

/// Runs when the library is loaded. An earlier call of `malloc` may have done most of the work.
extern "C" fn construct() {
    crate::std_c::register();
    let _ = jeprobe_alloc::boot::current();
}

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCT: extern "C" fn() = construct;
