//! Text heap profiles in: jemalloc's and jeprobe's `heap_v2`, and the layouts of gperftools.
//!
//! ```text
//! heap_v2/524288                              R, mean bytes between samples
//!   t*: 13: 4202496 [15: 4210688]             totals, all threads; not used, stacks are summed
//!   t7: 1: 524288 [1: 524288] worker          one line per thread, with its name when it has one
//! @ 0x401175 0x4011c2 0x401280                a stack, leaf first, return addresses
//!   t*: 10: 10240 [12: 12288]                 live objects: bytes [ever allocated objects: bytes]
//!   t0: 10: 10240 [12: 12288]                 the part of one thread
//!
//! MAPPED_LIBRARIES:
//! 55ad650fd000-55ad650fe000 r-xp 00001000 fe:00 1012 /usr/bin/prog
//! ```
//!
//! gperftools puts counts and stack on one line, `10: 10240 [12: 12288] @ 0x401175 …`, and names the sampling in its
//! first line; Go writes the same with the names of the frames (`go`). What jeprobe adds after the mappings (build-ids, configuration, losses) is described in `tail`.
//!
//! The printed pairs are unbiased one by one as jeprof does, so the estimates here are jeprof's numbers. The raw counts
//! of a profile read here are the printed ones, which a writer that unbiases has adjusted.
//!
//! Any bytes may be given: no panic, memory in proportion to the input, and an error names the line (from 1) and the
//! byte (from 0, start of the line). A line that fits nowhere is an error and not skipped: it is a sign of damage, and
//! what is skipped is missing from the sums. Only the list of mappings may hold lines of other kinds.
#![forbid(unsafe_code)]

use super::ahead;
use super::counts::{Pairs, thread_line};
use super::go;
use super::lines::{Lines, ReadError, Reason, addresses, mapped, number, shown, stack_addresses};
use super::tail::Tail;
use crate::estimate::Sampling;
use crate::model::{Profile, StackId, Thread, Values};
use crate::units::SampleInterval;

/// gperftools' sampling interval where the first line does not give one.
const DEFAULT_INTERVAL: u64 = 128 * 1024;

/// Reads a whole file.
pub fn read(bytes: &[u8]) -> Result<Profile, ReadError> {
    read_releasing(bytes, &|_| {})
}

/// The same of a file that is mapped; see [`super::read_releasing`].
pub fn read_releasing(bytes: &[u8], release: &dyn Fn(&[u8])) -> Result<Profile, ReadError> {
    let mut lines = Lines::new(bytes);
    let mut warnings = Vec::new();
    let header = loop {
        let Some(line) = lines.next() else { return Err(lines.error(Reason::Empty)) };
        if let Some(text) = line.strip_prefix(b"%warn ") {
            warnings.push(format!("the recording process warned: {}", String::from_utf8_lossy(text.trim_ascii())));
        } else if !(line.starts_with(b"%") || line == b"--- heap" || line == b"--- growth") {
            break line;
        }
    };
    let mut tail = Tail::default();
    let mut profile = if let Some(interval) = header.strip_prefix(b"heap_v2/") {
        let interval = number(interval).ok_or_else(|| lines.error(Reason::BadInterval(shown(interval))))?;
        let interval = SampleInterval(interval);
        match ahead::read(lines.rest(), interval, release) {
            Some(body) => {
                lines.pass_body(body.bytes, body.lines);
                body.profile
            }
            None => threaded(&mut lines, interval, &mut tail)?,
        }
    } else if let Some(header) = header.strip_prefix(b"heap profile:") {
        let is_go = go::is_go(lines.rest());
        let sampling =
            gperftools_sampling(header, is_go).ok_or_else(|| lines.error(Reason::BadCounts(shown(header))))?;
        gperftools(&mut lines, sampling, is_go)?
    } else if matches!(header, b"--- contention" | b"--- contention:" | b"--- mutex:" | b"--- Stacks:") {
        let mut profile = super::contention::read(&mut lines)?;
        for warning in warnings {
            profile.add_note(warning);
        }
        return Ok(profile);
    } else if header.starts_with(b"--- symbol") {
        return Err(lines.error(Reason::Symbolized));
    } else {
        return Err(lines.error(Reason::NotAProfile(shown(header))));
    };
    mapped(&mut lines, &mut profile, tail);
    for warning in warnings {
        profile.add_note(warning);
    }
    Ok(profile)
}

