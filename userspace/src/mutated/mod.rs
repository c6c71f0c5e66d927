//! Parsers on damaged input: thousands of files made from good ones by a fixed sequence of changes.
//!
//! What must hold for any bytes: no panic, no unbounded memory, an error or a result. A failure names the round; the
//! sequence is the same at every run.
//!
//! - `damage`: the changes.
//! - `elf`: images, their debug information and code.
//! - `text`: heap files and lists of mappings, and inputs that are huge instead of damaged.
//! - `jeprof`: what the command of that name reads.
//! - `http`: requests to the page's server, replies of servers that profiles come from.
//! - `seeds`: what the fuzz targets begin with, and what they found.
//!
//! `userspace/fuzz` looks for such inputs by itself.
#![forbid(unsafe_code)]

mod damage;
mod elf;
mod http;
mod jeprof;
mod seeds;
mod text;
