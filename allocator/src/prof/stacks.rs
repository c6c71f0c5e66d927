//! Stacks and their counts: which there are, each once, and the counts of each in each thread.
//!
//! ```text
//!  context(frames) ─► context             by the index
//!  tctx(context, thread) ─► tctx          in the context's list, or by the index where that is long
//! ```
//!
//! Found without a lock; made under `ProfContexts` and `ProfTctxs`. Nothing is ever removed: memory is bounded by the number of
//! distinct stacks, up to [`MAX_CONTEXT_BYTES`], times that of the threads which sampled in each.
#![forbid(unsafe_code)]

use jeprobe_abi::abi::MAX_FRAMES;
use jeprobe_abi::logic::hash_frames;
use jeprobe_abi::pack::pack;
use jeprobe_abi::root::{CONTEXT_PLAIN, CONTEXT_TRUNCATED, KIND_CONTEXT, KIND_TCTX};

use super::index::Index;
use super::records::{ApartCell, ContextCell, CountsCell, Link, Ptr, TctxCell, ThreadCell, jeprobe_root};
use super::segments::{Appender, alloc_value};
use crate::prim::{AtomicU16, Ordering};
use crate::sync::mutex::Mutex;
use crate::sync::rank::Rank;

/// Stacks kept, bytes: a program that makes new code without end must not fill memory with its stacks. Samples beyond
/// it are recorded without a stack. A context of 30 frames takes some 100 bytes, so this is two to
/// three million stacks.
pub(crate) const MAX_CONTEXT_BYTES: usize = 256 << 20;

const FIRST_SEGMENT_BYTES: usize = 4 << 10;

static CONTEXTS: Mutex<Appender> = Mutex::new(Rank::ProfContexts, Appender::new(KIND_CONTEXT, FIRST_SEGMENT_BYTES));
static CONTEXT_INDEX: Index<ContextCell> = Index::new();
static TCTXS: Mutex<Appender> = Mutex::new(Rank::ProfTctxs, Appender::new(KIND_TCTX, FIRST_SEGMENT_BYTES));
static TCTX_INDEX: Index<TctxCell> = Index::new();

/// A stack to look up.
#[derive(Clone)]
pub(crate) struct Frames<'a, I> {
    pub(crate) depth: usize,
    /// The same for the same frames.
    pub(crate) hash: u64,
    /// `depth` frames, leaf first, unit avma.
    pub(crate) leaf_first: I,
    /// The words of their packed form, if someone has it.
    pub(crate) packed: Option<&'a [[u8; 8]]>,
}

impl<I: Iterator<Item = u64> + Clone> Frames<'_, I> {
    /// True for the frames of `context`.
    fn are_those_of(&self, context: Ptr<ContextCell>) -> bool {
        context.hash == self.hash
            && usize::from(context.depth) == self.depth
            && match (self.packed, context.packed()) {
                // Frames have one packed form.
                (Some(own), Some(kept)) => {
                    own.len() == kept.len() && kept.iter().zip(own).all(|(kept, own)| *kept == u64::from_le_bytes(*own))
                }
                _ => has_frames(context, self.leaf_first.clone()),
            }
    }
}

/// The record of a stack, and whether it is new. `None` without memory or beyond the limit.
pub(crate) fn context(
    stack: &Frames<'_, impl Iterator<Item = u64> + Clone>,
    truncated: bool,
) -> Option<(Ptr<ContextCell>, bool)> {
    let Frames { depth, hash, .. } = *stack;
    let is_this = |context: &Ptr<ContextCell>| stack.are_those_of(*context);
    let known = CONTEXT_INDEX.count();
    if let Some(context) = CONTEXT_INDEX.find(hash, is_this) {
        return Some((context, false));
    }
    let mut contexts = CONTEXTS.lock();
    if CONTEXT_INDEX.count() != known
        && let Some(context) = CONTEXT_INDEX.find(hash, is_this)
    {
        return Some((context, false));
    }
    if contexts.taken_bytes > MAX_CONTEXT_BYTES && depth != 0 {
        return None;
    }
    let context = append(&mut contexts, stack, if truncated { CONTEXT_TRUNCATED } else { 0 })?;
    CONTEXT_INDEX.insert_locked(hash, context).then_some((context, true))
}

/// Not a part of its caller, which seldom comes this far: only for what is too deep or too far apart to be packed.
#[cold]
#[inline(never)]
fn has_frames(context: Ptr<ContextCell>, leaf_first: impl Iterator<Item = u64>) -> bool {
    context.frames().eq(leaf_first)
}

/// Appends the record of a stack; `None` without memory.
fn append(
    records: &mut Appender,
    stack: &Frames<'_, impl Iterator<Item = u64> + Clone>,
    flags: u16,
) -> Option<Ptr<ContextCell>> {
    if let Some(packed) = stack.packed {
        let words = packed.iter().map(|word| u64::from_le_bytes(*word));
        return append_words(records, stack, flags, packed.len(), words);
    }
    append_unpacked(records, stack, flags)
}

#[cold]
#[inline(never)]
fn append_unpacked(
    records: &mut Appender,
    stack: &Frames<'_, impl Iterator<Item = u64> + Clone>,
    flags: u16,
) -> Option<Ptr<ContextCell>> {
    let mut buffer = [0; MAX_FRAMES];
    let packed = pack(stack.leaf_first.clone(), &mut buffer).and_then(|words| buffer.get(..words));
    match packed {
        Some(packed) => append_words(records, stack, flags, packed.len(), packed.iter().copied()),
        None => append_words(records, stack, flags | CONTEXT_PLAIN, stack.depth, stack.leaf_first.clone()),
    }
}

