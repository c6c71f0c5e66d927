//! The sampled heap of one process image, kept up by the records of its hooks. Pure: no clock, no file, no kernel.
//!
//! ```text
//!  held:   ptr → (stack, usable bytes, weight, time)     live samples, at most `cap`
//!  stacks: (id, kind) → frames, current, cumulative      current = sum over held; cumulative only grows
//! ```
//!
//! I-LIVE-1: for each stack, `current` is the sum of the counts of the held samples that name it.
//! I-LIVE-2: a sample that was taken off took off exactly what it had added, whatever the sampling interval is by then.
//!
//! Records can be lost, so nothing is trusted to come in pairs: an allocation at an address that is held means that its
//! free was missed, and ends the older sample; a free of an address that is not held is counted.
#![forbid(unsafe_code)]

use std::collections::HashMap;

use jeprobe_abi::event::{AllocEvent, ContextEvent, FreeEvent, STACK_IN_PROCESS};
use jeprobe_abi::root::Counts;

use super::seed::{self, Seed};
use crate::estimate::Basis;
use crate::probe::ring;
use crate::units::SampleInterval;

/// A stack's identity within one image: context address or hash of the frames, and `STACK_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StackKey {
    pub id: u64,
    pub kind: u32,
}

/// One stack and what was allocated there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stack {
    /// Leaf first, unit avma; `None` when the frames never arrived. Those of `STACK_IN_PROCESS` are at the address that
    /// the key gives, as long as the process lives.
    pub frames: Option<Box<[u64]>>,
    pub current: Counts,
    pub cumulative: Counts,
}

/// What could not be accounted for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gaps {
    /// Frees of samples that are not held.
    pub unknown_frees: u64,
    /// Samples whose free never arrived: another sample was taken at the same address.
    pub missed_frees: u64,
    /// Samples that the cap kept out of the live set; they are in the cumulative counts only.
    pub overflowed: u64,
    /// Samples of targets that do not say what a sample stands for; their estimates are the raw counts.
    pub unweighted: u64,
    /// Table records that changed while they were read.
    pub torn: u64,
}

/// A live sample.
#[derive(Clone, Copy, Debug)]
struct Held {
    stack: StackKey,
    usable_bytes: u64,
    weight_bytes: u64,
    time_ns: u64,
    /// From the table, not from the ring.
    seeded: bool,
    /// The process reset its profile since: it counts no more, but its free is expected.
    forgotten: bool,
}

impl Held {
    fn counts(&self) -> Counts {
        if self.forgotten {
            return Counts::default();
        }
        seed::counts_of(self.usable_bytes, self.weight_bytes)
    }
}

/// The sampled heap of one image.
#[derive(Clone, Debug)]
pub struct Live {
    held: HashMap<u64, Held>,
    cap: usize,
    stacks: HashMap<StackKey, Stack>,
    /// Times of the table's reading, 0 when there was none.
    began_ns: u64,
    counted_ns: u64,
    ended_ns: u64,
    pub gaps: Gaps,
    /// Records applied.
    pub allocs: u64,
    pub frees: u64,
}

impl Live {
    /// Holds at most `cap` live samples, about 100 bytes each.
    pub fn new(cap: usize) -> Live {
        Live {
            held: HashMap::new(),
            cap,
            stacks: HashMap::new(),
            began_ns: 0,
            counted_ns: 0,
            ended_ns: 0,
            gaps: Gaps::default(),
            allocs: 0,
            frees: 0,
        }
    }

    /// Takes over what the process had recorded. Once, before the first record is applied.
    pub fn seed(&mut self, seed: &Seed) {
        (self.began_ns, self.counted_ns, self.ended_ns) = (seed.began_ns, seed.counted_ns, seed.ended_ns);
        self.gaps.torn += seed.torn;
        for (&id, context) in &seed.contexts {
            let stack = self.stacks.entry(StackKey { id, kind: STACK_IN_PROCESS }).or_default();
            stack.frames = Some(context.frames.clone().into());
            stack.cumulative = context.cumulative;
        }
        for entry in &seed.lives {
            let held = Held {
                stack: StackKey { id: entry.context, kind: STACK_IN_PROCESS },
                usable_bytes: entry.live.usable_bytes,
                weight_bytes: entry.live.weight_bytes,
                time_ns: entry.live.time_ns,
                seeded: true,
                forgotten: false,
            };
            // An address that was freed and sampled again while the table was read can be there twice.
            match self.held.get(&entry.live.ptr) {
                Some(other) if other.time_ns >= held.time_ns => continue,
                Some(_) => self.release(entry.live.ptr),
                None => {}
            }
            self.hold(entry.live.ptr, held);
        }
    }

