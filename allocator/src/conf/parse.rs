//! Option text → [`Options`]: grammar, ranges, messages. Pure: sources in, options and lines out.
//!
//! ```text
//!  text  = pair { "," pair }          pair = key ":" value
//!  key   = { A-Z a-z 0-9 _ }          value = anything up to "," or the end, taken literally
//!  bool  = true | false               number = [blanks] [+ -] (0x hex | 0 octal | decimal), wraps when negative
//! ```
//!
//! | what is wrong with a pair | line | counts for `abort_conf` |
//! |---|---|---|
//! | nobody knows the key | `Invalid conf pair: K:V` | yes |
//! | jemalloc knows the key, nothing here obeys it | `Option has no effect here: K:V` | no |
//! | the value cannot be read | `Invalid conf value: K:V` | yes |
//! | the value is outside the range and the key does not clip | `Out-of-range conf value: K:V` | yes |
//! | the text breaks the grammar | `Malformed conf string -- REST`, `Conf string ends with key -- REST`, `Conf string ends with comma -- REST` | yes |
//!
//! Two passes, because `confirm_conf` in the last source decides about lines for the first; only the second prints, so
//! each line appears once. Sources come in rising priority; within one, later pairs win. Wrong pairs change nothing and
//! do not stop the reading, except a malformed key, which ends its source.
//!
//! Runs before libc is initialised: no allocation, no panic, no call out but the given `line`.
#![forbid(unsafe_code)]

use super::{Junk, Options, PREFIX_BYTES, Thp, ZeroRealloc};

/// Receives one message in parts, without prefix and newline.
pub(crate) type Line<'a> = dyn FnMut(&[&[u8]]) + 'a;

/// One origin of option text.
#[derive(Clone, Copy)]
pub(crate) struct Source<'a> {
    /// Number and description in the lines of `confirm_conf`.
    pub(crate) number: u8,
    pub(crate) what: &'static str,
    /// Empty when the source is absent.
    pub(crate) text: &'a [u8],
}

/// Whether the program may go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Outcome {
    Continue,
    /// `abort_conf` is set and a pair was wrong; the line was written.
    Abort,
}

/// Arenas that can be numbered beside the merged and destroyed ones in the flags word of `mallocx`.
pub(crate) const NARENAS_MAX: u32 = 4094;
/// Largest size that thread caches may hold, bytes.
const TCACHE_MAX_BYTES: usize = 32_768;
const LG_TCACHE_MAX: u64 = 15;
/// Beyond this a decay time in ns would not fit 64 bits.
const DECAY_MS_MAX: i64 = 18_446_744_072_000;
/// Bytes of the offending text that a grammar message quotes.
const QUOTE_BYTES: usize = 64;

/// Keys of jemalloc 5.3 that are read without complaint there and change nothing here.
const NO_EFFECT: &[&[u8]] = &[
    b"bin_shards",
    b"cache_oblivious",
    b"calloc_madvise_threshold",
    b"debug_double_free_max_scan",
    b"disable_large_size_classes",
    b"dss",
    b"experimental_hpa_enforce_hugify",
    b"experimental_hpa_max_purge_nhp",
    b"experimental_hpa_start_huge_if_thp_always",
    b"experimental_tcache_gc",
    b"hpa",
    b"hpa_dirty_mult",
    b"hpa_hugification_threshold",
    b"hpa_hugification_threshold_ratio",
    b"hpa_hugify_delay_ms",
    b"hpa_hugify_style",
    b"hpa_hugify_sync",
    b"hpa_min_purge_delay_ms",
    b"hpa_min_purge_interval_ms",
    b"hpa_purge_threshold",
    b"hpa_purge_threshold_ratio",
    b"hpa_sec_batch_fill_extra",
    b"hpa_sec_bytes_after_flush",
    b"hpa_sec_max_alloc",
    b"hpa_sec_max_bytes",
    b"hpa_sec_nshards",
    b"hpa_slab_max_alloc",
    b"huge_arena_pac_thp",
    b"lg_extent_max_active_fit",
    b"lg_san_uaf_align",
    b"lg_tcache_flush_large_div",
    b"lg_tcache_flush_small_div",
    b"lg_tcache_nslots_mul",
    b"log",
    b"max_background_threads",
    b"metadata_thp",
    b"mutex_max_spin",
    b"narenas_ratio",
    b"oversize_threshold",
    b"percpu_arena",
    b"process_madvise_max_batch",
    b"prof_gdump",
    b"prof_leak",
    b"prof_leak_error",
    b"prof_log",
    b"prof_pid_namespace",
    b"prof_recent_alloc_max",
    b"prof_stats",
    b"prof_sys_thread_name",
    b"prof_time_resolution",
    b"san_guard_large",
    b"san_guard_small",
    b"slab_sizes",
    b"stats_interval",
    b"stats_interval_opts",
    b"stats_print",
    b"stats_print_opts",
    b"tcache_gc_delay_bytes",
    b"tcache_gc_incr_bytes",
    b"tcache_ncached_max",
    b"tcache_nslots_large",
    b"tcache_nslots_small_max",
    b"tcache_nslots_small_min",
    b"trust_madvise",
    b"utrace",
];

