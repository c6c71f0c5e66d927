//! Why probes could not be set, and what to do about it.
#![forbid(unsafe_code)]

use std::io;
use std::path::PathBuf;

use jeprobe_abi::keys::MAX_SITES;
use thiserror::Error;

use super::load::LoadError;
use crate::proc::pids;

#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AttachError {
    #[error(transparent)]
    Load(#[from] LoadError),

    #[error("cannot probe {name} in {}", path.display())]
    Probe { name: String, path: PathBuf, source: io::Error },

    #[error("process {pid} did not get its semaphore of {name} raised")]
    Semaphore { name: String, pid: u32, task: Option<(u32, u32)> },

    #[error("too many different argument layouts of foreign probes (at most {})", MAX_SITES)]
    TooManySites,
}

/// Whether root's rights are not what is missing.
fn is_root() -> bool {
    pids::status(std::process::id()).is_ok_and(|status| status.uid == 0)
}

impl AttachError {
    /// The thread to which probes were to belong ended while they were set; the kernel finds none, or raises nothing.
    pub fn is_of_a_thread_that_ended(&self) -> bool {
        match self {
            AttachError::Probe { source, .. } => source.raw_os_error() == Some(libc::ESRCH),
            AttachError::Semaphore { task, .. } => task.is_some_and(|(pid, task)| !pids::task_lives(pid, task)),
            _ => false,
        }
    }

    pub fn hint(&self) -> Option<String> {
        match self {
            AttachError::Load(error) => error.hint(),
            AttachError::Probe { source, .. } => match source.raw_os_error() {
                Some(libc::EACCES | libc::EPERM) if is_root() => Some(
                    "the process or its files are protected, by another user namespace or a security module; without eBPF: \
                     jeprobe attach --mode inprocess"
                        .into(),
                ),
                Some(libc::ESRCH) => {
                    Some("the process ended while probes were being set; find one that runs: pgrep -a NAME".into())
                }
                Some(libc::EACCES | libc::EPERM) => {
                    Some("run as root, or with CAP_PERFMON; without eBPF: jeprobe attach --mode inprocess".into())
                }
                Some(libc::ENOENT) => Some("this kernel has no uprobes for perf (CONFIG_UPROBE_EVENTS)".into()),
                Some(libc::EMFILE) => Some("raise the limit of open files: ulimit -n 65536".into()),
                _ => None,
            },
            AttachError::Semaphore { .. } => {
                Some("the data of the library may be mapped read-only; use jeprobe attach --mode inprocess".into())
            }
            AttachError::TooManySites => None,
        }
    }
}
