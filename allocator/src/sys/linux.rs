//! System calls of x86-64 Linux, made directly. Nothing here touches `errno` or allocates.

use core::arch::asm;
use core::ffi::CStr;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::Errno;

/// Raw system call with six arguments; the kernel's return value (negative errno on failure).
///
/// # Safety
/// S1: the arguments are valid for the call `nr`, including every memory range that it reads or writes.
#[inline]
pub(super) unsafe fn syscall(nr: i64, args: [usize; 6]) -> isize {
    let ret: isize;
    // SAFETY: S1 passes the duty on; the clobbered registers are those of the x86-64 system call convention.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") nr as isize => ret,
            in("rdi") args[0],
            in("rsi") args[1],
            in("rdx") args[2],
            in("r10") args[3],
            in("r8") args[4],
            in("r9") args[5],
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack)
        );
    }
    ret
}

/// A pointer as a system call argument. Exposed, because the kernel reads or writes behind it and the compiler must
/// not assume otherwise.
pub(super) fn for_kernel<T>(ptr: *const T) -> usize {
    ptr.expose_provenance()
}

pub(super) fn result(ret: isize) -> Result<usize, Errno> {
    if ret < 0 { Err(Errno(-(ret as i32))) } else { Ok(ret as usize) }
}

/// A new mapping at an address that the kernel chooses; returns a pointer with provenance over the mapping. Without a
/// file, `fd` is -1 and `offset` 0.
pub(super) fn mmap(bytes: usize, prot: i32, flags: i32, fd: i32, offset: u64) -> Option<*mut u8> {
    let ptr: *mut u8;
    // SAFETY: a new mapping at an address that the kernel chooses touches no memory in use. The result is taken as a
    // pointer, so that it carries the provenance of the new object.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") libc::SYS_mmap => ptr,
            in("rdi") 0usize,
            in("rsi") bytes,
            in("rdx") i64::from(prot),
            in("r10") i64::from(flags),
            in("r8") fd as isize,
            in("r9") offset,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack)
        );
    }
    // Error results are the last page of the address space.
    if ptr.addr() > usize::MAX - 4096 { None } else { Some(ptr) }
}

/// Maps `bytes` (page multiple) of zeroed memory with `prot`.
fn map(bytes: usize, prot: i32, flags: i32) -> Option<*mut u8> {
    mmap(bytes, prot, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags, -1, 0)
}

/// Address space for `bytes` at a multiple of `align`, readable, writable, zero, resident only when touched.
///
/// `bytes` is a multiple of the page size, `align` a power of two. Cost: one system call, or four when the first
/// address does not have the alignment.
pub fn reserve(bytes: usize, align: usize) -> Option<NonNull<u8>> {
    #[cfg(test)]
    if super::mock::reserve_fails() {
        return None;
    }
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_NORESERVE;
    let first = map(bytes, prot, flags)?;
    if first.addr() & (align - 1) == 0 {
        return NonNull::new(first);
    }
    // SAFETY: S1 by `map`: the range was just made and nobody else knows it.
    unsafe { release(first, bytes) };
    let wide_bytes = bytes.checked_add(align)?;
    let wide = map(wide_bytes, prot, flags)?;
    let lead = wide.addr().wrapping_neg() & (align - 1);
    let start = wide.wrapping_add(lead);
    if lead != 0 {
        // SAFETY: S1: the part before `start` is the head of the mapping just made.
        unsafe { release(wide, lead) };
    }
    let tail = wide_bytes - lead - bytes;
    if tail != 0 {
        // SAFETY: S1: the part behind the result is the tail of the mapping just made.
        unsafe { release(start.wrapping_add(bytes), tail) };
    }
    NonNull::new(start)
}

/// Gives address space back.
///
/// # Safety
/// S1: the range consists of whole pages obtained from [`reserve`] and nothing in it is used any more.
pub unsafe fn release(ptr: *mut u8, bytes: usize) {
    // SAFETY: S1.
    let ret = unsafe { syscall(libc::SYS_munmap, [ptr.addr(), bytes, 0, 0, 0, 0]) };
    // It can only fail when the process is at its limit of mappings; the range then stays reserved and unused.
    let _ = ret;
}

