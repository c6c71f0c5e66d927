//! A process whose profile table was found: reads it, and writes its control words.
//!
//! Opening a target says for each way it can fail what failed and what the user can do. The pid may be given to another
//! process later; who stays attached for long holds a `PidFd` and asks it.
#![forbid(unsafe_code)]

use std::fs;
use std::io;
use std::mem::offset_of;
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::time::Duration;

use jeprobe_abi::abi::MAX_FRAMES;
use jeprobe_abi::reader::{RemoteMemory, Unreadable};
use jeprobe_abi::root::Root;

use super::locate::{Located, locate};
use super::memory::ProcessMemory;
use super::table::{self, Reading};
use crate::error::Error;
use crate::model::Profile;
use crate::proc::maps::{self, Mapping, Maps};
use crate::proc::{exe, pids};
use crate::wait::{PidFd, ready};

/// How long the threads of a process take to end after the first of them.
const ENDING: Duration = Duration::from_millis(20);

impl RemoteMemory for ProcessMemory {
    fn read(&self, addr: u64, buf: &mut [u8]) -> Result<(), Unreadable> {
        ProcessMemory::read(*self, addr, buf).map_err(|_| Unreadable { addr })
    }
}

/// A control word of the root that may be written from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    ProfActive,
    LgSample,
}

impl Word {
    fn name(self) -> &'static str {
        match self {
            Word::ProfActive => "prof_active",
            Word::LgSample => "lg_sample",
        }
    }

    fn offset(self) -> u64 {
        (match self {
            Word::ProfActive => offset_of!(Root, prof_active),
            Word::LgSample => offset_of!(Root, lg_sample),
        }) as u64
    }
}

/// A process with a profile table.
#[derive(Clone, Debug)]
pub struct Target {
    pub pid: u32,
    /// Command name, at most 15 bytes.
    pub name: String,
    pub located: Located,
    /// Tables found; more than one when two copies of the allocator are loaded, of which the busiest was taken.
    pub copies: usize,
}

impl Target {
    /// Finds the table of a process.
    pub fn open(pid: u32) -> Result<Target, Error> {
        let (pid, name) = present(pid)?;
        let maps = match exe::read_maps(pid) {
            Ok(maps) => maps,
            Err(source) => return Err(access(pid, name, "read the mappings", source)),
        };
        let memory = ProcessMemory::new(pid);
        if let Some(source) = first_read_error(memory, &maps) {
            return Err(access(pid, name, "read the memory", source));
        }
        let mut found = locate(memory, &maps);
        let samples = |located: &Located| memory.read_u64(located.root + offset_of!(Root, samples) as u64).unwrap_or(0);
        found.sort_by_key(|located| std::cmp::Reverse(samples(located)));
        let copies = found.len();
        let Some(located) = found.into_iter().next() else { return Err(Error::NoAllocator { pid, name }) };
        Ok(Target { pid, name, located, copies })
    }

    /// Reads the table, with the process's mappings and program.
    pub fn read(&self) -> Result<Reading, Error> {
        let mut reading = table::read(&self.memory(), self.located.root).map_err(|source| Error::Table {
            pid: self.pid,
            name: self.name.clone(),
            source,
        })?;
        if let Ok(bytes) = exe::read_maps_bytes(self.pid) {
            for mapping in &maps::parse(&bytes).entries {
                reading.profile.add_mapping(mapping.into());
            }
        }
        reading.profile.set_process(self.pid, program(self.pid));
        reading.anonymous_bytes = pids::status(pids::living_task(self.pid)).map_or(0, |status| status.anonymous_bytes);
        Ok(reading)
    }

    /// Adds the build-ids of the mapped files, by which symbols are found when the files have changed. Slow: opens each.
    pub fn add_build_ids(&self, profile: &mut Profile) {
        let Ok(maps) = exe::read_maps(self.pid) else { return };
        for file in maps.files() {
            if let Some(id) = build_id_of(self.pid, file) {
                profile.mappings_mut().set_build_id(file.path(), &id);
            }
        }
    }

