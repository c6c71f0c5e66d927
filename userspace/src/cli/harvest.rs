//! What `system` collects: one heap file per process, `merged.heap` with them all, the table at the end.
//!
//! Processes without a sample get a place in the table's last line, not a file each.
#![forbid(unsafe_code)]

use std::cell::LazyCell;
use std::collections::HashMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Result;
use jeprobe_abi::drops::Reason;

use super::deliver::add_names_of_now;
use super::outcome::Outcome;
use super::probes;
use super::term::Term;
use crate::error::Error;
use crate::image::Cache;
use crate::model::{Profile, is_lost};
use crate::proc::exe;
use crate::symbolize::Sources;
use crate::units::{SampleInterval, counted};
use crate::{outfile, output};

/// Bytes of the table's unit.
const MIB: f64 = 1024.0 * 1024.0;

/// For processes that ended before they could be asked.
const UNKNOWN: &str = "unknown";

/// One line of the table at the end. Bytes are estimates.
#[derive(Debug)]
struct Row {
    pid: u32,
    name: String,
    inuse_bytes: f64,
    /// `None` where only live samples are counted: by tables without `prof_accum`.
    alloc_bytes: Option<f64>,
    samples: u64,
    lost: u64,
    state: &'static str,
    notes: Vec<String>,
}

/// Processes whose notes are printed; all are in their files.
const NOTED: usize = 5;

/// What was collected of processes so far.
pub struct Harvest {
    dir: PathBuf,
    rows: Vec<Row>,
    idle: u64,
    merged: Option<Profile>,
    /// Images seen of a pid, for file names.
    images: HashMap<u32, u32>,
    failed: u64,
    /// Of names: one for all processes.
    cache: LazyCell<Option<Arc<Cache>>>,
}

impl Harvest {
    pub fn new(dir: &Path) -> Harvest {
        Harvest {
            dir: dir.to_owned(),
            rows: Vec::new(),
            idle: 0,
            merged: None,
            images: HashMap::new(),
            failed: 0,
            cache: LazyCell::new(Cache::of_user),
        }
    }

    pub fn merged_path(&self) -> PathBuf {
        self.dir.join("merged.heap")
    }

    /// Writes the file of one image and remembers its line.
    pub fn add(&mut self, name: &str, pid: u32, profile: Option<Profile>, state: &'static str, term: &mut Term) {
        let Some(mut profile) = profile.filter(|profile| profile.stack_count() > 0) else {
            self.idle += 1;
            return;
        };
        let sources =
            Sources { root: Some(exe::root_of(pid)), cache: self.cache.as_ref().cloned(), ..Sources::default() };
        let _has_names = add_names_of_now(&mut profile, pid, &sources);
        let name = if name.is_empty() { UNKNOWN } else { name };
        let sum = profile.sum();
        self.rows.push(Row {
            pid,
            name: name.to_owned(),
            inuse_bytes: sum.current.est.bytes,
            alloc_bytes: profile.has_cumulative().then_some(sum.cumulative.est.bytes),
            samples: sum.cumulative.raw.objects.max(sum.current.raw.objects),
            lost: profile.losses().filter(|&(reason, _)| is_lost(reason)).map(|(_, count)| count).sum(),
            state,
            notes: profile.notes().to_vec(),
        });
        let image = self.images.entry(pid).or_default();
        *image += 1;
        let name = file_name(name, pid, *image);
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
    pub fn finish(mut self, losses: &[u64], term: &mut Term) -> Result<Outcome> {
        let mut merged = match self.merged.take() {
            Some(merged) => merged,
            None if self.idle == 0 => return Err(Error::NobodyHasIt.into()),
            None => {
                let of = counted(self.idle, "process", "processes");
                term.say(format_args!("no sample was taken in {of} with the allocator"));
                Profile::new(SampleInterval(1 << 19))
            }
        };
        probes::add_losses(&mut merged, losses);
        let path = self.merged_path();
        let written = outfile::write(&path, |out| output::heap_v2::write(&merged, out));
        self.rows.sort_by(|a, b| b.inuse_bytes.total_cmp(&a.inuse_bytes));
        let lost: Vec<(Reason, u64)> = merged.losses().collect();
        let table = |out: &mut dyn Write| self.print(&lost, out);
        term.result(table)?;
        self.tell_notes(term);
        written?;
        term.say(format_args!(
            "profiles written to {}, all of them together to {}",
            self.dir.display(),
            path.display()
        ));
        let lossy = lost.iter().any(|&(reason, _)| is_lost(reason));
        Ok(if lossy || self.failed > 0 { Outcome::Partial } else { Outcome::Complete })
    }

    /// What is to be known about the largest.
    fn tell_notes(&self, term: &mut Term) {
        let noted: Vec<&Row> = self.rows.iter().filter(|row| !row.notes.is_empty()).collect();
        for row in noted.iter().take(NOTED) {
            for note in &row.notes {
                term.warn(format_args!("process {} ({}): {note}", row.pid, row.name));
            }
        }
        if noted.len() > NOTED {
            let more = counted((noted.len() - NOTED) as u64, "more process has", "more processes have");
            term.say(format_args!("{more} such remarks in their files"));
        }
    }

    fn print(&self, lost: &[(Reason, u64)], out: &mut dyn Write) -> io::Result<()> {
        writeln!(
            out,
            "{:>8} {:<16} {:>12} {:>12} {:>9} {:>7}  state",
            "pid", "command", "inuse MiB", "alloc MiB", "samples", "lost"
        )?;
        for row in &self.rows {
            writeln!(
                out,
                "{:>8} {:<16} {:>12.1} {:>12} {:>9} {:>7}  {}",
                row.pid,
                row.name,
                row.inuse_bytes / MIB,
                row.alloc_bytes.map_or_else(|| "-".to_owned(), |bytes| format!("{:.1}", bytes / MIB)),
                row.samples,
                row.lost,
                row.state
            )?;
        }
        if self.rows.iter().any(|row| row.alloc_bytes.is_some()) {
            writeln!(out, "alloc: live when the attach began, and allocated since")?;
        }
        if self.rows.iter().any(|row| row.alloc_bytes.is_none()) {
            writeln!(out, "-: not counted without probes, unless the process runs with prof_accum:true")?;
        }
        if self.idle > 0 {
            writeln!(out, "and {} without a sample", counted(self.idle, "process", "processes"))?;
        }
        for (reason, count) in lost {
            let what = if is_lost(*reason) { "lost: " } else { "" };
            writeln!(out, "{what}{count} {} ({}); {}", reason.name(), reason.meaning(), reason.remedy())?;
        }
        Ok(())
    }
}

/// `redis-server.4312.heap`; later images of one pid are numbered.
fn file_name(name: &str, pid: u32, image: u32) -> String {
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
