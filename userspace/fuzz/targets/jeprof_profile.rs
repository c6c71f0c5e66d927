//! Profiles as `jeprof` reads them.

#![no_main]

use jeprobe::jeprof::address::Width;
use jeprobe::jeprof::options::Options;
use jeprobe::jeprof::profile::{self, Context, is_symbolized};
use jeprobe::jeprof::stacks::Pcs;
use jeprobe_fuzz::file;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let path = file("jeprof", bytes);
    let options = Options { thread: Some("*".into()), ..Options::default() };
    let (mut pcs, mut program) = (Pcs::default(), String::from("program"));
    let symbolized = is_symbolized(&path);
    let mut context =
        Context { options: &options, pcs: &mut pcs, symbolized, program: &mut program, width: Width::W16, cache: None };
    let _any = profile::read(&path, &mut context);
});