/// Lets the kernel take the pages when it needs them; true when it agreed.
///
/// # Safety
/// S1: the range consists of whole pages obtained from [`reserve`] whose contents are no longer needed.
pub unsafe fn purge_lazy(ptr: *mut u8, bytes: usize) -> bool {
    #[cfg(test)]
    if super::mock::advice_fails() {
        return false;
    }
    // SAFETY: S1.
    unsafe { syscall(libc::SYS_madvise, [ptr.addr(), bytes, libc::MADV_FREE as usize, 0, 0, 0]) == 0 }
}

/// Gives the pages back at once; true when they now read as zero.
///
/// # Safety
/// S1: the range consists of whole pages obtained from [`reserve`] whose contents are no longer needed.
pub unsafe fn purge_forced(ptr: *mut u8, bytes: usize) -> bool {
    #[cfg(test)]
    if super::mock::advice_fails() {
        return false;
    }
    // SAFETY: S1.
    unsafe { syscall(libc::SYS_madvise, [ptr.addr(), bytes, libc::MADV_DONTNEED as usize, 0, 0, 0]) == 0 }
}

/// Tells the kernel whether to back the range with huge pages as it is touched; true when it agreed.
///
/// # Safety
/// S1: the range consists of whole pages obtained from [`reserve`].
pub unsafe fn advise_huge(ptr: *mut u8, bytes: usize, wanted: bool) -> bool {
    #[cfg(test)]
    {
        super::mock::note_huge(ptr.addr(), bytes);
        if super::mock::advice_fails() {
            return false;
        }
    }
    let advice = if wanted { libc::MADV_HUGEPAGE } else { libc::MADV_NOHUGEPAGE };
    // SAFETY: S1: the advice changes no contents.
    unsafe { syscall(libc::SYS_madvise, [ptr.addr(), bytes, advice as usize, 0, 0, 0]) == 0 }
}

/// Writes a zero to the start of the page at `page`, which brings it in, with all of a huge page where one was asked for; time of
/// the calling thread that it took, ns. `None`, and nothing written, when the kernel does not say.
///
/// # Safety
/// S1: the page was obtained from [`reserve`], and nobody needs its contents.
pub unsafe fn touch_ns(page: *mut u8) -> Option<u64> {
    #[cfg(test)]
    match super::mock::touch(page.addr()) {
        super::mock::Touch::Truth => {}
        super::mock::Touch::Took(ns) => return Some(ns),
        super::mock::Touch::Unknown => return None,
    }
    let before = clock_thread_ns()?;
    // SAFETY: S1. Volatile, so that it comes between the two looks at the clock.
    unsafe { page.write_volatile(0) };
    Some(clock_thread_ns()?.saturating_sub(before))
}

/// Replaces a range by an inaccessible mapping (a guard); true on success.
///
/// # Safety
/// S1: the range consists of whole pages obtained from [`reserve`] that nobody uses.
pub unsafe fn remap_inaccessible(ptr: *mut u8, bytes: usize) -> bool {
    // SAFETY: S1.
    unsafe { syscall(libc::SYS_mprotect, [ptr.addr(), bytes, libc::PROT_NONE as usize, 0, 0, 0]) == 0 }
}

/// Page size of the running kernel, bytes.
#[inline]
pub fn page_size() -> usize {
    static PAGE_BYTES: AtomicUsize = AtomicUsize::new(0);
    // Relaxed: the value is a constant of the process; two threads that race store the same.
    let known = PAGE_BYTES.load(Ordering::Relaxed);
    if known != 0 {
        return known;
    }
    // SAFETY: `getauxval` reads the auxiliary vector that the kernel passed at start.
    let asked = unsafe { libc::getauxval(libc::AT_PAGESZ) } as usize;
    let page = if asked.is_power_of_two() && asked >= 4096 { asked } else { 4096 };
    PAGE_BYTES.store(page, Ordering::Relaxed);
    page
}

