//! One ELF file: its sections, segments, identity, and the bytes of both symbol tables.
//!
//! | opened | kept in memory |
//! |---|---|
//! | headers | one [`Section`] per section header, one [`Segment`] per loadable segment |
//! | on demand | a section's bytes: a slice of the mapping, or, compressed, the inflated copy (see `MAX_RATIO`) |
//!
//! ELF of 64 bits and little-endian only: that is what x86-64 and arm64 run. Every number comes from the file and is
//! checked where it is used; a damaged file has fewer sections, never a panic.
#![forbid(unsafe_code)]

use std::borrow::Cow;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use object::elf::{self, FileHeader64, Versym};
use object::read::elf::{
    FileHeader as _, ProgramHeader as _, SectionHeader as _, SectionTable, SymbolTable, VersionIndex,
};
use object::{LittleEndian, SectionIndex};

use super::bytes::Bytes;
use super::error::Error;
use super::text::repaired;

const ENDIAN: LittleEndian = LittleEndian;
/// Inflated bytes that one stored byte may become, beyond the first 64 MiB: deflate's own limit. A header that promises more
/// lies.
const MAX_RATIO: u64 = 1100;

type Header = FileHeader64<LittleEndian>;
/// Names of symbol versions by number.
type VersionNames<'a> = &'a [Option<String>];

/// A section as its header gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    pub name: String,
    /// svma; 0 for what is not loaded.
    pub address: u64,
    /// Bytes in memory.
    pub size: u64,
    /// Of the first byte in the file.
    pub offset: u64,
    kind: u32,
    flags: u64,
}

impl Section {
    /// Part of the process image.
    pub fn is_allocated(&self) -> bool {
        self.flags & u64::from(elf::SHF_ALLOC) != 0
    }

    pub(super) fn is_code(&self) -> bool {
        self.flags & u64::from(elf::SHF_EXECINSTR) != 0
    }

    pub(super) fn is_writable(&self) -> bool {
        self.flags & u64::from(elf::SHF_WRITE) != 0
    }

    /// The file holds its bytes: not `.bss`.
    pub(super) fn has_contents(&self) -> bool {
        self.kind != elf::SHT_NOBITS
    }

    pub(super) fn is_debugging(&self) -> bool {
        const PREFIXES: &[&str] = &[
            ".debug",
            ".gnu.debuglto_.debug_",
            ".gnu.linkonce.wi.",
            ".zdebug",
            ".note.gnu",
            ".line",
            ".stab",
            ".gdb_index",
        ];
        !self.is_allocated() && PREFIXES.iter().any(|prefix| self.name.starts_with(prefix))
    }

    pub fn contains(&self, address: u64) -> bool {
        address >= self.address && address - self.address < self.size
    }
}

/// One loadable segment: bytes in the file, address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    pub file_offset: u64,
    pub file_size: u64,
    pub address: u64,
    pub size: u64,
}

/// A symbol table with its names and versions.
pub(super) struct Symbols<'a> {
    pub(super) table: SymbolTable<'a, Header>,
    /// The string table up to the end of its last name.
    names: &'a [u8],
    /// Number of each symbol's version, and the versions' names by number.
    versions: Option<(&'a [Versym<LittleEndian>], VersionNames<'a>)>,
}

/// An open ELF file.
#[derive(Debug)]
pub(super) struct Elf {
    pub(super) path: PathBuf,
    bytes: Bytes,
    pub(super) sections: Vec<Section>,
    pub(super) segments: Vec<Segment>,
    /// `EM_X86_64` and the like.
    pub(super) machine: u16,
    /// `ET_EXEC`: fixed addresses.
    pub(super) is_fixed: bool,
    pub(super) build_id: Vec<u8>,
    /// Names of symbol versions by number, read when they are first asked for.
    versions: OnceLock<Option<Vec<Option<String>>>>,
}

impl Elf {
    pub(super) fn open(path: &Path) -> Result<Elf, Error> {
        Elf::read(path, Bytes::open(path)?)
    }

