//! Stacks: copying the context that the process recorded, or walking its frame pointers.
//!
//! A stack travels once, as a `ContextEvent`, before the first event that names it; afterwards its id is enough. `SENT`
//! remembers which. The record that the frames are gathered in is reserved in the ring at once, because a map slot per
//! CPU could be overwritten by another task that preempts this one; a stack that was known is discarded again.

use aya_ebpf::EbpfContext as _;
use aya_ebpf::bindings::BPF_F_USER_STACK;
use aya_ebpf::helpers::generated::{bpf_get_stack, bpf_probe_read_user};
use aya_ebpf::programs::ProbeContext;
use jeprobe_abi::abi::MAX_FRAMES;
use jeprobe_abi::config::{STACKS_CONTEXT, STACKS_KERNEL};
use jeprobe_abi::drops::Reason;
use jeprobe_abi::event::{ContextEvent, EVENT_CONTEXT, STACK_IN_PROCESS, STACK_KERNEL, STACK_NONE};
use jeprobe_abi::keys::StackKey;
use jeprobe_abi::logic::{HASH_SEED, hash_end, hash_step};
use jeprobe_abi::root::{CONTEXT_PLAIN, Context};

use crate::filter::Task;
use crate::maps::{SENT, config};
use crate::ring::{self, Urgency};
use crate::{drops, filter};

/// Id and kind of the stack of this hit. `context` is 0 when the process did not unwind.
#[inline(always)]
pub(crate) fn identify(ctx: &ProbeContext, task: Task, context: u64) -> (u64, u32) {
    let stacks = config().stacks;
    if context != 0 && stacks != STACKS_KERNEL {
        copy_context(task, context);
        (context, STACK_IN_PROCESS)
    } else if stacks == STACKS_CONTEXT {
        drops::count(Reason::NoStack);
        (0, STACK_NONE)
    } else {
        walk(ctx, task)
    }
}

/// Sends the frames of a context of the process unless that was done. When its memory cannot be read the event still
/// names the context: the loader can read it later if the process lives.
#[inline(always)]
pub(crate) fn copy_context(task: Task, context: u64) {
    let key = key(task, context, STACK_IN_PROCESS);
    if SENT.get_ptr(key).is_some() {
        return;
    }
    let Some(mut entry) = ring::reserve::<ContextEvent>() else { return };
    let event = entry.as_mut_ptr();
    let mut shape = 0_u64;
    let place = context.wrapping_add(core::mem::offset_of!(Context, depth) as u64);
    // SAFETY: `shape` is valid for 8 bytes; the helper checks the user address.
    let code = unsafe { bpf_probe_read_user((&raw mut shape).cast(), 8, place as *const _) };
    // The fields of `Context` from `depth` on.
    let (depth, words, flags) = (shape as u16, (shape >> 16) as u16, (shape >> 32) as u16);
    if code != 0 || depth == 0 || depth > MAX_FRAMES as u16 || words == 0 || words > MAX_FRAMES as u16 {
        drops::count(Reason::ContextUnread);
        entry.discard(ring::flags(Urgency::Batch));
        return;
    }
    let place = context.wrapping_add(size_of::<Context>() as u64);
    // SAFETY: the record was reserved with this layout.
    let frames = unsafe { &raw mut (*event).frames };
    // The check above bounds the size, but the compiler merges it into a form that the verifier does not follow; behind
    // the black box it keeps the mask, which changes nothing.
    let bytes = core::hint::black_box(u32::from(words) * 8) & 0x3f8;
    // SAFETY: at most 127 words fit by the check above; the helper checks the user address.
    let code = unsafe { bpf_probe_read_user(frames.cast(), bytes, place as *const _) };
    if code != 0 {
        drops::count(Reason::ContextUnread);
        entry.discard(ring::flags(Urgency::Batch));
        return;
    }
    let packed = if flags & CONTEXT_PLAIN == 0 { words } else { 0 };
    fill(event, task, context, STACK_IN_PROCESS, depth.into(), packed.into());
    entry.submit(ring::flags(Urgency::Batch));
    let _ = SENT.insert(key, 1, 0);
}

/// Walks the frame pointers of the user stack; the id is a hash of the frames.
#[inline(always)]
fn walk(ctx: &ProbeContext, task: Task) -> (u64, u32) {
    let Some(mut entry) = ring::reserve::<ContextEvent>() else { return (0, STACK_NONE) };
    let event = entry.as_mut_ptr();
    // SAFETY: the record was reserved with this layout.
    let frames = unsafe { &raw mut (*event).frames };
    let size = (MAX_FRAMES * 8) as u32;
    // SAFETY: `frames` is valid for `size` bytes.
    let bytes = unsafe { bpf_get_stack(ctx.as_ptr(), frames.cast(), size, u64::from(BPF_F_USER_STACK)) };
    if bytes <= 0 {
        drops::count(Reason::UserStackFault);
        entry.discard(ring::flags(Urgency::Batch));
        return (0, STACK_NONE);
    }
    let depth = (bytes as u32 / 8).min(MAX_FRAMES as u32);
    if depth == MAX_FRAMES as u32 {
        drops::count(Reason::TruncatedStack);
    }
    let mut hash = HASH_SEED;
    for index in 0..MAX_FRAMES {
        if index >= depth as usize {
            break;
        }
        // SAFETY: `index` is below the length of the array; the helper wrote the first `depth` frames.
        let frame = unsafe { frames.cast::<u64>().add(index).read() };
        hash = hash_step(hash, frame);
    }
    let stack = hash_end(hash);
    let key = key(task, stack, STACK_KERNEL);
    if SENT.get_ptr(key).is_some() {
        entry.discard(ring::flags(Urgency::Batch));
    } else {
        fill(event, task, stack, STACK_KERNEL, depth, 0);
        entry.submit(ring::flags(Urgency::Batch));
        let _ = SENT.insert(key, 1, 0);
    }
    (stack, STACK_KERNEL)
}

/// Everything of the record but its frames.
#[inline(always)]
fn fill(event: *mut ContextEvent, task: Task, stack: u64, stack_kind: u32, depth: u32, packed_words: u64) {
    let header = ring::header::<ContextEvent>(EVENT_CONTEXT, task);
    // SAFETY: the caller reserved the record with this layout; likewise below.
    unsafe { (*event).header = header };
    // SAFETY: as above.
    unsafe { (*event).stack = stack };
    // SAFETY: as above.
    unsafe { (*event).stack_kind = stack_kind };
    // SAFETY: as above.
    unsafe { (*event).depth = depth };
    // SAFETY: as above.
    unsafe { (*event).packed_words = packed_words };
}

#[inline(always)]
fn key(task: Task, stack: u64, stack_kind: u32) -> StackKey {
    StackKey { stack, tgid: task.tgid, kind_generation: stack_kind | filter::generation(task.tgid) << 8 }
}
