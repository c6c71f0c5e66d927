//! The hooks of one ELF file: parsed from its notes, checked against its bytes.
//!
//! A note gives addresses as in the file (svma) and the address of the `.stapsdt.base` section; when that section moved
//! (prelink), all of them moved as much. What the kernel wants is file offsets, so each address goes through the program
//! header that covers it. A site is refused, with the reason kept for the user, unless
//!
//! - its note's base is not 0 (a linker that collects sections dropped the base: the addresses may be of deleted code);
//! - it lies in an executable segment and its first byte is a one-byte `nop`. Above all it must not be a 5-byte `nop`:
//!   Linux 6.18 turns a probe on one into a call through a trampoline that `fork` does not copy, and a forking server
//!   would die;
//! - its semaphore, if it has one, has bytes in the file (the kernel counts by file offset) below 4 GiB.
//!
//! A file with jeprobe's own notes also offers `otel_memory` ones at the same places; those are left out.
#![forbid(unsafe_code)]

use std::fmt;
use std::fs::File;

use jeprobe_abi::hooks::{
    NOTE_ALLOC, NOTE_CONTEXT, NOTE_DUMP, NOTE_FREE, NOTE_RECORD, NOTE_UNWIND, PROBE_BYTE, PROVIDER, PROVIDER_OTEL,
    ROOT_SYMBOL,
};
use jeprobe_abi::keys;
use object::elf::{EM_X86_64, PF_X, PT_LOAD};
use object::read::elf::{ElfFile64, ProgramHeader as _, SectionHeader as _};
use object::{Endianness, Object as _, ObjectSymbol as _, ReadCache, ReadRef, SymbolKind};

use super::places;
use crate::addr::{FileOffset, Svma};

/// What a site tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Hook {
    Alloc,
    Free,
    Context,
    Dump,
    Mallctl,
    /// Never executed: makes the process sample into its table.
    Record,
    /// Never executed: makes the process unwind its samples.
    Unwind,
    /// `otel_memory:alloc` and `otel_memory:free` of a program that has no hooks of ours.
    ForeignAlloc,
    ForeignFree,
}

impl Hook {
    /// Never hit.
    pub fn is_parked(self) -> bool {
        matches!(self, Hook::Record | Hook::Unwind)
    }

    /// Hit by samples.
    pub fn is_frequent(self) -> bool {
        match self {
            Hook::Context | Hook::Alloc | Hook::Free | Hook::ForeignAlloc | Hook::ForeignFree => true,
            Hook::Dump | Hook::Mallctl | Hook::Record | Hook::Unwind => false,
        }
    }

    /// Order of attaching, and backwards of detaching: each step takes the kernel some time, and what the process samples
    /// meanwhile needs its stack.
    pub fn rank(self) -> u32 {
        match self {
            Hook::Context | Hook::Unwind => 0,
            Hook::Dump | Hook::Mallctl => 1,
            Hook::Free | Hook::ForeignFree => 2,
            Hook::Alloc | Hook::ForeignAlloc | Hook::Record => 3,
        }
    }
}

/// One place to probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    pub hook: Hook,
    /// `provider:name` of the note, or the symbol.
    pub name: String,
    pub svma: Svma,
    pub offset: FileOffset,
    /// Address and file offset of the semaphore, when there is one.
    pub semaphore: Option<(Svma, FileOffset)>,
    /// Where the arguments lie; only for foreign hooks.
    pub places: keys::Site,
}

/// A site that is not probed, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub name: String,
    pub svma: Svma,
    pub why: Why,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    BaseZero,
    NotExecutable,
    LongNop,
    NotNop(u8),
    SemaphoreNotInFile,
    SemaphoreTooFar,
    Arguments(String),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}: ", self.name, self.svma)?;
        match &self.why {
            Why::BaseZero => f.write_str("its note has base 0 (the linker dropped .stapsdt.base)"),
            Why::NotExecutable => f.write_str("it is in no executable segment of the file"),
            Why::LongNop => f.write_str("it is a 5-byte nop, which kills children of a probed process on Linux 6.18"),
            Why::NotNop(byte) => write!(f, "its first byte is {byte:#04x}, not a one-byte nop"),
            Why::SemaphoreNotInFile => f.write_str("its semaphore is in no initialised data of the file"),
            Why::SemaphoreTooFar => f.write_str("its semaphore is beyond 4 GiB of the file"),
            Why::Arguments(text) => write!(f, "its arguments are not understood: \"{text}\""),
        }
    }
}