    /// Reads the headers of `bytes`, which are the file at `path` or were packed into it.
    pub(super) fn read(path: &Path, bytes: Bytes) -> Result<Elf, Error> {
        let not_elf = |error: object::Error| Error::NotElf { path: path.to_owned(), reason: error.to_string() };
        let header = Header::parse(&*bytes).map_err(not_elf)?;
        if !header.is_supported() || header.e_ident.class != elf::ELFCLASS64 || header.e_ident.data != elf::ELFDATA2LSB
        {
            let reason = "its header says another class or byte order".to_owned();
            return Err(Error::NotElf { path: path.to_owned(), reason });
        }
        let mut sections = Vec::new();
        let mut build_id = Vec::new();
        if let Ok(table) = header.sections(ENDIAN, &*bytes) {
            for section in table.iter() {
                let name = table.section_name(ENDIAN, section).unwrap_or_default();
                sections.push(Section {
                    name: String::from_utf8_lossy(name).into_owned(),
                    address: section.sh_addr(ENDIAN),
                    size: section.sh_size(ENDIAN),
                    offset: section.sh_offset(ENDIAN),
                    kind: section.sh_type(ENDIAN),
                    flags: section.sh_flags(ENDIAN),
                });
                if build_id.is_empty()
                    && let Ok(Some(mut notes)) = section.notes(ENDIAN, &*bytes)
                {
                    while let Ok(Some(note)) = notes.next() {
                        if note.name() == elf::ELF_NOTE_GNU && note.n_type(ENDIAN) == elf::NT_GNU_BUILD_ID {
                            build_id = note.desc().to_vec();
                        }
                    }
                }
            }
        }
        let mut segments = Vec::new();
        for segment in header.program_headers(ENDIAN, &*bytes).unwrap_or_default() {
            if segment.p_type(ENDIAN) == elf::PT_LOAD {
                segments.push(Segment {
                    file_offset: segment.p_offset(ENDIAN),
                    file_size: segment.p_filesz(ENDIAN),
                    address: segment.p_vaddr(ENDIAN),
                    size: segment.p_memsz(ENDIAN),
                });
            } else if build_id.is_empty()
                && let Ok(Some(mut notes)) = segment.notes(ENDIAN, &*bytes)
            {
                while let Ok(Some(note)) = notes.next() {
                    if note.name() == elf::ELF_NOTE_GNU && note.n_type(ENDIAN) == elf::NT_GNU_BUILD_ID {
                        build_id = note.desc().to_vec();
                    }
                }
            }
        }
        let machine = header.e_machine(ENDIAN);
        let is_fixed = header.e_type(ENDIAN) == elf::ET_EXEC;
        let versions = OnceLock::new();
        Ok(Elf { path: path.to_owned(), sections, segments, machine, is_fixed, build_id, bytes, versions })
    }

    /// Bytes of the whole file.
    pub(super) fn size(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn header(&self) -> &Header {
        Header::parse(&*self.bytes).expect("the file was parsed when it was opened, and its mapping is private")
    }

    pub(super) fn section(&self, name: &str) -> Option<&Section> {
        self.sections.iter().find(|section| section.name == name)
    }

    /// As stored in the file; empty for `.bss` and for ranges outside the file.
    pub(super) fn stored(&self, section: &Section) -> &[u8] {
        let range = || {
            let start = usize::try_from(section.offset).ok()?;
            let size = usize::try_from(section.size).ok()?;
            self.bytes.get(start..start.checked_add(size)?)
        };
        if section.has_contents() { range().unwrap_or_default() } else { &[] }
    }

    /// A debug section by its usual name (`.debug_info`), inflated when it is stored compressed, also as `.zdebug_info`.
    /// Empty when there is none or it is damaged.
    pub(super) fn debug_section(&self, name: &str) -> Cow<'_, [u8]> {
        let old = name.strip_prefix(".debug_").map(|rest| format!(".zdebug_{rest}"));
        let Some(section) =
            self.sections.iter().find(|section| section.name == name || Some(&section.name) == old.as_ref())
        else {
            return Cow::Borrowed(&[]);
        };
        let stored = self.stored(section);
        let compressed = if section.flags & u64::from(elf::SHF_COMPRESSED) != 0 {
            chdr(stored)
        } else if Some(&section.name) == old.as_ref() {
            zdebug(stored)
        } else {
            return Cow::Borrowed(stored);
        };
        let Some(data) = compressed else { return Cow::Borrowed(&[]) };
        let limit = (64 << 20) + MAX_RATIO.saturating_mul(stored.len() as u64);
        if data.uncompressed_size > limit {
            return Cow::Borrowed(&[]);
        }
        data.decompress().unwrap_or_default()
    }

