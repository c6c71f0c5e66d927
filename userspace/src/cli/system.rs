//! `jeprobe system`: every process of the host that has the allocator, those that start later included.
//!
//! One attachment per file serves all processes that map it. Each process gets a heap file as it ends, or at the end;
//! `merged.heap` holds them all. Processes without a sample get a line in the table's last row, not a file each.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::fs;
use std::io::{self, Write};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Result;
use jeprobe_abi::drops::Reason;

use super::args::SystemArgs;
use super::outcome::Outcome;
use super::probes;
use super::term::Term;
use crate::error::Error;
use crate::member::Member;
use crate::model::Profile;
use crate::probe::privilege;
use crate::session::Session;
use crate::wait::{Signals, ready};
use crate::{outfile, output};

const PUMP_EVERY: Duration = Duration::from_millis(100);
/// Shortest time between two looks at all processes; longer when a look is slow.
const SCAN_EVERY: Duration = Duration::from_secs(1);
const SCAN_SHARE: u32 = 20;

/// For processes that ended before they could be asked.
const UNKNOWN: &str = "unknown";

/// One line of the table at the end. Bytes are estimates.
#[derive(Debug)]
struct Row {
    pid: u32,
    name: String,
    inuse_bytes: f64,
    alloc_bytes: f64,
    samples: u64,
    lost: u64,
    state: &'static str,
}

/// What was collected of processes so far.
struct Harvest {
    dir: PathBuf,
    rows: Vec<Row>,
    idle: u64,
    merged: Option<Profile>,
    /// Images seen of a pid, for file names.
    images: HashMap<u32, u32>,
    failed: u64,
}

pub fn run(args: &SystemArgs, term: &mut Term) -> Result<Outcome> {
    let missing = privilege::check();
    if let Some(first) = missing.first() {
        let reasons = missing.iter().map(ToString::to_string).collect();
        return Err(Error::NoEbpf { reasons, hint: first.hint.clone() }.into());
    }
    fs::create_dir_all(&args.out_dir).map_err(|source| Error::WriteFile { path: args.out_dir.clone(), source })?;
    let mut harvest = Harvest::new(&args.out_dir);
    outfile::check(&harvest.merged_path())?;
    let signals = Signals::block(&[libc::SIGINT, libc::SIGTERM, libc::SIGHUP])
        .map_err(|source| Error::System { what: "receive signals", source })?;
    let mut session = Session::host(probes::options(args.stacks))?;
    for line in session.attachment().describe() {
        term.say(line);
    }
    for line in session.attachment().warnings() {
        term.warn(line);
    }
    term.say(format_args!("{} processes have the allocator; new ones are followed", session.members().count()));
    if args.duration.is_none() {
        term.say("end with Ctrl-C");
    }
    watch(&mut session, &signals, args.duration, &mut harvest, term)?;
    probes::tell(&session.stop(), term);
    harvest.closed(&mut session, term);
    for member in session.members() {
        let profile = session.profile(member.pid);
        harvest.add(member, profile, "running", term);
    }
    harvest.finish(&session.losses(), term)
}

fn watch(
    session: &mut Session,
    signals: &Signals,
    duration: Option<Duration>,
    harvest: &mut Harvest,
    term: &mut Term,
) -> Result<()> {
    let deadline = duration.map(|duration| Instant::now() + duration);
    let mut next_scan = Instant::now() + SCAN_EVERY;
    loop {
        let now = Instant::now();
        if deadline.is_some_and(|deadline| now >= deadline) {
            return Ok(());
        }
        if now >= next_scan {
            session.sweep();
            session.rescan();
            next_scan = Instant::now() + SCAN_EVERY.max(now.elapsed() * SCAN_SHARE);
        }
        let tick = deadline.map_or(PUMP_EVERY, |deadline| PUMP_EVERY.min(deadline.saturating_duration_since(now)));
        let woken = ready(&[signals.as_fd(), session.as_fd()], Some(tick))
            .map_err(|source| Error::System { what: "wait for events", source })?;
        probes::tell(&session.pump(), term);
        harvest.closed(session, term);
        if woken[0] && signals.take().is_some() {
            term.say("ended early");
            return Ok(());
        }
    }
}

impl Harvest {
    fn new(dir: &Path) -> Harvest {
        Harvest { dir: dir.to_owned(), rows: Vec::new(), idle: 0, merged: None, images: HashMap::new(), failed: 0 }
    }

    fn merged_path(&self) -> PathBuf {
        self.dir.join("merged.heap")
    }

