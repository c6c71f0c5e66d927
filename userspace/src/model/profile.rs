//! A heap profile: who allocated what, in which address space, and what was lost on the way.
//!
//! ```text
//!  stacks    [StackId]  frames, leaf first            interner
//!  totals    [StackId]  Values over all threads       the numbers of a report
//!  shares    (StackId, ThreadUid) → Values            the part of one thread, where it is known
//!  threads   ThreadUid → tid, name
//!  mappings  ordered ranges of the address space      symbols are found through them
//! ```
//!
//! I-PROFILE-1: `totals` has one entry for each stack of the interner.
//! I-PROFILE-2: a profile built with [`Profile::add`] has totals that are the sums of its shares and of what was added without a
//! thread. A profile read from a file may not: heap files round each printed pair by itself, and the totals there are
//! what the file's `t*` lines say.
//! I-PROFILE-3: estimates were unbiased sample by sample, or line by line of a file, before they were added.
//!
//! One owner at a time; no locks. Does no input or output and looks up no symbols.
#![forbid(unsafe_code)]

use std::collections::{BTreeMap, HashMap};
use std::hash::BuildHasher as _;
use std::ops::Range;
use std::path::{Path, PathBuf};

use foldhash::quality::RandomState;
use hashbrown::HashTable;
use jeprobe_abi::drops::{DROP_REASONS, Reason};

use super::interner::Interner;
use super::mapping::{Mapping, Mappings};
use super::names::{Kind, Named, printable};
use super::stack::{StackId, ThreadUid};
use crate::estimate::Basis;
use crate::units::{SampleInterval, Sums};

/// Beginnings of the file names of libraries that are an allocator and nothing else.
const ALLOCATOR_FILES: &[&str] = &["libjeprobe", "libjemalloc"];

/// Where addresses begin that readers make up for what has none: above every address and every place that mappings are
/// moved to, below 2^63. They lie two apart, since a return address is one past its call.
pub const MADE_UP: u64 = 1 << 61;

/// Setting of a profile whose cumulative counts begin at an attachment and not at the process's start.
const ALLOC_SINCE: &str = "alloc_since";

/// What is live now, and what was ever allocated (zero when the process does not keep it).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Values {
    pub current: Sums,
    pub cumulative: Sums,
}

/// A thread that allocated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Thread {
    /// Kernel thread id; unknown in heap files.
    pub tid: Option<u32>,
    /// Empty when never named.
    pub name: String,
    /// What else is known of where its samples come from, such as process and host: key and value.
    pub labels: Vec<(String, String)>,
}

/// The part of one thread in the values of one stack.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share {
    pub stack: StackId,
    pub thread: ThreadUid,
    pub values: Values,
}

/// See the module's text.
#[derive(Clone, Debug, Default)]
pub struct Profile {
    pub(super) stacks: Interner,
    pub(super) totals: Vec<Values>,
    pub(super) shares: Vec<Share>,
    /// Places in `shares`, by stack and thread.
    share_index: HashTable<u32>,
    hasher: RandomState,
    pub(super) threads: BTreeMap<ThreadUid, Thread>,
    pub(super) mappings: Mappings,
    pub(super) interval: SampleInterval,
    pub(super) losses: [u64; DROP_REASONS],
    pub(super) counters: Vec<(String, u64)>,
    pub(super) notes: Vec<String>,
    pub(super) configuration: Vec<(String, String)>,
    pub(super) allocator_text: Vec<Range<u64>>,
    pub(super) pid: Option<u32>,
    pub(super) program: Option<PathBuf>,
    pub(super) names: HashMap<u64, Vec<Named>>,
    pub(super) kind: Kind,
    /// Live, and ever allocated: see `basis`.
    pub(super) bases: [Option<Basis>; 2],
}

impl Values {
    pub fn is_zero(&self) -> bool {
        self.current.is_zero() && self.cumulative.is_zero()
    }
}

impl std::ops::AddAssign for Values {
    fn add_assign(&mut self, other: Values) {
        self.current += other.current;
        self.cumulative += other.cumulative;
    }
}

/// Building.
impl Profile {
    pub fn new(interval: SampleInterval) -> Profile {
        Profile { interval, ..Profile::default() }
    }

    /// Makes room for as many more stacks and parts of threads.
    pub fn reserve(&mut self, stacks: usize, shares: usize) {
        self.stacks.reserve(stacks);
        let hash = |index: &u32| {
            let share = &self.shares[*index as usize];
            self.hasher.hash_one((share.stack, share.thread))
        };
        self.share_index.reserve(shares, hash);
    }

