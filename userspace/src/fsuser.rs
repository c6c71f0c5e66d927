//! Acts on files as another user: for paths that another process named, so that it cannot lend this one's rights.
//!
//! Only the calling thread's file-system ids change, and only until the guard goes. A process without the right to
//! change them keeps its own, which are no more than it has anyway.

use std::marker::PhantomData;

/// Ids of before, put back on drop. Bound to its thread, whose ids they are.
#[derive(Debug)]
pub struct FsUser {
    uid: i32,
    gid: i32,
    _thread: PhantomData<*const ()>,
}

impl FsUser {
    pub fn become_user(uid: u32, gid: u32) -> FsUser {
        // The group first: the right to change it may go with the user.
        // SAFETY: changes an attribute of this thread only.
        let gid = unsafe { libc::setfsgid(gid) };
        // SAFETY: as above.
        let uid = unsafe { libc::setfsuid(uid) };
        FsUser { uid, gid, _thread: PhantomData }
    }
}

impl Drop for FsUser {
    fn drop(&mut self) {
        // SAFETY: puts back what the same thread had.
        unsafe { libc::setfsuid(self.uid as u32) };
        // SAFETY: as above.
        unsafe { libc::setfsgid(self.gid as u32) };
    }
}
