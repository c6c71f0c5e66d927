//! x86-64 code as `objdump -C -d -l --no-show-raw-insn` prints it. Decoding is iced's; operands are written as objdump
//! writes them.
#![forbid(unsafe_code)]

use std::fmt::Write as _;
use std::ops::Range;
use std::sync::Arc;

use iced_x86::{Decoder, DecoderOptions, Formatter as _, GasFormatter, Instruction, Mnemonic, OpKind, Register};

use super::codesyms::CodeSymbols;
use super::demangle::demangle;
use super::elf::{Elf, Section};
use super::frames::Innermost;

/// Zero bytes that are left out: so many in a row, or fewer at the end.
const SKIPPED_ZEROES: usize = 8;
const SKIPPED_ZEROES_AT_END: usize = 3;

const LEGACY_PREFIXES: &[u8] = &[0x66, 0x67, 0x2e, 0x36, 0x3e, 0x26, 0x64, 0x65, 0xf0, 0xf2, 0xf3];

/// One line of a disassembly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DisasmLine {
    /// `<NAME>:` or `<NAME+0x10>:` before the code at an address.
    Symbol { address: u64, name: String },
    /// The function that the following lines are of, as printed: `main()` or a demangled name.
    Function(String),
    /// The source of the following instructions.
    Location { file: String, line: u32, discriminator: u32 },
    /// `text` is what stands after the address and a tab.
    Instruction { address: u64, text: String },
    /// Zero bytes that were left out.
    Skipped,
}

/// Instructions of a range, in all sections of code that it touches.
pub(super) fn disassemble(
    elf: &Elf,
    symbols: &CodeSymbols,
    frame: &mut dyn FnMut(u64) -> Option<Innermost>,
    range: Range<u64>,
) -> Vec<DisasmLine> {
    let mut lines = Vec::new();
    let mut previous = Previous::default();
    for (number, section) in elf.sections.iter().enumerate() {
        if !section.is_code() || !section.has_contents() {
            continue;
        }
        let end = section.address.saturating_add(elf.stored(section).len() as u64).min(range.end);
        let mut writer =
            Writer { elf, symbols, section, number: number as u32, lines: &mut lines, previous: &mut previous };
        let mut address = section.address.max(range.start);
        while address < end {
            let symbol = symbols.of_section(number as u32, address);
            let next = match symbol {
                Some(symbol) if symbol.address > address => Some(symbol),
                _ => symbols.following(number as u32, address),
            };
            let stop = next.map_or(end, |next| next.address).min(end);
            let name = symbol.map_or_else(|| section.name.clone(), |symbol| shown_name(&symbol.name));
            let name = with_distance(&name, symbol.map_or(section.address, |symbol| symbol.address), address);
            writer.lines.push(DisasmLine::Symbol { address, name });
            let is_data = symbol.is_some_and(|symbol| symbol.address <= address && symbol.is_data());
            writer.block(frame, address..stop, is_data);
            address = stop;
        }
    }
    lines
}

/// Demangled as objdump shows it.
fn shown_name(linker: &str) -> String {
    demangle(linker).into_owned()
}

fn with_distance(name: &str, base: u64, address: u64) -> String {
    match address.wrapping_sub(base) {
        0 => name.to_owned(),
        _ if address > base => format!("{name}+{:#x}", address - base),
        _ => format!("{name}-{:#x}", base - address),
    }
}

/// What was printed last, of functions and lines.
#[derive(Debug, Default)]
struct Previous {
    function: Option<Arc<str>>,
    line: u32,
    discriminator: u32,
}

struct Writer<'a> {
    elf: &'a Elf,
    symbols: &'a CodeSymbols,
    section: &'a Section,
    number: u32,
    lines: &'a mut Vec<DisasmLine>,
    previous: &'a mut Previous,
}

