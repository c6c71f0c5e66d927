//! Layers: data and calls flow one way.
//!
//! A folder's README lists its files under the heading `## Layers`, one bullet a line, lowest layer first:
//!
//! ```text
//! - `ptr.rs` — typed pointers
//! - `sys/mod.rs`, `sys/{linux,mock}.rs` — system calls
//! ```
//!
//! A file may name modules of the lines above its own and those to its left on its own line. `lib.rs` and `main.rs`
//! (and files in `bin/`) are not listed and may use all. `mod.rs` may use all; unless it is listed it counts as the
//! last file of its folder, so that its re-exports do not lead around the order.
//!
//! Read are `crate::` and `super::` paths, in `use` trees and in code; test modules are left out. A name that only
//! `lib.rs` provides is a breach too, except for a macro, which has no other path.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;

use super::{files, read, shown, source};

/// README with the list, and the folder its paths start from.
const CRATES: &[(&str, &str)] = &[
    ("allocator/README.md", "allocator/src"),
    ("ebpf/README.md", "ebpf/src"),
    ("ebpf/common/README.md", "ebpf/common/src"),
    ("userspace/README.md", "userspace/src"),
];

pub(super) fn check(root: &Path) -> Result<Vec<String>> {
    let mut breaches = Vec::new();
    for (readme, folder) in CRATES {
        breaches.extend(check_crate(root, readme, folder)?);
    }
    Ok(breaches)
}

/// Place in the order: line of the list, position on the line. Files may use smaller places.
type Place = (usize, usize);

struct Layers {
    /// File, relative to the crate's `src`, to its place.
    places: BTreeMap<String, Place>,
    readme: String,
}

impl Layers {
    fn place(&self, file: &str) -> Option<Place> {
        if let Some(place) = self.places.get(file) {
            return Some(*place);
        }
        // An unlisted mod.rs stands after all of its folder.
        let folder = file.strip_suffix("mod.rs")?;
        self.places
            .iter()
            .filter(|(name, _)| name.starts_with(folder))
            .map(|(_, place)| *place)
            .max()
            .map(|place| (place.0, place.1 + 1))
    }
}

fn check_crate(root: &Path, readme: &str, folder: &str) -> Result<Vec<String>> {
    if !root.join(readme).exists() {
        return Ok(vec![format!("{readme}:1: layers: no such file, so {folder} has no layers")]);
    }
    let mut breaches = Vec::new();
    let layers = parse(readme, &read(&root.join(readme))?);
    if layers.places.is_empty() {
        return Ok(vec![format!("{readme}:1: layers: no bullets under a `## Layers` heading")]);
    }
    let src = root.join(folder);
    let sources = files(&src, &["rs"])?;
    let names: Vec<String> =
        sources.iter().map(|file| file.strip_prefix(&src).unwrap_or(file).to_string_lossy().into_owned()).collect();
    for name in layers.places.keys().filter(|name| !names.contains(name)) {
        breaches.push(format!("{readme}:{}: layers: `{name}` is listed but does not exist", layers.places[name].0));
    }
    for (file, name) in sources.iter().zip(&names) {
        if is_top(name) {
            continue;
        }
        let Some(place) = layers.place(name) else {
            breaches.push(format!("{}:1: layers: not listed in {}", shown(root, file), layers.readme));
            continue;
        };
        if name.ends_with("mod.rs") {
            continue;
        }
        let whole = source::code_only(&read(file)?);
        let code = source::without_tests(&whole);
        for (at, path) in paths(code, name) {
            let line = source::line_of(code, at);
            let here = format!("{}:{line}: layers:", shown(root, file));
            match target(&path, &names) {
                Some(used) if used == *name => {}
                Some(used) => match layers.place(&used) {
                    Some(other) if other < place => {}
                    Some(_) => breaches.push(format!("{here} uses `{used}`, which is not above it in {readme}")),
                    // Reported once, at that file.
                    None => {}
                },
                None if macro_follows(code, at) => {}
                None => breaches.push(format!("{here} `crate::{}` is no module's path", path.join("::"))),
            }
        }
    }
    Ok(breaches)
}

fn is_rust(name: &str) -> bool {
    Path::new(name).extension().is_some_and(|extension| extension == "rs")
}

/// The crate's roots: not listed, may use all.
fn is_top(name: &str) -> bool {
    name == "lib.rs" || name == "main.rs" || name.starts_with("bin/")
}

