//! Instructions of a function with their source lines, and source files.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::fs;
use std::rc::Rc;

use rustc_hash::FxHashMap;

use crate::image::{DisasmLine, Image};

use super::address::{Width, parse_hex};
use super::images::{Images, Region};
use super::options::Options;
use super::pattern::Pattern;
use super::reduce::{Rows, Sums};
use super::stop::{Result, Stop, reason};
use super::streams::say;
use super::symbols::{Routine, Symbols, matching_routines};
use super::values::Unit;

/// One instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// As in the profile.
    pub address: u64,
    /// Behind its last byte.
    pub end: u64,
    /// Of the function that is listed; empty and `None` when not known.
    pub file: Rc<str>,
    pub line: Option<u32>,
    pub text: String,
    /// Of the function that was inlined there, if any.
    pub inner_file: Rc<str>,
    pub inner_line: Option<u32>,
}

/// Flat and cumulative values by address.
#[derive(Debug, Default)]
pub struct ByAddress {
    values: BTreeMap<u64, (f64, f64)>,
    pub total: f64,
}

impl ByAddress {
    /// Of rows that are bare addresses.
    pub fn new(rows: &Rows, sums: &Sums) -> ByAddress {
        let values = rows
            .keys
            .iter()
            .enumerate()
            .filter_map(|(at, key)| {
                let cumulative = sums.cumulative[at]?;
                Some((parse_hex(key.as_bytes())?, (sums.flat[at].unwrap_or(0.0), cumulative)))
            })
            .collect();
        ByAddress { values, total: sums.total }
    }

    /// Whether any address of a function has a value, be it 0.
    pub fn touches(&self, routine: &Routine, bias: u64, width: Width) -> bool {
        let (start, end) = (width.add(routine.start, bias), width.add(routine.end, bias));
        start < end && self.values.range(start..end).next().is_some()
    }

    /// Sums over an instruction.
    pub fn of(&self, instruction: &Instruction) -> (f64, f64) {
        if instruction.address >= instruction.end {
            return (0.0, 0.0);
        }
        let range = self.values.range(instruction.address..instruction.end);
        range.fold((0.0, 0.0), |sum, (_, value)| (sum.0 + value.0, sum.1 + value.1))
    }
}

/// How values and addresses are shown.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    pub unit: Unit,
    pub width: Width,
}

/// Code of a profile's images with its values: what listings are made of.
pub struct Code<'a> {
    pub regions: &'a [Region],
    pub values: ByAddress,
    pub style: Style,
    pub options: &'a Options,
    pub images: &'a mut Images,
    pub sources: &'a mut Sources,
}

/// One function of it.
pub struct Function {
    pub routine: Routine,
    pub image: Rc<Image>,
    pub instructions: Vec<Instruction>,
    /// What is subtracted from an address to get the image's.
    pub bias: u64,
}

impl Code<'_> {
    /// Hands on the functions whose names match and that have values, region by region, by name.
    pub fn functions(
        &mut self,
        pattern: &Pattern,
        mut each: impl FnMut(&mut Self, Function) -> Result<()>,
    ) -> Result<()> {
        let (regions, width) = (self.regions, self.style.width);
        for region in regions {
            let bias = region.bias(width);
            for routine in matching_routines(&region.path, pattern, self.options, self.images) {
                if !self.values.touches(&routine, bias, width) {
                    continue;
                }
                let Some(image) = self.images.get(&region.path) else { continue };
                let instructions = disassemble(&image, &routine, bias, width)?;
                each(self, Function { routine, image, instructions, bias })?;
            }
        }
        Ok(())
    }
}

/// The instructions of a function. Lines with a discriminator are passed over, as the original passes over them.
fn disassemble(image: &Image, routine: &Routine, bias: u64, width: Width) -> Result<Vec<Instruction>> {
    let lines = image
        .disassemble(routine.start, routine.end)
        .map_err(|error| Stop::error(format!("cannot disassemble {}: {error}\n", routine.name)))?;
    let (mut file, mut line): (Rc<str>, Option<u32>) = ("".into(), None);
    let mut instructions: Vec<Instruction> = Vec::new();
    for item in lines {
        match item {
            DisasmLine::Location { file: name, line: number, discriminator: 0 } => {
                // What stands before a blank or a colon is not taken for part of the name.
                let name = name.rsplit([' ', '\t', ':']).next().unwrap_or_default();
                if !name.is_empty() {
                    file = name.into();
                    line = Some(number);
                }
            }
            DisasmLine::Location { .. } | DisasmLine::Function(_) | DisasmLine::Symbol { .. } | DisasmLine::Skipped => {
            }
            DisasmLine::Instruction { address, text } => {
                let address = width.add(address, bias);
                if let Some(last) = instructions.last_mut() {
                    last.end = address;
                }
                instructions.push(Instruction {
                    address,
                    end: width.add(routine.end, bias),
                    file: file.clone(),
                    line,
                    text,
                    inner_file: file.clone(),
                    inner_line: line,
                });
            }
        }
    }
    Ok(instructions)
}

