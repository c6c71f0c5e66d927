//! Attachment: which program runs where, and for how long.
//!
//! One perf event per site. A pid-scoped event covers the whole address space of the process; a host-wide one covers
//! every process that maps the file, later ones included, so there is one attachment per file and not per process.
//! Order matters: contexts first, then frees, then allocations, so that no allocation is seen whose free would be
//! missed; detaching goes the other way, and takes tens of milliseconds, in which frees would still arrive and
//! allocations not. So an attachment ends at one moment: what happened after [`Attachment::stop`] began is not told.
//!
//! A hushed attachment has no probes on samples but for those of single processes ([`Attachment::probe_process`]); others
//! that are never hit keep the semaphores raised, so that processes sample into their tables.
//!
//! Everything ends with the descriptors: [`Attachment::stop`], drop, or the death of this process. The kernel lowers
//! the semaphores in all three cases.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;

use jeprobe_abi::config::{Config, STACKS_AUTO, STACKS_CONTEXT, STACKS_KERNEL};
use jeprobe_abi::drops::{DROP_REASONS, Reason};
use jeprobe_abi::keys::{self, MAX_SITES};

use super::discover::{HookFile, MappedHooks, ProcessHooks};
use super::error::AttachError;
use super::hookfile::{Hook, Site};
use super::load::Kernel;
use super::ring::Event;
use super::sys::{self, Cover, Tracefs};
use super::tracepoints;
use crate::proc::pids;
use crate::remote::memory::ProcessMemory;
use crate::wait::monotonic_ns;

/// Where stacks come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stacks {
    /// The process's own unwinder; frame pointers when it recorded none.
    #[default]
    Auto,
    /// Only the process's own unwinder.
    Context,
    /// Only the kernel's walk of frame pointers; the process does not unwind for us.
    Kernel,
}

#[derive(Clone, Copy, Debug)]
pub struct AttachOptions {
    pub stacks: Stacks,
    /// Bytes of the ring; rounded up to a power of two of at least a page.
    pub ring_bytes: u32,
    /// Processes may be left without probes on their samples when their tables can be read. A single one begins so.
    pub hushed: bool,
}

impl Default for AttachOptions {
    fn default() -> AttachOptions {
        AttachOptions { stacks: Stacks::Auto, ring_bytes: 4 << 20, hushed: false }
    }
}

/// Bytes that wait in the ring when its reader is woken: about a thousand samples, before which it need not know.
const WAKEUP_BYTES: u64 = 64 << 10;

/// One probe with its program. Fields drop in order: the link before its event.
#[derive(Debug)]
struct Probe {
    _link: Option<OwnedFd>,
    _event: OwnedFd,
    hook: Hook,
    /// Of a file whose hooks are all of one table, see [`Hooks::can_hush`](super::hookfile::Hooks::can_hush).
    hushable: bool,
    /// Set for this process in a host-wide attachment.
    single: Option<u32>,
}

#[derive(Debug, Clone, Copy)]
enum Scope {
    Process(u32),
    Host,
}

/// Probes in place and a ring to read. See the module's header for its end.
pub struct Attachment {
    scope: Scope,
    cover: Cover,
    /// Of processes with probes of their own in a host-wide attachment: the thread that these belong to.
    singles: BTreeMap<u32, u32>,
    stacks: Stacks,
    probes: Vec<Probe>,
    lifecycle: Vec<OwnedFd>,
    files: Vec<Attached>,
    places: Vec<keys::Site>,
    warnings: Vec<String>,
    unknown_records: u64,
    /// When `stop` began, ns of `CLOCK_MONOTONIC`.
    ended_ns: Option<u64>,
    /// The probes on samples are away, see [`Attachment::hush`].
    is_hushed: bool,
    /// The one table of the process, or of each, holds all that the probes tell.
    has_whole_table: bool,
    kernel: Kernel,
}

/// What was attached in one file, for people.
#[derive(Debug)]
struct Attached {
    file: Arc<HookFile>,
    names: Vec<String>,
}

