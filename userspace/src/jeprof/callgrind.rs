//! `--callgrind`: values per source line, and per call from one line to another.
//!
//! A name is written out once and then stands as its number; names of up to three characters are always written out.
//! Inlined functions do not appear: a location is that of the outermost function of an address.
#![forbid(unsafe_code)]

use std::io::Write;

use regex::Regex;
use rustc_hash::FxHashMap;

use super::filter::Named;
use super::stacks::{PcId, Stacks};
use super::stop::Result;
use super::values::whole;

/// Values by location, and by `location -> location`.
#[derive(Debug, Default)]
pub struct Calls {
    by_name: FxHashMap<String, f64>,
}

impl Calls {
    pub fn new(stacks: &Stacks, named: Named<'_>) -> Calls {
        let places: Vec<String> = (0..named.pcs.len()).map(|id| place(id as PcId, named)).collect();
        let mut leaves: FxHashMap<Option<PcId>, f64> = FxHashMap::default();
        let mut calls: FxHashMap<(PcId, PcId), f64> = FxHashMap::default();
        for (stack, value) in stacks.iter() {
            *leaves.entry(stack.first().copied()).or_default() += value;
            for pair in stack.windows(2) {
                *calls.entry((pair[1], pair[0])).or_default() += value;
            }
        }
        let mut by_name: FxHashMap<String, f64> = FxHashMap::default();
        for (leaf, value) in leaves {
            let name = leaf.map_or(UNKNOWN, |id| &places[id as usize]);
            *by_name.entry(name.to_owned()).or_default() += value;
        }
        for ((caller, callee), value) in calls {
            let name = format!("{} -> {}", places[caller as usize], places[callee as usize]);
            *by_name.entry(name).or_default() += value;
        }
        Calls { by_name }
    }
}

const UNKNOWN: &str = "??:0:unknown";

/// `file:line:function` of an address.
fn place(id: PcId, named: Named<'_>) -> String {
    match named.symbols.get(named.pcs.address(id)) {
        Some([name, ..]) if &*name.line == "?" => format!("??:0:{}", name.short),
        Some([name, ..]) => format!("{}:{}", name.line, name.short),
        _ => UNKNOWN.to_owned(),
    }
}

/// One entry, taken apart; empty where the text has no such part.
#[derive(Debug, Default, PartialEq)]
struct Item<'a> {
    file: &'a str,
    line: &'a str,
    function: &'a str,
    callee: Option<[&'a str; 3]>,
    text: &'a str,
    value: f64,
}

pub fn write(out: &mut impl Write, calls: &Calls) -> Result<()> {
    let shape = Regex::new(r"([^:]+):(\d+):([^ ]+)( -> ([^:]+):(\d+):(.+))?").expect("a fixed pattern");
    let mut items: Vec<Item<'_>> = calls.by_name.iter().map(|(text, &value)| item(&shape, text, value)).collect();
    items.sort_by(|a, b| {
        let key = |item: &Item<'_>| item.line.parse::<u64>().unwrap_or(0);
        (a.file, key(a), a.text).cmp(&(b.file, key(b), b.text))
    });
    let (mut files, mut functions) = (Numbers::default(), Numbers::default());
    out.write_all(b"events: Hits\n\n")?;
    for item in items {
        files.write(out, "fl", item.file)?;
        functions.write(out, "fn", item.function)?;
        if let Some([file, line, function]) = item.callee {
            files.write(out, "cfl", file)?;
            functions.write(out, "cfn", function)?;
            writeln!(out, "calls={} {line}", whole(item.value))?;
        }
        writeln!(out, "{} {}\n", item.line, whole(item.value))?;
    }
    Ok(())
}

fn item<'a>(shape: &Regex, text: &'a str, value: f64) -> Item<'a> {
    let Some(found) = shape.captures(text) else { return Item { text, value, ..Item::default() } };
    let group = |at| found.get(at).map_or("", |part| part.as_str());
    Item {
        file: group(1),
        line: group(2),
        function: group(3),
        callee: found.get(4).map(|_| [group(5), group(6), group(7)]),
        text,
        value,
    }
}

/// Numbers of names that were written before.
#[derive(Default)]
struct Numbers {
    known: FxHashMap<String, usize>,
}

impl Numbers {
    fn write(&mut self, out: &mut impl Write, key: &str, name: &str) -> Result<()> {
        if name.len() <= 3 {
            writeln!(out, "{key}={name}")?;
        } else if let Some(number) = self.known.get(name) {
            writeln!(out, "{key}=({number})")?;
        } else {
            let number = self.known.len() + 1;
            self.known.insert(name.to_owned(), number);
            writeln!(out, "{key}=({number}) {name}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_numbered_and_calls_named() {
        let mut calls = Calls::default();
        for (text, value) in [("a.cc:1:main", 2.0), ("a.cc:2:main -> b.cc:3:leaf", 5.9), ("b.cc:3:leaf", 5.9)] {
            calls.by_name.insert(text.to_owned(), value);
        }
        let mut out = Vec::new();
        write(&mut out, &calls).expect("written");
        let expected = "events: Hits\n\nfl=(1) a.cc\nfn=(1) main\n1 2\n\nfl=(1)\nfn=(1)\ncfl=(2) b.cc\ncfn=(2) leaf\ncalls=5 3\n2 5\n\nfl=(2)\nfn=(2)\n3 5\n\n";
        assert_eq!(String::from_utf8(out).expect("text"), expected);
    }
}
