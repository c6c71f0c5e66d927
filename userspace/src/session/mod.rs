//! The only wiring of probes: discover → attach → drain → track → profile, for one process or the whole host.
//!
//! ```text
//!  Attachment ──drain──► Event ─┬─► Tracker            live samples and sums per image
//!                               ├─► Member             mappings, contexts, calls, children
//!                               └─► Notice             what the command prints
//!  exec, exit ──► Closed { member, process }           an image whose profile is complete
//! ```
//!
//! Processes that sample too often to be probed are read instead, see `ways.rs`.
//!
//! One thread owns a session; call [`Session::pump`] at least every 100 ms. Dropping it detaches.
#![forbid(unsafe_code)]

mod ways;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jeprobe_abi::drops::DROP_REASONS;
use jeprobe_abi::event::{NAME_BYTES, NAME_UNREAD, STACK_IN_PROCESS};

use self::ways::{Adaptive, Bridge};
use crate::error::Error;
use crate::member::{CountedBefore, Member};
use crate::model::Profile;
use crate::outfile;
use crate::probe::attach::{AttachOptions, Attachment};
use crate::probe::discover::{DiscoverError, Finder, HookFile, ProcessHooks};
use crate::probe::error::AttachError;
use crate::probe::ring::{self, Event};
use crate::proc::{ns, pids};
use crate::remote::memory::ProcessMemory;
use crate::track::lifecycle::{Image, State, Tracker};
use crate::track::live::StackKey;
use crate::track::pace::Way;
use crate::wait::monotonic_ns;

/// Live samples kept over all processes; at 19 bits between samples that is half a terabyte of live memory.
const LIVE_CAP: usize = 1 << 20;

/// Something the user is told.
#[derive(Debug)]
pub enum Notice {
    /// A process came under the session.
    Joined {
        pid: u32,
        name: String,
    },
    /// The process wrote a heap file; ours, with what it does not know, was written beside it.
    Dumped {
        pid: u32,
        path: PathBuf,
        merged: Result<PathBuf, Error>,
    },
    /// The process called `mallctl` with a `prof.` name.
    Mallctl {
        pid: u32,
        name: String,
    },
    Forked {
        pid: u32,
        child: u32,
        name: String,
    },
    /// The process runs another program now; the profile of the image before is complete.
    Exec {
        pid: u32,
        before: String,
    },
    Exited {
        pid: u32,
        name: String,
    },
    /// From now on the samples of the process are collected in this way.
    Way {
        pid: u32,
        name: String,
        way: Way,
        /// Under a host-wide session.
        is_one_of_many: bool,
    },
    /// The thread that its probes belonged to ended: from now on its table is read as well.
    Bridged {
        pid: u32,
        name: String,
    },
    /// Host-wide, and from now on: this process samples too often to be probed, so tables are read.
    Hushed {
        pid: u32,
        name: String,
    },
    /// A file with hooks was found later and attached, or not.
    File {
        path: PathBuf,
        result: Result<(), AttachError>,
    },
}

/// An image that is gone.
#[derive(Debug)]
pub struct Closed {
    pub member: Member,
    pub image: Option<Image>,
    /// By exec, as opposed to the end of the process.
    pub by_exec: bool,
    /// From its table, in the end.
    pub was_read: bool,
}

impl Closed {
    pub fn profile(&self) -> Profile {
        self.member.profile(self.image.as_ref().map(|image| &image.live))
    }
}

/// See the module's text.
pub struct Session {
    attachment: Attachment,
    tracker: Tracker,
    finder: Finder,
    members: BTreeMap<u32, Member>,
    closed: Vec<Closed>,
    notices: Vec<Notice>,
    /// Members whose mappings are to be read again.
    stale: BTreeSet<u32>,
    /// Members whose first thread has ended.
    ending: BTreeSet<u32>,
    host: bool,
    /// Images that come from now on start with their semaphores raised.
    is_set_up: bool,
    /// Read before the first probe, for those who join, by process.
    counted_before: HashMap<u32, CountedBefore>,
    /// Samples and frees that arrived since the paces were asked, by process.
    events: HashMap<u32, u64>,
    /// Of processes that may be read instead of probed.
    paces: BTreeMap<u32, Adaptive>,
    /// Forked or replaced while there are no probes on samples that would tell of it: to be joined until this time, ns.
    awaited: BTreeMap<u32, u64>,
    /// Processes that lost the thread to which their probes belonged.
    bridges: BTreeMap<u32, Bridge>,
    /// Probes on samples may be taken away.
    may_hush: bool,
    /// Losses on the kernel's side that a reading of the table made good.
    made_good: [u64; DROP_REASONS],
}

