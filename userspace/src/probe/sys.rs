//! The system calls of attaching that neither aya nor std offers: uprobes with a semaphore, attaching a loaded program
//! to them, and tracefs without mounting it anywhere.
//!
//! A uprobe made by `perf_event_open` on the `uprobe` PMU lives as long as its descriptor. With `ref_ctr_offset` the
//! kernel raises the semaphore in every process that the probe covers and lowers it when the descriptor is closed, by a
//! crash too. With a pid the probe covers that process's whole address space: all its threads, older and newer ones
//! (the kernel compares address spaces), and images that it execs later.
//!
//! The events of uprobes stay disabled. A program at a uprobe runs whether its event counts or not, and the kernel takes
//! every enabled event of a process out and in at each of its switches between threads and tasks: five probes made a
//! redis server that never hit them a sixth slower.

use std::ffi::{CStr, CString};
use std::fs;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use crate::addr::FileOffset;

/// Which processes a probe covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cover {
    Process(u32),
    /// All of them. The event is opened on one CPU, but its program runs on every one.
    Host {
        cpu: u32,
    },
}

/// `struct perf_event_attr` up to `PERF_ATTR_SIZE_VER5`, by the names of its use here.
#[repr(C)]
#[derive(Default)]
struct PerfAttr {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup: u32,
    bp_type: u32,
    path: u64,
    offset: u64,
    rest: [u64; 5],
}

const _: () = assert!(size_of::<PerfAttr>() == 112);

const PERF_TYPE_TRACEPOINT: u32 = 2;
/// `perf_event_attr.disabled`.
const DISABLED: u64 = 1;
const PERF_FLAG_FD_CLOEXEC: u64 = 8;
/// `_IOW('$', 8, u32)`.
const PERF_EVENT_IOC_SET_BPF: u64 = 0x4004_2408;
/// `_IO('$', 0)`.
const PERF_EVENT_IOC_ENABLE: u64 = 0x2400;
const BPF_LINK_CREATE: i32 = 28;
const BPF_PERF_EVENT: u32 = 41;
const FSCONFIG_CMD_CREATE: u32 = 6;
/// `FSOPEN_CLOEXEC` and `FSMOUNT_CLOEXEC`.
const FS_CLOEXEC: u32 = 1;

/// Where the kernel describes its uprobe PMU.
pub(super) const UPROBE_PMU: &str = "/sys/bus/event_source/devices/uprobe";

/// Opens a uprobe on the very file behind `file`, semaphore included. The probe does nothing before a program is
/// attached to it.
pub(super) fn open_uprobe(
    cover: Cover,
    file: BorrowedFd<'_>,
    offset: FileOffset,
    semaphore: Option<FileOffset>,
) -> io::Result<OwnedFd> {
    let kind = fs::read_to_string(format!("{UPROBE_PMU}/type"))?;
    let kind = kind.trim().parse().map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
    let path = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    let attr = PerfAttr {
        kind,
        size: size_of::<PerfAttr>() as u32,
        // Bits 32..63: file offset of the semaphore. Bit 0, "on return", stays clear.
        config: semaphore.map_or(0, |semaphore| semaphore.0 << 32),
        flags: DISABLED,
        path: path.as_ptr().addr() as u64,
        offset: offset.0,
        ..PerfAttr::default()
    };
    perf_event_open(&attr, cover)
}

/// Opens a tracepoint by its number.
pub(super) fn open_tracepoint(id: u64, cpu: u32) -> io::Result<OwnedFd> {
    let attr = PerfAttr {
        kind: PERF_TYPE_TRACEPOINT,
        size: size_of::<PerfAttr>() as u32,
        config: id,
        sample_period: 1,
        ..PerfAttr::default()
    };
    perf_event_open(&attr, Cover::Host { cpu })
}

