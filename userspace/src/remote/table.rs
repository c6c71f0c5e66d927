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
use jeprobe_abi::root::{Counts, Live, Root};

use crate::model::{Profile, StackId, Thread, ThreadUid};
use crate::units::SampleInterval;

/// A reading.
#[derive(Debug)]
pub struct Reading {
    pub root: Root,
    /// Without mappings, process and notes: those are the caller's to add.
    pub profile: Profile,
    /// By address of the context, which is what a record of the ring names with `STACK_IN_PROCESS`.
    pub contexts: HashMap<u64, Stack>,
    /// Live samples; `tctx` is replaced by the address of the context.
    pub lives: Vec<Live>,
}

/// One context.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stack {
    /// Return addresses, leaf first; unit avma.
    pub frames: Vec<u64>,
    pub cumulative: Counts,
}

/// Reads the whole table at `root`.
pub fn read(memory: &impl RemoteMemory, root: u64) -> Result<Reading, TableError> {
    let table = Table::open(memory, root)?;
    let root = *table.root();
    let mut profile = Profile::new(SampleInterval(1_u64.checked_shl(root.lg_sample).unwrap_or(u64::MAX)));
    profile.set_losses(root.drops);

    let mut contexts = HashMap::new();
    let seen_contexts = table.contexts(|avma, context, frames| {
        contexts.insert(avma, Stack { frames: frames.to_vec(), cumulative: context.cumulative });
        Ok::<_, TableError>(())
    })?;
    let mut threads = HashMap::new();
    let seen_threads = table.threads(|avma, thread| {
        let uid = ThreadUid(thread.uid);
        threads.insert(avma, uid);
        let name = thread.name.split(|&b| b == 0).next().unwrap_or(&[]);
        let name = String::from_utf8_lossy(name).into_owned();
        profile.add_thread(uid, Thread { tid: Some(thread.tid), name });
        Ok::<_, TableError>(())
    })?;
    let mut astray = 0;
    let mut context_of = HashMap::new();
    let seen_tctxs = table.tctxs(|avma, tctx| {
        context_of.insert(avma, tctx.context);
        if let Some(Stack { frames, .. }) = contexts.get(&tctx.context) {
            let thread = threads.get(&tctx.thread).copied();
            let _: StackId = profile.add(frames, thread, tctx.current.into(), tctx.cumulative.into());
        } else {
            astray += 1;
        }
        Ok::<_, TableError>(())
    })?;
    let mut lives = Vec::new();
    let seen_lives = table.lives(|_, live| {
        match context_of.get(&live.tctx) {
            Some(&context) => lives.push(Live { tctx: context, ..*live }),
            // The record was appended after the walk over them; its sample is the newest there is.
            None => astray += 1,
        }
        Ok::<_, TableError>(())
    })?;
    let torn = seen_contexts.torn + seen_threads.torn + seen_tctxs.torn + seen_lives.torn + astray;
    if torn > 0 {
        profile.add_loss(Reason::TornRead, torn);
    }
    if root.text_start < root.text_end {
        profile.add_allocator_text(root.text_start..root.text_end);
    }
    Ok(Reading { root, profile, contexts, lives })
}
