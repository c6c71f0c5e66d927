//! What a command waits for: signals, the end of a process, time, descriptors with data.
//!
//! Signals are blocked and read from a descriptor, so nothing runs in signal context and no wake-up is lost. A child
//! must unblock them again before it executes a program ([`Signals::unblock_in_child`]).

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// A signal as it was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    pub signal: i32,
    /// Sent by a process with `kill`, as opposed to the terminal, which sends to the whole foreground group.
    pub sent_by_process: bool,
}

/// A set of signals that arrive as data.
#[derive(Debug)]
pub struct Signals {
    fd: OwnedFd,
    before: libc::sigset_t,
}

impl Signals {
    /// Blocks the signals in this thread and in those that it starts.
    pub fn block(signals: &[i32]) -> io::Result<Signals> {
        let mut set = empty_set();
        for &signal in signals {
            // SAFETY: `set` is an initialised signal set of ours.
            unsafe { libc::sigaddset(&raw mut set, signal) };
        }
        let mut before = empty_set();
        // SAFETY: both sets are initialised and ours.
        let code = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, &raw mut before) };
        if code != 0 {
            return Err(io::Error::from_raw_os_error(code));
        }
        // SAFETY: `set` is initialised; -1 asks for a new descriptor.
        let fd = unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        Ok(Signals { fd: owned(fd)?, before })
    }

    /// The next signal that has arrived, if any.
    pub fn take(&self) -> Option<Received> {
        let mut info = MaybeUninit::<libc::signalfd_siginfo>::zeroed();
        let size = size_of::<libc::signalfd_siginfo>();
        // SAFETY: `info` has `size` writable bytes.
        let count = unsafe { libc::read(self.fd.as_raw_fd(), info.as_mut_ptr().cast(), size) };
        if count != size as isize {
            return None;
        }
        // SAFETY: zeroed at first and filled by the kernel; any bytes are valid for its integers.
        let info = unsafe { info.assume_init() };
        Some(Received { signal: info.ssi_signo as i32, sent_by_process: info.ssi_code <= 0 })
    }

    /// Restores the mask of before, for the child of a fork: only calls what is safe there.
    pub fn unblock_in_child(before: &libc::sigset_t) -> io::Result<()> {
        // SAFETY: `before` is initialised; a null old set is allowed.
        let code = unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before, std::ptr::null_mut()) };
        if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(code)) }
    }

    /// The mask of before the block.
    pub fn mask_before(&self) -> libc::sigset_t {
        self.before
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn empty_set() -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: `set` has room for one set.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    // SAFETY: zeroed and emptied just above.
    unsafe { set.assume_init() }
}

/// A process held by descriptor: the same one even when its pid is given away. Readable when it has ended.
#[derive(Debug)]
pub struct PidFd {
    fd: OwnedFd,
}

impl PidFd {
    pub fn open(pid: u32) -> io::Result<PidFd> {
        // SAFETY: the call takes two integers.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, libc::c_long::from(pid as i32), 0 as libc::c_long) };
        Ok(PidFd { fd: owned(fd as i32)? })
    }

    pub fn send(&self, signal: i32) -> io::Result<()> {
        // SAFETY: the descriptor is ours; a null info means an ordinary signal.
        let code = unsafe {
            libc::syscall(
                libc::SYS_pidfd_send_signal,
                self.fd.as_raw_fd(),
                signal,
                std::ptr::null::<libc::siginfo_t>(),
                0,
            )
        };
        if code == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// True once the process is a zombie or gone.
    pub fn has_ended(&self) -> bool {
        ready(&[self.fd.as_fd()], Some(Duration::ZERO)).is_ok_and(|ready| ready == [true])
    }
}

impl AsFd for PidFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Waits until a descriptor is readable or has an end, or the time is over; says which. `None` waits for ever.
pub fn ready(fds: &[BorrowedFd<'_>], timeout: Option<Duration>) -> io::Result<Vec<bool>> {
    let mut polled: Vec<libc::pollfd> =
        fds.iter().map(|fd| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 }).collect();
    // Rounded up, so that a wait for less than a millisecond does not spin.
    let millis = timeout.map_or(-1, |t| i32::try_from(t.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX));
    // SAFETY: `polled` has `polled.len()` entries, exclusively borrowed.
    let count = unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, millis) };
    if count < 0 {
        let error = io::Error::last_os_error();
        // A stop and continue of this process interrupts the wait; the caller looks at its clock and waits again.
        return if error.kind() == io::ErrorKind::Interrupted { Ok(vec![false; fds.len()]) } else { Err(error) };
    }
    Ok(polled.iter().map(|p| p.revents != 0).collect())
}

/// Nanoseconds of the clock that the profile table and the ring use.
pub fn monotonic_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is ours; the clock exists on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn owned(fd: i32) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor that nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use super::{PidFd, Signals, ready};
    use std::os::fd::AsFd as _;
    use std::process::Command;
    use std::time::Duration;

    #[test]
    fn a_process_that_ended_is_ready() {
        let mut child = Command::new("sleep").arg("100").spawn().expect("sleep runs");
        let pidfd = PidFd::open(child.id()).expect("child is there");
        assert!(!pidfd.has_ended());
        pidfd.send(libc::SIGKILL).expect("child of ours");
        assert_eq!(ready(&[pidfd.as_fd()], None).expect("poll"), [true]);
        child.wait().expect("child of ours");
        assert!(pidfd.has_ended());
    }

    #[test]
    fn signals_arrive_as_data() {
        let signals = Signals::block(&[libc::SIGUSR2]).expect("block");
        assert_eq!(signals.take(), None);
        // SAFETY: the signal is blocked in this thread, to which it goes.
        unsafe { libc::raise(libc::SIGUSR2) };
        assert_eq!(ready(&[signals.as_fd()], Some(Duration::from_secs(10))).expect("poll"), [true]);
        let received = signals.take().expect("one signal");
        assert!(received.signal == libc::SIGUSR2 && received.sent_by_process);
    }
}
