//! The sampler from its front door, with a pretended allocator: sites of known bytes, a dump, and readers of that dump.
//! One process-wide table, so everything is one test.

use std::collections::HashMap;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use jeprobe_abi::drops::Reason;
use jeprobe_abi::unbias::{self, Written};
use jeprobe_alloc::conf::Options;
use jeprobe_alloc::prof::{self, Caller, DumpError, Live, Object, ThreadProf, pieces};

const LG: u32 = 12;

/// Counts bytes as the allocator does, and asks the sampler at its points.
struct Pretend {
    thread: ThreadProf,
    allocated: u64,
    next: u64,
    addr: usize,
    /// Records of the samples by address.
    lives: HashMap<usize, Live>,
}

impl Pretend {
    fn new() -> Pretend {
        let thread = ThreadProf::NEW;
        let next = prof::thread_init(&thread);
        Pretend { thread, allocated: 0, next, addr: 0x1000_0000, lives: HashMap::new() }
    }

    #[inline(never)]
    fn malloc(&mut self, size: usize) -> usize {
        self.addr += size.next_multiple_of(16);
        self.allocated += size as u64;
        if self.allocated >= self.next {
            let live = pieces::live(self.addr).expect("memory");
            let outcome = prof::sample(
                &self.thread,
                Some(Object { live, requested: size - 1, usable: size }),
                size,
                self.allocated,
                0,
                1,
                Caller::UNKNOWN,
            );
            self.next = self.allocated + outcome.distance;
            if outcome.marked {
                self.lives.insert(self.addr, live);
            } else {
                pieces::recycle(live);
            }
        }
        self.addr
    }

    fn free(&mut self, addr: usize, size: usize) {
        if let Some(live) = self.lives.remove(&addr) {
            assert!(prof::free(&self.thread, live, size));
            assert!(!prof::free(&self.thread, live, size));
            pieces::recycle(live);
        }
    }
}

macro_rules! site {
    ($name:ident) => {
        #[unsafe(no_mangle)]
        #[inline(never)]
        extern "C" fn $name(from: &mut Pretend, size: usize, count: usize) -> usize {
            let first = from.malloc(size);
            for _ in 1..count {
                std::hint::black_box(from.malloc(size));
            }
            std::hint::black_box(first)
        }
    };
}

site!(site_small);
site!(site_page);
site!(site_large);

const SITES: [(&str, usize, usize); 3] =
    [("site_small", 48, 400_000), ("site_page", 4096, 3000), ("site_large", 1 << 20, 40)];

/// Deviation of an estimated sum over `count` objects of `size` bytes.
fn sigma(size: usize, count: usize) -> f64 {
    let p = unbias::probability(size as u64, 1 << LG);
    (count as f64 * (size as f64).powi(2) * (1.0 - p) / p).sqrt()
}

/// Estimated bytes of each function as the perl reader prints them.
fn by_jeprof(file: &Path) -> Option<HashMap<String, f64>> {
    let program = std::env::current_exe().expect("own path");
    let output =
        Command::new("/usr/bin/jeprof").args(["--text", "--cum", "--show_bytes"]).arg(program).arg(file).output();
    let Ok(output) = output else {
        println!("skipped: the perl reader (no /usr/bin/jeprof)");
        return None;
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let row = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        Some(((*fields.get(5)?).to_string(), fields.get(3)?.parse().ok()?))
    };
    Some(text.lines().filter_map(row).collect())
}

/// Estimated bytes of the file's total line.
fn total(text: &str) -> f64 {
    let line = text.lines().nth(1).and_then(|line| line.strip_prefix("  t*: ")).expect("totals");
    let (objects, rest) = line.split_once(": ").expect("objects");
    let bytes = rest.split(' ').next().expect("bytes");
    let written = Written { objects: objects.parse().expect("number"), bytes: bytes.parse().expect("number") };
    unbias::estimate(written, 1 << LG).1
}

fn c_path(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).expect("path")
}

fn dump(dir: &Path, name: &str) -> (PathBuf, String) {
    let path = dir.join(name);
    prof::dump(Some(&c_path(&path))).expect("dump");
    let text = std::fs::read_to_string(&path).expect("readable");
    assert!(text.ends_with("\n# end\n"), "{text}");
    (path, text)
}

