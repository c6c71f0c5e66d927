//! Processes of the host: the list, and the fields of `status` and `stat` that the loader needs. Parsers are pure.
#![forbid(unsafe_code)]

use std::fs;
use std::io;

/// Fields of `/proc/PID/status`. Sizes are bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Name of the main thread, at most 15 bytes, as the kernel escapes it.
    pub name: String,
    /// `R`, `S`, `D`, `T` (stopped), `t` (traced), `Z` (zombie), `X`.
    pub state: char,
    pub tgid: u32,
    pub ppid: u32,
    /// Effective user.
    pub uid: u32,
    /// Effective group.
    pub gid: u32,
    pub tracer_pid: u32,
    /// Effective capabilities, one bit each.
    pub capabilities: u64,
    /// Process ids from the outermost visible namespace to the process's own.
    pub ns_tgids: Vec<u32>,
    /// 0 for kernel threads and zombies.
    pub rss_bytes: u64,
    /// Memory that is no file's, swapped out or not; 0 for the same.
    pub anonymous_bytes: u64,
}

/// Parses `/proc/PID/status`; `None` when it names no process.
pub fn parse_status(bytes: &[u8]) -> Option<Status> {
    let text = String::from_utf8_lossy(bytes);
    let mut status = Status { state: '?', ..Status::default() };
    for line in text.lines() {
        let Some((key, value)) = line.split_once(':') else { continue };
        let value = value.trim();
        let first = value.split_whitespace().next().unwrap_or("");
        match key {
            "Name" => value.clone_into(&mut status.name),
            "State" => status.state = value.chars().next().unwrap_or('?'),
            "Tgid" => status.tgid = first.parse().ok()?,
            "PPid" => status.ppid = first.parse().ok()?,
            "TracerPid" => status.tracer_pid = first.parse().ok()?,
            "Uid" => status.uid = value.split_whitespace().nth(1)?.parse().ok()?,
            "Gid" => status.gid = value.split_whitespace().nth(1)?.parse().ok()?,
            "CapEff" => status.capabilities = u64::from_str_radix(first, 16).ok()?,
            "NStgid" => status.ns_tgids = value.split_whitespace().filter_map(|id| id.parse().ok()).collect(),
            "VmRSS" => status.rss_bytes = first.parse::<u64>().ok()?.checked_mul(1024)?,
            "RssAnon" | "VmSwap" => {
                let bytes = first.parse::<u64>().ok()?.checked_mul(1024)?;
                status.anonymous_bytes = status.anonymous_bytes.checked_add(bytes)?;
            }
            _ => {}
        }
    }
    (status.tgid != 0).then_some(status)
}

/// Start time in clock ticks since boot, field 22 of `/proc/PID/stat`. With the pid it names one process for good.
/// The name in field 2 may hold blanks and parentheses, so counting starts after its last parenthesis.
pub fn parse_start_ticks(stat: &[u8]) -> Option<u64> {
    let close = stat.iter().rposition(|&b| b == b')')?;
    let rest = std::str::from_utf8(stat.get(close + 1..)?).ok()?;
    rest.split_whitespace().nth(19)?.parse().ok()
}

/// Status of one process.
pub fn status(pid: u32) -> io::Result<Status> {
    let bytes = fs::read(format!("/proc/{pid}/status"))?;
    parse_status(&bytes).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
}

/// Start time of one process, see [`parse_start_ticks`].
pub fn start_ticks(pid: u32) -> io::Result<u64> {
    let bytes = fs::read(format!("/proc/{pid}/stat"))?;
    parse_start_ticks(&bytes).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
}

/// The id under which `/proc` and the system calls for another process's memory find what the process has: its own or, once
/// its first thread has ended before the others, that of one of those. Its own when none lives.
pub fn living_task(pid: u32) -> u32 {
    if task_lives(pid, pid) {
        return pid;
    }
    tasks(pid).into_iter().find(|&tid| task_lives(pid, tid)).unwrap_or(pid)
}