    /// Takes the images that are gone.
    fn closed(&mut self, session: &mut Session, term: &mut Term) {
        for closed in session.take_closed() {
            let profile = closed.image.is_some().then(|| closed.profile());
            let state = if closed.by_exec { "replaced by exec" } else { "ended" };
            self.add(&closed.member, profile, state, term);
        }
    }

    /// Writes the file of one image and remembers its line.
    fn add(&mut self, member: &Member, profile: Option<Profile>, state: &'static str, term: &mut Term) {
        let Some(mut profile) = profile.filter(|profile| profile.stack_count() > 0) else {
            self.idle += 1;
            return;
        };
        probes::describe(&mut profile, member);
        let sum = profile.sum();
        self.rows.push(Row {
            pid: member.pid,
            name: if member.name.is_empty() { UNKNOWN.to_owned() } else { member.name.clone() },
            inuse_bytes: sum.current.est.bytes,
            alloc_bytes: sum.cumulative.est.bytes,
            samples: sum.cumulative.raw.objects.max(sum.current.raw.objects),
            lost: profile.losses().filter(|&(reason, _)| is_lost(reason)).map(|(_, count)| count).sum(),
            state,
        });
        let image = self.images.entry(member.pid).or_default();
        *image += 1;
        let name = file_name(&member.name, member.pid, *image);
        let path = self.dir.join(name);
        if let Err(error) = outfile::write(&path, |out| output::heap_v2::write(&profile, out)) {
            self.failed += 1;
            let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}")).unwrap_or_default();
            term.warn(format_args!("{error}{cause}"));
        }
        match &mut self.merged {
            Some(merged) => merged.merge(&profile),
            None => self.merged = Some(profile),
        }
    }

    /// The merged file and the table.
    fn finish(mut self, losses: &[u64], term: &mut Term) -> Result<Outcome> {
        let Some(mut merged) = self.merged.take() else {
            return Err(Error::NoSamples { processes: self.idle }.into());
        };
        probes::add_losses(&mut merged, losses);
        let path = self.merged_path();
        outfile::write(&path, |out| output::heap_v2::write(&merged, out))?;
        self.rows.sort_by(|a, b| b.inuse_bytes.total_cmp(&a.inuse_bytes));
        let lost: Vec<(Reason, u64)> = merged.losses().collect();
        let table = |out: &mut dyn Write| self.print(&lost, out);
        term.result(table)?;
        term.say(format_args!(
            "profiles written to {}, all of them together to {}",
            self.dir.display(),
            path.display()
        ));
        let lossy = lost.iter().any(|&(reason, _)| is_lost(reason));
        Ok(if lossy || self.failed > 0 { Outcome::Partial } else { Outcome::Complete })
    }

    fn print(&self, lost: &[(Reason, u64)], out: &mut dyn Write) -> io::Result<()> {
        writeln!(
            out,
            "{:>8} {:<16} {:>12} {:>12} {:>9} {:>7}  state",
            "pid", "command", "inuse MB", "alloc MB", "samples", "lost"
        )?;
        for row in &self.rows {
            writeln!(
                out,
                "{:>8} {:<16} {:>12.1} {:>12.1} {:>9} {:>7}  {}",
                row.pid,
                row.name,
                row.inuse_bytes / 1e6,
                row.alloc_bytes / 1e6,
                row.samples,
                row.lost,
                row.state
            )?;
        }
        writeln!(out, "alloc: since the attach began; inuse: also what was sampled before it")?;
        if self.idle > 0 {
            writeln!(out, "and {} processes without a sample", self.idle)?;
        }
        for (reason, count) in lost {
            writeln!(out, "lost: {count} {} ({}); {}", reason.name(), reason.meaning(), reason.remedy())?;
        }
        Ok(())
    }
}

/// True for losses that make the numbers wrong, as opposed to stacks shorter or frees older than one would like.
fn is_lost(reason: Reason) -> bool {
    !matches!(reason, Reason::UnknownFree | Reason::TruncatedStack | Reason::NoStack)
}

/// `redis-server.4312.heap`; later images of one pid are numbered.
fn file_name(name: &str, pid: u32, image: u32) -> String {
    let name = if name.is_empty() { UNKNOWN } else { name };
    let name: String = name.chars().map(|c| if c == '/' || c.is_control() { '_' } else { c }).collect();
    match image {
        1 => format!("{name}.{pid}.heap"),
        _ => format!("{name}.{pid}.image{image}.heap"),
    }
}

#[cfg(test)]
mod tests {
    use super::file_name;

    #[test]
    fn names_are_one_path_component() {
        assert_eq!(file_name("redis-server", 7, 1), "redis-server.7.heap");
        assert_eq!(file_name("kworker/0:1\n", 7, 2), "kworker_0:1_.7.image2.heap");
    }
}
