//! The four arguments of a control call and the only code of `ctl` that touches the caller's memory.
//!
//! ```text
//!  mallctl(name, oldp, oldlenp, newp, newlen)
//!                 │     │        │     └ bytes at newp; must equal the size of the type that the name takes
//!                 │     │        └ new value, null = none
//!                 │     └ in: room at oldp, out: bytes stored
//!                 └ where the present value goes, null = not wanted
//! ```
//!
//! Rules, each one function below:
//! - A value is stored only when both `oldp` and `oldlenp` are given. On a room of another size the smaller number of
//!   bytes is copied, that number is stored in `*oldlenp`, and the answer is EINVAL.
//! - A new value is taken only when `newp` is given, and only with the exact size, else EINVAL.
//! - EPERM answers a read-only name given `newp` or `newlen`, a write-only name given `oldp` or `oldlenp`, and a name
//!   that takes nothing given anything.
//!
//! The pointers may be unaligned and may overlap; values are copied byte by byte, never referenced. The caller of
//! [`Args::new`] vouches for them.
use core::ffi::{CStr, c_char, c_void};
use core::marker::PhantomData;
use core::ptr;

use crate::error::CtlError;

pub(super) const EPERM: CtlError = CtlError(libc::EPERM);
pub(super) const ENOENT: CtlError = CtlError(libc::ENOENT);
pub(super) const ENOMEM: CtlError = CtlError(libc::ENOMEM);
pub(super) const EAGAIN: CtlError = CtlError(libc::EAGAIN);
pub(super) const EFAULT: CtlError = CtlError(libc::EFAULT);
pub(super) const EINVAL: CtlError = CtlError(libc::EINVAL);

/// What a handler answers.
pub(super) type Answer = Result<(), CtlError>;

/// A value that crosses the C boundary.
///
/// # Safety
/// S1: every bit pattern of `Raw` is valid. S2: `Raw` has no padding.
pub(super) unsafe trait Plain: Copy {
    type Raw: Copy;
    fn to_raw(self) -> Self::Raw;
    fn from_raw(raw: Self::Raw) -> Self;
}

macro_rules! plain {
    ($($type:ty),*) => {$(
        // SAFETY: S1 and S2 hold for integers and pointers.
        unsafe impl Plain for $type {
            type Raw = $type;
            fn to_raw(self) -> $type {
                self
            }
            fn from_raw(raw: $type) -> $type {
                raw
            }
        }
    )*};
}

plain!(u32, u64, usize, isize, i64, *const c_char, *const c_void, *mut u64);

// SAFETY: S1 and S2 hold for a byte.
unsafe impl Plain for bool {
    type Raw = u8;
    fn to_raw(self) -> u8 {
        u8::from(self)
    }
    fn from_raw(raw: u8) -> bool {
        raw != 0
    }
}

/// The arguments of one call.
pub struct Args<'a> {
    old: *mut u8,
    old_len: *mut usize,
    new: *const u8,
    new_len: usize,
    /// The caller's memory is borrowed for the call.
    caller: PhantomData<&'a mut u8>,
}