fn perf_event_open(attr: &PerfAttr, cover: Cover) -> io::Result<OwnedFd> {
    let (pid, cpu) = match cover {
        Cover::Process(pid) => (i64::from(pid), -1),
        Cover::Host { cpu } => (-1, i64::from(cpu)),
    };
    let none: i64 = -1;
    // SAFETY: `attr` is a complete structure of the size that it states; its path is a live C string.
    let fd = unsafe {
        libc::syscall(libc::SYS_perf_event_open, std::ptr::from_ref(attr), pid, cpu, none, PERF_FLAG_FD_CLOEXEC)
    };
    owned(fd)
}

/// Lets a program run at a uprobe. With a cookie, which the program can ask for, this needs Linux 5.15; the returned link
/// must live as long as the event.
pub(super) fn attach(event: &OwnedFd, program: BorrowedFd<'_>, cookie: Option<u64>) -> io::Result<Option<OwnedFd>> {
    if let Some(cookie) = cookie {
        return link(event, program, cookie).map(Some);
    }
    // SAFETY: both descriptors are open; the call takes the program's number.
    let code = unsafe { libc::ioctl(event.as_raw_fd(), PERF_EVENT_IOC_SET_BPF, program.as_raw_fd()) };
    check(code)?;
    Ok(None)
}

/// Counts an event from now on, which a tracepoint's program needs.
pub(super) fn enable(event: &OwnedFd) -> io::Result<()> {
    // SAFETY: the descriptor is open; the call takes no further argument.
    let code = unsafe { libc::ioctl(event.as_raw_fd(), PERF_EVENT_IOC_ENABLE, 0) };
    check(code)
}

fn link(event: &OwnedFd, program: BorrowedFd<'_>, cookie: u64) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct LinkAttr {
        program: u32,
        target: u32,
        attach_type: u32,
        flags: u32,
        cookie: u64,
    }
    let attr = LinkAttr {
        program: program.as_raw_fd() as u32,
        target: event.as_raw_fd() as u32,
        attach_type: BPF_PERF_EVENT,
        flags: 0,
        cookie,
    };
    // SAFETY: `attr` is complete and as long as stated.
    let fd = unsafe { libc::syscall(libc::SYS_bpf, BPF_LINK_CREATE, &raw const attr, size_of::<LinkAttr>()) };
    owned(fd)
}

/// tracefs, mounted or as a mount of our own that has no place in the file system and ends with its descriptor.
#[derive(Debug)]
pub(super) enum Tracefs {
    Mounted(PathBuf),
    Own(OwnedFd),
}

impl Tracefs {
    pub(super) fn open() -> io::Result<Tracefs> {
        for place in ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"] {
            if fs::exists(Path::new(place).join("events/sched")).unwrap_or(false) {
                return Ok(Tracefs::Mounted(place.into()));
            }
        }
        let name: &CStr = c"tracefs";
        // SAFETY: the name is a C string.
        let context = owned(unsafe { libc::syscall(libc::SYS_fsopen, name.as_ptr(), FS_CLOEXEC) })?;
        let none = std::ptr::null::<u8>();
        // SAFETY: this command takes no key and no value.
        let code =
            unsafe { libc::syscall(libc::SYS_fsconfig, context.as_raw_fd(), FSCONFIG_CMD_CREATE, none, none, 0) };
        check(code as i32)?;
        // SAFETY: the descriptor is open.
        owned(unsafe { libc::syscall(libc::SYS_fsmount, context.as_raw_fd(), FS_CLOEXEC, 0) }).map(Tracefs::Own)
    }

    /// A file of a tracepoint: `id`, `format`.
    pub(super) fn read(&self, tracepoint: &str, file: &str) -> io::Result<String> {
        let root = match self {
            Tracefs::Mounted(path) => path.clone(),
            Tracefs::Own(fd) => PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd())),
        };
        fs::read_to_string(root.join("events").join(tracepoint).join(file))
    }
}

/// Lets the process lock as much memory as maps need: kernels before 5.11 count them against this limit.
pub(super) fn raise_memlock_limit() {
    let limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: `limit` is complete. A refusal shows when the maps are made, with a better message.
    unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const limit) };
}

fn owned(fd: libc::c_long) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor that nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

fn check(code: i32) -> io::Result<()> {
    if code < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
