//! What each thread, process, host or other label of a profile holds.
//!
//! ```text
//! thread: 8.5 MiB
//!      6.0  70.6% worker
//!      2.5  29.4% (none)
//! ```
//!
//! One paragraph for each label. Parts of which no origin is known are `(none)`, so that each paragraph sums up to what is
//! shown. A profile of one process that says which has that label for all of it.
#![forbid(unsafe_code)]

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::io::{self, Write};

use super::parts::Parts;
use super::pprof::thread_tags;
use super::select::{Options, Selection};
use super::text::{amount, percent, unit};
use crate::model::{Profile, ThreadUid, printable};

/// What stands for an unknown origin.
const NONE: &str = "(none)";

/// The label of processes.
pub const PROCESS: &str = "process";

/// What a profile's process is called: its pid, and its program where that is known.
pub fn process(profile: &Profile) -> Option<String> {
    let pid = profile.pid()?;
    let mut process = profile.program().map_or_else(
        || pid.to_string(),
        |program| format!("{pid} {}", program.file_name().unwrap_or(program.as_os_str()).to_string_lossy()),
    );
    printable(&mut process);
    Some(process)
}

/// Writes all labels, or the one that is named. False when the profile has none of them.
pub fn write(
    selection: &Selection<'_>,
    options: &Options,
    only: Option<&str>,
    mut out: impl Write,
) -> io::Result<bool> {
    let mut by_thread: HashMap<Option<ThreadUid>, f64> = HashMap::new();
    let parts = Parts::new(selection.profile());
    let walked = selection.walk::<Infallible>(options, |stack, _| {
        parts.of(selection, stack, |thread, numbers| {
            *by_thread.entry(thread).or_default() += numbers[options.value as usize];
        });
        Ok(())
    });
    let Ok(_) = walked;
    let total: f64 = by_thread.values().sum();
    // Label → text → number.
    let mut labels: BTreeMap<String, BTreeMap<String, f64>> = BTreeMap::new();
    for (uid, _) in selection.profile().threads() {
        let value = by_thread.get(&Some(uid)).copied().unwrap_or(0.0);
        for (key, text) in thread_tags(selection.profile(), uid) {
            *labels.entry(key).or_default().entry(text).or_default() += value;
        }
    }
    if !labels.contains_key(PROCESS)
        && let Some(process) = process(selection.profile())
    {
        labels.insert(PROCESS.to_owned(), BTreeMap::from([(process, total)]));
    }
    let mut is_first = true;
    for (key, texts) in labels.into_iter().filter(|(key, _)| only.is_none_or(|only| only == key)) {
        if !std::mem::take(&mut is_first) {
            writeln!(out)?;
        }
        let known: f64 = texts.values().sum();
        let mut rows: Vec<(String, f64)> = texts.into_iter().filter(|(_, value)| *value != 0.0).collect();
        if (total - known).abs() >= 0.5 {
            rows.push((NONE.to_owned(), total - known));
        }
        rows.sort_by(|a, b| b.1.abs().total_cmp(&a.1.abs()).then_with(|| a.0.cmp(&b.0)));
        writeln!(out, "{key}: {} {}", amount(total, options), unit(options))?;
        for (text, value) in rows.iter().take(options.limit.unwrap_or(usize::MAX)) {
            writeln!(out, "{:>8} {:>6} {text}", amount(*value, options), percent(*value, total))?;
        }
    }
    Ok(!is_first)
}