impl Session {
    /// Attaches to one process and takes over what it had recorded.
    pub fn process(pid: u32, options: AttachOptions) -> Result<Session, SessionError> {
        let mut finder = Finder::new();
        let hooks = finder.process(pid)?;
        let before = CountedBefore::read(pid);
        let attachment = attach_to_one(&hooks, options)?;
        let mut session = Session::new(attachment, finder, false);
        session.counted_before.extend(before.map(|before| (pid, before)));
        session.join(pid)?;
        if session.attachment.is_hushed() && !session.begin_reading(pid) {
            // Its memory is not ours to read.
            session.attachment.unhush()?;
        }
        session.is_set_up = true;
        Ok(session)
    }

    /// Attaches to all processes of the host that map a file with hooks.
    pub fn host(options: AttachOptions) -> Result<Session, SessionError> {
        let mut finder = Finder::new();
        let host = finder.host().map_err(|source| Error::System { what: "list the processes", source })?;
        let read = |pid: u32| Some((pid, CountedBefore::read(pid)?));
        let before: HashMap<u32, CountedBefore> =
            host.processes.iter().filter_map(|process| read(process.pid)).collect();
        let attachment = Attachment::host(&host.files(), options)?;
        let mut session = Session::new(attachment, finder, true);
        session.counted_before = before;
        session.may_hush = options.hushed && session.attachment.has_whole_table();
        for process in host.processes {
            // Ended since the scan, or closed to us: its samples still come.
            let _unseeded = session.join(process.pid);
        }
        session.counted_before.clear();
        session.is_set_up = true;
        Ok(session)
    }

    fn new(attachment: Attachment, finder: Finder, host: bool) -> Session {
        let tracker = Tracker::new(LIVE_CAP, attachment.follows_lifecycle());
        Session {
            attachment,
            tracker,
            finder,
            members: BTreeMap::new(),
            closed: Vec::new(),
            notices: Vec::new(),
            stale: BTreeSet::new(),
            ending: BTreeSet::new(),
            host,
            is_set_up: false,
            counted_before: HashMap::new(),
            events: HashMap::new(),
            paces: BTreeMap::new(),
            awaited: BTreeMap::new(),
            bridges: BTreeMap::new(),
            may_hush: false,
            made_good: [0; DROP_REASONS],
        }
    }

    pub fn attachment(&self) -> &Attachment {
        &self.attachment
    }

    /// Changes the sampling interval of a member; gives the one of before, `None` when it has no table.
    pub fn set_lg_sample(&mut self, pid: u32, lg: u32) -> Result<Option<u32>, Error> {
        self.members.get_mut(&pid).map_or(Ok(None), |member| member.set_lg_sample(lg))
    }

    pub fn member(&self, pid: u32) -> Option<&Member> {
        self.members.get(&pid)
    }

    pub fn members(&self) -> impl Iterator<Item = &Member> {
        self.members.values()
    }

    /// The profile of a running member so far.
    pub fn profile(&self, pid: u32) -> Option<Profile> {
        self.members.get(&pid).map(|member| member.profile(self.tracker.get(pid).map(|image| &image.live)))
    }

    /// Losses on the kernel's side, over all processes.
    pub fn losses(&self) -> [u64; DROP_REASONS] {
        let losses = self.attachment.losses();
        std::array::from_fn(|reason| losses[reason].saturating_sub(self.made_good[reason]))
    }

    /// How the samples of a process are collected now; `None` when that never changes.
    pub fn way(&self, pid: u32) -> Option<Way> {
        self.paces.get(&pid).map(|adaptive| adaptive.pace.way())
    }

