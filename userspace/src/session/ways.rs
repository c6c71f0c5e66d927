//! Which processes are probed and which are read.
//!
//! A process that samples too often to be probed (`track/pace.rs`) is read instead: it has no probes but those that are never
//! hit and keep its semaphores raised, and each reading of its profile table replaces what the tracker knows. The table holds
//! all that the probes told, so nothing is added up and nothing counts twice.
//!
//! ```text
//!  one process    reading ◄──────────► probing                      at first it is read
//!  host           every file is probed ──a process is too fast──► hushed: each process as above
//! ```
//!
//! Host-wide probes are those of a file, and no process can be left out of them. So they are there until the first process
//! samples too often; then they go, for good, and each process that samples seldom gets probes of its own. A process that
//! begins and ends within a second is seen before that, and not always after.
#![forbid(unsafe_code)]

use jeprobe_abi::event::STACK_IN_PROCESS;

use super::{Notice, Session};
use crate::probe::attach;
use crate::proc::pids;
use crate::remote::switch::Switch;
use crate::track::live::StackKey;
use crate::track::pace::{self, Pace, Way};
use crate::track::seed::Seed;
use crate::wait::monotonic_ns;

/// How long a process that was forked or replaced may take until it has the allocator.
const EXPECTED_NS: u64 = 2_000_000_000;

/// How long to wait until probes are set again whose thread ended, at first and at most.
const SET_AGAIN_NS: u64 = 100_000_000;
const MOST_SET_AGAIN_NS: u64 = 5_000_000_000;

/// A process that may be read instead of probed.
#[derive(Debug)]
pub(super) struct Adaptive {
    pub(super) pace: Pace,
    /// When the reading began that the tracker has, ns of `CLOCK_MONOTONIC`.
    read_ns: u64,
}

/// A process that lost the thread to which its probes belonged. From then on, and for as long as it is followed, it is told through
/// its root to sample; what it sampled while it had no probes is read from its table.
#[derive(Debug)]
pub(super) struct Bridge {
    /// `None` host-wide, and where its memory may not be written.
    switch: Option<Switch>,
    /// It has no probes now.
    is_open: bool,
    /// When it was last tried to set probes, and how long to wait until the next time.
    set_ns: u64,
    wait_ns: u64,
    /// When the last reading began that the tracker has, and when the next one is due.
    read_ns: u64,
    next_reading_ns: u64,
}

impl Bridge {
    fn new(now_ns: u64) -> Bridge {
        Bridge { switch: None, is_open: true, set_ns: 0, wait_ns: SET_AGAIN_NS, read_ns: now_ns, next_reading_ns: 0 }
    }

    /// Whether probes may be set now. That takes the kernel a tenth of a second, so it is tried less often of a process whose
    /// threads end all the time.
    fn may_set(&mut self, now_ns: u64) -> bool {
        let passed_ns = now_ns.saturating_sub(self.set_ns);
        if passed_ns < self.wait_ns {
            return false;
        }
        let lasted = passed_ns >= 10 * MOST_SET_AGAIN_NS;
        self.wait_ns = if lasted { SET_AGAIN_NS } else { (2 * self.wait_ns).min(MOST_SET_AGAIN_NS) };
        self.set_ns = now_ns;
        true
    }

    fn read(&mut self, began_ns: u64, ended_ns: u64) {
        self.read_ns = began_ns;
        self.next_reading_ns = pace::after_reading(began_ns, ended_ns);
    }

    /// The process itself or another command may have switched off.
    fn keep_on(&mut self) {
        if let Some(switch) = &mut self.switch {
            // Fails at the end of the process.
            let _gone = switch.look();
        }
    }
}

impl Session {
    /// Has a process that was just read go on being read; false when it has no table that can be.
    pub(super) fn begin_reading(&mut self, pid: u32) -> bool {
        let Some(root) = self.members.get(&pid).and_then(|member| member.root) else { return false };
        let now = monotonic_ns();
        let pace = Pace::new(root.samples.wrapping_add(root.frees), now, now);
        self.paces.insert(pid, Adaptive { pace, read_ns: now });
        true
    }

    /// Host-wide without probes on samples: has a process be read, or gives it probes where its table does not say all.
    pub(super) fn begin(&mut self, pid: u32) {
        // Fails when it has ended.
        let Ok(hooks) = self.finder.process(pid) else { return };
        if attach::has_one_table(&hooks.files) && self.take_reading(pid).is_some() && self.begin_reading(pid) {
            return;
        }
        let _ended = self.attachment.probe_process(&hooks);
    }

    /// Without probes on samples, nothing else tells of a process that was forked or executes another program.
    pub(super) fn expect(&mut self, pid: u32) {
        if self.host && pid != 0 && self.attachment.is_hushed() {
            self.awaited.insert(pid, monotonic_ns() + EXPECTED_NS);
        }
    }