impl Writer<'_> {
    fn block(&mut self, frame: &mut dyn FnMut(u64) -> Option<Innermost>, range: Range<u64>, is_data: bool) {
        let from = (range.start - self.section.address) as usize;
        let to = (range.end - self.section.address) as usize;
        let Some(data) = self.elf.stored(self.section).get(from..to) else { return };
        let mut formatter = formatter();
        let mut at = 0;
        while at < data.len() {
            let zeroes = data[at..].iter().take_while(|byte| **byte == 0).count();
            let to_end = at + zeroes == data.len();
            if zeroes >= SKIPPED_ZEROES || (zeroes > 0 && to_end && zeroes < SKIPPED_ZEROES_AT_END) {
                self.lines.push(DisasmLine::Skipped);
                at += if to_end { zeroes } else { zeroes & !3 };
                continue;
            }
            let address = range.start + at as u64;
            self.source(frame(address));
            if is_data {
                let bytes = &data[at..data.len().min(at + 16)];
                let show = |byte: &u8| if (b' '..=b'~').contains(byte) { char::from(*byte) } else { '.' };
                self.lines.push(DisasmLine::Instruction { address, text: bytes.iter().map(show).collect() });
                at += bytes.len();
                continue;
            }
            let mut decoder = Decoder::with_ip(64, &data[at..], address, DecoderOptions::NONE);
            let instruction = decoder.decode();
            if instruction.is_invalid() {
                self.lines.push(DisasmLine::Instruction { address, text: "(bad)".into() });
                at += 1;
                continue;
            }
            let text = self.text(&mut formatter, &instruction, &data[at..at + instruction.len()]);
            self.lines.push(DisasmLine::Instruction { address, text });
            at += instruction.len();
        }
    }

    fn source(&mut self, innermost: Option<Innermost>) {
        let Some(Innermost { name, file, line, discriminator }) = innermost else { return };
        if let Some(name) = name.filter(|name| self.previous.function.as_ref() != Some(name)) {
            let shown = demangle(&name);
            let is_mangled = *shown != *name;
            let shown = if is_mangled { shown.into_owned() } else { format!("{name}()") };
            self.lines.push(DisasmLine::Function(shown));
            self.previous.function = Some(name);
            self.previous.line = u32::MAX;
        }
        if line > 0 && (line != self.previous.line || discriminator != self.previous.discriminator) {
            let file = file.as_deref().filter(|file| !file.is_empty()).unwrap_or("???").to_owned();
            self.lines.push(DisasmLine::Location { file, line, discriminator });
        }
        if line > 0 {
            self.previous.line = line;
        }
        self.previous.discriminator = discriminator;
    }

    fn text(&self, formatter: &mut GasFormatter, instruction: &Instruction, bytes: &[u8]) -> String {
        let mut mnemonic = String::new();
        formatter.format_mnemonic(instruction, &mut mnemonic);
        let mut operands = String::new();
        let mut comment = None;
        let skipped = u32::from(shifts_by_one(instruction));
        for operand in skipped..formatter.operand_count(instruction) {
            if operand > skipped {
                operands.push(',');
            }
            let index = formatter.get_instruction_operand(instruction, operand).ok().flatten();
            match index.map(|index| instruction.op_kind(index)) {
                Some(OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64) => {
                    operands.push_str(&self.target(instruction.near_branch_target()));
                }
                Some(OpKind::Memory) => {
                    if matches!(instruction.mnemonic(), Mnemonic::Call | Mnemonic::Jmp) {
                        operands.push('*');
                    }
                    memory(instruction, &mut operands);
                    if instruction.is_ip_rel_memory_operand() {
                        comment = Some(instruction.ip_rel_memory_address());
                    }
                }
                _ => {
                    let _only_bad_operand_numbers = formatter.format_operand(instruction, &mut operands, operand);
                }
            }
        }
        implied_operands(instruction, &mut operands);
        let mnemonic = mnemonic_as_objdump(&mnemonic, instruction, bytes);
        let mut text = if operands.is_empty() { mnemonic } else { format!("{mnemonic:<6} {operands}") };
        if let Some(address) = comment {
            let _infallible = write!(text, "        # {}", self.target(address));
        }
        text
    }

    /// `1050 <puts@plt>`.
    fn target(&self, address: u64) -> String {
        let symbol = self.symbols.nearest(self.number, address);
        let is_exact = symbol.is_some_and(|symbol| symbol.address == address);
        let is_linkage = symbol.is_some_and(|symbol| symbol.name.ends_with("@plt"));
        let name = match (self.symbols.relocated(address), symbol) {
            (Some((name, own)), _) if !is_exact && !is_linkage => {
                with_distance(&shown_name(name), own.unwrap_or(address), address)
            }
            (_, Some(symbol)) => with_distance(&shown_name(&symbol.name), symbol.address, address),
            (_, None) => with_distance(&self.section.name, self.section.address, address),
        };
        format!("{address:x} <{name}>")
    }
}

fn formatter() -> GasFormatter {
    let mut formatter = GasFormatter::new();
    let options = formatter.options_mut();
    options.set_hex_prefix("0x");
    options.set_uppercase_hex(false);
    options.set_small_hex_numbers_in_decimal(false);
    options.set_space_after_operand_separator(false);
    options.set_show_branch_size(false);
    options.set_use_pseudo_ops(true);
    options.set_always_show_segment_register(true);
    formatter
}