/// Whether a task of a process still has memory. One that ends lets go of it first, and counts as a zombie only later.
pub fn task_lives(pid: u32, tid: u32) -> bool {
    fs::read(format!("/proc/{pid}/task/{tid}/statm")).is_ok_and(|statm| !statm.is_empty() && !statm.starts_with(b"0 "))
}

/// Whether any thread of a process still has memory.
pub fn has_memory(pid: u32) -> bool {
    tasks(pid).into_iter().any(|tid| task_lives(pid, tid))
}

/// Whether a thread has seccomp filters, or may not call anything at all.
pub fn is_confined(pid: u32, tid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/task/{tid}/status")).unwrap_or_default();
    status.lines().find_map(|line| line.strip_prefix("Seccomp:")).is_some_and(|mode| mode.trim() != "0")
}

/// Threads of a process, the oldest first; none when it is gone.
pub fn tasks(pid: u32) -> Vec<u32> {
    let entries = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten();
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}

/// All processes (not threads) now, ascending.
pub fn list() -> io::Result<Vec<u32>> {
    let mut pids: Vec<u32> =
        fs::read_dir("/proc")?.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect();
    pids.sort_unstable();
    Ok(pids)
}

/// Command line with its arguments parted by blanks, or the name in brackets when it has none.
pub fn command_line(pid: u32) -> String {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes).trim_end_matches('\0').replace('\0', " ");
    if text.is_empty() { status(pid).map(|s| format!("[{}]", s.name)).unwrap_or_default() } else { text }
}

#[cfg(test)]
mod tests {
    use super::{has_memory, living_task, parse_start_ticks, parse_status, task_lives};

    #[test]
    fn status_fields() {
        let text = b"Name:\tmy prog\nUmask:\t0022\nState:\tT (stopped)\nTgid:\t4312\nNgid:\t0\nPid:\t4312\nPPid:\t1\n\
TracerPid:\t7\nUid:\t1000\t1001\t1000\t1000\nGid:\t5\t6\t5\t5\nCapEff:\t0000000000080000\nNStgid:\t4312\t5\nVmRSS:\t    2048 kB\n";
        let status = parse_status(text).expect("complete status");
        assert_eq!((status.name.as_str(), status.state, status.tgid, status.ppid), ("my prog", 'T', 4312, 1));
        assert_eq!((status.gid, status.capabilities), (6, 1 << 19));
        assert_eq!((status.uid, status.tracer_pid, status.rss_bytes), (1001, 7, 2 << 20));
        assert_eq!(status.ns_tgids, [4312, 5]);
    }

    #[test]
    fn status_of_nothing() {
        assert_eq!(parse_status(b""), None);
        assert_eq!(parse_status(b"Tgid:\tx\n"), None);
    }

    #[test]
    fn start_time_survives_a_hostile_name() {
        let stat =
            b"12 (a) R 1 (b) S 1 12 12 0 -1 4194304 100 0 0 0 1 2 3 4 20 0 1 0 987654 1000 200 18446744073709551615\n";
        assert_eq!(parse_start_ticks(stat), Some(987_654));
        assert_eq!(parse_start_ticks(b"12 (a"), None);
        assert_eq!(parse_start_ticks(b""), None);
    }

    #[test]
    fn a_living_process_answers_by_its_own_id() {
        let own = std::process::id();
        assert!(task_lives(own, own) && !task_lives(own, 0));
        assert_eq!(living_task(own), own);
        assert!(has_memory(own));
        assert_eq!(living_task(u32::MAX), u32::MAX);
        assert!(!has_memory(u32::MAX));
    }

    #[test]
    fn a_process_that_ended_has_no_memory() {
        let mut child = std::process::Command::new("true").spawn().expect("it starts");
        // It stays a zombie until it is waited for.
        while task_lives(child.id(), child.id()) {
            std::thread::yield_now();
        }
        assert!(!has_memory(child.id()));
        child.wait().expect("it ended");
    }
}