    /// Adds samples of `stack` (leaf first, return addresses), allocated by `thread` when that is known.
    pub fn add(&mut self, stack: &[u64], thread: Option<ThreadUid>, current: Sums, cumulative: Sums) -> StackId {
        let values = Values { current, cumulative };
        let id = self.add_total(stack, values);
        if let Some(thread) = thread {
            self.add_share(id, thread, values);
        }
        id
    }

    /// Adds to the total of a stack without saying which threads it is made of.
    pub fn add_total(&mut self, stack: &[u64], values: Values) -> StackId {
        let id = self.stacks.intern(stack);
        if id.index() == self.totals.len() {
            self.totals.push(Values::default());
        }
        self.totals[id.index()] += values;
        id
    }

    /// Adds to the total of a stack that is known.
    pub fn add_to(&mut self, stack: StackId, values: Values) {
        self.totals[stack.index()] += values;
    }

    /// Adds to the part of a thread without changing the stack's total.
    pub fn add_share(&mut self, stack: StackId, thread: ThreadUid, values: Values) {
        self.threads.entry(thread).or_default();
        let hash = |share: &Share| self.hasher.hash_one((share.stack, share.thread));
        let share = Share { stack, thread, values };
        let is_same = |index: &u32| {
            let known = &self.shares[*index as usize];
            (known.stack, known.thread) == (stack, thread)
        };
        if let Some(&index) = self.share_index.find(hash(&share), is_same) {
            self.shares[index as usize].values += values;
        } else {
            let index = u32::try_from(self.shares.len()).expect("fewer than 2^32 parts of threads");
            self.share_index.insert_unique(hash(&share), index, |index| hash(&self.shares[*index as usize]));
            self.shares.push(share);
        }
    }

    /// Describes a thread; what is known of it is kept when `thread` does not say.
    pub fn add_thread(&mut self, uid: ThreadUid, mut thread: Thread) {
        let labels = thread.labels.iter_mut().flat_map(|(key, text)| [key, text]);
        labels.chain([&mut thread.name]).for_each(printable);
        let known = self.threads.entry(uid).or_default();
        known.tid = thread.tid.or(known.tid);
        if !thread.name.is_empty() {
            known.name = thread.name;
        }
        if !thread.labels.is_empty() {
            known.labels = thread.labels;
        }
    }

    /// Says where in the source a function at the address of a call is; the functions of an address come in order,
    /// innermost first. Their names are set later.
    pub fn add_source(&mut self, site: u64, file: String, line: u32) {
        self.add_name(site, Named { file, line, ..Named::default() });
    }

    /// Says one function at the address of a call, after those that were inlined into it.
    pub fn add_name(&mut self, site: u64, function: Named) {
        self.names.entry(site).or_default().push(function.printable());
    }

    /// Says what is at the address of a call, innermost inlined function first.
    pub fn set_names(&mut self, site: u64, functions: Vec<Named>) {
        self.names.insert(site, functions.into_iter().map(Named::printable).collect());
    }

    pub fn set_kind(&mut self, kind: Kind) {
        self.kind = kind;
    }

    /// Adds a mapping; see [`Mappings::add`].
    pub fn add_mapping(&mut self, mapping: Mapping) {
        self.mappings.add(mapping);
    }

    pub fn mappings_mut(&mut self) -> &mut Mappings {
        &mut self.mappings
    }

    /// Replaces the losses, indexed by [`Reason`].
    pub fn set_losses(&mut self, losses: [u64; DROP_REASONS]) {
        self.losses = losses;
    }

    pub fn add_loss(&mut self, reason: Reason, count: u64) {
        let slot = &mut self.losses[reason as usize];
        *slot = slot.saturating_add(count);
    }

    /// Adds to a counter of the recorder, such as `samples`.
    pub fn add_counter(&mut self, name: &str, count: u64) {
        match self.counters.iter_mut().find(|(known, _)| known == name) {
            Some((_, sum)) => *sum = sum.saturating_add(count),
            None => self.counters.push((name.to_owned(), count)),
        }
    }

