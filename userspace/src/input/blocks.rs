//! A text file in blocks of whole lines: parsed on all processors, taken in the file's order.
//!
//! ```text
//!          ┌─► worker 1: parse ─┐
//! blocks ──┤                    ├──► taken one after the other, first block first
//!          └─► this thread, while the next one to take is not parsed
//! ```
//!
//! A worker keeps a state of its own from block to block, and gets blocks in ascending order. At most `AHEAD` blocks per
//! thread are read ahead, so memory does not grow with the file. A file of one block starts no thread.
#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::io::{self, Read};
use std::num::NonZero;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

/// 64 MiB: a stack of the deepest profile is 5 KiB; more is a binary file taken for text.
pub(crate) const LONGEST: usize = 64 << 20;
/// 1 MiB: some thousand stacks, which with what is parsed of them fit a processor's own cache.
pub(crate) const BLOCK: usize = 1 << 20;
/// Blocks read ahead, per thread.
const AHEAD: usize = 4;
/// More threads than that wait for the one that takes.
const MOST_THREADS: usize = 8;

/// Whole lines.
#[derive(Debug, Default)]
pub struct Block {
    pub bytes: Vec<u8>,
    /// Offset of the first byte in the file.
    pub byte: u64,
}

/// Cuts a file into blocks.
struct Cutter<R> {
    input: R,
    /// Bytes of a block, but for what a line takes more.
    size: usize,
    /// The beginning of a line whose end was not read yet.
    rest: Vec<u8>,
    byte: u64,
    is_done: bool,
}

impl<R: Read> Cutter<R> {
    /// Fills `buffer`, whose content is of no more use, with the next block.
    fn next(&mut self, mut buffer: Vec<u8>) -> io::Result<Option<Block>> {
        if self.is_done {
            return Ok(None);
        }
        buffer.clear();
        buffer.append(&mut self.rest);
        loop {
            let before = buffer.len();
            let wanted = self.size.saturating_sub(before).max(self.size / 4).max(1);
            buffer.reserve(wanted);
            self.input.by_ref().take(wanted as u64).read_to_end(&mut buffer)?;
            if buffer.len() - before < wanted {
                self.is_done = true;
                break;
            }
            if let Some(end) = memchr::memrchr(b'\n', &buffer[before..]) {
                self.rest.extend_from_slice(&buffer[before + end + 1..]);
                buffer.truncate(before + end + 1);
                break;
            }
            if buffer.len() > LONGEST {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "a line longer than 64 MiB"));
            }
        }
        let byte = self.byte;
        self.byte += buffer.len() as u64;
        Ok((!buffer.is_empty()).then_some(Block { bytes: buffer, byte }))
    }
}

/// Where a block is on its way.
enum Stage<T> {
    Waiting(Block),
    /// Parsed by some thread, or taken already.
    Begun,
    Parsed(Block, T),
}

struct Slot<T> {
    stage: Mutex<Stage<T>>,
    parsed: Condvar,
}