/// Body of `heap_v2`.
fn threaded(lines: &mut Lines<'_>, interval: SampleInterval, tail: &mut Tail) -> Result<Profile, ReadError> {
    let sampling = Sampling::Poisson(interval);
    let mut profile = Profile::new(interval);
    let mut stack = Vec::new();
    let mut current: Option<StackId> = None;
    let mut total_seen = true;
    while let Some(line) = lines.next_of_body() {
        if let Some(frames) = line.strip_prefix(b"@") {
            if !total_seen {
                return Err(lines.error(Reason::StackWithoutCounts));
            }
            stack_addresses(frames, &mut stack).map_err(|reason| lines.error(reason))?;
            current = Some(profile.add_total(&stack, Values::default()));
            total_seen = false;
        } else if line.starts_with(b"t") {
            let counts = thread_line(line).map_err(|reason| lines.error(reason))?;
            let values = counts.pairs.unbias(sampling);
            match (current, counts.thread) {
                (None, None) => {}
                (None, Some(uid)) => {
                    let name = String::from_utf8_lossy(counts.name).into_owned();
                    profile.add_thread(uid, Thread { tid: None, name, ..Thread::default() });
                }
                (Some(_), _) if !counts.name.is_empty() => return Err(lines.error(Reason::BadCounts(shown(line)))),
                (Some(id), None) => {
                    total_seen = true;
                    profile.add_to(id, values);
                }
                (Some(id), Some(uid)) => profile.add_share(id, uid, values),
            }
        } else if !tail.line(line, &mut profile) {
            return Err(lines.error(Reason::Unknown(shown(line))));
        }
    }
    if total_seen { Ok(profile) } else { Err(lines.error(Reason::StackWithoutCounts)) }
}

/// Body of gperftools' layouts.
fn gperftools(lines: &mut Lines<'_>, sampling: Sampling, is_go: bool) -> Result<Profile, ReadError> {
    let mut profile = Profile::new(sampling.interval());
    let mut stack = Vec::new();
    let mut names = go::Names::default();
    while let Some(line) = lines.next_of_body() {
        if line.starts_with(b"#") {
            names.line(line, &stack);
            continue;
        }
        names.give(&mut profile);
        let at = line.iter().position(|&b| b == b'@');
        let (counts, frames) = at.map_or((line, &line[..0]), |at| (line[..at].trim_ascii_end(), &line[at + 1..]));
        match Pairs::parse(counts) {
            Some((pairs, [])) if at.is_some() => {
                addresses(frames, &mut stack).map_err(|reason| lines.error(reason))?;
                if is_go {
                    go::without_return_of_leaf(&mut stack);
                }
                profile.add_total(&stack, pairs.unbias(sampling));
            }
            Some((_, [])) => return Err(lines.error(Reason::CountsWithoutStack)),
            _ => return Err(lines.error(Reason::Unknown(shown(line)))),
        }
    }
    names.give(&mut profile);
    names.finish(&mut profile);
    Ok(profile)
}