    /// Time until the next table is to be read; `None` when none is.
    pub fn next_reading(&self) -> Option<Duration> {
        let due_ns = self.paces.values().filter_map(|adaptive| adaptive.pace.next_reading_ns()).min()?;
        Some(Duration::from_nanos(due_ns.saturating_sub(monotonic_ns())))
    }

    /// Images that are gone since the last call.
    pub fn take_closed(&mut self) -> Vec<Closed> {
        std::mem::take(&mut self.closed)
    }

    /// Takes all waiting events and says what is worth telling.
    pub fn pump(&mut self) -> Vec<Notice> {
        self.drain();
        self.follow_threads();
        self.join_awaited();
        self.adapt();
        for pid in std::mem::take(&mut self.stale) {
            if let Some(member) = self.members.get_mut(&pid) {
                member.refresh();
            }
        }
        if !self.ending.is_empty() {
            self.sweep();
        }
        std::mem::take(&mut self.notices)
    }

    fn drain(&mut self) {
        let mut events = Vec::new();
        self.attachment.drain(&mut |event| events.push(event));
        for event in events {
            if let Some(event) = self.named(event) {
                self.take(&event);
            }
        }
    }

    /// Reads the name of a call that the kernel could not read, where it may wait for a page. `None` for what is of no interest or
    /// cannot be read here either, which is counted.
    fn named(&mut self, event: Event) -> Option<Event> {
        let Event::Mallctl(mut call) = event else { return Some(event) };
        if call.new_len != NAME_UNREAD {
            return Some(Event::Mallctl(call));
        }
        let pid = call.header.tgid;
        let mut name = [0; NAME_BYTES];
        let read = ProcessMemory::new(pid).read_some(call.new_value, &mut name).unwrap_or(0);
        let end = name[..read].iter().position(|&byte| byte == 0).or((read == NAME_BYTES).then_some(NAME_BYTES - 1));
        let Some(end) = end else {
            if let Some(member) = self.members.get_mut(&pid) {
                member.unread_calls += 1;
            }
            return None;
        };
        call.name[..end].copy_from_slice(&name[..end]);
        (call.new_value, call.new_len) = (0, 0);
        name.starts_with(b"prof.").then_some(Event::Mallctl(call))
    }

    /// Finds processes that ended without telling. Costs a look at each; call it once a second.
    pub fn sweep(&mut self) {
        self.drain();
        self.tracker.sweep();
        self.collect_closed();
        if !self.closed.is_empty() {
            // What a process did between the drain above and its end.
            self.drain();
        }
        self.ending.retain(|pid| self.tracker.get(*pid).is_some_and(|image| image.state == State::Ending));
    }

    fn collect_closed(&mut self) {
        for image in self.tracker.take_closed() {
            let pid = image.pid;
            let was_read = self.note_last_reading(pid);
            self.bridges.remove(&pid);
            if self.host {
                self.paces.remove(&pid);
                self.attachment.unprobe_process(pid);
            }
            // A forked child that did nothing of interest has no member.
            let Some(member) = self.members.remove(&pid) else { continue };
            let by_exec = image.state == State::Replaced;
            let name = member.name.clone();
            self.notices.push(if by_exec { Notice::Exec { pid, before: name } } else { Notice::Exited { pid, name } });
            self.closed.push(Closed { member, image: Some(image), by_exec, was_read });
        }
    }

    /// Host-wide: attaches to files that appeared and takes in processes that map them. Costs a look at each process.
    pub fn rescan(&mut self) {
        // The next look may succeed; what is attached already goes on.
        let Ok(host) = self.finder.host() else { return };
        for file in host.files() {
            self.add_file(&file);
        }
        for process in host.processes {
            if !self.members.contains_key(&process.pid) {
                let _unseeded = self.join(process.pid);
            }
        }
    }

    /// After an exec: attaches to the files of the new image; true once it has hooks.
    pub fn rejoin(&mut self, pid: u32) -> bool {
        // Whether the new image is too fast as well is to be seen.
        if self.is_read(pid)
            && self.attachment.unhush().is_ok()
            && let Some(Adaptive { pace, .. }) = self.paces.get_mut(&pid)
        {
            pace.use_probes(monotonic_ns());
        }
        let Ok(hooks) = self.finder.process(pid) else { return false };
        for mapped in &hooks.files {
            self.add_file(&mapped.file);
        }
        // Another thread than the first executed it, with which the probes went.
        if !self.host && !hooks.files.iter().all(|mapped| self.attachment.is_raised(pid, mapped)) {
            // Fails when it ended again.
            let _ended = self.attachment.rebind();
        }
        self.members.contains_key(&pid) || self.join(pid).is_ok()
    }

