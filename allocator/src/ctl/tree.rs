//! Every control name that exists.
//!
//! Names, types and permissions are jemalloc's; a name that is not here answers ENOENT. Facts that need no more than a
//! value stand here, everything else in `read.rs` and `write.rs`.
#![forbid(unsafe_code)]

use super::args::{Answer, Args};
use super::node::{Kind, Node};
use super::read::{
    VERSION, arenas_bin, arenas_lextent, is_arena, is_bin, is_lextent, junk, prof_prefix, thp, zero_realloc,
};
use super::{read, write};
use crate::conf::options;
use crate::{arenas, epoch, prof, sizeclass, stats, sys};

const fn leaf(name: &'static str, handler: fn(&[usize], &Args<'_>) -> Answer) -> Node {
    Node { name, kind: Kind::Leaf(handler) }
}

const fn names(name: &'static str, children: &'static [Node]) -> Node {
    Node { name, kind: Kind::Names(children) }
}

const fn index(name: &'static str, accepts: fn(usize) -> bool, children: &'static [Node]) -> Node {
    Node { name, kind: Kind::Index(accepts, children) }
}

pub(super) static ROOT: &[Node] = &[
    leaf("version", |_, args| args.text(VERSION)),
    leaf("epoch", write::epoch),
    leaf("background_thread", write::background_thread),
    names("thread", THREAD),
    names("config", CONFIG),
    names("opt", OPT),
    names("tcache", TCACHE),
    index("arena", is_arena, ARENA),
    names("arenas", ARENAS),
    names("prof", PROF),
    names("stats", STATS),
    names("approximate_stats", APPROXIMATE_STATS),
];

static THREAD: &[Node] = &[
    leaf("arena", write::thread_arena),
    leaf("allocated", read::thread_allocated),
    leaf("allocatedp", read::thread_allocatedp),
    leaf("deallocated", read::thread_deallocated),
    leaf("deallocatedp", read::thread_deallocatedp),
    names("prof", &[leaf("name", write::thread_prof_name), leaf("active", write::thread_prof_active)]),
    names("tcache", &[leaf("enabled", write::thread_tcache_enabled), leaf("flush", write::thread_tcache_flush)]),
    leaf("idle", write::thread_idle),
];

static CONFIG: &[Node] = &[
    leaf("cache_oblivious", |_, args| args.fact(false)),
    leaf("debug", |_, args| args.fact(cfg!(debug_assertions))),
    leaf("fill", |_, args| args.fact(true)),
    leaf("lazy_lock", |_, args| args.fact(false)),
    leaf("malloc_conf", |_, args| args.text(c"")),
    leaf("opt_safety_checks", |_, args| args.fact(false)),
    leaf("prof", |_, args| args.fact(true)),
    leaf("prof_libgcc", |_, args| args.fact(false)),
    leaf("prof_libunwind", |_, args| args.fact(false)),
    leaf("prof_frameptr", |_, args| args.fact(false)),
    leaf("stats", |_, args| args.fact(true)),
    leaf("utrace", |_, args| args.fact(false)),
    leaf("xmalloc", |_, args| args.fact(true)),
];

static OPT: &[Node] = &[
    leaf("abort", |_, args| args.fact(options().abort)),
    leaf("abort_conf", |_, args| args.fact(options().abort_conf)),
    leaf("confirm_conf", |_, args| args.fact(options().confirm_conf)),
    leaf("retain", |_, args| args.fact(options().retain)),
    leaf("thp", |_, args| args.text(thp(options().thp))),
    leaf("narenas", |_, args| args.fact(arenas::automatic_count())),
    leaf("background_thread", |_, args| args.fact(options().background_thread)),
    leaf("dirty_decay_ms", |_, args| args.fact(options().dirty_decay_ms)),
    leaf("muzzy_decay_ms", |_, args| args.fact(options().muzzy_decay_ms)),
    leaf("junk", |_, args| args.text(junk(options().junk))),
    leaf("zero", |_, args| args.fact(options().zero)),
    leaf("xmalloc", |_, args| args.fact(options().xmalloc)),
    leaf("experimental_infallible_new", |_, args| args.fact(options().experimental_infallible_new)),
    leaf("tcache", |_, args| args.fact(options().tcache)),
    leaf("tcache_max", |_, args| args.fact(options().tcache_max)),
    leaf("prof", |_, args| args.fact(options().prof)),
    leaf("prof_prefix", |_, args| args.text(prof_prefix())),
    leaf("prof_active", |_, args| args.fact(options().prof_active)),
    leaf("prof_thread_active_init", |_, args| args.fact(options().prof_thread_active_init)),
    leaf("prof_bt_max", |_, args| args.fact(options().prof_bt_max)),
    leaf("lg_prof_sample", |_, args| args.fact(options().lg_prof_sample as usize)),
    leaf("lg_prof_interval", |_, args| args.fact(options().lg_prof_interval)),
    leaf("prof_final", |_, args| args.fact(options().prof_final)),
    leaf("prof_accum", |_, args| args.fact(options().prof_accum)),
    leaf("zero_realloc", |_, args| args.text(zero_realloc(options().zero_realloc))),
];

