//! What each part of a sample costs: `cargo bench --profile capi -p jeprobe-alloc` (the profile of the shared library).
//!
//! Times are the best of some rounds; instructions are those of a long run under callgrind less those of a short one, by
//! the difference of their lengths (without valgrind that column is missing). Stacks are 20 frames deep.
//!
//! `sampler_parts --part NAME COUNT` runs one part so many times and prints nothing: what callgrind watches.

use std::hint::black_box;
use std::process::Command;
use std::time::Instant;

use jeprobe_alloc::conf::Options;
use jeprobe_alloc::prof::pieces::{self, Draws, Records, Walk};
use jeprobe_alloc::prof::{self, Caller, Live, Object, ThreadProf, hooks};

const DEPTH: usize = 20;
const ROUNDS: u32 = 5;
/// Calls of the short run under callgrind, and of the long one.
const COUNTS: [u64; 2] = [1000, 4000];

/// Name, what it does, calls a round.
const PARTS: &[(&str, &str, u64)] = &[
    ("dormant", "sample point, nobody interested", 50_000),
    ("draw", "distance to the next sample", 100_000),
    ("weight", "weight of a sample", 100_000),
    ("walk-same", "walk, the stack of the last one", 20_000),
    ("walk-near", "walk, two frames differ from the last", 20_000),
    ("walk-rules", "walk by known rules alone", 10_000),
    ("walk-unwinder", "walk by the unwinder alone", 2000),
    ("context", "lookup of a known stack", 50_000),
    ("table", "record of a sample and its removal", 30_000),
    ("hooks", "both hooks called, no tracer", 100_000),
    ("sample", "whole sample and its free, same stack", 20_000),
];

/// Frames of the stack that a walk sees from here.
fn depth_here() -> usize {
    Walk::new().and_then(|mut walk| walk.remembered()).expect("a stack")
}

/// Runs `act` below so many more frames.
#[inline(never)]
fn below(frames: usize, act: &mut dyn FnMut()) -> u64 {
    if frames == 0 {
        act();
        return 1;
    }
    // The addition keeps this from being a tail call.
    below(black_box(frames - 1), act) + 1
}

/// Runs a part `count` times.
fn run(part: &str, count: u64) {
    let mut options = Options::new();
    options.prof = true;
    options.lg_prof_sample = if part == "sample" { 0 } else { 19 };
    prof::boot(Box::leak(Box::new(options)));
    prof::set_active(part == "sample");
    let mut base = 0;
    below(0, &mut || base = depth_here());
    let more = DEPTH.saturating_sub(base);
    let thread = ThreadProf::NEW;
    prof::thread_init(&thread);
    let mut walk = Walk::new().expect("memory");
    let records = Records::new().expect("memory");
    let mut draws = Draws::new(1);
    let lives: Vec<Live> = (0..1024).map(|i| pieces::live(0x10_0000 + i * 64).expect("memory")).collect();
    below(more, &mut || {
        for i in 0..count {
            let ptr = 0x10_0000 + (i as usize % 1024) * 64;
            let live = lives[i as usize % lives.len()];
            match part {
                "dormant" => {
                    black_box(prof::sample(&thread, None, 256, i, i, 1, Caller::UNKNOWN));
                }
                "draw" => {
                    black_box(draws.draw(black_box(19)));
                }
                "weight" => {
                    black_box(draws.weight(black_box(256), 19));
                }
                "walk-same" => assert_eq!(walk.remembered(), Some(DEPTH)),
                "walk-near" => {
                    black_box(below(1 + i as usize % 2, &mut || assert!(walk.remembered() > Some(DEPTH))));
                }
                "walk-rules" => assert_eq!(walk.by_rules(), Some(DEPTH)),
                // The call itself may take a frame less.
                "walk-unwinder" => assert!(walk.by_unwinder() >= Some(DEPTH - 2)),
                "context" => assert!(records.find()),
                "table" => {
                    records.record(live);
                    assert!(records.end(live));
                }
                "hooks" => {
                    hooks::jeprobe_hook_alloc(ptr, 256, 256, 0, 250);
                    hooks::jeprobe_hook_free(ptr, 256, 0);
                }
                "sample" => {
                    let object = Object { live, requested: 250, usable: 256 };
                    assert!(prof::sample(&thread, Some(object), 256, i, i, 1, Caller::UNKNOWN).marked);
                    assert!(prof::free(&thread, live, 256));
                }
                _ => panic!("no part {part}"),
            }
        }
    });
}

/// Instructions of one call, by callgrind.
fn instructions(part: &str) -> Option<f64> {
    let program = std::env::current_exe().ok()?;
    let counted = COUNTS.map(|count| {
        let output = Command::new("valgrind")
            .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
            .arg(&program)
            .args(["--part", part, &count.to_string()])
            .output()
            .ok()?;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        text.lines().find_map(|line| line.split_once("Collected : ")?.1.trim().parse::<f64>().ok())
    });
    Some((counted[1]? - counted[0]?) / (COUNTS[1] - COUNTS[0]) as f64)
}

/// Best time of one call, ns, each round in a process of its own.
fn nanoseconds(part: &str, count: u64) -> f64 {
    let program = std::env::current_exe().expect("own path");
    let time = |count: u64| {
        let started = Instant::now();
        let status = Command::new(&program).args(["--part", part, &count.to_string()]).status().expect("runs");
        assert!(status.success(), "{part}");
        started.elapsed().as_secs_f64() * 1e9
    };
    let best = |count| (0..ROUNDS).map(|_| time(count)).fold(f64::INFINITY, f64::min);
    ((best(count * 10) - best(count)) / (count * 9) as f64).max(0.0)
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    if let [_, flag, part, count] = args.as_slice()
        && flag == "--part"
    {
        return run(part, count.parse().expect("a count"));
    }
    println!("{:<42} {:>12} {:>8}", "part", "instructions", "ns");
    for (part, what, count) in PARTS {
        let counted = instructions(part).map_or("-".to_owned(), |count| format!("{count:.0}"));
        println!("{what:<42} {counted:>12} {:>8.0}", nanoseconds(part, *count));
    }
}