impl Args<'_> {
    /// Takes the arguments as C passes them.
    ///
    /// # Safety
    /// For the life of the value: S1 `oldlenp` is null or can be read and written; S2 `oldp` is null, or `oldlenp` is,
    /// or `*oldlenp` bytes can be written there; S3 `newp` is null or `newlen` bytes can be read there, and where the
    /// name takes a string those bytes are a pointer that is null or points to NUL-terminated text.
    pub unsafe fn new(oldp: *mut c_void, oldlenp: *mut usize, newp: *const c_void, newlen: usize) -> Self {
        Args { old: oldp.cast(), old_len: oldlenp, new: newp.cast(), new_len: newlen, caller: PhantomData }
    }

    fn reads(&self) -> bool {
        !self.old.is_null() && !self.old_len.is_null()
    }

    /// True when a new value is given.
    pub(super) fn writes(&self) -> bool {
        !self.new.is_null()
    }

    fn room(&self) -> usize {
        if self.old_len.is_null() {
            return 0;
        }
        // SAFETY: not null, S1 of `new`.
        unsafe { self.old_len.read_unaligned() }
    }

    fn set_len(&self, len: usize) {
        if !self.old_len.is_null() {
            // SAFETY: not null, S1 of `new`.
            unsafe { self.old_len.write_unaligned(len) };
        }
    }

    /// Stores the present value.
    pub(super) fn read<T: Plain>(&self, value: T) -> Answer {
        if !self.reads() {
            return Ok(());
        }
        let raw = value.to_raw();
        let (room, size) = (self.room(), size_of::<T::Raw>());
        let len = room.min(size);
        // SAFETY: `len` bytes fit both: S2 of `new`, and the value's size; the value is a local.
        unsafe { ptr::copy_nonoverlapping((&raw const raw).cast::<u8>(), self.old, len) };
        if room == size {
            return Ok(());
        }
        self.set_len(len);
        Err(EINVAL)
    }

    /// The new value, `None` when none is given.
    pub(super) fn write<T: Plain>(&self) -> Result<Option<T>, CtlError> {
        if !self.writes() {
            return Ok(None);
        }
        if self.new_len != size_of::<T::Raw>() {
            return Err(EINVAL);
        }
        // SAFETY: S3 of `new` for the size just compared; `Plain` S1.
        let raw = unsafe { self.new.cast::<T::Raw>().read_unaligned() };
        Ok(Some(T::from_raw(raw)))
    }

    /// The new value; EINVAL when none is given.
    pub(super) fn assured_write<T: Plain>(&self) -> Result<T, CtlError> {
        self.write()?.ok_or(EINVAL)
    }

    /// The new text; `None` when no value is given and for a null pointer.
    pub(super) fn write_text(&self) -> Result<Option<&CStr>, CtlError> {
        let Some(text) = self.write::<*const c_char>()? else {
            return Ok(None);
        };
        if text.is_null() {
            return Ok(None);
        }
        // SAFETY: S3 of `new` for a name that takes a string.
        Ok(Some(unsafe { CStr::from_ptr(text) }))
    }

    /// For names that make something: no answer without room of the exact size.
    pub(super) fn assured_room<T: Plain>(&self) -> Answer {
        if self.reads() && self.room() == size_of::<T::Raw>() {
            return Ok(());
        }
        self.set_len(0);
        Err(EINVAL)
    }

    /// For read-only names.
    pub(super) fn readonly(&self) -> Answer {
        if self.writes() || self.new_len != 0 { Err(EPERM) } else { Ok(()) }
    }

    /// The whole of a read-only name.
    pub(super) fn fact<T: Plain>(&self, value: T) -> Answer {
        self.readonly()?;
        self.read(value)
    }

    /// The whole of a read-only name that gives a text.
    pub(super) fn text(&self, value: &'static CStr) -> Answer {
        self.fact(value.as_ptr())
    }

    /// For write-only names.
    pub(super) fn writeonly(&self) -> Answer {
        if self.old.is_null() && self.old_len.is_null() { Ok(()) } else { Err(EPERM) }
    }

    /// For names that take nothing.
    pub(super) fn neither(&self) -> Answer {
        self.readonly()?;
        self.writeonly()
    }

    /// For names that cannot be read and written in one call.
    pub(super) fn read_xor_write(&self) -> Answer {
        if self.reads() { self.readonly() } else { Ok(()) }
    }
}

/// Arguments that ask for nothing.
#[cfg(test)]
pub(super) fn nothing() -> Args<'static> {
    Args { old: ptr::null_mut(), old_len: ptr::null_mut(), new: ptr::null(), new_len: 0, caller: PhantomData }
}

/// Arguments that ask for a value of eight bytes.
#[cfg(test)]
pub(super) fn reading<'a>(value: &'a mut u64, len: &'a mut usize) -> Args<'a> {
    *len = 8;
    Args { old: (&raw mut *value).cast(), old_len: len, new: ptr::null(), new_len: 0, caller: PhantomData }
}

#[expect(clippy::redundant_closure_for_method_calls, reason = "the methods are of one lifetime, a closure is of any")]
#[cfg(test)]
mod tests {
    use super::*;

