//! Harness of the suites: what every test needs to run a built program and to judge what it did.
//!
//! | module | owns |
//! |---|---|
//! | [`artefact`] | where the built library, command, header and fixtures are; what to run when one is missing |
//! | [`tempdir`] | one directory per test, removed when the test passes |
//! | [`compile`] | C, C++ and Rust programs of `programs/`, compiled once per content into `target/test-programs` |
//! | [`target`] | running a program: environment, preload, time limit, ready lines, its end |
//! | [`http`], [`browser`] | requests as bytes; a headless Chromium |
//! | [`facts`] | `key = value` lines printed by a program, compared with a table of expectations |
//! | [`privilege`] | what the host allows, and the printed skip when it does not |
//! | [`golden`] | comparison with a checked-in file |
//! | [`oracle`] | the perl jeprof beside ours |
//! | [`sampling`] | truth against estimate: the estimator's variance and the bound for many sites |
//! | [`truth`] | the program of known sites, tables of text reports |
//!
//! A test never sleeps for a result: it waits for a line, an exit or a file descriptor, each with a time limit. It
//! ends only processes that it started.

pub mod artefact;
pub mod browser;
pub mod compile;
pub mod facts;
pub mod golden;
pub mod http;
pub mod oracle;
pub mod privilege;
pub mod sampling;
pub mod target;
pub mod tempdir;
pub mod truth;

pub use target::{Ended, Run, Target};
pub use tempdir::TempDir;

/// Ends the calling test as skipped: prints `skipped: TEST: REASON` past the capture of the test runner, so that a
/// skip is always seen. With `CI=true` a skip is a failure.
#[macro_export]
macro_rules! skip {
    ($($reason:tt)+) => {{
        $crate::privilege::report_skip(&format!($($reason)+));
        return;
    }};
}
