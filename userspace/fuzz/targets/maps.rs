//! Lists of mappings, as the kernel and profiles have them.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _any = jeprobe::proc::maps::parse(bytes);
});