static TCACHE: &[Node] =
    &[leaf("create", write::tcache_create), leaf("flush", write::tcache_flush), leaf("destroy", write::tcache_destroy)];

static ARENA: &[Node] = &[
    leaf("initialized", read::arena_initialized),
    leaf("decay", write::arena_decay),
    leaf("purge", write::arena_purge),
    leaf("dirty_decay_ms", write::arena_dirty_decay_ms),
    leaf("muzzy_decay_ms", write::arena_muzzy_decay_ms),
];

static ARENAS: &[Node] = &[
    leaf("narenas", |_, args| args.fact(arenas::count())),
    leaf("dirty_decay_ms", write::arenas_dirty_decay_ms),
    leaf("muzzy_decay_ms", write::arenas_muzzy_decay_ms),
    leaf("quantum", |_, args| args.fact(sizeclass::QUANTUM)),
    leaf("page", |_, args| args.fact(sys::page_size())),
    leaf("hugepage", |_, args| args.fact(read::HUGEPAGE_BYTES)),
    leaf("tcache_max", |_, args| args.fact(read::tcache_max())),
    leaf("nbins", |_, args| args.fact(sizeclass::NBINS as u32)),
    leaf("nhbins", |_, args| args.fact(read::nhbins())),
    index(
        "bin",
        is_bin,
        &[
            leaf("size", |mib, args| args.fact(arenas_bin(mib).size as usize)),
            leaf("nregs", |mib, args| args.fact(arenas_bin(mib).nregs)),
            leaf("slab_size", |mib, args| args.fact(arenas_bin(mib).slab_bytes as usize)),
            leaf("nshards", |_, args| args.fact(1_u32)),
        ],
    ),
    leaf("nlextents", |_, args| args.fact((sizeclass::NSIZES - sizeclass::NBINS) as u32)),
    index("lextent", is_lextent, &[leaf("size", |mib, args| args.fact(arenas_lextent(mib)))]),
    leaf("create", write::arenas_create),
    leaf("lookup", write::arenas_lookup),
];

static PROF: &[Node] = &[
    leaf("thread_active_init", write::prof_thread_active_init),
    leaf("active", write::prof_active),
    leaf("dump", write::prof_dump),
    leaf("prefix", write::prof_prefix),
    leaf("reset", write::prof_reset),
    leaf("interval", |_, args| args.fact(prof::interval_bytes())),
    leaf("lg_sample", |_, args| args.fact(prof::lg_sample() as usize)),
];

static STATS: &[Node] = &[
    leaf("allocated", |_, args| args.fact(epoch::figures().allocated)),
    leaf("active", |_, args| args.fact(epoch::figures().active)),
    leaf("metadata", |_, args| args.fact(epoch::figures().metadata)),
    leaf("resident", |_, args| args.fact(epoch::figures().resident)),
    leaf("mapped", |_, args| args.fact(epoch::figures().mapped)),
    leaf("retained", |_, args| args.fact(epoch::figures().retained)),
    leaf("zero_reallocs", |_, args| args.fact(stats::zero_reallocs())),
];

static APPROXIMATE_STATS: &[Node] = &[leaf("active", |_, args| args.fact(stats::snapshot().active))];

#[cfg(test)]
mod tests {
    use super::super::args::nothing;
    use super::super::node::{MAX_DEPTH, lookup, run};
    use super::*;
    use std::format;
    use std::string::{String, ToString};
    use std::vec::Vec;

    /// Every whole name, with index 0 for each index.
    fn whole_names(nodes: &'static [Node], before: &str, out: &mut Vec<String>) {
        for (at, node) in nodes.iter().enumerate() {
            assert!(!node.name.is_empty() && !node.name.contains('.'), "{:?}", node.name);
            assert!(nodes[..at].iter().all(|other| other.name != node.name), "{} twice", node.name);
            let name = if before.is_empty() { node.name.to_string() } else { format!("{before}.{}", node.name) };
            match node.kind {
                Kind::Leaf(_) => out.push(name),
                Kind::Names(children) => whole_names(children, &name, out),
                Kind::Index(_, children) => whole_names(children, &format!("{name}.0"), out),
            }
        }
    }

    #[test]
    fn every_name_is_found_and_runs() {
        let mut names = Vec::new();
        whole_names(ROOT, "", &mut names);
        assert!(names.len() >= 90, "{}", names.len());
        for name in names {
            let mut mib = [0; MAX_DEPTH];
            let depth = lookup(ROOT, name.as_bytes(), &mut mib).expect(&name);
            assert_eq!(depth, name.split('.').count());
            if name == "prof.dump" {
                continue;
            }
            // Without arguments every name answers success, or what it lacks.
            let answer = run(ROOT, &mib[..depth], &nothing()).map_err(|error| error.0);
            assert!(matches!(answer, Ok(()) | Err(libc::EINVAL | libc::EFAULT | libc::ENOENT)), "{name}: {answer:?}");
        }
    }
}
