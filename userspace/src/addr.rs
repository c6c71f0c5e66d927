//! Addresses by what they are relative to. Mixing them does not compile.
//!
//! | type | counts from | example |
//! |---|---|---|
//! | [`Avma`] | 0 of the process's address space | a frame, a `/proc/PID/maps` line |
//! | [`Svma`] | 0 of the file's own address space, as its program headers say | a symbol's value |
//! | [`FileOffset`] | first byte of the file | what the kernel wants for a probe |
//!
//! `avma = svma + bias`, one bias per file and process; svma and file offset differ by a constant per program header.
#![forbid(unsafe_code)]

use std::fmt;

/// Actual address in a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Avma(pub u64);

/// Stated address in a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Svma(pub u64);

/// Bytes from the start of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileOffset(pub u64);

/// What to add to an address of a file to get the process's; wraps, since a file may be linked high and mapped low.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Bias(pub u64);

impl Svma {
    pub fn in_process(self, bias: Bias) -> Avma {
        Avma(self.0.wrapping_add(bias.0))
    }
}

impl Avma {
    /// The bias that puts `svma` here.
    pub fn bias_of(self, svma: Svma) -> Bias {
        Bias(self.0.wrapping_sub(svma.0))
    }
}

macro_rules! hexadecimal {
    ($($name:ident)*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:#x}", self.0)
            }
        }
    )*};
}

hexadecimal!(Avma Svma FileOffset);

#[cfg(test)]
mod tests {
    use super::{Avma, Svma};

    #[test]
    fn a_bias_may_be_negative() {
        let bias = Avma(0x1000).bias_of(Svma(0x40_0000));
        assert_eq!(Svma(0x40_0010).in_process(bias), Avma(0x1010));
    }
}
