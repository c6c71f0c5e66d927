//! Names of code that a running program made itself: `perf-PID.map` and `jit-PID.dump` files, as node, the JVM and others write
//! them for perf.
//!
//! ```text
//! /tmp/perf-7.map:  3ef0a0c0 1b4 JS:*grow file:///srv/app.js:12:14      start, size, name; of overlapping ones the last counts
//! ```
//!
//! A `jit-PID.dump` lies anywhere: the program maps it, which is how perf and this find it; what both name has the name of the map.
//!
//! The file is gone, or another's, once the program has ended, so the names of a profile's addresses are put into the profile
//! when it is taken. The file lies in the `/tmp` that the process sees, under the pid that it has there; it counts only when
//! the process's owner, root or this user owns it, since anyone may write to `/tmp`.
#![forbid(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use super::jitdump;
use crate::model::{Mapping, Profile, call_site, jit_name};
use crate::proc::pids;

/// Longest line that is read; longer ones are cut.
const LONGEST_LINE: u64 = 4096;
/// Bytes of a map that are read: tens of millions of functions.
const LONGEST_FILE: u64 = 1 << 30;

/// Gives the names that the process's map has to addresses outside of every mapped file; true when there were some.
///
/// `root` is the process's `/` while it runs; an ended one's map is looked for on this host.
pub fn add_names(profile: &mut Profile, pid: u32, root: Option<&Path>) -> bool {
    let mut sites: Vec<u64> = profile
        .totals()
        .flat_map(|(_, frames, _)| frames.iter().enumerate().map(|(depth, &avma)| call_site(depth, avma)))
        .filter(|site| !profile.mappings().find(*site).is_some_and(Mapping::is_file))
        .filter(|site| !profile.names().contains_key(site))
        .collect();
    sites.sort_unstable();
    sites.dedup();
    if sites.is_empty() {
        return false;
    }
    let status = pids::status(pid).ok();
    let inner = status.as_ref().and_then(|status| status.ns_tgids.last().copied()).unwrap_or(pid);
    let inside = |path: &Path| match root.zip(path.strip_prefix("/").ok()) {
        Some((root, path)) => root.join(path),
        None => path.to_owned(),
    };
    let owner = status.map(|status| status.uid);
    let path = inside(&Path::new("/tmp").join(format!("perf-{inner}.map")));
    let mut names = read(&path, owner, &sites).unwrap_or_else(|_| vec![None; sites.len()]);
    let dump = format!("jit-{inner}.dump");
    let is_dump = |mapping: &&Mapping| mapping.path.file_name().is_some_and(|name| *name == *dump);
    if let Some(mapping) = profile.mappings().iter().find(is_dump)
        && let Ok(file) = open(&inside(&mapping.path), owner)
    {
        // What cannot be read has no names.
        let _unnamed = jitdump::read(&mut BufReader::with_capacity(1 << 16, file), &sites, &mut names);
    }
    let mut found = false;
    for (site, name) in sites.into_iter().zip(names) {
        if let Some(name) = name {
            profile.set_names(site, vec![jit_name(&name)]);
            found = true;
        }
    }
    found
}

/// Opens a file that the process's owner, root or this user has.
fn open(path: &Path, owner: Option<u32>) -> io::Result<File> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)?;
    let meta = file.metadata()?;
    let here = std::fs::metadata("/proc/self")?.uid();
    if !meta.is_file() || !(meta.uid() == 0 || meta.uid() == here || Some(meta.uid()) == owner) {
        return Err(io::Error::from(io::ErrorKind::PermissionDenied));
    }
    Ok(file)
}

/// The name of each of the ascending sites.
fn read(path: &Path, owner: Option<u32>, sites: &[u64]) -> io::Result<Vec<Option<String>>> {
    let file = open(path, owner)?;
    let mut names = vec![None; sites.len()];
    let mut reader = BufReader::with_capacity(1 << 16, file.take(LONGEST_FILE));
    let mut line = Vec::new();
    loop {
        line.clear();
        if (&mut reader).take(LONGEST_LINE).read_until(b'\n', &mut line)? == 0 {
            return Ok(names);
        }
        if line.last() != Some(&b'\n') {
            reader.skip_until(b'\n')?;
        }
        let Some((start, size, name)) = entry(&line) else { continue };
        let from = sites.partition_point(|site| *site < start);
        for (site, known) in sites[from..].iter().zip(&mut names[from..]) {
            if *site - start >= size {
                break;
            }
            *known = Some(name.clone());
        }
    }
}

/// Start, size and name of one line.
fn entry(line: &[u8]) -> Option<(u64, u64, String)> {
    let text = String::from_utf8_lossy(line);
    let mut words = text.trim_end().splitn(3, ' ');
    let mut number = || u64::from_str_radix(words.next()?.trim_start_matches("0x"), 16).ok();
    let (start, size) = (number()?, number()?);
    let name = words.next().filter(|name| !name.is_empty())?;
    Some((start, size, name.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::add_names;
    use crate::model::{Mapping, Profile};
    use crate::units::{Count, EstCount, SampleInterval, Sums};
    use std::fs;

    #[test]
    fn addresses_outside_of_files_get_the_last_name_that_covers_them() {
        let root = std::env::temp_dir().join(format!("jeprobe-jit-{}", std::process::id()));
        fs::create_dir_all(root.join("tmp")).expect("made");
        // No process has this pid.
        let pid = u32::MAX - 1;
        let map = "1000 100 old\n1000 80 new one\nzz 10 damaged\n2000 10\n5000 1000 in a file\n3000 10 unused";
        fs::write(root.join(format!("tmp/perf-{pid}.map")), map).expect("written");
        let mut profile = Profile::new(SampleInterval(1));
        let one = Sums { raw: Count { objects: 1, bytes: 8 }, est: EstCount { objects: 1.0, bytes: 8.0 } };
        profile.add(&[0x1010, 0x1081, 0x2001, 0x5008], None, one, Sums::ZERO);
        let file = Mapping { start: 0x5000, end: 0x6000, path: "/bin/x".into(), ..Mapping::default() };
        profile.mappings_mut().add(file);
        assert!(!add_names(&mut profile, pid, Some(&root.join("elsewhere"))));
        assert!(add_names(&mut profile, pid, Some(&root)));
        let name = |site: u64| profile.names().get(&site).map(|names| names[0].short.clone());
        assert_eq!(name(0x1010).as_deref(), Some("new one"));
        assert_eq!(name(0x1080).as_deref(), Some("old"));
        assert_eq!((name(0x2000), name(0x5007)), (None, None));
        fs::remove_dir_all(&root).expect("removed");
    }
}
