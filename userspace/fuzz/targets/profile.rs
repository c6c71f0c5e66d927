//! Files of any kind, packed or not: what tells them apart, and all readers.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _any = jeprobe::input::read(bytes);
});
