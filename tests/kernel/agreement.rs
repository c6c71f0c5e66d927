//! What the probes collected, against the process's own table: after a pause both must name the same live samples.
//!
//! The attachment comes in the middle of the work of four threads, so that the reading of the table and the records of
//! the ring overlap. No tolerance: the two count the same samples.

use std::collections::BTreeMap;
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use jeprobe::probe::attach::{AttachOptions, Attachment};
use jeprobe::probe::discover;
use jeprobe::probe::ring::Event;
use jeprobe::remote::memory::ProcessMemory;
use jeprobe::remote::target;
use jeprobe::track::lifecycle::Tracker;
use jeprobe::track::seed::Seed;
use jeprobe_abi::drops::Reason;
use jeprobe_abi::root::Counts;
use jeprobe_tests::{Run, Target, artefact, compile, skip};

use crate::probing::{lost, need_probes, order};

/// Live samples and bytes by frames.
type Heap = BTreeMap<Vec<u64>, (u64, u64, u64)>;

fn add(heap: &mut Heap, frames: &[u64], counts: &Counts) {
    if counts.objects > 0 {
        let sum = heap.entry(frames.to_vec()).or_default();
        *sum = (sum.0 + counts.objects, sum.1 + counts.bytes, sum.2 + counts.weight_bytes);
    }
}

fn heap_of_table(seed: &Seed) -> Heap {
    let mut heap = Heap::new();
    for entry in &seed.lives {
        let live = &entry.live;
        let counts =
            Counts { objects: 1, bytes: live.usable_bytes, weight_bytes: live.weight_bytes, ..Counts::default() };
        add(&mut heap, &seed.contexts[&entry.context].frames, &counts);
    }
    heap
}

fn heap_of_tracker(tracker: &Tracker, pid: u32) -> Heap {
    let mut heap = Heap::new();
    for (key, stack) in tracker.get(pid).expect("tracked").live.stacks() {
        if stack.current.objects > 0 {
            add(&mut heap, stack.frames.as_deref().unwrap_or_else(|| panic!("{key:?} has no frames")), &stack.current);
        }
    }
    heap
}

/// A working process, attached to for some seconds.
struct Session {
    process: Target,
    pid: u32,
    attachment: Attachment,
    tracker: Tracker,
    root: u64,
}

impl Session {
    fn new(conf: &str, time: Duration) -> Session {
        let program = compile::program("churn.c", &[]);
        let mut process = Run::preloaded(&program).conf(conf).spawn();
        process.ready();
        let pid = process.pid().cast_unsigned();
        order(&mut process, "run");

        let hooks = discover::process(pid).expect("the library has hooks");
        let options = AttachOptions { ring_bytes: 64 << 20, ..AttachOptions::default() };
        let attachment = Attachment::process(&hooks, options).expect("attached");
        let root = target::Target::open(pid).expect("it has a table").located.root;
        let mut tracker = Tracker::new(usize::MAX, attachment.follows_lifecycle());
        tracker.seed(pid, &Seed::read(&ProcessMemory::new(pid), root).expect("readable"));
        let mut session = Session { process, pid, attachment, tracker, root };
        let end = Instant::now() + time;
        while Instant::now() < end {
            jeprobe::wait::ready(&[session.attachment.as_fd()], Some(Duration::from_millis(100))).expect("poll");
            session.drain();
        }
        session
    }

    fn drain(&mut self) {
        self.attachment.drain(&mut |event| self.tracker.apply(&event));
    }

    fn table(&self) -> Seed {
        Seed::read(&ProcessMemory::new(self.pid), self.root).expect("readable")
    }
}

fn agree(conf: &str) {
    let mut session = Session::new(conf, Duration::from_secs(3));
    order(&mut session.process, "pause");
    session.drain();
    let truth = session.table();
    let Session { pid, attachment, tracker, .. } = session;
    let live = &tracker.get(pid).expect("tracked").live;
    assert!(live.allocs > 1000, "{} records", live.allocs);
    assert_eq!(truth.torn, 0);
    lost(&attachment, Reason::RingFull, 0);
    assert_eq!((live.gaps.missed_frees, live.gaps.unknown_frees, live.gaps.overflowed), (0, 0, 0), "{:?}", live.gaps);
    let (seen, truth) = (heap_of_tracker(&tracker, pid), heap_of_table(&truth));
    // How many stacks these are of is chance: a few dozen samples, mostly of the largest blocks.
    assert!(truth.values().map(|(objects, ..)| objects).sum::<u64>() >= 5, "{truth:?}");
    assert_eq!(seen, truth);
}

/// Detaching takes long against the life of a block here; frees that arrive meanwhile must not empty the profile.
#[test]
fn detached_while_the_process_works() {
    need_probes!();
    if artefact::library().is_none() {
        skip!("no library under test");
    }
    let mut session = Session::new("prof:true,prof_active:true,lg_prof_sample:14", Duration::from_secs(1));
    let end = session.attachment.stop();
    let mut last = 0;
    session.attachment.drain(&mut |event| {
        if !matches!(event, Event::Context(_)) {
            last = last.max(event.header().time_ns);
        }
        session.tracker.apply(&event);
    });
    assert!(last <= end);
    let held = session.tracker.get(session.pid).expect("tracked").live.held();
    // The heap's size is steady, so its sample of a moment later is about as large.
    order(&mut session.process, "pause");
    let after = session.table().lives.len();
    assert!(after > 100 && held > after / 2, "{held} held at the end, {after} in the table later");
}

#[test]
fn attached_while_the_process_profiles_itself() {
    need_probes!();
    if artefact::library().is_none() {
        skip!("no library under test");
    }
    agree("prof:true,prof_active:true,lg_prof_sample:20");
}

#[test]
fn attached_while_the_process_is_dormant() {
    need_probes!();
    if artefact::library().is_none() {
        skip!("no library under test");
    }
    agree("prof:true,prof_active:false,lg_prof_sample:20");
}
