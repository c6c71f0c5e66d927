//! Arguments of a probe hit: the `SysV` registers, or the places that the loader parsed from a note.

use aya_ebpf::EbpfContext as _;
use aya_ebpf::helpers::generated::bpf_get_attach_cookie;
use aya_ebpf::helpers::{bpf_probe_read_kernel, bpf_probe_read_user};
use aya_ebpf::programs::ProbeContext;
use jeprobe_abi::drops::Reason;
use jeprobe_abi::keys::{ARG_CONSTANT, ARG_MEMORY, ARG_NONE, ARG_REGISTER, Arg, Site};

use crate::drops;
use crate::maps::SITES;

/// The `n`th register argument, 0 based; counts the loss when the architecture has no such register.
#[inline(always)]
pub(crate) fn register(ctx: &ProbeContext, n: usize) -> Option<u64> {
    let value = ctx.arg::<u64>(n);
    if value.is_none() {
        drops::count(Reason::BadArgs);
    }
    value
}

/// Argument places of the probe that was hit, by its attach cookie.
#[inline(always)]
pub(crate) fn site(ctx: &ProbeContext) -> Option<&'static Site> {
    // SAFETY: the pointer is the program's own context.
    let cookie = unsafe { bpf_get_attach_cookie(ctx.as_ptr()) };
    let site = SITES.get(cookie as u32);
    if site.is_none() {
        drops::count(Reason::BadArgs);
    }
    site
}

/// The value at a place; 0 for an argument that the note does not have.
#[inline(always)]
pub(crate) fn read(ctx: &ProbeContext, arg: &Arg) -> Option<u64> {
    let raw = match arg.kind {
        ARG_NONE => return Some(0),
        ARG_CONSTANT => return Some(arg.value as u64),
        ARG_REGISTER => saved_register(ctx, arg)?,
        ARG_MEMORY => {
            let address = saved_register(ctx, arg)?.wrapping_add(arg.value as u64);
            // SAFETY: the helper checks the address.
            let value = unsafe { bpf_probe_read_user(address as *const u64) };
            counted(value)?
        }
        _ => {
            drops::count(Reason::BadArgs);
            return None;
        }
    };
    Some(narrow(raw, arg))
}

#[inline(always)]
fn saved_register(ctx: &ProbeContext, arg: &Arg) -> Option<u64> {
    let place = ctx.as_ptr().cast::<u8>().wrapping_add((arg.register & 0xff) as usize).cast::<u64>();
    // SAFETY: the helper checks the address.
    let value = unsafe { bpf_probe_read_kernel(place) };
    counted(value)
}

#[inline(always)]
fn counted(value: Result<u64, i32>) -> Option<u64> {
    if value.is_err() {
        drops::count(Reason::BadArgs);
    }
    value.ok()
}

/// Keeps the low `bits` of the value, extended by its sign when the note says so.
#[inline(always)]
fn narrow(raw: u64, arg: &Arg) -> u64 {
    let shift = 64 - (arg.bits & 127).min(64);
    let shift = shift & 63;
    if arg.signed != 0 { (((raw << shift) as i64) >> shift) as u64 } else { raw << shift >> shift }
}
