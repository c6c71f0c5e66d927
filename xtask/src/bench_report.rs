//! Measures `jeprof` and `jeprobe report` against the perl jeprof on made-up profiles of real binaries.
//!
//! ```text
//! sites: random code addresses of an image ─► stacks: random walks of 8 to 24 sites ─► heap_v2 file
//! each round:  perl   jeprof, no cache   jeprof, cache filled   report, no cache   report, cache filled
//! ```
//!
//! The text of both `jeprof`s is compared in every run. Times are the wall clock's, files are in the page cache for all.
#![forbid(unsafe_code)]

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};
use clap::Args;
use object::read::elf::{FileHeader as _, ProgramHeader as _};
use object::{LittleEndian, elf};

use crate::build_alloc::target_dir;
use crate::cmd::{Cmd, find_program, root};
use crate::dist;

/// Where the image of a case begins in the address space of its profile.
const BASE: u64 = 0x7f3a_0000_0000;

/// What to measure.
#[derive(Args)]
pub(crate) struct BenchReport {
    /// Cases, separated by commas: driver, llvm, clang, chromium, million; also huge and mappings, which perl is not run on
    #[arg(long, value_delimiter = ',', default_value = "driver,llvm,clang,chromium,million")]
    cases: Vec<String>,
    /// Runs of each
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Runs of perl
    #[arg(long, default_value_t = 1)]
    original_rounds: usize,
    /// Seconds after which a run of perl is given up
    #[arg(long, default_value_t = 1800)]
    original_limit: u64,
    /// Another image instead of each case's own
    #[arg(long, value_name = "FILE")]
    image: Option<PathBuf>,
    /// Another number of stacks
    #[arg(long)]
    stacks: Option<usize>,
}

struct Case {
    name: &'static str,
    what: &'static str,
    image: fn() -> Option<PathBuf>,
    stacks: usize,
    sites: usize,
    /// Mapped files beside the image.
    mappings: usize,
    is_compared: bool,
}

const CASES: &[Case] = &[
    Case {
        name: "driver",
        what: "100 stacks in rustc's driver library",
        image: driver,
        stacks: 100,
        sites: 2_000,
        mappings: 0,
        is_compared: true,
    },
    Case {
        name: "llvm",
        what: "100 stacks in LLVM's library",
        image: llvm,
        stacks: 100,
        sites: 2_000,
        mappings: 0,
        is_compared: true,
    },
    Case {
        name: "clang",
        what: "100 stacks in clang's library",
        image: clang,
        stacks: 100,
        sites: 2_000,
        mappings: 0,
        is_compared: true,
    },
    Case {
        name: "chromium",
        what: "100 stacks in chromium",
        image: chromium,
        stacks: 100,
        sites: 2_000,
        mappings: 0,
        is_compared: true,
    },
    Case {
        name: "million",
        what: "1,000,000 stacks in LLVM's library",
        image: llvm,
        stacks: 1_000_000,
        sites: 20_000,
        mappings: 0,
        is_compared: true,
    },
    Case {
        name: "huge",
        what: "10,000,000 stacks in LLVM's library",
        image: llvm,
        stacks: 10_000_000,
        sites: 20_000,
        mappings: 0,
        is_compared: false,
    },
    Case {
        name: "mappings",
        what: "100,000 mappings",
        image: llvm,
        stacks: 1_000,
        sites: 2_000,
        mappings: 100_000,
        is_compared: false,
    },
];

fn driver() -> Option<PathBuf> {
    let sysroot = Cmd::new("rustc").args(["--print", "sysroot"]).output().ok()?;
    largest(&Path::new(sysroot.trim()).join("lib"), "librustc_driver-")
}

fn llvm() -> Option<PathBuf> {
    largest(Path::new("/usr/lib/x86_64-linux-gnu"), "libLLVM")
}

fn clang() -> Option<PathBuf> {
    largest(Path::new("/usr/lib/x86_64-linux-gnu"), "libclang-cpp")
}

fn chromium() -> Option<PathBuf> {
    Some(PathBuf::from("/usr/lib/chromium/chromium")).filter(|path| path.is_file())
}

/// The largest file of a folder whose name begins so.
fn largest(folder: &Path, prefix: &str) -> Option<PathBuf> {
    let files =
        fs::read_dir(folder).ok()?.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix));
    let sized =
        files.filter_map(|entry| Some((entry.metadata().ok().filter(fs::Metadata::is_file)?.len(), entry.path())));
    sized.max().map(|(_, path)| path)
}

/// Who makes the report.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Peer {
    Original,
    Jeprof { cached: bool },
    Report { cached: bool },
}

const PEERS: [Peer; 5] = [
    Peer::Original,
    Peer::Jeprof { cached: false },
    Peer::Jeprof { cached: true },
    Peer::Report { cached: false },
    Peer::Report { cached: true },
];