    /// Keeps the frames of a stack.
    pub fn context(&mut self, event: &ContextEvent) {
        let key = StackKey { id: event.stack, kind: event.stack_kind };
        self.stacks.entry(key).or_default().frames = Some(ring::frames(event).into());
    }

    pub fn alloc(&mut self, event: &AllocEvent) {
        self.allocs += 1;
        let weight_bytes = if event.weight_bytes == 0 {
            self.gaps.unweighted += 1;
            event.usable_bytes
        } else {
            event.weight_bytes
        };
        let stack = StackKey { id: event.stack, kind: event.stack_kind };
        let time_ns = event.header.time_ns;
        let usable_bytes = event.usable_bytes;
        let held = Held { stack, usable_bytes, weight_bytes, time_ns, seeded: false, forgotten: false };
        if time_ns >= self.counted_ns {
            add(&mut self.stacks.entry(stack).or_default().cumulative, &held.counts());
        }
        if !self.is_settled(event) {
            self.hold(event.ptr, held);
        }
    }

    pub fn free(&mut self, event: &FreeEvent) {
        self.frees += 1;
        let time_ns = event.header.time_ns;
        // The table lost it before its reading began; what it has at this address came later.
        if time_ns < self.began_ns {
            return;
        }
        match self.held.get(&event.ptr) {
            // Of an older object at the same address: the table was read after it was freed and the next one taken.
            Some(held) if held.seeded && held.time_ns > time_ns => {}
            Some(_) => self.release(event.ptr),
            // Freed before the table was read to its end.
            None if time_ns <= self.ended_ns => {}
            None => self.gaps.unknown_frees += 1,
        }
    }

    /// Whether the reading of the table says all about this allocation. A hook fires after the table was written, so what
    /// fired before the reading was in the table or is freed. While it was read, the sample that the table has at this
    /// address decides: this one, or a later one, before which this one was freed.
    fn is_settled(&self, event: &AllocEvent) -> bool {
        let time_ns = event.header.time_ns;
        if time_ns < self.began_ns {
            return true;
        }
        time_ns <= self.ended_ns
            && self.held.get(&event.ptr).is_some_and(|held| {
                let same = held.stack.id == event.stack && held.usable_bytes == event.usable_bytes;
                held.seeded && (same || held.time_ns > time_ns)
            })
    }

    fn hold(&mut self, ptr: u64, held: Held) {
        if self.held.contains_key(&ptr) {
            self.gaps.missed_frees += 1;
            self.release(ptr);
        }
        if self.held.len() >= self.cap {
            self.gaps.overflowed += 1;
            return;
        }
        add(&mut self.stacks.entry(held.stack).or_default().current, &held.counts());
        self.held.insert(ptr, held);
    }

    fn release(&mut self, ptr: u64) {
        let Some(held) = self.held.remove(&ptr) else { return };
        if let Some(stack) = self.stacks.get_mut(&held.stack) {
            stack.current = seed::less(&stack.current, &held.counts());
        }
    }

    /// The process dropped what it had recorded (`prof.reset`); so do we. Stacks keep their frames.
    pub fn reset(&mut self) {
        for held in self.held.values_mut() {
            held.forgotten = true;
        }
        for stack in self.stacks.values_mut() {
            (stack.current, stack.cumulative) = (Counts::default(), Counts::default());
        }
    }

    /// The heap of a child that was just forked: the same live samples, nothing else allocated yet.
    #[must_use]
    pub fn forked(&self) -> Live {
        let mut child = Live { gaps: Gaps::default(), allocs: 0, frees: 0, ..self.clone() };
        for stack in child.stacks.values_mut() {
            stack.cumulative = stack.current;
        }
        child
    }

    /// Every stack that was seen, in no order.
    pub fn stacks(&self) -> impl Iterator<Item = (StackKey, &Stack)> {
        self.stacks.iter().map(|(key, stack)| (*key, stack))
    }

