//! Names in a `jit-PID.dump` file, which node (`--perf-prof`), the JVM's agent for perf, PHP, wasmtime and others write.
//!
//! ```text
//!  header   magic 4 · version 4 · size of the header 4 · …
//!  record   id 4 · size with this 4 · time 8 · …               numbers in the byte order that the magic has
//!    load 0   pid 4 · tid 4 · vma 8 · address 8 · size 8 · index 8 · name, ended by 0 · the code
//!    move 1   pid 4 · tid 4 · vma 8 · old address 8 · new address 8 · size 8 · index 8
//!    others   passed over
//! ```
//!
//! The format is the kernel's: `tools/perf/Documentation/jitdump-specification.txt`. Code is skipped, not read. Of several
//! functions at an address the last one counts, as it replaced the others. What ends within a record ends there: the program
//! may be writing.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::io::{self, Read, Seek};

/// `JiTD` as a number of the writer's byte order.
const MAGIC: u32 = 0x4a69_5444;
const LOAD: u32 = 0;
const MOVE: u32 = 1;
/// Bytes of a record before what its kind has.
const PREFIX: u64 = 16;
/// Bytes of a load before its name, and of a move.
const LOAD_BYTES: u64 = 40;
const MOVE_BYTES: u64 = 48;
/// Longest name that is read.
const LONGEST_NAME: u64 = 4096;

/// Gives names to those of the ascending sites that have none. An error when it is no such file.
pub(super) fn read(file: &mut (impl Read + Seek), sites: &[u64], names: &mut [Option<String>]) -> io::Result<()> {
    let mut reader = Reader { file, is_swapped: false, taken: 0 };
    match reader.u32()? {
        MAGIC => {}
        magic if magic.swap_bytes() == MAGIC => reader.is_swapped = true,
        _ => return Err(io::Error::from(io::ErrorKind::InvalidData)),
    }
    let (_version, header_bytes) = (reader.u32()?, reader.u32()?);
    reader.skip_to(header_bytes.into())?;
    let mut found = vec![None; sites.len()];
    // Functions by their number, for those that are moved.
    let mut known: HashMap<u64, String> = HashMap::new();
    loop {
        reader.taken = 0;
        let Ok((id, bytes)) = reader.u32().and_then(|id| Ok((id, u64::from(reader.u32()?)))) else { break };
        let is_whole = bytes >= PREFIX && reader.record(id, bytes, sites, &mut found, &mut known).is_ok();
        if !is_whole || reader.skip_to(bytes).is_err() {
            break;
        }
    }
    for (name, found) in names.iter_mut().zip(found) {
        if name.is_none() {
            *name = found;
        }
    }
    Ok(())
}

struct Reader<'f, F> {
    file: &'f mut F,
    is_swapped: bool,
    /// Bytes of the header or record that were read.
    taken: u64,
}

