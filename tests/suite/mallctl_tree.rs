//! The control tree: what every name answers to every kind of call, compared with Debian's jemalloc 5.3.0 where that
//! has the name; what is not there; what writing does.

use std::collections::BTreeMap;
use std::path::Path;

use jeprobe_tests::artefact::{self, Flavour, flavour};
use jeprobe_tests::facts::is;
use jeprobe_tests::{Run, TempDir, compile, skip};

/// The jemalloc to compare with.
const ORACLE: &str = "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2";

/// Names that both have and that take any call without harm. `!`: looked up and called without arguments only.
const SHARED: &[&str] = &[
    "version",
    "epoch",
    "thread.arena",
    "thread.allocated",
    "thread.allocatedp",
    "thread.deallocated",
    "thread.deallocatedp",
    "thread.tcache.enabled",
    "thread.tcache.flush",
    "thread.idle",
    "config.cache_oblivious",
    "config.debug",
    "config.fill",
    "config.lazy_lock",
    "config.malloc_conf",
    "config.opt_safety_checks",
    "config.prof",
    "config.prof_libgcc",
    "config.prof_libunwind",
    "config.stats",
    "config.utrace",
    "config.xmalloc",
    "opt.abort",
    "opt.abort_conf",
    "opt.confirm_conf",
    "opt.retain",
    "opt.thp",
    "opt.narenas",
    "opt.dirty_decay_ms",
    "opt.muzzy_decay_ms",
    "opt.junk",
    "opt.zero",
    "opt.experimental_infallible_new",
    "opt.tcache",
    "opt.tcache_max",
    "opt.zero_realloc",
    "opt.prof",
    "opt.prof_prefix",
    "opt.prof_active",
    "opt.prof_thread_active_init",
    "opt.lg_prof_sample",
    "opt.lg_prof_interval",
    "opt.prof_final",
    "opt.prof_accum",
    "!tcache.flush",
    "!tcache.destroy",
    "arena.0.initialized",
    "arena.0.decay",
    "arena.0.purge",
    "arena.0.dirty_decay_ms",
    "arena.0.muzzy_decay_ms",
    "arena.4096.initialized",
    "arena.4096.decay",
    "arena.4096.purge",
    "arena.4097.initialized",
    "arena.1.dirty_decay_ms",
    "arena.4095.purge",
    "arena.4098.purge",
    "arena.0junk.initialized",
    "arena.00.initialized",
    "arena. 0.initialized",
    "arena.0x1.initialized",
    "arena..initialized",
    "arena.-1.initialized",
    "arena.x.initialized",
    "arenas.narenas",
    "arenas.dirty_decay_ms",
    "arenas.muzzy_decay_ms",
    "arenas.quantum",
    "arenas.page",
    "arenas.tcache_max",
    "arenas.nbins",
    "arenas.nhbins",
    "arenas.nlextents",
    "arenas.bin.0.size",
    "arenas.bin.35.nregs",
    "arenas.bin.35.slab_size",
    "arenas.bin.0.nshards",
    "arenas.bin.37.size",
    "arenas.lextent.0.size",
    "arenas.lextent.195.size",
    "arenas.lextent.197.size",
    "prof.thread_active_init",
    "prof.active",
    "prof.interval",
    "prof.lg_sample",
    "stats.allocated",
    "stats.active",
    "stats.metadata",
    "stats.resident",
    "stats.mapped",
    "stats.retained",
    "stats.zero_reallocs",
    // Not whole names, and no names.
    "thread",
    "arena",
    "arena.0",
    "arenas.bin",
    "arenas.bin.0",
    "opt.",
    "version.",
    "version.x",
    ".version",
    ".",
    "",
    "Version",
    "nothing",
    "opt.nothing",
    "thread.tcache",
];

/// Names that profiling must be on for; `!` as above.
const PROFILING: &[&str] = &["thread.prof.name", "thread.prof.active", "prof.dump", "prof.reset"];

/// Ours, or new in 5.3.1: there, whatever they answer.
const OURS: &[&str] =
    &["config.prof_frameptr", "opt.prof_bt_max", "opt.xmalloc", "arenas.hugepage", "approximate_stats.active"];

/// Names of jemalloc without what they control here.
const ABSENT: &[&str] = &[
    "opt.dss",
    "opt.hpa",
    "opt.stats_print",
    "opt.metadata_thp",
    "opt.percpu_arena",
    "opt.prof_leak",
    "opt.prof_gdump",
    "thread.peak.read",
    "thread.tcache.max",
    "arena.0.reset",
    "arena.0.destroy",
    "arena.0.extent_hooks",
    "arena.0.name",
    "arena.4096.reset",
    "prof.gdump",
    "prof.log_start",
    "prof.stats.bins.0.live",
    "stats.background_thread.num_threads",
    "stats.arenas.0.nthreads",
    "stats.mutexes.ctl.num_ops",
    "experimental.hooks.install",
    "experimental.batch_alloc",
];