    /// Gives a stack the frames that were read from the process afterwards.
    pub fn set_frames(&mut self, key: StackKey, frames: &[u64]) {
        if let Some(stack) = self.stacks.get_mut(&key) {
            stack.frames = Some(frames.into());
        }
    }

    pub fn has_frames(&self, key: StackKey) -> bool {
        self.stacks.get(&key).is_some_and(|stack| stack.frames.is_some())
    }

    /// What live bytes and those ever allocated rest on, each live sample by its own weight: the table may hold samples of
    /// other intervals than the one in force. Of what was freed only sums by stack are known.
    pub fn bases(&self, interval: SampleInterval) -> [Basis; 2] {
        let mut live = Basis::new(interval);
        for held in self.held.values().filter(|held| !held.forgotten) {
            live.add_sample(held.usable_bytes, held.weight_bytes);
        }
        let mut allocated = live;
        for stack in self.stacks.values() {
            allocated.add_stack(seed::less(&stack.cumulative, &stack.current).into());
        }
        [live, allocated]
    }

    /// Live samples.
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// Nothing was ever recorded.
    pub fn is_empty(&self) -> bool {
        self.allocs == 0 && self.frees == 0 && self.stacks.is_empty()
    }

    /// I-LIVE-1.
    #[cfg(test)]
    fn check(&self) {
        let mut sums: HashMap<StackKey, Counts> = HashMap::new();
        for held in self.held.values() {
            add(sums.entry(held.stack).or_default(), &held.counts());
        }
        for (key, stack) in &self.stacks {
            assert_eq!(stack.current, sums.get(key).copied().unwrap_or_default(), "{key:?}");
        }
    }
}

fn add(sum: &mut Counts, counts: &Counts) {
    sum.objects = sum.objects.saturating_add(counts.objects);
    sum.bytes = sum.bytes.saturating_add(counts.bytes);
    sum.weight_objects8 = sum.weight_objects8.saturating_add(counts.weight_objects8);
    sum.weight_bytes = sum.weight_bytes.saturating_add(counts.weight_bytes);
}

#[cfg(test)]
mod tests {
    use super::{Basis, Counts, Live, SampleInterval, Seed, StackKey};
    use crate::track::seed::{SeedContext, SeedLive};
    use jeprobe_abi::event::{AllocEvent, FreeEvent, Header, STACK_IN_PROCESS};
    use jeprobe_abi::{root, unbias};

    const KEY: StackKey = StackKey { id: 0xc0, kind: STACK_IN_PROCESS };

    fn at(time_ns: u64) -> Header {
        Header { time_ns, ..Header::default() }
    }

    fn alloc(ptr: u64, time_ns: u64) -> AllocEvent {
        AllocEvent {
            header: at(time_ns),
            ptr,
            usable_bytes: 64,
            weight_bytes: 4096,
            stack: KEY.id,
            stack_kind: KEY.kind,
            ..AllocEvent::default()
        }
    }

    fn free(ptr: u64, time_ns: u64) -> FreeEvent {
        FreeEvent { header: at(time_ns), ptr, usable_bytes: 64 }
    }

    fn current(live: &Live) -> Counts {
        live.check();
        live.stacks().find(|(key, _)| *key == KEY).map(|(_, stack)| stack.current).unwrap_or_default()
    }

    fn cumulative(live: &Live) -> u64 {
        live.stacks().find(|(key, _)| *key == KEY).map_or(0, |(_, stack)| stack.cumulative.objects)
    }

    /// Two live samples, taken at 50 and 150, read from 100 to 200.
    fn seeded() -> Live {
        let mut seed = Seed { began_ns: 100, counted_ns: 100, ended_ns: 200, ..Seed::default() };
        let counts = Counts { objects: 7, bytes: 448, weight_objects8: 3584, weight_bytes: 28672 };
        seed.contexts.insert(KEY.id, SeedContext { frames: vec![1, 2], cumulative: counts });
        for (ptr, time_ns) in [(0x1000, 50), (0x2000, 150)] {
            let live = root::Live { ptr, usable_bytes: 64, weight_bytes: 4096, time_ns, ..root::Live::default() };
            seed.lives.push(SeedLive { live, context: KEY.id });
        }
        let mut live = Live::new(100);
        live.seed(&seed);
        live
    }

