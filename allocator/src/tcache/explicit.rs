//! Caches that a program makes and names itself: `tcache.create`, `MALLOCX_TCACHE(id)`.
//!
//! Whoever uses an id must not use it from two threads at once; that is the client's duty, as with jemalloc. Fields:
//! `TABLE` entries published once; an entry is in use while its cache is open; making and destroying happen under
//! lock:Tcaches.
#![forbid(unsafe_code)]

use super::cache::Cache;
use crate::arena::Arena;
use crate::base;
use crate::conf;
use crate::ds::link::Link;
use crate::sync::mutex::Mutex;
use crate::sync::rank::Rank;

/// Largest number of explicit caches: 12 bits of the flags word, less the two values with a meaning of their own.
const LIMIT: usize = 4094;

static TABLE: [Link<Cache>; LIMIT] = [const { Link::null() }; LIMIT];
static CHANGE: Mutex<()> = Mutex::new(Rank::Tcaches, ());

/// Makes a cache; its id.
pub fn create() -> Option<u32> {
    let _guard = CHANGE.lock();
    for (id, entry) in TABLE.iter().enumerate() {
        let cache = match entry.get_published() {
            Some(cache) if cache.is_open() => continue,
            Some(cache) => cache,
            None => {
                let cache = base::alloc_value(Cache::closed())?;
                entry.publish(Some(cache));
                cache
            }
        };
        return cache.open(conf::options().tcache_max).then_some(id as u32);
    }
    None
}

/// The open cache of an id.
pub(crate) fn get(id: u32) -> Option<&'static Cache> {
    TABLE.get(id as usize)?.get_published().filter(|cache| cache.is_open())
}

/// Gives all blocks of a cache back; false when there is no such cache.
pub fn flush(id: u32, arena: &Arena) -> bool {
    get(id).is_some_and(|cache| {
        cache.flush_all(arena);
        true
    })
}

/// Ends a cache; false when there is no such cache.
pub fn destroy(id: u32, arena: &Arena) -> bool {
    let _guard = CHANGE.lock();
    get(id).is_some_and(|cache| {
        cache.close(arena);
        true
    })
}

pub(crate) fn prefork() {
    CHANGE.lock_for_fork();
}

pub(crate) fn postfork_parent() {
    CHANGE.unlock_for_fork();
}

pub(crate) fn postfork_child() {
    CHANGE.reset_in_child();
}
