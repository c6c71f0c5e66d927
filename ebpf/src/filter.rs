//! Who hit the probe, and whether the loader wants to hear of it.

use aya_ebpf::bindings::bpf_pidns_info;
use aya_ebpf::helpers::bpf_get_current_pid_tgid;
use aya_ebpf::helpers::generated::bpf_get_ns_current_pid_tgid;

use crate::maps::{PROCESSES, config};

/// The current task, numbered as the loader numbers it.
#[derive(Clone, Copy)]
pub(crate) struct Task {
    pub(crate) tgid: u32,
    pub(crate) tid: u32,
}

/// The task that hit a probe; `None` when the loader cannot see its process. A probe of one process fires in that
/// process's address space only, which the kernel sees to; so its id is known, also when the task is a `vfork` child
/// that still shares the space, or lives in a pid namespace whose numbers are not the loader's.
#[inline(always)]
pub(crate) fn current() -> Option<Task> {
    let tgid = config().tgid;
    if tgid != 0 { Some(Task { tgid, tid: bpf_get_current_pid_tgid() as u32 }) } else { numbered() }
}

/// The current task when the loader follows its process: for events that every process has.
#[inline(always)]
pub(crate) fn followed() -> Option<Task> {
    let task = numbered()?;
    let wanted = config().tgid;
    let ours = if wanted != 0 { wanted == task.tgid } else { PROCESSES.get_ptr(task.tgid).is_some() };
    if ours { Some(task) } else { None }
}

/// The current task, numbered as the loader numbers it.
#[inline(always)]
fn numbered() -> Option<Task> {
    let config = config();
    let pid_tgid = if config.pidns_ino == 0 {
        bpf_get_current_pid_tgid()
    } else {
        let mut info = bpf_pidns_info { pid: 0, tgid: 0 };
        let size = size_of::<bpf_pidns_info>() as u32;
        // SAFETY: `info` is valid for `size` bytes.
        let code = unsafe { bpf_get_ns_current_pid_tgid(config.pidns_dev, config.pidns_ino, &raw mut info, size) };
        if code != 0 {
            return None;
        }
        u64::from(info.tgid) << 32 | u64::from(info.pid)
    };
    Some(Task { tgid: (pid_tgid >> 32) as u32, tid: pid_tgid as u32 })
}

/// Generation of the process's image; makes the process known from its first hit on.
#[inline(always)]
pub(crate) fn generation(tgid: u32) -> u32 {
    // SAFETY: a torn u32 is impossible; a value of a reused element costs one stack sent twice.
    if let Some(generation) = unsafe { PROCESSES.get(tgid) } {
        return *generation;
    }
    // Fails only when another CPU did the same; both store 0.
    let _ = PROCESSES.insert(tgid, 0, 0);
    0
}

/// Addresses of the process's earlier image mean nothing any more.
#[inline(always)]
pub(crate) fn next_generation(tgid: u32) {
    if let Some(generation) = PROCESSES.get_ptr_mut(tgid) {
        // SAFETY: the pointer is to a live value of the map; only exec and exit of one process write it, in order.
        unsafe { *generation = (*generation).wrapping_add(1) };
    }
}
