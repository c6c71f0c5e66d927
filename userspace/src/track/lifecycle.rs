//! Which records belong to which image of which process.
//!
//! A process is known by its id from its first record on, an image by being that process between two execs. A table
//! entry moves on like this:
//!
//! ```text
//!  (first record or fork) ─► Running ──exec──► closed as Replaced; the next record opens a new image
//!                              │ ▲
//!                         exit │ │ a record arrives: only the first thread had ended
//!                              ▼ │
//!                            Ending ──sweep: the process is gone──► closed as Exited
//! ```
//!
//! Without the kernel's lifecycle records the sweep alone finds ends, and an exec is seen when the program's file
//! changes. Ids are reused: an entry keeps the start time of its process, and a sweep closes it when that differs.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;

use super::live::Live;
use super::seed::Seed;
use crate::probe::ring::{self, Event};
use crate::proc::pids;

/// Where a process image stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Running,
    /// The first thread has ended; others may live.
    Ending,
    /// The process is gone.
    Exited,
    /// The process executed another program.
    Replaced,
}

/// One image of a process.
#[derive(Clone, Debug)]
pub struct Image {
    pub pid: u32,
    pub state: State,
    /// Children that it forked.
    pub forks: u64,
    /// It began as a copy of this process.
    pub forked_from: Option<u32>,
    pub live: Live,
    identity: Identity,
}

/// What tells a process from a later one of the same id, and an image from the next; 0 when it cannot be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Identity {
    start_ticks: u64,
    program: (u64, u64),
}

impl Identity {
    fn of(pid: u32) -> Identity {
        let program = fs::metadata(format!("/proc/{}/exe", pids::living_task(pid)))
            .map_or((0, 0), |meta| (meta.dev(), meta.ino()));
        Identity { start_ticks: pids::start_ticks(pid).unwrap_or(0), program }
    }
}

/// All processes of an attachment.
#[derive(Debug)]
pub struct Tracker {
    running: HashMap<u32, Image>,
    closed: Vec<Image>,
    cap: usize,
    /// exec arrives as a record.
    follows_lifecycle: bool,
}

impl Tracker {
    /// `cap`: live samples held per process. `follows_lifecycle`: as the attachment says.
    pub fn new(cap: usize, follows_lifecycle: bool) -> Tracker {
        Tracker { running: HashMap::new(), closed: Vec::new(), cap, follows_lifecycle }
    }

    /// Takes over what a process had recorded before it was attached to.
    pub fn seed(&mut self, pid: u32, seed: &Seed) {
        self.image(pid).live.seed(seed);
    }

    /// Replaces what is known of a process by a reading of its table. Records that are still in the ring fit it as those after
    /// the first reading do.
    pub fn reseed(&mut self, pid: u32, seed: &Seed) {
        let cap = self.cap;
        let image = self.image(pid);
        image.live = Live::new(cap);
        image.live.seed(seed);
    }

    /// The image of a process, opened when it is not there.
    pub fn image(&mut self, pid: u32) -> &mut Image {
        let cap = self.cap;
        self.running.entry(pid).or_insert_with(|| Image::new(pid, Live::new(cap), None))
    }

    /// Applies one record.
    pub fn apply(&mut self, event: &Event) {
        let pid = event.header().tgid;
        match event {
            Event::Alloc(alloc) => self.active(pid).live.alloc(alloc),
            Event::Free(free) => self.active(pid).live.free(free),
            Event::Context(context) => self.active(pid).live.context(context),
            Event::Dump(_) => {
                self.active(pid);
            }
            Event::Mallctl(call) => {
                let image = self.active(pid);
                if ring::text(&call.name) == "prof.reset" {
                    image.live.reset();
                }
            }
            Event::Exec(_) => self.close(pid, State::Replaced),
            Event::Exit(_) => {
                if let Some(image) = self.running.get_mut(&pid) {
                    image.state = State::Ending;
                }
            }
            Event::Fork(fork) => self.fork(pid, fork.other),
        }
    }

    fn active(&mut self, pid: u32) -> &mut Image {
        let image = self.image(pid);
        image.state = State::Running;
        image
    }

    fn fork(&mut self, parent: u32, child: u32) {
        let Some(image) = self.running.get_mut(&parent) else { return };
        image.forks += 1;
        if child == 0 {
            return;
        }
        let live = image.live.forked();
        // A new process of a known id: the older one is gone.
        self.close(child, State::Exited);
        self.running.insert(child, Image::new(child, live, Some(parent)));
    }

    fn close(&mut self, pid: u32, state: State) {
        if let Some(mut image) = self.running.remove(&pid) {
            image.state = state;
            self.closed.push(image);
        }
    }

