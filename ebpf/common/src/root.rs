//! The profile table, as it lies in the target's memory.
//!
//! ```text
//!  jeprobe_root ─► Root ─┬─ contexts ─► Segment ─► Segment ─► 0     records of varying size: Context + packed frames
//!                        ├─ tctxs    ─► Segment …                  one per (context, thread)
//!                        ├─ lives    ─► Segment …                  one per live sample
//!                        └─ threads  ─► Segment …                  one per thread that sampled
//! ```
//!
//! Segments are only ever appended and never freed or moved, so a reader that follows the heads needs no lock:
//! `used_bytes` is stored with Release after the record before it is complete. Counters are 64-bit words written with
//! atomic operations; a reader of another process sees each word whole, and two words of one record possibly at
//! slightly different times.
//!
//! All addresses are of the target's address space (avma); 0 means none. All byte counts are usable bytes unless the
//! name says requested. The structs are read by copying bytes; the writer reaches the fields as atomics.
#![forbid(unsafe_code)]

use crate::drops::DROP_REASONS;

/// `Root::state`: memory is zero, nothing was set up.
pub const STATE_UNSET: u32 = 0;
/// `Root::state`: the table can be read.
pub const STATE_READY: u32 = 1;

/// `Segment::kind`.
pub const KIND_CONTEXT: u32 = 1;
pub const KIND_TCTX: u32 = 2;
pub const KIND_LIVE: u32 = 3;
pub const KIND_THREAD: u32 = 4;

/// `Live::state`: the slot is free for reuse.
pub const LIVE_FREE: u32 = 0;
/// `Live::state`: being written; a reader skips and counts it.
pub const LIVE_BUSY: u32 = 1;
/// `Live::state`: describes a live sampled object.
pub const LIVE_SET: u32 = 2;

/// Entry point of the profile table. Fixed place in the writable data of the library or program.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Root {
    /// [`crate::abi::ROOT_MAGIC`].
    pub magic: u64,
    /// [`crate::abi::ABI_VERSION`].
    pub abi_version: u32,
    /// `size_of::<Root>()`; likewise the next five for their records.
    pub root_size: u32,
    pub segment_size: u32,
    pub context_size: u32,
    pub tctx_size: u32,
    pub live_size: u32,
    pub thread_size: u32,
    /// [`STATE_READY`] when the rest is valid; stored with Release.
    pub state: u32,
    /// Process that owns the table; the child of a fork stores its own.
    pub pid: u32,
    /// Raised by `prof.reset`; samples of an earlier epoch no longer count. A forked child owns the same objects and
    /// keeps its parent's epoch.
    pub epoch: u32,

    /// Control word, may be written from outside: 1 = sample and record, 0 = dormant. `prof.active`.
    pub prof_active: u32,
    /// Control word, may be written from outside: each increment asks for one dump, made at the next sample point or
    /// by the background thread.
    pub dump_request: u32,
    /// Last value of `dump_request` that was served.
    pub dump_served: u32,
    /// Log2 of the mean bytes between samples, in force now.
    pub lg_sample: u32,
    /// 1 = `opt.prof`: `prof.*` calls work.
    pub opt_prof: u32,
    /// 1 = cumulative counts are kept.
    pub opt_accum: u32,
    /// Frames kept of each stack, at most [`crate::abi::MAX_FRAMES`].
    pub max_frames: u32,
    pub _pad: u32,
    /// `CLOCK_MONOTONIC` ns at which the table was set up.
    pub start_ns: u64,

    /// Samples recorded, and sampled objects freed again, since the table was set up: by threads that have ended; the
    /// living keep their own in `Thread`. What [`crate::reader::Table::root`] gives has those added.
    pub samples: u64,
    pub frees: u64,
    /// Dumps written, and dumps that failed.
    pub dumps: u64,
    pub dump_failures: u64,
    /// Bytes allocated and freed by threads that have ended (usable); the living keep their own in `Thread`.
    pub exited_allocated_bytes: u64,
    pub exited_deallocated_bytes: u64,
    /// Losses by reason, indexed by [`crate::drops::Reason`].
    pub drops: [u64; DROP_REASONS],

    /// Heads: address of the first [`Segment`] of each list, 0 = none yet.
    pub contexts: u64,
    pub tctxs: u64,
    pub lives: u64,
    pub threads: u64,

    /// Allocator gauges for a reader without `mallctl`: bytes, refreshed at sample points and with each epoch.
    pub allocated_bytes: u64,
    pub active_bytes: u64,
    pub resident_bytes: u64,
    pub mapped_bytes: u64,
    /// Half-open range of the allocator's own code, so that its frames can be cut; 0 when unknown.
    pub text_start: u64,
    pub text_end: u64,
}

