//! Binary processor profiles of gperftools.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _any = jeprobe::input::cpu::read(bytes);
});
