//! `/proc` as data: parsers over bytes, and the few places that open its files.

pub mod exe;
pub mod maps;
pub mod ns;
pub mod pids;
pub mod seccomp;
