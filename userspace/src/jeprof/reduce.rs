//! From addresses to rows: functions, lines, files or addresses, and the sums of each.
//!
//! ```text
//! stack of addresses ─► keys of each address (inlined functions: several) ─► flat: first key, cumulative: every key once
//! ```
//!
//! Keys of an address are computed once; the name of a callback runner is made from the address before it, and so per
//! pair of addresses. Addresses above 7fffffffffffffff have no keys.
#![forbid(unsafe_code)]

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::filter::Named;
use super::options::{Options, truth};
use super::stacks::{PcId, Stacks};
use super::symbols::{Full, Symbols};

/// Index of a row.
pub type KeyId = usize;

/// Numbers that stand for callers of callback runners; the same over a whole run.
#[derive(Debug, Default)]
pub struct CallerIds {
    known: FxHashMap<u64, usize>,
}

impl CallerIds {
    fn of(&mut self, address: u64) -> usize {
        let next = self.known.len() + 1;
        *self.known.entry(address).or_insert(next)
    }
}

/// A profile as rows.
#[derive(Debug, Default)]
pub struct Rows {
    pub keys: Vec<Arc<str>>,
    /// Stacks of keys, youngest first, one behind the other; recursion not removed.
    frames: Vec<KeyId>,
    spans: Vec<(usize, f64)>,
}

impl Rows {
    pub fn new(stacks: &Stacks, named: Named<'_>, options: &Options, callers: &mut CallerIds) -> Rows {
        let mut builder = Builder::new(named, options, callers);
        let mut rows = Rows::default();
        for (stack, value) in stacks.iter() {
            builder.stack(stack, &mut rows.frames);
            rows.spans.push((rows.frames.len(), value));
        }
        rows.keys = builder.keys;
        rows
    }

    pub fn stacks(&self) -> impl Iterator<Item = (&[KeyId], f64)> + Clone {
        (0..self.spans.len()).map(|at| {
            let start = if at == 0 { 0 } else { self.spans[at - 1].0 };
            (&self.frames[start..self.spans[at].0], self.spans[at].1)
        })
    }

    /// Keys without stacks, and their sums: all that tables need, in memory that does not grow with the stacks.
    pub fn summed(stacks: &Stacks, named: Named<'_>, options: &Options, callers: &mut CallerIds) -> (Rows, Sums) {
        let mut builder = Builder::new(named, options, callers);
        let mut summing = Summing::default();
        let mut frames = Vec::new();
        for (stack, value) in stacks.iter() {
            frames.clear();
            builder.stack(stack, &mut frames);
            summing.add(&frames, value, &builder.keys);
        }
        (Rows { keys: builder.keys, ..Rows::default() }, summing.sums)
    }
}

/// Adds up stack by stack.
#[derive(Default)]
struct Summing {
    sums: Sums,
    /// The last stack that held a key, from 1.
    last_seen: Vec<usize>,
    stacks: usize,
}

impl Summing {
    fn add(&mut self, stack: &[KeyId], value: f64, keys: &[Arc<str>]) {
        let Summing { sums, last_seen, stacks } = self;
        *stacks += 1;
        if last_seen.len() < keys.len() {
            last_seen.resize(keys.len(), 0);
            sums.flat.resize(keys.len(), None);
            sums.cumulative.resize(keys.len(), None);
        }
        // An empty text is no row.
        let mut shown = stack.iter().copied().filter(|&key| !keys[key].is_empty());
        if let Some(first) = shown.next() {
            *sums.flat[first].get_or_insert(0.0) += value;
            sums.total += value;
            for key in std::iter::once(first).chain(shown) {
                if last_seen[key] != *stacks {
                    last_seen[key] = *stacks;
                    *sums.cumulative[key].get_or_insert(0.0) += value;
                }
            }
        }
    }
}

/// Sums per key; `None` where a key does not occur.
#[derive(Debug, Default)]
pub struct Sums {
    pub flat: Vec<Option<f64>>,
    pub cumulative: Vec<Option<f64>>,
    /// Of all flat values.
    pub total: f64,
}

struct Builder<'a> {
    named: Named<'a>,
    options: &'a Options,
    callers: &'a mut CallerIds,
    overloads: Overloads,
    keys: Vec<Arc<str>>,
    ids: FxHashMap<Arc<str>, KeyId>,
    /// Keys of each address, once known; addresses with a callback runner are asked anew.
    known: Vec<Option<(u32, u32)>>,
    /// What `known` has the ranges of.
    found: Vec<KeyId>,
    /// Empty; kept for its room.
    texts: Vec<Arc<str>>,
}