impl Attachment {
    /// Attaches to one process and checks that it got its semaphores raised.
    pub fn process(hooks: &ProcessHooks, options: AttachOptions) -> Result<Attachment, AttachError> {
        let scope = Scope::Process(hooks.pid);
        let cover = Cover::Process(pids::living_task(hooks.pid));
        let mut attachment = Attachment::prepare(scope, cover, options)?;
        attachment.has_whole_table = options.stacks != Stacks::Kernel && has_one_table(&hooks.files);
        attachment.is_hushed = options.hushed && attachment.has_whole_table;
        for mapped in &hooks.files {
            attachment.add(&mapped.file)?;
        }
        for mapped in &hooks.files {
            attachment.check_semaphores(hooks.pid, mapped)?;
        }
        Ok(attachment)
    }

    /// Attaches to every process that maps one of the files, now or later.
    pub fn host(files: &[Arc<HookFile>], options: AttachOptions) -> Result<Attachment, AttachError> {
        let mut attachment = Attachment::prepare(Scope::Host, Cover::Host { cpu: tracepoints::online_cpu() }, options)?;
        attachment.has_whole_table = options.stacks != Stacks::Kernel;
        for file in files {
            attachment.add(file)?;
        }
        Ok(attachment)
    }

    fn prepare(scope: Scope, cover: Cover, options: AttachOptions) -> Result<Attachment, AttachError> {
        let ring_bytes = options.ring_bytes.clamp(4096, 1 << 30).next_power_of_two();
        let tracefs = Tracefs::open();
        let mut config = Config {
            stacks: match options.stacks {
                Stacks::Auto => STACKS_AUTO,
                Stacks::Context => STACKS_CONTEXT,
                Stacks::Kernel => STACKS_KERNEL,
            },
            wakeup_bytes: u64::from(ring_bytes / 4).min(WAKEUP_BYTES),
            ..Config::DEFAULT
        };
        if let Scope::Process(pid) = scope {
            config.tgid = pid;
        }
        (config.pidns_dev, config.pidns_ino) = own_pid_namespace();
        let mut warnings = Vec::new();
        let fork_offsets = tracefs.as_ref().ok().and_then(|tracefs| tracepoints::fork_offsets(tracefs).ok());
        if let Some((pid, flags)) = fork_offsets {
            (config.fork_pid_offset, config.fork_flags_offset) = (pid, flags);
        }
        sys::raise_memlock_limit();
        let mut kernel = Kernel::load(&config, ring_bytes)?;
        let mut lifecycle = Vec::new();
        let programs = [
            ("process_exec", "sched/sched_process_exec", true),
            ("process_exit", "sched/sched_process_exit", true),
            ("process_fork", "task/task_newtask", fork_offsets.is_some()),
        ];
        for (program, tracepoint, usable) in programs {
            let attached = match &tracefs {
                Err(error) => Err(error.to_string()),
                Ok(_) if !usable => Err("its record has another layout".to_owned()),
                Ok(tracefs) => tracepoints::attach(&mut kernel, tracefs, program, tracepoint),
            };
            match attached {
                Ok(event) => lifecycle.push(event),
                Err(why) => warnings.push(format!("cannot follow {tracepoint}: {why}")),
            }
        }
        Ok(Attachment {
            scope,
            cover,
            singles: BTreeMap::new(),
            stacks: options.stacks,
            probes: Vec::new(),
            lifecycle,
            files: Vec::new(),
            places: Vec::new(),
            warnings,
            unknown_records: 0,
            ended_ns: None,
            is_hushed: false,
            has_whole_table: false,
            kernel,
        })
    }

    /// Attaches to one more file; false when that was done before.
    pub fn add(&mut self, file: &Arc<HookFile>) -> Result<bool, AttachError> {
        if self.files.iter().any(|attached| attached.file.key() == file.key()) {
            return Ok(false);
        }
        let sites: Vec<&Site> = self.wanted(file).collect();
        let probes = self.attach_sites(file, &sites, None)?;
        self.keep(probes);
        let names = sites.iter().map(|site| site.name.clone()).collect();
        self.files.push(Attached { file: Arc::clone(file), names });
        Ok(true)
    }