    /// Takes in the expected processes that have the allocator by now.
    pub(super) fn join_awaited(&mut self) {
        let now = monotonic_ns();
        for (pid, until) in std::mem::take(&mut self.awaited) {
            if self.members.contains_key(&pid) {
                continue;
            }
            if let Ok(hooks) = self.finder.process(pid) {
                for mapped in &hooks.files {
                    self.add_file(&mapped.file);
                }
                let _unseeded = self.join(pid);
            } else if now < until {
                self.awaited.insert(pid, until);
            }
        }
    }

    /// The probes of a single process end with the thread that they belong to. When others live on, they are set anew, and what was
    /// sampled meanwhile is read from the table. Neither is left to the semaphores: the kernel lowers them whenever a probe is set or
    /// taken away while the thread that it belongs to has no memory any more, and threads may live for less time than that takes.
    pub(super) fn follow_threads(&mut self) {
        for (&pid, bridge) in &mut self.bridges {
            bridge.is_open = !self.attachment.is_bound(pid);
            bridge.keep_on();
        }
        let is_left = |pid: &u32| !self.attachment.is_bound(*pid) && pids::has_memory(*pid);
        let left: Vec<u32> = self.members.keys().copied().filter(is_left).collect();
        for pid in left {
            if self.attachment.has_whole_table() {
                self.bridge(pid);
            } else if self.rebind(pid) {
                self.drain();
                if let Some(member) = self.members.get_mut(&pid) {
                    member.note(
                        "the thread that its probes belonged to ended; what it sampled and freed in the tenth of a second until \
                         they were set again is missing"
                            .into(),
                    );
                }
            }
        }
    }

    /// Has a process sample that has no probes, sets them again when that may be tried, and takes in what it sampled.
    fn bridge(&mut self, pid: u32) {
        let now = monotonic_ns();
        let member = self.members.get(&pid);
        let bridge = self.bridges.entry(pid).or_insert_with(|| {
            let name = member.map(|member| member.name.clone()).unwrap_or_default();
            self.notices.push(Notice::Bridged { pid, name });
            Bridge::new(now)
        });
        bridge.is_open = true;
        // Host-wide, parked probes belong to no thread.
        if !self.host && bridge.switch.is_none() {
            let target = member.and_then(|member| member.target.as_ref());
            bridge.switch = target.and_then(|target| Switch::on(target, None).ok());
        }
        // It fails when the thread that was found has ended, too.
        let is_set = bridge.may_set(now) && self.rebind(pid);
        if is_set {
            self.drain();
        }
        let is_due = self.bridges.get(&pid).is_some_and(|bridge| is_set || bridge.next_reading_ns <= now);
        if self.is_read(pid) || !is_due {
            return;
        }
        if let Some(seed) = self.take_reading(pid)
            && let Some(bridge) = self.bridges.get_mut(&pid)
        {
            bridge.read(seed.began_ns, monotonic_ns());
        }
    }

    fn rebind(&mut self, pid: u32) -> bool {
        if !self.host {
            return self.attachment.rebind().is_ok();
        }
        self.finder.process(pid).is_ok_and(|hooks| self.attachment.probe_process(&hooks).is_ok())
    }

    /// Changes the way of collecting of processes that became too fast for probes or calm again, and reads the tables that
    /// are due.
    pub(super) fn adapt(&mut self) {
        let events = std::mem::take(&mut self.events);
        let now = monotonic_ns();
        if self.host && !self.attachment.is_hushed() {
            if self.may_hush {
                self.look_for_a_fast_one(&events, now);
            }
            return;
        }
        let pids: Vec<u32> = self.paces.keys().copied().collect();
        for pid in pids {
            let Some(Adaptive { pace, .. }) = self.paces.get_mut(&pid) else { continue };
            match pace.way() {
                Way::Probes => {
                    if pace.is_too_fast(events.get(&pid).copied().unwrap_or(0), now) {
                        self.use_table(pid);
                    }
                }
                Way::Table if pace.next_reading_ns().is_some_and(|due| due <= now) => self.read_due(pid, now),
                Way::Table => {}
            }
        }
    }

    fn read_due(&mut self, pid: u32, now: u64) {
        let seed = self.read_table(pid);
        // All readings together take their share of the time.
        let readers = self.paces.values().filter(|adaptive| adaptive.pace.way() == Way::Table).count() as u64;
        let Some(Adaptive { pace, .. }) = self.paces.get_mut(&pid) else { return };
        match seed {
            Some(Seed { events, began_ns, ended_ns, .. }) => {
                let took_ns = ended_ns.saturating_sub(began_ns).saturating_mul(readers);
                if pace.is_calm(events, began_ns, began_ns.saturating_add(took_ns)) {
                    self.use_probes(pid);
                }
            }
            // It ended, or executes another program: records will tell.
            None => pace.postpone(now),
        }
    }

