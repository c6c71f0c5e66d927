//! How much memory a command that reads profiles may take, and what it says when that is not enough.
//!
//! What such a command needs grows with its input, so it gets a limit: nine tenths of what the machine and the control group
//! have free, or what [`VARIABLE`] says, as the limit of writable memory (`RLIMIT_DATA`). The kernel then refuses memory
//! instead of having it taken from others, and [`Bounded`], the programs' allocator, ends the command with words and exit
//! code 1. Memory that is refused by any other limit (`ulimit -v`) ends it the same way.
//!
//! ```text
//! bound() ─► at most FREELY ─► a block of LARGE bytes, memory refused, settle() ─► what is free is looked up ─► the limit
//! ```
//!
//! Looking it up takes six files of the kernel, the twentieth part of a small run, and most runs never come there.
//! Allocates nothing once memory is refused for good.

use std::alloc::{GlobalAlloc, Layout, System};
use std::env;
use std::fmt::{self, Write as _};
use std::fs;
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use signal_hook::flag;

use crate::error::Error;
use crate::progress;

/// Names another limit: bytes, or with K, M, G or T; `unlimited` for none.
pub const VARIABLE: &str = "JEPROBE_MEMORY_LIMIT";

/// Writable memory that is taken without asking what is free: 128 MiB, of which the stacks of all threads are a tenth. More
/// would be felt by a machine that has little.
const FREELY: u64 = 128 << 20;
/// A block of 2 MiB: whoever needs one needs more, and tables of a run that comes near [`FREELY`] are larger.
const LARGE: usize = 2 << 20;

/// The name of the command.
static COMMAND: OnceLock<&str> = OnceLock::new();
/// The limit before this process set one.
static GIVEN: OnceLock<Rlimit> = OnceLock::new();
/// The limit, in bytes.
static LIMIT: OnceLock<u64> = OnceLock::new();

/// Whether there is a limit.
static STATE: AtomicU8 = AtomicU8::new(NONE);
/// There is none, or it is set.
const NONE: u8 = 0;
/// Up to [`FREELY`].
const FREE: u8 = 1;
/// One thread looks it up.
const ASKING: u8 = 2;

/// Has a file that would be too large for `ulimit -f` be an error of writing it, and not a signal that ends the process. Programs
/// that this one starts get the signal as ever.
pub fn survive_file_limit() {
    let _as_it_is = flag::register(libc::SIGXFSZ, Arc::new(AtomicBool::new(false)));
}

/// Limits what this process may take from here on. `command`: its name in words.
pub fn bound(command: &'static str) -> Result<(), Error> {
    let named = match env::var(VARIABLE) {
        Ok(text) if !text.is_empty() => Some(parse(&text).ok_or(Error::MemoryLimit { value: text })?),
        _ => None,
    };
    let _set_before = COMMAND.set(command);
    let given = GIVEN.get_or_init(|| getrlimit(Resource::Data));
    if let Some(bytes) = named {
        limit(given, bytes);
        return Ok(());
    }
    let most = FREELY.min(given.current.unwrap_or(u64::MAX));
    if setrlimit(Resource::Data, Rlimit { current: Some(most), maximum: given.maximum }).is_ok() {
        STATE.store(FREE, Ordering::Release);
    }
    Ok(())
}

/// Looks up what is free, unless that was done: for what starts programs, which get the limit of this process, or has threads by
/// the hundred.
pub fn settle() {
    while STATE.load(Ordering::Acquire) != NONE {
        look_up();
    }
}

/// Sets the limit.
fn limit(given: &Rlimit, wanted: u64) {
    let limit = wanted.min(given.current.unwrap_or(u64::MAX));
    let bytes = Some(limit).filter(|&limit| limit < u64::MAX);
    // Without a limit the command works all the same.
    let _not_limited = setrlimit(Resource::Data, Rlimit { current: bytes, maximum: given.maximum });
    let _set_before = LIMIT.set(limit);
}

/// Looks up what is free, and makes it the limit, once; whether there may be more memory than before.
#[cold]
fn look_up() -> bool {
    match STATE.compare_exchange(FREE, ASKING, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => {
            let Some(given) = GIVEN.get() else { return false };
            // Looking takes memory, too.
            let _as_it_is = setrlimit(Resource::Data, Rlimit { current: given.current, maximum: given.maximum });
            limit(given, free().map_or(u64::MAX, |bytes| bytes / 10 * 9));
            STATE.store(NONE, Ordering::Release);
            true
        }
        Err(ASKING) => {
            thread::sleep(Duration::from_millis(1));
            true
        }
        Err(_) => false,
    }
}

/// `512M` and the like; `u64::MAX` for none.
pub fn parse(text: &str) -> Option<u64> {
    if text == "unlimited" {
        return Some(u64::MAX);
    }
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_lowercase().trim_end_matches("ib") {
        "" | "b" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift).filter(|&bytes| bytes > 0)
}

