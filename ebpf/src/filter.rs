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

/// The current task, `None` when it is not a target.
#[inline(always)]
pub(crate) fn current() -> Option<Task> {
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
    let task = Task { tgid: (pid_tgid >> 32) as u32, tid: pid_tgid as u32 };
    if config.tgid != 0 && config.tgid != task.tgid { None } else { Some(task) }
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

/// Whether the loader follows this process.
#[inline(always)]
pub(crate) fn is_known(tgid: u32) -> bool {
    PROCESSES.get_ptr(tgid).is_some()
}

/// Addresses of the process's earlier image mean nothing any more.
#[inline(always)]
pub(crate) fn next_generation(tgid: u32) {
    if let Some(generation) = PROCESSES.get_ptr_mut(tgid) {
        // SAFETY: the pointer is to a live value of the map; only exec and exit of one process write it, in order.
        unsafe { *generation = (*generation).wrapping_add(1) };
    }
}
