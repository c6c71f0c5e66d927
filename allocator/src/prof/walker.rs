//! The unwinder and what it knows of the modules: walkers that take a step or find a rule, and the snapshot that they read.
//!
//! ```text
//!  WALKERS: a few, each an unwinder's cache, a stack and a buffer for /proc, behind a lock of its own
//!  CURRENT ─► Snapshot (modules, unwinder)          replaced by `refresh`, read only while holding a walker
//! ```
//!
//! I-WALK-1: a snapshot is freed only after every walker's lock was taken once since it was replaced, so no walk still
//! reads it.
//!
//! Walkers are made at boot with `opt.prof`, else by the walk that finds none free; those that nobody needs for a while are
//! let go, and so are the pages of the tables. All of this runs on stacks of its own: a thread of 16 KiB has no room for it.

extern crate alloc;

use crate::prim::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use alloc::boxed::Box;
use core::ops::Range;

use framehop::{CacheNative, FrameAddress, MustNotAllocateDuringUnwind, UnwindRegsNative, Unwinder};

use super::maps;
use super::modules::{self, Snapshot};
use super::records::jeprobe_root;
use super::rule::{self, Key, Registers, Rule, Seen, Step};
use super::way::Words;
use crate::sync::mutex::{Guard, Mutex};
use crate::sync::rank::Rank;
use crate::sys;
use crate::sys::stack::{LargeStack, on_large_stack};

/// Walkers: more only help when more threads than this sample at the same moment. One takes about 50 KiB.
const SLOTS: usize = 8;
/// Least time between two looks at the mappings, ns; doubled, up to the other, each time nothing had changed. A look
/// takes 0.1 to 0.3 ms with a hundred libraries: at most a few percent of one thread while libraries come in, and
/// below one in a thousand in a program whose stacks never end well.
const REFRESH_NS: u64 = 10_000_000;
const MAX_REFRESH_NS: u64 = 1_000_000_000;
/// Log2 of the bytes of code by which it is remembered where there is no module.
const LG_STRANGE: u32 = 21;
/// Time after which they are looked at without any doubt, ns. A library that came to the place of another may be walked by
/// the wrong tables without an error; this is for how long.
const ROUTINE_NS: u64 = 1_000_000_000;

/// Time after the last use of a walker at which they and the pages of the tables are let go, ns: the rules that were
/// found serve most walks. Beginning anew takes some 20 us.
const IDLE_NS: u64 = 20_000_000;

pub(super) struct Walker {
    /// The walk runs here: decoding a table takes several KiB, more than a small thread can spare.
    stack: LargeStack,
    inner: Inner,
}

struct Inner {
    cache: CacheNative<MustNotAllocateDuringUnwind>,
    buf: [u8; maps::LINE_BYTES],
}

static WALKERS: [Mutex<Option<Box<Walker>>>; SLOTS] = [const { Mutex::new(Rank::ProfUnwind, None) }; SLOTS];

/// Written under `REFRESH`.
static CURRENT: AtomicPtr<Snapshot> = AtomicPtr::new(core::ptr::null_mut());
static REFRESH: Mutex<u64> = Mutex::new(Rank::ProfModules, REFRESH_NS);
/// Thread that holds `REFRESH` to read the modules: an allocation it makes meanwhile must not wait for itself.
static REFRESHER: AtomicU32 = AtomicU32::new(0);
static NEXT_REFRESH_NS: AtomicU64 = AtomicU64::new(0);
/// The allocator's code, where it is a library of its own.
static OWN_START: AtomicU64 = AtomicU64::new(0);
static OWN_BYTES: AtomicU64 = AtomicU64::new(u64::MAX);
static ROUTINE_REFRESH_NS: AtomicU64 = AtomicU64::new(0);
/// When the walkers are let go; `u64::MAX` when there is nothing to let go.
static IDLE_AT_NS: AtomicU64 = AtomicU64::new(u64::MAX);
/// Number of the set of modules in `CURRENT`; the rules of other sets are not used.
static GENERATION: AtomicU64 = AtomicU64::new(0);