/// Kernel id of the calling thread.
pub fn gettid() -> u32 {
    // SAFETY: S1: no arguments.
    unsafe { syscall(libc::SYS_gettid, [0; 6]) as u32 }
}

/// Id of the process.
pub fn getpid() -> u32 {
    // SAFETY: S1: no arguments.
    unsafe { syscall(libc::SYS_getpid, [0; 6]) as u32 }
}

/// Sleeps while `*word == expected`, until woken or `timeout_ns` (relative, `None` = no limit) has passed. May return
/// early for no reason.
pub fn futex_wait(word: &core::sync::atomic::AtomicU32, expected: u32, timeout_ns: Option<u64>) {
    let timeout = timeout_ns.map(|ns| libc::timespec {
        tv_sec: (ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (ns % 1_000_000_000) as i64,
    });
    let timeout_ptr = timeout.as_ref().map_or(core::ptr::null(), core::ptr::from_ref);
    let op = (libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG) as usize;
    // SAFETY: S1: the word is a live reference; the timeout is null or a timespec on this stack.
    let _ = unsafe {
        syscall(libc::SYS_futex, [for_kernel(word.as_ptr()), op, expected as usize, for_kernel(timeout_ptr), 0, 0])
    };
}

/// Wakes up to `count` sleepers on `word`.
pub fn futex_wake(word: &core::sync::atomic::AtomicU32, count: i32) {
    let op = (libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG) as usize;
    // SAFETY: S1: the word is a live reference; the kernel only uses its address.
    let _ = unsafe { syscall(libc::SYS_futex, [for_kernel(word.as_ptr()), op, count as usize, 0, 0, 0]) };
}

/// `CLOCK_MONOTONIC`, ns since boot.
pub fn clock_monotonic_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let out = for_kernel(&raw mut now);
    // SAFETY: S1: the kernel writes one timespec at the given place on this stack.
    let _ = unsafe { syscall(libc::SYS_clock_gettime, [libc::CLOCK_MONOTONIC as usize, out, 0, 0, 0, 0]) };
    (now.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(now.tv_nsec as u64)
}

/// `CLOCK_THREAD_CPUTIME_ID` of the calling thread, ns; `None` when the kernel does not say.
fn clock_thread_ns() -> Option<u64> {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let out = for_kernel(&raw mut now);
    // SAFETY: S1: the kernel writes one timespec at the given place on this stack.
    let ret = unsafe { syscall(libc::SYS_clock_gettime, [libc::CLOCK_THREAD_CPUTIME_ID as usize, out, 0, 0, 0, 0]) };
    result(ret).ok()?;
    Some((now.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(now.tv_nsec as u64))
}

/// `CLOCK_MONOTONIC` as it was at most about a millisecond ago, ns: for decisions that are made often and need no more.
///
/// Reads the time-stamp counter, and asks the kernel only when that has moved on.
pub fn clock_recent_ns() -> u64 {
    /// 2^21 ticks: 0.4 to 2 ms at 1 to 5 GHz.
    const STALE_TICKS: u64 = 1 << 21;
    static AT_TICKS: AtomicU64 = AtomicU64::new(0);
    static NOW_NS: AtomicU64 = AtomicU64::new(0);
    // SAFETY: the instruction reads a counter that every x86-64 processor has.
    let ticks = unsafe { core::arch::x86_64::_rdtsc() };
    // Relaxed: threads that race store times less than a call apart, and the maximum never goes back.
    if ticks.wrapping_sub(AT_TICKS.load(Ordering::Relaxed)) < STALE_TICKS {
        return NOW_NS.load(Ordering::Relaxed);
    }
    let now_ns = clock_monotonic_ns();
    AT_TICKS.store(ticks, Ordering::Relaxed);
    NOW_NS.fetch_max(now_ns, Ordering::Relaxed).max(now_ns)
}

/// Sleeps for about `ns`.
pub fn sleep_ns(ns: u64) {
    let span = libc::timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as i64 };
    let span_ptr = for_kernel(&raw const span);
    // SAFETY: S1: the kernel reads one timespec on this stack; no remainder is asked for.
    let _ = unsafe { syscall(libc::SYS_nanosleep, [span_ptr, 0, 0, 0, 0, 0]) };
}

fn open(path: &CStr, flags: i32) -> Result<i32, Errno> {
    // SAFETY: S1: the path is NUL-terminated.
    let ret = unsafe {
        syscall(libc::SYS_openat, [libc::AT_FDCWD as usize, for_kernel(path.as_ptr()), flags as usize, 0o644, 0, 0])
    };
    result(ret).map(|fd| fd as i32)
}

/// Opens a file for reading, close-on-exec.
pub fn open_read(path: &CStr) -> Result<i32, Errno> {
    open(path, libc::O_RDONLY | libc::O_CLOEXEC)
}

/// Creates or empties a file for writing, mode 0644 less the umask, close-on-exec.
pub fn open_write(path: &CStr) -> Result<i32, Errno> {
    open(path, libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC | libc::O_CLOEXEC)
}

/// Reads up to `buf.len()` bytes; repeats on EINTR.
pub fn read(fd: i32, buf: &mut [u8]) -> Result<usize, Errno> {
    loop {
        // SAFETY: S1: the kernel writes at most `len` bytes into the buffer.
        let ret = unsafe { syscall(libc::SYS_read, [fd as usize, for_kernel(buf.as_mut_ptr()), buf.len(), 0, 0, 0]) };
        if ret != -(libc::EINTR as isize) {
            return result(ret);
        }
    }
}

/// Writes some of `buf`; repeats on EINTR.
pub fn write(fd: i32, buf: &[u8]) -> Result<usize, Errno> {
    loop {
        // SAFETY: S1: the kernel reads `len` bytes of the buffer.
        let ret = unsafe { syscall(libc::SYS_write, [fd as usize, for_kernel(buf.as_ptr()), buf.len(), 0, 0, 0]) };
        if ret != -(libc::EINTR as isize) {
            return result(ret);
        }
    }
}

/// Writes all of `buf`.
pub fn write_all(fd: i32, mut buf: &[u8]) -> Result<(), Errno> {
    while !buf.is_empty() {
        match write(fd, buf)? {
            0 => return Err(Errno(libc::EIO)),
            n => buf = buf.get(n..).unwrap_or(&[]),
        }
    }
    Ok(())
}

/// Closes a descriptor.
pub fn close(fd: i32) {
    // SAFETY: S1: a descriptor that this code opened.
    let _ = unsafe { syscall(libc::SYS_close, [fd as usize, 0, 0, 0, 0, 0]) };
}

/// Target text of a symbolic link; the part of `buf` that was filled.
pub fn read_link<'a>(path: &CStr, buf: &'a mut [u8]) -> Result<&'a [u8], Errno> {
    let (out, len) = (for_kernel(buf.as_mut_ptr()), buf.len());
    // SAFETY: S1: the path is NUL-terminated; the kernel writes at most `len` bytes into the buffer.
    let ret = unsafe { syscall(libc::SYS_readlink, [for_kernel(path.as_ptr()), out, len, 0, 0, 0]) };
    result(ret).map(|n| buf.get(..n).unwrap_or(&[]))
}