    /// The probes on samples are away, as [`AttachOptions::hushed`] asked and the process allows.
    pub fn is_hushed(&self) -> bool {
        self.is_hushed
    }

    /// Takes away the probes that are hit by samples, where a table holds what they tell. Processes go on sampling and
    /// recording there, since those that are never hit keep the semaphores raised.
    pub fn hush(&mut self) {
        self.is_hushed = true;
        self.drop_probes(|probe| probe.hook.is_frequent() && probe.hushable);
    }

    fn drop_probes(&mut self, is_meant: impl Fn(&Probe) -> bool) {
        let (meant, kept) = std::mem::take(&mut self.probes).into_iter().partition(is_meant);
        self.probes = kept;
        let_go(meant);
    }

    /// Sets probes on the samples of one process under a hushed host-wide attachment.
    pub fn probe_process(&mut self, hooks: &ProcessHooks) -> Result<(), AttachError> {
        let pid = hooks.pid;
        self.unprobe_process(pid);
        self.singles.insert(pid, pids::living_task(pid));
        for MappedHooks { file, .. } in hooks.files.iter().filter(|mapped| mapped.file.hooks.can_hush()) {
            let sites: Vec<&Site> = file.hooks.sites.iter().filter(|site| site.hook.is_frequent()).collect();
            match self.attach_sites(file, &sites, Some(pid)) {
                Ok(probes) => self.keep(probes),
                Err(error) => {
                    self.unprobe_process(pid);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Takes those away again.
    pub fn unprobe_process(&mut self, pid: u32) {
        if self.singles.remove(&pid).is_some() {
            self.drop_probes(|probe| probe.single == Some(pid));
        }
    }

    /// Sets the probes that a hushed attachment does without.
    pub fn unhush(&mut self) -> Result<(), AttachError> {
        self.is_hushed = false;
        let files: Vec<Arc<HookFile>> = self.files.iter().map(|attached| Arc::clone(&attached.file)).collect();
        for file in files {
            let sites: Vec<&Site> = self.wanted(&file).filter(|site| site.hook.is_frequent()).collect();
            match self.attach_sites(&file, &sites, None) {
                Ok(probes) => self.keep(probes),
                Err(error) => {
                    self.hush();
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// The tables that can be read hold all that the probes tell.
    pub fn has_whole_table(&self) -> bool {
        self.has_whole_table
    }

    /// The probes of a single process belong to one of its threads, at first the first one, and end with it.
    pub fn is_bound(&self, pid: u32) -> bool {
        match (self.scope, self.cover) {
            (Scope::Process(pid), Cover::Process(task)) => pids::task_lives(pid, task),
            _ => self.singles.get(&pid).is_none_or(|&task| pids::task_lives(pid, task)),
        }
    }

    /// Sets the probes of a single process anew, bound to a thread that lives. Those that are never hit are in place until then
    /// all the same and keep the semaphores raised: the kernel takes a probe without a thread away when it is hit.
    pub fn rebind(&mut self) -> Result<(), AttachError> {
        let Scope::Process(pid) = self.scope else { return Ok(()) };
        let before = std::mem::replace(&mut self.cover, Cover::Process(pids::living_task(pid)));
        let files: Vec<Arc<HookFile>> = self.files.iter().map(|attached| Arc::clone(&attached.file)).collect();
        let mut probes = Vec::new();
        for file in files {
            let sites: Vec<&Site> = self.wanted(&file).collect();
            match self.attach_sites(&file, &sites, None) {
                Ok(more) => probes.extend(more),
                Err(error) => {
                    self.cover = before;
                    return Err(error);
                }
            }
        }
        let old = std::mem::take(&mut self.probes);
        self.keep(probes);
        let_go(old);
        Ok(())
    }

    /// Whether the process has the semaphores of all probes raised.
    pub fn is_raised(&self, pid: u32, mapped: &MappedHooks) -> bool {
        self.check_semaphores(pid, mapped).is_ok()
    }

    /// Sites to probe: the context hook makes the process unwind, which a walk by the kernel does not want, nor do those that
    /// are never executed serve it.
    fn wanted<'f>(&self, file: &'f HookFile) -> impl Iterator<Item = &'f Site> + use<'f> {
        let own_stacks = self.stacks != Stacks::Kernel;
        let is_hushed = self.is_hushed && file.hooks.can_hush();
        file.hooks.sites.iter().filter(move |site| match site.hook {
            hook if hook.is_parked() => own_stacks,
            hook if hook.is_frequent() && is_hushed => false,
            Hook::Context => own_stacks,
            _ => true,
        })
    }

    /// Reads the semaphores back: a probe whose semaphore stayed 0 would be silence taken for an idle heap.
    fn check_semaphores(&self, pid: u32, mapped: &MappedHooks) -> Result<(), AttachError> {
        let memory = ProcessMemory::new(pid);
        for site in self.wanted(&mapped.file) {
            let Some((svma, _)) = site.semaphore else { continue };
            let mut count = [0; 2];
            match memory.read(svma.in_process(mapped.bias).0, &mut count) {
                Ok(()) if count != [0; 2] => {}
                // Not allowed to read: the kernel may still have raised it.
                Err(error) if matches!(error.raw_os_error(), Some(libc::EPERM)) => {}
                _ => {
                    let task = match self.cover {
                        Cover::Process(task) => Some((pid, task)),
                        Cover::Host { .. } => None,
                    };
                    return Err(AttachError::Semaphore { name: site.name.clone(), pid, task });
                }
            }
        }
        Ok(())
    }

    /// Sets probes in their order; all or none.
    fn attach_sites(
        &mut self,
        file: &HookFile,
        sites: &[&Site],
        single: Option<u32>,
    ) -> Result<Vec<Probe>, AttachError> {
        let mut sites = sites.to_vec();
        sites.sort_by_key(|site| site.hook.rank());
        sites.into_iter().map(|site| self.attach_site(file, site, single)).collect()
    }

    fn keep(&mut self, probes: Vec<Probe>) {
        self.probes.extend(probes);
        self.probes.sort_by_key(|probe| probe.hook.rank());
    }

    fn attach_site(&mut self, file: &HookFile, site: &Site, single: Option<u32>) -> Result<Probe, AttachError> {
        let failed = |source| AttachError::Probe { name: site.name.clone(), path: file.path.clone(), source };
        let program = match site.hook {
            Hook::Alloc => Some(("jeprobe_alloc", None)),
            Hook::Free => Some(("jeprobe_free", None)),
            Hook::Context => Some(("jeprobe_context", None)),
            Hook::Dump => Some(("jeprobe_dump", None)),
            Hook::Mallctl => Some(("jeprobe_mallctl", None)),
            Hook::ForeignAlloc => Some(("foreign_alloc", Some(self.cookie(&site.places)?))),
            Hook::ForeignFree => Some(("foreign_free", Some(self.cookie(&site.places)?))),
            Hook::Record | Hook::Unwind => None,
        };
        let semaphore = site.semaphore.map(|(_, offset)| offset);
        let task = single.and_then(|pid| self.singles.get(&pid));
        let cover = task.map_or(self.cover, |&task| Cover::Process(task));
        let event = sys::open_uprobe(cover, file.file.as_fd(), site.offset, semaphore).map_err(failed)?;
        let link = match program {
            Some((name, cookie)) => sys::attach(&event, self.kernel.program(name)?, cookie).map_err(failed)?,
            None => None,
        };
        Ok(Probe { _link: link, _event: event, hook: site.hook, hushable: file.hooks.can_hush(), single })
    }

    /// Number under which the kernel programs find these argument places.
    fn cookie(&mut self, places: &keys::Site) -> Result<u64, AttachError> {
        if let Some(known) = self.places.iter().position(|other| other == places) {
            return Ok(known as u64);
        }
        let cookie = self.places.len() as u32;
        if cookie == MAX_SITES {
            return Err(AttachError::TooManySites);
        }
        self.kernel.set_site(cookie, places)?;
        self.places.push(*places);
        Ok(u64::from(cookie))
    }

    /// Reports exec, exit and fork of a process before its first sample, too. Needed only host-wide.
    pub fn follow(&mut self, pid: u32) -> Result<(), AttachError> {
        Ok(self.kernel.follow(pid)?)
    }

    /// Gives every record of up to now to `take` and says how many there were. Records that arrive meanwhile wait for the
    /// next call, so that a target that is faster than `take` cannot keep the caller here. Samples wake a reader of the
    /// descriptor only when a thousand of them wait, so call this every 100 ms in any case.
    pub fn drain(&mut self, take: &mut dyn FnMut(Event)) -> u64 {
        let now = monotonic_ns();
        let mut count = 0;
        while let Some(record) = self.kernel.events().next() {
            count += 1;
            let Some(event) = Event::decode(&record) else {
                self.unknown_records += 1;
                continue;
            };
            let time_ns = event.header().time_ns;
            // Frames may belong to a sample of before.
            if self.ended_ns.is_none_or(|ended| time_ns <= ended) || matches!(event, Event::Context(_)) {
                take(event);
            }
            if time_ns > now {
                break;
            }
        }
        count
    }

    /// Losses so far, by reason.
    pub fn losses(&self) -> [u64; DROP_REASONS] {
        let mut losses = self.kernel.drops();
        losses[Reason::UnknownRecord as usize] += self.unknown_records;
        losses
    }

    /// Ends the attachment now and detaches; gives the moment, ns of `CLOCK_MONOTONIC`. What came before can still be
    /// drained.
    pub fn stop(&mut self) -> u64 {
        let ended = *self.ended_ns.get_or_insert_with(monotonic_ns);
        while let Some(probe) = self.probes.pop() {
            drop(probe);
        }
        self.lifecycle.clear();
        ended
    }

    /// What is attached and what it costs, one line each.
    pub fn describe(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for file in &self.files {
            let mut line = match self.scope {
                Scope::Process(pid) => format!("process {pid}"),
                Scope::Host => "every process".to_owned(),
            };
            let _ = write!(line, ", {}: {}", file.file.path.display(), file.names.join(", "));
            lines.push(line);
        }
        let stacks = match self.stacks {
            Stacks::Auto => "stacks from the process's own unwinder, frame pointers where it gives none",
            Stacks::Context => "stacks from the process's own unwinder",
            Stacks::Kernel => "stacks from frame pointers, walked by the kernel",
        };
        if self.is_hushed {
            lines.push(format!(
                "expected cost: about 0.3 us for each sampled allocation or free while they are frequent; {stacks}"
            ));
            return lines;
        }
        let walk = if self.stacks == Stacks::Kernel { "3 us for each sampled allocation and 1.2 us" } else { "1.2 us" };
        lines.push(format!(
            "expected cost: about {walk} for each sampled {}, nothing for the others; {stacks}",
            if self.stacks == Stacks::Kernel { "free" } else { "allocation or free" }
        ));
        lines
    }

    /// What could not be set up and what that means; nothing here stops the profile.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// exec and exit arrive as events. Without, the caller must watch for the end of the process itself.
    pub fn follows_lifecycle(&self) -> bool {
        self.lifecycle.len() >= 2
    }
}

impl AsFd for Attachment {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.kernel.events_fd()
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Each waits for the kernel to be done with it: all at once, as far as threads can be had.
fn let_go(probes: Vec<Probe>) {
    std::thread::scope(|scope| {
        for probe in probes {
            // What a thread that does not start was to drop is dropped here.
            let _done_here = std::thread::Builder::new().spawn_scoped(scope, || drop(probe));
        }
    });
}

/// Whether a process goes on recording into one table, stacks included, without probes on its samples.
pub fn has_one_table(files: &[MappedHooks]) -> bool {
    matches!(files, [MappedHooks { file, .. }] if file.hooks.can_hush())
}

/// Device and inode of our pid namespace, 0 in the first one, whose numbers the kernel uses by itself.
fn own_pid_namespace() -> (u64, u64) {
    /// `PROC_PID_INIT_INO` of the kernel.
    const FIRST: u64 = 0xEFFF_FFFC;
    match fs::metadata("/proc/self/ns/pid") {
        Ok(meta) if meta.ino() != FIRST => (meta.dev(), meta.ino()),
        _ => (0, 0),
    }
}
