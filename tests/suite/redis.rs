//! redis-server with the library preloaded: the same answers and the same digests as without, under load, through
//! `DEBUG RELOAD`, a background save (fork) and an append-only rewrite.

use std::path::Path;
use std::time::Duration;

use jeprobe_tests::target::find;
use jeprobe_tests::{Run, Target, TempDir, skip};

/// What a session answered, for comparison.
struct Session {
    digest: String,
    answers: String,
}

fn start(directory: &Path, preload: bool, conf: &str) -> Target {
    let server = find("redis-server").expect("checked by the caller");
    // Debian's server brings its own jemalloc, which stays loaded and would obey MALLOC_CONF too: a name that only
    // the library under test reads.
    let run = if preload { Run::preloaded(server).env("_RJEM_MALLOC_CONF", conf) } else { Run::new(server) };
    let mut target = run
        .args(["--port", "0", "--unixsocket", "redis.sock", "--save", "", "--enable-debug-command", "yes"])
        .args(["--daemonize", "no", "--dir", "."])
        .dir(directory)
        .limit(Duration::from_mins(4))
        .spawn();
    while !target.wait_for("").to_lowercase().contains("ready to accept connections") {}
    target
}

/// Sends commands, one per line, and returns the answers.
fn ask(directory: &Path, commands: &str) -> String {
    Run::new(find("redis-cli").expect("comes with redis"))
        .args(["-s", "redis.sock"])
        .dir(directory)
        .input(commands)
        .limit(Duration::from_mins(3))
        .finish()
        .ok()
        .stdout
}

/// The answer to one command, without its end of line.
fn one(directory: &Path, command: &str) -> String {
    ask(directory, &format!("{command}\n")).trim().to_owned()
}

/// Asks until the answer holds `text`; each round blocks in the server for 50 ms.
fn until(directory: &Path, command: &str, text: &str) {
    for _ in 0..1200 {
        if one(directory, command).contains(text) {
            return;
        }
        one(directory, "DEBUG SLEEP 0.05");
    }
    panic!("{command} never said {text}");
}

fn session(preload: bool, conf: &str) -> Session {
    let directory = TempDir::new("redis");
    let at = directory.path();
    let target = start(at, preload, conf);

    // Load of many kinds and sizes, then away with it: what it leaves is random.
    let load = Run::new(find("redis-benchmark").expect("comes with redis"))
        .args(["-s", "redis.sock", "-n", "20000", "-c", "20", "-P", "8", "-r", "5000", "-d", "200", "-q"])
        .args(["-t", "set,get,incr,lpush,rpush,lpop,rpop,sadd,hset,spop,zadd,zpopmin,lrange_100,mset"])
        .dir(at)
        .limit(Duration::from_mins(4))
        .finish()
        .ok();
    assert!(load.stdout.contains("requests per second"), "{load}");
    assert_eq!(one(at, "FLUSHALL"), "OK");

    // Known content.
    let mut commands = String::from("DEBUG POPULATE 50000 key 300\nDEBUG SLEEP 0\n");
    for i in 0..3000 {
        let _ = std::fmt::Write::write_fmt(
            &mut commands,
            format_args!(
                "RPUSH list:{} {}\nHSET hash:{} field{i} {}\nZADD zset {} member{i}\nAPPEND long {}\n",
                i % 7,
                "x".repeat(i % 900),
                i % 11,
                "y".repeat(i % 400),
                i * 7 % 1000,
                "z".repeat(100)
            ),
        );
    }
    commands.push_str("DBSIZE\nSORT list:3 ALPHA LIMIT 0 5\nZRANGE zset 0 5\nSTRLEN long\nOBJECT ENCODING zset\n");
    let answers = ask(at, &commands);

    let digest = one(at, "DEBUG DIGEST");
    assert_eq!(one(at, "DEBUG RELOAD"), "OK");
    assert_eq!(one(at, "DEBUG DIGEST"), digest, "the digest survives DEBUG RELOAD");
    assert!(one(at, "BGSAVE").contains("started"));
    until(at, "INFO persistence", "rdb_bgsave_in_progress:0");
    assert!(one(at, "INFO persistence").contains("rdb_last_bgsave_status:ok"));
    assert_eq!(one(at, "CONFIG SET appendonly yes"), "OK");
    until(at, "INFO persistence", "aof_rewrite_in_progress:0");
    assert!(one(at, "INFO persistence").contains("aof_last_bgrewrite_status:ok"));
    assert_eq!(one(at, "DEBUG LOADAOF"), "OK");
    assert_eq!(one(at, "DEBUG DIGEST"), digest, "the digest survives DEBUG LOADAOF");
    assert_eq!(one(at, "MEMORY PURGE"), "OK");
    let used = one(at, "INFO memory");
    let used: u64 = used
        .lines()
        .find_map(|line| line.strip_prefix("used_memory:")?.trim().parse().ok())
        .unwrap_or_else(|| panic!("no used_memory in {used}"));
    assert!((15_000_000..200_000_000).contains(&used), "used_memory {used} for some 20 MB of values");
    Run::new(find("redis-cli").expect("comes with redis"))
        .args(["-s", "redis.sock", "SHUTDOWN", "NOSAVE"])
        .dir(at)
        .finish();
    let ended = target.finish();
    assert_eq!(ended.code(), 0, "{ended}");
    Session { digest, answers }
}

#[test]
fn the_same_answers_and_digests() {
    if find("redis-benchmark").is_none() || find("redis-server").is_none() {
        skip!("no redis-server here");
    }
    let without = session(false, "");
    let with = session(true, "");
    assert_eq!(with.digest, without.digest);
    assert_eq!(with.answers, without.answers);
    let profiled = session(true, "prof:true,lg_prof_sample:14");
    assert_eq!(profiled.digest, without.digest);
    assert_eq!(profiled.answers, without.answers);
}
