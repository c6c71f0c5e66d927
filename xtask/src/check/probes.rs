//! The probe sites of a linked file, as a tracer and the kernel find them: notes, hooks, semaphores, the root's note.
//!
//! | fact | why it must hold |
//! |---|---|
//! | every note of the contract is there, at its hook's address | tracers look nowhere else |
//! | the hook is in an executable segment and begins with a one-byte nop | a longer nop becomes a call that a forked child does not have |
//! | the note's base is that of `.stapsdt.base`, and not 0 | a loader corrects addresses by it |
//! | the semaphore is bytes of the file, writable, outside RELRO | the kernel finds it by file offset and writes to it |
//! | the root's note names `jeprobe_root` and this ABI version | stripped programs have no symbol |
#![forbid(unsafe_code)]

use anyhow::{Context as _, Result};
use jeprobe_abi::abi::ABI_VERSION;
use jeprobe_abi::hooks;
use object::read::elf::ProgramHeader as _;
use object::{Endianness, Object as _, ObjectSection as _, ObjectSymbol as _, elf};

/// Provider, name, hook (empty: a place without a name of its own), semaphore.
const NOTES: [(&str, &str, &str, &str); 8] = [
    (hooks::PROVIDER, hooks::NOTE_ALLOC, hooks::HOOK_ALLOC, hooks::SEMAPHORE_ALLOC),
    (hooks::PROVIDER, hooks::NOTE_FREE, hooks::HOOK_FREE, hooks::SEMAPHORE_FREE),
    (hooks::PROVIDER, hooks::NOTE_DUMP, hooks::HOOK_DUMP, hooks::SEMAPHORE_DUMP),
    (hooks::PROVIDER, hooks::NOTE_CONTEXT, hooks::HOOK_CONTEXT, hooks::SEMAPHORE_CONTEXT),
    (hooks::PROVIDER, hooks::NOTE_RECORD, "", hooks::SEMAPHORE_ALLOC),
    (hooks::PROVIDER, hooks::NOTE_UNWIND, "", hooks::SEMAPHORE_CONTEXT),
    (hooks::PROVIDER_OTEL, hooks::NOTE_ALLOC, hooks::HOOK_ALLOC, hooks::SEMAPHORE_ALLOC),
    (hooks::PROVIDER_OTEL, hooks::NOTE_FREE, hooks::HOOK_FREE, hooks::SEMAPHORE_FREE),
];

type File<'a> = object::read::elf::ElfFile64<'a, Endianness>;

/// One `.note.stapsdt` entry. Addresses as in the file.
struct Note {
    place: u64,
    base: u64,
    semaphore: u64,
    provider: String,
    name: String,
}

/// What is wrong with the probe sites of `data`, a 64-bit ELF file.
pub(super) fn faults(data: &[u8]) -> Result<Vec<String>> {
    let file = File::parse(data).context("not a 64-bit ELF file")?;
    let mut faults = Vec::new();
    let base = file.section_by_name(".stapsdt.base").map(|section| section.address()).filter(|address| *address != 0);
    if base.is_none() {
        faults.push("no .stapsdt.base section with an address".into());
    }
    let mut notes = Vec::new();
    for section in file.sections() {
        if section.name() == Ok(".note.stapsdt") {
            notes.extend(records(section.data()?).filter(|(owner, kind, _)| owner == "stapsdt" && *kind == 3));
        }
    }
    let notes: Vec<Note> = notes.iter().filter_map(|(_, _, body)| note(body)).collect();

    for (provider, name, hook, semaphore) in NOTES {
        let named = format!("note {provider}:{name}");
        let Some(note) = notes.iter().find(|note| note.provider == provider && note.name == name) else {
            faults.push(format!("{named} is missing"));
            continue;
        };
        if base.is_some_and(|base| note.base != base) {
            faults.push(format!("{named} has base {:#x}, .stapsdt.base is elsewhere", note.base));
        }
        if !hook.is_empty() && symbol(&file, hook).is_some_and(|address| address != note.place) {
            faults.push(format!("{named} is at {:#x}, {hook} is elsewhere", note.place));
        }
        match load_segment(&file, note.place, elf::PF_X).and_then(|bytes| bytes.first()) {
            Some(&hooks::PROBE_BYTE) => {}
            Some(byte) => faults.push(format!("{named}: its place begins with {byte:#04x}, not a one-byte nop")),
            None => faults.push(format!("{named}: {:#x} is in no executable segment", note.place)),
        }
        if symbol(&file, semaphore).is_some_and(|address| address != note.semaphore) {
            faults.push(format!("{named} has semaphore {:#x}, {semaphore} is elsewhere", note.semaphore));
        }
        if load_segment(&file, note.semaphore, elf::PF_W).is_none() {
            faults.push(format!("{named}: {semaphore} is not file-backed writable data"));
        }
        if in_relro(&file, note.semaphore) {
            faults.push(format!("{named}: {semaphore} is read-only after relocation"));
        }
    }
    faults.extend(root_fault(&file, base)?);
    Ok(faults)
}

