//! Instructions of the fast path, counted by callgrind: a number that a machine's noise does not move.
//!
//! `tests/bench/calls.cc` makes pairs of calls on warm caches, in a short and in a long run; the difference of the counts,
//! by the difference of the calls, is what one more call costs. Counted is what is spent in the function itself and what
//! was inlined into it; a fast path calls nothing.
#![forbid(unsafe_code)]

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use object::read::elf::ElfFile64;
use object::{Endianness, Object as _, ObjectSymbol as _};

use super::build::{self, folder};
use crate::cmd::{Cmd, find_program};

/// Function, the argument of `calls` that uses it, what it is called in C or C++, and the most instructions that one call
/// may take. A limit is lowered when the count falls, and is not raised.
const LIMITS: &[(&str, &str, &str, f64)] = &[
    ("malloc", "malloc", "malloc", 20.0),
    ("free", "malloc", "free", 25.0),
    ("_Znwm", "cxx", "operator new", 20.0),
    ("_ZdlPv", "cxx", "operator delete", 25.0),
    ("_ZdlPvm", "sized", "sized operator delete", 25.0),
];

const SHORT: u64 = 16_000;
const LONG: u64 = 48_000;

/// Name, instructions a call, limit.
type Count = (&'static str, f64, f64);

/// The counts of a library, in the order of the table of limits.
fn count(library: &Path) -> Result<Vec<Count>> {
    if find_program("valgrind").is_none() {
        bail!("no valgrind: cargo xtask deps");
    }
    let calls = build::programs()?.join("calls");
    let bytes = fs::read(library).with_context(|| format!("cannot read {}", library.display()))?;
    let mut counts = Vec::new();
    for (symbol, kind, name, limit) in LIMITS {
        let short = profile(library, &calls, kind, SHORT)?;
        let long = profile(library, &calls, kind, LONG)?;
        let names = aliases(&bytes, symbol)?;
        let spent = |text: &str| own_cost(text, &names).with_context(|| format!("callgrind saw no call of {name}"));
        let each = (spent(&long)? - spent(&short)?) as f64 / (LONG - SHORT) as f64;
        counts.push((*name, each, *limit));
    }
    Ok(counts)
}

/// The exported names at a symbol's address: callgrind knows a function by any one of them.
fn aliases(library: &[u8], symbol: &str) -> Result<Vec<String>> {
    let file = ElfFile64::<Endianness>::parse(library).context("the library is no ELF file")?;
    let named = |wanted: &str| file.dynamic_symbols().find(|symbol| symbol.name() == Ok(wanted));
    let address = named(symbol).with_context(|| format!("the library does not export {symbol}"))?.address();
    let same = file.dynamic_symbols().filter(|symbol| symbol.address() == address);
    Ok(same.filter_map(|symbol| symbol.name().ok().map(str::to_owned)).collect())
}

/// What callgrind writes about a run.
fn profile(library: &Path, calls: &Path, kind: &str, count: u64) -> Result<String> {
    let file = folder().join(format!("calls-{kind}-{count}-{}.callgrind", std::process::id()));
    let output = Cmd::new("valgrind")
        .env("LD_PRELOAD", library)
        .args(["--quiet", "--tool=callgrind", "--compress-strings=no", "--compress-pos=no", "--demangle=no"])
        .arg(format!("--callgrind-out-file={}", file.display()))
        .arg(calls)
        .args([kind, &count.to_string()])
        .output_of_any()?;
    let text = fs::read_to_string(&file).with_context(|| format!("callgrind failed: {}", output.trim()))?;
    let _ = fs::remove_file(&file);
    Ok(text)
}

/// Instructions in a function itself: the numbers of its lines, those after a `calls=` line left out. `None` when it did
/// not run.
fn own_cost(callgrind: &str, names: &[String]) -> Option<u64> {
    let mut cost = None;
    let (mut inside, mut callee) = (false, false);
    for line in callgrind.lines() {
        if let Some(name) = line.strip_prefix("fn=") {
            inside = names.iter().any(|own| own == name);
        } else if line.starts_with("calls=") {
            callee = true;
        } else if line.starts_with(|first: char| first.is_ascii_digit()) {
            let own = line.split(' ').nth(1).and_then(|number| number.parse::<u64>().ok());
            if inside
                && !callee
                && let Some(own) = own
            {
                *cost.get_or_insert(0) += own;
            }
            callee = false;
        }
    }
    cost
}

/// The counts as Markdown.
pub(crate) fn table(library: &Path) -> Result<String> {
    let mut text = String::from("\n| call | instructions | limit |\n|---|---|---|\n");
    for (name, each, limit) in count(library)? {
        text.push_str(&["| ", name, " | ", &format!("{each:.1}"), " | ", &limit.to_string(), " |\n"].concat());
    }
    Ok(text)
}

/// Calls that take more than they may.
pub(crate) fn breaches(library: &Path) -> Result<Vec<String>> {
    let over = count(library)?.into_iter().filter(|(_, each, limit)| each > limit);
    Ok(over.map(|(name, each, limit)| {
        format!("xtask/src/bench/instructions.rs:1: instructions: a cached {name} takes {each:.1} instructions, {limit} are allowed")
    }).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "events: Ir\n\
        fl=a.rs\nfn=main\n3 100\ncfn=malloc\ncalls=2 7\n4 60\n\
        fl=b.rs\nfn=malloc\n7 10\nfi=c.rs\n8 20\ncfn=slow\ncalls=1 9\n7 30\n7 5\n\
        fn=slow\n9 30\n";

    #[test]
    fn what_a_function_calls_is_not_its_own() {
        let of = |name: &str| own_cost(TEXT, &[name.to_owned(), "another".to_owned()]);
        assert_eq!(of("malloc"), Some(35));
        assert_eq!(of("main"), Some(100));
        assert_eq!(of("slow"), Some(30));
        assert_eq!(of("free"), None);
    }
}