impl Peer {
    fn name(self) -> &'static str {
        match self {
            Peer::Original => "perl jeprof",
            Peer::Jeprof { cached: false } => "jeprof",
            Peer::Jeprof { cached: true } => "jeprof, cache",
            Peer::Report { cached: false } => "jeprobe report",
            Peer::Report { cached: true } => "jeprobe report, cache",
        }
    }
}

/// One run: seconds, KiB resident at most.
#[derive(Clone, Copy)]
struct Cost {
    seconds: f64,
    peak: f64,
}

pub(crate) fn run(args: &BenchReport) -> Result<()> {
    let folder = target_dir().join("bench-report");
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let commands = dist::run()?;
    let measure = folder.join("measure");
    Cmd::new("cc").args(["-O2", "-o"]).arg(&measure).arg(root().join("tests/bench/measure.c")).run()?;
    let mut table = String::from("| profile | by | s | times faster | peak RSS, MiB |\n|---|---|---|---|---|\n");
    for name in &args.cases {
        let case = CASES.iter().find(|case| case.name == *name).with_context(|| format!("no case {name}"))?;
        let Some(image) = args.image.clone().or_else(case.image) else {
            eprintln!("skipped: {name}: its image is not installed");
            continue;
        };
        let stacks = args.stacks.unwrap_or(case.stacks);
        let profile = folder.join(format!("{name}.heap"));
        write_profile(&profile, &image, stacks, case)?;
        let bench = Bench {
            commands: &commands,
            folder: &folder,
            image: &image,
            profile: &profile,
            limit: args.original_limit,
        };
        bench.case(case, args, &mut table)?;
        fs::remove_file(&profile).with_context(|| format!("cannot remove {}", profile.display()))?;
    }
    print!("{table}");
    Ok(())
}

struct Bench<'a> {
    /// Folder of both commands.
    commands: &'a Path,
    folder: &'a Path,
    image: &'a Path,
    profile: &'a Path,
    /// s
    limit: u64,
}

