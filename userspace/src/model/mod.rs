//! The profile model: the one form in which every part of the program keeps a profile.
//!
//! - `stack`: handles, and what a frame's address means.
//! - `mapping`: the address space, and how two of them are laid side by side.
//! - `names`: what a profile itself says of its addresses and numbers.
//! - `recent`: what is known of addresses that were met lately.
//! - `interner`: every distinct stack once.
//! - `profile`: stacks with values, threads, losses, notes.
//! - `join`: several profiles as one.
//! - `losses`: which losses make a result wrong, and what is said of them.
//! - `basis`: what the estimates of a profile rest on.
//!
//! Readers and the loader build it, writers and reports read it. Pure data: no input or output, no symbols.
#![forbid(unsafe_code)]

mod basis;
mod interner;
mod join;
mod losses;
mod mapping;
mod names;
mod profile;
mod recent;
mod stack;

pub use interner::Interner;
pub use losses::is_lost;
pub use mapping::{Mapping, Mappings, Relocation, build_id_of_text};
pub use names::{Kind, Measure, Named, jit_name, printable};
pub use profile::{MADE_UP, Profile, Share, Thread, Values};
pub use recent::Recent;
pub use stack::{StackId, ThreadUid, call_site};