    /// A line for the reader of the report: lower case, no trailing stop.
    pub fn add_note(&mut self, note: impl Into<String>) {
        let mut note = note.into().replace(['\n', '\r'], " ");
        printable(&mut note);
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// Puts the name of the profile's file before each note.
    pub fn name_notes(&mut self, file: &str) {
        for note in &mut self.notes {
            *note = format!("{file}: {note}");
        }
    }

    /// Sets one setting of the allocator or of the recording; the last value stays.
    pub fn set_configuration(&mut self, key: impl Into<String>, value: impl Into<String>) {
        let (key, value) = (key.into(), value.into());
        match self.configuration.iter_mut().find(|(known, _)| *known == key) {
            Some(entry) => entry.1 = value,
            None => self.configuration.push((key, value)),
        }
    }

    /// Says that cumulative counts are of what was live when the attachment began and of what came since.
    pub fn set_allocated_since_attach(&mut self) {
        self.set_configuration(ALLOC_SINCE, "attach");
    }

    /// Adds the range of the allocator's own code, whose frames are cut from the leaf side.
    pub fn add_allocator_text(&mut self, range: Range<u64>) {
        if !range.is_empty() && !self.allocator_text.contains(&range) {
            self.allocator_text.push(range);
        }
    }

    pub fn set_interval(&mut self, interval: SampleInterval) {
        self.interval = interval;
    }

    /// The process and its main program, for titles and for finding the program's symbols.
    pub fn set_process(&mut self, pid: u32, program: Option<PathBuf>) {
        self.pid = Some(pid);
        self.program = program.or(self.program.take());
    }
}

/// Reading.
impl Profile {
    /// Every stack with its values over all threads, in order of first sight.
    pub fn totals(&self) -> impl Iterator<Item = (StackId, &[u64], &Values)> {
        self.stacks.ids().zip(&self.totals).map(|(id, values)| (id, self.stacks.frames(id), values))
    }

    /// The known parts of threads, in order of first sight.
    pub fn shares(&self) -> &[Share] {
        &self.shares
    }

    /// Frames of a stack, leaf first.
    pub fn frames(&self, id: StackId) -> &[u64] {
        self.stacks.frames(id)
    }

    /// The values of one stack.
    pub fn values(&self, id: StackId) -> &Values {
        &self.totals[id.index()]
    }

    /// The id of a stack that was added.
    pub fn find_stack(&self, stack: &[u64]) -> Option<StackId> {
        self.stacks.find(stack)
    }

    pub fn stack_count(&self) -> usize {
        self.totals.len()
    }

    /// Sum over all stacks.
    pub fn sum(&self) -> Values {
        self.totals.iter().fold(Values::default(), |mut sum, values| {
            sum += *values;
            sum
        })
    }

    /// Names the main program where the file does not.
    pub fn set_program(&mut self, program: PathBuf) {
        self.program.get_or_insert(program);
    }

    /// What is known of one thread.
    pub fn thread(&self, uid: ThreadUid) -> Option<&Thread> {
        self.threads.get(&uid)
    }

    pub fn threads(&self) -> impl Iterator<Item = (ThreadUid, &Thread)> {
        self.threads.iter().map(|(uid, thread)| (*uid, thread))
    }

    pub fn mappings(&self) -> &Mappings {
        &self.mappings
    }

    pub fn interval(&self) -> SampleInterval {
        self.interval
    }

    /// Losses that happened, in the order of their ids.
    pub fn losses(&self) -> impl Iterator<Item = (Reason, u64)> {
        Reason::ALL.iter().map(|&reason| (reason, self.losses[reason as usize])).filter(|(_, count)| *count > 0)
    }

    /// Losses that happened, or not, indexed by reason.
    pub fn losses_by_reason(&self) -> &[u64; DROP_REASONS] {
        &self.losses
    }

    pub fn counters(&self) -> &[(String, u64)] {
        &self.counters
    }

    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    pub fn configuration(&self) -> &[(String, String)] {
        &self.configuration
    }

    /// What is to be known about the cumulative counts, where they do not begin with the process.
    pub fn allocated_since(&self) -> Option<&'static str> {
        let is_set = |(key, value): &(String, String)| key == ALLOC_SINCE && value == "attach";
        self.configuration.iter().any(is_set).then_some(
            "allocated is what was live when the attachment began and what was allocated since, not what was freed before it",
        )
    }

    pub fn allocator_text(&self) -> &[Range<u64>] {
        &self.allocator_text
    }

    /// True for addresses in the allocator's own code: the ranges on record, and mappings of a library that is known
    /// to hold an allocator.
    pub fn is_allocator(&self, avma: u64) -> bool {
        self.allocator_text.iter().any(|range| range.contains(&avma))
            || self.mappings.find(avma).is_some_and(|mapping| {
                let name = mapping.path.file_name().unwrap_or_default().as_encoded_bytes();
                ALLOCATOR_FILES.iter().any(|file| name.starts_with(file.as_bytes()))
            })
    }

    /// Functions by address of the call, innermost first, where the file names them.
    pub fn names(&self) -> &HashMap<u64, Vec<Named>> {
        &self.names
    }

    pub fn kind(&self) -> &Kind {
        &self.kind
    }

    pub fn pid(&self) -> Option<u32> {
        self.pid
    }

    pub fn program(&self) -> Option<&Path> {
        self.program.as_deref()
    }

    /// True when something was ever counted as cumulative.
    pub fn has_cumulative(&self) -> bool {
        self.totals.iter().any(|values| !values.cumulative.is_zero())
    }
}