    /// Detaches, takes the last events and reads the tables of the running members once more.
    pub fn stop(&mut self) -> Vec<Notice> {
        let mut notices = self.pump();
        if self.host && self.attachment.is_hushed() {
            // Processes that no probe has told of.
            self.rescan();
        }
        // Those whose probes ended with their thread went on in their tables.
        let is_behind = |pid: &u32| {
            self.attachment.has_whole_table()
                && !self.is_read(*pid)
                && (self.bridges.contains_key(pid) || !self.attachment.is_bound(*pid))
        };
        let behind: Vec<u32> = self.members.keys().copied().filter(is_behind).collect();
        for pid in behind {
            let _last = self.take_reading(pid);
        }
        let read: Vec<u32> = self.paces.keys().copied().filter(|pid| self.is_read(*pid)).collect();
        for pid in read {
            // Fails when the process has ended, which the sweep below finds.
            let _last = self.read_table(pid);
        }
        // Allocations are detached first, and detaching takes a while: frees of samples that were taken in between are
        // no loss.
        let unknown_before: Vec<(u32, u64)> =
            self.tracker.running().map(|image| (image.pid, image.live.gaps.unknown_frees)).collect();
        self.attachment.stop();
        self.bridges.clear();
        notices.extend(self.pump());
        for (pid, unknown_frees) in unknown_before {
            if self.tracker.get(pid).is_some() {
                self.tracker.image(pid).live.gaps.unknown_frees = unknown_frees;
            }
        }
        self.sweep();
        for (&pid, member) in &mut self.members {
            member.reread_root();
            member.refresh();
            let live = &mut self.tracker.image(pid).live;
            let missing: Vec<StackKey> = live
                .stacks()
                .filter(|(key, stack)| key.kind == STACK_IN_PROCESS && stack.frames.is_none())
                .map(|(key, _)| key)
                .collect();
            for key in missing {
                if let Some(frames) = member.target.as_ref().and_then(|target| target.frames(key.id)) {
                    live.set_frames(key, &frames);
                }
            }
        }
        notices
    }

    fn add_file(&mut self, file: &Arc<HookFile>) {
        match self.attachment.add(file) {
            Ok(false) => {}
            Ok(true) => self.notices.push(Notice::File { path: file.path.clone(), result: Ok(()) }),
            Err(error) => self.notices.push(Notice::File { path: file.path.clone(), result: Err(error) }),
        }
    }

    /// Takes a process under the session and gives the tracker what its table says.
    fn join(&mut self, pid: u32) -> Result<(), Error> {
        let mut member = Member::open(pid);
        // A forked child began with a copy of what its parent held.
        let inherited = self.tracker.get(pid).is_some_and(|image| image.forked_from.is_some());
        if self.is_set_up && !inherited {
            member.count_from_its_start();
        } else if let Some(before) = self.counted_before.remove(&pid) {
            member.count_from(before);
        }
        let seeded = if inherited { Ok(None) } else { member.seed() };
        let seeded = seeded.map(|seed| {
            if let Some(seed) = seed {
                self.tracker.seed(pid, &seed);
            }
        });
        // Known to the tracker from here on, so that a sweep finds its end.
        self.tracker.image(pid);
        if self.host {
            // Without it, exec and exit of a process that has not sampled yet stay unseen until the next scan.
            let _unfollowed = self.attachment.follow(pid);
        }
        self.notices.push(Notice::Joined { pid, name: member.name.clone() });
        self.members.insert(pid, member);
        if self.host && self.attachment.is_hushed() {
            self.begin(pid);
        }
        seeded
    }