/// A walker of which this thread is the only user, made now if none is free.
pub(super) fn take_walker() -> Option<Guard<'static, Option<Box<Walker>>>> {
    // Relaxed: whoever stores last, the time is about right.
    IDLE_AT_NS.store(sys::clock_recent_ns() + IDLE_NS, Ordering::Relaxed);
    let mut blank = None;
    for slot in &WALKERS {
        if let Some(guard) = slot.try_lock() {
            if guard.is_some() {
                return Some(guard);
            }
            blank = Some(slot);
            break;
        }
    }
    let slot = if let Some(slot) = blank {
        slot
    } else {
        // All are busy. The first is tried first by everyone, so it is held for the shortest times.
        let guard = WALKERS[0].lock();
        if guard.is_some() {
            return Some(guard);
        }
        &WALKERS[0]
    };
    let walker = on_large_stack(new_walker)??;
    let mut guard = slot.lock();
    if guard.is_none() {
        *guard = Some(walker);
    }
    Some(guard)
}

/// Lets walkers and tables go that nobody used for a while. No lock is held.
#[inline]
pub(crate) fn tidy(now_ns: u64) {
    if now_ns >= IDLE_AT_NS.load(Ordering::Relaxed) {
        tidy_slow();
    }
}

#[cold]
#[inline(never)]
fn tidy_slow() {
    IDLE_AT_NS.store(u64::MAX, Ordering::Relaxed);
    for (i, slot) in WALKERS.iter().enumerate() {
        let Some(mut guard) = slot.try_lock() else { continue };
        let walker = guard.take();
        if i == 0 {
            // SAFETY: I-WALK-1: this slot's lock is held since before the load and until after the last use.
            if let Some(snapshot) = unsafe { CURRENT.load(Ordering::Acquire).as_ref() } {
                snapshot.let_go();
            }
        }
        drop(guard);
        // Gives memory back: with no lock held.
        drop(walker);
    }
}

/// Needs more stack than a small thread has: the parts are built there before they move to their place.
fn new_walker() -> Option<Box<Walker>> {
    let inner = Inner { cache: CacheNative::new_in(), buf: [0; maps::LINE_BYTES] };
    Some(Box::new(Walker { stack: LargeStack::new()?, inner }))
}

impl Walker {
    /// Runs `act` with the buffer for /proc, on the walker's stack.
    pub(super) fn with_buffer(&mut self, act: impl FnOnce(&mut [u8])) {
        let buf = &mut self.inner.buf;
        self.stack.run(|| act(buf));
    }

    /// Calls `act` with the frames that the unwinder finds from `first` on, `max` at most, as `Trace::frames` gives them;
    /// true when there would have been more.
    pub(super) fn walk(&mut self, first: Registers, words: &impl Words, max: usize, act: impl FnMut(u64)) -> bool {
        let inner = &mut self.inner;
        self.stack.run(|| inner.walk(first, words, max, act))
    }

    pub(super) fn find_rule(&mut self, key: Key) -> Option<Rule> {
        let inner = &mut self.inner;
        self.stack.run(|| inner.find_rule(key))
    }

    pub(super) fn step(&mut self, registers: Registers, first: bool, words: &impl Words) -> Step {
        let inner = &mut self.inner;
        self.stack.run(|| inner.step(registers, first, |addr| words.read(addr)))
    }
}

/// The snapshot in force. Caller holds a walker.
fn snapshot(_walker: &Inner) -> Option<&Snapshot> {
    // SAFETY: I-WALK-1: the caller holds a walker since before the load, so the snapshot is not freed before it lets go
    // of it.
    unsafe { CURRENT.load(Ordering::Acquire).as_ref() }
}

impl Inner {
    fn find_rule(&mut self, key: Key) -> Option<Rule> {
        let pc = key.pc();
        let (generation, doubtful) = {
            let snapshot = snapshot(self)?;
            // A walk by frame pointers looks whole even where it is not.
            (snapshot.generation, snapshot.find(key.place()).is_none_or(|module| !module.has_tables()))
        };
        let rule = rule::derive(|sp, bp| {
            let mut reads = 0;
            let outcome = self.step(Registers { pc, sp, bp }, key.is_first(), |addr| {
                reads += 1;
                Some(rule::pretended_word(addr))
            });
            Seen { outcome, reads }
        });
        let rule = rule.marked(doubtful);
        rule::learn(key, generation, rule);
        Some(rule)
    }

