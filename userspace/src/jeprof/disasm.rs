//! `--disasm`: instructions of functions between their source lines, values per instruction and per line.
#![forbid(unsafe_code)]

use std::io::Write;

use super::code::{Code, Function, Sources, Style, shown_address, shown_instruction};
use super::pattern::Pattern;
use super::stop::Result;
use crate::symbolize::name::shorten;

/// Files with longer names are cut at their beginning.
const LONGEST_NAME: usize = 57;

pub fn write(out: &mut impl Write, code: &mut Code<'_>, expression: &str) -> Result<()> {
    let pattern = Pattern::new(expression, "--disasm")?;
    code.functions(&pattern, |code, listed| function(out, code, &listed))
}

fn function(
    out: &mut impl Write,
    Code { values, style: Style { unit, width }, sources, .. }: &mut Code<'_>,
    Function { routine, instructions, bias, .. }: &Function,
) -> Result<()> {
    let counts: Vec<(f64, f64)> = instructions.iter().map(|instruction| values.of(instruction)).collect();
    let add = |sum: (f64, f64), value: &(f64, f64)| (sum.0 + value.0, sum.1 + value.1);
    let sum = counts.iter().fold((0.0, 0.0), add);
    let share = if values.total == 0.0 { 0.0 } else { sum.1 * 100.0 / values.total };
    writeln!(out, "ROUTINE ====================== {}", shorten(&routine.name))?;
    writeln!(
        out,
        "{:>6} {:>6} {} (flat, cumulative) {share:.1}% of total",
        unit.text(sum.0),
        unit.text(sum.1),
        unit.name()
    )?;
    let mut file: &str = "";
    let mut at = 0;
    while at < instructions.len() {
        let first = &instructions[at];
        if *first.file != *file {
            file = &first.file;
            writeln!(out, "-------------------- {}", shortened(file.strip_prefix("./").unwrap_or(file)))?;
        }
        let run = instructions[at..].iter().take_while(|next| next.line == first.line).count();
        let of_run = counts[at..at + run].iter().fold((0.0, 0.0), add);
        if let Some(line) = first.line
            && let Some(text) = source_line(sources, file, line)
        {
            // A blank line loses its end with the rest.
            write!(
                out,
                "{:>6} {:>6} {line:>5}: {}",
                unit.text_or(of_run.0, "."),
                unit.text_or(of_run.1, "."),
                text.trim_ascii_start()
            )?;
        }
        for (instruction, count) in instructions[at..at + run].iter().zip(&counts[at..]) {
            writeln!(
                out,
                "{:>6} {:>6}    {:>8}: {:>6}",
                unit.text_or(count.0, "."),
                unit.text_or(count.1, "."),
                shown_address(instruction.address, *bias, *width),
                shown_instruction(&instruction.text)
            )?;
        }
        at += run;
    }
    Ok(())
}

fn source_line(sources: &mut Sources, file: &str, line: u32) -> Option<String> {
    let lines = sources.lines(file)?;
    let at = (line as usize).checked_sub(1)?;
    lines.get(at).cloned()
}

/// The last 55 bytes of a long name, from a character's beginning on.
fn shortened(name: &str) -> String {
    if name.len() <= LONGEST_NAME {
        return name.to_owned();
    }
    let mut start = name.len() - 55;
    while !name.is_char_boundary(start) {
        start += 1;
    }
    format!("...{}", &name[start..])
}
