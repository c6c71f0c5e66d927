//! `jeprobe attach`: profile a running process.
#![forbid(unsafe_code)]

use anyhow::Result;

use super::args::AttachArgs;
use super::term::Term;
use super::{Outcome, inprocess};

pub fn run(args: &AttachArgs, term: &mut Term) -> Result<Outcome> {
    inprocess::run(args, term)
}
