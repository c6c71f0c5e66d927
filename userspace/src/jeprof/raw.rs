//! `--raw`: names and profile in one file that is read without the program.
//!
//! Names stand sorted by address; the original prints them in the order of its hash table, and can only write profiles
//! that it fetched itself.
#![forbid(unsafe_code)]

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use super::address::Width;
use super::stop::{Result, Stop, reason};
use super::symbols::Symbols;
use super::values::Kind;

/// Writes the names, then the one profile as it is.
pub fn write(
    out: &mut impl Write,
    symbols: &Symbols,
    width: Width,
    program: &str,
    kind: Kind,
    files: &[impl AsRef<Path>],
) -> Result<()> {
    writeln!(out, "--- symbol\nbinary={program}")?;
    for (address, names) in symbols.sorted() {
        let names: Vec<_> = names.iter().map(|name| name.full.text()).collect();
        writeln!(out, "0x{} {}", width.text(address), names.join("--"))?;
    }
    let marker = match kind {
        Kind::Heap => "heap",
        Kind::Growth => "growth",
        Kind::Contention => "contention",
        Kind::Cpu | Kind::Unknown => "profile",
    };
    writeln!(out, "---\n--- {marker}")?;
    let [file] = files else {
        out.flush()?;
        return Err(Stop::error(format!(
            "--raw writes one profile, not {}: what stands above are the names alone\n",
            files.len()
        )));
    };
    let file = file.as_ref();
    let failed = |error: &io::Error| Stop::error(format!("{}: {}\n", file.display(), reason(error)));
    let mut input = File::open(file).map_err(|error| failed(&error))?;
    io::copy(&mut input, out)?;
    Ok(())
}