    #[test]
    fn a_free_takes_off_what_its_allocation_added() {
        let mut live = Live::new(10);
        live.alloc(&alloc(0x10, 1));
        live.alloc(&AllocEvent { weight_bytes: 100, ..alloc(0x20, 2) });
        live.free(&free(0x10, 3));
        assert_eq!(current(&live), Counts { objects: 1, bytes: 64, weight_objects8: 13, weight_bytes: 100 });
        live.free(&free(0x20, 4));
        assert_eq!(current(&live), Counts::default());
        assert_eq!((cumulative(&live), live.held()), (2, 0));
        assert_eq!(live.gaps, super::Gaps::default());
    }

    #[test]
    fn each_live_sample_keeps_the_variance_of_its_weight() {
        let mut live = Live::new(10);
        let weights = [12, 19].map(|lg| unbias::weight_bytes(64, 1 << lg));
        for (ptr, weight_bytes) in (1..).zip([weights[0], weights[1], weights[1]]) {
            live.alloc(&AllocEvent { weight_bytes, ..alloc(ptr, ptr) });
        }
        live.free(&free(3, 4));
        let [current, allocated] = live.bases(SampleInterval(1 << 12));
        let of = |weight: u64| weight as f64 * (weight - 64) as f64;
        assert!((current.variance - of(weights[0]) - of(weights[1])).abs() < 1.0, "{current}");
        assert!((allocated.variance / (current.variance + of(weights[1])) - 1.0).abs() < 0.001, "{allocated}");
        assert_eq!((current.samples, allocated.samples), (2, 3));
        assert_eq!((current.finest, current.coarsest), (SampleInterval(1 << 12), SampleInterval(1 << 19)));
        live.reset();
        assert_eq!(live.bases(SampleInterval(1 << 12))[0], Basis::new(SampleInterval(1 << 12)));
    }

    #[test]
    fn missed_and_unknown_frees_are_counted() {
        let mut live = Live::new(10);
        live.alloc(&alloc(0x10, 1));
        live.alloc(&alloc(0x10, 2));
        live.free(&free(0x99, 3));
        assert_eq!(current(&live).objects, 1);
        assert_eq!((live.gaps.missed_frees, live.gaps.unknown_frees), (1, 1));
        assert_eq!(cumulative(&live), 2);
    }

    #[test]
    fn the_cap_is_counted_and_ends_when_room_is_back() {
        let mut live = Live::new(2);
        for ptr in 1..=4 {
            live.alloc(&alloc(ptr, ptr));
        }
        assert_eq!((current(&live).objects, live.gaps.overflowed, cumulative(&live)), (2, 2, 4));
        live.free(&free(1, 5));
        live.alloc(&alloc(9, 6));
        assert_eq!((current(&live).objects, live.gaps.overflowed), (2, 2));
    }

    #[test]
    fn samples_without_a_weight_stand_for_themselves() {
        let mut live = Live::new(10);
        live.alloc(&AllocEvent { weight_bytes: 0, ..alloc(1, 1) });
        assert_eq!(current(&live), Counts { objects: 1, bytes: 64, weight_objects8: 8, weight_bytes: 64 });
        assert_eq!(live.gaps.unweighted, 1);
    }

    #[test]
    fn allocations_that_the_table_had_do_not_count_twice() {
        let mut live = seeded();
        assert_eq!((current(&live).objects, cumulative(&live)), (2, 7));
        live.alloc(&alloc(0x500, 90));
        assert_eq!((current(&live).objects, cumulative(&live)), (2, 7));
        // Live when it was read, and later than the counts.
        live.alloc(&alloc(0x2000, 151));
        assert_eq!((current(&live).objects, cumulative(&live)), (2, 8));
        live.alloc(&alloc(0x3000, 160));
        live.alloc(&alloc(0x4000, 300));
        assert_eq!((current(&live).objects, cumulative(&live)), (4, 10));
    }