/// What became of one pair.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Set,
    Unknown,
    NoEffect,
    Invalid,
    OutOfRange,
}

/// Reads all sources in rising priority into `options`.
pub(crate) fn parse(sources: &[Source<'_>], options: &mut Options, line: &mut Line<'_>) -> Outcome {
    // `confirm_conf` is wanted before the first line of the second pass.
    for source in sources {
        let mut cursor = Cursor::new(source.text);
        while let Some(Step::Pair { key, value, .. }) = cursor.next() {
            if key == b"confirm_conf" {
                let _ = flag(value, &mut options.confirm_conf);
            }
        }
    }
    let mut wrong = false;
    for source in sources {
        if options.confirm_conf {
            let number = [b'0' + source.number];
            line(&[b"malloc_conf #", &number, b" (", source.what.as_bytes(), b"): \"", source.text, b"\""]);
        }
        wrong |= read_source(source.text, options, line);
        if wrong && options.abort_conf {
            line(&[b"Abort (abort_conf:true) on invalid conf value (see above)."]);
            return Outcome::Abort;
        }
    }
    if options.narenas > NARENAS_MAX {
        line(&[b"Reducing narenas to limit (4094)"]);
        options.narenas = NARENAS_MAX;
    }
    Outcome::Continue
}

/// True when something counts for `abort_conf`.
fn read_source(text: &[u8], options: &mut Options, line: &mut Line<'_>) -> bool {
    let mut wrong = false;
    let mut cursor = Cursor::new(text);
    while let Some(step) = cursor.next() {
        let (key, value) = match step {
            Step::Pair { key, value, ends_with_comma } => {
                if ends_with_comma {
                    line(&[b"Conf string ends with comma -- ", quote(text)]);
                    wrong = true;
                }
                (key, value)
            }
            Step::EndsWithKey(rest) => {
                line(&[b"Conf string ends with key -- ", quote(rest)]);
                return true;
            }
            Step::Malformed(rest) => {
                line(&[b"Malformed conf string -- ", quote(rest)]);
                return true;
            }
        };
        let complaint: &[u8] = match apply(key, value, options) {
            Verdict::Set => {
                if options.confirm_conf {
                    line(&[b"-- Set conf value: ", key, b":", value]);
                }
                continue;
            }
            Verdict::NoEffect => {
                line(&[b"Option has no effect here: ", key, b":", value]);
                continue;
            }
            Verdict::Unknown => b"Invalid conf pair: ",
            Verdict::Invalid => b"Invalid conf value: ",
            Verdict::OutOfRange => b"Out-of-range conf value: ",
        };
        line(&[complaint, key, b":", value]);
        wrong |= !key.starts_with(b"experimental_");
    }
    wrong
}

fn quote(text: &[u8]) -> &[u8] {
    text.get(..QUOTE_BYTES).unwrap_or(text)
}

/// Splits a text into pairs.
struct Cursor<'a> {
    rest: &'a [u8],
}