    /// `.symtab`, or `.dynsym`; `None` when there is none or it is empty.
    pub(super) fn symbols(&self, dynamic: bool) -> Option<Symbols<'_>> {
        let header = self.header();
        let sections = header.sections(ENDIAN, &*self.bytes).ok()?;
        let kind = if dynamic { elf::SHT_DYNSYM } else { elf::SHT_SYMTAB };
        let table = sections.symbols(ENDIAN, &*self.bytes, kind).ok()?;
        if table.len() < 2 {
            return None;
        }
        let versions = || {
            let (numbers, _) = sections.gnu_versym(ENDIAN, &*self.bytes).ok()??;
            let names = self.versions.get_or_init(|| self.version_names(&sections, numbers)).as_ref()?;
            Some((numbers, names.as_slice()))
        };
        let stored =
            self.sections.get(table.string_section().0).map(|section| self.stored(section)).unwrap_or_default();
        let names = &stored[..memchr::memrchr(0, stored).map_or(0, |last| last + 1)];
        Some(Symbols { table, names, versions: if dynamic { versions() } else { None } })
    }

    /// Names of the versions that symbols have, by number; `None` where the tables are damaged.
    fn version_names(
        &self,
        sections: &SectionTable<'_, Header>,
        numbers: &[Versym<LittleEndian>],
    ) -> Option<Vec<Option<String>>> {
        let table = sections.versions(ENDIAN, &*self.bytes).ok()??;
        let number = |versym: &Versym<LittleEndian>| versym.0.get(ENDIAN) & elf::VERSYM_VERSION;
        let most = numbers.iter().map(number).max().unwrap_or(0);
        let name = |number| {
            let version = table.version(VersionIndex(number)).ok().flatten()?;
            Some(repaired(version.name()).into_owned())
        };
        Some((0..=most).map(name).collect())
    }

    /// Relocations that the dynamic linker makes, in the file's order.
    pub(super) fn dynamic_relocations(&self) -> impl Iterator<Item = &elf::Rela64<LittleEndian>> {
        let header = self.header();
        let sections = header.sections(ENDIAN, &*self.bytes).unwrap_or_default();
        let dynamic = sections.iter().position(|section| section.sh_type(ENDIAN) == elf::SHT_DYNSYM);
        let tables = self.sections.iter().enumerate().filter_map(move |(number, _)| {
            let section = sections.section(SectionIndex(number)).ok()?;
            let is_dynamic = dynamic.is_some_and(|dynamic| section.sh_link(ENDIAN) as usize == dynamic)
                || section.sh_flags(ENDIAN) & u64::from(elf::SHF_ALLOC) != 0;
            section.rela(ENDIAN, &*self.bytes).ok().flatten().filter(|_| is_dynamic).map(|(list, _)| list)
        });
        tables.flatten()
    }

    /// The note or link that names a separate debug file: file name and checksum.
    pub(super) fn debuglink(&self) -> Option<(&[u8], u32)> {
        let data = self.stored(self.section(".gnu_debuglink")?);
        let end = data.iter().position(|byte| *byte == 0)?;
        let at = (end + 4) & !3;
        let crc = data.get(at..at + 4)?;
        Some((&data[..end], u32::from_le_bytes(crc.try_into().ok()?)))
    }

    /// The shared debug file of `dwz`: file name and its build-id.
    pub(super) fn debugaltlink(&self) -> Option<(&[u8], &[u8])> {
        let data = self.stored(self.section(".gnu_debugaltlink")?);
        let end = data.iter().position(|byte| *byte == 0)?;
        Some((&data[..end], &data[end + 1..]))
    }

    /// The svma of a byte of the file, when it is part of what is loaded.
    pub(super) fn svma(&self, file_offset: u64) -> Option<u64> {
        let within = |segment: &&Segment| {
            file_offset >= segment.file_offset && file_offset - segment.file_offset < segment.file_size
        };
        let segment = self.segments.iter().find(within)?;
        Some(segment.address.wrapping_add(file_offset - segment.file_offset))
    }
}