    /// Runs `body` with arguments over `old` (room `room`) and `new`; the answer, `*oldlenp` after it.
    fn with(
        old: Option<&mut [u8]>,
        room: Option<usize>,
        new: Option<&[u8]>,
        body: impl FnOnce(&Args<'_>) -> Answer,
    ) -> (Answer, usize) {
        let mut len = room.unwrap_or(99);
        let oldp = old.map_or(ptr::null_mut(), |old| {
            assert!(len <= old.len());
            old.as_mut_ptr().cast()
        });
        let lenp = if room.is_some() { &raw mut len } else { ptr::null_mut() };
        let (newp, newlen) = new.map_or((ptr::null(), 0), |new| (new.as_ptr().cast(), new.len()));
        // SAFETY: S1, S2, S3 by the slices and the length checked above.
        let args = unsafe { Args::new(oldp, lenp, newp, newlen) };
        let answer = body(&args);
        (answer, len)
    }

    #[test]
    fn reading_copies_what_fits() {
        let value = 0x0807_0605_0403_0201_u64;
        for (room, answer, len) in [(8, Ok(()), 8), (16, Err(EINVAL), 8), (3, Err(EINVAL), 3), (0, Err(EINVAL), 0)] {
            let mut old = [0xee; 16];
            assert_eq!(with(Some(&mut old), Some(room), None, |args| args.read(value)), (answer, len), "room {room}");
            assert_eq!(old[..len], value.to_ne_bytes()[..len]);
            assert!(old[len..].iter().all(|byte| *byte == 0xee));
        }
        assert_eq!(with(None, Some(3), None, |args| args.read(value)), (Ok(()), 3));
        assert_eq!(with(Some(&mut [0; 99]), None, None, |args| args.read(value)), (Ok(()), 99));
    }

    #[test]
    fn writing_needs_the_exact_size() {
        for len in 0..10 {
            let new = [2; 10];
            let mut got = None;
            let (answer, _) = with(None, None, Some(&new[..len]), |args| {
                got = args.write::<u32>()?;
                Ok(())
            });
            if len == 4 {
                assert_eq!((answer, got), (Ok(()), Some(0x0202_0202)));
            } else {
                assert_eq!((answer, got), (Err(EINVAL), None));
            }
        }
        let (answer, _) = with(None, None, Some(&[2]), |args| {
            assert_eq!(args.write::<bool>(), Ok(Some(true)));
            Ok(())
        });
        assert_eq!(answer, Ok(()));
        assert_eq!(with(None, None, None, |args| args.assured_write::<u32>().map(|_| ())).0, Err(EINVAL));
    }

    #[test]
    fn permissions() {
        let mut old = [0; 8];
        assert_eq!(with(None, None, Some(&[1]), |args| args.readonly()).0, Err(EPERM));
        assert_eq!(with(Some(&mut old), Some(8), None, |args| args.readonly()).0, Ok(()));
        assert_eq!(with(Some(&mut old), Some(8), None, |args| args.writeonly()).0, Err(EPERM));
        assert_eq!(with(None, Some(8), None, |args| args.writeonly()).0, Err(EPERM));
        assert_eq!(with(None, None, Some(&[1]), |args| args.writeonly()).0, Ok(()));
        assert_eq!(with(None, None, None, |args| args.neither()).0, Ok(()));
        assert_eq!(with(None, Some(1), None, |args| args.neither()).0, Err(EPERM));
        assert_eq!(with(None, None, Some(&[]), |args| args.neither()).0, Err(EPERM));
        assert_eq!(with(Some(&mut old), Some(8), Some(&[1]), |args| args.read_xor_write()).0, Err(EPERM));
        assert_eq!(with(None, Some(8), Some(&[1]), |args| args.read_xor_write()).0, Ok(()));
        // A length without a pointer counts as writing for the permission, not as a value.
        // SAFETY: S1, S2, S3: all null.
        let args = unsafe { Args::new(ptr::null_mut(), ptr::null_mut(), ptr::null(), 1) };
        assert_eq!(args.readonly(), Err(EPERM));
        assert_eq!(args.write::<u32>(), Ok(None));
    }

    #[test]
    fn making_needs_room_of_the_exact_size() {
        let mut old = [0; 8];
        assert_eq!(with(Some(&mut old), Some(4), None, |args| args.assured_room::<u32>()), (Ok(()), 4));
        assert_eq!(with(Some(&mut old), Some(8), None, |args| args.assured_room::<u32>()), (Err(EINVAL), 0));
        assert_eq!(with(None, Some(4), None, |args| args.assured_room::<u32>()), (Err(EINVAL), 0));
        assert_eq!(with(Some(&mut [0; 99]), None, None, |args| args.assured_room::<u32>()), (Err(EINVAL), 99));
    }

    #[test]
    fn old_and_new_may_be_one_variable() {
        let mut word = 5_u64;
        let mut len = 8;
        let place = &raw mut word;
        // SAFETY: S1, S2, S3 by the two locals.
        let args = unsafe { Args::new(place.cast(), &raw mut len, place.cast_const().cast(), 8) };
        assert_eq!(args.write::<u64>(), Ok(Some(5)));
        assert_eq!(args.read(6_u64), Ok(()));
        assert_eq!(word, 6);
    }
}