#[test]
fn known_bytes_come_out_of_the_file_and_failures_say_why() {
    let dir = std::env::temp_dir().join(format!("jeprobe-sampler-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("directory");
    let mut options = Options::new();
    options.prof = true;
    options.lg_prof_sample = LG;
    options.prof_accum = true;
    prof::boot(Box::leak(Box::new(options)));

    let mut from = Pretend::new();
    prof::set_thread_name(&from.thread, c"worker one").expect("name");
    assert_eq!(prof::thread_name(&from.thread), c"worker one");
    let sites: [extern "C" fn(&mut Pretend, usize, usize) -> usize; 3] = [site_small, site_page, site_large];
    let mut firsts = Vec::new();
    for (site, (_, size, count)) in sites.iter().zip(SITES) {
        firsts.push(site(&mut from, size, count));
    }

    let (file, text) = dump(&dir, "all.heap");
    assert!(text.starts_with(&format!("heap_v2/{}\n  t*: ", 1 << LG)), "{text}");
    assert!(text.contains(" worker one\n") && text.contains("\nMAPPED_LIBRARIES:\n"), "{text}");
    let truth: f64 = SITES.iter().map(|(_, size, count)| (size * count) as f64).sum();
    let deviation = SITES.iter().map(|(_, size, count)| sigma(*size, *count).powi(2)).sum::<f64>().sqrt();
    // Beyond three deviations in one of a few hundred runs; four keeps a suite of many runs quiet.
    assert!((total(&text) - truth).abs() < 4.0 * deviation + truth * 1e-4, "{} {truth} {deviation}", total(&text));
    if let Some(bytes) = by_jeprof(&file) {
        for (name, size, count) in SITES {
            let truth = (size * count) as f64;
            let got = bytes.get(name).copied().unwrap_or_else(|| panic!("{name} not in {bytes:?}"));
            // One stack of one size: half a byte and half an object are lost to rounding.
            let tolerance = 4.0 * sigma(size, count) + truth * 2e-3;
            assert!((got - truth).abs() < tolerance, "{name}: {got} against {truth} +- {tolerance}");
        }
        // Only the calls of this test lead to the sites.
        let all: f64 = SITES.iter().map(|(name, ..)| bytes[*name]).sum();
        assert!((all / total(&text) - 1.0).abs() < 0.01);
    }

    // Frees take away what was recorded, whether a block was sampled or not.
    for (first, (_, size, count)) in firsts.iter().zip(SITES) {
        for i in 0..count {
            from.free(first + i * size.next_multiple_of(16), size);
        }
    }
    let (_, text) = dump(&dir, "none.heap");
    let (current, cumulative) = text.lines().nth(1).and_then(|l| l.split_once(" [")).expect("totals");
    assert_eq!(current, "  t*: 0: 0");
    assert_ne!(cumulative, "0: 0]");
    prof::reset(Some(LG + 1));
    let (_, text) = dump(&dir, "reset.heap");
    assert!(text.starts_with(&format!("heap_v2/{}\n  t*: 0: 0 [0: 0]\n", 2 << LG)), "{text}");
    assert!(!text.contains("\n@ "));

    // Switched off, by thread and for all: sample points pass.
    assert!(prof::set_thread_active(&from.thread, false));
    site_page(&mut from, 4096, 1000);
    assert!(!prof::set_thread_active(&from.thread, true));
    assert!(prof::set_active(false));
    site_page(&mut from, 4096, 1000);
    let (_, text) = dump(&dir, "off.heap");
    assert!(!text.contains("\n@ "));

    failures(&dir);
    rates();
    threads(&dir, &mut from);
    requests(&dir, &mut from);
    std::fs::remove_dir_all(&dir).expect("clean up");
}

fn errno(result: Result<(), DumpError>) -> Option<i32> {
    match result {
        Err(DumpError::Open(errno) | DumpError::Write(errno)) => Some(errno.0),
        _ => None,
    }
}

fn failures(dir: &Path) {
    // /dev/full takes the open and refuses the bytes.
    assert_eq!(errno(prof::dump(Some(c"/dev/full"))), Some(libc::ENOSPC));
    assert!(Path::new("/dev/full").exists());
    assert_eq!(errno(prof::dump(Some(&c_path(&dir.join("no/such.heap"))))), Some(libc::ENOENT));
    assert_eq!(errno(prof::dump(Some(&c_path(dir)))), Some(libc::EISDIR));
    prof::set_prefix(c"");
    assert_eq!(prof::dump(None), Err(DumpError::NoName));
    let prefix = c_path(&dir.join("own"));
    prof::set_prefix(&prefix);
    prof::dump(None).expect("dump by prefix");
    prof::dump(None).expect("dump by prefix");
    let pid = std::process::id();
    for name in [format!("own.{pid}.0.m0.heap"), format!("own.{pid}.1.m1.heap")] {
        assert!(dir.join(&name).exists(), "{name}");
    }
}

/// A change of the mean distance is seen without a sample point, once.
fn rates() {
    let thread = ThreadProf::NEW;
    assert_eq!(prof::redraw(&thread), None, "a thread that did not start");
    for (before, after) in [(36, LG), (LG, 36), (0, LG), (LG, 0)] {
        prof::reset(Some(before));
        prof::thread_init(&thread);
        assert_eq!(prof::redraw(&thread), None);
        prof::reset(Some(after));
        // Beyond 40 means once in 10^17 draws.
        assert!(prof::redraw(&thread).is_some_and(|distance| (1..=40 << after).contains(&distance)));
        assert_eq!(prof::redraw(&thread), None);
    }
    prof::reset(Some(LG + 1));
}

/// A slot that served a thread serves the next one, which samples under a number of its own.
fn threads(dir: &Path, from: &mut Pretend) {
    prof::reset(Some(0));
    prof::set_active(true);
    let ended = prof::jeprobe_root.drops_of(Reason::ThreadExiting);
    for name in [c"first", c"second"] {
        from.next = from.allocated + prof::thread_init(&from.thread);
        prof::set_thread_name(&from.thread, name).expect("name");
        site_page(from, 4096, 10);
        prof::thread_exit(&from.thread, 1, 1);
    }
    assert_eq!(prof::jeprobe_root.drops_of(Reason::ThreadExiting), ended);
    site_page(from, 4096, 10);
    assert_eq!(prof::jeprobe_root.drops_of(Reason::ThreadExiting), ended + 10);
    let (_, text) = dump(dir, "threads.heap");
    assert!(text.contains(": 10: 40960 [10: 40960] first\n"), "{text}");
    assert!(text.contains(": 10: 40960 [10: 40960] second\n"), "{text}");
    prof::thread_init(&from.thread);
    prof::set_active(false);
}

/// A dump request from outside is served at the next sample point, also when dormant.
fn requests(dir: &Path, from: &mut Pretend) {
    let root = &prof::jeprobe_root;
    root.ask_for_dump();
    site_page(from, 4096, 1000);
    let name = format!("own.{}.2.r0.heap", std::process::id());
    assert!(dir.join(&name).exists(), "{name}");
    prof::serve_requests();
    assert!(!dir.join(format!("own.{}.3.r1.heap", std::process::id())).exists());
    assert_eq!(root.drops_of(Reason::Reentrant), 0);
}