/// Bytes that this process may take without taking them from others; `None` where the kernel does not say.
fn free() -> Option<u64> {
    let read = |path: &Path| fs::read_to_string(path).ok();
    let machine = read(Path::new("/proc/meminfo")).and_then(|text| available(&text));
    let groups = read(Path::new("/proc/self/cgroup")).unwrap_or_default();
    let group = groups.lines().filter_map(|line| {
        let (folder, limit, usage) = group_files(line)?;
        let number = |name: &str| read(&folder.join(name))?.trim().parse::<u64>().ok();
        let cached = read(&folder.join("memory.stat")).map_or(0, |text| cached(&text));
        Some(number(limit)?.saturating_sub(number(usage)?.saturating_sub(cached)))
    });
    machine.into_iter().chain(group).min()
}

/// `MemAvailable` of `/proc/meminfo`, in bytes.
fn available(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Bytes of files that a control group's usage counts and that the kernel gives up when memory is needed, by `memory.stat`.
fn cached(stat: &str) -> u64 {
    // The first version of control groups has the numbers of a group with those below it under names of their own.
    let prefix = if stat.contains("total_active_file ") { "total_" } else { "" };
    let bytes = |name: &str| {
        let of = |line: &str| line.strip_prefix(prefix)?.strip_prefix(name)?.strip_prefix(' ')?.parse::<u64>().ok();
        stat.lines().find_map(of).unwrap_or(0)
    };
    bytes("active_file").saturating_add(bytes("inactive_file"))
}

/// Folder of a control group that limits memory, by its line of `/proc/self/cgroup`, and the names of its limit and usage.
fn group_files(line: &str) -> Option<(std::path::PathBuf, &'static str, &'static str)> {
    let mut parts = line.splitn(3, ':');
    let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
    let (root, limit, usage) = if controllers.is_empty() {
        ("/sys/fs/cgroup", "memory.max", "memory.current")
    } else if controllers.split(',').any(|name| name == "memory") {
        ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes")
    } else {
        return None;
    };
    // In a container the path is that of the host, and its own group is the root.
    let own = Path::new(root).join(path.trim_start_matches('/'));
    Some((if own.join(limit).exists() { own } else { root.into() }, limit, usage))
}

/// The system's allocator; memory that is refused ends the process with words.
#[derive(Debug)]
pub struct Bounded;

// SAFETY: every call is passed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Bounded {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the conditions of this function, which are the same.
        granted(layout.size(), || unsafe { System.alloc(layout) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        granted(layout.size(), || unsafe { System.alloc_zeroed(layout) })
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as above.
        granted(size, || unsafe { System.realloc(block, layout, size) })
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(block, layout) }
    }
}

/// A block of `size` bytes from `take`. What is refused is asked for again once the limit is known.
#[inline]
fn granted(size: usize, take: impl Fn() -> *mut u8) -> *mut u8 {
    if size >= LARGE && STATE.load(Ordering::Relaxed) == FREE {
        look_up();
    }
    let block = take();
    if block.is_null() { take_again(size, take) } else { block }
}

#[cold]
fn take_again(size: usize, take: impl Fn() -> *mut u8) -> *mut u8 {
    // A second at most: the thread that looks up may be this one, in vain.
    for _ in 0..1000 {
        let is_last = !look_up();
        let block = take();
        if !block.is_null() {
            return block;
        }
        if is_last {
            break;
        }
    }
    refused(size)
}

/// Says that memory was refused, and ends the process.
#[cold]
fn refused(size: usize) -> ! {
    static SAYING: AtomicBool = AtomicBool::new(false);
    // One thread says it; a message that needs memory itself would come here again and end without.
    if SAYING.swap(true, Ordering::AcqRel) {
        thread::sleep(Duration::from_secs(1));
        exit();
    }
    let mut line = Line { bytes: [0; LINE_BYTES], length: 0 };
    let limit = LIMIT.get().copied().unwrap_or(u64::MAX);
    let command = COMMAND.get().copied().unwrap_or("jeprobe");
    progress::innermost(|work| {
        // Larger than any other, when it is not set.
        let space = getrlimit(Resource::As).current.unwrap_or(u64::MAX);
        let _cut = words(&mut line, command, work, size as u64, (limit, space));
    });
    let _nobody_listens = io::stderr().write_all(&line.bytes[..line.length]);
    exit();
}

fn exit() -> ! {
    // SAFETY: ends the process; nothing runs afterwards, so no state is left broken.
    unsafe { libc::_exit(1) }
}