/// Gives every instruction the line in the function that is listed, not in one that was inlined.
pub fn use_outer_lines(image: &Image, instructions: &mut [Instruction], bias: u64, width: Width) {
    let addresses: Vec<u64> = instructions.iter().map(|instruction| instruction.address).collect();
    let mut symbols = Symbols::default();
    symbols.add(image, bias, &addresses, width);
    for instruction in instructions {
        let Some([outer, ..]) = symbols.get(instruction.address) else { continue };
        if let Some((file, line)) = outer.line.rsplit_once(':')
            && let Ok(line) = line.parse()
        {
            instruction.file = file.into();
            instruction.line = Some(line);
        }
    }
}

/// Source files, each read once; those that cannot be are reported once.
#[derive(Default)]
pub struct Sources {
    files: FxHashMap<String, Option<Rc<[String]>>>,
}

impl Sources {
    /// Lines with their ends, carriage returns kept.
    pub fn lines(&mut self, file: &str) -> Option<Rc<[String]>> {
        if let Some(known) = self.files.get(file) {
            return known.clone();
        }
        let lines = match fs::read(file) {
            Ok(bytes) => {
                let text = String::from_utf8_lossy(&bytes);
                Some(text.split_inclusive('\n').map(ToOwned::to_owned).collect())
            }
            Err(error) => {
                say(format_args!("{file}: {}\n", reason(&error)));
                None
            }
        };
        self.files.insert(file.to_owned(), lines.clone());
        lines
    }
}

/// A file name for people.
pub fn shown_file(file: &str) -> &str {
    let file = file.strip_prefix("/proc/self/cwd/").unwrap_or(file);
    file.strip_prefix("./").unwrap_or(file)
}

/// An address of the image, without leading zeros.
pub fn shown_address(address: u64, bias: u64, width: Width) -> String {
    match width.sub(address, bias) {
        0 => String::new(),
        inside => format!("{inside:x}"),
    }
}

/// Instruction text without the argument lists and template arguments of the names in it.
pub fn shown_instruction(text: &str) -> String {
    let mut text = text.to_owned();
    while let Some((start, end)) = innermost(&text, '(', ')', |inside, _| !inside.contains('%')) {
        let rest = &text[end..];
        let end = match rest.trim_start().strip_prefix("const") {
            Some(after) => text.len() - after.len(),
            None => end,
        };
        text.replace_range(start..end, "");
    }
    let after_word = |_: &str, before: &str| before.ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
    while let Some((start, end)) = innermost(&text, '<', '>', after_word) {
        text.replace_range(start..end, "");
    }
    text
}

/// The first pair with no such signs inside that `counts`, which is given what is inside and what stands before.
fn innermost(text: &str, open: char, close: char, counts: impl Fn(&str, &str) -> bool) -> Option<(usize, usize)> {
    let mut start = None;
    for (at, sign) in text.char_indices() {
        if sign == open {
            start = Some(at);
        } else if sign == close
            && let Some(from) = start.take()
            && counts(&text[from + 1..at], &text[..from])
        {
            return Some((from, at + 1));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_lose_arguments_but_not_operands() {
        for (text, shown) in [
            ("mov    0x8(%rax),%rdi", "mov    0x8(%rax),%rdi"),
            ("call   401060 <malloc@plt>", "call   401060 <malloc@plt>"),
            ("call   4012 <a::f<int>(int, std::pair<x, y>) const>", "call   4012 <a::f>"),
            ("call   401b <a::b(void (*)(int))+0x8>", "call   401b <a::b+0x8>"),
        ] {
            assert_eq!(shown_instruction(text), shown);
        }
    }

    #[test]
    fn files_and_addresses_for_people() {
        assert_eq!(shown_file("/proc/self/cwd/./a.c"), "a.c");
        assert_eq!(shown_address(0x1000, 0x1000, Width::W16), "");
        assert_eq!(shown_address(0x401175, 0, Width::W16), "401175");
    }
}