/// What the first line of gperftools says about sampling; `header` is what follows `heap profile:`.
fn gperftools_sampling(header: &[u8], is_go: bool) -> Option<Sampling> {
    let (totals, rest) = Pairs::parse(header)?;
    let kind = rest.trim_ascii().strip_prefix(b"@").unwrap_or_default().trim_ascii();
    let (kind, period) = match kind.iter().position(|&b| b == b'/') {
        Some(slash) => (&kind[..slash], number(&kind[slash + 1..])),
        None => (kind, None),
    };
    let contains = |what: &[u8]| kind.windows(what.len()).any(|part| part == what);
    let interval = |divisor| match period {
        None | Some(0) => SampleInterval(DEFAULT_INTERVAL),
        Some(period) => SampleInterval(period / divisor),
    };
    Some(if kind.is_empty() {
        // The oldest writers name no kind; those that sampled repeat the live totals as the cumulative ones.
        if totals.current == totals.cumulative {
            Sampling::Uniform(SampleInterval(DEFAULT_INTERVAL))
        } else {
            Sampling::None
        }
    } else if kind == b"heapprofile" || !contains(b"heap") {
        Sampling::None
    } else if contains(b"_v2") {
        Sampling::Poisson(interval(1))
    } else if is_go {
        Sampling::Poisson(interval(2))
    } else {
        // The period is the upper end of a uniform distance; its mean is half of it.
        Sampling::Uniform(interval(2))
    })
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::fmt::Write as _;

    use super::*;
    use crate::input::lines::ReadError;
    use crate::model::ThreadUid;

    const HAND: &str = "heap_v2/524288
  t*: 13: 4202496 [15: 4210688]
  t0: 12: 3678208 [14: 3686400] main: thread
  t7: 1: 524288 [1: 524288]
@ 0x401175 0x4011c2
  t*: 10: 10240 [12: 12288]
  t0: 10: 10240 [12: 12288]
@ 0x401175
  t*: 3: 3145728 [3: 3145728]
  t7: 1: 524288 [1: 524288]

MAPPED_LIBRARIES:
00400000-00401000 r-xp 00001000 fe:00 12 /bin/prog
7f0000000000-7f0000001000 rw-p 00000000 00:00 0
# jeprobe 1
# process 12 /bin/prog
# build-id abcd /bin/prog
# allocator 401000-402000
# config lg_prof_sample=19
# counter samples 13
# loss ring-full 3
# future kind
# end
";

    fn fails(text: &[u8]) -> ReadError {
        read(text).expect_err("damaged")
    }

    fn bytes(values: &Values) -> f64 {
        values.current.est.bytes
    }

    fn check(profile: &Profile) {
        assert_eq!(profile.stack_count(), 2);
        assert_eq!(bytes(&profile.sum()) as u64, 8_886_091);
        assert_eq!(profile.shares().len(), 2);
        let names: Vec<_> = profile.threads().map(|(uid, thread)| (uid, thread.name.as_str())).collect();
        assert_eq!(names, [(ThreadUid(0), "main: thread"), (ThreadUid(7), "")]);
    }

    #[test]
    fn every_part_arrives() {
        let profile = read(HAND.as_bytes()).expect("whole");
        check(&profile);
        let mapping = profile.mappings().find(0x400010).expect("mapped");
        assert_eq!((mapping.build_id.as_slice(), mapping.file_offset(0x400010)), ([0xab, 0xcd].as_slice(), 0x1010));
        assert_eq!(profile.mappings().iter().count(), 1, "anonymous memory without code is left out");
        assert_eq!((profile.pid(), profile.program().and_then(|p| p.to_str())), (Some(12), Some("/bin/prog")));
        assert!(profile.is_allocator(0x401175));
        assert_eq!(profile.losses().map(|(reason, n)| (reason.name(), n)).collect::<Vec<_>>(), [("ring-full", 3)]);
        assert_eq!(profile.counters(), [("samples".to_owned(), 13)]);
        assert_eq!(profile.notes(), [""; 0]);
    }

    #[test]
    fn large_bodies_are_read_ahead_as_line_by_line() {
        let mut state = 7_u64;
        let mut random = move |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let mut text = "heap_v2/524288\n  t*: 1: 1 [0: 0]\n  t3: 1: 1 [0: 0] a name\n".to_owned();
        let title = "\nMAPPED_LIBRARIES:\n00400000-00401000 r-xp 00001000 fe:00 12 /bin/prog\n# jeprobe 1\n# end\n";
        while text.len() < ahead::LEAST + (1 << 20) {
            text.push('@');
            for _ in 0..=random(20) {
                write!(text, " {:#x}", 0x40_0000 + random(3000)).expect("memory");
            }
            let counts = format!("{}: {} [{}: 9]", 1 + random(9), 1 + random(99_999), random(3));
            writeln!(text, "\n  t*: {counts}\n  t{}: {counts}\n  t7: {counts}", random(5)).expect("memory");
        }
        let whole = text.clone() + title;
        let interval = SampleInterval(524_288);
        let rest = &whole.as_bytes()["heap_v2/524288\n".len()..];
        let released = Cell::new(0);
        let release = |part: &[u8]| {
            assert_eq!(part, &rest[released.get()..released.get() + part.len()]);
            released.set(released.get() + part.len());
        };
        let body = ahead::read(rest, interval, &release).expect("sound");
        assert!(released.get() >= body.bytes, "one part after the other, up to where reading stopped");
        assert_eq!(&whole.as_bytes()["heap_v2/524288\n".len() + body.bytes..][..8], b"00400000");
        let mut lines = Lines::new(whole.as_bytes());
        lines.next();
        let profile = threaded(&mut lines, interval, &mut Tail::default()).expect("sound");
        assert_eq!(body.lines, lines.line() - 1);
        assert_eq!(body.profile.stack_count(), profile.stack_count());
        assert!(body.profile.totals().eq(profile.totals()), "stacks and totals");
        assert_eq!(body.profile.shares(), profile.shares());
        assert!(body.profile.threads().eq(profile.threads()));
        let read_whole = read(whole.as_bytes()).expect("sound");
        assert_eq!(read_whole.mappings().iter().count(), 1);
        assert_eq!(read_whole.notes(), [""; 0]);
        // What is not sound is left to the reader that says where.
        for (damage, at) in [("what\n", text.len()), ("@ 0x1\n@ 0x2\n", text.len()), ("# counter samples 3\n", 60)] {
            let at = text[at.min(text.len() - 1)..].find('@').map_or(text.len(), |found| at + found);
            let damaged = [&text[..at], damage, &text[at..], title].concat();
            let rest = &damaged.as_bytes()["heap_v2/524288\n".len()..];
            assert!(ahead::read(rest, interval, &|_| {}).is_none(), "{damage}");
        }
        let error = fails(&[text.as_bytes(), b"what\n", title.as_bytes()].concat());
        assert_eq!(error.byte as usize, text.len());
    }

    #[test]
    fn line_ends_of_other_systems_and_indentation_do_not_matter() {
        check(&read(HAND.replace('\n', "\r\n").as_bytes()).expect("whole"));
        check(&read(HAND.replace("  t", "t").as_bytes()).expect("whole"));
    }

    #[test]
    fn a_file_without_its_last_line_says_so() {
        let cut = HAND.replace("# end\n", "");
        let profile = read(cut.as_bytes()).expect("readable");
        assert!(profile.notes().iter().any(|note| note.contains("cut short")), "{:?}", profile.notes());
    }

    #[test]
    fn errors_name_line_and_byte() {
        assert_eq!(fails(b""), ReadError { line: 1, byte: 0, reason: Reason::Empty });
        assert!(matches!(fails(b"\x7fELF\x02"), ReadError { line: 1, byte: 0, reason: Reason::NotAProfile(_) }));
        assert!(matches!(fails(b"heap_v3/1\n").reason, Reason::NotAProfile(_)));
        assert!(matches!(fails(b"heap_v2/ten\n").reason, Reason::BadInterval(_)));
        assert!(matches!(fails(b"--- symbol\n").reason, Reason::Symbolized));
        let error = fails(b"heap_v2/1\n@ 0x1 0xzz\n");
        assert_eq!((error.line, error.byte), (2, 10));
        assert!(matches!(error.reason, Reason::BadAddress(_)));
        let error = fails(b"heap_v2/1\n@ 0x1\n  t*: 1: 99999999999999999999 [0: 0]\n");
        assert_eq!((error.line, error.byte), (3, 16));
        assert!(matches!(error.reason, Reason::BadCounts(_)));
        assert!(matches!(fails(b"heap_v2/1\n@ 0x1\n@ 0x2\n").reason, Reason::StackWithoutCounts));
        assert!(matches!(fails(b"heap_v2/1\n@ 0x1\n  t4294967296: 1: 1 [0: 0]\n").reason, Reason::BadThread(_)));
        assert!(matches!(
            fails(b"heap profile: 1: 1 [1: 1] @ heapprofile\n1: 1 [1: 1]\n").reason,
            Reason::CountsWithoutStack
        ));
        let shown = fails(&[b"heap_v2/1\n".as_slice(), &[0xff; 1000]].concat()).to_string();
        assert!(shown.starts_with("line 2, byte 10: not understood: ") && shown.len() < 400, "{shown}");
    }

    #[test]
    fn no_cut_is_silent_but_one_between_two_mappings() {
        let title = HAND.find("MAPPED").expect("present");
        let first_stack = HAND.find('@').expect("present");
        let tail = HAND.find("# process").expect("present");
        for end in 0..HAND.len() - 1 {
            let in_mappings = (title..tail).contains(&end) && HAND[..end].ends_with('\n');
            match read(&HAND.as_bytes()[..end]) {
                Err(error) => assert!(end < title + "MAPPED_LIBRARIES:".len(), "byte {end}: {error}"),
                Ok(profile) if end > first_stack && !in_mappings => {
                    assert!(!profile.notes().is_empty(), "silent cut at byte {end}");
                }
                Ok(_) => {}
            }
        }
    }

    #[test]
    fn changed_bytes_never_panic() {
        let mut state = 7_u64;
        let mut random = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize
        };
        for _ in 0..20_000 {
            let mut text = HAND.as_bytes().to_vec();
            for _ in 0..=random() % 4 {
                let at = random() % text.len();
                text[at] = random() as u8;
            }
            let at = random() % text.len();
            match random() % 3 {
                0 => text.truncate(at),
                1 => drop(text.drain(at..(at + 9).min(text.len()))),
                _ => {}
            }
            if let Err(error) = read(&text) {
                assert!(error.byte <= text.len() as u64 + 1, "{error}");
            }
        }
    }

    #[test]
    fn layouts_of_gperftools_and_their_sampling() {
        let stacks = "\n  10: 10240 [ 12: 12288] @ 0x401175 0x4011c2\n   3: 3145728 [ 3: 3145728] @ 0x401175\n\nMAPPED_LIBRARIES:\n";
        for (header, total) in [
            ("heap profile:     13:  3155968 [    15:  3158016] @ heap_v2/524288", 8_886_091),
            ("heap profile:     13:  3155968 [    15:  3158016] @ heap/1048576", 8_388_608),
            ("heap profile:     13:  3155968 [    15:  3158016] @ heapprofile", 3_155_968),
            ("heap profile:     13:  3155968 [    15:  3158016] @ growthz", 3_155_968),
            ("heap profile:     13:  3155968 [    13:  3155968]", 4_456_448),
            ("heap profile:     13:  3155968 [    15:  3158016]", 3_155_968),
        ] {
            let profile = read(format!("{header}{stacks}").as_bytes()).expect(header);
            assert_eq!(bytes(&profile.sum()) as u64, total, "{header}");
        }
    }

    #[test]
    fn work_grows_with_the_file_and_not_with_its_square() {
        let mut text = String::from("heap_v2/1024\n");
        for stack in 0..200_000_u64 {
            use std::fmt::Write as _;
            let _infallible = writeln!(
                text,
                "@ {:#x} {:#x} 0x401000\n  t*: 1: {} [0: 0]",
                stack * 16 + 1,
                stack % 7,
                stack % 900 + 8
            );
        }
        text.push_str("\nMAPPED_LIBRARIES:\n");
        let started = std::time::Instant::now();
        assert_eq!(read(text.as_bytes()).expect("whole").stack_count(), 200_000);
        // Quadratic work would take hours; a busy machine and a build without optimisation get their share.
        assert!(started.elapsed().as_secs() < 30, "{:?}", started.elapsed());
    }
}
