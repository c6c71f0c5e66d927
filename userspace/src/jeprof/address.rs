//! Addresses of a profile: 64-bit numbers, or 32-bit ones when a CPU profile says so.
//!
//! Arithmetic wraps at the width. Text is lower-case hexadecimal with leading zeros, 16 or 8 digits, no prefix; this is
//! also the key under which a bare address is shown.
#![forbid(unsafe_code)]

/// How many hexadecimal digits an address has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Width {
    /// 32-bit CPU profiles.
    W8,
    #[default]
    W16,
}

impl Width {
    pub fn digits(self) -> usize {
        match self {
            Width::W8 => 8,
            Width::W16 => 16,
        }
    }

    fn wrap(self, address: u64) -> u64 {
        match self {
            Width::W8 => address & 0xffff_ffff,
            Width::W16 => address,
        }
    }

    pub fn add(self, a: u64, b: u64) -> u64 {
        self.wrap(a.wrapping_add(b))
    }

    pub fn sub(self, a: u64, b: u64) -> u64 {
        self.wrap(a.wrapping_sub(b))
    }

    pub fn inc(self, a: u64) -> u64 {
        self.add(a, 1)
    }

    /// 16 or 8 digits.
    pub fn text(self, address: u64) -> String {
        let mut text = String::with_capacity(self.digits());
        self.put(&mut text, address);
        text
    }

    /// Adds the same. Of more than 32 bits it has as many digits as it needs, whatever the width.
    pub fn put(self, into: &mut String, address: u64) {
        let needed = (u64::BITS - address.leading_zeros()).div_ceil(4) as usize;
        for at in (0..needed.max(self.digits())).rev() {
            let digit = (address >> (4 * at) & 0xf) as u8;
            into.push(char::from(digit + if digit < 10 { b'0' } else { b'a' - 10 }));
        }
    }
}

/// A hexadecimal number with or without `0x`; `None` for anything else and for more than 64 bits.
pub fn parse_hex(text: &[u8]) -> Option<u64> {
    let digits = text.strip_prefix(b"0x").or_else(|| text.strip_prefix(b"0X")).unwrap_or(text);
    if digits.is_empty() {
        return None;
    }
    let mut value = 0u64;
    for &byte in digits {
        let digit = (byte as char).to_digit(16)?;
        if value >> 60 != 0 {
            return None;
        }
        value = value << 4 | u64::from(digit);
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal_with_and_without_prefix() {
        assert_eq!(parse_hex(b"0x401175"), Some(0x40_1175));
        assert_eq!(parse_hex(b"00000000deadBEEF"), Some(0xdead_beef));
        assert_eq!(parse_hex(b"ffffffffffffffff"), Some(u64::MAX));
        assert_eq!(parse_hex(b"10000000000000000"), None);
        assert_eq!(parse_hex(b"000000000000000000001"), Some(1));
        assert_eq!(parse_hex(b"0x"), None);
        assert_eq!(parse_hex(b"xyz"), None);
    }

    #[test]
    fn arithmetic_wraps_at_the_width() {
        assert_eq!(Width::W8.sub(0, 1), 0xffff_ffff);
        assert_eq!(Width::W16.sub(0, 1), u64::MAX);
        assert_eq!(Width::W8.add(0xffff_ffff, 1), 0);
        assert_eq!(Width::W8.text(0x10), "00000010");
        for address in [0, 9, 0xa0, 0xffff_ffff, 0x1_0000_0000, 0x7f3a_0745_502a, u64::MAX] {
            assert_eq!(Width::W8.text(address), format!("{address:08x}"));
            assert_eq!(Width::W16.text(address), format!("{address:016x}"));
        }
    }
}
