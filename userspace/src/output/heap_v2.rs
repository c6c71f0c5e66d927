//! A profile as a `heap_v2` file: read by perl jeprof, by pprof and by [`crate::input::heap_v2`].
//!
//! The lines come from [`jeprobe_abi::heap_v2::Writer`], the one that the library uses for its own dumps; what is added
//! here is the way from the model to them. Readers unbias each printed pair by its mean size, so the printed pair is not the
//! raw count but what the reader's formula turns into the estimate kept here ([`Sampling::raw_of`]). Rounding it
//! to integers is the only loss: half an object of the printed ones.
//!
//! Stacks without live and without cumulative counts are left out, as in files of the library.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use jeprobe_abi::heap_v2::{ByteSink, Pair, Style, Writer};
use jeprobe_abi::root::Counts;

use crate::estimate::Sampling;
use crate::model::{Mapping, Named, Profile, Share, ThreadUid, Values};
use crate::units::{SampleInterval, Sums};

/// Bytes gathered before they are handed on.
const BUFFER_BYTES: usize = 64 * 1024;

/// Writes the whole file, with the names that the profile has.
pub fn write(profile: &Profile, out: impl Write) -> io::Result<()> {
    let mut sites: Vec<(u64, &Vec<Named>)> = profile.names().iter().map(|(site, names)| (*site, names)).collect();
    sites.sort_unstable_by_key(|(site, _)| *site);
    let lines = sites.into_iter().flat_map(|(site, names)| {
        let is_jit = names.len() == 1 && !profile.mappings().find(site).is_some_and(Mapping::is_file);
        names.iter().map(move |function| {
            let Named { short, full, file, line } = function.clone().printable();
            if is_jit {
                format!("# jit {site:x} {full}\n")
            } else {
                format!("# name {site:x} {short}\t{full}\t{file}:{line}\n")
            }
        })
    });
    write_with(profile, lines, out)
}

/// The same with more lines after the mappings, each with its end.
pub fn write_with(profile: &Profile, lines: impl Iterator<Item = String>, out: impl Write) -> io::Result<()> {
    let mut sink = Sink(io::BufWriter::with_capacity(BUFFER_BYTES, out));
    let interval = profile.interval().0;
    let style = Style { interval, unbias: false, accum: profile.has_cumulative() };
    let mut writer = Writer::new(&mut sink, style);
    writer.header(&pair(&profile.sum(), profile.interval()))?;
    threads(profile, &mut writer)?;
    stacks(profile, &mut writer)?;
    writer.mappings_title()?;
    for mapping in profile.mappings() {
        writer.raw(&mapping_line(mapping))?;
    }
    tail(profile, lines, &mut writer)?;
    sink.0.flush()
}

/// Hands the writer's pieces on.
struct Sink<W: Write>(io::BufWriter<W>);

impl<W: Write> ByteSink for Sink<W> {
    type Error = io::Error;

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes)
    }
}

fn threads(profile: &Profile, writer: &mut Writer<'_, impl ByteSink<Error = io::Error>>) -> io::Result<()> {
    let mut sums: BTreeMap<ThreadUid, Values> = BTreeMap::new();
    for share in profile.shares() {
        *sums.entry(share.thread).or_default() += share.values;
    }
    for (uid, thread) in profile.threads() {
        let sum = sums.get(&uid).copied().unwrap_or_default();
        writer.thread(uid.0.into(), &pair(&sum, profile.interval()), thread.name.as_bytes())?;
    }
    Ok(())
}

fn stacks(profile: &Profile, writer: &mut Writer<'_, impl ByteSink<Error = io::Error>>) -> io::Result<()> {
    let mut shares: Vec<&Share> = profile.shares().iter().collect();
    shares.sort_by_key(|share| (share.stack, share.thread));
    let mut rest = shares.as_slice();
    for (id, frames, values) in profile.totals() {
        let (own, others) = rest.split_at(rest.partition_point(|share| share.stack == id));
        rest = others;
        if values.is_zero() {
            continue;
        }
        writer.stack(frames)?;
        writer.total(&pair(values, profile.interval()))?;
        for share in own {
            writer.thread(share.thread.0.into(), &pair(&share.values, profile.interval()), b"")?;
        }
    }
    Ok(())
}

fn pair(values: &Values, interval: SampleInterval) -> Pair {
    Pair { current: counts(values.current, interval), cumulative: counts(values.cumulative, interval) }
}