/// Number of CPUs this thread may run on; at least 1.
pub fn cpus_allowed() -> u32 {
    let mut mask = [0u64; 128];
    let out = for_kernel(mask.as_mut_ptr());
    // SAFETY: S1: the kernel writes at most the given number of bytes into the mask.
    let ret = unsafe { syscall(libc::SYS_sched_getaffinity, [0, size_of_val(&mask), out, 0, 0, 0]) };
    match result(ret) {
        Ok(_) => mask.iter().map(|word| word.count_ones()).sum::<u32>().max(1),
        Err(_) => 1,
    }
}

/// CPUs that the control group's quota amounts to, rounded up; `None` without a quota.
pub fn cgroup_cpu_quota() -> Option<u32> {
    let mut buf = [0u8; 64];
    if let Some(text) = read_small(c"/sys/fs/cgroup/cpu.max", &mut buf) {
        let mut words = text.split(|byte| *byte == b' ' || *byte == b'\n');
        return quota_of(parse_dec(words.next()?)?, parse_dec(words.next()?)?);
    }
    let quota = parse_dec(read_small(c"/sys/fs/cgroup/cpu/cpu.cfs_quota_us", &mut buf)?)?;
    let mut buf = [0u8; 64];
    quota_of(quota, parse_dec(read_small(c"/sys/fs/cgroup/cpu/cpu.cfs_period_us", &mut buf)?)?)
}

