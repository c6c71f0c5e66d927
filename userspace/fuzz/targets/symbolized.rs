//! Profiles that bring their names.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _any = jeprobe::input::symbolized::read(bytes);
});
