//! What a process had recorded before the attachment: its live samples and cumulative counts, read from its profile
//! table between two looks at the clock.
//!
//! ```text
//!  probes attached ── began_ns ── table read ── ended_ns ── first record taken from the ring
//!  allocations before began_ns are in the table already, those after ended_ns are not; in between, the time that the
//!  table keeps of each live sample decides (`track/live.rs`). Cumulative counts have no times: for them the cut is at
//!  counted_ns, and the few samples taken while they were read may be counted on the wrong side of it.
//! ```
#![forbid(unsafe_code)]

use std::collections::HashMap;

use jeprobe_abi::reader::{RemoteMemory, Table, TableError};
use jeprobe_abi::root::{Counts, Live};
use jeprobe_abi::unbias;

use crate::wait::monotonic_ns;

/// A reading of the table. Times are ns of `CLOCK_MONOTONIC`, the clock of the table and of the kernel's records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seed {
    pub began_ns: u64,
    pub ended_ns: u64,
    /// When the cumulative counts were read: the middle of that part.
    pub counted_ns: u64,
    /// By address of the context.
    pub contexts: HashMap<u64, SeedContext>,
    pub lives: Vec<SeedLive>,
    /// Records that changed while they were read, or that led nowhere.
    pub torn: u64,
    /// `Root::epoch` and whether the process keeps cumulative counts by itself, at the beginning.
    pub epoch: u32,
    pub is_cumulative: bool,
    /// Samples recorded and samples freed, together, since the table was set up.
    pub events: u64,
}

/// Frames, leaf first, unit avma, and counts since the process started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeedContext {
    pub frames: Vec<u64>,
    pub cumulative: Counts,
}

/// A live sample and the address of its context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeedLive {
    pub live: Live,
    pub context: u64,
}

impl Seed {
    /// Reads the table at `root`. To be called after the probes are attached and before the ring is drained.
    pub fn read(memory: &impl RemoteMemory, root: u64) -> Result<Seed, TableError> {
        let mut seed = Seed { began_ns: monotonic_ns(), ..Seed::default() };
        let table = Table::open(memory, root)?;
        let root = table.root();
        (seed.epoch, seed.is_cumulative) = (root.epoch, root.opt_accum == 1);
        seed.events = root.samples.wrapping_add(root.frees);
        let contexts = table.contexts(|address, _, frames| {
            let entry = SeedContext { frames: frames.to_vec(), cumulative: Counts::ZERO };
            seed.contexts.insert(address, entry);
            Ok::<_, TableError>(())
        })?;
        let mut context_of = HashMap::new();
        let counting_ns = monotonic_ns();
        let tctxs = table.tctxs(|address, tctx| {
            context_of.insert(address, tctx.context);
            if let Some(context) = seed.contexts.get_mut(&tctx.context) {
                context.cumulative.add(&tctx.cumulative);
            }
            Ok::<_, TableError>(())
        })?;
        seed.counted_ns = counting_ns.midpoint(monotonic_ns());
        // A record can change while it is copied and come out as half of each. So the samples are read twice, and one
        // counts when it was the same both times; one that changed in between was written after `began_ns`, and then the
        // ring has its records. The link to the next record says nothing about the sample.
        let sample = |live: &Live| Live { next: 0, ..*live };
        let mut first = HashMap::new();
        table.lives(|address, live| {
            first.insert(address, sample(live));
            Ok::<_, TableError>(())
        })?;
        let mut astray = 0;
        table.lives(|address, live| {
            if first.get(&address) == Some(&sample(live)) {
                match context_of.get(&live.tctx) {
                    Some(&context) => seed.lives.push(SeedLive { live: *live, context }),
                    None => astray += 1,
                }
            }
            Ok::<_, TableError>(())
        })?;
        seed.torn = contexts.torn + tctxs.torn + astray;
        seed.ended_ns = monotonic_ns();
        Ok(seed)
    }

    /// Cumulative counts without what is live: of samples that are freed already.
    pub fn freed_before(&self) -> HashMap<u64, Counts> {
        let mut freed: HashMap<u64, Counts> =
            self.contexts.iter().map(|(&address, entry)| (address, entry.cumulative)).collect();
        for SeedLive { live, context } in &self.lives {
            if let Some(counts) = freed.get_mut(context) {
                *counts = less(counts, &counts_of(live.usable_bytes, live.weight_bytes));
            }
        }
        freed
    }

    /// Takes the cumulative counts of an earlier reading off.
    pub fn count_from(&mut self, before: &HashMap<u64, Counts>) {
        for (address, before) in before {
            let Some(SeedContext { cumulative, .. }) = self.contexts.get_mut(address) else { continue };
            *cumulative = less(cumulative, before);
        }
    }
}

/// What one sample adds.
pub(super) fn counts_of(usable_bytes: u64, weight_bytes: u64) -> Counts {
    let weight_objects8 = unbias::weight_objects8(usable_bytes, weight_bytes);
    Counts { objects: 1, bytes: usable_bytes, weight_objects8, weight_bytes }
}

/// A difference, each number by itself, of counts that were read one after the other.
pub(super) fn less(counts: &Counts, off: &Counts) -> Counts {
    let less = u64::saturating_sub;
    Counts {
        objects: less(counts.objects, off.objects),
        bytes: less(counts.bytes, off.bytes),
        weight_objects8: less(counts.weight_objects8, off.weight_objects8),
        weight_bytes: less(counts.weight_bytes, off.weight_bytes),
    }
}