impl<F: Read + Seek> Reader<'_, F> {
    fn record(
        &mut self,
        id: u32,
        bytes: u64,
        sites: &[u64],
        found: &mut [Option<String>],
        known: &mut HashMap<u64, String>,
    ) -> io::Result<()> {
        let room = bytes - PREFIX;
        match id {
            LOAD if room > LOAD_BYTES => {
                let [_time, _process, _vma, address, size, index] = self.numbers()?;
                let mut name = Vec::new();
                let most = (room - LOAD_BYTES).min(LONGEST_NAME);
                self.file.by_ref().take(most).read_to_end(&mut name)?;
                self.taken += name.len() as u64;
                if (name.len() as u64) < most && !name.contains(&0) {
                    return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
                }
                let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
                let name = String::from_utf8_lossy(name).into_owned();
                give(sites, found, (address, size), &name);
                known.insert(index, name);
            }
            MOVE if room >= MOVE_BYTES => {
                let [_time, _process, _vma, _old, address, size, index] = self.numbers()?;
                if let Some(name) = known.get(&index) {
                    give(sites, found, (address, size), name);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Passes over what is left of the header or record.
    fn skip_to(&mut self, bytes: u64) -> io::Result<()> {
        // Within its buffer, a buffered file reads nothing anew.
        self.file.seek_relative(bytes.saturating_sub(self.taken) as i64)
    }

    fn u32(&mut self) -> io::Result<u32> {
        let mut bytes = [0; 4];
        self.file.read_exact(&mut bytes)?;
        self.taken += 4;
        let number = u32::from_le_bytes(bytes);
        Ok(if self.is_swapped { number.swap_bytes() } else { number })
    }

    fn numbers<const N: usize>(&mut self) -> io::Result<[u64; N]> {
        let mut numbers = [0; N];
        for number in &mut numbers {
            let mut bytes = [0; 8];
            self.file.read_exact(&mut bytes)?;
            self.taken += 8;
            *number = u64::from_le_bytes(bytes);
            if self.is_swapped {
                *number = number.swap_bytes();
            }
        }
        Ok(numbers)
    }
}

/// Names the sites within a function.
fn give(sites: &[u64], found: &mut [Option<String>], (address, size): (u64, u64), name: &str) {
    let from = sites.partition_point(|site| *site < address);
    for (site, known) in sites[from..].iter().zip(&mut found[from..]) {
        if site - address >= size {
            break;
        }
        *known = Some(name.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::{LOAD, MAGIC, MOVE, read};
    use std::io::Cursor;

    fn record(id: u32, fields: &[u64], name: &[u8]) -> Vec<u8> {
        let mut body: Vec<u8> = [0].iter().chain(fields).flat_map(|field: &u64| field.to_le_bytes()).collect();
        body.extend_from_slice(name);
        let size = body.len() as u32 + 8;
        [&id.to_le_bytes()[..], &size.to_le_bytes(), &body].concat()
    }

    fn dump(records: &[Vec<u8>]) -> Vec<u8> {
        let mut header = [0_u8; 40];
        header[..4].copy_from_slice(&MAGIC.to_le_bytes());
        header[4..8].copy_from_slice(&1_u32.to_le_bytes());
        header[8..12].copy_from_slice(&40_u32.to_le_bytes());
        [&header[..], &records.concat()].concat()
    }

    fn named(bytes: &[u8], sites: &[u64]) -> Vec<String> {
        let mut names = vec![None; sites.len()];
        let _end = read(&mut Cursor::new(bytes), sites, &mut names);
        names.into_iter().map(Option::unwrap_or_default).collect()
    }

    #[test]
    fn functions_are_found_where_they_were_last() {
        let bytes = dump(&[
            record(LOAD, &[7, 0, 0x1000, 0x10, 1], b"first\0\x90\x90"),
            record(LOAD, &[7, 0, 0x2000, 0x10, 2], b"second\0\x90"),
            record(2, &[0x2000, 0], b"lines"),
            record(LOAD, &[7, 0, 0x1000, 0x8, 3], b"again\0"),
            record(MOVE, &[7, 0, 0x2000, 0x3000, 0x10, 2], b""),
        ]);
        let sites = [0xfff, 0x1000, 0x1008, 0x1010, 0x2001, 0x300f];
        assert_eq!(named(&bytes, &sites), ["", "again", "first", "", "second", "second"]);
    }

    #[test]
    fn what_is_cut_or_damaged_ends_where_it_does() {
        let bytes = dump(&[
            record(LOAD, &[7, 0, 0x1000, 0x10, 1], b"first\0"),
            record(LOAD, &[7, 0, 0x1000, u64::MAX, 2], b"second\0"),
        ]);
        for end in 0..bytes.len() {
            let name = &named(&bytes[..end], &[0x1001])[0];
            assert!(["", "first", "second"].contains(&name.as_str()), "{end}: {name}");
        }
        // A size of nothing does not hold the reader up.
        let mut stuck = bytes.clone();
        stuck[44..48].fill(0);
        assert_eq!(named(&stuck, &[0x1001]), [""]);
        assert!(read(&mut Cursor::new(b"heap_v2/1\n".repeat(9)), &[], &mut []).is_err());
    }

    #[test]
    fn the_other_byte_order_is_read_too() {
        let little = dump(&[record(LOAD, &[7, 0, 0x1000, 0x10, 1], b"")]);
        let mut big = little.clone();
        for word in big[..48].chunks_mut(4) {
            word.reverse();
        }
        for word in big[48..].chunks_mut(8) {
            word.reverse();
        }
        big.extend_from_slice(b"name\0");
        let size = u32::try_from(big.len() - 40).expect("small");
        big[44..48].copy_from_slice(&size.to_be_bytes());
        assert_eq!(named(&big, &[0x1001]), ["name"]);
    }
}
