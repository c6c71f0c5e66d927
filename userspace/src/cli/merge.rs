//! `jeprobe merge`: profiles of several processes and hosts as one.
//!
//! Stacks of equal code become one wherever it was mapped: files are matched by build-id, else by path and inode. Where a
//! part came from stays known as labels `process`, and `host` for arguments `HOST=FILE`.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use super::explain::explain_recording;
use super::load::{Uncounted, file_name, read, repeated, same_kind};
use super::outcome::Outcome;
use super::report_args::{Format, MergeArgs};
use super::results::{file, keep, name, named_format};
use super::symbolize::{check_heap, write_profile};
use super::term::Term;
use crate::model::{Profile, printable};
use crate::outfile;
use crate::output::Options;
use crate::output::tags::{PROCESS, process};
use crate::symbolize::known::own_symbols;
use crate::units::counted;

/// Runs the command.
pub fn run(args: &MergeArgs, term: &mut Term) -> Result<Outcome> {
    let format = named_format(&args.output);
    if !matches!(format, None | Some(Format::Pprof | Format::Otlp)) {
        bail!("cannot merge into {}: a merged profile is a heap file, or .pb.gz or .otlp", args.output.display());
    }
    let (hosts, files): (Vec<Option<String>>, Vec<PathBuf>) = args.inputs.iter().map(|input| split(input)).unzip();
    if let Some(path) = file(Some(&args.output)) {
        keep(Some(path), &files)?;
        outfile::check(path)?;
    }
    let mut merged = Profile::default();
    let mut is_first = true;
    let mut uncounted = Uncounted::default();
    for (host, path) in hosts.into_iter().zip(&files) {
        let mut profile = read(path)?;
        if !std::mem::take(&mut is_first) {
            same_kind(merged.kind(), profile.kind(), path)?;
        }
        uncounted.look(&profile, path);
        let mut labels = vec![(PROCESS.to_owned(), process(&profile).unwrap_or_else(|| file_name(path)))];
        labels.extend(host.map(|mut host| {
            printable(&mut host);
            ("host".to_owned(), host)
        }));
        profile.label_all(&labels);
        if files.len() > 1 {
            profile.name_notes(&path.display().to_string());
        }
        merged.merge(&profile);
    }
    for note in repeated(&files).into_iter().chain(uncounted.of(&merged)) {
        merged.add_note(note);
    }
    check_heap(&merged, format)?;
    let symbols = own_symbols(&merged);
    write_profile(&merged, &symbols, format, &args.output, term)?;
    let count = counted(files.len() as u64, "profile", "profiles");
    term.say(format_args!("{count} merged into {}", name(&args.output)));
    explain_recording(&merged, &Options::default(), term);
    Ok(Outcome::Complete)
}

/// `HOST=FILE`, unless a file has that whole name.
fn split(input: &Path) -> (Option<String>, PathBuf) {
    let text = input.to_string_lossy();
    match text.split_once('=') {
        Some((host, path)) if !host.is_empty() && !host.contains('/') && !input.exists() => {
            (Some(host.to_owned()), path.into())
        }
        _ => (None, input.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::split;
    use std::path::{Path, PathBuf};

    #[test]
    fn a_host_is_what_stands_before_the_file() {
        assert_eq!(split(Path::new("web1=a.heap")), (Some("web1".to_owned()), PathBuf::from("a.heap")));
        assert_eq!(split(Path::new("dir/a=b.heap")), (None, PathBuf::from("dir/a=b.heap")));
        assert_eq!(split(Path::new("=x")), (None, PathBuf::from("=x")));
    }
}