/// `-0x8(%rbp,%rax,4)`.
fn memory(instruction: &Instruction, text: &mut String) {
    if matches!(instruction.segment_prefix(), Register::FS | Register::GS) {
        let _infallible = write!(text, "{}:", register(instruction.segment_prefix()));
    }
    let (base, index) = (instruction.memory_base(), instruction.memory_index());
    let is_bare = base == Register::None && index == Register::None;
    let displacement = instruction.memory_displacement64();
    if is_bare {
        let _infallible = write!(text, "{displacement:#x}");
    } else {
        let displacement = if instruction.is_ip_rel_memory_operand() {
            displacement.wrapping_sub(instruction.next_ip()) as i64
        } else if base.is_gpr32() || index.is_gpr32() {
            i64::from(displacement as i32)
        } else {
            displacement as i64
        };
        if instruction.memory_displ_size() > 0 {
            let sign = if displacement < 0 { "-" } else { "" };
            let _infallible = write!(text, "{sign}{:#x}", displacement.unsigned_abs());
        }
        text.push('(');
        if base != Register::None {
            text.push_str(&register(base));
        }
        if index != Register::None {
            let _infallible = write!(text, ",{},{}", register(index), instruction.memory_index_scale());
        }
        text.push(')');
    }
    if instruction.is_broadcast() {
        // `Broadcast512_Float64`: width of the vector and, by its size, of one element.
        let name = format!("{:?}", instruction.memory_size());
        let digits: String =
            name.chars().skip_while(|c| !c.is_ascii_digit()).take_while(char::is_ascii_digit).collect();
        let element = instruction.memory_size().size() * 8;
        let _infallible = write!(text, "{{1to{}}}", digits.parse().unwrap_or(0) / element.max(1));
    }
    if instruction.has_op_mask() && instruction.op0_kind() == OpKind::Memory {
        let _infallible = write!(text, "{{{}}}", register(instruction.op_mask()));
    }
}

fn register(register: Register) -> String {
    format!("%{}", format!("{register:?}").to_ascii_lowercase())
}

/// Shifts and rotations of the short form, whose count is not written.
fn shifts_by_one(instruction: &Instruction) -> bool {
    use Mnemonic::{Rcl, Rcr, Rol, Ror, Sal, Sar, Shl, Shr};
    matches!(instruction.mnemonic(), Rcl | Rcr | Rol | Ror | Sal | Sar | Shl | Shr)
        && format!("{:?}", instruction.code()).ends_with("_1")
}

/// Operands that iced leaves out and objdump writes.
fn implied_operands(instruction: &Instruction, operands: &mut String) {
    use Mnemonic::{Faddp, Fdivp, Fdivrp, Fmulp, Fsubp, Fsubrp, Fxch, Imul};
    match instruction.mnemonic() {
        Imul if instruction.op_count() == 3 && operands.matches('%').count() == 1 && !operands.contains('(') => {
            let _infallible = write!(operands, ",{}", register(instruction.op0_register()));
        }
        Faddp | Fdivp | Fdivrp | Fmulp | Fsubp | Fsubrp if operands.is_empty() => operands.push_str("%st,%st(1)"),
        Fxch if operands.is_empty() => operands.push_str("%st(1)"),
        _ => {}
    }
}

/// Where iced and objdump name an instruction differently: prefixes without effect, and sizes that go without saying.
fn mnemonic_as_objdump(mnemonic: &str, instruction: &Instruction, bytes: &[u8]) -> String {
    use Mnemonic::{Call, Jmp, Lea, Nop, Pop, Push, Ret};
    let (prefixes, plain) = mnemonic.rsplit_once(' ').unwrap_or(("", mnemonic));
    let is_legacy = |byte: &&u8| LEGACY_PREFIXES.contains(*byte);
    let legacy = bytes.iter().take_while(is_legacy);
    let (wide, rest) = legacy.fold((0, 0), |(wide, rest), byte| (wide + usize::from(*byte == 0x66), rest + 1));
    let has_rex_w = bytes.get(rest).is_some_and(|byte| byte & 0xf8 == 0x48);
    let mut text = String::new();
    match instruction.mnemonic() {
        Nop if instruction.op_count() > 0 => {
            text.push_str(&"data16 ".repeat(wide.saturating_sub(1)));
            if instruction.segment_prefix() == Register::CS {
                text.push_str("cs ");
            }
        }
        Call | Jmp if !instruction.is_call_near_indirect() && !instruction.is_jmp_near_indirect() => {
            text.push_str(&"data16 ".repeat(wide));
            text.push_str(if has_rex_w && instruction.mnemonic() == Call { "rex.W " } else { "" });
        }
        Lea if wide > 0 && has_rex_w => text.push_str(&"data16 ".repeat(wide)),
        _ => {}
    }
    for prefix in prefixes.split(' ').filter(|prefix| !prefix.is_empty()) {
        text.push_str(match prefix {
            "repe" => "repz",
            "repne" => "repnz",
            "rep" if instruction.mnemonic() == Ret => "repz",
            other => other,
        });
        text.push(' ');
    }
    let plain = match instruction.mnemonic() {
        Call | Jmp | Push | Pop if instruction.op0_kind() == OpKind::Memory => plain.strip_suffix('q').unwrap_or(plain),
        _ => plain,
    };
    text.push_str(plain);
    text
}
