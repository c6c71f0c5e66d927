//! The flags word of `mallocx` and its relatives.
//!
//! | bits | field | encoding |
//! |---|---|---|
//! | 0–5 | log2 of the alignment | 0 = none |
//! | 6 | zero | 1 = zero fill |
//! | 8–19 | cache | id + 2; 0 = automatic, 1 = none |
//! | 20–31 | arena | index + 1; 0 = automatic |
#![forbid(unsafe_code)]

/// Which cache serves a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CacheChoice {
    /// The thread's own.
    #[default]
    Automatic,
    /// None.
    Bypass,
    /// An explicit one.
    Explicit(u32),
}

/// Where a block comes from or goes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    pub cache: CacheChoice,
    /// `None` = the thread's arena.
    pub arena: Option<u32>,
}

/// The flags word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flags(pub i32);

impl Flags {
    /// Alignment asked for; 1 = none.
    #[inline]
    pub fn align(self) -> usize {
        1 << (self.0 & 0x3f)
    }

    /// Zero fill asked for.
    #[inline]
    pub fn zero(self) -> bool {
        self.0 & 0x40 != 0
    }

    /// Cache and arena asked for.
    #[inline]
    pub fn place(self) -> Place {
        let word = self.0.cast_unsigned();
        let arena = (word >> 20).checked_sub(1);
        let cache = match (word >> 8) & 0xfff {
            // A named arena is served past the cache, which may hold blocks of others.
            0 if arena.is_some() => CacheChoice::Bypass,
            0 => CacheChoice::Automatic,
            1 => CacheChoice::Bypass,
            id => CacheChoice::Explicit(id - 2),
        };
        Place { cache, arena }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_the_word() {
        let plain = Flags(0);
        assert_eq!((plain.align(), plain.zero(), plain.place()), (1, false, Place::default()));
        let all = Flags(0xc | 0x40 | (7 + 2) << 8 | (3 + 1) << 20);
        assert_eq!((all.align(), all.zero()), (4096, true));
        assert_eq!(all.place(), Place { cache: CacheChoice::Explicit(7), arena: Some(3) });
        assert_eq!(Flags(0x100).place().cache, CacheChoice::Bypass);
        let high = Flags(((4094u32 + 1) << 20).cast_signed());
        assert_eq!(high.place(), Place { cache: CacheChoice::Bypass, arena: Some(4094) });
    }
}
