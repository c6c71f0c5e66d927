//! Whether the sandbox of a process lets it be sampled: its seccomp filters, read from outside and asked about the system calls
//! that a sample makes in the process. A filter that ends the process for one of them would make the profiler kill it.
//!
//! Filters are read as a debugger reads them (`PTRACE_SECCOMP_GET_FILTER`): each thread that has some is held for as long as that
//! takes, some 50 us, and goes on as before. It needs `CAP_SYS_ADMIN`, and that nobody else traces the thread.
//!
//! ```text
//!  seize ─► interrupt ─► it stops: at once, or with a signal that it was about to get ─► read ─► detach, signal passed on
//! ```
//!
//! All of that is done by a thread of its own: the kernel lets go of what a tracer holds when it ends, also of a thread that does
//! not stop in time.

use std::io;
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::proc::pids;
use crate::proc::seccomp::{self, Call, Instruction};

const PTRACE_SECCOMP_GET_FILTER: libc::c_uint = 0x420c;
const PTRACE_EVENT_STOP: i32 = 128;
/// `BPF_MAXINSNS`.
const MOST_INSTRUCTIONS: usize = 4096;
/// How long a thread may take to stop: one that sleeps in the kernel without being interruptible does not.
const STOPS_WITHIN: Duration = Duration::from_millis(200);
/// Threads that are looked at; mostly all have the same filters.
const MOST_THREADS: usize = 64;

/// What a sample may call, besides what every allocation does, by name: reads of the mappings and of unwind tables.
fn calls() -> [(&'static str, Call); 6] {
    let (path, buffer) = (0x7f00_0000_2000, 0x7f00_0000_3000);
    let call = |number: libc::c_long, arguments| Call { number: number as u32, arguments };
    let here = libc::AT_FDCWD as u64;
    let (read_only, close_on_exec) = (libc::PROT_READ as u64, libc::O_CLOEXEC as u64);
    [
        ("openat", call(libc::SYS_openat, [here, path, close_on_exec, 0, 0, 0])),
        ("read", call(libc::SYS_read, [3, buffer, 4096, 0, 0, 0])),
        ("fstat", call(libc::SYS_fstat, [3, buffer, 0, 0, 0, 0])),
        ("mmap", call(libc::SYS_mmap, [0, 4096, read_only, libc::MAP_PRIVATE as u64, 3, 0])),
        ("close", call(libc::SYS_close, [3, 0, 0, 0, 0, 0])),
        ("gettid", call(libc::SYS_gettid, [0; 6])),
    ]
}

/// Fails when sampling would end the process. Gives a warning where that cannot be found out.
pub fn check(pid: u32) -> Result<Option<String>, Error> {
    let mut unknown = None;
    let confined = pids::tasks(pid).into_iter().filter(|&tid| pids::is_confined(pid, tid)).take(MOST_THREADS);
    for tid in confined {
        let name = || pids::status(pid).map(|status| status.name).unwrap_or_default();
        match filters(tid) {
            Ok(filters) => {
                let fatal = calls().into_iter().filter(|(_, call)| seccomp::is_fatal(&filters, call));
                let fatal: Vec<&str> = fatal.map(|(name, _)| name).collect();
                if !fatal.is_empty() {
                    return Err(Error::Sandbox { pid, name: name(), calls: fatal.join(", ") });
                }
            }
            // It ended.
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
            Err(error) => {
                unknown = Some(format!(
                    "process {pid} ({}) has a seccomp filter that cannot be read ({error}): if it ends the process for opening \
                     files, sampling does so",
                    name()
                ));
            }
        }
    }
    Ok(unknown)
}

/// The filters of one thread.
fn filters(tid: u32) -> io::Result<Vec<Vec<Instruction>>> {
    let reader = std::thread::Builder::new().spawn(move || read_filters(tid))?;
    reader.join().unwrap_or_else(|_| Err(io::Error::other("the reader of filters ended")))
}

fn read_filters(tid: u32) -> io::Result<Vec<Vec<Instruction>>> {
    const SEIZE: libc::c_uint = 0x4206;
    const INTERRUPT: libc::c_uint = 0x4207;
    trace(SEIZE, tid, 0, std::ptr::null_mut())?;
    trace(INTERRUPT, tid, 0, std::ptr::null_mut())?;
    let status = wait_for_stop(tid)?;
    let mut filters = Vec::new();
    let result = loop {
        let mut program = vec![Instruction::default(); MOST_INSTRUCTIONS];
        match trace(PTRACE_SECCOMP_GET_FILTER, tid, filters.len(), program.as_mut_ptr().cast()) {
            Ok(length) => {
                program.truncate(length);
                filters.push(program);
            }
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => break Ok(filters),
            Err(error) => break Err(error),
        }
    };
    // Stopped by a signal, it is still to get that.
    let signal = if status >> 16 == PTRACE_EVENT_STOP { 0 } else { libc::WSTOPSIG(status) };
    let place = std::ptr::without_provenance_mut(signal as usize);
    let _gone = trace(libc::PTRACE_DETACH, tid, 0, place);
    result
}

/// Status of the thread once it has stopped.
fn wait_for_stop(tid: u32) -> io::Result<i32> {
    let until = Instant::now() + STOPS_WITHIN;
    loop {
        let mut status = 0;
        // SAFETY: the status is written to this word.
        let changed = unsafe { libc::waitpid(tid as i32, &raw mut status, libc::__WALL | libc::WNOHANG) };
        match changed {
            -1 => return Err(io::Error::last_os_error()),
            0 if Instant::now() >= until => return Err(io::Error::from_raw_os_error(libc::ETIMEDOUT)),
            0 => std::thread::sleep(Duration::from_micros(50)),
            _ if libc::WIFSTOPPED(status) => return Ok(status),
            _ => return Err(io::Error::from_raw_os_error(libc::ESRCH)),
        }
    }
}

fn trace(request: libc::c_uint, tid: u32, place: usize, data: *mut libc::c_void) -> io::Result<usize> {
    let place: *mut libc::c_void = std::ptr::without_provenance_mut(place);
    // SAFETY: of the requests made here only the one for filters writes, at most MOST_INSTRUCTIONS to `data`, which its caller has
    // room for.
    let answer = unsafe { libc::ptrace(request, tid as i32, place, data) };
    usize::try_from(answer).map_err(|_| io::Error::last_os_error())
}