#[inline(always)]
fn append_words<I>(
    records: &mut Appender,
    stack: &Frames<'_, I>,
    flags: u16,
    count: usize,
    words: impl Iterator<Item = u64>,
) -> Option<Ptr<ContextCell>> {
    let record = ContextCell {
        hash: stack.hash,
        tctxs: Link::none(),
        depth: stack.depth as u16,
        words: count as u16,
        flags,
        tctxs_count: AtomicU16::new(0),
    };
    records.append(&jeprobe_root.contexts, record, count, words)
}

/// The record of samples without a stack.
pub(crate) fn no_context(truncated: bool) -> Option<Ptr<ContextCell>> {
    let none = Frames { depth: 0, hash: hash_frames(&[]), leaf_first: core::iter::empty(), packed: Some(&[]) };
    context(&none, truncated).map(|(context, _)| context)
}

fn tctx_hash(context: usize, thread: usize) -> u64 {
    (context as u64).rotate_left(32) ^ thread as u64
}

/// Tctxs of a context that are looked through one by one; where there are more, the index knows all of them. Most stacks
/// belong to one thread or to a few.
const LISTED: u16 = 8;

fn tctxs_of(context: Ptr<ContextCell>) -> impl Iterator<Item = Ptr<TctxCell>> {
    core::iter::successors(context.tctxs.get(), |tctx| tctx.next.get())
}

fn find_tctx(context: Ptr<ContextCell>, thread: Ptr<ThreadCell>) -> Option<Ptr<TctxCell>> {
    let of_thread = |tctx: &Ptr<TctxCell>| tctx.thread.get().is_some_and(|t| t.same(thread));
    context.tctxs.get()?;
    tctxs_of(context).take(LISTED.into()).find(of_thread).or_else(|| {
        if context.tctxs_count.load(Ordering::Relaxed) <= LISTED {
            return None;
        }
        TCTX_INDEX.find(tctx_hash(context.addr(), thread.addr()), |tctx| {
            of_thread(tctx) && tctx.context.get().is_some_and(|c| c.same(context))
        })
    })
}

/// The counts of a stack in a thread, which is the calling one; `None` without memory.
pub(crate) fn tctx(context: Ptr<ContextCell>, thread: Ptr<ThreadCell>) -> Option<Ptr<TctxCell>> {
    if let Some(tctx) = find_tctx(context, thread) {
        return Some(tctx);
    }
    let mut tctxs = TCTXS.lock();
    if let Some(tctx) = find_tctx(context, thread) {
        return Some(tctx);
    }
    let count = context.tctxs_count.load(Ordering::Relaxed);
    let record = TctxCell::blank();
    record.context.set(Some(context));
    record.thread.set(Some(thread));
    record.next.set(context.tctxs.get());
    let made = tctxs.append(&jeprobe_root.tctxs, record, 0, core::iter::empty())?;
    // Before the list says that there are so many: who sees that relies on the index.
    if count >= LISTED {
        let listed = tctxs_of(context).take(if count == LISTED { LISTED.into() } else { 0 });
        for tctx in core::iter::once(made).chain(listed) {
            let hash = tctx_hash(context.addr(), tctx.thread.get().map_or(0, Ptr::addr));
            if !TCTX_INDEX.insert_locked(hash, tctx) {
                return None;
            }
        }
    }
    // Relaxed: published by the link.
    context.tctxs_count.store(count.saturating_add(1), Ordering::Relaxed);
    context.tctxs.set(Some(made));
    Some(made)
}

/// The counts that few tctxs need, made now if need be; `None` without memory.
#[inline]
pub(crate) fn apart(tctx: Ptr<TctxCell>) -> Option<Ptr<ApartCell>> {
    tctx.apart.get().or_else(|| make_apart(tctx))
}

#[cold]
#[inline(never)]
fn make_apart(tctx: Ptr<TctxCell>) -> Option<Ptr<ApartCell>> {
    let _tctxs = TCTXS.lock();
    tctx.apart.get().or_else(|| {
        let made = alloc_value(ApartCell { freed: CountsCell::new(), cumulative: CountsCell::new() })?;
        tctx.apart.set(Some(made));
        Some(made)
    })
}

/// Every stack's counts in each thread, while none are made of a new stack.
pub(crate) fn each_tctx(mut each: impl FnMut(Ptr<TctxCell>)) {
    let _contexts = CONTEXTS.lock();
    CONTEXT_INDEX.each(|context| tctxs_of(context).for_each(&mut each));
}

pub(crate) fn prefork() {
    CONTEXTS.lock_for_fork();
    TCTXS.lock_for_fork();
}

pub(crate) fn postfork_parent() {
    TCTXS.unlock_for_fork();
    CONTEXTS.unlock_for_fork();
}

pub(crate) fn postfork_child() {
    TCTXS.reset_in_child();
    CONTEXTS.reset_in_child();
}

#[cfg(test)]
mod tests {
    use super::super::threads;
    use super::*;
    use std::vec::Vec;

    fn stack(frames: &[u64]) -> Ptr<ContextCell> {
        let frames =
            Frames { depth: frames.len(), hash: hash_frames(frames), leaf_first: frames.iter().copied(), packed: None };
        context(&frames, false).expect("memory").0
    }

    #[test]
    fn a_stack_of_many_threads_has_one_count_for_each() {
        let context = stack(&[31, 32]);
        let other = stack(&[33, 32]);
        let threads: Vec<_> = (0..40).map(|tid| threads::start(tid).expect("memory")).collect();
        let of = |context| threads.iter().map(|thread| tctx(context, *thread).expect("memory").addr()).collect();
        let made: Vec<usize> = of(context);
        let others: Vec<usize> = of(other);
        assert_eq!((of(context), of(other)), (made.clone(), others.clone()));
        let mut all = [made, others].concat();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 80);
    }
}