    /// To be asked anew for each piece of work: the thread through which it was reached may end.
    pub fn memory(&self) -> ProcessMemory {
        ProcessMemory::new(self.pid)
    }

    /// Frames of one context of the table, leaf first.
    pub fn frames(&self, context: u64) -> Option<Vec<u64>> {
        let memory = self.memory();
        let table = jeprobe_abi::reader::Table::open(&memory, self.located.root).ok()?;
        let mut frames = [0; MAX_FRAMES];
        let found = table.context(context, &mut frames).ok()?;
        Some(frames[..found.depth as usize].to_vec())
    }

    /// Reads the root alone.
    pub fn root(&self) -> Result<Root, Error> {
        match jeprobe_abi::reader::Table::open(&self.memory(), self.located.root) {
            Ok(table) => Ok(*table.root()),
            Err(source) => Err(Error::Table { pid: self.pid, name: self.name.clone(), source }),
        }
    }

    /// Sets a control word and reads it back; gives the value of before.
    pub fn set(&self, word: Word, value: u32) -> Result<u32, Error> {
        // Asked first, so that nothing is written into the memory of another program after an exec.
        self.root()?;
        let memory = self.memory();
        let at = self.located.root + word.offset();
        let failed = |source| access(self.pid, self.name.clone(), "write to the memory", source);
        let before = memory.read_u32(at).map_err(failed)?;
        if before != value {
            memory.write(at, &value.to_le_bytes()).map_err(failed)?;
            if memory.read_u32(at).map_err(failed)? != value {
                let name = self.name.clone();
                return Err(Error::ControlNotTaken { pid: self.pid, name, word: word.name() });
            }
        }
        Ok(before)
    }
}

/// Build-id of the file behind a mapping.
pub fn build_id_of(pid: u32, mapping: &Mapping) -> Option<Vec<u8>> {
    let file = exe::open_mapped(pid, mapping).ok()?;
    let cache = object::ReadCache::new(&file);
    let object = object::File::parse(&cache).ok()?;
    object::Object::build_id(&object).ok()?.map(<[u8]>::to_vec)
}

/// The process of a pid that has memory, and its name.
pub fn present(pid: u32) -> Result<(u32, String), Error> {
    let status = match pids::status(pid) {
        Ok(status) => status,
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ESRCH)) => {
            return Err(Error::NoProcess { pid });
        }
        Err(source) => return Err(access(pid, String::new(), "read the status", source)),
    };
    // A thread's id has a directory too, hidden from the list; the process is what has a heap.
    let (pid, name) = (status.tgid, status.name);
    let has_ended = matches!(status.state, 'Z' | 'X') && !pids::task_lives(pid, pids::living_task(pid));
    if has_ended { Err(Error::Zombie { pid, name }) } else { Ok((pid, name)) }
}

/// Whether a process whose table cannot be read any more is about to end; else it runs another program, or its table is
/// damaged. Waits a moment, as its threads end one by one.
pub fn is_ending(pid: u32, pidfd: &PidFd) -> bool {
    let ended = ready(&[pidfd.as_fd()], Some(ENDING));
    ended.is_ok_and(|ended| ended == [true]) || !pids::has_memory(pid)
}

/// Path of the main program as the process sees it.
pub fn program(pid: u32) -> Option<PathBuf> {
    let path = fs::read_link(format!("/proc/{}/exe", pids::living_task(pid))).ok()?;
    // The kernel marks a deleted program in the text of the link.
    match path.to_str().and_then(|text| text.strip_suffix(" (deleted)")) {
        Some(kept) => Some(PathBuf::from(kept)),
        None => Some(path),
    }
}

/// Tries the first readable mapping; a process without one (a kernel thread) has nothing to fail on.
fn first_read_error(memory: ProcessMemory, maps: &Maps) -> Option<io::Error> {
    let mapping = maps.entries.iter().find(|m| m.perms.read && m.is_file())?;
    memory.read_u64(mapping.start).err().filter(|error| error.raw_os_error() != Some(libc::EFAULT))
}