fn parse(readme: &str, text: &str) -> Layers {
    let mut places = BTreeMap::new();
    let mut inside = false;
    for (index, line) in text.lines().enumerate() {
        if line.starts_with("## ") {
            inside = line.trim_end() == "## Layers";
        } else if inside && line.starts_with("- ") {
            let names = line.split(" — ").next().unwrap_or_default();
            // Odd pieces of a split at back-quotes are the quoted ones.
            let quoted = names.split('`').skip(1).step_by(2).flat_map(braces).filter(|name| is_rust(name));
            for (position, name) in quoted.enumerate() {
                let name = name.strip_prefix("src/").unwrap_or(&name).to_owned();
                places.entry(name).or_insert((index + 1, position));
            }
        }
    }
    Layers { places, readme: readme.to_owned() }
}

/// `sys/{mod,linux}.rs` as its two names.
fn braces(name: &str) -> Vec<String> {
    let parts =
        name.split_once('{').and_then(|(before, rest)| rest.split_once('}').map(|(list, after)| (before, list, after)));
    match parts {
        Some((before, list, after)) => list.split(',').map(|item| format!("{before}{}{after}", item.trim())).collect(),
        None => vec![name.to_owned()],
    }
}

/// Every path from the crate's root that `code` of file `name` names, with its offset; `use` trees expanded.
fn paths(code: &str, name: &str) -> Vec<(usize, Vec<String>)> {
    let mut found = Vec::new();
    for at in source::words(code, "crate") {
        let before = code[..at].trim_end();
        // `$crate` of a macro belongs to whoever calls it; `pub(in crate::x)` says who sees, not what is used.
        if before.ends_with('$') || before.ends_with("(in") {
            continue;
        }
        if let Some(rest) = code[at + "crate".len()..].strip_prefix("::") {
            expand(rest, &[], &mut |path| found.push((at, path)));
        }
    }
    let module = module_of(name);
    for at in source::words(code, "super") {
        // Only the first of `super::super::`, and neither `pub(super)`.
        let Some(mut rest) = code[at + "super".len()..].strip_prefix("::") else { continue };
        if code[..at].ends_with("super::") || code[..at].trim_end().ends_with("(in") {
            continue;
        }
        let mut base = module.clone();
        base.pop();
        while let Some(more) = rest.strip_prefix("super::") {
            base.pop();
            rest = more;
        }
        expand(rest, &base, &mut |path| found.push((at, path)));
    }
    found.sort();
    found
}

/// `a/b.rs` is module `a::b`, `a/mod.rs` is `a`.
fn module_of(name: &str) -> Vec<String> {
    let path = name.trim_end_matches(".rs");
    let path = path.strip_suffix("/mod").unwrap_or(path);
    path.split('/').map(str::to_owned).collect()
}

/// Walks a path or `use` tree that follows `prefix` at the start of `text`; returns how many bytes it took.
fn expand(text: &str, prefix: &[String], found: &mut dyn FnMut(Vec<String>)) -> usize {
    let mut path = prefix.to_vec();
    let mut at = 0;
    loop {
        let rest = &text[at..];
        at += rest.len() - rest.trim_start().len();
        let rest = &text[at..];
        if rest.starts_with('{') {
            at += 1;
            loop {
                let rest = &text[at..];
                at += rest.len() - rest.trim_start_matches([',', ' ', '\n', '\t']).len();
                let rest = &text[at..];
                if rest.is_empty() {
                    return at;
                }
                if rest.starts_with('}') {
                    return at + 1;
                }
                let taken = expand(rest, &path, found);
                if taken == 0 {
                    return at;
                }
                at += taken;
            }
        }
        let word = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(rest.len());
        if rest.starts_with('*') {
            at += 1;
            found(path);
            return at;
        }
        if word == 0 {
            if path.len() > prefix.len() {
                found(path);
            }
            return at;
        }
        if &rest[..word] != "self" {
            path.push(rest[..word].to_owned());
        }
        at += word;
        if let Some(more) = text[at..].strip_prefix("::") {
            at = text.len() - more.len();
            continue;
        }
        // `as name` belongs to the item.
        if let Some(renamed) = text[at..].strip_prefix(" as ") {
            let word = renamed.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(renamed.len());
            at += " as ".len() + word;
        }
        found(path);
        return at;
    }
}

/// The file that the longest possible start of `path` names.
fn target(path: &[String], names: &[String]) -> Option<String> {
    (1..=path.len()).rev().find_map(|length| {
        let stem = path[..length].join("/");
        [format!("{stem}.rs"), format!("{stem}/mod.rs")].into_iter().find(|file| names.contains(file))
    })
}

