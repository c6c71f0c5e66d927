//! The sampler's parts one by one, for `cargo bench`. Nothing of the allocator uses this.
#![forbid(unsafe_code)]

extern crate alloc;

use alloc::boxed::Box;

use jeprobe_abi::logic::hash_frames;
use jeprobe_abi::pack::pack;

use super::backtrace::{self, Stack};
use super::lives::Live;
use super::records::{ContextCell, Ptr, TctxCell, ThreadCell};
use super::sampler::{Sampler, Weights};
use super::stacks::{self, Frames};
use super::table::{self, Sample};
use super::threads;
use super::trace::Trace;
use super::way::Caller;
use crate::sys;

/// What a thread needs to walk its stack.
pub struct Walk {
    trace: Box<Trace>,
    stack: Stack,
}

impl Walk {
    /// `None` without memory.
    pub fn new() -> Option<Walk> {
        Trace::new().map(|trace| Walk { trace, stack: Stack::UNKNOWN })
    }

    /// Walks the stack, remembering the last walk; number of frames.
    #[inline(never)]
    pub fn remembered(&mut self) -> Option<usize> {
        let (start, now_ns) = (backtrace::start(Caller::UNKNOWN), sys::clock_recent_ns());
        backtrace::walk(&mut self.trace, &mut self.stack, start, now_ns).map(|walked| walked.depth)
    }

    /// Walks the stack by known rules, remembering nothing; number of frames.
    pub fn by_rules(&mut self) -> Option<usize> {
        self.trace.forget();
        self.remembered()
    }

    /// Walks the stack by the unwinder alone; number of frames.
    pub fn by_unwinder(&mut self) -> Option<usize> {
        backtrace::walk_by_unwinder(&mut self.stack)
    }
}

/// Some stacks, and a thread that samples in them.
pub struct Records {
    thread: Ptr<ThreadCell>,
    context: Ptr<ContextCell>,
    tctx: Ptr<TctxCell>,
    frames: [u64; 20],
    packed: [[u8; 8]; 20],
    packed_words: usize,
    weights: Weights,
}

impl Records {
    /// `None` without memory.
    pub fn new() -> Option<Records> {
        let thread = threads::start(sys::gettid())?;
        let mut frames = [0; 20];
        frames.iter_mut().zip(0x40_0000..).for_each(|(frame, pc)| *frame = pc);
        let mut words = [0; 20];
        let packed_words = pack(frames.iter().copied(), &mut words)?;
        let packed = words.map(u64::to_le_bytes);
        let (context, _) = stacks::context(&stack(&frames, packed.get(..packed_words)), false)?;
        let tctx = stacks::tctx(context, thread)?;
        Some(Records { thread, context, tctx, frames, packed, packed_words, weights: Weights::NONE })
    }

    /// Hashes 20 frames and finds their record; false when that is not the one.
    pub fn find(&self) -> bool {
        let stack = stack(&self.frames, self.packed.get(..self.packed_words));
        stacks::context(&stack, false).is_some_and(|(context, new)| !new && context.same(self.context))
    }

    /// Records a sample in a known stack.
    pub fn record(&self, live: Live) {
        let sample =
            Sample { live, usable_bytes: 256, requested_bytes: 250, weight: self.weights.weight(256, 19), time_ns: 1 };
        table::record(self.thread, self.tctx, &sample);
    }

    /// Forgets it again; false when there was none.
    pub fn end(&self, live: Live) -> bool {
        table::end(live, Some(self.thread), |usable, bytes| self.weights.known(usable, bytes)).is_some()
    }
}

/// A record for an object that is none of the allocator's; `None` without memory.
pub fn live(ptr: usize) -> Option<Live> {
    Live::apart(core::ptr::without_provenance_mut(ptr))
}

/// Gives such a record back.
pub fn recycle(live: Live) {
    live.recycle();
}

fn stack<'a>(frames: &'a [u64], packed: Option<&'a [[u8; 8]]>) -> Frames<'a, impl Iterator<Item = u64> + Clone> {
    Frames { depth: frames.len(), hash: hash_frames(frames), leaf_first: frames.iter().copied(), packed }
}

/// Draws of distances between samples, and weights.
pub struct Draws(Sampler, Weights);

impl Draws {
    pub fn new(seed: u64) -> Draws {
        Draws(Sampler::seeded(seed), Weights::NONE)
    }

    /// Bytes to the next sample at a mean of `2^lg`.
    pub fn draw(&mut self, lg: u32) -> u64 {
        self.0.distance(lg)
    }

    /// Weight in bytes of a sample of `usable` bytes at a mean of `2^lg`.
    pub fn weight(&self, usable: u64, lg: u32) -> u64 {
        self.1.weight(usable, lg).bytes
    }
}