impl<'a> Builder<'a> {
    fn new(named: Named<'a>, options: &'a Options, callers: &'a mut CallerIds) -> Builder<'a> {
        Builder {
            named,
            options,
            callers,
            overloads: Overloads::new(named.symbols),
            keys: Vec::new(),
            ids: FxHashMap::default(),
            known: vec![None; named.pcs.len()],
            found: Vec::new(),
            texts: Vec::new(),
        }
    }

    /// Adds the keys of a stack.
    fn stack(&mut self, stack: &[PcId], frames: &mut Vec<KeyId>) {
        for (at, &id) in stack.iter().enumerate() {
            if let Some((start, end)) = self.known[id as usize] {
                frames.extend_from_slice(&self.found[start as usize..end as usize]);
            } else {
                self.add(id, at.checked_sub(1).map(|at| stack[at]), frames);
            }
        }
    }

    fn add(&mut self, id: PcId, before: Option<PcId>, frames: &mut Vec<KeyId>) {
        let address = self.named.pcs.address(id);
        let start = frames.len();
        let mut texts = std::mem::take(&mut self.texts);
        let depends = self.put_texts(&mut texts, address, before);
        frames.extend(texts.drain(..).map(|text| self.key(text)));
        self.texts = texts;
        if !depends {
            let from = self.found.len() as u32;
            self.found.extend_from_slice(&frames[start..]);
            self.known[id as usize] = Some((from, self.found.len() as u32));
        }
    }

    fn key(&mut self, text: Arc<str>) -> KeyId {
        if let Some(&key) = self.ids.get(&text) {
            return key;
        }
        let key = self.keys.len();
        self.keys.push(text.clone());
        self.ids.insert(text, key);
        key
    }

    /// Adds the keys of an address, innermost function first; whether they depend on the address before it.
    fn put_texts(&mut self, texts: &mut Vec<Arc<str>>, address: u64, before: Option<PcId>) -> bool {
        if address > 0x7fff_ffff_ffff_ffff {
            return false;
        }
        let bare = || self.named.width.text(address);
        if truth(&self.options.disasm) || truth(&self.options.list) {
            texts.push(bare().into());
            return false;
        }
        let Some(names) = self.named.symbols.get(address) else {
            texts.push(self.text(bare, &bare().into(), ""));
            return false;
        };
        let mut depends = false;
        for (at, name) in names.iter().enumerate().rev() {
            let mut function = self.overloads.name(&name.full, &name.short);
            if at > 0 {
                function = format!("{function} (inline)").into();
            }
            if is_runner(&function) {
                depends = true;
                let caller = before.map_or(0, |id| self.named.pcs.address(id));
                function = format!("Run#{}", self.callers.of(caller)).into();
            }
            texts.push(self.text(bare, &function, &name.line));
        }
        depends
    }

    /// `bare`: the address alone.
    fn text(&self, bare: impl Fn() -> String, function: &Arc<str>, line: &str) -> Arc<str> {
        let options = self.options;
        if options.addresses {
            format!("{} {function} {line}", bare()).into()
        } else if options.lines {
            if &**function == "??" && line == "??:0" { bare().into() } else { format!("{function} {line}").into() }
        } else if options.functions {
            if &**function == "??" { bare().into() } else { function.clone() }
        } else if options.files {
            if line == "??:0" || line.is_empty() { bare().into() } else { without_line(line).into() }
        } else {
            bare().into()
        }
    }
}

/// Whether a callback's runner has this name: `Callback.*::Run$`.
fn is_runner(function: &str) -> bool {
    let last_line = |text: &'_ str| text.rfind('\n').map_or(0, |at| at + 1);
    function.strip_suffix("::Run").is_some_and(|before| before[last_line(before)..].contains("Callback"))
}

/// A `file:line` without the line; what does not end in digits stays whole.
fn without_line(text: &str) -> &str {
    match text.rsplit_once(':') {
        Some((file, line)) if !line.is_empty() && line.bytes().all(|byte| byte.is_ascii_digit()) => file,
        _ => text,
    }
}

/// Short names that several functions share, told apart by what stands behind them.
struct Overloads {
    /// By complete name.
    names: FxHashMap<Full, Arc<str>>,
}

impl Overloads {
    /// Only outermost functions are compared, and only those whose complete name ends in an address make a name shared;
    /// then all of that name get a mark.
    fn new(symbols: &Symbols) -> Overloads {
        let mut first: FxHashMap<&str, &Full> = FxHashMap::default();
        first.reserve(symbols.len());
        let mut shared: FxHashSet<&str> = FxHashSet::default();
        for name in symbols.all().filter_map(<[_]>::first) {
            if !name.full.is_tagged() {
                continue;
            }
            let known = first.entry(&name.short).or_insert(&name.full);
            if **known != name.full {
                shared.insert(&name.short);
            }
        }
        let mut names = FxHashMap::default();
        for name in symbols.all().filter_map(<[_]>::first).filter(|name| shared.contains(&*name.short)) {
            if let Some(mark) = mark(&name.full.text()) {
                names.entry(name.full.clone()).or_insert_with(|| format!("{}@{mark}", name.short).into());
            }
        }
        Overloads { names }
    }