    /// One frame by the unwinder.
    fn step(&mut self, at: Registers, first: bool, mut read: impl FnMut(u64) -> Option<u64>) -> Step {
        // SAFETY: I-WALK-1: as in `snapshot`; the reference does not outlive this call, during which the walker is held.
        let Some(snapshot) = (unsafe { CURRENT.load(Ordering::Acquire).as_ref() }) else { return Step::Broken };
        let address = if first {
            FrameAddress::from_instruction_pointer(at.pc)
        } else {
            match FrameAddress::from_return_address(at.pc) {
                Some(address) => address,
                None => return Step::Broken,
            }
        };
        let mut regs = UnwindRegsNative::new(at.pc, at.sp, at.bp);
        let mut read = |addr| read(addr).ok_or(());
        match snapshot.unwinder.unwind_frame(address, &mut regs, &mut self.cache, &mut read) {
            Ok(Some(0)) | Err(_) => Step::Broken,
            Ok(Some(pc)) => Step::Caller(Registers { pc, sp: regs.sp(), bp: regs.bp() }),
            Ok(None) => Step::End,
        }
    }
}

impl Inner {
    /// Calls `act` with the frames as `Trace::frames` gives them; true when there would have been more.
    fn walk(&mut self, first: Registers, words: &impl Words, max: usize, mut act: impl FnMut(u64)) -> bool {
        let own = own_text();
        let (mut at, mut key) = (first, Key::first(first.pc));
        let mut depth = 0;
        loop {
            match self.step(at, key.is_first(), |addr| words.read(addr)) {
                Step::Caller(caller) => at = caller,
                Step::End => return false,
                Step::Broken => return true,
            }
            key = Key::caller(at.pc);
            if depth == 0 && own.contains(&at.pc) {
                continue;
            }
            if depth == max {
                return true;
            }
            act(if depth == 0 { at.pc - 1 } else { at.pc });
            depth += 1;
        }
    }
}

/// As [`generation`]; while there are none a number that none has.
#[inline(always)]
pub(super) fn generation_word() -> u64 {
    // Acquire: pairs with the Release in `refresh`: the modules of this generation, or later ones, are in `CURRENT`.
    GENERATION.load(Ordering::Acquire)
}

/// The generation of the modules; `None` while there are none.
pub(super) fn generation() -> Option<u64> {
    Some(generation_word()).filter(|generation| *generation != 0)
}

/// True before the modules were read for the first time.
#[inline(always)]
pub(super) fn knows_nothing() -> bool {
    CURRENT.load(Ordering::Relaxed).is_null()
}

/// When the modules may be read again, ns.
#[inline(always)]
pub(super) fn next_refresh_ns() -> u64 {
    NEXT_REFRESH_NS.load(Ordering::Relaxed)
}

/// When the modules are to be read again in any case, ns.
#[inline(always)]
pub(super) fn routine_refresh_ns() -> u64 {
    ROUTINE_REFRESH_NS.load(Ordering::Relaxed)
}

/// Code that was in no module although these had just been read: made at run time, or of a library that is gone. By place,
/// 0 = none; a place of its own for each that `STRANGE` has room for.
static STRANGE: [AtomicU64; 16] = [const { AtomicU64::new(0) }; 16];

fn strange(pc: u64) -> &'static AtomicU64 {
    let hash = (pc >> LG_STRANGE).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    &STRANGE[(hash >> 60) as usize % STRANGE.len()]
}

/// True for code in no module of the snapshot, of which the modules were not asked yet: most likely a library that just
/// came.
pub(super) fn is_news(pc: u64) -> bool {
    if strange(pc).load(Ordering::Relaxed) == pc >> LG_STRANGE {
        return false;
    }
    let Some(slot) = take_walker() else { return false };
    slot.as_ref().and_then(|walker| snapshot(&walker.inner)).is_some_and(|snapshot| snapshot.find(pc).is_none())
}

/// The modules were read, and the code is in none of them.
pub(super) fn note_strange(pc: u64) {
    // Relaxed: a hint.
    strange(pc).store(pc >> LG_STRANGE, Ordering::Relaxed);
}

