//! Symbols as a disassembler shows them: which name stands at an address, those of procedure linkage tables included.
#![forbid(unsafe_code)]

use std::cmp::Reverse;
use std::collections::HashMap;

use object::LittleEndian;
use object::elf::{self, Rela64};

use super::elf::Elf;

const ENDIAN: LittleEndian = LittleEndian;

/// A symbol that may name code.
#[derive(Clone, Debug)]
pub(super) struct CodeSymbol {
    pub(super) address: u64,
    pub(super) section: u32,
    size: u64,
    pub(super) kind: u8,
    bind: u8,
    /// Place in the symbol table.
    index: u32,
    /// Bytes of `name` before the version.
    plain: usize,
    /// Linker name with its version.
    pub(super) name: String,
}

/// What decides between symbols at one address; the smallest is shown.
type Rank<'a> = (bool, bool, bool, bool, bool, bool, Reverse<u64>, bool, &'a str, u32);

impl CodeSymbol {
    /// Order of symbols at one address, best first: those of the section at hand, functions, data, global ones, large ones.
    fn rank(&self, section: u32) -> Rank<'_> {
        let plain = self.name.get(..self.plain).unwrap_or(&self.name);
        let is_file_like = plain.len() > 2 && matches!(plain.as_bytes(), [.., b'.', b'o' | b'a']);
        (
            self.section != section,
            is_file_like,
            self.kind != elf::STT_FUNC,
            self.kind != elf::STT_OBJECT,
            self.bind == elf::STB_LOCAL,
            self.bind != elf::STB_GLOBAL,
            Reverse(self.size),
            plain.starts_with('.'),
            plain,
            self.index,
        )
    }

    /// Shown as bytes, not as instructions.
    pub(super) fn is_data(&self) -> bool {
        self.kind == elf::STT_OBJECT
    }
}

/// All symbols by address; dynamic relocations that name what a word will hold.
#[derive(Debug, Default)]
pub(super) struct CodeSymbols {
    sorted: Vec<CodeSymbol>,
    /// Name of the dynamic symbol whose address is put there, and its own address when it is defined here.
    relocated: HashMap<u64, (String, Option<u64>)>,
}

impl CodeSymbols {
    pub(super) fn build(elf: &Elf) -> CodeSymbols {
        let (mut sorted, mut relocated, mut slots) = (Vec::new(), HashMap::new(), HashMap::new());
        let table = elf.symbols(false).or_else(|| elf.symbols(true));
        if let Some(symbols) = &table {
            for (index, symbol) in symbols.table.symbols().iter().enumerate().skip(1) {
                let section = symbols.section(index);
                let is_bare = matches!(symbol.st_type(), elf::STT_SECTION | elf::STT_FILE);
                if is_bare || section == 0 || section == u32::from(elf::SHN_COMMON) || symbols.name(index).is_empty() {
                    continue;
                }
                sorted.push(CodeSymbol {
                    address: symbol.st_value.get(ENDIAN),
                    section,
                    size: symbol.st_size.get(ENDIAN),
                    kind: symbol.st_type(),
                    bind: symbol.st_bind(),
                    index: index as u32,
                    plain: symbols.name(index).len(),
                    name: symbols.name_with_base_version(index),
                });
            }
        }
        if let Some(symbols) = elf.symbols(true) {
            for relocation in elf.dynamic_relocations() {
                let (address, index) = (relocation.r_offset.get(ENDIAN), symbol_index(relocation));
                let kind = relocation.r_info.get(ENDIAN) as u32;
                if index != 0 && index < symbols.table.len() {
                    let symbol = &symbols.table.symbols()[index];
                    let own = (symbol.st_shndx.get(ENDIAN) != elf::SHN_UNDEF).then(|| symbol.st_value.get(ENDIAN));
                    relocated.entry(address).or_insert_with(|| (symbols.name_with_base_version(index), own));
                    if matches!(kind, elf::R_X86_64_JUMP_SLOT | elf::R_X86_64_GLOB_DAT) {
                        slots.insert(address, (symbols.name(index).into_owned(), symbol.st_type()));
                    }
                } else if kind == elf::R_X86_64_IRELATIVE {
                    slots.insert(address, (format!("*ABS*+{:#x}", relocation.r_addend.get(ENDIAN)), elf::STT_NOTYPE));
                }
            }
        }
        linkage_entries(elf, &slots, &mut sorted);
        sorted.sort_by(|a, b| a.address.cmp(&b.address).then_with(|| a.rank(0).cmp(&b.rank(0))));
        CodeSymbols { sorted, relocated }
    }