/// `NAME CALL = ANSWER` lines in order.
fn battery(library: &Path, conf: &str, names: &[&str]) -> BTreeMap<String, String> {
    let directory = TempDir::new("battery");
    let ended = Run::new(compile::program("ctl_battery.c", &[]))
        .env("LD_PRELOAD", library)
        .conf(conf)
        .dir(directory.path())
        .args(names)
        .finish()
        .ok();
    ended
        .stdout
        .lines()
        .map(|line| {
            let (key, answer) = line.rsplit_once(" = ").unwrap_or_else(|| panic!("no fact: {line:?}"));
            (key.to_owned(), answer.to_owned())
        })
        .collect()
}

fn compare(conf: &str, names: &[&str]) {
    let Some(ours) = artefact::library().filter(|_| flavour() == Flavour::Jeprobe) else {
        return;
    };
    let ours = battery(&ours, conf, names);
    let theirs = battery(Path::new(ORACLE), conf, names);
    let mut differing = Vec::new();
    for (key, answer) in &theirs {
        match ours.get(key) {
            Some(mine) if mine == answer => {}
            mine => {
                differing.push(format!("{key}: jemalloc {answer}, here {}", mine.map_or("nothing", String::as_str)));
            }
        }
    }
    assert!(differing.is_empty(), "{} of {} answers differ\n{}", differing.len(), theirs.len(), differing.join("\n"));
    assert_eq!(ours.len(), theirs.len());
    assert!(ours.len() > 5 * names.len(), "the battery ran");
}

#[test]
fn names_answer_as_jemallocs_do() {
    if !Path::new(ORACLE).exists() {
        skip!("{ORACLE} is not there");
    }
    compare("prof:false", SHARED);
    compare("prof:false", PROFILING);
    compare("tcache:false", &["thread.tcache.flush", "thread.tcache.enabled"]);
}

#[test]
fn profiling_names_answer_as_jemallocs_do() {
    if !Path::new(ORACLE).exists() {
        skip!("{ORACLE} is not there");
    }
    compare("prof:true", PROFILING);
    compare("prof:true,prof_active:false", &["prof.active", "prof.thread_active_init", "thread.prof.active"]);
}

#[test]
fn what_is_not_built_is_not_there() {
    if flavour() != Flavour::Jeprobe {
        skip!("about our own names");
    }
    let library = artefact::library().expect("a library is under test");
    let answers = battery(&library, "prof:true", ABSENT);
    for name in ABSENT {
        assert_eq!(answers[&format!("{name} null")], "ENOENT", "{name}");
    }
    let answers = battery(&library, "prof:true", OURS);
    for name in OURS {
        assert_eq!(answers[&format!("{name} null")], "0", "{name}");
    }
}

/// Calls on which jemalloc 5.3 crashes, or reads behind its tables, answer an error here.
#[test]
fn calls_that_crash_jemalloc_answer() {
    if flavour() != Flavour::Jeprobe {
        skip!("they crash");
    }
    let library = artefact::library().expect("a library is under test");
    let names = [
        "tcache.create",
        "arenas.create",
        "arenas.lookup",
        "arena.4096.dirty_decay_ms",
        "tcache.flush",
        "tcache.destroy",
        "arenas.bin.36.size",
        "arenas.lextent.196.size",
        "!prof.prefix",
    ];
    let answers = battery(&library, "prof:false", &names);
    for (call, answer) in [
        ("tcache.create null", "EINVAL"),
        ("tcache.create read 3", "EINVAL 0"),
        ("tcache.create read 4", "0 4"),
        ("tcache.create write back", "EPERM"),
        ("arenas.create null", "EINVAL"),
        ("arenas.create read 8", "EINVAL 0"),
        ("arenas.create read 4", "0 4"),
        ("arenas.bin.36.size mib", "ENOENT 0"),
        ("arenas.lextent.196.size mib", "ENOENT 0"),
        ("arenas.lookup null", "EINVAL"),
        ("arenas.lookup write 8", "EINVAL"),
        ("arena.4096.dirty_decay_ms null", "EFAULT"),
        ("tcache.flush null", "EINVAL"),
        ("tcache.flush read 4", "EPERM 4"),
        ("tcache.destroy write 8", "EINVAL"),
    ] {
        assert_eq!(answers[call], answer, "{call}");
    }
}