fn quota_of(quota_us: u64, period_us: u64) -> Option<u32> {
    u32::try_from(quota_us.div_ceil(period_us.max(1))).ok()
}

/// Decimal number at the start of `text`; `None` for anything else ("max", "-1").
fn parse_dec(text: &[u8]) -> Option<u64> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if digits == 0 {
        return None;
    }
    text.get(..digits)?.iter().try_fold(0u64, |sum, digit| sum.checked_mul(10)?.checked_add(u64::from(digit - b'0')))
}

fn read_small<'a>(path: &CStr, buf: &'a mut [u8]) -> Option<&'a [u8]> {
    let fd = open_read(path).ok()?;
    let got = read(fd, buf);
    close(fd);
    buf.get(..got.ok()?)
}

/// Copies memory of this process without risk of a fault: the number of bytes that could be read at `src`.
pub fn copy_memory_of(pid: u32, src: usize, dst: &mut [u8]) -> usize {
    let local = libc::iovec { iov_base: dst.as_mut_ptr().cast(), iov_len: dst.len() };
    let remote = [src, dst.len()];
    let local_ptr = for_kernel(&raw const local);
    let remote_ptr = for_kernel(remote.as_ptr());
    // SAFETY: S1: the kernel writes at most `len` bytes into `dst`; it checks the other range itself.
    let ret = unsafe { syscall(libc::SYS_process_vm_readv, [pid as usize, local_ptr, 1, remote_ptr, 1, 0]) };
    result(ret).unwrap_or(0)
}

/// Pages that one question about what is resident covers.
const RESIDENT_PAGES: usize = 1024;

/// Of each page of a range, whether it is resident, in bit 0; `None` when the kernel does not say, or for more than
/// [`RESIDENT_PAGES`]. Touches nothing.
fn residency(addr: usize, bytes: usize, out: &mut [u8; RESIDENT_PAGES]) -> Option<&[u8]> {
    let pages = out.get_mut(..bytes.div_ceil(page_size()))?;
    // SAFETY: S1: the kernel writes one byte for each page into the buffer, and checks the address itself.
    let ret = unsafe { syscall(libc::SYS_mincore, [addr, bytes, for_kernel(pages.as_mut_ptr()), 0, 0, 0]) };
    result(ret).ok()?;
    Some(pages)
}

/// Bytes of the pages in a range that are resident; `None` when the kernel does not say, or for more than
/// [`RESIDENT_PAGES`]. Touches nothing.
pub fn resident_bytes(addr: usize, bytes: usize) -> Option<usize> {
    #[cfg(test)]
    match super::mock::resident() {
        super::mock::Resident::Truth => {}
        super::mock::Resident::Unknown => return None,
        super::mock::Resident::Bytes(bytes) => return Some(bytes),
    }
    let mut buffer = [0; RESIDENT_PAGES];
    let pages = residency(addr, bytes, &mut buffer)?;
    Some(pages.iter().filter(|page| **page & 1 != 0).count() * page_size())
}

