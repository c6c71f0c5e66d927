//! The body of a large `heap_v2` file, parsed on all processors.
//!
//! ```text
//!  workers       lines of a block ──► steps      addresses read, counts unbiased
//!  this thread   steps, in the file's order ──► profile
//! ```
//!
//! Only what a sound file holds is taken. Anything else gives nothing, and the file is read again line by line, by the reader
//! that says what is wrong and where.
#![forbid(unsafe_code)]

use memchr::memchr;

use super::blocks::{BLOCK, Block, in_order};
use super::counts::thread_line;
use super::lines::{is_map_title, stack_addresses};
use crate::estimate::Sampling;
use crate::model::{Profile, StackId, Thread, ThreadUid, Values};
use crate::units::SampleInterval;

/// 8 MiB: for less it is not worth the threads.
pub(super) const LEAST: usize = 8 << 20;

/// A stack of three frames with its counts; files of shorter ones find less room made than they need.
const LEAST_STACK_BYTES: usize = 64;

/// What was read.
pub(super) struct Body {
    pub(super) profile: Profile,
    /// Of the body and of the title of the mappings.
    pub(super) bytes: usize,
    pub(super) lines: u64,
}

/// What one line says.
enum Step {
    /// A stack of so many frames.
    Stack(u32),
    Total(Values),
    Share(ThreadUid, Values),
    Named(ThreadUid, String),
}

/// One block.
#[derive(Default)]
struct Parsed {
    steps: Vec<Step>,
    /// Of its stacks, one after the other.
    frames: Vec<u64>,
    lines: u64,
    /// Bytes up to the end of the title of the mappings.
    end: Option<usize>,
    is_sound: bool,
}

/// Why reading stops before the end of the file.
enum Stop {
    Unsound,
    AtTitle,
}

/// Reads the part before the mappings; `None` when it is small, has no end or is not sound. `release` gets what is not needed any
/// more if the part is sound.
pub(super) fn read(bytes: &[u8], interval: SampleInterval, release: &dyn Fn(&[u8])) -> Option<Body> {
    if bytes.len() < LEAST {
        return None;
    }
    let mut body = Body { profile: Profile::new(interval), bytes: 0, lines: 0 };
    let mut state = State { current: None, is_counted: true };
    let sampling = Sampling::Poisson(interval);
    let parse = |stack: &mut Vec<u64>, block: &Block| parse(&block.bytes, sampling, stack);
    let take = |block: &Block, parsed: Parsed| {
        if !parsed.is_sound || !state.apply(&parsed, &mut body.profile) {
            return Err(Stop::Unsound);
        }
        body.lines += parsed.lines;
        let start = block.byte as usize;
        release(&bytes[start..start + block.bytes.len()]);
        if start == 0 {
            // The others are taken to be like the first.
            let all =
                |count: usize| (count * (bytes.len() / block.bytes.len().max(1))).min(bytes.len() / LEAST_STACK_BYTES);
            body.profile.reserve(all(body.profile.stack_count()), all(body.profile.shares().len()));
        }
        match parsed.end {
            None => Ok(()),
            Some(end) => {
                body.bytes = block.byte as usize + end;
                Err(Stop::AtTitle)
            }
        }
    };
    let stopped = in_order((bytes, 0), BLOCK, |_| Vec::new(), parse, |_| Stop::Unsound, take);
    (matches!(stopped, Err(Stop::AtTitle)) && state.is_counted).then_some(body)
}

fn parse(bytes: &[u8], sampling: Sampling, stack: &mut Vec<u64>) -> Parsed {
    let mut parsed = Parsed { is_sound: true, ..Parsed::default() };
    let mut rest = bytes;
    while !rest.is_empty() {
        let end = memchr(b'\n', rest).unwrap_or(rest.len());
        let line = rest[..end].trim_ascii();
        rest = rest.get(end + 1..).unwrap_or_default();
        parsed.lines += 1;
        if is_map_title(line) {
            parsed.end = Some(bytes.len() - rest.len());
            break;
        }
        if !line.is_empty() && parsed.line(line, sampling, stack).is_none() {
            parsed.is_sound = false;
            break;
        }
    }
    parsed
}

impl Parsed {
    /// `None` for lines that are not of a sound body.
    fn line(&mut self, line: &[u8], sampling: Sampling, stack: &mut Vec<u64>) -> Option<()> {
        if let Some(text) = line.strip_prefix(b"@") {
            stack_addresses(text, stack).ok()?;
            self.frames.extend_from_slice(stack);
            self.steps.push(Step::Stack(u32::try_from(stack.len()).ok()?));
            return Some(());
        }
        let counts = thread_line(Some(line).filter(|line| line.starts_with(b"t"))?).ok()?;
        let values = counts.pairs.unbias(sampling);
        self.steps.push(match counts.thread {
            None if counts.name.is_empty() => Step::Total(values),
            None => return None,
            Some(uid) if counts.name.is_empty() => Step::Share(uid, values),
            Some(uid) => Step::Named(uid, String::from_utf8_lossy(counts.name).into_owned()),
        });
        Some(())
    }
}

/// Between two lines.
struct State {
    /// The stack that counts belong to.
    current: Option<StackId>,
    /// Its `t*` line was there.
    is_counted: bool,
}

impl State {
    /// False when the steps are not of a sound body.
    fn apply(&mut self, parsed: &Parsed, profile: &mut Profile) -> bool {
        let mut frames = parsed.frames.as_slice();
        for step in &parsed.steps {
            match (step, self.current) {
                (Step::Stack(_), _) if !self.is_counted => return false,
                (Step::Stack(length), _) => {
                    let (stack, rest) = frames.split_at(*length as usize);
                    frames = rest;
                    self.current = Some(profile.add_total(stack, Values::default()));
                    self.is_counted = false;
                }
                (Step::Total(_), None) => {}
                (Step::Total(values), Some(id)) => {
                    self.is_counted = true;
                    profile.add_to(id, *values);
                }
                (Step::Share(uid, values), Some(id)) => profile.add_share(id, *uid, *values),
                (Step::Share(uid, _), None) => profile.add_thread(*uid, Thread::default()),
                (Step::Named(uid, name), None) => {
                    profile.add_thread(*uid, Thread { name: name.clone(), ..Thread::default() });
                }
                (Step::Named(..), Some(_)) => return false,
            }
        }
        true
    }
}