#[test]
fn writing_has_its_effect() {
    if flavour() != Flavour::Jeprobe {
        skip!("uses names of 5.3.1");
    }
    let include = format!("-I{}", artefact::include_dir().display());
    let ended = Run::preloaded(compile::program("ctl_effects.c", &[&include])).finish().ok();
    assert_eq!(ended.stderr, "");
    let facts = ended.facts();
    assert_eq!(facts.get("version"), facts.get("header.version"));
    facts.check(&[
        is("allocated", "102400"),
        is("allocated.same", "1"),
        is("deallocated.same", "1"),
        is("stats.frozen", "1"),
        is("approximate.is live", "1"),
        is("epoch.step", "1"),
        is("stats.allocated.grows", "1"),
        is("stats.order", "1"),
        is("stats.allocated.falls", "1"),
        is("zero_reallocs", "1"),
        is("arenas.create", "1"),
        is("arenas.narenas", "1"),
        is("arenas.lookup.rc", "0"),
        is("arenas.lookup", "1"),
        is("thread.arena.rc", "0"),
        is("thread.arena", "1"),
        is("moved.arena", "1"),
        is("thread.arena.back", "1"),
        is("thread.arena.bad", "14"),
        is("decay.set", "0"),
        is("decay.get", "1234"),
        is("decay.low", "14"),
        is("decay.high", "14"),
        is("decay.kept", "1234"),
        is("decay.default.set", "0"),
        is("decay.default.get", "777"),
        is("decay.default.bad", "14"),
        is("decay.later", "777"),
        is("decay.all", "14"),
        is("purge", "0"),
        is("purge.resident.falls", "1"),
        is("decay.now", "0"),
        is("tcache.off.rc", "0"),
        is("tcache.was", "1"),
        is("tcache.enabled", "0"),
        is("tcache.flush.off", "14"),
        is("tcache.enabled.again", "1"),
        is("tcache.flush", "0"),
        is("idle", "0"),
        is("tcache.create", "0"),
        is("tcache.flush.one", "0"),
        is("tcache.destroy", "0"),
        is("tcache.reused", "1"),
        is("other.tcache.enabled", "1"),
        is("other.allocated.grows", "1"),
        is("bins.sum", "89864"),
        is("bins.beyond", "2"),
        is("mib.short", "2"),
        is("mib.none", "2"),
        is("mib.cut", "0"),
        is("mib.cut.depth", "2"),
        is("mib.nothing", "0"),
        is("errno", "kept"),
    ]);
}

/// The tree's lock is free in every child, and no thread is left behind in the parent.
#[test]
fn forks_amid_control_calls() {
    if flavour() != Flavour::Jeprobe {
        skip!("about our locks");
    }
    let ended = Run::preloaded(compile::program("ctl_fork.c", &[])).finish().ok();
    ended.facts().check(&[is("children", "200")]);
}

/// Linked dynamically, statically and in a fully static program, the library sees the program's own variables.
#[test]
fn the_programs_variables_are_seen() {
    if flavour() != Flavour::Jeprobe {
        skip!("uses names of 5.3.1");
    }
    let include = format!("-I{}", artefact::include_dir().display());
    let library = artefact::library().expect("a library is under test");
    let folder = library.parent().expect("a file lies in a folder").display().to_string();
    let archive = artefact::static_library().display().to_string();
    let programs = [
        compile::program(
            "conf_variables.c",
            &[&include, "-ljeprobe", &format!("-L{folder}"), &format!("-Wl,-rpath,{folder}")],
        ),
        compile::program("conf_variables.c", &[&include, &archive, "-lm"]),
        compile::program("conf_variables.c", &[&include, &archive, "-lm", "-static"]),
    ];
    for program in programs {
        let ended = Run::new(&program).conf("narenas:5,dirty_decay_ms:9").finish().ok();
        ended.facts().check(&[
            is("narenas", "5"),
            is("dirty", "2"),
            is("dump", "14"),
            is("messages", "1"),
            is("null opaque", "1"),
            is("prefix", "1"),
            is("names the file", "1"),
            is("ends", "1"),
            is("messages after", "1"),
        ]);
        let lines: Vec<&str> = ended.stderr.lines().collect();
        assert_eq!(lines.len(), 3, "{ended}");
        assert_eq!(lines[0], "<jeprobe>: Invalid conf pair: planted_low:1");
        assert_eq!(lines[1], "<jeprobe>: Invalid conf pair: planted_high:1");
    }
}