/// A section that begins with an ELF compression header.
fn chdr(stored: &[u8]) -> Option<object::CompressedData<'_>> {
    let word = |at: usize| stored.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map(u64::from_le_bytes);
    let format = match word(0)? as u32 {
        elf::ELFCOMPRESS_ZLIB => object::CompressionFormat::Zlib,
        elf::ELFCOMPRESS_ZSTD => object::CompressionFormat::Zstandard,
        _ => return None,
    };
    Some(object::CompressedData { format, data: &stored[24..], uncompressed_size: word(8)? })
        .filter(|_| stored.len() > 24)
}

/// The older form: `ZLIB`, the size big-endian, the data.
fn zdebug(stored: &[u8]) -> Option<object::CompressedData<'_>> {
    let size = stored.strip_prefix(b"ZLIB")?.get(..8)?;
    let uncompressed_size = u64::from_be_bytes(size.try_into().ok()?);
    Some(object::CompressedData { format: object::CompressionFormat::Zlib, data: &stored[12..], uncompressed_size })
}

impl<'a> Symbols<'a> {
    /// The name as the string table has it; bytes that are not text are replaced.
    pub(super) fn name(&self, index: usize) -> Cow<'a, str> {
        repaired(self.name_bytes(index))
    }

    /// The same as it is.
    pub(super) fn name_bytes(&self, index: usize) -> &'a [u8] {
        let symbol = &self.table.symbols()[index];
        self.table.strings().get(symbol.st_name.get(ENDIAN)).unwrap_or_default()
    }

    /// Whether the name is empty, without looking for its end.
    pub(super) fn is_nameless(&self, index: usize) -> bool {
        let start = self.table.symbols()[index].st_name.get(ENDIAN) as usize;
        self.names.get(start).is_none_or(|&byte| byte == 0)
    }

    /// `@` or `@@` and the version of a dynamic symbol that has one.
    pub(super) fn version(&self, index: usize) -> Option<(&'static str, &'a str)> {
        let name = self.versions?.1.get(usize::from(self.version_number(index)?))?.as_ref()?;
        (name.as_bytes() != self.name_bytes(index)).then(|| (self.at(index), name.as_str()))
    }

    /// The name and its version; `Base` for a symbol of a versioned file that has none.
    pub(super) fn name_with_base_version(&self, index: usize) -> String {
        let name = self.name(index);
        if let Some((at, version)) = self.version(index) {
            return format!("{name}{at}{version}");
        }
        match self.version_number(index) {
            Some(elf::VER_NDX_GLOBAL) => format!("{name}{}Base", self.at(index)),
            _ => name.into_owned(),
        }
    }

    /// `VER_NDX_LOCAL`, `VER_NDX_GLOBAL` or the number of a version; `None` in a file without versions.
    fn version_number(&self, index: usize) -> Option<u16> {
        Some(self.versym(index)? & elf::VERSYM_VERSION)
    }

    fn versym(&self, index: usize) -> Option<u16> {
        let (numbers, _) = self.versions?;
        Some(numbers.get(index).map_or(elf::VER_NDX_GLOBAL, |versym| versym.0.get(ENDIAN)))
    }

    /// Two signs before the version that is taken where none is asked for, else one.
    fn at(&self, index: usize) -> &'static str {
        let is_hidden = self.versym(index).is_some_and(|versym| versym & elf::VERSYM_HIDDEN != 0);
        let is_undefined = self.table.symbols()[index].st_shndx.get(ENDIAN) == elf::SHN_UNDEF;
        if is_hidden || is_undefined { "@" } else { "@@" }
    }

    /// Section header index, or one of the reserved ones (`SHN_ABS`, `SHN_COMMON`); 0 is undefined.
    pub(super) fn section(&self, index: usize) -> u32 {
        let number = self.table.symbols()[index].st_shndx.get(ENDIAN);
        if number == elf::SHN_XINDEX {
            return self.table.shndx(ENDIAN, object::SymbolIndex(index)).unwrap_or(0);
        }
        u32::from(number)
    }
}

/// Lower-case hexadecimal, as build-ids are written.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _infallible = write!(text, "{byte:02x}");
        text
    })
}

/// True for indices that stand for a section header.
pub(super) fn is_real(section: u32) -> bool {
    section != 0
        && !(u32::from(elf::SHN_LORESERVE)..=u32::from(elf::SHN_HIRESERVE)).contains(&section)
        && SectionIndex(section as usize).0 != 0
}
