//! The symbol table of functions that are not exported, as Fedora packs it into programs (`.gnu_debugdata`): an ELF file without
//! code, compressed by xz.
#![forbid(unsafe_code)]

use std::io::{self, Write};

use super::bytes::Bytes;
use super::elf::Elf;

/// Bytes that the table may have when it is unpacked.
const MOST_BYTES: usize = 256 << 20;

/// The packed file; `None` when there is none or it is damaged.
pub(super) fn unpack(elf: &Elf) -> Option<Elf> {
    let mut packed = elf.stored(elf.section(".gnu_debugdata")?);
    let mut unpacked = Limited(Vec::new());
    lzma_rs::xz_decompress(&mut packed, &mut unpacked).ok()?;
    Elf::read(&elf.path, Bytes::Unpacked(unpacked.0)).ok()
}

/// Takes so many bytes and no more.
struct Limited(Vec<u8>);

impl Write for Limited {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > MOST_BYTES {
            return Err(io::Error::from(io::ErrorKind::FileTooLarge));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
