//! The dump at exit: an entry of `.fini_array`, which runs after the program's own exit handlers and destructors.
//! `_exit` and death by a signal pass it by.

use super::dump::{self, Kind};
use super::records::jeprobe_root;
use crate::prim::Ordering;
use crate::{conf, sys};

#[used]
#[unsafe(link_section = ".fini_array")]
static FINAL: extern "C" fn() = at_exit;

extern "C" fn at_exit() {
    let options = conf::options();
    // The child of a `vfork` that calls `exit` shares our memory and is not the process.
    let own = jeprobe_root.pid.load(Ordering::Relaxed) == sys::getpid();
    if options.prof && options.prof_final && own {
        // A failure was reported on fd 2.
        let _ = dump::dump(None, Kind::Final);
    }
}

/// Keeps this file's entry in programs that link the crate: a linker takes from an archive only what is referred to.
pub(crate) fn keep() {
    // SAFETY: a live static; read so that the reference stays.
    let _ = unsafe { (&raw const FINAL).read_volatile() };
}
