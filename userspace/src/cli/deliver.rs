//! The end of every collecting command: the heap file, the flame graph, the report.
//!
//! | what | where |
//! |---|---|
//! | heap profile | `-o FILE`, else `jeprobe.PID.heap`; `-` is stdout |
//! | flame graph | `--flamegraph FILE` |
//! | report | stdout; stderr when stdout carries the profile or belongs to a child |
//!
//! The heap file comes first: whatever fails after it, the data is safe and the message says where. When it is the heap
//! file that fails, the report is still printed before the command fails.
#![forbid(unsafe_code)]

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::args::OutputArgs;
use super::flamegraph;
use super::load::servers;
use super::outcome::Outcome;
use super::report;
use super::results::{heap_name, is_same, write_file};
use super::term::Term;
use crate::error::Error;
use crate::image::Cache;
use crate::model::{Profile, is_lost};
use crate::outfile;
use crate::output::{self, Options, Selection};
use crate::symbolize::{Sources, jit, passing};

/// Rows of the report printed after a collection; the file has them all.
const REPORT_ROWS: usize = 20;

/// Whose stdout it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stdout {
    Ours,
    /// `run`: what the child prints there must stay as without us.
    Childs,
}

/// A finished collection.
#[derive(Debug)]
pub struct Finished<'a> {
    pub profile: &'a Profile,
    /// The file as the process wrote it, when it did: passed on byte for byte, unless names of its own code are added.
    pub written: Option<&'a [u8]>,
    /// Prefix under which the process's files are found, `/proc/PID/root`, while it runs.
    pub root: Option<PathBuf>,
    pub stdout: Stdout,
}

/// The file that the profile goes to; `None` is stdout.
pub fn heap_path(output: &OutputArgs, pid: u32) -> Option<PathBuf> {
    match &output.output {
        Some(path) if path == Path::new("-") => None,
        Some(path) => Some(path.clone()),
        None => Some(PathBuf::from(format!("jeprobe.{pid}.heap"))),
    }
}

/// Fails before anything is changed when a result could not be written in the end.
pub fn check(output: &OutputArgs, pid: u32) -> Result<(), Error> {
    let heap = heap_path(output, pid);
    if let Some(heap) = &heap {
        heap_name(heap)?;
    }
    if let Some(picture) = &output.flamegraph {
        if picture == Path::new("-") {
            return Err(Error::FlameToStdout);
        }
        flamegraph::check_name(picture)?;
        if heap.as_ref().is_some_and(|heap| is_same(heap, picture)) {
            return Err(Error::Twice { path: picture.clone() });
        }
    }
    heap.iter().chain(&output.flamegraph).try_for_each(|path| outfile::check(path))
}

/// Writes and prints everything.
pub fn deliver(finished: &Finished<'_>, output: &OutputArgs, pid: u32, term: &mut Term) -> Result<Outcome> {
    let heap = heap_path(output, pid);
    let body = |names: Option<&Profile>, out: &mut dyn Write| match (names, finished.written) {
        (Some(named), _) => output::heap_v2::write(named, out),
        (None, Some(bytes)) => out.write_all(bytes),
        (None, None) => output::heap_v2::write(finished.profile, out),
    };
    // A profile that cannot be written is still shown: it may have taken hours. Once without names, which take time.
    let mut written = match &heap {
        Some(path) => write_file(path, None, |out| body(None, out)).map_err(anyhow::Error::from),
        None => Ok(()),
    };
    let (root, cache) = (finished.root.clone(), Cache::of_user());
    let sources = Sources { root, servers: servers(&[]), cache, ..Sources::default() };
    let mut named = finished.profile.clone();
    let named = add_names_of_now(&mut named, pid, &sources).then_some(&named);
    let profile = named.unwrap_or(finished.profile);
    if let Some(path) = heap.as_ref().filter(|_| named.is_some() && written.is_ok()) {
        written = write_file(path, None, |out| body(named, out)).map_err(anyhow::Error::from);
    }
    match &heap {
        Some(path) if written.is_ok() => term.say(format_args!("profile written to {}", path.display())),
        Some(_) => {}
        None => written = term.result(|out| body(named, out)),
    }
    if heap.is_none() || finished.stdout == Stdout::Childs {
        term.results_to_stderr();
    }
    let options = Options { limit: Some(REPORT_ROWS), ..Options::default() };
    let symbols = report::show(profile, &sources, &options, term)?;
    let mut failed = false;
    if let Some(path) = &output.flamegraph {
        let selection = Selection::new(profile, &symbols, options.value);
        let title = format!("pid {pid}");
        let is_empty = selection.total() <= 0.0;
        let format = flamegraph::check_name(path)?;
        // Of an empty profile a picture that says so, not one of another time under this name.
        let drawn = write_file(path, Some(format), |out| flamegraph::draw(&selection, &options, &title, format, out));
        match drawn {
            Ok(()) if is_empty => term.say(format_args!("empty flame graph written to {}", path.display())),
            Ok(()) => term.say(format_args!("flame graph written to {}", path.display())),
            // The heap file is there; what is missing can be drawn from it.
            Err(error) => {
                term.error(&error.into());
                failed = true;
            }
        }
    }
    written?;
    let lossy = profile.losses().any(|(reason, _)| is_lost(reason));
    Ok(if lossy || failed { Outcome::Partial } else { Outcome::Complete })
}

/// Puts into the profile the names that nobody finds out once the process has ended; true when there were some.
pub(super) fn add_names_of_now(profile: &mut Profile, pid: u32, sources: &Sources) -> bool {
    let has_jit = jit::add_names(profile, pid, sources.root.as_deref());
    passing::add_names(profile, sources) || has_jit
}
