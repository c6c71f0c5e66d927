//! `jeprof`'s command line; words are separated by zeros.

#![no_main]

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;

use jeprobe::jeprof::options::Options;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let words = bytes.split(|&byte| byte == 0).map(|word| OsString::from_vec(word.to_vec())).collect();
    if let Ok((mut options, _)) = Options::parse(words) {
        let _any = options.settle();
        let _any = options.heap_column();
    }
});