fn root_fault(file: &File<'_>, base: Option<u64>) -> Result<Option<String>> {
    for section in file.sections() {
        if !section.name().is_ok_and(|name| name.starts_with(".note")) {
            continue;
        }
        for (owner, kind, body) in records(section.data()?) {
            if owner != hooks::ROOT_NOTE_OWNER || kind != hooks::ROOT_NOTE_TYPE {
                continue;
            }
            let words = [word(body, 0), word(body, 8), word(body, 16)];
            let fault = if symbol(file, hooks::ROOT_SYMBOL).is_some_and(|address| words[0] != Some(address)) {
                Some(format!("the root's note does not name {}", hooks::ROOT_SYMBOL))
            } else if base.is_some() && words[1] != base {
                Some("the root's note has another base than .stapsdt.base".into())
            } else if words[2] != Some(u64::from(ABI_VERSION)) {
                Some(format!("the root's note gives version {:?}, this is {ABI_VERSION}", words[2]))
            } else {
                None
            };
            return Ok(fault);
        }
    }
    Ok(Some("the root's note is missing".into()))
}

fn symbol(file: &File<'_>, name: &str) -> Option<u64> {
    file.dynamic_symbols()
        .chain(file.symbols())
        .find(|symbol| !symbol.is_undefined() && symbol.name() == Ok(name))
        .map(|symbol| symbol.address())
}

/// The file's bytes from `address` on, if a loaded segment with `flag` has them in the file.
fn load_segment<'a>(file: &File<'a>, address: u64, flag: u32) -> Option<&'a [u8]> {
    let endian = file.endian();
    file.elf_program_headers().iter().find_map(|header| {
        let start = header.p_vaddr(endian);
        let wanted = header.p_type(endian) == elf::PT_LOAD && header.p_flags(endian) & flag != 0;
        let offset = address.checked_sub(start).filter(|offset| wanted && *offset < header.p_filesz(endian))?;
        header.data(endian, file.data()).ok()?.get(usize::try_from(offset).ok()?..)
    })
}

fn in_relro(file: &File<'_>, address: u64) -> bool {
    let endian = file.endian();
    file.elf_program_headers().iter().any(|header| {
        let start = header.p_vaddr(endian);
        header.p_type(endian) == elf::PT_GNU_RELRO && (start..start + header.p_memsz(endian)).contains(&address)
    })
}

/// Owner, type and body of every note in a section: three 32-bit words, then owner and body, each padded to four.
fn records(data: &[u8]) -> impl Iterator<Item = (String, u32, &[u8])> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let field = |index: usize| {
            let start = at + index * 4;
            Some(u32::from_le_bytes(data.get(start..start + 4)?.try_into().ok()?))
        };
        let (name_bytes, body_bytes, kind) = (field(0)? as usize, field(1)? as usize, field(2)?);
        let name = data.get(at + 12..at + 12 + name_bytes)?;
        let body_at = at + 12 + name_bytes.next_multiple_of(4);
        let body = data.get(body_at..body_at + body_bytes)?;
        at = body_at + body_bytes.next_multiple_of(4);
        Some((String::from_utf8_lossy(name).trim_end_matches('\0').to_owned(), kind, body))
    })
}

fn note(body: &[u8]) -> Option<Note> {
    let mut texts = body.get(24..)?.split(|byte| *byte == 0).map(|text| String::from_utf8_lossy(text).into_owned());
    Some(Note {
        place: word(body, 0)?,
        base: word(body, 8)?,
        semaphore: word(body, 16)?,
        provider: texts.next()?,
        name: texts.next()?,
    })
}

