//! Stacks as frames with names: what every output but the heap file is made of.
//!
//! ```text
//!  addresses, leaf first   0x7f.. 0x7f.. 0x40..3 0x40..9 0x40..f
//!  cut                     the allocator's own leaves
//!  frames                                [inner, outer] [main]     an address inside inlined calls gives several
//! ```
//!
//! [`Selection::walk`] hands out one stack after another and keeps none: memory grows with the distinct addresses, not with
//! the stacks. Frames are numbered as they are met; the numbers of one walk mean nothing in another.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::convert::Infallible;
use std::fmt::Write as _;

use foldhash::fast::RandomState;
use regex::Regex;

use super::select::{Granularity, Keyed, Numbers, Options, Selection, is_allocator_function, user_functions};
use crate::model::{Recent, StackId, call_site};
use crate::symbolize::{Function, Site};

/// Addresses from here on are not code; jeprof passes over them.
const END_OF_CODE: u64 = 1 << 63;

/// The frame of a stack without any outside the allocator.
pub const NO_STACK: &str = "[no stack]";

/// The frame of a stack of which every function was hidden.
pub const HIDDEN: &str = "[hidden]";

/// One function at one address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frame {
    /// Short name; the label of the address where it has none.
    pub name: String,
    /// Complete name; the label where there is none.
    pub full: String,
    /// Empty when the source is unknown.
    pub file: String,
    /// 0 when unknown.
    pub line: u32,
    /// The address of the call (avma).
    pub address: u64,
    /// What stands for the address without a name: `libfoo.so+0x12`.
    pub label: String,
    pub is_named: bool,
    pub is_inlined: bool,
}

/// One stack of a walk.
#[derive(Clone, Copy, Debug)]
pub struct Stack<'a> {
    pub id: StackId,
    /// Indexes of frames, leaf first. At least one: [`NO_STACK`] or [`HIDDEN`] where there is no other.
    pub frames: &'a [u32],
    pub numbers: Numbers,
}

impl Frame {
    /// The row that the frame belongs to.
    pub fn key(&self, granularity: Granularity) -> String {
        if granularity == Granularity::Files {
            return if self.file.is_empty() { self.unknown_file() } else { self.file.clone() };
        }
        if !self.is_named {
            return self.label.clone();
        }
        let mut key = String::new();
        if granularity == Granularity::Addresses {
            let _infallible = write!(key, "{:016x} ", self.address);
        }
        key.push_str(&self.name);
        if self.is_inlined {
            key.push_str(" (inline)");
        }
        if granularity != Granularity::Functions {
            let file = if self.file.is_empty() { "??" } else { &self.file };
            let _infallible = write!(key, " {file}:{}", self.line);
        }
        key
    }

    /// The row of source files that are not known: one for each module, one for code outside of all.
    fn unknown_file(&self) -> String {
        match self.label.rsplit_once("+0x") {
            Some((module, _)) => format!("?? ({module})"),
            // What stands for frames is no address.
            None if self.label.starts_with('[') => self.label.clone(),
            None => "??".to_owned(),
        }
    }
}

/// What is known of one address during a walk. Small and without a pointer: it is looked at for every frame of every stack.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent answers about one address")]
struct Place {
    /// Its frames have the numbers `first..end`.
    first: u32,
    end: u32,
    in_allocator: bool,
    named_allocator: bool,
    is_code: bool,
    focused: bool,
    ignored: bool,
}

/// The frames met so far.
struct Places<'s> {
    selection: &'s Selection<'s>,
    options: &'s Options,
    frames: Vec<Frame>,
    index: HashMap<u64, u32, RandomState>,
    recent: Recent<u32>,
    list: Vec<Place>,
    /// Numbers of the frames [`NO_STACK`] and [`HIDDEN`], once met.
    stand_ins: [Option<u32>; 2],
}

impl Selection<'_> {
    /// Calls `each` with every stack that is shown, and the frames met so far. Gives back all frames.
    pub fn walk<E>(
        &self,
        options: &Options,
        mut each: impl FnMut(&Stack<'_>, &[Frame]) -> Result<(), E>,
    ) -> Result<Vec<Frame>, E> {
        let mut places = Places {
            selection: self,
            options,
            frames: Vec::new(),
            index: HashMap::default(),
            recent: Recent::default(),
            list: Vec::new(),
            stand_ins: [None; 2],
        };
        let (mut sites, mut frames) = (Vec::new(), Vec::new());
        for (id, addresses, _) in self.profile.totals() {
            sites.clear();
            sites.extend(addresses.iter().enumerate().map(|(depth, &avma)| places.of(call_site(depth, avma))));
            let at = |site: &u32| &places.list[*site as usize];
            let by_address = sites.iter().take_while(|site| at(site).in_allocator).count();
            let by_name = sites.iter().rposition(|site| at(site).named_allocator).map_or(0, |last| last + 1);
            let cut = if options.keep_allocator { 0 } else { by_address.max(by_name) };
            let user = &sites[cut..];
            let is_code = user.iter().any(|site| at(site).is_code);
            let found = |regex: Option<&Regex>, matches: fn(&Place) -> bool| {
                user.iter().any(|site| matches(at(site)))
                    || (!is_code && regex.is_some_and(|regex| regex.is_match(NO_STACK)))
            };
            if (options.focus.is_some() && !found(options.focus.as_ref(), |place| place.focused))
                || found(options.ignore.as_ref(), |place| place.ignored)
            {
                continue;
            }
            frames.clear();
            for place in user.iter().map(at).filter(|place| place.is_code) {
                frames.extend(place.first..place.end);
            }
            if frames.is_empty() {
                frames.push(places.stand_in(is_code));
            }
            each(&Stack { id, frames: &frames, numbers: self.numbers(id) }, &places.frames)?;
        }
        Ok(places.frames)
    }

    /// Stacks as keys of rows, every step of a recursion kept.
    pub fn keyed(&self, options: &Options) -> Keyed {
        let mut keys = Keys::new(options.granularity);
        let mut stacks = Vec::new();
        let walked = self.walk::<Infallible>(options, |stack, frames| {
            let keyed = stack.frames.iter().map(|&frame| keys.of(frame, frames)).collect();
            stacks.push((keyed, stack.numbers[options.value as usize]));
            Ok(())
        });
        let Ok(_) = walked;
        Keyed { keys: keys.names, stacks }
    }
}

