//! What the process does about its own profile: new contexts, dumps, `mallctl` calls.

use aya_ebpf::helpers::bpf_probe_read_user;
use aya_ebpf::helpers::generated::bpf_probe_read_user_str;
use aya_ebpf::macros::uprobe;
use aya_ebpf::programs::ProbeContext;
use jeprobe_abi::drops::Reason;
use jeprobe_abi::event::{DumpEvent, EVENT_DUMP, EVENT_MALLCTL, MallctlEvent, NAME_BYTES, NAME_UNREAD, PATH_BYTES};

use crate::ring::{self, Urgency};
use crate::{args, drops, filter, stack};

/// The process recorded a stack that it had not seen before.
#[uprobe]
pub(crate) fn jeprobe_context(ctx: ProbeContext) -> u32 {
    try_context(&ctx);
    0
}

#[inline(always)]
fn try_context(ctx: &ProbeContext) -> Option<()> {
    let task = filter::current()?;
    stack::copy_context(task, args::register(ctx, 0)?);
    Some(())
}

#[uprobe]
pub(crate) fn jeprobe_dump(ctx: ProbeContext) -> u32 {
    try_dump(&ctx);
    0
}

#[inline(always)]
fn try_dump(ctx: &ProbeContext) -> Option<()> {
    let task = filter::current()?;
    let sequence = args::register(ctx, 0)?;
    let reason = args::register(ctx, 1)?;
    let path = args::register(ctx, 2)?;
    let mut entry = ring::reserve::<DumpEvent>()?;
    let event = entry.as_mut_ptr();
    // SAFETY: the record was reserved with this layout; likewise below.
    unsafe { (*event).header = ring::header::<DumpEvent>(EVENT_DUMP, task) };
    // SAFETY: as above.
    unsafe { (*event).sequence = sequence };
    // SAFETY: as above.
    unsafe { (*event).reason = reason };
    // SAFETY: as above.
    let text = unsafe { &raw mut (*event).path };
    // SAFETY: `text` is valid for its length; the helper checks the user address and ends the text with NUL.
    let code = unsafe { bpf_probe_read_user_str(text.cast(), PATH_BYTES as u32, path as *const _) };
    if code < 0 {
        drops::count(Reason::BadArgs);
        // SAFETY: as above; an empty path is a valid text.
        unsafe { (*event).path[0] = 0 };
    }
    entry.submit(ring::flags(Urgency::Now));
    Some(())
}

/// `mallctl(name, oldp, oldlenp, newp, newlen)`.
#[uprobe]
pub(crate) fn jeprobe_mallctl(ctx: ProbeContext) -> u32 {
    try_mallctl(&ctx);
    0
}

#[inline(always)]
fn try_mallctl(ctx: &ProbeContext) -> Option<()> {
    let task = filter::current()?;
    let name = args::register(ctx, 0)?;
    let new = args::register(ctx, 3)?;
    let new_len = args::register(ctx, 4)?;
    // Reads of statistics are frequent in programs that watch themselves and change nothing here.
    if new == 0 && starts_with_prof(name) == Some(false) {
        return None;
    }
    let mut entry = ring::reserve::<MallctlEvent>()?;
    let event = entry.as_mut_ptr();
    // SAFETY: the record was reserved with this layout; likewise below.
    let text = unsafe { &raw mut (*event).name };
    // SAFETY: `text` is valid for its length; the helper checks the user address and ends the text with NUL.
    let code = unsafe { bpf_probe_read_user_str(text.cast(), NAME_BYTES as u32, name as *const _) };
    // SAFETY: as above.
    unsafe { (*event).header = ring::header::<MallctlEvent>(EVENT_MALLCTL, task) };
    if code < 0 {
        // Mostly a page that nobody has touched yet. The loader can read it, who may wait for a page.
        // SAFETY: as above.
        unsafe { (*event).name[0] = 0 };
        // SAFETY: as above.
        unsafe { (*event).new_value = name };
        // SAFETY: as above.
        unsafe { (*event).new_len = NAME_UNREAD };
    } else {
        // SAFETY: as above.
        unsafe { (*event).new_value = new_value(new, new_len) };
        // SAFETY: as above.
        unsafe { (*event).new_len = if new == 0 { 0 } else { new_len } };
    }
    entry.submit(ring::flags(Urgency::Now));
    Some(())
}

/// `None` when it cannot be read here.
#[inline(always)]
fn starts_with_prof(name: u64) -> Option<bool> {
    // SAFETY: the helper checks the address.
    let start = unsafe { bpf_probe_read_user(name as *const [u8; 5]) };
    start.ok().map(|start| start == *b"prof.")
}

/// The new value when it is one of the sizes that `mallctl` takes: 1, 4 or 8 bytes. 0 else.
#[inline(always)]
fn new_value(place: u64, len: u64) -> u64 {
    if place == 0 {
        return 0;
    }
    let value = match len {
        // SAFETY: the helper checks the address.
        1 => unsafe { bpf_probe_read_user(place as *const u8) }.map(u64::from),
        // SAFETY: as above.
        4 => unsafe { bpf_probe_read_user(place as *const u32) }.map(u64::from),
        // SAFETY: as above.
        8 => unsafe { bpf_probe_read_user(place as *const u64) },
        _ => Ok(0),
    };
    value.unwrap_or(0)
}
