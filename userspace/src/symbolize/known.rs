//! Names of a whole profile: those that it brings itself, and what files say of the other addresses.
//!
//! Short names that jeprof marks by address (`f@1180`) are told apart by their arguments where they have some, and are one name
//! where several builds of a file are put together or compared: an address says nothing there.
#![forbid(unsafe_code)]

use std::collections::HashMap;

use super::cache::{Function, Site, Symbols};
use super::files::Sources;
use super::resolve;
use crate::model::{Named, Profile};

/// Names of all addresses: those that the profile brings, else looked up in files.
pub fn name_all(profile: &Profile, sources: &Sources) -> Symbols {
    let mut symbols = resolve(profile, sources);
    // Of short names that the file cut off several complete ones: none.
    let mut shared: HashMap<String, Option<&str>> = HashMap::new();
    let is_cut = |named: &&Named| named.full != named.short && named.full.contains('(');
    for named in profile.names().values().flatten().filter(is_cut) {
        let full = shared.entry(named.short.clone()).or_insert(Some(&named.full));
        *full = full.filter(|full| *full == named.full);
    }
    for (&avma, functions) in profile.names() {
        let label = profile.mappings().find(avma).map_or_else(
            || format!("{avma:016x}"),
            |mapping| format!("{}+{:#x}", mapping.short_name(), mapping.file_offset(avma)),
        );
        let mut functions: Vec<_> = functions.iter().filter(|named| !named.short.is_empty()).cloned().collect();
        for named in &mut functions {
            if shared.get(&named.short).is_some_and(Option::is_none) {
                named.short.clone_from(&named.full);
            }
        }
        let is_allocator = profile.is_allocator(avma);
        symbols.insert(avma, Site { is_allocator, ..site(&functions, label) });
    }
    let rebuilt = profile.mappings().rebuilt();
    full_names_where(symbols, |avma, function| {
        // Overloads and instances of templates have arguments that tell them apart; static functions have their address.
        function.full != function.short && Some(function.full.as_str()) != marked(&function.short)
            || profile
                .mappings()
                .find(avma)
                .and_then(|mapping| mapping.path.file_name())
                .is_some_and(|name| rebuilt.contains(name))
    })
}

/// Names that are the same in every build: those of profiles that are compared.
pub fn name_across_builds(profile: &Profile, sources: &Sources) -> Symbols {
    full_names_where(name_all(profile, sources), |_, _| true)
}

/// A name without the address that marks it.
fn marked(short: &str) -> Option<&str> {
    let (name, start) = short.rsplit_once('@')?;
    u64::from_str_radix(start, 16).ok()?;
    Some(name)
}

/// Overloads under their complete name instead of their address, which differs from build to build.
fn full_names_where(mut symbols: Symbols, is_chosen: impl Fn(u64, &Function) -> bool) -> Symbols {
    let bare = |function: &Function| {
        let name = marked(&function.short)?;
        // A file that brings its names brings the marked ones alone.
        Some(if function.full == function.short { name.to_owned() } else { function.full.clone() })
    };
    let mut renamed = Vec::new();
    for (avma, site) in symbols.iter() {
        if site.functions.iter().any(|function| bare(function).is_some() && is_chosen(avma, function)) {
            let mut site = site.clone();
            for function in &mut site.functions {
                if let Some(name) = bare(function).filter(|_| is_chosen(avma, function)) {
                    function.short = name;
                }
            }
            renamed.push((avma, site));
        }
    }
    for (avma, site) in renamed {
        symbols.insert(avma, site);
    }
    symbols
}

/// The symbols that a profile's own names are.
pub fn own_symbols(profile: &Profile) -> Symbols {
    let mut symbols = Symbols::default();
    for (&avma, functions) in profile.names() {
        symbols.insert(avma, site(functions, String::new()));
    }
    symbols
}

/// A site from the names that a file brings.
fn site(functions: &[Named], label: String) -> Site {
    let last = functions.len().saturating_sub(1);
    let functions = functions.iter().enumerate().map(|(place, named)| Function {
        full: named.full.clone(),
        short: named.short.clone(),
        location: if named.file.is_empty() { String::new() } else { format!("{}:{}", named.file, named.line) },
        is_inlined: place < last,
    });
    // Names that were told apart once are not told apart again.
    Site { functions: functions.collect(), label, is_rust: true, ..Site::default() }
}