/// Makes a range zero, writing what is resident, and giving back what is not: a page that the kernel has not brought in yet
/// may also lie in swap, so it is not left alone. Runs of fewer than [`ABSENT_PAGES_MIN`] that are not resident are written,
/// and so is all of it when the kernel does not say. Where less than one page in [`SPARSE_PART`] is resident, all is given back.
///
/// # Safety
/// S1: the range consists of whole pages obtained from [`reserve`], and belongs to the caller.
pub unsafe fn zero_resident(ptr: *mut u8, bytes: usize) {
    let page = page_size();
    let mut buffer = [0; RESIDENT_PAGES];
    let mut done = 0;
    while done < bytes {
        let piece = (bytes - done).min(RESIDENT_PAGES * page);
        let start = ptr.wrapping_add(done);
        let pages = residency(start.addr(), piece, &mut buffer).unwrap_or(&[]);
        let resident = pages.iter().filter(|page| **page & 1 != 0).count();
        // SAFETY: S1: the piece is part of the range.
        if resident < pages.len() / SPARSE_PART && unsafe { purge_forced(start, piece) } {
            done += piece;
            continue;
        }
        // Pages before `written` are zero.
        let mut written = 0;
        let mut at = 0;
        for run in pages.chunk_by(|a, b| a & 1 == b & 1) {
            let from = at * page;
            at += run.len();
            let absent = run.first().is_some_and(|page| page & 1 == 0) && run.len() >= ABSENT_PAGES_MIN;
            // SAFETY: S1: the run is part of the range.
            if absent && unsafe { purge_forced(start.wrapping_add(from), run.len() * page) } {
                // SAFETY: S1, likewise.
                unsafe { start.wrapping_add(written).write_bytes(0, from - written) };
                written = at * page;
            }
        }
        // SAFETY: S1, likewise: `written <= piece`, since the runs are those of the piece's pages.
        unsafe { start.wrapping_add(written).write_bytes(0, piece - written) };
        done += piece;
    }
}

/// Of memory of which less than this part is resident, most is likely to stay unused again: giving it back whole takes one call,
/// where each gap would take one.
const SPARSE_PART: usize = 4;

/// Shortest run of pages that are not resident which is left so: below, the call costs as much as what it spares.
const ABSENT_PAGES_MIN: usize = 8;

/// True when the page at `addr` is mapped in this process. Asks the kernel; touches nothing.
pub fn is_mapped(addr: usize) -> bool {
    let mut resident = [0u8; 1];
    let page = addr & !(page_size() - 1);
    // SAFETY: S1: the kernel writes one byte for the one page asked about, and checks the address itself.
    let ret = unsafe { syscall(libc::SYS_mincore, [page, 1, for_kernel(resident.as_mut_ptr()), 0, 0, 0]) };
    result(ret).is_ok()
}

/// Has every thread of the process, wherever it runs, pass a full memory barrier before this returns; false when the kernel
/// (before Linux 4.14) cannot.
pub fn barrier_in_all_threads() -> bool {
    let ask = |command: libc::c_int| {
        // SAFETY: S1: the call takes numbers only, and changes no memory of the process.
        let ret = unsafe { syscall(libc::SYS_membarrier, [command as usize, 0, 0, 0, 0, 0]) };
        result(ret).is_ok()
    };
    // A process has to say once that it will ask for this.
    ask(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED)
        || (ask(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) && ask(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED))
}