    /// Host-wide: when a process samples too often, takes the probes on samples away and reads every process.
    fn look_for_a_fast_one(&mut self, events: &std::collections::HashMap<u32, u64>, now: u64) {
        let mut fast = None;
        for (&pid, &count) in events {
            let begun = || Adaptive { pace: Pace::probing(now), read_ns: now };
            if self.paces.entry(pid).or_insert_with(begun).pace.is_too_fast(count, now) {
                fast = Some(pid);
            }
        }
        let Some(pid) = fast else { return };
        self.paces.clear();
        self.attachment.hush();
        self.drain();
        self.events.clear();
        let pids: Vec<u32> = self.members.keys().copied().collect();
        for pid in pids {
            self.begin(pid);
        }
        self.rescan();
        let name = self.members.get(&pid).map(|member| member.name.clone()).unwrap_or_default();
        self.notices.push(Notice::Hushed { pid, name });
    }

    /// Takes the probes on samples away and takes over what the table says.
    fn use_table(&mut self, pid: u32) {
        if self.host {
            self.attachment.unprobe_process(pid);
        } else {
            self.attachment.hush();
        }
        // What they told, in case that the process is gone by now.
        self.drain();
        let lost = self.attachment.losses();
        if let Some(seed) = self.read_table(pid)
            && let Some(Adaptive { pace, .. }) = self.paces.get_mut(&pid)
        {
            pace.use_table(seed.events, seed.began_ns, seed.ended_ns);
            if !self.host {
                self.made_good = lost;
            }
            self.note_way(pid);
        } else {
            // Ended, or no longer readable: what is left to do is to go on as before.
            self.use_probes(pid);
        }
    }

    /// Sets the probes on samples again and lets them go on from where the table is.
    fn use_probes(&mut self, pid: u32) {
        let is_set = if self.host { self.rebind(pid) } else { self.attachment.unhush().is_ok() };
        let Some(Adaptive { pace, .. }) = self.paces.get_mut(&pid) else { return };
        let was_read = pace.way() == Way::Table;
        if !is_set {
            // It ended, or the kernel refuses now: the table goes on being read.
            pace.postpone(monotonic_ns());
            return;
        }
        pace.use_probes(monotonic_ns());
        if was_read && self.read_table(pid).is_some() {
            self.note_way(pid);
        }
    }

    /// Has a reading of the table replace what the tracker knows of the process.
    pub(super) fn read_table(&mut self, pid: u32) -> Option<Seed> {
        let seed = self.take_reading(pid)?;
        self.paces.get_mut(&pid)?.read_ns = seed.began_ns;
        Some(seed)
    }

    pub(super) fn take_reading(&mut self, pid: u32) -> Option<Seed> {
        let member = self.members.get_mut(&pid)?;
        let seed = member.seed().ok().flatten()?;
        let known = self.tracker.image(pid);
        let is_new = |context: &u64| !known.live.has_frames(StackKey { id: *context, kind: STACK_IN_PROCESS });
        let new = seed.contexts.iter().filter(|(context, _)| is_new(context));
        if new.into_iter().any(|(_, entry)| !member.knows(&entry.frames)) {
            self.stale.insert(pid);
        }
        self.tracker.reseed(pid, &seed);
        Some(seed)
    }

    fn note_way(&mut self, pid: u32) {
        let Some(way) = self.way(pid) else { return };
        let name = self.members.get(&pid).map(|member| member.name.clone()).unwrap_or_default();
        self.notices.push(Notice::Way { pid, name, way, is_one_of_many: self.host });
    }

    /// The samples of the process come from its table.
    pub(super) fn is_read(&self, pid: u32) -> bool {
        self.way(pid) == Some(Way::Table)
    }

    /// Says how much of an image that was read, not probed, is missing; true for those.
    pub(super) fn note_last_reading(&mut self, pid: u32) -> bool {
        let is_read = self.is_read(pid);
        let read_ns = match (self.paces.get(&pid), self.bridges.get(&pid)) {
            (Some(adaptive), _) if is_read => adaptive.read_ns,
            (_, Some(bridge)) if bridge.is_open => bridge.read_ns,
            _ => return false,
        };
        let ms = monotonic_ns().saturating_sub(read_ns) / 1_000_000;
        if let Some(member) = self.members.get_mut(&pid) {
            member.note(format!(
                "its profile table was read for the last time {ms} ms before its end was seen; what it sampled and freed in that time is \
                 missing{}",
                if is_read { " (--every-event loses nothing)" } else { ": the thread that its probes belonged to had ended" }
            ));
        }
        is_read
    }
}
