//! Regular expressions of `jeprof`; what they are matched with stands behind the first zero.

#![no_main]

use jeprobe::jeprof::pattern::Pattern;

libfuzzer_sys::fuzz_target!(|text: &str| {
    let (expression, subject) = text.split_once('\0').unwrap_or((text, "app::Widget::init@4012b8"));
    if let Ok(pattern) = Pattern::new(expression, "--focus") {
        let _any = pattern.is_match(subject);
    }
});