    /// The best symbol of the nearest address at or below, or the first of all above it.
    pub(super) fn nearest(&self, section: u32, address: u64) -> Option<&CodeSymbol> {
        let after = self.sorted.partition_point(|symbol| symbol.address <= address);
        let value = self.sorted.get(after.saturating_sub(1))?.address;
        self.at(value).min_by(|a, b| a.rank(section).cmp(&b.rank(section)))
    }

    /// The best symbol of a section at or below an address, or else its first one above.
    pub(super) fn of_section(&self, section: u32, address: u64) -> Option<&CodeSymbol> {
        let after = self.sorted.partition_point(|symbol| symbol.address <= address);
        let below = self.sorted[..after].iter().rev().find(|symbol| symbol.section == section);
        let found = below.or_else(|| self.sorted[after..].iter().find(|symbol| symbol.section == section))?;
        self.at(found.address)
            .filter(|symbol| symbol.section == section)
            .min_by(|a, b| a.rank(section).cmp(&b.rank(section)))
    }

    /// The best symbol of a section at the first address above.
    pub(super) fn following(&self, section: u32, address: u64) -> Option<&CodeSymbol> {
        let after = self.sorted.partition_point(|symbol| symbol.address <= address);
        let found = self.sorted[after..].iter().find(|symbol| symbol.section == section)?;
        self.of_section(section, found.address)
    }

    fn at(&self, address: u64) -> impl Iterator<Item = &CodeSymbol> {
        let from = self.sorted.partition_point(|symbol| symbol.address < address);
        self.sorted[from..].iter().take_while(move |symbol| symbol.address == address)
    }

    /// What is put at an address when the image is loaded.
    pub(super) fn relocated(&self, address: u64) -> Option<&(String, Option<u64>)> {
        self.relocated.get(&address)
    }
}

fn symbol_index(relocation: &Rela64<LittleEndian>) -> usize {
    (relocation.r_info.get(ENDIAN) >> 32) as usize
}

/// Names `NAME@plt` for entries that jump through a slot of the offset table.
fn linkage_entries(elf: &Elf, slots: &HashMap<u64, (String, u8)>, sorted: &mut Vec<CodeSymbol>) {
    for (number, section) in elf.sections.iter().enumerate() {
        if !matches!(section.name.as_str(), ".plt" | ".plt.got" | ".plt.sec" | ".plt.bnd") {
            continue;
        }
        let data = elf.stored(section);
        let step = if section.name == ".plt.got" && data.starts_with(&[0xff, 0x25]) { 8 } else { 16 };
        for (entry, bytes) in data.chunks(step).enumerate() {
            let Some(at) = bytes.windows(2).take(8).position(|pair| pair == [0xff, 0x25]) else { continue };
            let Some(distance) = bytes.get(at + 2..at + 6).and_then(|bytes| bytes.try_into().ok()) else { continue };
            let address = section.address.wrapping_add((entry * step) as u64);
            let next = address.wrapping_add(at as u64 + 6);
            let slot = next.wrapping_add_signed(i64::from(i32::from_le_bytes(distance)));
            if let Some((name, kind)) = slots.get(&slot) {
                let name = format!("{name}@plt");
                sorted.push(CodeSymbol {
                    address,
                    section: number as u32,
                    size: 0,
                    kind: *kind,
                    bind: elf::STB_GLOBAL,
                    index: u32::MAX,
                    plain: name.len(),
                    name,
                });
            }
        }
    }
}
