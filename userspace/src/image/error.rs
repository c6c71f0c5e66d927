//! Why an image cannot be read.
#![forbid(unsafe_code)]

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// What failed on which file.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    #[error("cannot open {path}: {source}", path = path.display())]
    Open { path: PathBuf, source: io::Error },
    #[error("{path}: not an ELF file of 64 bits, little-endian: {reason}", path = path.display())]
    NotElf { path: PathBuf, reason: String },
    #[error("{path}: machine {machine}: only x86-64 code can be disassembled", path = path.display())]
    Machine { path: PathBuf, machine: u16 },
}
