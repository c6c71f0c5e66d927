//! Files as the recorder needs them: read-only mappings of ELF files, file identity, removal of a broken dump.
//!
//! Same rules as the rest of `sys`: direct system calls, no `errno`, no allocation.

use core::ffi::CStr;
use core::ptr::NonNull;

use super::linux::{for_kernel, mmap, result, syscall};
use super::{Errno, release};

/// What identifies an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileId {
    pub(crate) device: u64,
    pub(crate) inode: u64,
    pub(crate) size_bytes: u64,
    pub(crate) regular: bool,
}

/// Identity and size of an open file.
pub(crate) fn file_id(fd: i32) -> Result<FileId, Errno> {
    let mut stat = core::mem::MaybeUninit::<libc::stat>::zeroed();
    let out = for_kernel(stat.as_mut_ptr());
    // SAFETY: S1: the kernel writes one stat structure at the given place on this stack.
    result(unsafe { syscall(libc::SYS_fstat, [fd as usize, out, 0, 0, 0, 0]) })?;
    // SAFETY: all of its fields are integers, and it was zeroed.
    let stat = unsafe { stat.assume_init() };
    Ok(FileId {
        device: stat.st_dev,
        inode: stat.st_ino,
        size_bytes: stat.st_size as u64,
        regular: stat.st_mode & libc::S_IFMT == libc::S_IFREG,
    })
}

/// A read-only mapping of a part of a file, unmapped when dropped. Pages beyond the file's end fault, so the caller maps
/// only what the file's size covers.
///
/// Shared, not private: the kernel puts the breakpoints of an attached loader into every private mapping of the probed
/// page, this one of our own file included, raises the semaphores for it, and never lowers them when it is unmapped.
pub(crate) struct FileMap {
    ptr: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping is read-only and lives as long as the value.
unsafe impl Send for FileMap {}
// SAFETY: as above.
unsafe impl Sync for FileMap {}

impl FileMap {
    /// Maps `bytes` from `offset` (a multiple of the page size).
    pub(crate) fn new(fd: i32, offset: u64, bytes: usize) -> Option<FileMap> {
        if bytes == 0 {
            return None;
        }
        let ptr = mmap(bytes, libc::PROT_READ, libc::MAP_SHARED, fd, offset)?;
        Some(FileMap { ptr: NonNull::new(ptr)?, bytes })
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the range is mapped readable for the life of `self`, and a file that others rewrite gives at worst
        // other bytes; every reader of these bytes checks what it finds.
        unsafe { core::slice::from_raw_parts(self.ptr.as_ptr(), self.bytes) }
    }

    /// Takes the pages out of the process's memory until they are read again: they stay in the page cache.
    pub(crate) fn let_go(&self) {
        let range = [self.ptr.as_ptr().addr(), self.bytes, libc::MADV_DONTNEED as usize, 0, 0, 0];
        // SAFETY: S1: the mapping is a shared one of a file, so reading it gives the same bytes afterwards. It is only a
        // hint: a failure changes nothing.
        let _ = unsafe { syscall(libc::SYS_madvise, range) };
    }
}

impl Drop for FileMap {
    fn drop(&mut self) {
        // SAFETY: S1: the whole mapping made in `new`; no slice of it outlives `self`.
        unsafe { release(self.ptr.as_ptr(), self.bytes) };
    }
}

/// Creates a file that must not exist yet, for writing; mode 0644 less the umask, close-on-exec.
pub(crate) fn create_new(path: &CStr) -> Result<i32, Errno> {
    let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL | libc::O_CLOEXEC;
    // SAFETY: S1: the path is NUL-terminated.
    let ret = unsafe {
        syscall(libc::SYS_openat, [libc::AT_FDCWD as usize, for_kernel(path.as_ptr()), flags as usize, 0o644, 0, 0])
    };
    result(ret).map(|fd| fd as i32)
}

/// Removes a name.
pub(crate) fn unlink(path: &CStr) -> Result<(), Errno> {
    // SAFETY: S1: the path is NUL-terminated.
    result(unsafe { syscall(libc::SYS_unlink, [for_kernel(path.as_ptr()), 0, 0, 0, 0, 0]) }).map(|_| ())
}

/// Cuts an open file to nothing.
pub(crate) fn truncate(fd: i32) -> Result<(), Errno> {
    // SAFETY: S1: the call takes integers only.
    result(unsafe { syscall(libc::SYS_ftruncate, [fd as usize, 0, 0, 0, 0, 0]) }).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::super::{close, open_read};
    use super::{FileMap, create_new, file_id, unlink};

    #[test]
    fn a_mapped_file_reads_as_its_bytes() {
        let fd = open_read(c"/proc/self/exe").expect("own program");
        let id = file_id(fd).expect("stat");
        assert!(id.regular && id.size_bytes > 4096);
        let map = FileMap::new(fd, 0, 4096).expect("mapping");
        close(fd);
        assert!(map.bytes().starts_with(b"\x7fELF"));
        assert!(FileMap::new(-1, 0, 4096).is_none());
    }

    #[test]
    fn a_new_file_is_made_once() {
        let path = std::format!("/tmp/jeprobe-file-{}\0", super::super::getpid());
        let path = core::ffi::CStr::from_bytes_with_nul(path.as_bytes()).expect("path");
        let fd = create_new(path).expect("created");
        close(fd);
        assert_eq!(create_new(path), Err(super::Errno(libc::EEXIST)));
        assert_eq!(unlink(path), Ok(()));
        assert_eq!(unlink(path), Err(super::Errno(libc::ENOENT)));
    }
}