/// What was found in one file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hooks {
    pub sites: Vec<Site>,
    pub refused: Vec<Refusal>,
    pub build_id: Option<Vec<u8>>,
    /// The profile table's root, when its symbol is still there.
    pub root: Option<Svma>,
}

impl Hooks {
    /// The file has jeprobe's own hooks.
    pub fn is_jeprobe(&self) -> bool {
        self.has(Hook::Alloc)
    }

    /// Processes go on recording into their tables, stacks included, without probes on their samples.
    pub fn can_hush(&self) -> bool {
        self.is_jeprobe() && self.has(Hook::Record) && self.has(Hook::Unwind)
    }

    fn has(&self, hook: Hook) -> bool {
        self.sites.iter().any(|site| site.hook == hook)
    }

    pub fn is_empty(&self) -> bool {
        self.sites.is_empty()
    }
}

/// Reads the hooks of an open file; `None` when it is no 64-bit ELF file of this machine.
pub fn read(file: &File) -> Option<Hooks> {
    let cache = ReadCache::new(file);
    let elf = ElfFile64::<Endianness, _>::parse(&cache).ok()?;
    if elf.elf_header().e_machine.get(elf.endian()) != EM_X86_64 {
        return None;
    }
    let mut hooks = Hooks { build_id: elf.build_id().ok().flatten().map(<[u8]>::to_vec), ..Hooks::default() };
    for note in notes(&elf) {
        let Some(hook) = hook_of(&note) else { continue };
        match site(&elf, &note, hook) {
            Ok(site) if hooks.sites.iter().any(|s| s.offset == site.offset && s.hook == site.hook) => {}
            Ok(site) => hooks.sites.push(site),
            Err(why) => hooks.refused.push(Refusal { name: note.name, svma: note.location, why }),
        }
    }
    if hooks.is_jeprobe() {
        hooks.sites.retain(|site| !matches!(site.hook, Hook::ForeignAlloc | Hook::ForeignFree));
        hooks.refused.retain(|refusal| !refusal.name.starts_with(PROVIDER_OTEL));
        match mallctl(&elf) {
            Some(Ok(site)) => hooks.sites.push(site),
            Some(Err(refusal)) => hooks.refused.push(refusal),
            None => {}
        }
        hooks.root = symbol(&elf, ROOT_SYMBOL, SymbolKind::Data);
    }
    Some(hooks)
}

type Elf<'data, R> = ElfFile64<'data, Endianness, R>;

/// A `.note.stapsdt` entry, its addresses corrected for prelink; `base` as it stands in the note.
struct Note {
    name: String,
    location: Svma,
    base: u64,
    semaphore: Option<Svma>,
    arguments: String,
}

const BASE_SECTION: &[u8] = b".stapsdt.base";
const NOTE_OWNER: &[u8] = b"stapsdt";
const NOTE_TYPE: u32 = 3;

fn notes<'data, R: ReadRef<'data>>(elf: &Elf<'data, R>) -> Vec<Note> {
    let endian = elf.endian();
    let sections = elf.elf_section_table();
    let base = sections.section_by_name(endian, BASE_SECTION).map(|(_, section)| section.sh_addr(endian));
    let mut found = Vec::new();
    for section in sections.iter() {
        let Ok(Some(mut notes)) = section.notes(endian, elf.data()) else { continue };
        while let Ok(Some(note)) = notes.next() {
            if note.name() == NOTE_OWNER
                && note.n_type(endian) == NOTE_TYPE
                && let Some(note) = parse_note(note.desc(), base)
            {
                found.push(note);
            }
        }
    }
    found
}