/// Reads the modules again and replaces the snapshot when they changed; false when another thread is at it. With `wait`,
/// waits for that one. Caller holds no slot.
pub(crate) fn refresh(wait: bool) -> bool {
    let tid = sys::gettid();
    // Relaxed: only the thread's own id matters, which only it stores.
    if REFRESHER.load(Ordering::Relaxed) == tid {
        return false;
    }
    let mut pause = match REFRESH.try_lock() {
        Some(pause) => pause,
        None if wait => REFRESH.lock(),
        None => return false,
    };
    REFRESHER.store(tid, Ordering::Relaxed);
    let old = CURRENT.load(Ordering::Acquire);
    // SAFETY: only the holder of `REFRESH` frees or replaces it.
    let last = unsafe { old.as_ref() };
    match on_large_stack(|| modules::read(last)).flatten() {
        Some(new) => {
            *pause = REFRESH_NS;
            set_own_text(&new);
            let generation = new.generation;
            // Release: pairs with the Acquire in `snapshot`.
            CURRENT.store(Box::into_raw(Box::new(new)), Ordering::Release);
            // Release: pairs with the Acquire in `generation`.
            GENERATION.store(generation, Ordering::Release);
            if !old.is_null() {
                for slot in &WALKERS {
                    drop(slot.lock());
                }
                // SAFETY: I-WALK-1: made by `Box::into_raw` above, replaced above, and every slot was free once since.
                drop(unsafe { Box::from_raw(old) });
            }
        }
        None => *pause = (*pause * 2).min(MAX_REFRESH_NS),
    }
    let next_ns = sys::clock_monotonic_ns() + *pause;
    NEXT_REFRESH_NS.store(next_ns, Ordering::Relaxed);
    ROUTINE_REFRESH_NS.store(next_ns + ROUTINE_NS, Ordering::Relaxed);
    REFRESHER.store(0, Ordering::Relaxed);
    true
}

/// Tells readers which code is the allocator's, when it is a library of its own, or that there is none to tell apart.
fn set_own_text(snapshot: &Snapshot) {
    let here = refresh as *const () as u64;
    // SAFETY: reads the auxiliary vector.
    let program = unsafe { libc::getauxval(libc::AT_ENTRY) };
    let Some(own) = snapshot.find(here) else { return };
    if own.range.contains(&program) {
        // Entry points know who called them; frames of those that do not are part of the stacks.
        OWN_BYTES.store(0, Ordering::Relaxed);
        return;
    }
    OWN_START.store(own.range.start, Ordering::Relaxed);
    // Release: after the start.
    OWN_BYTES.store(own.range.end - own.range.start, Ordering::Release);
    jeprobe_root.text_start.store(own.range.start, Ordering::Relaxed);
    jeprobe_root.text_end.store(own.range.end, Ordering::Relaxed);
}

/// True for a return address in the program, false when that is not known. Where the allocator is no library of its own any
/// address that an entry point found is taken for the program's.
#[inline(always)]
pub(super) fn is_in_program(pc: u64) -> bool {
    // Acquire: with the length goes the start. It is read first: a plain load on x86-64.
    let bytes = OWN_BYTES.load(Ordering::Acquire);
    pc != 0 && pc.wrapping_sub(OWN_START.load(Ordering::Relaxed)) >= bytes
}

/// Addresses of the allocator's code; empty when it is not a library of its own.
pub(super) fn own_text() -> Range<u64> {
    jeprobe_root.text_start.load(Ordering::Relaxed)..jeprobe_root.text_end.load(Ordering::Relaxed)
}

/// Makes the first walker and snapshot ahead of the first sample.
pub(crate) fn prepare() {
    refresh(true);
    drop(take_walker());
}

/// Calls `act` with each module. Keeps the modules from being read again meanwhile.
pub(crate) fn with_modules(act: impl FnOnce(&[modules::ModuleInfo])) {
    let _pause = REFRESH.lock();
    // SAFETY: only the holder of `REFRESH` frees or replaces it.
    if let Some(snapshot) = unsafe { CURRENT.load(Ordering::Acquire).as_ref() } {
        act(&snapshot.modules);
    }
}

pub(crate) fn prefork() {
    REFRESH.lock_for_fork();
    for slot in &WALKERS {
        slot.lock_for_fork();
    }
}

pub(crate) fn postfork_parent() {
    for slot in &WALKERS {
        slot.unlock_for_fork();
    }
    REFRESH.unlock_for_fork();
}

pub(crate) fn postfork_child() {
    for slot in &WALKERS {
        slot.reset_in_child();
    }
    REFRESH.reset_in_child();
}
