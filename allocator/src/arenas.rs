//! The registry of arenas and the choice of one for a thread.
//!
//! Arenas are made on first use and live for ever. Indices below [`automatic_count`] are there for threads, which are
//! spread over the first of them; higher ones are made by `arenas.create` or by naming them in `MALLOCX_ARENA`. Fields:
//! `TABLE` entries atomic (published once); `COUNT` atomic, grows under `CREATE` (lock:Arenas).
#![forbid(unsafe_code)]

use crate::arena::{self, Arena};
use crate::base;
use crate::conf;
use crate::ds::link::Link;
use crate::prim::{AtomicI64, AtomicU32, Ordering};
use crate::sync::mutex::Mutex;
use crate::sync::rank::Rank;
use crate::sys;

/// Largest number of arenas: 12 bits of the flags word, less the two values with a meaning of their own.
pub const LIMIT: usize = 4095;

static TABLE: [Link<Arena>; LIMIT] = [const { Link::null() }; LIMIT];
static AUTOMATIC: AtomicU32 = AtomicU32::new(1);
/// Of these, the ones that threads are spread over.
static SPREAD: AtomicU32 = AtomicU32::new(1);
/// Indices below this are valid for `arena.<i>`.
static COUNT: AtomicU32 = AtomicU32::new(1);
static CREATE: Mutex<()> = Mutex::new(Rank::Arenas, ());

/// Decay times of arenas made from now on, ms: dirty, muzzy. Changed by `arenas.{dirty,muzzy}_decay_ms`.
static DEFAULT_DECAY_MS: [AtomicI64; 2] = [const { AtomicI64::new(0) }; 2];

/// Decay time of new arenas, ms.
pub fn default_decay_ms(muzzy: bool) -> i64 {
    // Relaxed, here and below: a setting, nothing is published with it.
    DEFAULT_DECAY_MS[usize::from(muzzy)].load(Ordering::Relaxed)
}

/// Changes the decay time of arenas made from now on.
pub fn set_default_decay_ms(muzzy: bool, ms: i64) {
    DEFAULT_DECAY_MS[usize::from(muzzy)].store(ms, Ordering::Relaxed);
}

/// Makes arena 0 and fixes how many are chosen automatically. False when there is no memory at all.
pub(crate) fn boot() -> bool {
    let options = conf::options();
    set_default_decay_ms(false, options.dirty_decay_ms);
    set_default_decay_ms(true, options.muzzy_decay_ms);
    let (automatic, spread) = match options.narenas {
        0 => automatic_for(usable_cpus()),
        n => (n.min(LIMIT as u32 - 1), n),
    };
    AUTOMATIC.store(automatic, Ordering::Relaxed);
    SPREAD.store(spread.min(automatic), Ordering::Relaxed);
    COUNT.fetch_max(automatic, Ordering::Relaxed);
    get_or_create(0).is_some()
}

/// How many arenas there are by default, as many as the reference has, and over how many of them threads are spread: two a
/// CPU are enough for threads that run not to meet at a lock, and each further one would hold free memory of its own.
fn automatic_for(cpus: u32) -> (u32, u32) {
    let most = LIMIT as u32 - 1;
    if cpus > 1 { (cpus.saturating_mul(4).min(most), cpus.saturating_mul(2).min(most)) } else { (1, 1) }
}

/// CPUs that the process can really use: its affinity, cut by the quota of its control group.
fn usable_cpus() -> u32 {
    let allowed = sys::cpus_allowed();
    match sys::cgroup_cpu_quota() {
        Some(quota) => allowed.min(quota.max(1)),
        None => allowed,
    }
}

/// Number of arenas for threads that chose none: `opt.narenas`.
pub fn automatic_count() -> u32 {
    AUTOMATIC.load(Ordering::Relaxed)
}

/// Number of indices in use: `arenas.narenas`.
pub fn count() -> u32 {
    COUNT.load(Ordering::Relaxed)
}

/// The arena of an index, if it was made.
#[inline]
pub fn get(ind: u32) -> Option<&'static Arena> {
    TABLE.get(ind as usize)?.get_published()
}

/// All arenas that were made.
pub fn all() -> impl Iterator<Item = &'static Arena> {
    (0..count()).filter_map(get)
}

/// The arena of an index, made if need be; `None` when the index is too large or there is no memory.
pub fn get_or_create(ind: u32) -> Option<&'static Arena> {
    if let Some(arena) = get(ind) {
        return Some(arena);
    }
    let _guard = CREATE.lock();
    get_or_create_locked(ind)
}

/// As above; the caller holds `CREATE`.
fn get_or_create_locked(ind: u32) -> Option<&'static Arena> {
    let entry = TABLE.get(ind as usize)?;
    if let Some(arena) = entry.get_published() {
        return Some(arena);
    }
    let arena =
        base::alloc_value(Arena::new(ind, conf::options().retain, default_decay_ms(false), default_decay_ms(true))?)?;
    entry.publish(Some(arena));
    if ind < AUTOMATIC.load(Ordering::Relaxed) {
        arena::join(arena);
    }
    if ind >= COUNT.load(Ordering::Relaxed) {
        COUNT.store(ind + 1, Ordering::Relaxed);
    }
    Some(arena)
}

/// Makes an arena with the next free index: `arenas.create`. After boot, or the index may be an automatic one.
pub fn create() -> Option<&'static Arena> {
    let _guard = CREATE.lock();
    get_or_create_locked(count())
}

/// The arena with the fewest threads among those that threads are spread over, the calling thread counted in; one without an arena object counts as
/// empty. Two threads that start together do not get the same one while another is empty: the count is changed only if
/// it is still the one that was compared.
pub(crate) fn choose() -> Option<&'static Arena> {
    loop {
        let mut best = 0;
        let mut fewest = u32::MAX;
        for ind in 0..SPREAD.load(Ordering::Relaxed) {
            let threads = get(ind).map_or(0, Arena::thread_count);
            if threads < fewest {
                (best, fewest) = (ind, threads);
            }
            if threads == 0 {
                break;
            }
        }
        let Some(arena) = get_or_create(best) else {
            let first = get(0)?;
            first.bind_thread();
            return Some(first);
        };
        if arena.bind_if(fewest) {
            return Some(arena);
        }
    }
}

pub(crate) fn prefork_registry() {
    CREATE.lock_for_fork();
}

pub(crate) fn postfork_parent_registry() {
    CREATE.unlock_for_fork();
}

pub(crate) fn postfork_child_registry() {
    CREATE.reset_in_child();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_arenas_a_cpu_but_one_for_one() {
        assert_eq!((automatic_for(1), automatic_for(2), automatic_for(4096)), ((1, 1), (8, 4), (4094, 4094)));
        assert!(usable_cpus() >= 1);
    }

    #[test]
    fn indices_are_made_once() {
        let made = create().expect("arena");
        assert!(core::ptr::eq(get_or_create(made.ind()).expect("arena"), made));
        assert!(count() > made.ind());
        assert!(get_or_create(LIMIT as u32).is_none());
    }
}
