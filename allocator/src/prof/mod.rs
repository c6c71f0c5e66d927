//! The heap sampler: decides, unwinds, records, tells tracers, writes profiles. `recorder.rs` is its front.

mod backtrace;
mod dump;
mod elf;
mod exit;
mod familiar;
pub mod hooks;
mod index;
mod last;
pub(crate) mod lives;
#[cfg(test)]
mod machine;
mod maps;
mod modules;
mod packed;
#[doc(hidden)]
pub mod pieces;
mod recorder;
pub(crate) mod records;
mod rule;
mod sampler;
pub(crate) mod segments;
mod stacks;
mod state;
mod switches;
mod table;
mod threads;
mod trace;
mod walker;
mod way;

pub use self::dump::DumpError;
pub use self::lives::Live;
pub use self::recorder::{
    Object, Outcome, boot, free, leave, postfork_child, postfork_parent, prefork, quick, quick_free, sample,
    thread_exit, thread_init, wanted,
};
pub(crate) use self::recorder::{give_map, take_map};
pub use self::records::{RootCell, jeprobe_root};
pub use self::state::{
    NameError, ThreadProf, draw_ahead, redraw, set_thread_active, set_thread_name, thread_active, thread_name,
};
pub use self::switches::{
    active, dump, interval_bytes, lg_sample, reset, serve_requests, set_active, set_gauges, set_prefix,
    set_thread_active_init, thread_active_init,
};
pub use self::way::Caller;