/// What workers do next; `None` at the end: nothing more comes.
struct Queue<T> {
    slots: Mutex<(VecDeque<Arc<Slot<T>>>, bool)>,
    more: Condvar,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T> Queue<T> {
    fn put(&self, slot: Arc<Slot<T>>) {
        lock(&self.slots).0.push_back(slot);
        self.more.notify_one();
    }

    fn next(&self) -> Option<Arc<Slot<T>>> {
        let mut slots = lock(&self.slots);
        loop {
            if let Some(slot) = slots.0.pop_front() {
                return Some(slot);
            }
            if slots.1 {
                return None;
            }
            slots = self.more.wait(slots).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// What nobody began, without waiting for more.
    fn next_now(&self) -> Option<Arc<Slot<T>>> {
        lock(&self.slots).0.pop_front()
    }

    /// Ends all workers, after the block they are at.
    fn close(&self) {
        let mut slots = lock(&self.slots);
        slots.0.clear();
        slots.1 = true;
        self.more.notify_all();
    }
}

/// Closes the queue however the thread that fills it ends.
struct Closes<'a, T>(&'a Queue<T>);

impl<T> Drop for Closes<'_, T> {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Parses `input`, whose first byte is `byte` bytes into the file, in blocks of `size` bytes. `state` makes the state of the worker of a number;
/// `take` gets what was parsed, in the file's order.
pub(crate) fn in_order<S, T: Send, E>(
    (input, byte): (impl Read, u64),
    size: usize,
    state: impl Fn(usize) -> S + Sync,
    parse: impl Fn(&mut S, &Block) -> T + Sync,
    failed: impl Fn(io::Error) -> E,
    mut take: impl FnMut(&Block, T) -> Result<(), E>,
) -> Result<(), E> {
    let mut cutter = Cutter { input, size, rest: Vec::new(), byte, is_done: false };
    let mut own = state(0);
    let Some(first) = cutter.next(Vec::new()).map_err(&failed)? else { return Ok(()) };
    // Looking for the number of processors takes longer than reading a small file.
    let processors = || thread::available_parallelism().map_or(1, NonZero::get).min(MOST_THREADS);
    let threads = if cutter.is_done { 1 } else { processors() };
    if threads == 1 {
        let mut next = Some(first);
        while let Some(block) = next {
            let parsed = parse(&mut own, &block);
            take(&block, parsed)?;
            next = cutter.next(block.bytes).map_err(&failed)?;
        }
        return Ok(());
    }
    let queue = Queue { slots: Mutex::new((VecDeque::new(), false)), more: Condvar::new() };
    thread::scope(|scope| {
        let _closes = Closes(&queue);
        for number in 1..threads {
            let (queue, state, parse) = (&queue, &state, &parse);
            // With fewer threads this one does more.
            let _fewer = thread::Builder::new().spawn_scoped(scope, move || work(queue, state(number), parse));
        }
        let mut ahead: VecDeque<Arc<Slot<T>>> = VecDeque::new();
        let mut spare: Vec<Vec<u8>> = Vec::new();
        let mut next = Some(first);
        loop {
            while ahead.len() < AHEAD * threads
                && let Some(block) = next.take()
            {
                let slot = Arc::new(Slot { stage: Mutex::new(Stage::Waiting(block)), parsed: Condvar::new() });
                ahead.push_back(slot.clone());
                queue.put(slot);
                next = cutter.next(spare.pop().unwrap_or_default()).map_err(&failed)?;
            }
            let Some(slot) = ahead.pop_front() else { return Ok(()) };
            let (block, parsed) = finish(&slot, &queue, &mut own, &parse);
            take(&block, parsed)?;
            spare.push(block.bytes);
        }
    })
}

fn work<S, T>(queue: &Queue<T>, mut state: S, parse: &impl Fn(&mut S, &Block) -> T) {
    while let Some(slot) = queue.next() {
        begin(&slot, &mut state, parse);
    }
}

/// Parses the block of a slot, when nobody has begun.
fn begin<S, T>(slot: &Slot<T>, own: &mut S, parse: &impl Fn(&mut S, &Block) -> T) {
    let block = {
        let mut stage = lock(&slot.stage);
        match std::mem::replace(&mut *stage, Stage::Begun) {
            Stage::Waiting(block) => block,
            other => {
                *stage = other;
                return;
            }
        }
    };
    let parsed = parse(own, &block);
    *lock(&slot.stage) = Stage::Parsed(block, parsed);
    slot.parsed.notify_one();
}

/// A block and what was parsed of it. While another thread is at it, this one parses those behind it.
fn finish<S, T>(slot: &Slot<T>, queue: &Queue<T>, own: &mut S, parse: &impl Fn(&mut S, &Block) -> T) -> (Block, T) {
    loop {
        begin(slot, own, parse);
        let mut stage = lock(&slot.stage);
        match std::mem::replace(&mut *stage, Stage::Begun) {
            Stage::Parsed(block, parsed) => return (block, parsed),
            other => *stage = other,
        }
        drop(stage);
        if let Some(other) = queue.next_now() {
            begin(&other, own, parse);
            continue;
        }
        let is_begun = |stage: &mut Stage<T>| matches!(stage, Stage::Begun);
        drop(slot.parsed.wait_while(lock(&slot.stage), is_begun).unwrap_or_else(PoisonError::into_inner));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &[u8]) -> Result<Vec<(u64, usize)>, String> {
        let mut taken = Vec::new();
        in_order(
            (text, 7),
            BLOCK,
            |_| 0_u32,
            |_, block| memchr::memchr_iter(b'\n', &block.bytes).count(),
            |error| error.to_string(),
            |block, lines| {
                assert!(block.bytes.ends_with(b"\n") || block.byte + block.bytes.len() as u64 == 7 + text.len() as u64);
                taken.push((block.byte, lines));
                Ok(())
            },
        )?;
        Ok(taken)
    }

    #[test]
    fn blocks_end_with_lines_and_come_in_order() {
        let mut text = Vec::new();
        for number in 0..400_000 {
            text.extend_from_slice(format!("line {number}\n").as_bytes());
        }
        text.extend_from_slice(b"without end");
        let taken = lines(&text).expect("memory");
        assert!(taken.len() > 4 && taken.is_sorted_by_key(|(byte, _)| *byte), "{taken:?}");
        assert_eq!(taken[0].0, 7);
        assert_eq!(taken.iter().map(|(_, lines)| lines).sum::<usize>(), 400_000);
        assert_eq!(lines(b"").expect("empty"), []);
        assert_eq!(lines(b"x").expect("a line"), [(7, 0)]);
    }

    #[test]
    fn lines_longer_than_a_block_stay_whole() {
        let long = [vec![b'a'; 3 * BLOCK], b"\nb\n".to_vec()].concat();
        assert_eq!(lines(&long).expect("memory").iter().map(|(_, lines)| lines).sum::<usize>(), 2);
        assert!(lines(&vec![b'a'; LONGEST + 2 * BLOCK]).is_err());
    }

    #[test]
    fn an_error_ends_everything() {
        let text = "x\n".repeat(4 << 20);
        let mut left = 3;
        let result = in_order(
            (text.as_bytes(), 0),
            BLOCK,
            |_| (),
            |(), block| block.bytes.len(),
            |_| 0,
            |_, _| {
                left -= 1;
                if left == 0 { Err(1) } else { Ok(()) }
            },
        );
        assert_eq!(result, Err(1));
    }
}
