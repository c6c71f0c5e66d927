//! Readers: bytes of a file to a [`crate::model::Profile`].
//!
//! - `tail`: what jeprobe adds after the list of mappings.
//! - `lines`: what the readers of text share.
//! - `blocks`, `ahead`: large text profiles, parsed on all processors.
//! - `counts`, `heap_v2`: text profiles of jemalloc, gperftools and jeprobe.
//! - `go`: names that Go writes below its stacks.
//! - `contention`, `cpu`: waiting for locks and processor time, as gperftools records them.
//! - `symbolized`: the same with names before it.
//! - `pprof`: pprof's protobuf.
//! - `beginning`: whether a profile may begin with some bytes.
//!
//! [`read`] tells them apart by their first bytes; gzip is unpacked before, whatever is inside.
#![forbid(unsafe_code)]

mod ahead;
pub mod beginning;
pub(crate) mod blocks;
pub mod contention;
mod counts;
pub mod cpu;
mod go;
pub mod heap_v2;
pub mod lines;
pub mod pprof;
pub mod symbolized;
mod tail;

use std::io::Read as _;

use flate2::read::MultiGzDecoder;
use prost::Message as _;
use thiserror::Error;

use crate::model::Profile;
use crate::proto::otlp::ProfilesData;

/// An unpacked file may be this much, and this many times its packed size. Profiles pack to a tenth; one that grows a
/// thousandfold is made to fill memory.
const UNPACKED_BYTES: u64 = 256 << 20;
const UNPACKED_RATIO: u64 = 100;
/// First bytes of what is gzipped.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Why a file could not be read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum InputError {
    #[error(transparent)]
    Text(#[from] lines::ReadError),
    #[error(transparent)]
    Pprof(#[from] pprof::PprofError),
    #[error("this is OpenTelemetry's form (OTLP), which is written and not read")]
    Otlp,
    #[error("the gzip data cannot be unpacked")]
    Unpack(#[source] std::io::Error),
    #[error("the gzip data unpacks to more than {0} bytes")]
    TooLarge(u64),
    #[error("the gzip data unpacks to gzip data")]
    PackedTwice,
}

impl InputError {
    /// What the user can do.
    pub fn hint(&self) -> Option<String> {
        match self {
            InputError::Text(error) => error.hint(),
            InputError::Pprof(_) | InputError::Unpack(_) => {
                Some("take the profile again, or download it again: it may have been cut short".into())
            }
            InputError::Otlp => {
                Some("read the heap file or .pb.gz that it was made of, or have it written as .pb.gz".into())
            }
            InputError::PackedTwice => Some("unpack it once: gunzip FILE.gz".into()),
            InputError::TooLarge(_) => Some("if it is a profile all the same, unpack it first: gunzip FILE.gz".into()),
        }
    }
}

/// Reads a profile in any of the formats.
pub fn read(bytes: &[u8]) -> Result<Profile, InputError> {
    read_releasing(bytes, &|_| {})
}

/// The same of a file that is mapped: `release` gets each part of `bytes` that was read and is not looked at again, but to
/// tell what is wrong with it.
pub fn read_releasing(bytes: &[u8], release: &dyn Fn(&[u8])) -> Result<Profile, InputError> {
    if bytes.starts_with(&GZIP) {
        let bytes = gunzip(bytes)?;
        return if bytes.starts_with(&GZIP) { Err(InputError::PackedTwice) } else { unpacked(&bytes, &|_| {}) };
    }
    unpacked(bytes, release)
}

fn unpacked(bytes: &[u8], release: &dyn Fn(&[u8])) -> Result<Profile, InputError> {
    match bytes.first() {
        Some(0) => Ok(cpu::read(bytes)?),
        _ if is_message(bytes) => {
            pprof::read(bytes).map_err(|error| if is_otlp(bytes) { InputError::Otlp } else { error.into() })
        }
        _ => Ok(symbolized::read_releasing(bytes, release)?),
    }
}

/// The fields of a message may come in any order, and the keys of some are letters; but none is far from a byte that no text
/// has. ELF files begin with DEL.
fn is_message(bytes: &[u8]) -> bool {
    const TEXTS: [&[u8]; 3] = [b"heap", b"---", b"%"];
    let Some(first) = bytes.first().filter(|first| (1..0x7f).contains(*first)) else { return false };
    let is_control = |byte: &u8| *byte < b' ' && !byte.is_ascii_whitespace();
    let is_text = TEXTS.iter().any(|text| bytes.starts_with(text)) || !bytes.iter().take(64).any(is_control);
    *first < b' ' || !is_text
}

/// Its first fields have the numbers of pprof's first ones, but other contents.
fn is_otlp(bytes: &[u8]) -> bool {
    ProfilesData::decode(bytes).is_ok_and(|data| data.dictionary.is_some())
}

fn gunzip(packed: &[u8]) -> Result<Vec<u8>, InputError> {
    let most = UNPACKED_BYTES.max(UNPACKED_RATIO * packed.len() as u64);
    let mut bytes = Vec::new();
    MultiGzDecoder::new(packed).take(most + 1).read_to_end(&mut bytes).map_err(InputError::Unpack)?;
    if bytes.len() as u64 > most {
        return Err(InputError::TooLarge(most));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::read;
    use crate::proto::pprof::{Profile, ValueType};
    use prost::Message as _;

    /// As Go's runtime writes them: the time, the period, then the rest.
    #[test]
    fn the_fields_of_a_message_come_in_any_order() {
        let kind = ValueType { kind: 1, unit: 2 };
        let first = Profile { period_type: Some(kind), period: 512, ..Profile::default() };
        let strings = ["", "space", "bytes", "inuse_space"].map(str::to_owned).to_vec();
        let rest =
            Profile { sample_type: vec![ValueType { kind: 3, unit: 2 }], string_table: strings, ..Profile::default() };
        let time = [0x48, 0x80, 0xd0, 0xf2, 0xb5, 0xa5, 0xd3, 0xf1, 0xaf, 0x17];
        let (first, rest) = (first.encode_to_vec(), rest.encode_to_vec());
        for bytes in [[first.as_slice(), &rest].concat(), [&time, first.as_slice(), &rest].concat()] {
            assert_eq!(read(&bytes).expect("a message").interval().0, 512);
        }
    }

    #[test]
    fn damaged_text_stays_text() {
        let error = read(b"heap_v2/524288\n  t*: 1: \x01 [0: 0]\n").expect_err("damaged").to_string();
        assert!(error.contains("line 2"), "{error}");
    }
}
