//! Walks the calling thread's stack into a fixed buffer, by unwind tables, with frame pointers where there are none.
//! No allocation and no lock that the program or its libraries could hold.
//!
//! ```text
//!  SLOTS: a few walkers, each a rule cache, a buffer of frames and one for /proc, behind a lock of its own
//!  CURRENT ─► Snapshot (modules, unwinder)          replaced by `refresh`, read only while holding a slot
//! ```
//!
//! I-WALK-1: a snapshot is freed only after every slot's lock was taken once since it was replaced, so no walk still
//! reads it. I-WALK-2: stack memory is read only between the stack pointer and the end of the mapping that holds it,
//! cut at the thread's own control block; a broken frame ends the walk.
//!
//! When a walk meets code that the snapshot does not know, the modules are read again, rate limited, outside the walk,
//! and the stack is walked once more. Walkers are made at boot with `opt.prof`, else at the first sample that finds
//! none free. All of this runs on stacks of its own: a thread of 16 KiB has no room for it.

extern crate alloc;

use crate::prim::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use alloc::boxed::Box;
use core::arch::asm;
use core::ops::{ControlFlow, Range};

use framehop::{CacheNative, FrameAddress, MustNotAllocateDuringUnwind, UnwindRegsNative, Unwinder};
use jeprobe_abi::abi::MAX_FRAMES;

use super::maps;
use super::modules::{self, Snapshot};
use super::records::jeprobe_root;
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
/// Time between two looks without any doubt, ns. A library that came to the place of another may be walked by the wrong
/// tables without an error; this is for how long.
const ROUTINE_NS: u64 = 1_000_000_000;

struct Walker {
    /// The walk runs here: decoding a table takes several KiB, more than a small thread can spare.
    stack: LargeStack,
    inner: Inner,
}

struct Inner {
    cache: CacheNative<MustNotAllocateDuringUnwind>,
    /// Shape [u64; 127], valid ..len, leaf first; unit avma.
    frames: [u64; MAX_FRAMES],
    buf: [u8; maps::LINE_BYTES],
}

static WALKERS: [Mutex<Option<Box<Walker>>>; SLOTS] = [const { Mutex::new(Rank::ProfUnwind, None) }; SLOTS];

/// Written under `REFRESH`.
static CURRENT: AtomicPtr<Snapshot> = AtomicPtr::new(core::ptr::null_mut());
static REFRESH: Mutex<u64> = Mutex::new(Rank::ProfModules, REFRESH_NS);
/// Thread that holds `REFRESH` to read the modules: an allocation it makes meanwhile must not wait for itself.
static REFRESHER: AtomicU32 = AtomicU32::new(0);
static NEXT_REFRESH_NS: AtomicU64 = AtomicU64::new(0);

/// The stack that a thread was last seen on: addresses `low..high` are mapped as long as the thread runs there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stack {
    low: u64,
    high: u64,
}

impl Stack {
    pub(crate) const UNKNOWN: Stack = Stack { low: 0, high: 0 };
}

/// Registers at the place of a walk's beginning.
#[derive(Clone, Copy)]
struct Registers {
    pc: u64,
    sp: u64,
    fp: u64,
}

impl Registers {
    #[inline]
    fn here() -> Registers {
        let (pc, sp, fp): (u64, u64, u64);
        // SAFETY: reads registers only.
        unsafe {
            asm!("lea {0}, [rip]", "mov {1}, rsp", "mov {2}, rbp", out(reg) pc, out(reg) sp, out(reg) fp,
                 options(nomem, nostack, preserves_flags));
        }
        Registers { pc, sp, fp }
    }
}

/// The program's own registers as they are right after its call into the allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    /// Return address of the call.
    pub(crate) ip: u64,
    pub(crate) bp: u64,
}

/// What a walk found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Walked {
    depth: usize,
    truncated: bool,
    /// The modules may have changed.
    doubtful: bool,
}