/// Ends the process by SIGABRT without running any handler of ours.
pub fn exit_group_abort() -> ! {
    // SAFETY: `abort` takes no arguments and does not return.
    unsafe { libc::abort() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserve_gives_zeroed_aligned_memory_and_purge_zeroes_it() {
        let bytes = 4 * page_size();
        let ptr = reserve(bytes, 1 << 22).expect("memory").as_ptr();
        assert_eq!(ptr.addr() % (1 << 22), 0);
        // SAFETY: the range was reserved above.
        unsafe { ptr.write(7) };
        // SAFETY: S1: whole pages from `reserve`.
        assert!(unsafe { purge_forced(ptr, bytes) });
        // SAFETY: the range is still reserved.
        assert_eq!(unsafe { ptr.read() }, 0);
        // SAFETY: S1: not used again.
        unsafe { release(ptr, bytes) };
    }

    #[test]
    fn zeroing_brings_nothing_in_that_was_not_resident() {
        let (page, pages) = (page_size(), 2 * RESIDENT_PAGES + 40);
        let ptr = reserve(pages * page, page).expect("memory").as_ptr();
        // SAFETY: S1: the range was just reserved. Huge pages would be resident as a whole.
        unsafe { advise_huge(ptr, pages * page, false) };
        let few = std::vec![0, 3, 9, 100, 1023, 1024, 1500, pages - 1];
        let many = (400..1023).chain(1400..pages).chain([0, 3, 9]).collect::<std::vec::Vec<_>>();
        let resident = || (0..pages).filter(|at| resident_bytes(ptr.addr() + at * page, page) == Some(page)).count();
        for (touched, refused) in [(&few, false), (&few, true), (&many, false), (&many, true)] {
            for at in touched {
                // SAFETY: inside the range.
                unsafe { ptr.wrapping_add(at * page + page - 1).write(7) };
            }
            assert_eq!(resident(), touched.len());
            super::super::mock::refuse_advice(refused);
            // SAFETY: S1: reserved above.
            unsafe { zero_resident(ptr, pages * page) };
            super::super::mock::refuse_advice(false);
            // Of memory that was hardly used, none stays; of other, short runs between touched pages are written, too. All of it
            // is when nothing can be given back.
            let wanted = match (refused, touched.len() == few.len()) {
                (true, _) => pages,
                (false, true) => 0,
                (false, false) => many.len() + 7 + 1,
            };
            assert_eq!(resident(), wanted);
            // SAFETY: inside the range.
            assert!((0..pages * page).all(|at| unsafe { ptr.wrapping_add(at).read() } == 0));
            // SAFETY: S1, as above: as it was at first.
            assert!(unsafe { purge_forced(ptr, pages * page) });
        }
        // SAFETY: S1: not used again.
        unsafe { release(ptr, pages * page) };
    }

    #[test]
    fn barriers_can_be_asked_for_again_and_again() {
        assert!(barrier_in_all_threads() && barrier_in_all_threads());
    }

    #[test]
    fn reserve_reports_what_the_kernel_refuses() {
        assert!(reserve(1 << 62, 4096).is_none());
        super::super::mock::fail_after(Some(0));
        assert!(reserve(4096, 4096).is_none());
        super::super::mock::fail_after(None);
    }

    #[test]
    fn mapped_pages_are_told_from_others() {
        let local = 0u8;
        assert!(is_mapped((&raw const local).addr()));
        assert!(!is_mapped(0) && !is_mapped(0x40) && !is_mapped(usize::MAX - 100));
    }

    #[test]
    fn quotas() {
        assert_eq!(parse_dec(b"max 100000"), None);
        assert_eq!(parse_dec(b"150000\n"), Some(150_000));
        assert_eq!((quota_of(150_000, 100_000), quota_of(50_000, 100_000)), (Some(2), Some(1)));
    }

    #[test]
    fn files_and_clock() {
        let fd = open_read(c"/proc/self/stat").expect("procfs");
        let mut buf = [0; 16];
        let n = read(fd, &mut buf).expect("readable");
        assert!(buf[..n].starts_with(std::format!("{} ", getpid()).as_bytes()));
        close(fd);
        assert_eq!(open_read(c"/proc/self/none"), Err(Errno(libc::ENOENT)));
        let before = clock_monotonic_ns();
        sleep_ns(1_000_000);
        assert!(clock_monotonic_ns() >= before + 1_000_000);
        let recent = clock_recent_ns();
        assert!(recent >= before && recent <= clock_monotonic_ns());
        sleep_ns(5_000_000);
        assert!(clock_recent_ns() >= before + 5_000_000);
        assert!(cpus_allowed() >= 1);
    }
}
