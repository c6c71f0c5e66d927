//! Records of the profile table out of the bytes they were copied as: field by field, in the order of `root.rs`, native
//! endian.
#![forbid(unsafe_code)]

use crate::drops::DROP_REASONS;
use crate::root::{Apart, Context, Counts, Live, Root, Segment, Tctx, Thread};

/// Takes native-endian fields off the front of a record whose length the caller has checked; past the end it gives 0.
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl Fields<'_> {
    fn u16(&mut self) -> u16 {
        self.take().map_or(0, u16::from_ne_bytes)
    }

    fn u32(&mut self) -> u32 {
        self.take().map_or(0, u32::from_ne_bytes)
    }

    pub(crate) fn u64(&mut self) -> u64 {
        self.take().map_or(0, u64::from_ne_bytes)
    }

    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, tail) = self.0.split_first_chunk::<N>()?;
        self.0 = tail;
        Some(*head)
    }

    fn counts(&mut self) -> Counts {
        Counts { objects: self.u64(), bytes: self.u64(), weight_objects8: self.u64(), weight_bytes: self.u64() }
    }
}

pub(crate) fn root(bytes: &[u8]) -> Root {
    let mut f = Fields(bytes);
    Root {
        magic: f.u64(),
        abi_version: f.u32(),
        root_size: f.u32(),
        segment_size: f.u32(),
        context_size: f.u32(),
        tctx_size: f.u32(),
        live_size: f.u32(),
        thread_size: f.u32(),
        state: f.u32(),
        pid: f.u32(),
        epoch: f.u32(),
        prof_active: f.u32(),
        dump_request: f.u32(),
        dump_served: f.u32(),
        lg_sample: f.u32(),
        opt_prof: f.u32(),
        opt_accum: f.u32(),
        max_frames: f.u32(),
        _pad: f.u32(),
        start_ns: f.u64(),
        samples: f.u64(),
        frees: f.u64(),
        dumps: f.u64(),
        dump_failures: f.u64(),
        exited_allocated_bytes: f.u64(),
        exited_deallocated_bytes: f.u64(),
        drops: {
            let mut drops = [0; DROP_REASONS];
            for drop in &mut drops {
                *drop = f.u64();
            }
            drops
        },
        contexts: f.u64(),
        tctxs: f.u64(),
        lives: f.u64(),
        threads: f.u64(),
        allocated_bytes: f.u64(),
        active_bytes: f.u64(),
        resident_bytes: f.u64(),
        mapped_bytes: f.u64(),
        text_start: f.u64(),
        text_end: f.u64(),
    }
}

pub(crate) fn segment(bytes: &[u8]) -> Segment {
    let mut f = Fields(bytes);
    Segment { next: f.u64(), kind: f.u32(), _pad: f.u32(), used_bytes: f.u64(), capacity_bytes: f.u64() }
}

pub(crate) fn context(bytes: &[u8]) -> Context {
    let mut f = Fields(bytes);
    Context { hash: f.u64(), tctxs: f.u64(), depth: f.u16(), words: f.u16(), flags: f.u16(), _pad: f.u16() }
}

pub(crate) fn tctx(bytes: &[u8]) -> Tctx {
    let mut f = Fields(bytes);
    Tctx { context: f.u64(), next: f.u64(), thread: f.u64(), apart: f.u64(), kept: f.counts() }
}

pub(crate) fn apart(bytes: &[u8]) -> Apart {
    let mut f = Fields(bytes);
    Apart { freed: f.counts(), cumulative: f.counts() }
}

pub(crate) fn live(bytes: &[u8]) -> Live {
    let mut f = Fields(bytes);
    Live {
        ptr: f.u64(),
        usable_bytes: f.u64(),
        requested_bytes: f.u64(),
        weight_bytes: f.u64(),
        tctx: f.u64(),
        time_ns: f.u64(),
        next: f.u64(),
        state: f.u32(),
        epoch: f.u32(),
    }
}

pub(crate) fn thread(bytes: &[u8]) -> Thread {
    let mut f = Fields(bytes);
    Thread {
        uid: f.u32(),
        tid: f.u32(),
        alive: f.u32(),
        _pad: f.u32(),
        name: f.take().unwrap_or([0; 16]),
        samples: f.u64(),
        frees: f.u64(),
        allocated_bytes: f.u64(),
        deallocated_bytes: f.u64(),
        kept: f.u64(),
        freed: f.u64(),
    }
}
