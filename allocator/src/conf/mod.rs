//! Options of the allocator and the sampler: their names, defaults, and the one set in force.
//!
//! ```text
//!  source.rs (variables, link, environment) ─► parse.rs (text → fields, lines) ─► OPTIONS ─► options()
//! ```
//!
//! Fixed once, at boot. What can be changed at run time (`prof.active`, decay times, …) lives with its owner, which
//! starts from here.
#![forbid(unsafe_code)]

use crate::diag;
use crate::sync::once::OnceCell;

mod parse;
mod source;

/// What `realloc(p, 0)` means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZeroRealloc {
    Alloc,
    Free,
    Abort,
}

/// Huge pages for user memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Thp {
    /// Where the heap is large enough for them to cost little memory.
    Default,
    Always,
    Never,
}

/// Fill of new and freed memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Junk {
    None,
    Alloc,
    Free,
    Both,
}

/// Bytes kept of `prof_prefix`, with its NUL.
pub const PREFIX_BYTES: usize = 4097;

/// Effective options. Names, types, defaults and ranges follow jemalloc's options of the same name.
#[expect(clippy::struct_excessive_bools, reason = "each is an option of its own, named by the interface")]
#[derive(Clone, Copy, Debug)]
pub struct Options {
    pub abort: bool,
    pub abort_conf: bool,
    pub confirm_conf: bool,
    pub xmalloc: bool,
    pub junk: Junk,
    pub zero: bool,
    pub zero_realloc: ZeroRealloc,
    pub experimental_infallible_new: bool,
    pub retain: bool,
    pub thp: Thp,
    /// 0 = by affinity and cgroup quota.
    pub narenas: u32,
    pub dirty_decay_ms: i64,
    pub muzzy_decay_ms: i64,
    pub tcache: bool,
    /// Largest cached size, bytes.
    pub tcache_max: usize,
    pub background_thread: bool,
    pub prof: bool,
    pub prof_active: bool,
    pub prof_thread_active_init: bool,
    pub prof_accum: bool,
    pub prof_final: bool,
    /// Mean bytes between samples is two to this power, 0..=63.
    pub lg_prof_sample: u32,
    /// Bytes between interval dumps is two to this power; -1 = none.
    pub lg_prof_interval: i64,
    pub prof_bt_max: u32,
    pub prof_unbias: bool,
    /// NUL-terminated.
    pub prof_prefix: [u8; PREFIX_BYTES],
}

impl Options {
    /// The defaults of the options table.
    pub const fn new() -> Options {
        let mut prof_prefix = [0; PREFIX_BYTES];
        let default = b"jeprof";
        let mut i = 0;
        while i < default.len() {
            prof_prefix[i] = default[i];
            i += 1;
        }
        Options {
            abort: false,
            abort_conf: false,
            confirm_conf: false,
            xmalloc: false,
            junk: Junk::None,
            zero: false,
            zero_realloc: ZeroRealloc::Free,
            experimental_infallible_new: false,
            retain: true,
            thp: Thp::Default,
            narenas: 0,
            dirty_decay_ms: 10_000,
            muzzy_decay_ms: 0,
            tcache: true,
            tcache_max: 32_768,
            background_thread: false,
            prof: false,
            prof_active: true,
            prof_thread_active_init: true,
            prof_accum: false,
            prof_final: false,
            lg_prof_sample: 19,
            lg_prof_interval: -1,
            prof_bt_max: 127,
            prof_unbias: true,
            prof_prefix,
        }
    }
}

impl Default for Options {
    fn default() -> Options {
        Options::new()
    }
}

static DEFAULTS: Options = Options::new();
static OPTIONS: OnceCell<Options> = OnceCell::new();

/// The options in force: those read at boot, the defaults before.
#[inline]
pub fn options() -> &'static Options {
    OPTIONS.get().unwrap_or(&DEFAULTS)
}

/// Reads every source of options and puts them in force; writes a line for each wrong pair, and aborts when
/// `abort_conf` asks for it. The first call counts, later ones change nothing. Needs no heap and keeps `errno`; up to
/// 24 KiB of stack.
#[cold]
pub fn load() {
    let mut options = Options::new();
    let outcome = source::read_all(&mut options, &mut |parts: &[&[u8]]| {
        parts.iter().fold(diag::Line::new(), |line, part| line.bytes(part)).send();
    });
    if outcome == parse::Outcome::Abort {
        crate::sys::exit_group_abort();
    }
    OPTIONS.set(options);
}

/// True when options ask for work on every block (`junk`, `zero`): then no thread caches, and every block takes the
/// slow path that does it.
pub(crate) fn every_block_is_special() -> bool {
    let options = options();
    options.junk != Junk::None || options.zero
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_there_before_and_after_loading() {
        assert_eq!(options().lg_prof_sample, 19);
        load();
        load();
        assert!(OPTIONS.get().is_some());
        assert_eq!(&options().prof_prefix[..7], b"jeprof\0");
    }
}