    fn name(&self, full: &Full, short: &Arc<str>) -> Arc<str> {
        self.names.get(full).unwrap_or(short).clone()
    }
}

/// What stands between the angle brackets that end a name, without noughts before it: an address, or arguments of a
/// template.
fn mark(full: &str) -> Option<&str> {
    let inside = full.strip_suffix('>')?;
    let after = inside.rfind('>').map_or(0, |at| at + 1);
    let open = inside[after..].find('<')?;
    Some(inside[after + open + 1..].trim_start_matches('0'))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::float_cmp, reason = "whole numbers")]

    use super::super::address::Width;
    use super::super::stacks::Pcs;
    use super::*;

    fn rows(options: &Options) -> Vec<(String, f64, f64)> {
        let mut pcs = Pcs::default();
        let mut given = FxHashMap::default();
        for (address, name) in [(1, "leaf<01>--inner"), (2, "f<02>"), (3, "f<0a03>"), (4, "Callback1::Run")] {
            pcs.id(address);
            given.insert(address, name.to_owned());
        }
        let symbols = Symbols::from_names(&[1, 2, 3, 4], &given, Width::W16);
        let named = Named { pcs: &pcs, symbols: &symbols, width: Width::W16 };
        let mut stacks = Stacks::default();
        stacks.add(&[0, 1, 2, 1], 1.0);
        stacks.add(&[0, 3], 2.0);
        stacks.add(&[1, 3], 4.0);
        stacks.add(&[], 8.0);
        let (table, sums) = Rows::summed(&stacks, named, options, &mut CallerIds::default());
        assert_eq!(sums.total, 7.0);
        let mut list: Vec<_> = table
            .keys
            .iter()
            .enumerate()
            .map(|(at, key)| (key.to_string(), sums.flat[at].unwrap_or(0.0), sums.cumulative[at].unwrap_or(0.0)))
            .collect();
        list.sort_by(|a, b| a.0.cmp(&b.0));
        list
    }

    #[test]
    fn functions_inlined_calls_overloads_and_runners() {
        let options = Options { functions: true, ..Options::default() };
        let expected = [
            ("Run#1", 0.0, 2.0),
            ("Run#2", 0.0, 4.0),
            ("f@2", 4.0, 5.0),
            ("f@a03", 0.0, 1.0),
            ("inner (inline)", 3.0, 3.0),
            ("leaf", 0.0, 3.0),
        ];
        assert_eq!(rows(&options), expected.map(|(name, flat, cumulative)| (name.to_owned(), flat, cumulative)));
    }

    #[test]
    fn marks_are_what_the_last_brackets_hold() {
        for (full, expected) in [
            ("f<000401>", Some("401")),
            ("drop::<a::B>", Some("a::B")),
            ("f<A<B> >", None),
            ("<A as B>::f<0000>", Some("")),
            ("f<g<0a>", Some("g<0a")),
            ("f", None),
        ] {
            assert_eq!(mark(full), expected, "{full}");
        }
    }

    #[test]
    fn lists_need_bare_addresses() {
        let options = Options { list: "x".into(), addresses: true, ..Options::default() };
        assert_eq!(rows(&options)[0], ("0000000000000001".to_owned(), 3.0, 3.0));
    }

    #[test]
    fn line_numbers_are_cut_from_files_only_when_plain() {
        assert_eq!(without_line("a.c:12"), "a.c");
        assert_eq!(without_line("a.c:12 (discriminator 3)"), "a.c:12 (discriminator 3)");
        assert_eq!(without_line("??:?"), "??:?");
    }
}
