//! An ELF image as it lies in another process's memory: enough of it to look up one exported symbol.
//!
//! Reading the image needs no file, so it works for deleted and replaced libraries, foreign mount namespaces and
//! without any privilege beyond reading the memory.
//!
//! ```text
//! mapping at file offset 0 ─► ELF header ─► program headers ─┬─ PT_LOAD ─► bias = avma - svma
//!                                                            └─ PT_DYNAMIC ─► GNU_HASH / HASH, SYMTAB, STRTAB
//! ```
//!
//! Every count and offset comes from the target and is bounded before use; a damaged image yields `None`.
#![forbid(unsafe_code)]

use super::memory::ProcessMemory;

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const DT_HASH: u64 = 4;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_GNU_HASH: u64 = 0x6fff_fef5;
/// Bytes of one program header, one dynamic entry, one symbol.
const PHDR: usize = 56;
const DYN: usize = 16;
const SYM: u64 = 24;
/// No linker writes more; a larger number is damage.
const MAX_PHDRS: usize = 256;
const MAX_DYN_BYTES: usize = 64 * 1024;
/// Longest hash chain followed, and most symbols scanned without a GNU table.
const MAX_CHAIN: u32 = 1 << 20;

/// The dynamic section of one loaded image.
#[derive(Clone, Copy, Debug)]
pub struct Image {
    memory: ProcessMemory,
    /// Added to an address of the file to get one of the process.
    pub bias: u64,
    symtab: u64,
    strtab: u64,
    gnu_hash: u64,
    hash: u64,
}

impl Image {
    /// Reads the headers of the image whose first page lies at `start`.
    pub fn read(memory: ProcessMemory, start: u64) -> Option<Image> {
        let mut header = [0; 64];
        memory.read(start, &mut header).ok()?;
        // Class 64 bit, little endian.
        if &header[..6] != b"\x7fELF\x02\x01" {
            return None;
        }
        let table = start.checked_add(u64_at(&header, 32)?)?;
        let (entry_size, count) = (u16_at(&header, 54)?, u16_at(&header, 56)?);
        if usize::from(entry_size) != PHDR || usize::from(count) > MAX_PHDRS {
            return None;
        }
        let mut headers = vec![0; PHDR * usize::from(count)];
        memory.read(table, &mut headers).ok()?;

        let mut bias = None;
        let mut dynamic = None;
        for entry in headers.chunks_exact(PHDR) {
            let (offset, vaddr, memsz) = (u64_at(entry, 8)?, u64_at(entry, 16)?, u64_at(entry, 40)?);
            match u32_at(entry, 0)? {
                PT_LOAD if offset == 0 => bias = Some(start.wrapping_sub(vaddr)),
                PT_DYNAMIC => dynamic = Some((vaddr, usize::try_from(memsz).ok()?)),
                _ => {}
            }
        }
        let bias = bias?;
        let (vaddr, size) = dynamic?;
        let mut entries = vec![0; size.min(MAX_DYN_BYTES)];
        memory.read(bias.wrapping_add(vaddr), &mut entries).ok()?;

        let mut image = Image { memory, bias, symtab: 0, strtab: 0, gnu_hash: 0, hash: 0 };
        for entry in entries.chunks_exact(DYN) {
            let (tag, value) = (u64_at(entry, 0)?, u64_at(entry, 8)?);
            // glibc rewrites these entries to addresses of the process, musl leaves them as in the file.
            let avma = if value < bias { value.wrapping_add(bias) } else { value };
            match tag {
                0 => break,
                DT_HASH => image.hash = avma,
                DT_STRTAB => image.strtab = avma,
                DT_SYMTAB => image.symtab = avma,
                DT_GNU_HASH => image.gnu_hash = avma,
                _ => {}
            }
        }
        (image.symtab != 0 && image.strtab != 0).then_some(image)
    }

    /// Address of an exported, defined symbol.
    pub fn symbol(&self, name: &str) -> Option<u64> {
        if self.gnu_hash != 0 { self.symbol_gnu(name) } else { self.symbol_scan(name) }
    }

    fn symbol_gnu(&self, name: &str) -> Option<u64> {
        let header: [u32; 4] = [0, 4, 8, 12].map(|at| self.memory.read_u32(self.gnu_hash + at).unwrap_or(0));
        let [buckets, first_symbol, bloom_words, _shift] = header;
        if buckets == 0 {
            return None;
        }
        let wanted = gnu_hash(name.as_bytes());
        let bucket_table = self.gnu_hash.checked_add(16 + u64::from(bloom_words) * 8)?;
        let mut index = self.memory.read_u32(bucket_table + u64::from(wanted % buckets) * 4).ok()?;
        if index < first_symbol {
            return None;
        }
        let chains = bucket_table + u64::from(buckets) * 4;
        for _ in 0..MAX_CHAIN {
            let hash = self.memory.read_u32(chains + u64::from(index - first_symbol) * 4).ok()?;
            if hash | 1 == wanted | 1
                && let Some(avma) = self.symbol_at(index, name)
            {
                return Some(avma);
            }
            if hash & 1 == 1 {
                return None;
            }
            index = index.checked_add(1)?;
        }
        None
    }

    fn symbol_scan(&self, name: &str) -> Option<u64> {
        if self.hash == 0 {
            return None;
        }
        let count = self.memory.read_u32(self.hash + 4).ok()?;
        (0..count.min(MAX_CHAIN)).find_map(|index| self.symbol_at(index, name))
    }

    /// Value of symbol `index` when it is defined and has this name.
    fn symbol_at(&self, index: u32, name: &str) -> Option<u64> {
        let mut symbol = [0; SYM as usize];
        self.memory.read(self.symtab.checked_add(u64::from(index) * SYM)?, &mut symbol).ok()?;
        let name_at = self.strtab.checked_add(u64::from(u32_at(&symbol, 0)?))?;
        let defined = u16_at(&symbol, 6)? != 0;
        let mut found = vec![0; name.len() + 1];
        self.memory.read(name_at, &mut found).ok()?;
        let same = found.strip_suffix(&[0]) == Some(name.as_bytes());
        (same && defined).then_some(self.bias.wrapping_add(u64_at(&symbol, 8)?))
    }
}

/// Hash of the `.gnu.hash` section.
fn gnu_hash(name: &[u8]) -> u32 {
    name.iter().fold(5381, |hash: u32, &byte| hash.wrapping_mul(33).wrapping_add(u32::from(byte)))
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::Image;
    use crate::proc::exe;
    use crate::remote::memory::ProcessMemory;

    #[test]
    fn finds_an_export_of_the_c_library_and_nothing_else() {
        let pid = std::process::id();
        let maps = exe::read_maps(pid).expect("own maps");
        let libc = maps.entries.iter().find(|m| m.path.ends_with(b"libc.so.6") && m.offset == 0).expect("libc mapped");
        let image = Image::read(ProcessMemory::new(pid), libc.start).expect("libc is an image");
        // `environ` is data and an alias of `__environ`: an address that the program can check against.
        assert_eq!(image.symbol("environ"), image.symbol("__environ"));
        let environ = image.symbol("environ").expect("exported");
        assert!(maps.find(environ).is_some_and(|m| m.perms.write));
        assert_eq!(image.symbol("jeprobe_no_such_symbol"), None);
        let heap = maps.entries.iter().find(|m| !m.is_file() && m.perms.read && m.perms.write).expect("some memory");
        assert!(Image::read(ProcessMemory::new(pid), heap.start).is_none());
    }
}