    #[test]
    fn an_address_that_was_read_twice_is_its_later_sample() {
        let mut seed = Seed { began_ns: 100, counted_ns: 100, ended_ns: 200, ..Seed::default() };
        for (ptr, usable_bytes, time_ns) in [(1, 64, 150), (1, 32, 50), (2, 32, 50), (2, 64, 150)] {
            let live = root::Live { ptr, usable_bytes, weight_bytes: 4096, time_ns, ..root::Live::default() };
            seed.lives.push(SeedLive { live, context: KEY.id });
        }
        let mut live = Live::new(100);
        live.seed(&seed);
        // Their frees and second allocations are in the ring.
        for ptr in [1, 2] {
            live.free(&free(ptr, 120));
            live.alloc(&alloc(ptr, 151));
        }
        assert_eq!((current(&live).objects, current(&live).bytes), (2, 128));
        assert_eq!((live.gaps.missed_frees, live.gaps.unknown_frees), (0, 0));
    }

    #[test]
    fn an_earlier_sample_at_the_address_of_a_later_one_is_not_held() {
        let mut live = seeded();
        live.alloc(&AllocEvent { usable_bytes: 32, ..alloc(0x2000, 120) });
        live.free(&free(0x2000, 140));
        live.alloc(&alloc(0x2000, 151));
        assert_eq!((current(&live).objects, current(&live).bytes, live.gaps.missed_frees), (2, 128, 0));
    }

    #[test]
    fn frees_around_the_reading() {
        let mut live = seeded();
        // Of an earlier object at the address that was sampled again at 150.
        live.free(&free(0x2000, 140));
        // Freed before it could be read.
        live.free(&free(0x7000, 120));
        assert_eq!((current(&live).objects, live.gaps.unknown_frees), (2, 0));
        live.free(&free(0x1000, 120));
        live.free(&free(0x2000, 170));
        assert_eq!(current(&live), Counts::default());
        live.free(&free(0x7000, 201));
        assert_eq!(live.gaps.unknown_frees, 1);
    }

    #[test]
    fn a_reused_address_replaces_the_seeded_sample() {
        let mut live = seeded();
        // The free of the older one was lost; the newer one has another size.
        live.alloc(&AllocEvent { usable_bytes: 128, ..alloc(0x1000, 300) });
        assert_eq!((current(&live).objects, current(&live).bytes), (2, 192));
        assert_eq!(live.gaps.missed_frees, 1);
    }

    #[test]
    fn a_forked_child_starts_with_the_live_samples() {
        let mut live = Live::new(10);
        live.alloc(&alloc(1, 1));
        live.alloc(&alloc(2, 2));
        let mut child = live.forked();
        child.free(&free(1, 3));
        assert_eq!((current(&child).objects, cumulative(&child)), (1, 2));
        assert_eq!((current(&live).objects, cumulative(&live)), (2, 2));
        assert_eq!(child.gaps.unknown_frees, 0);
    }

    #[test]
    fn a_reset_forgets_counts_but_not_who_is_live() {
        let mut live = Live::new(10);
        live.alloc(&alloc(1, 1));
        live.reset();
        assert_eq!((current(&live), cumulative(&live)), (Counts::default(), 0));
        live.alloc(&alloc(2, 2));
        live.free(&free(1, 3));
        assert_eq!((current(&live).objects, cumulative(&live), live.gaps.unknown_frees), (1, 1, 0));
    }

    /// Random operations against a plain list of what is live.
    #[test]
    fn agrees_with_a_plain_model() {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = move |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % below
        };
        let mut live = Live::new(usize::MAX);
        let mut model = std::collections::BTreeMap::new();
        for time in 0..20_000 {
            let ptr = random(300);
            if random(2) == 0 {
                let event = AllocEvent {
                    usable_bytes: 16 + random(1000),
                    weight_bytes: 4096 + random(1000),
                    stack: random(5),
                    ..alloc(ptr, time)
                };
                live.alloc(&event);
                model.insert(ptr, event);
            } else {
                live.free(&free(ptr, time));
                model.remove(&ptr);
            }
        }
        live.check();
        let bytes: u64 = live.stacks().map(|(_, stack)| stack.current.bytes).sum();
        let weight: u64 = live.stacks().map(|(_, stack)| stack.current.weight_bytes).sum();
        assert_eq!(live.held(), model.len());
        assert_eq!(bytes, model.values().map(|event| event.usable_bytes).sum::<u64>());
        assert_eq!(weight, model.values().map(|event| event.weight_bytes).sum::<u64>());
    }
}
