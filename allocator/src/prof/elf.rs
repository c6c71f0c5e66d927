//! The few facts of an ELF file that unwinding needs: load segments, the place of the unwind tables, the build-id.
//! Pure: bytes in, numbers out; nothing in the bytes is believed.
#![forbid(unsafe_code)]

/// Build-id bytes kept; SHA-1's 20 are the usual length.
pub(crate) const BUILD_ID_BYTES: usize = 32;

const PT_LOAD: u32 = 1;
const PT_NOTE: u32 = 4;
const PT_GNU_EH_FRAME: u32 = 0x6474_e550;
const PF_X: u32 = 1;
const NT_GNU_BUILD_ID: u32 = 3;
const PHDR_BYTES: usize = 56;
const SHDR_BYTES: usize = 64;

/// Headers of a 64-bit little-endian file.
pub(crate) struct Elf<'a> {
    file: &'a [u8],
    headers: &'a [u8],
}

/// A program header. `offset`: bytes into the file; `vaddr`: address as in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    kind: u32,
    flags: u32,
    pub(crate) offset: u64,
    pub(crate) vaddr: u64,
    pub(crate) file_bytes: u64,
}

/// Address ranges (as in the file) of the unwind tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UnwindTables {
    pub(crate) header: (u64, u64),
    /// From `.eh_frame`'s start to the end of its segment: its own end is not recorded, and the index never leads past
    /// it.
    pub(crate) frames: (u64, u64),
}

