//! Debug information: a good program, with bytes of its debug sections replaced.
//!
//! An input is a list of changes: which section (1 byte), where in it (2 bytes), how many bytes (1 byte), the bytes.

#![no_main]

use std::sync::LazyLock;

use jeprobe_fuzz::{ask, file};
use object::{Object as _, ObjectSection as _};

const PROGRAM: &[u8] = include_bytes!("../../../tests/fixtures/report/cpp");

/// Offset and length of each debug section, and some addresses of code.
static PARTS: LazyLock<(Vec<(usize, usize)>, Vec<u64>)> = LazyLock::new(|| {
    let object = object::File::parse(PROGRAM).expect("a program");
    let is_debug = |section: &object::Section| section.name().is_ok_and(|name| name.starts_with(".debug"));
    let range = |section: object::Section| section.file_range().map(|(at, size)| (at as usize, size as usize));
    let sections = object.sections().filter(is_debug).filter_map(range).collect();
    let text = object.section_by_name(".text").expect("code");
    (sections, (text.address()..text.address() + text.size()).step_by(211).collect())
});

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let (sections, addresses) = &*PARTS;
    let mut program = PROGRAM.to_vec();
    let mut rest = bytes;
    while let [section, low, high, length, after @ ..] = rest {
        let (at, size) = sections[usize::from(*section) % sections.len()];
        let from = usize::from(u16::from_le_bytes([*low, *high])) % size.max(1);
        let length = usize::from(*length).min(after.len()).min(size - from.min(size));
        program[at + from..at + from + length].copy_from_slice(&after[..length]);
        rest = &after[length..];
    }
    ask(&file("dwarf", &program), addresses);
});