/// Header of a block of records; the records follow at `segment_size` bytes from its start.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    /// Next segment, 0 = last.
    pub next: u64,
    pub kind: u32,
    pub _pad: u32,
    /// Bytes of records that may be read, a multiple of 8. Stored with Release.
    pub used_bytes: u64,
    /// Bytes of records that fit.
    pub capacity_bytes: u64,
}

/// Sums over samples.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Raw samples.
    pub objects: u64,
    /// Raw usable bytes of the samples.
    pub bytes: u64,
    /// Unbiased objects times 8: the sum of round(8 / p(s)), p(s) = 1 - exp(-s/R), taken as 8 weight / s.
    pub weight_objects8: u64,
    /// Unbiased bytes: the sum of round(s / p(s)).
    pub weight_bytes: u64,
}

impl Counts {
    pub const ZERO: Counts = Counts { objects: 0, bytes: 0, weight_objects8: 0, weight_bytes: 0 };

    pub fn add(&mut self, more: &Counts) {
        // Sums of a damaged table must not panic.
        self.objects = self.objects.wrapping_add(more.objects);
        self.bytes = self.bytes.wrapping_add(more.bytes);
        self.weight_objects8 = self.weight_objects8.wrapping_add(more.weight_objects8);
        self.weight_bytes = self.weight_bytes.wrapping_add(more.weight_bytes);
    }
}

/// One distinct stack; its counts are those of its [`Tctx`]s together. Followed by `words` 64-bit words, which hold `depth`
/// frames, leaf first, 0 never valid, packed ([`crate::pack`]) or one a word ([`CONTEXT_PLAIN`]): return addresses, but for
/// the leaf, which is the last byte of its call (a heap file's readers do not take one off it; one that does stays inside
/// the call). The allocator's own frames at the leaf end are left out where it is a library of its own.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Context {
    pub hash: u64,
    /// First [`Tctx`] of this stack.
    pub tctxs: u64,
    pub depth: u16,
    pub words: u16,
    /// [`CONTEXT_TRUNCATED`], [`CONTEXT_PLAIN`].
    pub flags: u16,
    pub _pad: u16,
}

/// [`Context::flags`] bit: the walk ended before the outermost frame (stack memory or unwind information missing).
pub const CONTEXT_TRUNCATED: u16 = 1;
/// [`Context::flags`] bit: frames are not packed.
pub const CONTEXT_PLAIN: u16 = 2;

/// Counts of one stack in one thread. Samples that the thread took and frees are counted in words that only the thread
/// writes; what others free of them is counted in the [`Apart`], so that no sample waits for another thread's cache line.
/// Live is what `kept` has more than `freed`: who copies `freed` first never sees a free without its sample.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Tctx {
    pub context: u64,
    /// Next of the same context.
    pub next: u64,
    /// Address of the [`Thread`].
    pub thread: u64,
    /// Address of the [`Apart`], 0 while its counts are all 0.
    pub apart: u64,
    /// Samples of the thread less those that it freed itself.
    pub kept: Counts,
}

/// What few [`Tctx`]s need.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Apart {
    /// Samples of the thread that others freed.
    pub freed: Counts,
    /// Samples ever taken, where they are counted ([`Root::opt_accum`]).
    pub cumulative: Counts,
}

/// One live sampled object.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Live {
    pub ptr: u64,
    pub usable_bytes: u64,
    pub requested_bytes: u64,
    /// Unbiased bytes that this sample stands for.
    pub weight_bytes: u64,
    /// Address of the [`Tctx`].
    pub tctx: u64,
    /// `CLOCK_MONOTONIC` ns of the allocation.
    pub time_ns: u64,
    /// Next slot of the same hash bucket or of the free list.
    pub next: u64,
    /// [`LIVE_FREE`], [`LIVE_BUSY`] or [`LIVE_SET`].
    pub state: u32,
    /// `Root::epoch` at the time of the sample.
    pub epoch: u32,
}

/// One thread that sampled at least once.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Thread {
    /// Number from 0 in order of first sample; never reused. The `tN` of heap files.
    pub uid: u32,
    /// Kernel thread id.
    pub tid: u32,
    /// 1 while the thread lives.
    pub alive: u32,
    pub _pad: u32,
    /// NUL-terminated; empty when never named.
    pub name: [u8; 16],
    /// Samples that it took, and sampled objects that it freed; 0 again in a new thread.
    pub samples: u64,
    pub frees: u64,
    /// Bytes ever allocated and freed by the thread, refreshed at its sample points and at its end.
    pub allocated_bytes: u64,
    pub deallocated_bytes: u64,
    /// Samples it took less those that it freed itself, and those of them that others freed. The record of an ended thread
    /// for which both are the same may serve a new thread.
    pub kept: u64,
    pub freed: u64,
}
