//! `mallctl` and its companions, and the variables that a program shares with the library.
//!
//! | variable | type in C | read | meaning |
//! |---|---|---|---|
//! | `malloc_conf` | `const char *` | once, at the first allocation | options, below the environment in priority |
//! | `malloc_conf_2_conf_harder` | `const char *` | once, at the first allocation | options, above everything |
//! | `malloc_message` | function pointer | at each message | gets messages in place of standard error |
//!
//! A program may define the first two itself. With the shared library the dynamic linker then lets its definition win;
//! in the static library the two are weakened after the build (rustc cannot declare a weak definition).
//! `mallctl` is an ordinary function with a symbol of its own: a probe on its first instruction sees each call.
use core::arch::global_asm;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr;
use core::sync::atomic::AtomicPtr;

use jeprobe_alloc::ctl::{self, Args};

#[unsafe(export_name = "malloc_conf")]
static MALLOC_CONF: AtomicPtr<c_char> = AtomicPtr::new(ptr::null_mut());

#[unsafe(export_name = "malloc_conf_2_conf_harder")]
static MALLOC_CONF_2_CONF_HARDER: AtomicPtr<c_char> = AtomicPtr::new(ptr::null_mut());

#[unsafe(export_name = "malloc_message")]
static MALLOC_MESSAGE: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

// The table that `allocator/src/linked.rs` looks for. Through the symbols' names, so that a program's own definition is
// the one in the table; weak only because the assembler has to see one binding in all files.
global_asm!(
    ".pushsection .data.rel.ro.jeprobe_program_symbols,\"aw\",@progbits",
    ".p2align 3",
    ".weak jeprobe_program_symbols",
    ".hidden jeprobe_program_symbols",
    ".type jeprobe_program_symbols,@object",
    ".size jeprobe_program_symbols,24",
    "jeprobe_program_symbols:",
    ".quad malloc_conf",
    ".quad malloc_conf_2_conf_harder",
    ".quad malloc_message",
    ".popsection",
);

/// Most components of a name: no more numbers are stored, whatever room there is.
const MIB_MAX: usize = 7;

fn code(answer: Result<(), jeprobe_alloc::error::CtlError>) -> c_int {
    answer.map_or_else(|error| error.0, |()| 0)
}

/// Reads, writes or does what `name` names; 0 or an errno value.
///
/// # Safety
/// `name` is NUL-terminated (null is EINVAL); the others as in [`Args::new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mallctl(
    name: *const c_char,
    oldp: *mut c_void,
    oldlenp: *mut usize,
    newp: *mut c_void,
    newlen: usize,
) -> c_int {
    if name.is_null() {
        return libc::EINVAL;
    }
    // SAFETY: not null, NUL-terminated by the contract.
    let name = unsafe { CStr::from_ptr(name) };
    // SAFETY: S1, S2, S3 by the contract.
    let args = unsafe { Args::new(oldp, oldlenp, newp, newlen) };
    code(ctl::by_name(name, &args))
}

/// Stores at most `*miblenp` numbers for `name` at `mibp`, and their count in `*miblenp`; 0 or an errno value.
///
/// # Safety
/// `name` is NUL-terminated; `miblenp` can be read and written, `mibp` has room for `*miblenp` numbers. Null pointers
/// are EINVAL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mallctlnametomib(name: *const c_char, mibp: *mut usize, miblenp: *mut usize) -> c_int {
    if name.is_null() || mibp.is_null() || miblenp.is_null() {
        return libc::EINVAL;
    }
    // SAFETY: not null, NUL-terminated by the contract.
    let name = unsafe { CStr::from_ptr(name) };
    // SAFETY: not null, readable by the contract.
    let room = unsafe { *miblenp }.min(MIB_MAX);
    let mut mib = [0; MIB_MAX];
    match ctl::name_to_mib(name, mib.get_mut(..room).unwrap_or(&mut [])) {
        Ok(depth) => {
            // SAFETY: `depth` is at most `room`, for which there is room.
            unsafe { ptr::copy_nonoverlapping(mib.as_ptr(), mibp, depth) };
            // SAFETY: not null, writable by the contract.
            unsafe { *miblenp = depth };
            0
        }
        Err(error) => error.0,
    }
}

/// As [`mallctl`], by numbers from [`mallctlnametomib`].
///
/// # Safety
/// `miblen` numbers can be read at `mib` (null is EINVAL); the others as in [`Args::new`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mallctlbymib(
    mib: *const usize,
    miblen: usize,
    oldp: *mut c_void,
    oldlenp: *mut usize,
    newp: *mut c_void,
    newlen: usize,
) -> c_int {
    if mib.is_null() {
        return libc::EINVAL;
    }
    if miblen > MIB_MAX {
        return libc::ENOENT;
    }
    let mut numbers = [0; MIB_MAX];
    // SAFETY: `miblen` numbers can be read by the contract and fit.
    unsafe { ptr::copy_nonoverlapping(mib, numbers.as_mut_ptr(), miblen) };
    // SAFETY: S1, S2, S3 by the contract.
    let args = unsafe { Args::new(oldp, oldlenp, newp, newlen) };
    code(ctl::by_mib(numbers.get(..miblen).unwrap_or(&[]), &args))
}
