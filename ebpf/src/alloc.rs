//! Sampled allocations and frees: of jeprobe's hooks, whose arguments are in `SysV` order, and of notes of other
//! programs (`otel_memory`), whose arguments lie where the note says.

use aya_ebpf::macros::uprobe;
use aya_ebpf::programs::ProbeContext;
use jeprobe_abi::event::{AllocEvent, EVENT_ALLOC, EVENT_FREE, FreeEvent};

use crate::filter::{self, Task};
use crate::ring::{self, Urgency};
use crate::{args, stack};

/// What an allocation hook was called with; 0 for what the target did not say.
struct Sample {
    ptr: u64,
    usable_bytes: u64,
    weight_bytes: u64,
    context: u64,
    requested_bytes: u64,
}

#[uprobe]
pub(crate) fn jeprobe_alloc(ctx: ProbeContext) -> u32 {
    try_alloc(&ctx);
    0
}

#[inline(always)]
fn try_alloc(ctx: &ProbeContext) -> Option<()> {
    let task = filter::current()?;
    let sample = Sample {
        ptr: args::register(ctx, 0)?,
        usable_bytes: args::register(ctx, 1)?,
        weight_bytes: args::register(ctx, 2)?,
        context: args::register(ctx, 3)?,
        requested_bytes: args::register(ctx, 4)?,
    };
    send_alloc(ctx, task, &sample);
    Some(())
}

#[uprobe]
pub(crate) fn jeprobe_free(ctx: ProbeContext) -> u32 {
    try_free(&ctx);
    0
}

#[inline(always)]
fn try_free(ctx: &ProbeContext) -> Option<()> {
    let task = filter::current()?;
    send_free(task, args::register(ctx, 0)?, args::register(ctx, 1)?);
    Some(())
}

#[uprobe]
pub(crate) fn foreign_alloc(ctx: ProbeContext) -> u32 {
    try_foreign_alloc(&ctx);
    0
}

#[inline(always)]
fn try_foreign_alloc(ctx: &ProbeContext) -> Option<()> {
    let task = filter::current()?;
    let site = args::site(ctx)?;
    let sample = Sample {
        ptr: args::read(ctx, &site.args[0])?,
        usable_bytes: args::read(ctx, &site.args[1])?,
        weight_bytes: args::read(ctx, &site.args[2])?,
        context: 0,
        requested_bytes: 0,
    };
    send_alloc(ctx, task, &sample);
    Some(())
}

#[uprobe]
pub(crate) fn foreign_free(ctx: ProbeContext) -> u32 {
    try_foreign_free(&ctx);
    0
}

#[inline(always)]
fn try_foreign_free(ctx: &ProbeContext) -> Option<()> {
    let task = filter::current()?;
    let site = args::site(ctx)?;
    send_free(task, args::read(ctx, &site.args[0])?, 0);
    Some(())
}

#[inline(always)]
fn send_alloc(ctx: &ProbeContext, task: Task, sample: &Sample) {
    let (stack, stack_kind) = stack::identify(ctx, task, sample.context);
    ring::send(
        AllocEvent {
            header: ring::header::<AllocEvent>(EVENT_ALLOC, task),
            ptr: sample.ptr,
            usable_bytes: sample.usable_bytes,
            weight_bytes: sample.weight_bytes,
            requested_bytes: sample.requested_bytes,
            stack,
            stack_kind,
            _pad: 0,
        },
        Urgency::Batch,
    );
}

#[inline(always)]
fn send_free(task: Task, ptr: u64, usable_bytes: u64) {
    let header = ring::header::<FreeEvent>(EVENT_FREE, task);
    ring::send(FreeEvent { header, ptr, usable_bytes }, Urgency::Batch);
}
