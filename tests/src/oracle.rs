//! The perl `jeprof`, run beside ours on the same arguments; what they print is compared.
//!
//! The original prints some things in the order of a hash table: these are compared in an order of our own
//! ([`Order`]). Everything else is compared byte for byte, with the exit code.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use crate::target::{Ended, Run};
use crate::{TempDir, artefact, compile};

/// The original.
pub const JEPROF: &str = "/usr/bin/jeprof";

/// What of the original's order is chance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Nothing.
    Fixed,
    /// That of the lines.
    Lines,
    /// That of items, and so the numbers of names, of a callgrind file.
    Callgrind,
}

impl Order {
    /// The order of the mode in `args`.
    pub fn of(args: &[&str]) -> Order {
        let has = |names: &[&str]| args.iter().any(|arg| names.contains(arg));
        if has(&["--callgrind"]) {
            Order::Callgrind
        } else if has(&["--collapsed", "--raw", "--dot"]) {
            // Edges of equal value, in the case of graphs.
            Order::Lines
        } else {
            Order::Fixed
        }
    }

    fn normal(self, text: &str) -> String {
        match self {
            Order::Fixed => text.to_owned(),
            Order::Lines => sorted(text.lines(), "\n"),
            Order::Callgrind => sorted(spelled_out(text).split("\n\n"), "\n\n"),
        }
    }
}

fn sorted<'a>(parts: impl Iterator<Item = &'a str>, separator: &str) -> String {
    let mut parts: Vec<&str> = parts.collect();
    parts.sort_unstable();
    parts.join(separator)
}

/// A callgrind file with names in the places of their numbers.
fn spelled_out(text: &str) -> String {
    let mut names: HashMap<(bool, &str), &str> = HashMap::new();
    let mut result = String::new();
    for line in text.lines() {
        let numbered = line.split_once("=(").and_then(|(key, rest)| Some((key, rest.split_once(')')?)));
        match numbered {
            Some((key, (number, name))) if ["fl", "fn", "cfl", "cfn"].contains(&key) => {
                let table = key.ends_with('l');
                if !name.is_empty() {
                    names.insert((table, number), name.trim_start());
                }
                let name = names.get(&(table, number)).copied().unwrap_or("no such number");
                let _ = writeln!(result, "{key}={name}");
            }
            _ => {
                let _ = writeln!(result, "{line}");
            }
        }
    }
    result
}

/// True when the original is here.
pub fn is_installed() -> bool {
    Path::new(JEPROF).exists()
}

/// The script of jemalloc 5.3.1, where `cargo xtask deps` has put it.
pub fn newer() -> Option<PathBuf> {
    Some(artefact::target_dir().join("references/jeprof-5.3.1")).filter(|script| script.is_file())
}

/// Runs ours.
pub fn ours(directory: &Path, args: &[&str], input: &str) -> Ended {
    Run::new(artefact::jeprof()).dir(directory).args(args).input(input).finish()
}

/// Runs the original.
pub fn theirs(directory: &Path, args: &[&str], input: &str) -> Ended {
    Run::new(JEPROF).dir(directory).args(args).input(input).finish()
}

/// Both, compared by stdout and exit code.
pub fn same(directory: &Path, args: &[&str]) {
    same_with(directory, args, "");
}

/// The same with something on stdin.
pub fn same_with(directory: &Path, args: &[&str], input: &str) {
    let (ours, theirs) = (ours(directory, args, input), theirs(directory, args, input));
    let order = Order::of(args);
    let (got, wanted) = (order.normal(&ours.stdout), order.normal(&theirs.stdout));
    assert!(
        got == wanted,
        "jeprof {} in {}\n--- original\n{wanted}\n--- ours\n{got}\n--- stderr\n{}\n--- first difference\n{}",
        args.join(" "),
        directory.display(),
        ours.stderr,
        first_difference(&got, &wanted)
    );
    assert_eq!(ours.code(), theirs.code(), "jeprof {}: exit code\n{}", args.join(" "), ours.stderr);
}

fn first_difference(got: &str, wanted: &str) -> String {
    let mut pairs = got.lines().zip(wanted.lines());
    match pairs.find(|(a, b)| a != b) {
        Some((a, b)) => format!("original: {b}\nours:     {a}"),
        None => "one is the beginning of the other".to_owned(),
    }
}

/// Compiles a program, runs it on `allocator` and keeps its final profile as `p.heap` in a directory of its own.
pub fn profile_of(program: &Path, allocator: &Path, conf: &str) -> TempDir {
    let directory = TempDir::new("jeprof");
    let prefix = directory.join("p");
    let conf = format!("prof:true,prof_final:true,prof_accum:true,{conf},prof_prefix:{}", prefix.display());
    Run::new(program).env("LD_PRELOAD", allocator).conf(&conf).finish().ok().discard();
    let heap = std::fs::read_dir(directory.path())
        .expect("a readable directory")
        .filter_map(Result::ok)
        .find(|entry| entry.path().extension().is_some_and(|extension| extension == "heap"))
        .expect("prof_final leaves a profile");
    std::fs::rename(heap.path(), directory.join("p.heap")).expect("renamed");
    directory
}

/// A program of `programs/` with sources that listings can show.
pub fn program(source: &str, flags: &[&str]) -> String {
    compile::program(source, flags).to_str().expect("a UTF-8 path").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_callgrind_files_do_not_matter() {
        let a = "fl=(1) a\nfn=(1) f\n1 2\n\nfl=(2) b\nfn=(1)\n3 4\n\n";
        let b = "fl=(1) b\nfn=(1) f\n3 4\n\nfl=(2) a\nfn=(1)\n1 2\n\n";
        assert_eq!(Order::Callgrind.normal(a).trim(), Order::Callgrind.normal(b).trim());
        assert_ne!(Order::Callgrind.normal(a), Order::Callgrind.normal(&a.replace("3 4", "3 5")));
    }
}
