//! A heap file that needs no other file: names before it, in the form that jeprof reads (see [`crate::input::symbolized`]).
//!
//! Every address that a stack holds and that has a name is listed, those of the allocator too, since readers cut them by name.
//! Two hyphens in a name would end it, so a blank goes between them.
#![forbid(unsafe_code)]

use std::io::{self, Write};

use super::heap_v2;
use crate::model::Profile;
use crate::symbolize::{Site, Symbols};

/// Writes the profile with its names. Every name is one that tables print.
pub fn write(profile: &Profile, symbols: &Symbols, mut out: impl Write) -> io::Result<()> {
    let mut sites: Vec<(u64, &Site)> = symbols.iter().filter(|(_, site)| !site.functions.is_empty()).collect();
    sites.sort_unstable_by_key(|(avma, _)| *avma);
    writeln!(out, "--- symbol")?;
    let program = profile.program().map_or_else(|| "unknown".to_owned(), |path| path.to_string_lossy().into_owned());
    writeln!(out, "binary={}", one_line(&program))?;
    for (avma, site) in &sites {
        let names: Vec<String> =
            site.functions.iter().rev().map(|function| one_line(&function.short).replace("--", "- -")).collect();
        writeln!(out, "{avma:#018x} {}", names.join("--"))?;
    }
    writeln!(out, "---\n--- heap")?;
    let sources = sites.iter().flat_map(|(avma, site)| {
        let known = site.functions.iter().any(|function| !function.location.is_empty());
        let functions = if known { site.functions.as_slice() } else { &[] };
        functions.iter().map(move |function| {
            let location = if function.location.is_empty() { "??:0" } else { &function.location };
            format!("# source {avma:x} {}\n", one_line(location))
        })
    });
    heap_v2::write_with(profile, sources, out)
}

fn one_line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}