    /// Looks at every process once and closes those that are gone or, without the kernel's records, execute another
    /// program. Reads `/proc` for each: call it once a second, and once at the end.
    pub fn sweep(&mut self) {
        let pids: Vec<u32> = self.running.keys().copied().collect();
        for pid in pids {
            let known = self.running[&pid].identity;
            let now = Identity::of(pid);
            if has_ended(pid) || (known.start_ticks != 0 && now.start_ticks != known.start_ticks) {
                self.close(pid, State::Exited);
            } else if !self.follows_lifecycle && known.program != (0, 0) && now.program != known.program {
                self.close(pid, State::Replaced);
            }
        }
    }

    /// Images that ended since the last call, in the order of their end.
    pub fn take_closed(&mut self) -> Vec<Image> {
        std::mem::take(&mut self.closed)
    }

    /// Images that have not ended, in no order.
    pub fn running(&self) -> impl Iterator<Item = &Image> {
        self.running.values()
    }

    pub fn get(&self, pid: u32) -> Option<&Image> {
        self.running.get(&pid)
    }
}

impl Image {
    fn new(pid: u32, live: Live, forked_from: Option<u32>) -> Image {
        Image { pid, state: State::Running, forks: 0, forked_from, live, identity: Identity::of(pid) }
    }
}

/// True when no thread of the process runs any more: it is not there, or a zombie without further threads.
fn has_ended(pid: u32) -> bool {
    match pids::status(pid) {
        Ok(status) if status.state == 'Z' => fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count) <= 1,
        Ok(status) => status.state == 'X' || status.tgid != pid,
        Err(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::{State, Tracker};
    use crate::probe::ring::Event;
    use jeprobe_abi::event::{AllocEvent, FreeEvent, Header, LifecycleEvent};
    use std::process::Command;

    fn header(tgid: u32) -> Header {
        Header { tgid, ..Header::default() }
    }

    fn alloc(tgid: u32, ptr: u64) -> Event {
        Event::Alloc(AllocEvent {
            header: header(tgid),
            ptr,
            usable_bytes: 64,
            weight_bytes: 64,
            ..AllocEvent::default()
        })
    }

    fn lifecycle(tgid: u32, other: u32) -> LifecycleEvent {
        LifecycleEvent { header: header(tgid), other, _pad: 0 }
    }

    #[test]
    fn an_exec_closes_the_image_and_the_next_record_opens_another() {
        let mut tracker = Tracker::new(10, true);
        tracker.apply(&alloc(1, 0x10));
        tracker.apply(&Event::Exec(lifecycle(1, 0)));
        assert!(tracker.get(1).is_none());
        tracker.apply(&alloc(1, 0x20));
        let closed = tracker.take_closed();
        assert_eq!(closed.len(), 1);
        assert_eq!((closed[0].state, closed[0].live.held()), (State::Replaced, 1));
        assert_eq!(tracker.get(1).map(|image| image.live.held()), Some(1));
    }

    #[test]
    fn a_forked_child_knows_what_it_inherited() {
        let mut tracker = Tracker::new(10, true);
        tracker.apply(&alloc(1, 0x10));
        tracker.apply(&Event::Fork(lifecycle(1, 2)));
        tracker.apply(&Event::Free(FreeEvent { header: header(2), ptr: 0x10, usable_bytes: 64 }));
        let child = tracker.get(2).expect("the child is tracked");
        assert_eq!((child.live.held(), child.live.gaps.unknown_frees, child.forked_from), (0, 0, Some(1)));
        let parent = tracker.get(1).expect("the parent is tracked");
        assert_eq!((parent.live.held(), parent.forks), (1, 1));
    }

    #[test]
    fn the_end_of_the_first_thread_is_not_the_end_of_the_process() {
        let own = std::process::id();
        let mut tracker = Tracker::new(10, true);
        tracker.apply(&alloc(own, 0x10));
        tracker.apply(&Event::Exit(lifecycle(own, 0)));
        assert_eq!(tracker.get(own).map(|image| image.state), Some(State::Ending));
        tracker.sweep();
        assert!(tracker.take_closed().is_empty(), "this process lives");
        tracker.apply(&alloc(own, 0x20));
        assert_eq!(tracker.get(own).map(|image| (image.state, image.live.held())), Some((State::Running, 2)));
    }

    #[test]
    fn a_sweep_closes_what_is_gone() {
        let mut child = Command::new("sleep").arg("100").spawn().expect("sleep runs");
        let pid = child.id();
        let mut tracker = Tracker::new(10, false);
        tracker.apply(&alloc(pid, 0x10));
        tracker.sweep();
        assert!(tracker.take_closed().is_empty());
        child.kill().expect("child of ours");
        child.wait().expect("child of ours");
        tracker.sweep();
        let closed = tracker.take_closed();
        assert_eq!((closed.len(), closed[0].state, closed[0].pid), (1, State::Exited, pid));
    }
}