fn word(body: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(body.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
pub(super) mod tests {
    use std::fmt::Write as _;

    use super::*;
    use crate::check::Sample;
    use crate::cmd::Cmd;

    /// A shared library that keeps the contract, as assembly.
    pub(in crate::check) fn library() -> String {
        let mut text = String::from(
            ".section .stapsdt.base,\"a\",@progbits\n.hidden base\nbase: .space 1\n\
             .data\n.globl jeprobe_root\n.type jeprobe_root,@object\njeprobe_root: .quad 1\n\
             .text\nnameless: nop\n\
             .section .probes,\"aw\",@progbits\n",
        );
        for (_, _, hook, semaphore) in &NOTES[..4] {
            let _ = write!(
                text,
                ".globl {semaphore}\n{semaphore}: .2byte 0\n.text\n.globl {hook}\n.type {hook},@function\n{hook}: nop\nret\n.section .probes\n"
            );
        }
        for (provider, name, hook, semaphore) in NOTES {
            let place = if hook.is_empty() { "nameless" } else { hook };
            let _ = write!(
                text,
                ".section .note.stapsdt,\"\",@note\n.balign 4\n.4byte 8, 9f-8f, 3\n.asciz \"stapsdt\"\n\
                 8: .8byte {place}, base, {semaphore}\n.asciz \"{provider}\"\n.asciz \"{name}\"\n.asciz \"8@%rdi\"\n9: .balign 4\n"
            );
        }
        let _ = write!(
            text,
            ".section .note.jeprobe,\"\",@note\n.4byte 8, 24, 1\n.asciz \"jeprobe\"\n.8byte jeprobe_root, base, {ABI_VERSION}\n"
        );
        text
    }

    pub(in crate::check) fn assemble(name: &str, text: &str) -> Vec<u8> {
        let sample = Sample::new(name, &[("lib.s", text)]);
        let out = sample.0.join("lib.so");
        Cmd::new("cc")
            .args(["-shared", "-nostdlib", "-Wl,-Bsymbolic", "-o"])
            .arg(&out)
            .arg(sample.0.join("lib.s"))
            .run()
            .unwrap();
        std::fs::read(out).unwrap()
    }

    fn one_fault(name: &str, text: &str) -> String {
        let found = faults(&assemble(name, text)).unwrap();
        assert!(!found.is_empty());
        found.join("\n")
    }

    #[test]
    fn the_contract_holds_for_the_good_sample() {
        assert_eq!(faults(&assemble("probes-good", &library())).unwrap(), Vec::<String>::new());
    }

    #[test]
    fn a_long_nop_fails() {
        let text = library().replace("jeprobe_hook_free: nop", "jeprobe_hook_free: .byte 0x0f,0x1f,0x44,0,0");
        assert!(one_fault("probes-nop", &text).contains("jeprobe:free: its place begins with 0x0f"));
    }

    #[test]
    fn a_semaphore_in_bss_or_relro_fails() {
        let bss = library()
            .replace(".section .probes,\"aw\",@progbits", ".section .probes,\"aw\",@nobits")
            .replace("_semaphore: .2byte 0", "_semaphore: .space 2");
        assert!(one_fault("probes-bss", &bss).contains("not file-backed"));
        let relro = library().replace(".section .probes", ".section .data.rel.ro");
        assert!(one_fault("probes-relro", &relro).contains("read-only after relocation"));
    }

    #[test]
    fn a_missing_note_a_zero_base_and_another_version_fail() {
        let text = library().replacen(".asciz \"otel_memory\"", ".asciz \"other\"", 1);
        assert!(one_fault("probes-note", &text).contains("note otel_memory:alloc is missing"));
        let text = library().replace(".section .stapsdt.base", ".section .other");
        assert!(one_fault("probes-base", &text).contains("no .stapsdt.base"));
        let text = library()
            .replace("jeprobe_alloc, base", "jeprobe_alloc, 0")
            .replace("jeprobe_hook_alloc, base", "jeprobe_hook_alloc, 0");
        assert!(one_fault("probes-zero", &text).contains("has base 0x0"));
        let text = library().replace(&format!("base, {ABI_VERSION}\n"), "base, 99\n");
        assert!(one_fault("probes-version", &text).contains("gives version Some(99)"));
        let text = library().replace(".4byte 8, 24, 1", ".4byte 8, 24, 2");
        assert!(one_fault("probes-root", &text).contains("the root's note is missing"));
    }
}
