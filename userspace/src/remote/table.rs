//! One reading of a profile table, as a profile.
//!
//! ```text
//!  contexts: address → frames ─┐
//!  threads:  address → uid    ─┼─ tctxs: (context, thread, counts) ─► Profile::add
//!                              ┘
//! ```
//!
//! Reads while the process runs: each word is whole, two words of one record may differ by one sample. What points
//! nowhere is counted as torn, never guessed.
#![forbid(unsafe_code)]

use std::collections::HashMap;

use jeprobe_abi::drops::Reason;
use jeprobe_abi::reader::{RemoteMemory, Table, TableError};
use jeprobe_abi::root::{Counts, Root};

use crate::estimate::{Basis, Sampling};
use crate::model::{Profile, StackId, Thread, ThreadUid};
use crate::units::SampleInterval;

/// A reading.
#[derive(Debug)]
pub struct Reading {
    pub root: Root,
    /// Without mappings, process and notes: those are the caller's to add.
    pub profile: Profile,
    /// Memory of the process that is no file's, as of this moment; 0 when unknown.
    pub anonymous_bytes: u64,
}

/// Reads the whole table at `root`.
pub fn read(memory: &impl RemoteMemory, root: u64) -> Result<Reading, TableError> {
    let table = Table::open(memory, root)?;
    let root = *table.root();
    let mut profile = Profile::new(SampleInterval(1_u64.checked_shl(root.lg_sample).unwrap_or(u64::MAX)));
    profile.set_losses(root.drops);
    profile.add_counter("samples", root.samples);
    profile.add_counter("frees", root.frees);

    let mut contexts = HashMap::new();
    let seen_contexts = table.contexts(|avma, _, frames| {
        contexts.insert(avma, frames.to_vec());
        Ok::<_, TableError>(())
    })?;
    let mut threads = HashMap::new();
    let seen_threads = table.threads(|avma, thread| {
        let uid = ThreadUid(thread.uid);
        threads.insert(avma, uid);
        let name = thread.name.split(|&b| b == 0).next().unwrap_or(&[]);
        let name = String::from_utf8_lossy(name).into_owned();
        profile.add_thread(uid, Thread { tid: Some(thread.tid), name, ..Thread::default() });
        Ok::<_, TableError>(())
    })?;
    let mut astray = 0;
    let seen_tctxs = table.tctxs(|_, tctx| {
        if let Some(frames) = contexts.get(&tctx.context) {
            let thread = threads.get(&tctx.thread).copied();
            // Without `prof_accum` they count only while someone was attached.
            let cumulative = if root.opt_accum == 1 { tctx.cumulative } else { Counts::ZERO };
            let _: StackId = profile.add(frames, thread, tctx.current().into(), cumulative.into());
        } else {
            astray += 1;
        }
        Ok::<_, TableError>(())
    })?;
    if is_mixed(&profile) {
        let mut basis = Basis::new(profile.interval());
        table.lives(|_, live| {
            basis.add_sample(live.usable_bytes, live.weight_bytes);
            Ok::<_, TableError>(())
        })?;
        if basis.is_mixed() {
            profile.set_basis(false, basis);
            // Written at the finest interval, no estimate is lost to rounding.
            profile.set_interval(basis.finest);
        }
    }
    let torn = seen_contexts.torn + seen_threads.torn + seen_tctxs.torn + astray;
    if torn > 0 {
        profile.add_loss(Reason::TornRead, torn);
    }
    if root.text_start < root.text_end {
        profile.add_allocator_text(root.text_start..root.text_end);
    }
    Ok(Reading { root, profile, anonymous_bytes: 0 })
}

/// Share of the estimate that the interval in force may leave unexplained before each sample is asked for its own.
const UNEXPLAINED: f64 = 0.002;

/// True when the live samples may be of several intervals: their estimates are not what the one in force gives. So are
/// those of stacks that mix sizes; asking each sample is only slower then.
fn is_mixed(profile: &Profile) -> bool {
    let sampling = Sampling::Poisson(profile.interval());
    let (mut all, mut unexplained) = (0.0, 0.0);
    for (_, _, values) in profile.totals() {
        let estimate = values.current.est.bytes;
        all += estimate;
        unexplained += (estimate - sampling.unbias(values.current.raw).est.bytes).abs();
    }
    unexplained > UNEXPLAINED * all
}
