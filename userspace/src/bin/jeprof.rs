//! The command `jeprof`.
#![forbid(unsafe_code)]

use std::env;
use std::process::ExitCode;

use jeprobe::memory::Bounded;

#[global_allocator]
static MEMORY: Bounded = Bounded;

fn main() -> ExitCode {
    ExitCode::from(jeprobe::jeprof::run(env::args_os().skip(1).collect()))
}
