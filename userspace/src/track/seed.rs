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

    /// Takes the cumulative counts of an earlier reading off.
    pub fn count_from(&mut self, before: &HashMap<u64, Counts>) {
        for (address, before) in before {
            let Some(SeedContext { cumulative, .. }) = self.contexts.get_mut(address) else { continue };
            let less = u64::saturating_sub;
            *cumulative = Counts {
                objects: less(cumulative.objects, before.objects),
                bytes: less(cumulative.bytes, before.bytes),
                weight_objects8: less(cumulative.weight_objects8, before.weight_objects8),
                weight_bytes: less(cumulative.weight_bytes, before.weight_bytes),
            };
        }
    }
}
