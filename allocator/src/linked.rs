//! Variables that the program, libc and the C exports provide under fixed names: option strings, message callback.
//!
//! This crate exports no symbols of its own and must link with and without the C exports. Those put one table into the
//! program, reached here by a weak reference: without them its address is 0 and nothing is provided.
//!
//! ```text
//!  jeprobe_program_symbols ─► ┌ 0 ┬ address of `malloc_conf`               ┐ filled by the dynamic linker, so
//!                             │ 8 │ address of `malloc_conf_2_conf_harder` │ a program's own definition of
//!                             └16 ┴ address of `malloc_message`            ┘ one of them takes effect
//! ```
//!
//! Also libc's environment, which is such a variable.
//!
//! May be called at any time, from any thread, before libc is initialised: loads only. The variables belong to the
//! program, which may change them at any time; each call reads once.
use core::ffi::{CStr, c_char, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};

/// `malloc_message`: first argument is always null here, second the NUL-terminated text.
type MessageFn = unsafe extern "C" fn(*mut c_void, *const c_char);

/// The layout that `capi/src/ctl.rs` emits.
#[repr(C)]
struct Table {
    conf: *const AtomicPtr<c_char>,
    conf_harder: *const AtomicPtr<c_char>,
    message: *const AtomicPtr<c_void>,
}

#[cfg(not(test))]
fn table() -> Option<&'static Table> {
    let table: *const Table;
    // SAFETY: loads one entry of the global offset table: the address of the symbol, or 0 when nothing defines it.
    unsafe {
        core::arch::asm!(
            ".weak jeprobe_program_symbols",
            "mov {}, qword ptr [rip + jeprobe_program_symbols@GOTPCREL]",
            out(reg) table,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    // SAFETY: null, or the table of the C exports, which is never written after relocation.
    unsafe { table.as_ref() }
}

/// Test programs link without the C exports.
#[cfg(test)]
fn table() -> Option<&'static Table> {
    None
}

fn text(variable: *const AtomicPtr<c_char>) -> Option<&'static CStr> {
    // SAFETY: the table holds addresses of pointer-sized variables of the C exports or of the program.
    let variable = unsafe { variable.as_ref() }?;
    // Relaxed: option strings are constants of the program image, nothing is published with them.
    let text = variable.load(Ordering::Relaxed);
    if text.is_null() {
        return None;
    }
    // SAFETY: by the contract of the two variables it points to a NUL-terminated string that stays.
    Some(unsafe { CStr::from_ptr(text) })
}

/// Text of the program's `malloc_conf`.
pub(crate) fn malloc_conf() -> Option<&'static CStr> {
    text(table()?.conf)
}

/// Text of the program's `malloc_conf_2_conf_harder`.
pub(crate) fn malloc_conf_2_conf_harder() -> Option<&'static CStr> {
    text(table()?.conf_harder)
}

/// Gives a message to the program's `malloc_message`; false when it has set none.
pub(crate) fn pass_message(text: &CStr) -> bool {
    let Some(table) = table() else {
        return false;
    };
    // SAFETY: the table holds addresses of pointer-sized variables of the C exports or of the program.
    let Some(variable) = (unsafe { table.message.as_ref() }) else {
        return false;
    };
    // Relaxed: a function's code needs no publication; what it uses is the business of the thread that set it.
    let function = variable.load(Ordering::Relaxed);
    if function.is_null() {
        return false;
    }
    // SAFETY: by the contract of `malloc_message` a value other than null is such a function.
    let function = unsafe { core::mem::transmute::<*mut c_void, MessageFn>(function) };
    // SAFETY: the text is NUL-terminated; the first argument is null for messages of the library.
    unsafe { function(core::ptr::null_mut(), text.as_ptr()) };
    true
}

unsafe extern "C" {
    /// Of libc; null until it is initialised.
    static environ: *const *const c_char;
}

/// Calls `each` with every `NAME=value` of libc's environment; false when it has none yet. Only at boot: later the
/// program may change the environment while this reads.
pub(crate) fn for_each_variable(mut each: impl FnMut(&'static [u8])) -> bool {
    // SAFETY: a variable of libc, written before other threads exist.
    let mut entry = unsafe { environ };
    if entry.is_null() {
        return false;
    }
    loop {
        // SAFETY: the array ends with a null entry, which ends the loop.
        let text = unsafe { *entry };
        if text.is_null() {
            return true;
        }
        // SAFETY: each entry is a NUL-terminated string; what the program puts in its place later is not read again.
        each(unsafe { CStr::from_ptr(text) }.to_bytes());
        // SAFETY: not the last entry, so the next one belongs to the array.
        entry = unsafe { entry.add(1) };
    }
}

/// True when the program runs with more rights than its user, who must not steer it then.
pub(crate) fn raised_privileges() -> bool {
    // SAFETY: reads the auxiliary vector, which the dynamic linker has parsed before any code runs.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}
