//! Whether a profile may begin with some bytes: what is no profile and does not end, such as `/dev/zero` or a log that is
//! followed, must not be read until the memory is full.
#![forbid(unsafe_code)]

use prost::encoding::{WireType, decode_key, decode_varint, skip_field};

use super::{GZIP, InputError, cpu, is_message, read};

/// Fewer bytes say nothing, unless there are no more.
pub const DECISIVE: usize = 64;

/// The highest number of a field of a message, and those that are messages or texts.
const FIELDS: u32 = 15;
const LONG_FIELDS: [u32; 8] = [1, 2, 3, 4, 5, 6, 11, 13];
/// 16 MiB: of one field. The longest are texts.
const FIELD_BYTES: u64 = 16 << 20;

/// Fails when no profile begins like this, as reading all of it would. `bytes`: at least [`DECISIVE`] of them, or all.
pub fn check(bytes: &[u8]) -> Result<(), InputError> {
    let may_be = match bytes.first() {
        _ if bytes.starts_with(&GZIP) => true,
        Some(0) => cpu::has_header(bytes),
        _ if is_message(bytes) => has_fields(bytes),
        _ => has_title(bytes),
    };
    if may_be { Ok(()) } else { read(bytes).map(|_profile| ()) }
}

/// The first line that is no remark opens as one of the kinds of text; as far as it is there.
fn has_title(bytes: &[u8]) -> bool {
    let is_remark = |line: &&[u8]| line.starts_with(b"%") || line.is_empty();
    let line = bytes.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii).find(|line| !is_remark(line));
    let opens = |line: &[u8], title: &[u8]| line.iter().zip(title).all(|(a, b)| a == b);
    line.is_none_or(|line| opens(line, b"heap") || opens(line, b"---"))
}

/// The bytes are fields of a message, as far as they go.
fn has_fields(mut bytes: &[u8]) -> bool {
    while !bytes.is_empty() {
        let Ok((field, kind)) = decode_key(&mut bytes) else { return bytes.len() < 10 };
        let is_known = match kind {
            WireType::LengthDelimited => LONG_FIELDS.contains(&field),
            WireType::Varint => (7..=FIELDS).contains(&field) && field != 11,
            _ => false,
        };
        if !is_known {
            return false;
        }
        if kind == WireType::LengthDelimited {
            let Ok(length) = decode_varint(&mut bytes) else { return bytes.len() < 10 };
            let Some(rest) = usize::try_from(length).ok().and_then(|length| bytes.get(length..)) else {
                // Goes beyond what is there.
                return length < FIELD_BYTES;
            };
            bytes = rest;
        } else if skip_field(kind, field, &mut bytes, prost::encoding::DecodeContext::default()).is_err() {
            return bytes.len() < 10;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::{DECISIVE, check};

    #[test]
    fn profiles_may_go_on() {
        let pprof = [0x0a, 0x04, 0x08, 0x01, 0x10, 0x02, 0x12, 0x90, 0x40, 0x0a];
        let cpu: Vec<u8> = [0_u64, 3, 0, 10_000, 0, 1, 3].iter().flat_map(|word| word.to_le_bytes()).collect();
        for text in [
            &b"heap_v2/524288\n  t*: 1: 1 [0: 0]\n"[..],
            b"%warn a\n\n%warn b\nheap profile: 1: 1",
            b"--- symbol\nbinary=x\n",
            b"hea",
            b"",
            b"\x1f\x8b\x08",
            &pprof,
            &cpu,
        ] {
            assert!(check(text).is_ok(), "{text:?}");
        }
    }

    #[test]
    fn what_never_becomes_a_profile_is_refused_at_once() {
        let mut state = 7_u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as u8
        };
        let noise = || (0..4096).map(|_| random()).collect::<Vec<u8>>();
        let refused = std::iter::repeat_with(noise).take(1000).filter(|bytes| check(bytes).is_err()).count();
        assert!(refused > 975, "{refused} of 1000");
        for text in [vec![0; DECISIVE], b"y\n".repeat(40), b"Nov 30 16:00:00 host kernel: heap\n".repeat(3)] {
            assert!(check(&text).is_err(), "{text:?}");
        }
    }
}
