//! Argument places of `SystemTap`-style notes on x86-64, as text and as what the kernel programs read.
//!
//! A note lists its arguments parted by blanks, each `SIZE@PLACE`; a negative size means signed. Places:
//!
//! | text | meaning |
//! |---|---|
//! | `8@%rdi`, `-4@%esi` | register, also by the name of its low part |
//! | `8@$4096` | constant |
//! | `8@-24(%rbp)`, `8@(%rax)` | memory at a register plus displacement |
//!
//! Places with an index register or relative to the instruction are refused: no compiler was seen to choose them for
//! these probes, and a wrong number is worse than none.
#![forbid(unsafe_code)]

use jeprobe_abi::keys::{ARG_CONSTANT, ARG_MEMORY, ARG_NONE, ARG_REGISTER, Arg, SITE_ARGS, Site};

/// Byte offset in the kernel's `pt_regs` and the names of a register's parts: 64, 32, 16, 8 bits.
const REGISTERS: [(u32, [&str; 4]); 16] = [
    (0, ["r15", "r15d", "r15w", "r15b"]),
    (8, ["r14", "r14d", "r14w", "r14b"]),
    (16, ["r13", "r13d", "r13w", "r13b"]),
    (24, ["r12", "r12d", "r12w", "r12b"]),
    (32, ["rbp", "ebp", "bp", "bpl"]),
    (40, ["rbx", "ebx", "bx", "bl"]),
    (48, ["r11", "r11d", "r11w", "r11b"]),
    (56, ["r10", "r10d", "r10w", "r10b"]),
    (64, ["r9", "r9d", "r9w", "r9b"]),
    (72, ["r8", "r8d", "r8w", "r8b"]),
    (80, ["rax", "eax", "ax", "al"]),
    (88, ["rcx", "ecx", "cx", "cl"]),
    (96, ["rdx", "edx", "dx", "dl"]),
    (104, ["rsi", "esi", "si", "sil"]),
    (112, ["rdi", "edi", "di", "dil"]),
    (152, ["rsp", "esp", "sp", "spl"]),
];

/// Parses the arguments of a note; at least `needed`, at most [`SITE_ARGS`] are kept. `None` when one is not
/// understood.
pub(super) fn parse(text: &str, needed: usize) -> Option<Site> {
    let mut site = Site::default();
    let mut count = 0;
    for (slot, word) in site.args.iter_mut().zip(text.split_whitespace()) {
        *slot = parse_arg(word)?;
        count += 1;
    }
    debug_assert!(needed <= SITE_ARGS);
    (count >= needed).then_some(site)
}

fn parse_arg(word: &str) -> Option<Arg> {
    let (size, place) = word.split_once('@')?;
    let size: i32 = size.parse().ok()?;
    let bits = match size.unsigned_abs() {
        bytes @ (1 | 2 | 4 | 8) => bytes * 8,
        _ => return None,
    };
    let base = Arg { bits, signed: u32::from(size < 0), kind: ARG_NONE, ..Arg::default() };
    if let Some(constant) = place.strip_prefix('$') {
        return Some(Arg { kind: ARG_CONSTANT, value: number(constant)?, ..base });
    }
    if let Some(name) = place.strip_prefix('%') {
        return Some(Arg { kind: ARG_REGISTER, register: register(name)?, ..base });
    }
    let (displacement, rest) = place.split_once('(')?;
    let name = rest.strip_suffix(')')?.strip_prefix('%')?;
    let value = if displacement.is_empty() { 0 } else { number(displacement)? };
    Some(Arg { kind: ARG_MEMORY, register: register(name)?, value, ..base })
}

fn register(name: &str) -> Option<u32> {
    REGISTERS.iter().find(|(_, names)| names.contains(&name)).map(|(offset, _)| *offset)
}

/// Decimal or `0x` hexadecimal, with a sign; constants above `i64::MAX` keep their bits.
fn number(text: &str) -> Option<i64> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let value = match digits.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok()?,
        None => digits.parse::<u64>().ok()?,
    };
    Some(if negative { (value as i64).wrapping_neg() } else { value as i64 })
}

#[cfg(test)]
mod tests {
    use super::parse;
    use jeprobe_abi::keys::{ARG_CONSTANT, ARG_MEMORY, ARG_NONE, ARG_REGISTER, Arg};

    #[test]
    fn registers_constants_and_memory() {
        let site = parse("8@%rdi -4@-24(%rbp) 8@$0x1000", 3).expect("three places");
        assert_eq!(site.args[0], Arg { value: 0, kind: ARG_REGISTER, register: 112, bits: 64, signed: 0 });
        assert_eq!(site.args[1], Arg { value: -24, kind: ARG_MEMORY, register: 32, bits: 32, signed: 1 });
        assert_eq!(site.args[2], Arg { value: 4096, kind: ARG_CONSTANT, register: 0, bits: 64, signed: 0 });
    }

    #[test]
    fn low_parts_name_their_register_and_bare_parentheses_have_no_displacement() {
        let site = parse("4@%r8d 8@(%rax)", 2).expect("two places");
        assert_eq!((site.args[0].register, site.args[0].bits), (72, 32));
        assert_eq!((site.args[1].register, site.args[1].value), (80, 0));
        assert_eq!(site.args[2].kind, ARG_NONE);
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for text in ["8@8(%rax,%rbx,4)", "8@sym(%rip)", "3@%rdi", "8@%ah", "8%rdi", "8@$x", "x@%rdi", "8@4(%rdi"] {
            assert_eq!(parse(text, 1), None, "{text}");
        }
        assert_eq!(parse("8@%rdi", 2), None, "too few");
    }

    #[test]
    fn further_arguments_are_left_out() {
        assert!(parse("8@%rdi 8@%rsi 8@%rdx 8@whatever", 3).is_some());
    }
}
