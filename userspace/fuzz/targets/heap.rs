//! Text profiles: an error that names line and byte, or a profile.

#![no_main]

use jeprobe::input::heap_v2;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Err(error) = heap_v2::read(bytes) {
        assert!(error.line >= 1 && error.byte <= bytes.len() as u64, "{error}");
    }
});
