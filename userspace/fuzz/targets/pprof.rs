//! pprof's protobuf.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _any = jeprobe::input::pprof::read(bytes);
});
