//! What `jeprof` reads: profiles of each kind, command lines, expressions, names from servers.
#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

use rustc_hash::FxHashMap;

use super::damage::rounds;
use crate::jeprof::address::Width;
use crate::jeprof::options::Options;
use crate::jeprof::pattern::Pattern;
use crate::jeprof::profile::symbolized::add_line;
use crate::jeprof::profile::{self, Context, is_symbolized};
use crate::jeprof::stacks::Pcs;
use crate::jeprof::stop::Stop;
use crate::jeprof::symbols_mode;
use crate::jeprof::url::Remote;

const HEAP: &[u8] = b"%warn cut short
heap_v2/524288
  t*: 13: 4202496 [15: 4210688]
  t0: 13: 4202496 [15: 4210688] main
@ 0x401175 0x4011c2 0x401280
  t*: 10: 10240 [12: 12288]
  t0: 10: 10240 [12: 12288]
@ 0x401175 0x4011d0
  t*: 3: 4192256 [3: 4198400]

MAPPED_LIBRARIES:
build=/srv/app
00400000-00401000 r-xp 00000000 fe:00 1012 $build/prog.so
";

const CLASSIC: &[u8] = b"heap profile:      3:   1024 [    5:   4096] @ heap_v2/524288
     1:      512 [     2:     1024] @ 0x401175 0x4011c2
     2:      512 [     3:     3072] @ 0x401180

--- Memory map:
  00401000-00402000: /usr/lib/libx.so.1
";

const CONTENTION: &[u8] = b"--- contention:
cycles/second = 1000000000
sampling period = 10
ms since reset = 5000
discarded samples = 3
5000000 7 @ 0x401175 0x4011c2 0x401280
900000000 2 @ 0x401175 0x401214
slow release 7 by thread 3 @ 0x401175
";

const SYMBOLIZED: &[u8] = b"--- symbol
binary=/opt/app/bin/server
0x0000000000401175 leaf(unsigned long)
0x401213 big_user(int)--inl_helper<int>(char)
---
--- heap
heap_v2/524288
@ 0x401175 0x401214
  t*: 3: 3145728 [3: 3145728]
";

/// Words of 8 bytes: header, two stacks, end, memory map.
fn cpu() -> Vec<u8> {
    let words: [u64; 18] =
        [0, 3, 0, 10_000, 0, 5, 3, 0x40_1175, 0x40_1214, 0x40_128a, 2, 3, 0x40_1170, 0x40_1214, 0x40_128a, 0, 1, 0];
    let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    bytes.extend_from_slice(b"00401000-00402000 r-xp 00001000 fe:00 1012 /usr/lib/libx.so\n");
    bytes
}

/// A file that is written anew for each input.
struct Written(PathBuf);

impl Written {
    fn new(name: &str) -> Written {
        Written(std::env::temp_dir().join(format!("jeprobe-mutated-{name}-{}", std::process::id())))
    }

    fn read(&self, bytes: &[u8]) -> Result<(), Stop> {
        fs::write(&self.0, bytes).expect("the temporary folder is writable");
        let options = Options { thread: Some("*".into()), ..Options::default() };
        let (mut pcs, mut program) = (Pcs::default(), String::from("program"));
        let symbolized = is_symbolized(&self.0);
        let (program, pcs) = (&mut program, &mut pcs);
        let mut context = Context { options: &options, pcs, symbolized, program, width: Width::W16, cache: None };
        profile::read(&self.0, &mut context).map(|_profile| ())
    }
}

impl Drop for Written {
    fn drop(&mut self) {
        let _gone = fs::remove_file(&self.0);
    }
}

/// An error about what a file holds names the file.
#[track_caller]
fn names_the_file(result: Result<(), Stop>, file: &Written) {
    match result {
        Ok(()) => {}
        Err(Stop::Error(text) | Stop::NoProfile(text) | Stop::Die(text)) => {
            let known = ["Profile is empty.", "Threaded heap profiles require"];
            let is_said =
                text.contains(&*file.0.to_string_lossy()) || known.iter().any(|known| text.starts_with(known));
            assert!(is_said, "{text}");
        }
        Err(other) => panic!("{other:?}"),
    }
}

#[test]
fn damaged_profiles_give_errors_or_profiles() {
    let file = Written::new("profiles");
    let cpu = cpu();
    for (seed, good) in
        [(0xa11, HEAP), (0xb22, CLASSIC), (0xc33, CONTENTION), (0xd44, SYMBOLIZED), (0xe55, cpu.as_slice())]
    {
        names_the_file(file.read(good), &file);
        assert!(file.read(good).is_ok(), "the undamaged one is read");
        rounds(1500, seed, good, 0..good.len(), &mut |bytes| names_the_file(file.read(bytes), &file));
    }
}

#[test]
fn every_prefix_of_a_profile_is_answered() {
    let file = Written::new("prefixes");
    for good in [HEAP, CONTENTION, SYMBOLIZED, &cpu()] {
        for end in 0..good.len() {
            names_the_file(file.read(&good[..end]), &file);
        }
    }
}

#[test]
fn damaged_command_lines_are_refused_or_read() {
    let good =
        b"--text\0--nodecount=80\0--nodefraction\x00.005\0--focus=a|b\0--nolines\0-cum\0--\0prog\0+base=x".as_slice();
    rounds(6000, 0xf66, good, 0..good.len(), &mut |bytes| {
        let words = bytes.split(|&byte| byte == 0).map(|word| OsString::from_vec(word.to_vec())).collect();
        if let Ok((mut options, _words)) = Options::parse(words) {
            let _any = (options.settle().is_ok(), options.heap_column());
        }
    });
}

#[test]
fn damaged_expressions_are_refused_or_matched() {
    let good = br"^(?:app|std)::(?<n>\w+)<[^>]*>(?!x)\k<n>?(.)\1{2,3}$|(?i)\xc3\xbc{1,20}".as_slice();
    rounds(3000, 0x177, good, 0..good.len(), &mut |bytes| {
        let text = String::from_utf8_lossy(bytes);
        if let Ok(pattern) = Pattern::new(&text, "--focus") {
            let _any = (pattern.is_match("app::Widget<int>::Widgetaaa"), pattern.is_match(&text));
        }
    });
}

#[test]
fn damaged_names_addresses_and_servers_are_passed_over() {
    rounds(3000, 0x288, SYMBOLIZED, 0..SYMBOLIZED.len(), &mut |bytes| {
        let (mut names, mut program) = (FxHashMap::default(), String::new());
        for line in String::from_utf8_lossy(bytes).lines() {
            add_line(line, &mut names, &mut program);
        }
    });
    let server = b"http://host.example:80/prefix/pprof/pmuprofile?event=x&period=3".as_slice();
    rounds(3000, 0x399, server, 0..server.len(), &mut |bytes| {
        let remote = Remote::parse(&String::from_utf8_lossy(bytes));
        let _any = (remote.url(30), remote.kind(), remote.file_name("/opt/prog", 7));
    });
    let asked = b"00400000-00401000 r-xp 00000000 fe:00 1012 /usr/lib/libx.so\n0x401175\n  x 0x4012b9 y\n".as_slice();
    rounds(400, 0x4aa, asked, 0..asked.len(), &mut |bytes| {
        let (options, mut images) = (Options::default(), crate::jeprof::images::Images::default());
        let _any = symbols_mode::run(&mut Vec::new(), bytes, "/nosuch", Width::W16, &options, &mut images);
    });
}