/// Walks the stack and hands its frames to `act`, leaf first, without the allocator's own frames when it is a library of
/// its own. All are return addresses, but the leaf, which is the last byte of the call. The flag says that the walk
/// ended before the outermost frame. `None` without a walker.
#[inline(never)]
pub(crate) fn with_stack<R>(stack: &mut Stack, now_ns: u64, act: impl FnOnce(&[u64], bool) -> R) -> Option<R> {
    let registers = Registers::here();
    let max = (jeprobe_root.max_frames.load(Ordering::Relaxed) as usize).clamp(1, MAX_FRAMES);
    if CURRENT.load(Ordering::Relaxed).is_null() {
        // Without a snapshot there is no stack at all: worth waiting for.
        refresh(true);
    } else if now_ns >= NEXT_REFRESH_NS.load(Ordering::Relaxed).saturating_add(ROUTINE_NS) {
        refresh(false);
    }
    let mut slot = take_walker()?;
    let mut walked = slot.as_mut().map(|walker| walker.walk(stack, registers, max))?;
    if walked.doubtful && now_ns >= NEXT_REFRESH_NS.load(Ordering::Relaxed) {
        drop(slot);
        refresh(false);
        slot = take_walker()?;
        walked = slot.as_mut().map(|walker| walker.walk(stack, registers, max))?;
    }
    let frames = slot.as_ref().and_then(|walker| walker.inner.frames.get(..walked.depth))?;
    Some(act(frames, walked.truncated))
}

/// Walks out of the allocator and no further. `None` without a walker, when the walk fails, and when the allocator is not
/// a library of its own.
#[inline(never)]
pub(crate) fn caller(stack: &mut Stack) -> Option<Caller> {
    let registers = Registers::here();
    // The allocator's own code does not move: a snapshot that knows it never grows too old for this.
    if CURRENT.load(Ordering::Relaxed).is_null() {
        refresh(true);
    }
    let mut slot = take_walker()?;
    slot.as_mut().and_then(|walker| walker.walk_out(stack, registers))
}

/// A walker of which this thread is the only user, made now if none is free.
fn take_walker() -> Option<Guard<'static, Option<Box<Walker>>>> {
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
    let Some(slot) = blank else {
        // All are busy. The first is tried first by everyone, so it is held for the shortest times.
        return Some(WALKERS[0].lock()).filter(|guard| guard.is_some());
    };
    let walker = on_large_stack(new_walker)??;
    let mut guard = slot.lock();
    if guard.is_none() {
        *guard = Some(walker);
    }
    Some(guard)
}

/// Needs more stack than a small thread has: the parts are built there before they move to their place.
fn new_walker() -> Option<Box<Walker>> {
    let inner = Inner { cache: CacheNative::new_in(), frames: [0; MAX_FRAMES], buf: [0; maps::LINE_BYTES] };
    Some(Box::new(Walker { stack: LargeStack::new()?, inner }))
}

/// Address of the thread's control block, which ends its stack.
fn thread_pointer() -> u64 {
    let pointer: u64;
    // SAFETY: the x86-64 ABI keeps the block's own address in its first word.
    unsafe {
        asm!("mov {0}, qword ptr fs:[0]", out(reg) pointer, options(nostack, preserves_flags, readonly, pure));
    }
    pointer
}

/// Stacks of threads, by the address of the control block at their end: thread libraries use stacks again, and a look
/// at the mappings takes 0.1 ms. One word each: page number of the block in the upper 35 bits, pages below it.
static KNOWN_STACKS: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];
const PAGES_BITS: u32 = 29;

