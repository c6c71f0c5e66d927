//! What jeprobe adds to a heap file after the list of mappings.
//!
//! Lines that open with `# `, written by [`jeprobe_abi::heap_v2::Writer`]; the grammar is in `ebpf/common/README.md`. perl
//! jeprof and pprof take the text after `MAPPED_LIBRARIES:` for mappings and pass over every line that is none, which these
//! are. Lines of kinds that this version does not know are passed over as well: a newer writer may have more. A line of a known
//! kind that does not parse is counted and reported.
#![forbid(unsafe_code)]

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use jeprobe_abi::drops::Reason;

use crate::model::{Named, Profile, Thread, ThreadUid, build_id_of_text, jit_name};

/// Collects the lines of one file.
#[derive(Debug, Default)]
pub(super) struct Tail {
    /// Applied at the end: a mapping may follow the line that describes it.
    build_ids: Vec<(PathBuf, Vec<u8>)>,
    malformed: u64,
    is_open: bool,
    has_end: bool,
}

impl Tail {
    /// Takes the line if it is one of ours.
    pub(super) fn line(&mut self, line: &[u8], profile: &mut Profile) -> bool {
        let Some(text) = line.strip_prefix(b"# ") else { return line.starts_with(b"#") };
        let (key, value) = split(text, b' ');
        self.has_end = key == b"end";
        if self.entry(key, value, profile).is_none() {
            self.malformed += 1;
        }
        true
    }

    /// Applies what had to wait.
    pub(super) fn finish(self, profile: &mut Profile) {
        profile.mappings_mut().set_build_ids(self.build_ids.iter().map(|(path, id)| (path.as_path(), id.as_slice())));
        if self.is_open && !self.has_end {
            profile.add_note("the file was cut short: its last line is missing, and so may be stacks or build-ids");
        }
        if self.malformed > 0 {
            profile.add_note(format!("{} lines after the list of mappings were not understood", self.malformed));
        }
    }

    fn entry(&mut self, key: &[u8], value: &[u8], profile: &mut Profile) -> Option<()> {
        match key {
            b"jeprobe" => self.is_open = true,
            b"counter" => {
                let (name, count) = split(value, b' ');
                profile.add_counter(text(name)?, text(count)?.parse().ok()?);
            }
            b"process" => {
                let (pid, program) = split(value, b' ');
                let program =
                    Some(program).filter(|program| !program.is_empty()).map(|program| path(program).to_owned());
                profile.set_process(text(pid)?.parse().ok()?, program);
            }
            b"build-id" => {
                let (id, file) = split(value, b' ');
                self.build_ids.push((path(file).to_owned(), build_id_of_text(id)?));
            }
            b"allocator" => {
                let (start, end) = split(value, b'-');
                profile.add_allocator_text(hex(start)?..hex(end)?);
            }
            b"config" => {
                let (key, value) = split(value, b'=');
                profile.set_configuration(text(key)?, String::from_utf8_lossy(value));
            }
            b"loss" => {
                let (name, count) = split(value, b' ');
                let name = text(name)?;
                let reason = Reason::ALL.iter().find(|reason| reason.name() == name)?;
                profile.add_loss(*reason, text(count)?.parse().ok()?);
            }
            b"source" => {
                let (site, location) = split(value, b' ');
                let location = String::from_utf8_lossy(location);
                let (file, line) = location.rsplit_once(':')?;
                let file = if file == "??" { String::new() } else { file.to_owned() };
                profile.add_source(hex(site)?, file, line.parse().ok()?);
            }
            b"name" => {
                let (site, functions) = split(value, b' ');
                let functions = String::from_utf8_lossy(functions);
                let (short, rest) = functions.split_once('\t')?;
                let (full, place) = rest.split_once('\t')?;
                let (file, line) = place.rsplit_once(':')?;
                let (short, full, file) = (short.to_owned(), full.to_owned(), file.to_owned());
                profile.add_name(hex(site)?, Named { short, full, file, line: line.parse().ok()? });
            }
            b"jit" => {
                let (site, name) = split(value, b' ');
                profile.set_names(hex(site)?, vec![jit_name(&String::from_utf8_lossy(name))]);
            }
            b"label" => {
                let (uid, label) = split(value, b' ');
                let (key, label) = split(label, b'=');
                let uid = ThreadUid(text(uid)?.strip_prefix('t')?.parse().ok()?);
                let mut labels = profile.thread(uid).map_or_else(Vec::new, |thread| thread.labels.clone());
                labels.push((text(key)?.to_owned(), String::from_utf8_lossy(label).into_owned()));
                profile.add_thread(uid, Thread { labels, ..Thread::default() });
            }
            b"sampled" => profile.keep_basis(text(value)?)?,
            b"note" => profile.add_note(String::from_utf8_lossy(value)),
            _ => {}
        }
        Some(())
    }
}

/// The text before the first `mark` and the text after it; all and nothing without one.
fn split(text: &[u8], mark: u8) -> (&[u8], &[u8]) {
    match text.iter().position(|&b| b == mark) {
        Some(at) => (&text[..at], &text[at + 1..]),
        None => (text, &[]),
    }
}

fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}

fn path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

fn hex(digits: &[u8]) -> Option<u64> {
    u64::from_str_radix(text(digits)?.trim_start_matches("0x"), 16).ok()
}
