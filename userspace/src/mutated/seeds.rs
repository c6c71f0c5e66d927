//! Inputs that the fuzz targets begin with and those that they found, each given to its reader once: what was wrong once
//! stays right, without the build with counters that the targets need.
#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt as _;
use std::path::Path;

use crate::input;
use crate::jeprof::options::Options;
use crate::jeprof::pattern::Pattern;
use crate::proc::maps;

/// Gives `read` every file of a target; how many there were.
fn each(target: &str, mut read: impl FnMut(&[u8])) -> usize {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/seeds")).join(target);
    let mut count = 0;
    for entry in fs::read_dir(&folder).expect("a folder of seeds") {
        let path = entry.expect("an entry").path();
        eprintln!("{}", path.display());
        read(&fs::read(path).expect("a file"));
        count += 1;
    }
    count
}

#[test]
fn seeds_are_read() {
    let counts = [
        each("contention", |bytes| drop(input::symbolized::read(&[b"--- contention:\n", bytes].concat()))),
        each("cpu", |bytes| drop(input::cpu::read(bytes))),
        each("maps", |bytes| drop(maps::parse(bytes))),
        each("pprof", |bytes| drop(input::pprof::read(bytes))),
        each("profile", |bytes| drop(input::read(bytes))),
        each("jeprof_options", |bytes| {
            let words = bytes.split(|&byte| byte == 0).map(|word| OsString::from_vec(word.to_vec())).collect();
            if let Ok((mut options, _)) = Options::parse(words) {
                let _any = (options.settle(), options.heap_column());
            }
        }),
        each("jeprof_pattern", |bytes| {
            let Ok(text) = std::str::from_utf8(bytes) else { return };
            let (expression, subject) = text.split_once('\0').unwrap_or((text, "app::Widget::init@4012b8"));
            let _any = Pattern::new(expression, "--focus").map(|pattern| pattern.is_match(subject));
        }),
    ];
    assert!(counts.iter().all(|&count| count > 0), "{counts:?}");
}
