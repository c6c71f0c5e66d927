//! Instructions of one function with what each holds.
//!
//! An address of a stack is that of a call: the instruction that holds the memory is the one it lies in. Files are those that
//! the profile's mappings name, found under the same roots as sources; another build of a file is refused.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Value as Json, json};

use super::dataset::{Dataset, add};
use super::source::{Held, function, places};
use crate::image::{DisasmLine, Image};
use crate::output::Value;

/// Instructions of one function are at most this far apart; more is a symbol table without sizes.
const BYTES_MOST: u64 = 256 << 10;
/// Functions of one name: instances of a template, say.
const RANGES_MOST: usize = 16;

/// The instructions of a function as JSON, or why there are none. Of a difference their numbers are those of after: where an
/// instruction is in another build, nothing tells.
pub(super) fn code(data: &Dataset, base: Option<&Dataset>, name: &str, value: Value, roots: &[PathBuf]) -> Json {
    let mut by_file: BTreeMap<usize, BTreeMap<u64, Held>> = BTreeMap::new();
    let mut errors = Vec::new();
    let places = function(data, name).map(|function| places(data, function)).unwrap_or_default();
    for (address, held) in places.addresses {
        match data.images.iter().position(|image| (image.start..image.end).contains(&address)) {
            // Several mappings of one file are one image.
            Some(at) => {
                let first = data.images.iter().position(|image| image.path == data.images[at].path).unwrap_or(at);
                let image = &data.images[at];
                by_file.entry(first).or_default().insert(address - image.start + image.offset, held);
            }
            None => errors.push(format!("{address:#x} is in no file")),
        }
    }
    let mut parts = Vec::new();
    for (at, offsets) in by_file {
        match ranges(data, at, &offsets, value, roots) {
            Ok(found) => parts.extend(found),
            Err(error) => errors.push(error),
        }
    }
    let remarks: Vec<String> = base
        .map(|base| format!("what {} holds, not what it has more than {}", data.name, base.name))
        .into_iter()
        .collect();
    json!({ "function": name, "parts": parts, "errors": errors, "remarks": remarks })
}

fn open(path: &Path, build_id: &[u8], roots: &[PathBuf]) -> Result<Image, String> {
    let candidates = roots.iter().map(|root| root.join(path.strip_prefix("/").unwrap_or(path)));
    let mut reason = format!("{} is not on this machine", path.display());
    for path in candidates.chain([path.to_owned()]).filter(|path| path.is_file()) {
        match Image::open(&path) {
            Ok(image) if !build_id.is_empty() && image.build_id() != build_id => {
                reason = format!("{} is another build than the profile's", path.display());
            }
            Ok(image) => return Ok(image),
            Err(error) => reason = error.to_string(),
        }
    }
    Err(reason)
}

/// The code of each symbol that the offsets lie in.
fn ranges(
    data: &Dataset,
    at: usize,
    offsets: &BTreeMap<u64, Held>,
    value: Value,
    roots: &[PathBuf],
) -> Result<Vec<Json>, String> {
    let mapped = &data.images[at];
    let image = open(&mapped.path, &mapped.build_id, roots)?;
    let mut by_symbol: BTreeMap<(u64, u64), BTreeMap<u64, Held>> = BTreeMap::new();
    for (&offset, held) in offsets {
        let Some(svma) = image.svma(offset) else { continue };
        let Some(symbol) = image.lookup(svma) else { continue };
        let end = if symbol.next > svma { symbol.next } else { svma + 16 };
        by_symbol.entry((symbol.start, end)).or_default().insert(svma, *held);
    }
    if by_symbol.is_empty() {
        return Err(format!("{} has no symbol there", mapped.path.display()));
    }
    let mut found = Vec::new();
    for ((start, end), held) in by_symbol.into_iter().take(RANGES_MOST) {
        let lines = image
            .disassemble(start, end.min(start + BYTES_MOST))
            .map_err(|error| format!("cannot disassemble {}: {error}", mapped.path.display()))?;
        found.push(json!({ "path": mapped.path.display().to_string(), "lines": rows(&lines, end, &held, value) }));
    }
    Ok(found)
}

/// Rows of `[address, text, own, whole]`, and `[place]` where the source line changes.
fn rows(lines: &[DisasmLine], end: u64, held: &BTreeMap<u64, Held>, value: Value) -> Vec<Json> {
    let starts: Vec<u64> = lines
        .iter()
        .filter_map(|line| match line {
            DisasmLine::Instruction { address, .. } => Some(*address),
            _ => None,
        })
        .chain([end])
        .collect();
    let mut instruction = 0;
    let mut rows = Vec::new();
    for line in lines {
        match line {
            DisasmLine::Location { file, line, .. } => rows.push(json!([format!("{file}:{line}")])),
            DisasmLine::Instruction { address, text } => {
                instruction += 1;
                let mut sum = Held::default();
                for (_, part) in held.range(*address..starts[instruction].max(*address)) {
                    add(&mut sum.flat, &part.flat);
                    add(&mut sum.cumulative, &part.cumulative);
                }
                let (own, whole) = (sum.flat[value as usize].round(), sum.cumulative[value as usize].round());
                rows.push(if own == 0.0 && whole == 0.0 {
                    json!([format!("{address:x}"), text])
                } else {
                    json!([format!("{address:x}"), text, own, whole])
                });
            }
            _ => {}
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::super::source::Held;
    use super::rows;
    use crate::image::DisasmLine;
    use crate::output::Value;

    #[test]
    fn what_an_address_inside_an_instruction_holds_is_the_instructions() {
        let instruction = |address, text: &str| DisasmLine::Instruction { address, text: text.into() };
        let location = DisasmLine::Location { file: "a.c".into(), line: 7, discriminator: 0 };
        let lines = [location, instruction(0x10, "call  f"), instruction(0x15, "ret")];
        let held = |bytes| Held { flat: [0.0; 4], cumulative: [bytes; 4] };
        // A return address minus one lies at the end of the call.
        let rows = rows(&lines, 0x16, &[(0x14, held(5.0)), (0x10, held(2.0))].into(), Value::InuseSpace);
        let expected = serde_json::json!([["a.c:7"], ["10", "call  f", 0.0, 7.0], ["15", "ret"]]);
        assert_eq!(serde_json::Value::from(rows), expected);
    }
}