    fn take(&mut self, event: &Event) {
        let pid = event.header().tgid;
        let is_new = !self.members.contains_key(&pid);
        if is_new && self.take_late(pid, event) {
            return;
        }
        match event {
            // What the table says is not to be counted again, nor reset before the process does.
            Event::Alloc(_) | Event::Free(_) | Event::Context(_) | Event::Mallctl(_) if self.is_read(pid) => {}
            // Alone, a process is followed without its children, whose copies of the heap would only be held for nothing.
            Event::Fork(_) if !self.host => {}
            Event::Exec(_) | Event::Exit(_) | Event::Fork(_) => self.tracker.apply(event),
            _ => {
                if is_new {
                    let _unseeded = self.join(pid);
                }
                self.tracker.apply(event);
            }
        }
        match event {
            Event::Context(context) => {
                let known = self.members.get(&pid).is_some_and(|member| member.knows(ring::frames(context)));
                if !known {
                    self.stale.insert(pid);
                }
            }
            Event::Dump(dump) => self.dumped(pid, &PathBuf::from(ring::text(&dump.path))),
            Event::Mallctl(call) => {
                let name = ring::text(&call.name);
                if name.starts_with("prof.") {
                    self.notices.push(Notice::Mallctl { pid, name: name.clone() });
                }
                if let Some(member) = self.members.get_mut(&pid) {
                    *member.mallctls.entry(name).or_default() += 1;
                }
            }
            Event::Fork(fork) => {
                if let Some(member) = self.members.get_mut(&pid) {
                    member.note_child(fork.other);
                    let name = member.name.clone();
                    self.notices.push(Notice::Forked { pid, child: fork.other, name });
                }
                if self.host {
                    self.expect(fork.other);
                }
            }
            Event::Exec(_) => {
                self.collect_closed();
                self.expect(pid);
            }
            Event::Exit(_) => {
                self.ending.insert(pid);
                if self.is_read(pid) {
                    // Mostly too late.
                    let _last = self.read_table(pid);
                }
            }
            Event::Alloc(_) | Event::Free(_) => *self.events.entry(pid).or_default() += 1,
        }
    }

    /// Applies a record of a process that a sweep has just closed; false when it is not of one.
    fn take_late(&mut self, pid: u32, event: &Event) -> bool {
        let ended = self.closed.iter_mut().find(|closed| closed.member.pid == pid && !closed.by_exec);
        let Some(image) = ended.and_then(|closed| closed.image.as_mut()) else { return false };
        match event {
            Event::Alloc(alloc) => image.live.alloc(alloc),
            Event::Free(free) => image.live.free(free),
            Event::Context(context) => image.live.context(context),
            _ => return false,
        }
        true
    }

    /// Writes the merged profile beside the file that the process wrote, with the rights of the process's owner: the
    /// name came from the process.
    fn dumped(&mut self, pid: u32, path: &Path) {
        if self.is_read(pid) {
            let _newer = self.read_table(pid);
        }
        let Some(member) = self.members.get_mut(&pid) else { return };
        member.dumps += 1;
        let profile = member.profile(self.tracker.get(pid).map(|image| &image.live));
        let merged = outfile::beside(&ns::resolve(pid, path), "merged");
        let written = outfile::write_as(member.owner, &merged, |out| crate::output::heap_v2::write(&profile, out));
        self.notices.push(Notice::Dumped { pid, path: path.to_owned(), merged: written.map(|()| merged) });
    }
}

/// Attaches to one process. Where the first thread has ended, the one that is found instead may end meanwhile.
fn attach_to_one(hooks: &ProcessHooks, options: AttachOptions) -> Result<Attachment, AttachError> {
    const TRIES: u32 = 20;
    for _ in 1..TRIES {
        match Attachment::process(hooks, options) {
            Err(error) if error.is_of_a_thread_that_ended() && pids::has_memory(hooks.pid) => {}
            answer => return answer,
        }
    }
    Attachment::process(hooks, options)
}

impl AsFd for Session {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.attachment.as_fd()
    }
}

/// Why a session could not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    #[error(transparent)]
    Discover(#[from] DiscoverError),
    #[error(transparent)]
    Attach(#[from] AttachError),
    #[error(transparent)]
    Target(#[from] Error),
}

impl SessionError {
    pub fn hint(&self) -> Option<String> {
        match self {
            SessionError::Discover(error) => error.hint(),
            SessionError::Attach(error) => error.hint(),
            SessionError::Target(error) => error.hint(),
        }
    }
}
