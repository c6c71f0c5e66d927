//! How a command ended when it did not fail.
//!
//! Exit codes: 0 complete; 1 failed, nothing usable written; 2 usage (clap's own); 3 written, but events were lost or a
//! target failed (`--strict` makes it 1). `run` passes the child's code through once the profile is saved, and like a
//! shell gives 127 for a command that is not there and 126 for one that cannot be run.
#![forbid(unsafe_code)]

/// See the module's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Everything asked for was done and nothing was lost.
    Complete,
    /// A result was written, but events were lost or a target failed; what and why was printed.
    Partial,
    /// `run`: the profile was saved and the child ended with this code.
    Child(u8),
}
