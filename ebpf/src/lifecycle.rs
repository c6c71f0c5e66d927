//! exec, exit and fork of followed processes. The probes themselves need none of this: the kernel re-applies them when
//! a process maps the file again. The loader needs it to close profiles, and `stack.rs` to forget addresses.

use aya_ebpf::macros::tracepoint;
use aya_ebpf::programs::TracePointContext;
use jeprobe_abi::event::{EVENT_EXEC, EVENT_EXIT, EVENT_FORK, LifecycleEvent};

use crate::filter::{self, Task};
use crate::maps::config;
use crate::ring::{self, Urgency};

/// `linux/sched.h`: the child shares the address space (a thread, or vfork and posix_spawn before their exec).
const CLONE_VM: u64 = 0x100;

#[tracepoint]
pub(crate) fn process_exec(_ctx: TracePointContext) -> u32 {
    if let Some(task) = filter::followed() {
        filter::next_generation(task.tgid);
        send(EVENT_EXEC, task, 0);
    }
    0
}

/// Fires for each thread; only the leader's end is told.
#[tracepoint]
pub(crate) fn process_exit(_ctx: TracePointContext) -> u32 {
    if let Some(task) = filter::followed()
        && task.tgid == task.tid
    {
        filter::next_generation(task.tgid);
        send(EVENT_EXIT, task, 0);
    }
    0
}

/// `task:task_newtask`, in the parent. Its layout changed between kernels, so the loader gives the offsets.
#[tracepoint]
pub(crate) fn process_fork(ctx: TracePointContext) -> u32 {
    try_fork(&ctx);
    0
}

#[inline(always)]
fn try_fork(ctx: &TracePointContext) -> Option<()> {
    let task = filter::followed()?;
    let config = config();
    // SAFETY: the helper checks the address; the offset is the kernel's own.
    let flags = unsafe { ctx.read_at::<u64>(config.fork_flags_offset as usize) }.ok()?;
    if flags & CLONE_VM != 0 {
        return None;
    }
    // SAFETY: as above.
    let child = unsafe { ctx.read_at::<u32>(config.fork_pid_offset as usize) }.ok()?;
    // The tracepoint numbers tasks as the first namespace does; elsewhere the number would mislead.
    send(EVENT_FORK, task, if config.pidns_ino == 0 { child } else { 0 });
    Some(())
}

#[inline(always)]
fn send(kind: u32, task: Task, other: u32) {
    let header = ring::header::<LifecycleEvent>(kind, task);
    ring::send(LifecycleEvent { header, other, _pad: 0 }, Urgency::Now);
}