impl Bench<'_> {
    fn case(&self, case: &Case, args: &BenchReport, table: &mut String) -> Result<()> {
        let cache = self.folder.join("cache");
        let _there_was_none = fs::remove_dir_all(&cache);
        let mut costs: [Vec<Cost>; PEERS.len()] = Default::default();
        for peer in [Peer::Jeprof { cached: true }, Peer::Report { cached: true }] {
            self.run(peer)?;
        }
        for round in 0..args.rounds.max(args.original_rounds) {
            for (peer, costs) in PEERS.into_iter().zip(&mut costs) {
                let rounds = if peer == Peer::Original { args.original_rounds } else { args.rounds };
                if round >= rounds || (peer == Peer::Original && !case.is_compared) {
                    continue;
                }
                let cost = self.run(peer)?;
                eprintln!("{} {}: {:.4} s, {:.1} MiB", case.name, peer.name(), cost.seconds, cost.peak / 1024.0);
                costs.push(cost);
            }
            self.compare(case.is_compared && args.original_rounds > 0)?;
        }
        let median = |costs: &[Cost], of: fn(&Cost) -> f64| {
            let mut sorted: Vec<f64> = costs.iter().map(of).collect();
            sorted.sort_by(f64::total_cmp);
            sorted.get(sorted.len() / 2).copied()
        };
        let original = median(&costs[0], |cost| cost.seconds);
        for (peer, costs) in PEERS.into_iter().zip(&costs) {
            let Some(seconds) = median(costs, |cost| cost.seconds) else { continue };
            let peak = median(costs, |cost| cost.peak).unwrap_or(f64::NAN) / 1024.0;
            let times = original
                .filter(|_| peer != Peer::Original)
                .map_or_else(String::new, |original| format!("{:.0}", original / seconds));
            let _infallible =
                writeln!(table, "| {} | {} | {seconds:.4} | {times} | {peak:.0} |", case.what, peer.name());
        }
        Ok(())
    }

    fn run(&self, peer: Peer) -> Result<Cost> {
        let cost = self.folder.join("cost");
        let mut command = Command::new(self.folder.join("measure"));
        command.arg(&cost);
        let program = if self.image.extension().is_none() { self.image } else { Path::new("/bin/true") };
        let ours = &self.commands;
        match peer {
            Peer::Original => {
                let jeprof =
                    find_program("jeprof").context("the perl jeprof is not installed; run `cargo xtask deps`")?;
                command.arg("timeout").arg(self.limit.to_string()).arg(jeprof).arg("--text").arg(program)
            }
            Peer::Jeprof { .. } => command.arg(ours.join("jeprof")).arg("--text").arg(program),
            Peer::Report { .. } => command.arg(ours.join("jeprobe")).arg("report"),
        };
        let cached = matches!(peer, Peer::Jeprof { cached: true } | Peer::Report { cached: true });
        command.env("JEPROBE_CACHE_DIR", if cached { self.folder.join("cache") } else { PathBuf::new() });
        let text = self.text(peer);
        let file = File::create(&text).with_context(|| format!("cannot create {}", text.display()))?;
        command.arg(self.profile).stdin(Stdio::null()).stdout(file).stderr(Stdio::piped());
        let output = command.output().context("cannot start measure")?;
        let line = fs::read_to_string(&cost).context("measure wrote no result")?;
        let numbers: Vec<f64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let [wall, _, _, peak, _, status] = numbers[..] else { bail!("measure wrote `{}`", line.trim()) };
        if status != 0.0 {
            bail!("{}: status {status}: {}", peer.name(), String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(Cost { seconds: wall / 1e9, peak })
    }

    fn text(&self, peer: Peer) -> PathBuf {
        self.folder.join(match peer {
            Peer::Original => "original.txt",
            Peer::Jeprof { cached: false } => "jeprof.txt",
            Peer::Jeprof { cached: true } => "jeprof-cached.txt",
            Peer::Report { cached: false } => "report.txt",
            Peer::Report { cached: true } => "report-cached.txt",
        })
    }

    /// Fails when texts differ that must not.
    fn compare(&self, with_original: bool) -> Result<()> {
        let read =
            |peer| fs::read(self.text(peer)).with_context(|| format!("cannot read the text of {}", Peer::name(peer)));
        let mut pairs = vec![(PEERS[1], PEERS[2]), (PEERS[3], PEERS[4])];
        if with_original {
            pairs.push((PEERS[0], PEERS[1]));
        }
        for (a, b) in pairs {
            if read(a)? != read(b)? {
                bail!("{} and {} differ", self.text(a).display(), self.text(b).display());
            }
        }
        Ok(())
    }
}

/// Numbers that are the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

fn write_profile(path: &Path, image: &Path, stacks: usize, case: &Case) -> Result<()> {
    let named = || path.display().to_string();
    let bytes = fs::read(image).with_context(|| format!("cannot read {}", image.display()))?;
    let header = elf::FileHeader64::<LittleEndian>::parse(bytes.as_slice())
        .with_context(|| format!("{} is no ELF file", image.display()))?;
    let endian = LittleEndian;
    let segments = header.program_headers(endian, bytes.as_slice()).context("no program headers")?;
    let loaded: Vec<_> = segments.iter().filter(|segment| segment.p_type(endian) == elf::PT_LOAD).collect();
    let is_code = |segment: &&&elf::ProgramHeader64<LittleEndian>| segment.p_flags(endian) & elf::PF_X != 0;
    let code: Vec<_> = loaded.iter().filter(is_code).collect();
    let code_bytes: u64 = code.iter().map(|segment| segment.p_filesz(endian)).sum();
    if code_bytes == 0 {
        bail!("{} has no code", image.display());
    }
    let mut random = Random(7);
    let mut site = || {
        let mut at = random.below(code_bytes);
        for segment in &code {
            if at < segment.p_filesz(endian) {
                return BASE + segment.p_vaddr(endian) + at;
            }
            at -= segment.p_filesz(endian);
        }
        BASE
    };
    let sites: Vec<u64> = (0..case.sites).map(|_| site()).collect();
    let mut out =
        BufWriter::with_capacity(1 << 20, File::create(path).with_context(|| format!("cannot create {}", named()))?);
    let mut write = || -> std::io::Result<()> {
        writeln!(out, "heap_v2/524288\n  t*: {stacks}: {} [0: 0]", stacks * 524_288)?;
        let (mut stack, mut line) = (Vec::new(), String::new());
        for _ in 0..stacks {
            stack.clear();
            let depth = 8 + random.below(17);
            let mut at = 0;
            for level in 1..=depth {
                stack.push(sites[at]);
                at = (at * 7 + (random.below(6) * level + 1) as usize) % sites.len();
            }
            let objects = 1 + random.below(3);
            let bytes = objects * [64, 256, 4096, 65_536, 524_288][random.below(5) as usize];
            line.clear();
            line.push('@');
            for address in stack.iter().rev() {
                let _infallible = write!(line, " {address:#x}");
            }
            writeln!(out, "{line}\n  t*: {objects}: {bytes} [0: 0]\n  t0: {objects}: {bytes} [0: 0]")?;
        }
        writeln!(out, "\nMAPPED_LIBRARIES:")?;
        for segment in &loaded {
            let start = (BASE + segment.p_vaddr(endian)) & !0xfff;
            let end = (BASE + segment.p_vaddr(endian) + segment.p_memsz(endian) + 0xfff) & !0xfff;
            let offset = segment.p_offset(endian) & !0xfff;
            let write = if segment.p_flags(endian) & elf::PF_W != 0 { 'w' } else { '-' };
            let execute = if segment.p_flags(endian) & elf::PF_X != 0 { 'x' } else { '-' };
            writeln!(out, "{start:x}-{end:x} r{write}{execute}p {offset:08x} 08:01 77 {}", image.display())?;
        }
        for number in 0..case.mappings as u64 {
            let start = 0x1000_0000_0000 + number * 0x2000;
            writeln!(out, "{start:x}-{:x} r-xp 00000000 08:01 {number} /nowhere/lib{number}.so", start + 0x1000)?;
        }
        out.flush()
    };
    write().with_context(|| format!("cannot write {}", named()))
}