/// Rows by name, numbered as they are met.
#[derive(Debug)]
pub struct Keys {
    granularity: Granularity,
    pub names: Vec<String>,
    index: HashMap<String, usize>,
    /// By frame.
    of_frame: Vec<usize>,
    /// By row: the last stack that had it.
    seen: Vec<u64>,
    stack: u64,
}

impl Keys {
    pub fn new(granularity: Granularity) -> Keys {
        Keys { granularity, names: Vec::new(), index: HashMap::new(), of_frame: Vec::new(), seen: Vec::new(), stack: 0 }
    }

    /// The row of a frame.
    pub fn of(&mut self, frame: u32, frames: &[Frame]) -> usize {
        while self.of_frame.len() < frames.len() {
            let name = frames[self.of_frame.len()].key(self.granularity);
            let row = self.named(name);
            self.of_frame.push(row);
        }
        self.of_frame[frame as usize]
    }

    /// The row with this name.
    pub fn named(&mut self, name: String) -> usize {
        let next = self.names.len();
        let row = *self.index.entry(name).or_insert_with_key(|name| {
            self.names.push(name.clone());
            next
        });
        self.seen.resize(self.names.len(), 0);
        row
    }

    /// Calls `each` with every row of a stack, leaf first, each once.
    pub fn each_once(&mut self, stack: &[u32], frames: &[Frame], mut each: impl FnMut(usize)) {
        self.stack += 1;
        for &frame in stack {
            let row = self.of(frame, frames);
            if std::mem::replace(&mut self.seen[row], self.stack) != self.stack {
                each(row);
            }
        }
    }
}

impl Places<'_> {
    /// The frame of a stack that has none, or none that is not hidden.
    fn stand_in(&mut self, is_hidden: bool) -> u32 {
        let next = self.frames.len() as u32;
        let frame = *self.stand_ins[usize::from(is_hidden)].get_or_insert(next);
        if frame == next {
            let name = if is_hidden { HIDDEN } else { NO_STACK };
            let [name, full, label] = [name; 3].map(ToOwned::to_owned);
            self.frames.push(Frame { name, full, label, ..Frame::default() });
        }
        frame
    }

    fn of(&mut self, avma: u64) -> u32 {
        if let Some(place) = self.recent.get(avma) {
            return place;
        }
        let place = self.index.get(&avma).copied().unwrap_or_else(|| self.add(avma));
        self.recent.put(avma, place);
        place
    }

    /// An address that is met for the first time.
    fn add(&mut self, avma: u64) -> u32 {
        let options = self.options;
        let site = self.selection.symbols.site(avma);
        let first = self.frames.len();
        match site {
            Some(site) if !site.functions.is_empty() => {
                let functions = if options.keep_allocator { &site.functions } else { user_functions(site) };
                let kept = functions.iter().filter(|function| {
                    !(options.no_inlines && function.is_inlined) && is_shown(options, &function.short)
                });
                self.frames.extend(kept.map(|function| named(avma, site, function)));
            }
            _ => {
                let label = site.map_or_else(|| format!("{avma:016x}"), |site| site.label.clone());
                if is_shown(options, &label) {
                    self.frames.push(Frame {
                        name: label.clone(),
                        full: label.clone(),
                        label,
                        address: avma,
                        ..Frame::default()
                    });
                }
            }
        }
        let place = Place {
            first: first as u32,
            end: self.frames.len() as u32,
            in_allocator: site.is_some_and(|site| site.is_allocator),
            named_allocator: site.is_some_and(is_allocator_function),
            is_code: avma < END_OF_CODE,
            focused: matches(self.options.focus.as_ref(), avma, site),
            ignored: matches(self.options.ignore.as_ref(), avma, site),
        };
        let index = self.list.len() as u32;
        self.list.push(place);
        self.index.insert(avma, index);
        index
    }
}

fn is_shown(options: &Options, name: &str) -> bool {
    options.show.as_ref().is_none_or(|show| show.is_match(name))
        && options.hide.as_ref().is_none_or(|hide| !hide.is_match(name))
}

fn named(avma: u64, site: &Site, function: &Function) -> Frame {
    let (file, line) = match function.location.rsplit_once(':') {
        Some((file, line)) => (file, line.parse().unwrap_or(0)),
        None => (function.location.as_str(), 0),
    };
    Frame {
        name: function.short.clone(),
        full: function.full.clone(),
        file: if file == "??" { String::new() } else { file.to_owned() },
        line,
        address: avma,
        label: site.label.clone(),
        is_named: true,
        is_inlined: function.is_inlined,
    }
}

/// Whether a pattern finds an address: by its 16 digits, a short name, a `FILE:LINE` or the label.
fn matches(regex: Option<&Regex>, avma: u64, site: Option<&Site>) -> bool {
    let Some(regex) = regex else { return false };
    regex.is_match(&format!("{avma:016x}"))
        || site.is_some_and(|site| {
            let named = |function: &Function| regex.is_match(&function.short) || regex.is_match(&function.location);
            site.functions.iter().any(named) || regex.is_match(&site.label)
        })
}