/// Descriptor: location, base and semaphore as 64-bit words, then provider, name and arguments, each ended by NUL.
fn parse_note(desc: &[u8], section_base: Option<u64>) -> Option<Note> {
    let word = |at: usize| Some(u64::from_le_bytes(desc.get(at..at + 8)?.try_into().ok()?));
    let (location, base, semaphore) = (word(0)?, word(8)?, word(16)?);
    let moved = match section_base {
        Some(now) if base != 0 => now.wrapping_sub(base),
        _ => 0,
    };
    let mut texts = desc.get(24..)?.split(|&b| b == 0).map(|text| String::from_utf8_lossy(text).into_owned());
    let (provider, name) = (texts.next()?, texts.next()?);
    Some(Note {
        name: format!("{provider}:{name}"),
        location: Svma(location.wrapping_add(moved)),
        base,
        semaphore: (semaphore != 0).then(|| Svma(semaphore.wrapping_add(moved))),
        arguments: texts.next().unwrap_or_default(),
    })
}

fn hook_of(note: &Note) -> Option<Hook> {
    let (provider, name) = note.name.split_once(':')?;
    match (provider, name) {
        (PROVIDER, NOTE_ALLOC) => Some(Hook::Alloc),
        (PROVIDER, NOTE_FREE) => Some(Hook::Free),
        (PROVIDER, NOTE_CONTEXT) => Some(Hook::Context),
        (PROVIDER, NOTE_DUMP) => Some(Hook::Dump),
        (PROVIDER, NOTE_RECORD) => Some(Hook::Record),
        (PROVIDER, NOTE_UNWIND) => Some(Hook::Unwind),
        (PROVIDER_OTEL, NOTE_ALLOC) => Some(Hook::ForeignAlloc),
        (PROVIDER_OTEL, NOTE_FREE) => Some(Hook::ForeignFree),
        _ => None,
    }
}

fn site<'data, R: ReadRef<'data>>(elf: &Elf<'data, R>, note: &Note, hook: Hook) -> Result<Site, Why> {
    if note.base == 0 {
        return Err(Why::BaseZero);
    }
    let (offset, code) = code_at(elf, note.location).ok_or(Why::NotExecutable)?;
    if is_long_nop(code) {
        return Err(Why::LongNop);
    }
    if code[0] != PROBE_BYTE {
        return Err(Why::NotNop(code[0]));
    }
    let semaphore = match note.semaphore {
        None => None,
        Some(svma) => {
            let offset = offset_of(elf, svma, 0).ok_or(Why::SemaphoreNotInFile)?;
            // Offset 0 means "no semaphore" to the kernel; the ELF header lies there.
            if offset.0 == 0 || u32::try_from(offset.0).is_err() {
                return Err(Why::SemaphoreTooFar);
            }
            Some((svma, offset))
        }
    };
    let needed = match hook {
        Hook::ForeignAlloc => 3,
        Hook::ForeignFree => 1,
        _ => 0,
    };
    let places = if needed == 0 {
        keys::Site::default()
    } else {
        places::parse(&note.arguments, needed).ok_or_else(|| Why::Arguments(note.arguments.clone()))?
    };
    Ok(Site { hook, name: note.name.clone(), svma: note.location, offset, semaphore, places })
}

/// The exported function `mallctl`, through which a program drives its own profile.
fn mallctl<'data, R: ReadRef<'data>>(elf: &Elf<'data, R>) -> Option<Result<Site, Refusal>> {
    let name = "mallctl".to_owned();
    let svma = symbol(elf, &name, SymbolKind::Text)?;
    let refused = |why| Some(Err(Refusal { name: "mallctl".to_owned(), svma, why }));
    let Some((offset, code)) = code_at(elf, svma) else { return refused(Why::NotExecutable) };
    if is_long_nop(code) {
        return refused(Why::LongNop);
    }
    Some(Ok(Site { hook: Hook::Mallctl, name, svma, offset, semaphore: None, places: keys::Site::default() }))
}