/// Finds the mapping that holds `sp`, and its part that is the stack's.
fn find_stack(stack: &mut Stack, sp: u64, buf: &mut [u8]) {
    let block = thread_pointer();
    let page = block >> 12;
    let known = &KNOWN_STACKS[page as usize % KNOWN_STACKS.len()];
    // Relaxed: the word is complete in itself. Between the stack pointer and the control block of a thread there is
    // nothing but its stack, as far down as that of the last thread there went.
    let word = known.load(Ordering::Relaxed);
    let low = block.saturating_sub((word & ((1 << PAGES_BITS) - 1)) << 12);
    if word >> PAGES_BITS == page && (low..block).contains(&sp) {
        *stack = Stack { low, high: block };
        return;
    }
    *stack = Stack::UNKNOWN;
    let _ = maps::each(buf, |mapping| {
        if mapping.readable && (mapping.start..mapping.end).contains(&sp) {
            // The mapping may go on into memory that is not the stack's; the control block lies at the stack's end.
            let within = (sp..mapping.end).contains(&block);
            *stack = Stack { low: mapping.start, high: if within { block } else { mapping.end } };
            let pages = (block.wrapping_sub(mapping.start)) >> 12;
            if within && pages < 1 << PAGES_BITS {
                known.store(page << PAGES_BITS | pages, Ordering::Relaxed);
            }
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    });
}

impl Walker {
    fn walk(&mut self, stack: &mut Stack, registers: Registers, max: usize) -> Walked {
        let inner = &mut self.inner;
        self.stack.run(|| inner.walk(stack, registers, max))
    }

    fn walk_out(&mut self, stack: &mut Stack, registers: Registers) -> Option<Caller> {
        let inner = &mut self.inner;
        self.stack.run(|| inner.walk_out(stack, registers))
    }
}

impl Inner {
    /// Reads the stack from `sp`, which is on it, to its end.
    fn reader(&mut self, stack: &mut Stack, sp: u64) -> impl FnMut(u64) -> Result<u64, ()> + use<> {
        if !(stack.low..stack.high).contains(&sp) {
            find_stack(stack, sp, &mut self.buf);
        }
        let high = stack.high;
        move |addr| {
            if addr >= sp && addr.checked_add(8).is_some_and(|end| end <= high) {
                let place = core::ptr::with_exposed_provenance::<u64>(addr as usize);
                // SAFETY: I-WALK-2: between the stack pointer and the end of the thread's own stack.
                Ok(unsafe { place.read_unaligned() })
            } else {
                Err(())
            }
        }
    }

    fn walk_out(&mut self, stack: &mut Stack, registers: Registers) -> Option<Caller> {
        let mut read = self.reader(stack, registers.sp);
        let current = CURRENT.load(Ordering::Acquire);
        // SAFETY: I-WALK-1: this thread holds a slot since before the load.
        let snapshot = unsafe { current.as_ref() }?;
        let own = own_text();
        if !own.contains(&registers.pc) {
            return None;
        }
        let mut regs = UnwindRegsNative::new(registers.pc, registers.sp, registers.fp);
        let mut address = FrameAddress::InstructionPointer(registers.pc);
        for _ in 0..MAX_FRAMES {
            let ip = snapshot.unwinder.unwind_frame(address, &mut regs, &mut self.cache, &mut read).ok().flatten()?;
            if !own.contains(&ip) {
                return Some(Caller { ip, bp: regs.bp() });
            }
            address = FrameAddress::from_return_address(ip)?;
        }
        None
    }

    fn walk(&mut self, stack: &mut Stack, registers: Registers, max: usize) -> Walked {
        let mut read = self.reader(stack, registers.sp);
        let current = CURRENT.load(Ordering::Acquire);
        // SAFETY: I-WALK-1: this thread holds a slot since before the load, so the snapshot is not freed before it
        // lets go of it.
        let Some(snapshot) = (unsafe { current.as_ref() }) else {
            return Walked { depth: 0, truncated: true, doubtful: true };
        };
        let own = own_text();
        let regs = UnwindRegsNative::new(registers.pc, registers.sp, registers.fp);
        let mut iter = snapshot.unwinder.iter_frames(registers.pc, regs, &mut self.cache, &mut read);
        let mut walked = Walked { depth: 0, truncated: false, doubtful: false };
        let mut inside = 0..0;
        // The first item is the program counter of this function.
        let _ = iter.next();
        loop {
            let pc = match iter.next() {
                Ok(None) => break,
                Ok(Some(frame)) => frame.address(),
                Err(_) => {
                    walked.truncated = true;
                    walked.doubtful = true;
                    break;
                }
            };
            if !inside.contains(&(pc - 1)) {
                match snapshot.find(pc - 1) {
                    Some(module) => {
                        inside = module.range.clone();
                        // A walk by frame pointers looks whole even where it is not.
                        walked.doubtful |= !module.has_tables();
                    }
                    None => walked.doubtful = true,
                }
            }
            if walked.depth == 0 && own.contains(&pc) {
                // Still on the way out of the allocator.
                continue;
            }
            let Some(place) = self.frames.get_mut(walked.depth).filter(|_| walked.depth < max) else {
                walked.truncated = true;
                break;
            };
            // Readers of heap files take the leaf as it is and one off all others: the leaf is named by the last byte
            // of its call, not by the byte behind it, which may belong to the next line or function.
            *place = if walked.depth == 0 { pc - 1 } else { pc };
            walked.depth += 1;
        }
        walked
    }
}

/// Reads the modules again and replaces the snapshot when they changed. With `wait`, waits for another thread that is
/// at it. Caller holds no slot.
pub(crate) fn refresh(wait: bool) {
    let tid = sys::gettid();
    // Relaxed: only the thread's own id matters, which only it stores.
    if REFRESHER.load(Ordering::Relaxed) == tid {
        return;
    }
    let mut pause = match REFRESH.try_lock() {
        Some(pause) => pause,
        None if wait => REFRESH.lock(),
        None => return,
    };
    REFRESHER.store(tid, Ordering::Relaxed);
    let old = CURRENT.load(Ordering::Acquire);
    // SAFETY: only the holder of `REFRESH` frees or replaces it.
    let last = unsafe { old.as_ref() };
    match on_large_stack(|| modules::read(last)).flatten() {
        Some(new) => {
            *pause = REFRESH_NS;
            set_own_text(&new);
            // Release: pairs with the Acquire in `walk`.
            CURRENT.store(Box::into_raw(Box::new(new)), Ordering::Release);
            if !old.is_null() {
                for slot in &WALKERS {
                    drop(slot.lock());
                }
                // SAFETY: I-WALK-1: made by `Box::into_raw` below, replaced above, and every slot was free once since.
                drop(unsafe { Box::from_raw(old) });
            }
        }
        None => *pause = (*pause * 2).min(MAX_REFRESH_NS),
    }
    NEXT_REFRESH_NS.store(sys::clock_monotonic_ns() + *pause, Ordering::Relaxed);
    REFRESHER.store(0, Ordering::Relaxed);
}

/// Tells readers which code is the allocator's, when it is a library of its own.
fn set_own_text(snapshot: &Snapshot) {
    let here = refresh as *const () as u64;
    // SAFETY: reads the auxiliary vector.
    let program = unsafe { libc::getauxval(libc::AT_ENTRY) };
    let Some(own) = snapshot.find(here) else { return };
    if own.range.contains(&program) {
        return;
    }
    jeprobe_root.text_start.store(own.range.start, Ordering::Relaxed);
    jeprobe_root.text_end.store(own.range.end, Ordering::Relaxed);
}

/// Addresses of the allocator's code; empty when it is not a library of its own.
fn own_text() -> Range<u64> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[inline(never)]
    fn level(n: u32, out: &mut std::vec::Vec<u64>) -> u32 {
        if n == 0 {
            let mut stack = Stack::UNKNOWN;
            *out = with_stack(&mut stack, sys::clock_monotonic_ns(), |frames, truncated| {
                assert!(!truncated);
                frames.to_vec()
            })
            .expect("a walker");
            return 1;
        }
        // The addition keeps this from being a tail call.
        level(core::hint::black_box(n - 1), out) + 1
    }

    #[test]
    fn every_level_of_a_recursion_is_a_frame_and_the_walk_reaches_the_end() {
        std::thread::Builder::new()
            .stack_size(1 << 20)
            .spawn(|| {
                let mut shallow = std::vec::Vec::new();
                let mut deep = std::vec::Vec::new();
                level(1, &mut shallow);
                level(41, &mut deep);
                assert_eq!(deep.len(), shallow.len() + 40);
                // The same return address repeats once per level.
                let repeated = deep.windows(2).filter(|pair| pair[0] == pair[1]).count();
                assert!(repeated >= 38, "{repeated}");
                assert_eq!(deep.last(), shallow.last());
            })
            .expect("thread")
            .join()
            .expect("no panic");
    }

    #[test]
    fn in_a_program_without_a_library_of_its_own_there_is_no_way_out() {
        let mut stack = Stack::UNKNOWN;
        assert_eq!(caller(&mut stack), None);
    }

    #[test]
    fn a_stack_pointer_outside_any_mapping_gives_an_unknown_stack() {
        let mut stack = Stack { low: 1, high: 2 };
        find_stack(&mut stack, 8, &mut [0; 512]);
        assert_eq!((stack.low, stack.high), (0, 0));
    }

    #[test]
    fn modules_have_build_ids_or_paths_and_hold_the_own_code() {
        refresh(true);
        let here = level as *const () as u64;
        with_modules(|modules| {
            assert!(modules.iter().any(|module| module.range.contains(&here)));
            assert!(modules.iter().any(|module| module.path.ends_with(b"libc.so.6") && module.build_id.len() == 20));
            assert!(modules.windows(2).all(|pair| pair[0].range.end <= pair[1].range.start));
        });
    }
}