impl<'a> Elf<'a> {
    /// `bytes`: the beginning of the file, with all program headers.
    pub(crate) fn parse(bytes: &'a [u8]) -> Option<Elf<'a>> {
        if !bytes.starts_with(b"\x7fELF\x02\x01") {
            return None;
        }
        let start = u64_at(bytes, 32)? as usize;
        let size = u16_at(bytes, 54)? as usize;
        let count = u16_at(bytes, 56)? as usize;
        if size != PHDR_BYTES {
            return None;
        }
        let headers = bytes.get(start..start.checked_add(count * PHDR_BYTES)?)?;
        Some(Elf { file: bytes, headers })
    }

    fn segments(&self) -> impl Iterator<Item = Segment> {
        self.headers.chunks_exact(PHDR_BYTES).filter_map(|header| {
            Some(Segment {
                kind: u32_at(header, 0)?,
                flags: u32_at(header, 4)?,
                offset: u64_at(header, 8)?,
                vaddr: u64_at(header, 16)?,
                file_bytes: u64_at(header, 32)?,
            })
        })
    }

    /// What to add to an address of the file to get the address in memory, for the executable mapping of file offset
    /// `offset` at `start`.
    pub(crate) fn bias(&self, start: u64, offset: u64, page: u64) -> Option<u64> {
        self.segments()
            .find(|s| {
                let first = s.offset & !(page - 1);
                s.kind == PT_LOAD
                    && s.flags & PF_X != 0
                    && (first..s.offset.saturating_add(s.file_bytes)).contains(&offset)
            })
            .map(|s| start.wrapping_sub(s.vaddr.wrapping_sub(s.offset).wrapping_add(offset)))
    }

    /// Lowest address of the file, rounded down to a page.
    pub(crate) fn base(&self, page: u64) -> u64 {
        self.segments().filter(|s| s.kind == PT_LOAD).map(|s| s.vaddr & !(page - 1)).min().unwrap_or(0)
    }

    /// The load segment that holds an address of the file.
    pub(crate) fn load_of(&self, vaddr: u64) -> Option<Segment> {
        self.segments().find(|s| s.kind == PT_LOAD && (s.vaddr..s.vaddr.saturating_add(s.file_bytes)).contains(&vaddr))
    }

    /// The `.eh_frame_hdr` segment.
    pub(crate) fn unwind_header(&self) -> Option<Segment> {
        self.segments().find(|s| s.kind == PT_GNU_EH_FRAME)
    }

    /// Places of the unwind tables; `header` is the content of [`Elf::unwind_header`].
    pub(crate) fn unwind_tables(&self, header: &[u8]) -> Option<UnwindTables> {
        let segment = self.unwind_header()?;
        let frames = eh_frame_address(header, segment.vaddr)?;
        let load = self.load_of(frames)?;
        Some(UnwindTables {
            header: (segment.vaddr, segment.vaddr.checked_add(segment.file_bytes)?),
            frames: (frames, load.vaddr.checked_add(load.file_bytes)?),
        })
    }

    /// Address range (as in the file) of the section `.eh_frame`, for files without `.eh_frame_hdr`: static ones made
    /// by gcc. Needs the whole file.
    pub(crate) fn eh_frame_section(&self) -> Option<(u64, u64)> {
        let start = usize::try_from(u64_at(self.file, 40)?).ok()?;
        let count = u16_at(self.file, 60)? as usize;
        let names = u16_at(self.file, 62)? as usize;
        if u16_at(self.file, 58)? as usize != SHDR_BYTES {
            return None;
        }
        let sections = self.file.get(start..start.checked_add(count * SHDR_BYTES)?)?;
        let mut sections = sections.chunks_exact(SHDR_BYTES);
        let strings = sections.clone().nth(names)?;
        let strings = self.file.get(u64_at(strings, 24)? as usize..)?;
        let section = sections.find(|section| {
            let name = u32_at(section, 0).and_then(|at| strings.get(at as usize..));
            name.is_some_and(|name| name.starts_with(b".eh_frame\0"))
        })?;
        let addr = u64_at(section, 16)?;
        Some((addr, addr.checked_add(u64_at(section, 32)?)?))
    }

    /// Note segments.
    pub(crate) fn notes(&self) -> impl Iterator<Item = Segment> {
        self.segments().filter(|s| s.kind == PT_NOTE)
    }
}

/// The address of `.eh_frame` that `.eh_frame_hdr` at `vaddr` names. Linkers use four-byte forms.
fn eh_frame_address(header: &[u8], vaddr: u64) -> Option<u64> {
    if header.first() != Some(&1) {
        return None;
    }
    let encoding = *header.get(1)?;
    let word = u32_at(header, 4)?;
    let value = match encoding & 0x0f {
        0x03 => u64::from(word),
        0x0b => i64::from(word.cast_signed()).cast_unsigned(),
        _ => return None,
    };
    match encoding & 0xf0 {
        0x00 => Some(value),
        0x10 => Some(value.wrapping_add(vaddr + 4)),
        0x30 => Some(value.wrapping_add(vaddr)),
        _ => None,
    }
}

/// The GNU build-id in a note segment's bytes.
pub(crate) fn build_id(mut notes: &[u8]) -> Option<&[u8]> {
    loop {
        let name_bytes = u32_at(notes, 0)? as usize;
        let desc_bytes = u32_at(notes, 4)? as usize;
        let kind = u32_at(notes, 8)?;
        let desc_at = 12_usize.checked_add(name_bytes.checked_next_multiple_of(4)?)?;
        let desc_end = desc_at.checked_add(desc_bytes)?;
        let desc = notes.get(desc_at..desc_end)?;
        if kind == NT_GNU_BUILD_ID && notes.get(12..16) == Some(b"GNU\0") && desc_bytes <= BUILD_ID_BYTES {
            return Some(desc);
        }
        notes = notes.get(desc_end.checked_next_multiple_of(4)?..)?;
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn own_file() -> Vec<u8> {
        std::fs::read("/proc/self/exe").expect("own program")
    }

    #[test]
    fn the_own_program_has_tables_and_a_code_segment() {
        let bytes = own_file();
        let elf = Elf::parse(&bytes).expect("ELF");
        let header = elf.unwind_header().expect("eh_frame_hdr");
        let content = &bytes[header.offset as usize..(header.offset + header.file_bytes) as usize];
        let tables = elf.unwind_tables(content).expect("tables");
        let load = elf.load_of(tables.frames.0).expect("segment of the frames");
        assert!(tables.frames.1 <= load.vaddr + load.file_bytes);
        // The first entry of .eh_frame is a CIE: a length, then the id 0.
        let at = (tables.frames.0 - load.vaddr + load.offset) as usize;
        assert_eq!(&bytes[at + 4..at + 8], [0; 4]);
        let code = elf.segments().find(|s| s.kind == PT_LOAD && s.flags & PF_X != 0).expect("code");
        assert_eq!(elf.bias(0x5000_0000, code.offset & !4095, 4096), Some(0x5000_0000 - (code.vaddr & !4095)));
        assert_eq!(elf.bias(0x5000_0000, 1 << 40, 4096), None);
        // The section begins where the header says, and ends inside the segment.
        let section = elf.eh_frame_section().expect("section");
        assert_eq!(section.0, tables.frames.0);
        assert!(section.1 <= tables.frames.1);
    }

    #[test]
    fn damage_gives_nothing() {
        let mut bytes = own_file();
        bytes.truncate(4096);
        assert!(Elf::parse(&bytes[..60]).is_none());
        bytes[32..40].copy_from_slice(&u64::MAX.to_le_bytes());
        assert!(Elf::parse(&bytes).is_none());
        assert!(Elf::parse(b"#!/bin/sh").is_none());
        assert_eq!(eh_frame_address(&[1, 0xff, 3, 0x3b, 0, 0, 0, 0], 0), None);
        assert_eq!(eh_frame_address(&[1, 0x1b, 3, 0x3b, 0xfc, 0xff, 0xff, 0xff], 0x1000), Some(0x1000));
        assert_eq!(build_id(&[0xff; 64]), None);
    }

    #[test]
    fn a_build_id_behind_another_note() {
        let mut notes = Vec::new();
        for (kind, desc) in [(5_u32, &[1, 2, 3][..]), (NT_GNU_BUILD_ID, &[0xab; 20][..])] {
            notes.extend(4_u32.to_le_bytes());
            notes.extend((desc.len() as u32).to_le_bytes());
            notes.extend(kind.to_le_bytes());
            notes.extend(b"GNU\0");
            notes.extend(desc);
            notes.resize(notes.len().next_multiple_of(4), 0);
        }
        assert_eq!(build_id(&notes), Some(&[0xab; 20][..]));
    }
}