const CAP_SYS_PTRACE: u32 = 19;

/// What decides who may read whose memory, besides namespaces and security modules.
struct Refusal<'a> {
    /// User of the process.
    theirs: Option<u32>,
    ours: u32,
    /// `CAP_SYS_PTRACE` is effective.
    may_trace: bool,
    /// `kernel.yama.ptrace_scope`; empty without Yama.
    scope: &'a str,
}

impl Refusal<'_> {
    /// What can be done about it, the surest reason first.
    fn hint(&self) -> String {
        if self.scope == "3" {
            "kernel.yama.ptrace_scope is 3, so nobody may read another process's memory until the machine is started anew with less; \
             probes need none of it: as root, jeprobe attach --mode ebpf"
                .to_owned()
        } else if self.may_trace {
            "the process belongs to an outer namespace, or a security module protects it or keeps this command from it (in a \
             container: its seccomp profile); run on the host itself"
                .to_owned()
        } else if self.ours == 0 {
            "this root lacks CAP_SYS_PTRACE; in a container, add it: --cap-add SYS_PTRACE".to_owned()
        } else if self.theirs != Some(self.ours) {
            let owner = self.theirs.map_or(String::new(), |uid| format!(" (uid {uid})"));
            format!("run as the owner of the process{owner} or as root: sudo jeprobe ...")
        } else if self.scope == "2" {
            "Yama lets only CAP_SYS_PTRACE trace (kernel.yama.ptrace_scope is 2); run as root: sudo jeprobe ..."
                .to_owned()
        } else if self.scope == "1" {
            "Yama lets only parents trace; run as root, or: sudo sysctl kernel.yama.ptrace_scope=0".to_owned()
        } else {
            "the process protects its memory (setuid, capabilities or prctl); run as root: sudo jeprobe ...".to_owned()
        }
    }
}

/// The error for a refused access, with the reason that the refusal has on this host.
fn access(pid: u32, name: String, what: &'static str, source: io::Error) -> Error {
    match source.raw_os_error() {
        Some(libc::ESRCH | libc::ENOENT) => return Error::NoProcess { pid },
        Some(libc::EPERM | libc::EACCES) => {}
        _ => return Error::Access { pid, name, what, hint: None, source },
    }
    let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    let own = pids::status(std::process::id()).unwrap_or_default();
    let refusal = Refusal {
        theirs: pids::status(pid).ok().map(|status| status.uid),
        ours: own.uid,
        may_trace: own.capabilities & (1 << CAP_SYS_PTRACE) != 0,
        scope: scope.trim(),
    };
    let hint = refusal.hint();
    Error::Access { pid, name, what, hint: Some(hint), source }
}

#[cfg(test)]
mod tests {
    use super::Refusal;

    /// Each reason has its way out.
    #[test]
    fn a_refusal_says_what_helps() {
        let hint = |theirs, ours, may_trace, scope| Refusal { theirs, ours, may_trace, scope }.hint();
        for (theirs, ours, may_trace, scope, words) in [
            (Some(5), 5, false, "", "sudo jeprobe"),
            (Some(5), 5, false, "0", "protects its memory"),
            (Some(5), 5, false, "1", "sysctl kernel.yama.ptrace_scope=0"),
            (Some(5), 5, false, "2", "only CAP_SYS_PTRACE"),
            (Some(5), 5, false, "3", "--mode ebpf"),
            (Some(0), 0, true, "3", "--mode ebpf"),
            (Some(0), 0, true, "2", "on the host itself"),
            (Some(0), 0, true, "", "on the host itself"),
            (Some(5), 0, false, "1", "--cap-add SYS_PTRACE"),
            (Some(5), 6, false, "1", "owner of the process (uid 5)"),
            (None, 6, false, "0", "owner of the process or"),
        ] {
            let said = hint(theirs, ours, may_trace, scope);
            assert!(said.contains(words), "{theirs:?} {ours} {may_trace} {scope:?}: {said}");
        }
    }
}
