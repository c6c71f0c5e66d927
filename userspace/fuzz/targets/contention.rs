//! Contention profiles of gperftools: the reader of text behind their first line.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _any = jeprobe::input::symbolized::read(&[b"--- contention:\n", bytes].concat());
});
