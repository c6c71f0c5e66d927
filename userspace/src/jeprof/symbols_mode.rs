//! `--symbols`: names of the addresses on stdin.
//!
//! A line with a hexadecimal number behind `0x` is an address (the first counts), every other line belongs to the memory
//! map. One short name per address, in order, `??` for those without.
#![forbid(unsafe_code)]

use std::io::{Read, Write};

use regex::bytes::Regex;

use super::address::{Width, parse_hex};
use super::images::{Images, regions};
use super::options::Options;
use super::stop::{Result, Stop, reason};
use super::symbols::Symbols;

pub fn run(
    out: &mut impl Write,
    mut input: impl Read,
    program: &str,
    width: Width,
    options: &Options,
    images: &mut Images,
) -> Result<()> {
    let mut text = Vec::new();
    input.read_to_end(&mut text).map_err(|error| Stop::error(format!("stdin: {}\n", reason(&error))))?;
    text.retain(|&byte| byte != b'\r');
    let shape = Regex::new(r"(?i-u)\b0x([0-9a-f]+)\b").expect("a fixed pattern");
    let (mut addresses, mut map) = (Vec::new(), Vec::new());
    for (number, line) in text.split(|&byte| byte == b'\n').enumerate() {
        let Some(found) = shape.captures(line) else {
            map.push(line.to_vec());
            continue;
        };
        let Some(address) = parse_hex(&found[1]) else {
            let shown = String::from_utf8_lossy(&found[0]).into_owned();
            return Err(Stop::error(format!("stdin:{}: '{shown}' is longer than 64 bits\n", number + 1)));
        };
        addresses.push(address);
    }
    let largest = addresses.iter().copied().max().unwrap_or(0);
    let regions = regions(program, &map, largest, width, options, images);
    let mut sorted = addresses.clone();
    sorted.sort_unstable();
    sorted.dedup();
    let symbols = Symbols::from_images(sorted, &regions, width, options, images)?;
    for address in addresses {
        let name = symbols.get(address).and_then(<[_]>::first).map_or("??", |name| &*name.short);
        writeln!(out, "{}", if name.is_empty() || name == "0" { "??" } else { name })?;
    }
    Ok(())
}
