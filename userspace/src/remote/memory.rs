//! Memory of another process through `process_vm_readv` and `process_vm_writev`: no stop, no cooperation, also of a
//! stopped or hung process. The kernel asks for the right to trace the target (same user and dumpable, or
//! `CAP_SYS_PTRACE`), as a debugger would need.

use std::io;

use crate::proc::pids::{living_task, tasks};

/// One process's memory, reached through a task that lived when the value was made or, once that has ended, through another.
/// Holds no descriptor; an id that was given to a new process meanwhile is the caller's to notice (`PidFd`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessMemory {
    pid: u32,
    task: u32,
}

impl ProcessMemory {
    pub fn new(pid: u32) -> ProcessMemory {
        ProcessMemory { pid, task: living_task(pid) }
    }

    pub fn pid(self) -> u32 {
        self.pid
    }

    /// Fills `buf` from `avma` on; `EFAULT` when part of the range is not mapped.
    pub fn read(self, avma: u64, buf: &mut [u8]) -> io::Result<()> {
        let mut done = 0;
        while done < buf.len() {
            let rest = &mut buf[done..];
            let local = libc::iovec { iov_base: rest.as_mut_ptr().cast(), iov_len: rest.len() };
            let remote = remote_range(avma.wrapping_add(done as u64), rest.len());
            done += self.ask(|task| {
                // SAFETY: `local` is the unwritten rest of `buf`, exclusively borrowed; the kernel checks the remote range.
                unsafe { libc::process_vm_readv(task, &raw const local, 1, &raw const remote, 1, 0) }
            })?;
        }
        Ok(())
    }

    /// Reads up to `buf.len()` bytes and says how many were mapped.
    pub fn read_some(self, avma: u64, buf: &mut [u8]) -> io::Result<usize> {
        let local = libc::iovec { iov_base: buf.as_mut_ptr().cast(), iov_len: buf.len() };
        let remote = remote_range(avma, buf.len());
        self.ask(|task| {
            // SAFETY: `local` is all of `buf`, exclusively borrowed; the kernel checks the remote range.
            unsafe { libc::process_vm_readv(task, &raw const local, 1, &raw const remote, 1, 0) }
        })
    }

    /// Overwrites memory of the target. Only the control words of the profile table are ever written.
    pub fn write(self, avma: u64, bytes: &[u8]) -> io::Result<()> {
        let local = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        let remote = remote_range(avma, bytes.len());
        let count = self.ask(|task| {
            // SAFETY: `local` is only read by this call; the kernel checks the remote range.
            unsafe { libc::process_vm_writev(task, &raw const local, 1, &raw const remote, 1, 0) }
        });
        match count? {
            count if count == bytes.len() => Ok(()),
            _ => Err(io::Error::from_raw_os_error(libc::EFAULT)),
        }
    }

    /// Has the kernel move bytes through the task of before. When that has no memory any more, through each other of the process,
    /// until none came since the last look.
    fn ask(self, mut call: impl FnMut(i32) -> isize) -> io::Result<usize> {
        let is_gone =
            |answer: &io::Result<usize>| answer.as_ref().is_err_and(|error| error.raw_os_error() == Some(libc::ESRCH));
        let mut answer = moved(call(self.task as i32));
        let mut seen = Vec::new();
        while is_gone(&answer) {
            let now = tasks(self.pid);
            if now == seen {
                break;
            }
            for &task in &now {
                answer = moved(call(task as i32));
                if !is_gone(&answer) {
                    return answer;
                }
            }
            seen = now;
        }
        answer
    }

    pub fn read_u64(self, avma: u64) -> io::Result<u64> {
        let mut bytes = [0; 8];
        self.read(avma, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    pub fn read_u32(self, avma: u64) -> io::Result<u32> {
        let mut bytes = [0; 4];
        self.read(avma, &mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }
}

fn remote_range(avma: u64, len: usize) -> libc::iovec {
    libc::iovec { iov_base: std::ptr::without_provenance_mut(avma as usize), iov_len: len }
}

/// Bytes that the call moved; 0 counts as a fault, since asking again would not end.
fn moved(count: isize) -> io::Result<usize> {
    match count {
        0 => Err(io::Error::from_raw_os_error(libc::EFAULT)),
        count => usize::try_from(count).map_err(|_| io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::ProcessMemory;

    #[test]
    fn own_memory_reads_and_writes() {
        let memory = ProcessMemory::new(std::process::id());
        let source = vec![7_u8; 100_000];
        let mut copy = vec![0; source.len()];
        memory.read(source.as_ptr().addr() as u64, &mut copy).expect("own memory is readable");
        assert_eq!(copy, source);

        let word = std::sync::atomic::AtomicU64::new(1);
        memory.write(word.as_ptr().addr() as u64, &9_u64.to_le_bytes()).expect("own memory is writable");
        assert_eq!(word.load(std::sync::atomic::Ordering::SeqCst), 9);
    }

    /// The thread through which a process was reached may end, and the process go on.
    #[test]
    fn memory_is_reached_through_another_thread_when_one_has_ended() {
        let (send, ended) = std::sync::mpsc::channel();
        std::thread::spawn(move || send.send(std::fs::read_link("/proc/thread-self")).expect("received"));
        let link = ended.recv().expect("sent").expect("readable");
        let task = link.file_name().and_then(|name| name.to_str()?.parse().ok()).expect("an id");
        let pid = std::process::id();
        while super::tasks(pid).contains(&task) {
            std::thread::yield_now();
        }
        let memory = ProcessMemory { pid, task };
        let word = 7_u64;
        assert_eq!(memory.read_u64(std::ptr::from_ref(&word).addr() as u64).expect("another thread has it"), 7);
    }

    #[test]
    fn unmapped_memory_is_an_error() {
        let memory = ProcessMemory::new(std::process::id());
        assert_eq!(memory.read_u64(8).expect_err("page 0").raw_os_error(), Some(libc::EFAULT));
        assert_eq!(
            ProcessMemory::new(i32::MAX as u32).read_u64(8).expect_err("no pid").raw_os_error(),
            Some(libc::ESRCH)
        );
    }
}
