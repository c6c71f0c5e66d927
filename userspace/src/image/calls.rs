//! Functions at an address by their linker names: what is known, without addr2line's habits.
//!
//! Inlined functions stand under the name that the debug information has for them, and the containing function under that and
//! its symbol's: which of the two is shown is up to the reader.
#![forbid(unsafe_code)]

use std::sync::Arc;

use super::dwarf::Link;
use super::frames::Place;

/// One function at an address. An address inside inlined calls has several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// As the debug information has it; of a containing function without debug information, its symbol.
    pub name: Arc<str>,
    /// `name` is the linker's: mangled, where its language does so.
    pub is_linkage: bool,
    /// Symbol of the containing function and its address.
    pub symbol: Option<(Arc<str>, u64)>,
    /// `None` when unknown.
    pub file: Option<Arc<str>>,
    /// 0 = unknown.
    pub line: u32,
    /// Start of the function (svma); 0 = unknown.
    pub start: u64,
    pub is_inlined: bool,
}

impl Call {
    /// The functions of a place, innermost first; empty when none has a name.
    pub(super) fn of(place: Place) -> Vec<Call> {
        let Place { found, symbol } = place;
        let (mut file, mut line) = found.line.map_or((None, 0), |line| (line.file, line.number));
        let mut calls = Vec::new();
        for link in found.chain {
            // What has no name leaves its place in the source to its caller.
            let Some(name) = link.name.filter(|name| !name.is_empty()) else { continue };
            let Link { is_linkage, low, is_inlined, .. } = link;
            calls.push(Call { name, is_linkage, symbol: None, file, line, start: low, is_inlined });
            (file, line) = (link.call_file, link.call_line);
        }
        let Some(symbol) = symbol.filter(|symbol| !symbol.name.is_empty()) else { return calls };
        match calls.last_mut().filter(|call| !call.is_inlined) {
            Some(outer) => outer.symbol = Some((symbol.name, symbol.address)),
            None => calls.push(Call {
                is_linkage: true,
                symbol: Some((symbol.name.clone(), symbol.address)),
                name: symbol.name,
                file: file.or(symbol.file),
                line,
                start: symbol.address,
                is_inlined: false,
            }),
        }
        calls
    }
}