/// Whether the path at `at` calls a macro: `crate::name!`.
fn macro_follows(code: &str, at: usize) -> bool {
    let rest = &code[at..];
    let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':')).unwrap_or(rest.len());
    rest[end..].starts_with('!')
}

#[cfg(test)]
mod tests {
    use super::super::Sample;
    use super::*;

    const README: &str = "# x\n\n- `not.rs` — before the heading\n\n## Layers\n\nlowest first\n\n- `bits.rs` — numbers, used by `arena.rs`\n\
        - `sys/{mod,linux}.rs` — the system\n- `bin.rs` · `arena.rs` — two\n- `prof/table.rs` — table\n\n## Next\n- `late.rs` — after\n";

    fn breaches(name: &str, extra: &[(&str, &str)]) -> Vec<String> {
        let mut files = vec![
            ("ebpf/README.md", README),
            ("ebpf/src/lib.rs", "use crate::arena;"),
            ("ebpf/src/bits.rs", ""),
            ("ebpf/src/sys/mod.rs", "use crate::arena::X;"),
            ("ebpf/src/sys/linux.rs", "use super::Os;"),
            ("ebpf/src/bin.rs", "use crate::sys::Os;\nuse crate::bits;"),
            ("ebpf/src/arena.rs", "use crate::{bin::{self, Bin}, sys::linux};"),
            ("ebpf/src/prof/table.rs", "use crate::arena::Arena;"),
        ];
        files.retain(|(file, _)| !extra.iter().any(|(other, _)| other == file));
        files.extend_from_slice(extra);
        let sample = Sample::new(name, &files);
        check_crate(&sample.0, "ebpf/README.md", "ebpf/src").unwrap()
    }

    #[test]
    fn the_order_holds() {
        assert_eq!(breaches("layers-good", &[]), Vec::<String>::new());
    }

    #[test]
    fn a_back_edge_fails_with_its_line() {
        let found = breaches("layers-back", &[("ebpf/src/bits.rs", "\nfn f() { crate::arena::new() }\n")]);
        assert_eq!(found, ["ebpf/src/bits.rs:2: layers: uses `arena.rs`, which is not above it in ebpf/README.md"]);
    }

    #[test]
    fn back_edges_hide_neither_in_groups_nor_in_super() {
        let found = breaches(
            "layers-group",
            &[
                ("ebpf/src/bin.rs", "use crate::{\n    bits::{self, Y as Z},\n    arena::{A, B},\n};"),
                ("ebpf/src/sys/linux.rs", "use super::super::bin;"),
            ],
        );
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(
            found.iter().any(|line| line.starts_with("ebpf/src/sys/linux.rs:1: layers: uses `bin.rs`")),
            "{found:?}"
        );
    }

    #[test]
    fn the_right_neighbour_on_a_line_is_not_above() {
        let found = breaches("layers-right", &[("ebpf/src/bin.rs", "use crate::arena::A;")]);
        assert_eq!(found.len(), 1, "{found:?}");
    }

    #[test]
    fn tests_comments_visibility_and_macros_are_left_alone() {
        let bits = "// crate::arena\npub(in crate::sys) fn f() { crate::note!(); }\n#[cfg(test)]\nmod tests { use crate::arena; }\n";
        assert_eq!(breaches("layers-tests", &[("ebpf/src/bits.rs", bits)]), Vec::<String>::new());
    }

    #[test]
    fn unlisted_missing_and_unnamed_fail() {
        let found = breaches("layers-list", &[("ebpf/src/extra.rs", ""), ("ebpf/src/bin.rs", "use crate::Reexport;")]);
        assert_eq!(
            found,
            [
                "ebpf/src/bin.rs:1: layers: `crate::Reexport` is no module's path",
                "ebpf/src/extra.rs:1: layers: not listed in ebpf/README.md",
            ]
        );
        let gone = Sample::new("layers-gone", &[("ebpf/README.md", README), ("ebpf/src/lib.rs", "")]);
        assert_eq!(check_crate(&gone.0, "ebpf/README.md", "ebpf/src").unwrap().len(), 6);
        assert_eq!(check_crate(&gone.0, "none/README.md", "ebpf/src").unwrap().len(), 1);
    }

    #[test]
    fn an_unlisted_mod_stands_after_its_folder() {
        let files = [("ebpf/src/prof/mod.rs", "pub use table::T;"), ("ebpf/src/arena.rs", "use crate::prof::T;")];
        let found = breaches("layers-mod", &files);
        assert_eq!(found, ["ebpf/src/arena.rs:1: layers: uses `prof/mod.rs`, which is not above it in ebpf/README.md"]);
    }
}