enum Step<'a> {
    Pair {
        key: &'a [u8],
        value: &'a [u8],
        /// The comma behind the value is the last character of the text.
        ends_with_comma: bool,
    },
    /// The text from the key on; nothing follows.
    EndsWithKey(&'a [u8]),
    /// The text from the key on; nothing more is read from this source.
    Malformed(&'a [u8]),
}

impl<'a> Cursor<'a> {
    fn new(text: &'a [u8]) -> Cursor<'a> {
        Cursor { rest: text }
    }

    fn next(&mut self) -> Option<Step<'a>> {
        let text = self.rest;
        if text.is_empty() {
            return None;
        }
        self.rest = &[];
        let stop = text.iter().position(|byte| !byte.is_ascii_alphanumeric() && *byte != b'_');
        let Some((key, tail)) = stop.and_then(|at| text.split_at_checked(at)) else {
            return Some(Step::EndsWithKey(text));
        };
        let Some(tail) = tail.strip_prefix(b":") else {
            return Some(Step::Malformed(text));
        };
        let mut halves = tail.splitn(2, |byte| *byte == b',');
        let value = halves.next().unwrap_or(tail);
        let after = halves.next();
        self.rest = after.unwrap_or(&[]);
        Some(Step::Pair { key, value, ends_with_comma: after.is_some_and(<[u8]>::is_empty) })
    }
}

/// Sets the option `key` names.
fn apply(key: &[u8], value: &[u8], options: &mut Options) -> Verdict {
    match key {
        b"abort" => flag(value, &mut options.abort),
        b"abort_conf" => flag(value, &mut options.abort_conf),
        b"confirm_conf" => flag(value, &mut options.confirm_conf),
        b"xmalloc" => flag(value, &mut options.xmalloc),
        b"zero" => flag(value, &mut options.zero),
        b"experimental_infallible_new" => flag(value, &mut options.experimental_infallible_new),
        b"retain" => flag(value, &mut options.retain),
        b"tcache" => flag(value, &mut options.tcache),
        b"background_thread" => flag(value, &mut options.background_thread),
        b"prof" => flag(value, &mut options.prof),
        b"prof_active" => flag(value, &mut options.prof_active),
        b"prof_thread_active_init" => flag(value, &mut options.prof_thread_active_init),
        b"prof_accum" => flag(value, &mut options.prof_accum),
        b"prof_final" => flag(value, &mut options.prof_final),
        b"prof_unbias" => flag(value, &mut options.prof_unbias),
        b"junk" => word(
            value,
            &[(b"true", Junk::Both), (b"false", Junk::None), (b"alloc", Junk::Alloc), (b"free", Junk::Free)],
            &mut options.junk,
        ),
        // A beginning of the word is enough, as in the reference.
        b"thp" => prefix(
            value,
            &[(b"default", Thp::Default), (b"always", Thp::Always), (b"never", Thp::Never)],
            &mut options.thp,
        ),
        b"zero_realloc" => word(
            value,
            &[(b"alloc", ZeroRealloc::Alloc), (b"free", ZeroRealloc::Free), (b"abort", ZeroRealloc::Abort)],
            &mut options.zero_realloc,
        ),
        b"narenas" if value == b"default" => {
            options.narenas = 0;
            Verdict::Set
        }
        // The cast keeps the low half of what a minus sign wrapped, as C's does; the limit is applied at the end.
        b"narenas" => match number(value) {
            None => Verdict::Invalid,
            Some(count) if count as u32 == 0 => Verdict::OutOfRange,
            Some(count) => set(&mut options.narenas, count as u32),
        },
        b"dirty_decay_ms" => ranged(value, -1, DECAY_MS_MAX, &mut options.dirty_decay_ms),
        b"muzzy_decay_ms" => ranged(value, -1, DECAY_MS_MAX, &mut options.muzzy_decay_ms),
        b"lg_prof_interval" => ranged(value, -1, 63, &mut options.lg_prof_interval),
        b"tcache_max" => match number(value) {
            None => Verdict::Invalid,
            Some(bytes) => set(&mut options.tcache_max, bytes.min(TCACHE_MAX_BYTES as u64) as usize),
        },
        b"lg_tcache_max" => match number(value) {
            None => Verdict::Invalid,
            Some(lg) => set(&mut options.tcache_max, 1 << lg.min(LG_TCACHE_MAX)),
        },
        b"lg_prof_sample" => match number(value) {
            None => Verdict::Invalid,
            Some(lg) => set(&mut options.lg_prof_sample, lg.min(63) as u32),
        },
        b"prof_bt_max" => match number(value) {
            None => Verdict::Invalid,
            Some(depth) => set(&mut options.prof_bt_max, depth.clamp(1, jeprobe_abi::abi::MAX_FRAMES as u64) as u32),
        },
        b"prof_prefix" => {
            options.prof_prefix = [0; PREFIX_BYTES];
            // The last byte stays 0.
            for (to, from) in options.prof_prefix.iter_mut().take(PREFIX_BYTES - 1).zip(value) {
                *to = *from;
            }
            Verdict::Set
        }
        _ if NO_EFFECT.contains(&key) => Verdict::NoEffect,
        _ => Verdict::Unknown,
    }
}

fn set<T>(field: &mut T, value: T) -> Verdict {
    *field = value;
    Verdict::Set
}

fn flag(value: &[u8], field: &mut bool) -> Verdict {
    word(value, &[(b"true", true), (b"false", false)], field)
}

fn word<T: Copy>(value: &[u8], words: &[(&[u8], T)], field: &mut T) -> Verdict {
    match words.iter().find(|(word, _)| *word == value) {
        Some((_, meaning)) => set(field, *meaning),
        None => Verdict::Invalid,
    }
}

fn prefix<T: Copy>(value: &[u8], words: &[(&[u8], T)], field: &mut T) -> Verdict {
    match words.iter().find(|(word, _)| word.starts_with(value)) {
        Some((_, meaning)) => set(field, *meaning),
        None => Verdict::Invalid,
    }
}

fn ranged(value: &[u8], low: i64, high: i64, field: &mut i64) -> Verdict {
    match number(value) {
        None => Verdict::Invalid,
        Some(bits) if (low..=high).contains(&(bits as i64)) => set(field, bits as i64),
        Some(_) => Verdict::OutOfRange,
    }
}

/// C's `strtoumax` with base detection over the whole of `value`: `None` when anything is left over, there is no digit,
/// or the number needs more than 64 bits. A minus sign wraps.
fn number(value: &[u8]) -> Option<u64> {
    let blanks = value.iter().take_while(|byte| byte.is_ascii_whitespace() || **byte == 0x0b).count();
    let text = value.get(blanks..)?;
    let (negative, text) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    };
    let (base, digits) = match text {
        [b'0', b'x' | b'X', rest @ ..] => (16, rest),
        [b'0', rest @ ..] if !rest.is_empty() => (8, rest),
        _ => (10, text),
    };
    if digits.is_empty() {
        return None;
    }
    let mut sum = 0_u64;
    for byte in digits {
        let digit = char::from(*byte).to_digit(base)?;
        sum = sum.checked_mul(u64::from(base))?.checked_add(u64::from(digit))?;
    }
    Some(if negative { sum.wrapping_neg() } else { sum })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::format;
    use std::string::{String, ToString};
    use std::vec::Vec;

    fn read_all(sources: &[Source<'_>]) -> (Options, Vec<String>, Outcome) {
        let mut options = Options::new();
        let mut lines = Vec::new();
        let outcome = parse(sources, &mut options, &mut |parts: &[&[u8]]| {
            lines.push(String::from_utf8_lossy(&parts.concat()).into_owned());
        });
        (options, lines, outcome)
    }

    fn read(text: &str) -> (Options, Vec<String>, Outcome) {
        read_all(&[Source { number: 4, what: "test", text: text.as_bytes() }])
    }

    fn lines(text: &str) -> Vec<String> {
        read(text).1
    }

    #[test]
    fn each_wrong_pair_has_its_line() {
        let long = "9".repeat(70);
        let cases: &[(&str, &[&str])] = &[
            ("", &[]),
            ("abort:true,abort:false", &[]),
            ("abc", &["Conf string ends with key -- abc"]),
            ("abc:", &["Invalid conf pair: abc:"]),
            (":", &["Invalid conf pair: :"]),
            (":x", &["Invalid conf pair: :x"]),
            ("narenas:1,", &["Conf string ends with comma -- narenas:1,"]),
            (",narenas:1", &["Malformed conf string -- ,narenas:1"]),
            ("narenas:1,,tcache:true", &["Malformed conf string -- ,tcache:true"]),
            ("na-renas:1,abort:maybe", &["Malformed conf string -- na-renas:1,abort:maybe"]),
            ("narenas: 3", &[]),
            ("narenas:+3", &[]),
            ("narenas:0x1f", &[]),
            ("narenas:010", &[]),
            ("narenas:default", &[]),
            ("narenas:0", &["Out-of-range conf value: narenas:0"]),
            ("narenas:-5", &["Reducing narenas to limit (4094)"]),
            ("narenas:4095", &["Reducing narenas to limit (4094)"]),
            ("narenas:4094", &[]),
            ("narenas:08", &["Invalid conf value: narenas:08"]),
            ("narenas:0x", &["Invalid conf value: narenas:0x"]),
            ("narenas:", &["Invalid conf value: narenas:"]),
            ("narenas:-", &["Invalid conf value: narenas:-"]),
            ("narenas:3 ", &["Invalid conf value: narenas:3 "]),
            ("narenas:99999999999999999999", &["Invalid conf value: narenas:99999999999999999999"]),
            ("narenas:1 ,x:2", &["Invalid conf value: narenas:1 ", "Invalid conf pair: x:2"]),
            ("tcache:TRUE", &["Invalid conf value: tcache:TRUE"]),
            ("tcache:true ", &["Invalid conf value: tcache:true "]),
            ("Tcache:true", &["Invalid conf pair: Tcache:true"]),
            ("dirty_decay_ms:-1", &[]),
            ("dirty_decay_ms:-2", &["Out-of-range conf value: dirty_decay_ms:-2"]),
            ("dirty_decay_ms:18446744072000", &[]),
            ("dirty_decay_ms:18446744072001", &["Out-of-range conf value: dirty_decay_ms:18446744072001"]),
            ("lg_prof_interval:64", &["Out-of-range conf value: lg_prof_interval:64"]),
            ("lg_prof_sample:64,tcache_max:1000000,prof_bt_max:0", &[]),
            ("zero_realloc:fre", &["Invalid conf value: zero_realloc:fre"]),
            ("junk:alloc,junk:free,junk:true,junk:false", &[]),
            ("prof_prefix:a:b:c,stats_prin", &["Conf string ends with key -- stats_prin"]),
            (
                "thp:sometimes,metadata_thp:auto,percpu_arena:percpu",
                &[
                    "Invalid conf value: thp:sometimes",
                    "Option has no effect here: metadata_thp:auto",
                    "Option has no effect here: percpu_arena:percpu",
                ],
            ),
            ("stats_print:true", &["Option has no effect here: stats_print:true"]),
            (&long, &[&format!("Conf string ends with key -- {}", "9".repeat(64))]),
        ];
        for (text, want) in cases {
            assert_eq!(lines(text), *want, "{text:?}");
        }
    }

    #[test]
    fn values_reach_their_fields() {
        let (options, lines, outcome) = read(
            "narenas:010,dirty_decay_ms:-1,muzzy_decay_ms:0x10,tcache:false,lg_tcache_max:12,junk:free,zero_realloc:alloc,\
             prof:true,lg_prof_sample:99,lg_prof_interval:30,prof_bt_max:1000,prof_prefix:/tmp/a b,xmalloc:true,abort:true,thp:a",
        );
        assert_eq!(lines, Vec::<String>::new());
        assert_eq!(outcome, Outcome::Continue);
        assert_eq!((options.narenas, options.dirty_decay_ms, options.muzzy_decay_ms), (8, -1, 16));
        assert_eq!((options.tcache, options.tcache_max), (false, 4096));
        assert_eq!((options.junk, options.zero_realloc), (Junk::Free, ZeroRealloc::Alloc));
        assert_eq!((options.prof, options.lg_prof_sample, options.lg_prof_interval), (true, 63, 30));
        assert_eq!(options.prof_bt_max as usize, jeprobe_abi::abi::MAX_FRAMES);
        assert_eq!(&options.prof_prefix[..10], b"/tmp/a b\0\0");
        assert!(options.xmalloc && options.abort);
        assert_eq!(options.thp, Thp::Always);
    }

    #[test]
    fn wrong_values_leave_the_default() {
        let (options, ..) =
            read("narenas:x,dirty_decay_ms:-9,zero_realloc:?,junk:1,tcache_max:k,lg_prof_sample:,prof:1");
        let default = Options::new();
        assert_eq!((options.narenas, options.dirty_decay_ms), (default.narenas, default.dirty_decay_ms));
        assert_eq!((options.zero_realloc, options.junk), (default.zero_realloc, default.junk));
        assert_eq!((options.tcache_max, options.lg_prof_sample), (default.tcache_max, default.lg_prof_sample));
        assert_eq!(options.prof, default.prof);
    }

    #[test]
    fn later_source_wins_and_a_shorter_prefix_replaces_a_longer() {
        let source = |text: &'static str| Source { number: 2, what: "x", text: text.as_bytes() };
        let (options, lines, _) = read_all(&[
            source("narenas:2,tcache:false,prof_prefix:longer"),
            source("zip"),
            source("narenas:3,prof_prefix:ab"),
        ]);
        assert_eq!((options.narenas, options.tcache), (3, false));
        assert_eq!(&options.prof_prefix[..7], b"ab\0\0\0\0\0");
        assert_eq!(lines, ["Conf string ends with key -- zip"]);
    }

    #[test]
    fn long_prefix_keeps_its_terminator() {
        let (options, ..) = read(&format!("prof_prefix:{}", "p".repeat(9000)));
        assert_eq!(options.prof_prefix[PREFIX_BYTES - 2], b'p');
        assert_eq!(options.prof_prefix[PREFIX_BYTES - 1], 0);
    }

    #[test]
    fn abort_conf_counts_errors_anywhere_but_not_tolerated_ones() {
        let abort = "Abort (abort_conf:true) on invalid conf value (see above).";
        let (_, lines, outcome) = read("zip:1,abort_conf:true,zap:2");
        assert_eq!(outcome, Outcome::Abort);
        assert_eq!(lines, ["Invalid conf pair: zip:1", "Invalid conf pair: zap:2", abort]);
        for text in ["abort_conf:true,", "abort_conf:true,x", "abort_conf:true,-", "abort_conf:true,narenas:0"] {
            let (_, lines, outcome) = read(text);
            assert_eq!((outcome, lines.len()), (Outcome::Abort, 2), "{text}");
            assert_eq!(lines[1], abort);
        }
        for text in ["abort_conf:true,experimental_x:1", "abort_conf:true,dss:primary", "abort_conf:true", "zip:1"] {
            assert_eq!(read(text).2, Outcome::Continue, "{text}");
        }
    }

    #[test]
    fn confirm_conf_prints_sources_and_accepted_pairs() {
        let (_, lines, _) = read_all(&[
            Source { number: 1, what: "first", text: b"" },
            Source { number: 4, what: "second", text: b"narenas:2,zip:3,dss:x,confirm_conf:true" },
        ]);
        assert_eq!(
            lines,
            [
                "malloc_conf #1 (first): \"\"",
                "malloc_conf #4 (second): \"narenas:2,zip:3,dss:x,confirm_conf:true\"",
                "-- Set conf value: narenas:2",
                "Invalid conf pair: zip:3",
                "Option has no effect here: dss:x",
                "-- Set conf value: confirm_conf:true",
            ]
        );
    }

    #[test]
    fn no_effect_keys_are_sorted_and_not_handled() {
        assert!(NO_EFFECT.is_sorted());
        for key in NO_EFFECT {
            assert!(apply(key, b"1", &mut Options::new()) == Verdict::NoEffect, "{key:?}");
        }
    }

    /// Every text of up to five characters of a small alphabet, and mutations of a long valid one: no panic, and each
    /// accepted pair or line accounts for the text.
    #[test]
    fn any_text_is_survived() {
        let alphabet = b"a1_:,-x \xff";
        let mut text = Vec::new();
        for length in 0..=5_u32 {
            for mut index in 0..alphabet.len().pow(length) {
                text.clear();
                for _ in 0..length {
                    text.push(alphabet[index % alphabet.len()]);
                    index /= alphabet.len();
                }
                let mut count = 0;
                let source = Source { number: 4, what: "x", text: &text };
                let _ = parse(&[source], &mut Options::new(), &mut |_: &[&[u8]]| count += 1);
                // None of these is a known key, so each text but the empty one has at least one complaint.
                assert_eq!(count == 0, text.is_empty(), "{text:?}");
            }
        }
        let valid =
            "narenas:2,dirty_decay_ms:5000,junk:true,prof_prefix:abc,lg_prof_sample:12,tcache_max:0x1000".to_string();
        let mut seed = 1_u64;
        for _ in 0..20_000 {
            let mut text = valid.clone().into_bytes();
            for _ in 0..3 {
                seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                let at = (seed >> 33) as usize % text.len();
                text[at] = (seed >> 20) as u8;
            }
            let source = Source { number: 4, what: "x", text: &text };
            let _ = parse(&[source], &mut Options::new(), &mut |_: &[&[u8]]| {});
        }
    }
}
