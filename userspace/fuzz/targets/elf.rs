//! Images: headers, symbols, debug information and code, all of it damaged.

#![no_main]

use jeprobe_fuzz::{ask, file};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    ask(&file("elf", bytes), &[0, 0x1000, 0x40_1136, 0x40_1175, 0x40_1213, 0x40_2000, u64::MAX]);
});