/// What a reader's own scaling turns into the estimate. Not in eighths of objects as the recorder's own weights are: a
/// profile that was read has whatever fraction the scaling gave it. Negative estimates do not occur in a profile:
/// differences are made by reports and not kept.
fn counts(sums: Sums, interval: SampleInterval) -> Counts {
    let raw = if interval.0 == 0 { sums.raw } else { Sampling::Poisson(interval).raw_of(sums.est) };
    Counts { objects: raw.objects, bytes: raw.bytes, ..Counts::default() }
}

/// As `/proc/PID/maps` prints it.
fn mapping_line(mapping: &Mapping) -> Vec<u8> {
    let (major, minor) = mapping.device;
    let mut line = format!(
        "{:08x}-{:08x} {} {:08x} {major:02x}:{minor:02x} {} ",
        mapping.start,
        mapping.end,
        String::from_utf8_lossy(&mapping.permissions),
        mapping.offset,
        mapping.inode
    )
    .into_bytes();
    let path = path_bytes(&mapping.path);
    if !path.is_empty() {
        // The column at which the kernel begins paths.
        line.resize(line.len().max(73), b' ');
        for &byte in path {
            if byte == b'\n' { line.extend_from_slice(b"\\012") } else { line.push(byte) }
        }
        if mapping.deleted {
            line.extend_from_slice(b" (deleted)");
        }
    }
    line.push(b'\n');
    line
}

fn path_bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}

fn tail(
    profile: &Profile,
    lines: impl Iterator<Item = String>,
    writer: &mut Writer<'_, impl ByteSink<Error = io::Error>>,
) -> io::Result<()> {
    match profile.pid() {
        Some(pid) => writer.tail(pid, profile.program().map_or(&[], path_bytes))?,
        // Of several processes: opened all the same, without saying whose it is.
        None => writer.raw(format!("# jeprobe {}\n", jeprobe_abi::heap_v2::TAIL_VERSION).as_bytes())?,
    }
    for range in profile.allocator_text() {
        writer.allocator(range.start, range.end)?;
    }
    // A merge may hold two builds under one path; an id that is right for one of them only is left out.
    let mut described: BTreeMap<&Path, Option<&[u8]>> = BTreeMap::new();
    for mapping in profile.mappings().iter().filter(|mapping| mapping.is_file()) {
        let id = Some(mapping.build_id.as_slice()).filter(|id| !id.is_empty());
        described
            .entry(&mapping.path)
            .and_modify(|known| *known = known.filter(|known| Some(*known) == id))
            .or_insert(id);
    }
    for (path, id) in described {
        if let Some(id) = id {
            writer.build_id(id, path_bytes(path))?;
        }
    }
    for (key, value) in profile.configuration() {
        writer.config(&one_line(key), format_args!("{}", one_line(value)))?;
    }
    for (name, count) in profile.counters() {
        writer.counter(&one_line(name), *count)?;
    }
    let mut printed = [0_u64; 2];
    for (_, _, values) in profile.totals().filter(|(_, _, values)| !values.is_zero()) {
        for (samples, sums) in printed.iter_mut().zip([values.current, values.cumulative]) {
            *samples = samples.saturating_add(counts(sums, profile.interval()).objects);
        }
    }
    for line in profile.kept_bases_beside(printed) {
        writer.raw(format!("# sampled {line}\n").as_bytes())?;
    }
    for line in lines {
        writer.raw(line.as_bytes())?;
    }
    for (uid, thread) in profile.threads() {
        // The system's number finds a thread that has no name.
        let tid = thread.tid.filter(|_| thread.name.is_empty()).map(|tid| ("tid".to_owned(), tid.to_string()));
        for (key, label) in thread.labels.iter().chain(&tid) {
            writer.raw(format!("# label t{} {}={}\n", uid.0, one_line(key), one_line(label)).as_bytes())?;
        }
    }
    writer.losses(profile.losses_by_reason())?;
    for note in profile.notes() {
        writer.note(format_args!("{}", one_line(note)))?;
    }
    writer.end()
}

/// Without line ends, which would end the field.
fn one_line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}

#[cfg(test)]
mod tests {
    use super::write;
    use crate::input::heap_v2::read;
    use crate::model::{Mapping, Profile, Thread, ThreadUid};
    use crate::units::{Count, EstCount, SampleInterval, Sums};
    use jeprobe_abi::drops::Reason;
    use jeprobe_abi::unbias::{weight_bytes, weight_objects8};

    /// Deterministic numbers below `end`.
    struct Random(u64);

