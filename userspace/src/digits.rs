//! Numbers in the text of profiles, eight digits at a time.
//!
//! ```text
//! bytes  '7' 'f' '0' 'a' '2' ' ' '0' 'x'     one little-endian word
//! marks   ■   ■   ■   ■   ■   ·   ■   ·      hexadecimal digits; those before the first gap count
//! ```
//!
//! A profile of a million stacks holds some twenty million addresses: digit by digit they would be most of the time that
//! reading it takes.
#![forbid(unsafe_code)]

const fn all(byte: u8) -> u64 {
    byte as u64 * 0x0101_0101_0101_0101
}

/// The hexadecimal digits that `text` begins with, up to 16: their value and how many they are. Sixteen may be the
/// beginning of more.
pub fn hex(text: &[u8]) -> (u64, usize) {
    let (high, length) = eight(text);
    if length < 8 {
        return (high, length);
    }
    let (low, more) = eight(&text[8..]);
    (high << (4 * more) | low, 8 + more)
}

/// The same for up to 8.
fn eight(text: &[u8]) -> (u64, usize) {
    let mut bytes = [0; 8];
    match text.first_chunk() {
        Some(whole) => bytes = *whole,
        None => bytes[..text.len()].copy_from_slice(text),
    }
    let word = u64::from_le_bytes(bytes);
    // Without the top bit no sum below carries into the next byte.
    let low = word & all(0x7f);
    let letters = low | all(0x20);
    let digit = (low + all(0x80 - b'0')) & !(low + all(0x7f - b'9'));
    let letter = (letters + all(0x80 - b'a')) & !(letters + all(0x7f - b'f'));
    let is_hex = (digit | letter) & !word & all(0x80);
    let length = ((is_hex ^ all(0x80)).trailing_zeros() / 8) as usize;
    if length == 0 {
        return (0, 0);
    }
    let nibbles = (low & all(0x0f)) + ((letter & all(0x80)) >> 7) * 9;
    // The digits at the top, noughts before them.
    let nibbles = nibbles << (64 - 8 * length);
    let bytes = (nibbles << 4 | nibbles >> 8) & 0x00ff_00ff_00ff_00ff;
    let pairs = (bytes << 8 | bytes >> 16) & 0x0000_ffff_0000_ffff;
    ((pairs << 16 | pairs >> 32) & 0xffff_ffff, length)
}

#[cfg(test)]
mod tests {
    use super::hex;

    #[test]
    fn as_the_standard_library_reads_them() {
        for text in
            ["7f3a0745502a 0x", "0", "", "g", "ffffffffffffffff", "00000000DEADbeef", "12345678", "123456789\n", "fFg"]
        {
            let digits = text.bytes().take_while(u8::is_ascii_hexdigit).count();
            let value = u64::from_str_radix(&text[..digits], 16).unwrap_or(0);
            assert_eq!(hex(text.as_bytes()), (value, digits), "{text:?}");
        }
        assert_eq!(hex(b"00000000000000001"), (0, 16), "no more than sixteen");
    }

    #[test]
    fn every_byte_is_told_apart_wherever_it_stands() {
        for byte in 0..=u8::MAX {
            for at in 0..8 {
                let mut text = *b"1aF09bcd";
                text[at] = byte;
                let expected = if byte.is_ascii_hexdigit() { 8 } else { at };
                let (value, length) = hex(&text);
                assert_eq!(length, expected, "{byte} at {at}");
                let digits = String::from_utf8(text[..length].to_vec()).expect("ASCII");
                assert_eq!(value, u64::from_str_radix(&digits, 16).unwrap_or(0), "{digits}");
            }
        }
    }
}
