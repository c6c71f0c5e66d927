//! Fork: before it, the calling thread takes every lock in rank order, so that the child's copy of the heap is
//! consistent; afterwards the parent releases them and the child makes them new.
//!
//! | rank | locks, in this order |
//! |---|---|
//! | Ctl | the picture of the statistics |
//! | Background | the background thread's state |
//! | Arenas | the registry |
//! | Prof… | the sampler's, in its own order |
//! | Threads | the slots |
//! | Tcaches | explicit caches |
//! | Bin | every bin of every arena, by arena and class |
//! | Pages | every arena's pages |
//! | Chunks | chunks that arenas share |
//! | `SampleMaps` | maps of sampled blocks |
//! | Base | metadata |
//! | Rust | the library's own Rust allocator |
//!
//! In the child the other threads are gone: their slots are retired (`thread::postfork_child`), blocks in their caches
//! are lost, and the background thread stays off. Remote lists need no lock: a chain is either on the list or lost.

use crate::arenas;
use crate::background;
use crate::base;
use crate::epoch;
use crate::pages;
use crate::prof;
use crate::rust_lists;
use crate::samplemap;
use crate::tcache::explicit;
use crate::thread;

/// Registers the handlers.
pub(crate) fn install() {
    // SAFETY: the handlers have the C signature and live as long as the process.
    let _ = unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) };
}

extern "C" fn prepare() {
    epoch::prefork();
    background::prefork();
    arenas::prefork_registry();
    prof::prefork();
    thread::prefork();
    explicit::prefork();
    arenas::all().for_each(crate::arena::Arena::prefork_bins);
    arenas::all().for_each(crate::arena::Arena::prefork_pages);
    pages::prefork();
    samplemap::prefork();
    base::prefork();
    rust_lists::prefork();
}

extern "C" fn parent() {
    rust_lists::postfork_parent();
    base::postfork_parent();
    samplemap::postfork_parent();
    pages::postfork_parent();
    arenas::all().for_each(crate::arena::Arena::postfork_parent);
    explicit::postfork_parent();
    thread::postfork_parent();
    prof::postfork_parent();
    arenas::postfork_parent_registry();
    background::postfork_parent();
    epoch::postfork_parent();
}

extern "C" fn child() {
    epoch::postfork_child();
    rust_lists::postfork_child();
    base::postfork_child();
    samplemap::postfork_child();
    pages::postfork_child();
    arenas::all().for_each(crate::arena::Arena::postfork_child);
    explicit::postfork_child();
    arenas::postfork_child_registry();
    background::postfork_child();
    thread::postfork_child();
    prof::postfork_child();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rust_lists::LISTS;

    /// Else a child whose parent's other thread was walking a stack would wait for it for ever.
    #[test]
    fn the_library_s_own_lists_are_nobody_s_while_a_process_forks() {
        prepare();
        let taken = LISTS.try_lock().is_none();
        parent();
        assert!(taken && LISTS.try_lock().is_some());
    }
}