    impl Random {
        fn below(&mut self, end: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) % end
        }
    }

    /// Sums of samples of random sizes, weighted as the sampler weights them.
    fn samples(random: &mut Random, interval: u64) -> Sums {
        let mut sums = Sums::ZERO;
        for _ in 0..random.below(20) {
            let size = 1 << random.below(24);
            let weight = weight_bytes(size, interval);
            sums += Sums {
                raw: Count { objects: 1, bytes: size },
                est: EstCount { objects: weight_objects8(size, weight) as f64 / 8.0, bytes: weight as f64 },
            };
        }
        sums
    }

    fn random_profile(seed: u64) -> Profile {
        let mut random = Random(seed);
        let interval = 1 << random.below(22);
        let mut profile = Profile::new(SampleInterval(interval));
        profile.set_process(12, Some("/bin/a b".into()));
        for index in 0..=random.below(4) {
            let start = 0x10000 * (index + 1);
            profile.add_mapping(Mapping {
                start,
                end: start + 0x1000,
                offset: 0x1000 * random.below(9),
                permissions: *b"r-xp",
                device: (8, 1),
                inode: index + 1,
                path: format!("/lib/with space {index}.so").into(),
                deleted: index == 1,
                build_id: vec![index as u8; 20],
            });
        }
        for _ in 0..random.below(60) {
            let stack: Vec<u64> = (0..random.below(9)).map(|_| random.below(1 << 31)).collect();
            let thread = ThreadUid(random.below(5) as u32);
            let current = samples(&mut random, interval);
            let mut cumulative = current;
            cumulative += samples(&mut random, interval);
            profile.add(&stack, Some(thread), current, cumulative);
        }
        profile.add_thread(ThreadUid(0), Thread { tid: None, name: "worker: 1".into(), ..Thread::default() });
        profile.add_loss(Reason::MapFull, 4);
        profile.add_counter("samples", 99);
        profile.set_configuration("lg_prof_sample", "19");
        profile.add_note("two\nlines");
        profile.add_allocator_text(0x10000..0x10800);
        profile
    }

    fn text(profile: &Profile) -> Vec<u8> {
        let mut bytes = Vec::new();
        write(profile, &mut bytes).expect("memory takes everything");
        bytes
    }

    /// What half a printed object and half a printed byte may change.
    fn close(read: Sums, written: Sums, interval: u64) -> bool {
        let printed = super::counts(written, SampleInterval(interval));
        if printed.objects == 0 {
            return read.is_zero();
        }
        let lost = 2.0 * (0.5 / printed.objects as f64 + 0.5 / printed.bytes as f64) + 1e-6;
        (read.est.bytes / written.est.bytes - 1.0).abs() <= lost
            && (read.est.objects / written.est.objects - 1.0).abs() <= 2.0 * lost
    }

    #[test]
    fn what_is_written_is_read_again() {
        for seed in 0..200 {
            let original = random_profile(seed);
            let bytes = text(&original);
            let again = read(&bytes).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            let interval = original.interval().0;
            for (_, frames, values) in original.totals().filter(|(_, _, values)| !values.is_zero()) {
                let id = again.find_stack(frames).unwrap_or_else(|| panic!("seed {seed}: {frames:x?} is missing"));
                let found = again.values(id);
                assert!(close(found.current, values.current, interval), "seed {seed}: {found:?} {values:?}");
                assert!(close(found.cumulative, values.cumulative, interval), "seed {seed}: {found:?} {values:?}");
            }
            assert_eq!(again.mappings(), original.mappings(), "seed {seed}");
            assert_eq!(again.threads().collect::<Vec<_>>(), original.threads().collect::<Vec<_>>(), "seed {seed}");
            assert_eq!(again.losses_by_reason(), original.losses_by_reason());
            assert_eq!(again.counters(), original.counters());
            assert_eq!(again.configuration(), original.configuration());
            assert_eq!(again.allocator_text(), original.allocator_text());
            assert_eq!((again.pid(), again.program()), (original.pid(), original.program()));
            assert_eq!(again.notes(), ["two lines"]);
        }
    }

    #[test]
    fn an_unsampled_profile_keeps_its_counts() {
        let mut profile = Profile::new(SampleInterval(0));
        let sums = Sums { raw: Count { objects: 3, bytes: 100 }, est: EstCount { objects: 3.0, bytes: 100.0 } };
        profile.add(&[1], None, sums, Sums::ZERO);
        assert_eq!(read(&text(&profile)).expect("whole").sum().current, sums);
    }

    #[test]
    fn two_builds_under_one_path_keep_no_wrong_build_id() {
        let mut profile = Profile::new(SampleInterval(1));
        for (start, id) in [(0x1000, 1), (0x3000, 2)] {
            let (end, path) = (start + 0x1000, "/bin/x".into());
            profile.add_mapping(Mapping { start, end, path, build_id: vec![id], ..Mapping::default() });
        }
        assert!(!String::from_utf8_lossy(&text(&profile)).contains("build-id"));
    }
}