fn symbol<'data, R: ReadRef<'data>>(elf: &Elf<'data, R>, name: &str, kind: SymbolKind) -> Option<Svma> {
    elf.dynamic_symbols()
        .chain(elf.symbols())
        .find(|symbol| symbol.is_definition() && symbol.kind() == kind && symbol.name() == Ok(name))
        .map(|symbol| Svma(symbol.address()))
}

/// File offset and first bytes of code at an address; 0 beyond the end of the segment.
fn code_at<'data, R: ReadRef<'data>>(elf: &Elf<'data, R>, svma: Svma) -> Option<(FileOffset, [u8; 8])> {
    let offset = offset_of(elf, svma, PF_X)?;
    let mut code = [0; 8];
    for (at, byte) in code.iter_mut().enumerate() {
        match elf.data().read_bytes_at(offset.0 + at as u64, 1) {
            Ok(read) => *byte = read[0],
            Err(()) => break,
        }
    }
    Some((offset, code))
}

/// Where an address lies in the file, if it is in a loaded segment with these flags and has bytes there.
fn offset_of<'data, R: ReadRef<'data>>(elf: &Elf<'data, R>, svma: Svma, flags: u32) -> Option<FileOffset> {
    let endian = elf.endian();
    elf.elf_program_headers().iter().find_map(|header| {
        let within = svma.0.checked_sub(header.p_vaddr(endian))?;
        let fits = header.p_type(endian) == PT_LOAD
            && header.p_flags(endian) & flags == flags
            && within < header.p_filesz(endian);
        if fits { header.p_offset(endian).checked_add(within).map(FileOffset) } else { None }
    })
}

/// `nopl` in its 5-byte forms: what compilers and linkers emit, and any other encoding of the same length, which is
/// all that the kernel looks at: an optional prefix, `0f 1f`, an operand.
fn is_long_nop(code: [u8; 8]) -> bool {
    matches!(code, [0x0f, 0x1f, 0x44, 0x00, 0x00, ..] | [0x66 | 0x3e, 0x0f, 0x1f, 0x40, ..])
}

#[cfg(test)]
mod tests {
    use super::{Svma, is_long_nop, parse_note};

    fn desc(location: u64, base: u64, semaphore: u64) -> Vec<u8> {
        let mut desc = Vec::new();
        for word in [location, base, semaphore] {
            desc.extend_from_slice(&word.to_le_bytes());
        }
        desc.extend_from_slice(b"otel_memory\0alloc\08@%rdi 8@%rsi 8@%rdx\0");
        desc
    }

    #[test]
    fn prelink_moves_both_addresses() {
        let note = parse_note(&desc(0x1000, 0x500, 0x2000), Some(0x700)).expect("complete note");
        assert_eq!(note.name, "otel_memory:alloc");
        assert_eq!(note.location, Svma(0x1200));
        assert_eq!(note.semaphore, Some(Svma(0x2200)));
        assert_eq!(note.arguments, "8@%rdi 8@%rsi 8@%rdx");
    }

    #[test]
    fn a_zero_base_moves_nothing_and_a_zero_semaphore_is_none() {
        let note = parse_note(&desc(0x1000, 0, 0), Some(0x700)).expect("complete note");
        assert_eq!((note.location, note.semaphore, note.base), (Svma(0x1000), None, 0));
    }

    #[test]
    fn a_short_note_is_skipped() {
        assert!(parse_note(&desc(1, 1, 1)[..23], None).is_none());
        assert!(parse_note(&desc(1, 1, 1)[..24], None).is_none());
    }

    #[test]
    fn five_byte_nops_are_recognised() {
        assert!(is_long_nop([0x0f, 0x1f, 0x44, 0, 0, 0xc3, 0, 0]));
        assert!(!is_long_nop([0x90, 0x0f, 0x1f, 0x44, 0, 0, 0, 0]));
    }
}