/// `work`: when in it, and what it is. `limit` is ours, `space` that of all addresses, which the shell sets.
fn words(
    out: &mut Line,
    command: &str,
    work: Option<(&str, &str)>,
    size: u64,
    (limit, space): (u64, u64),
) -> fmt::Result {
    write!(out, "{command}: error: out of memory")?;
    if let Some((when, what)) = work {
        // On a terminal the work stands alone.
        let what = what.strip_prefix(command).and_then(|rest| rest.strip_prefix(": ")).unwrap_or(what);
        // Names of files are long at times; what follows must have room.
        let end = (0..=what.len().min(NAME_BYTES)).rev().find(|&at| what.is_char_boundary(at)).unwrap_or(0);
        write!(out, " {when} {}{}", &what[..end], if end < what.len() { "..." } else { "" })?;
    }
    let mib = |bytes: u64| bytes.div_ceil(1 << 20);
    write!(out, ": {} MiB more were refused", mib(size))?;
    if space < limit {
        return writeln!(
            out,
            "; the limit of addresses is {} MiB\nhint: raise it in the shell: ulimit -v unlimited; or take profiles with a larger \
             sampling interval (lg_prof_sample)",
            mib(space)
        );
    }
    if limit < u64::MAX {
        write!(out, "; the limit is {} MiB", mib(limit))?;
    }
    writeln!(
        out,
        "\nhint: memory grows with distinct stacks and addresses; take profiles with a larger sampling interval \
         (lg_prof_sample), or name another limit: {VARIABLE}=8G"
    )
}

const LINE_BYTES: usize = 1024;
const NAME_BYTES: usize = 400;

/// Text on the stack; what does not fit is cut.
struct Line {
    bytes: [u8; LINE_BYTES],
    length: usize,
}

impl fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = &mut self.bytes[self.length..];
        let count = text.len().min(room.len());
        room[..count].copy_from_slice(&text.as_bytes()[..count]);
        self.length += count;
        if count < text.len() { Err(fmt::Error) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::{LINE_BYTES, Line, available, cached, group_files, parse, words};

    #[test]
    fn sizes_have_units() {
        let cases = [
            ("1", Some(1)),
            ("64K", Some(64 << 10)),
            ("512M", Some(512 << 20)),
            ("8g", Some(8 << 30)),
            ("8GiB", Some(8 << 30)),
            ("2T", Some(2 << 40)),
            ("unlimited", Some(u64::MAX)),
            ("", None),
            ("0", None),
            ("-1", None),
            ("8 G", None),
            ("G", None),
            ("99999999T", None),
            ("1.5G", None),
        ];
        for (text, bytes) in cases {
            assert_eq!(parse(text), bytes, "{text}");
        }
    }

    #[test]
    fn what_is_free_is_what_the_kernel_says() {
        assert_eq!(available("MemTotal: 9 kB\nMemAvailable:   23078000 kB\n"), Some(23_078_000 << 10));
        assert_eq!(available("MemFree: 1 kB\n"), None);
        let second = "anon 7\nfile 9\ninactive_file 100\nactive_file 20\nworkingset_activate_file 3\n";
        assert_eq!(cached(second), 120);
        assert_eq!(cached(&format!("{second}total_inactive_file 1000\ntotal_active_file 200\n")), 1200);
        assert_eq!(cached("junk"), 0);
        let (folder, limit, _) = group_files("5:cpu,memory:/no/such/group").expect("a group");
        assert_eq!((folder.to_str(), limit), (Some("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"));
        assert_eq!(group_files("0::/").map(|(_, limit, _)| limit), Some("memory.max"));
        for line in ["4:cpu:/x", "junk", ""] {
            assert_eq!(group_files(line), None, "{line}");
        }
    }

    #[test]
    fn the_words_name_work_need_and_limit() {
        let said_of = |what: &str, limit| {
            let mut line = Line { bytes: [0; LINE_BYTES], length: 0 };
            words(&mut line, "jeprof", Some(("while", what)), 5 << 20, limit).expect("it fits");
            String::from_utf8(line.bytes[..line.length].to_vec()).expect("text")
        };
        let said = |what: &str, limit| said_of(what, (limit, u64::MAX));
        let text = said("jeprof: reading x.heap", 64 << 20);
        let first =
            "jeprof: error: out of memory while reading x.heap: 5 MiB more were refused; the limit is 64 MiB\nhint: ";
        assert!(text.starts_with(first) && text.ends_with("JEPROBE_MEMORY_LIMIT=8G\n"), "{text}");
        let text = said_of("reading x.heap", (64 << 20, 32 << 20));
        assert!(text.contains("the limit of addresses is 32 MiB\nhint: raise it in the shell: ulimit -v"), "{text}");
        let long = "é".repeat(900);
        let text = said(&long, u64::MAX);
        assert!(text.contains("é...: 5 MiB more were refused\nhint: ") && text.ends_with("8G\n"), "{text}");
    }
}
