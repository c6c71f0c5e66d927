//! Finds the profile table's root in a process.
//!
//! Two ways, in order: the exported symbol `jeprobe_root` in the images in memory (preloaded and linked libraries, also
//! deleted ones); then the files behind the mappings, by the ELF note that names the root or by their symbol table
//! (programs that contain the allocator, stripped ones too). What was found counts only when the magic number is there.
#![forbid(unsafe_code)]

use std::fs::File;

use jeprobe_abi::abi::ROOT_MAGIC;
use jeprobe_abi::hooks::{ROOT_NOTE_OWNER, ROOT_NOTE_TYPE, ROOT_SYMBOL};
use object::read::elf::{ElfFile64, ProgramHeader as _, SectionHeader as _};
use object::{Endianness, Object as _, ObjectSymbol as _, ReadCache, ReadRef};

use super::image::Image;
use super::memory::ProcessMemory;
use crate::proc::exe;
use crate::proc::maps::{Mapping, Maps};

/// Section that stays beside the notes, so that they can be corrected when the file was prelinked.
const BASE_SECTION: &[u8] = b".stapsdt.base";

/// A profile table in a process.
#[derive(Clone, Debug)]
pub struct Located {
    /// Address of the `Root` in the process.
    pub root: u64,
    /// First mapping of the file that holds it.
    pub file: Mapping,
}

/// All tables in a process; normally none or one. More when a program contains the allocator and preloads it as well.
pub fn locate(memory: ProcessMemory, maps: &Maps) -> Vec<Located> {
    let files = maps.files();
    let mut found: Vec<Located> = Vec::new();
    let mut add = |root: u64, file: &Mapping| {
        let new = !found.iter().any(|other: &Located| other.root == root);
        if new && memory.read_u64(root).is_ok_and(|magic| magic == ROOT_MAGIC) {
            found.push(Located { root, file: file.clone() });
        }
    };
    for file in files.iter().filter(|m| m.offset == 0 && m.perms.read) {
        if let Some(root) = Image::read(memory, file.start).and_then(|image| image.symbol(ROOT_SYMBOL)) {
            add(root, file);
        }
    }
    for file in files.iter().filter(|m| m.perms.read) {
        if let Ok(opened) = exe::open_mapped(memory.pid(), file)
            && let Some(svma) = root_in_file(&opened)
            && let Some(bias) = bias_of(&opened, file)
        {
            add(bias.wrapping_add(svma), file);
        }
    }
    found
}

/// Address of the root as in the file: from the note, else from the symbol tables.
fn root_in_file(file: &File) -> Option<u64> {
    let cache = ReadCache::new(file);
    let elf = ElfFile64::<Endianness, _>::parse(&cache).ok()?;
    root_by_note(&elf).or_else(|| {
        let named = |symbol: &object::read::elf::ElfSymbol64<'_, '_, Endianness, &ReadCache<&File>>| {
            symbol.is_definition() && symbol.name() == Ok(ROOT_SYMBOL)
        };
        elf.symbols().chain(elf.dynamic_symbols()).find(named).map(|symbol| symbol.address())
    })
}

fn root_by_note<'data, R: ReadRef<'data>>(elf: &ElfFile64<'data, Endianness, R>) -> Option<u64> {
    let endian = elf.endian();
    let sections = elf.elf_section_table();
    let base = sections.section_by_name(endian, BASE_SECTION).map(|(_, section)| section.sh_addr(endian));
    for section in sections.iter() {
        let Ok(Some(mut notes)) = section.notes(endian, elf.data()) else { continue };
        while let Ok(Some(note)) = notes.next() {
            if note.name() != ROOT_NOTE_OWNER.as_bytes() || note.n_type(endian) != ROOT_NOTE_TYPE {
                continue;
            }
            let word = |at: usize| Some(u64::from_le_bytes(note.desc().get(at..at + 8)?.try_into().ok()?));
            let (root, noted_base) = (word(0)?, word(8)?);
            // A base of 0 means that a linker dropped the base section: the address is then taken as it stands.
            return match base {
                Some(base) if noted_base != 0 => Some(root.wrapping_add(base.wrapping_sub(noted_base))),
                _ => Some(root),
            };
        }
    }
    None
}

/// What to add to an address of the file to get one of the process, by the program header that covers the mapping.
fn bias_of(file: &File, mapping: &Mapping) -> Option<u64> {
    let cache = ReadCache::new(file);
    let elf = ElfFile64::<Endianness, _>::parse(&cache).ok()?;
    let endian = elf.endian();
    elf.elf_program_headers().iter().find_map(|header| {
        let (offset, size) = header.file_range(endian);
        // Segments are mapped from the page that holds their first byte; 64 KiB covers the largest page size.
        let covers = header.p_type(endian) == object::elf::PT_LOAD
            && offset & !0xffff <= mapping.offset
            && mapping.offset < offset.checked_add(size)?;
        covers.then(|| {
            mapping.start.wrapping_sub(header.p_vaddr(endian).wrapping_sub(offset)).wrapping_sub(mapping.offset)
        })
    })
}
