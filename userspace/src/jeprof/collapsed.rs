//! `--collapsed`: one line per stack, outermost function first.
//!
//! Lines are sorted; the original prints them in the order of its hash table.
#![forbid(unsafe_code)]

use std::io::Write;

use super::filter::Named;
use super::stacks::{PcId, Stacks};
use super::stop::Result;
use super::values::whole;

pub fn write(out: &mut impl Write, stacks: &Stacks, named: Named<'_>) -> Result<()> {
    let of_address: Vec<String> = (0..named.pcs.len()).map(|id| frames(id as PcId, named)).collect();
    let mut lines: Vec<String> = stacks
        .iter()
        .map(|(stack, value)| {
            let frames: Vec<&str> = stack.iter().rev().map(|&id| of_address[id as usize].as_str()).collect();
            format!("{} {}\n", frames.join(";"), whole(value))
        })
        .collect();
    lines.sort_unstable();
    for line in lines {
        out.write_all(line.as_bytes())?;
    }
    Ok(())
}

/// Functions of an address, outermost first.
fn frames(id: PcId, named: Named<'_>) -> String {
    let address = named.pcs.address(id);
    let Some(known) = named.symbols.get(address) else { return named.width.text(address) };
    let functions: Vec<String> = known
        .iter()
        .enumerate()
        .map(|(at, name)| {
            let line = if matches!(&*name.line, "?" | ":0") { "??:0" } else { &name.line };
            let full = name.full.text();
            let text = if full == "??" { line } else { &full };
            format!("{text}{}", if at == 0 { "" } else { "[inline]" })
        })
        .collect();
    functions.join(";")
}
