//! Frames and stacks that are left out before anything is shown.
//!
//! 1. Frames of the allocator, the lock or the signal handler: everything younger than the oldest of them goes, too. A
//!    stack that becomes empty still counts in the total.
//! 2. `--retain`, `--exclude`: single frames, by the short name of the outermost function; a stack that becomes empty goes.
//! 3. `--focus`, `--ignore`: whole stacks, by address, short name or line of any function of any frame.
#![forbid(unsafe_code)]

use std::borrow::Cow;

use rustc_hash::FxHashSet;

use super::address::Width;
use super::options::{Compat, Options};
use super::pattern::Pattern;
use super::stacks::{PcId, Pcs, Stacks};
use super::stop::Result;
use super::streams::say;
use super::symbols::Symbols;
use super::values::Kind;

/// Entries of the allocator, also with an underscore before them.
const ALLOCATOR: [&str; 50] = [
    "calloc",
    "cfree",
    "malloc",
    "newImpl",
    "void* newImpl",
    "free",
    "memalign",
    "posix_memalign",
    "aligned_alloc",
    "pvalloc",
    "valloc",
    "realloc",
    "mallocx",
    "rallocx",
    "xallocx",
    "dallocx",
    "sdallocx",
    "sdallocx_noflags",
    "tc_calloc",
    "tc_cfree",
    "tc_malloc",
    "tc_free",
    "tc_memalign",
    "tc_posix_memalign",
    "tc_pvalloc",
    "tc_valloc",
    "tc_realloc",
    "tc_new",
    "tc_delete",
    "tc_newarray",
    "tc_deletearray",
    "tc_new_nothrow",
    "tc_newarray_nothrow",
    "do_malloc",
    "::do_malloc",
    "::do_malloc_or_cpp_alloc",
    "DoSampledAllocation",
    "simple_alloc::allocate",
    "__malloc_alloc_template::allocate",
    "__builtin_delete",
    "__builtin_new",
    "__builtin_vec_delete",
    "__builtin_vec_new",
    "operator new",
    "operator new[]",
    "malloc_zone_malloc",
    "malloc_zone_calloc",
    "malloc_zone_valloc",
    "malloc_zone_realloc",
    "malloc_zone_memalign",
];

const ALLOCATOR_MORE: [&str; 5] =
    ["malloc_zone_free", "__start_google_malloc", "__stop_google_malloc", "__start_malloc_hook", "__stop_malloc_hook"];

/// What 5.3.1 knows besides. Its names are cut at the first blank before they are looked up, so that of these only those
/// without one count, and `operator new` no longer does.
const ALLOCATOR_531: [&str; 12] = [
    "je_malloc_default",
    "fallbackNewImpl",
    "fallback_impl",
    "imalloc",
    "imalloc_body",
    "prof_alloc_prep",
    "prof_backtrace_impl",
    "je_prof_backtrace",
    "je_prof_tctx_create",
    "irallocx_prof",
    "do_rallocx",
    "ixallocx_prof",
];

const LOCKS: [&str; 10] = [
    "base::RecordLockProfileData",
    "base::SubmitMutexProfileData",
    "base::SubmitSpinLockProfileData",
    "Mutex::Unlock",
    "Mutex::UnlockSlow",
    "Mutex::ReaderUnlock",
    "MutexLock::~MutexLock",
    "SpinLock::Unlock",
    "SpinLock::SlowUnlock",
    "SpinLockHolder::~SpinLockHolder",
];

const SIGNALS: [&str; 6] = [
    "ProfileData::Add",
    "ProfileData::prof_handler",
    "CpuProfiler::prof_handler",
    "__FRAME_END__",
    "__pthread_sighandler",
    "__restore",
];

/// The addresses of a run with what is known of each.
#[derive(Clone, Copy)]
pub struct Named<'a> {
    pub pcs: &'a Pcs,
    pub symbols: &'a Symbols,
    pub width: Width,
}

impl Named<'_> {
    /// One answer per address of the run.
    fn by_pc(&self, answer: impl Fn(u64) -> bool) -> Vec<bool> {
        (0..self.pcs.len()).map(|id| answer(self.pcs.address(id as PcId))).collect()
    }

    /// Short name of the outermost function, or the address.
    fn outermost(&self, address: u64) -> String {
        match self.symbols.get(address) {
            Some([name, ..]) => name.short.to_string(),
            _ => self.width.text(address),
        }
    }
}

/// Steps 1 and 2. What nothing is left out of is the same stacks.
pub fn without_uninteresting<'a>(
    stacks: &'a Stacks,
    named: Named<'_>,
    kind: Kind,
    options: &Options,
) -> Result<Cow<'a, Stacks>> {
    let same_removed = if kind == Kind::Cpu { without_handler(stacks, named) } else { None };
    let stacks = same_removed.map_or(Cow::Borrowed(stacks), Cow::Owned);
    let skip = skipped_names(kind, options.compat);
    let is_heap = matches!(kind, Kind::Heap | Kind::Growth);
    let skipped = named.by_pc(|address| {
        named.symbols.get(address).and_then(<[_]>::first).is_some_and(|name| {
            let short = &*name.short;
            let short = match options.compat {
                Compat::V530 => short,
                Compat::V531 => short.split(' ').next().unwrap_or_default(),
            };
            let is_skipped = skip.contains(short)
                || is_heap && short.strip_prefix('_').is_some_and(|without| skip.contains(without));
            is_skipped || is_heap && (short.contains("TCMalloc") || short.starts_with("tcmalloc::"))
        })
    });
    let retain = (!options.retain.is_empty()).then(|| Pattern::new(&options.retain, "--retain")).transpose()?;
    let exclude = (!options.exclude.is_empty()).then(|| Pattern::new(&options.exclude, "--exclude")).transpose()?;
    let filters = retain.is_some() || exclude.is_some();
    let kept = named.by_pc(|address| {
        if !filters {
            return true;
        }
        let name = named.outermost(address);
        retain.as_ref().is_none_or(|retain| retain.is_match(&name))
            && !exclude.as_ref().is_some_and(|exclude| exclude.is_match(&name))
    });
    let any_skipped = || skipped.contains(&true) && stacks.frames().iter().any(|&id| skipped[id as usize]);
    if !filters && !any_skipped() {
        return Ok(stacks);
    }
    let mut result = Stacks::default();
    let mut path = Vec::new();
    for (stack, value) in stacks.iter() {
        let from = stack.iter().rposition(|&id| skipped[id as usize]).map_or(0, |at| at + 1);
        if !filters {
            result.add(&stack[from..], value);
            continue;
        }
        path.clear();
        path.extend(stack[from..].iter().copied().filter(|&id| kept[id as usize]));
        if !path.is_empty() {
            result.add(&path, value);
        }
    }
    Ok(Cow::Owned(result))
}

/// Those of the allocator also count with an underscore before them.
fn skipped_names(kind: Kind, compat: Compat) -> FxHashSet<&'static str> {
    match kind {
        Kind::Heap | Kind::Growth => {
            let newer: &[&str] = if compat == Compat::V531 { &ALLOCATOR_531 } else { &[] };
            ALLOCATOR.iter().chain(&ALLOCATOR_MORE).chain(newer).copied().collect()
        }
        Kind::Contention => LOCKS.into_iter().collect(),
        Kind::Cpu => SIGNALS.into_iter().collect(),
        Kind::Unknown => FxHashSet::default(),
    }
}

/// While all stacks have the same second frame, it is the profiler's own and goes.
fn without_handler(stacks: &Stacks, named: Named<'_>) -> Option<Stacks> {
    let mut result: Option<Stacks> = None;
    while let Some(second) = common_second(result.as_ref().unwrap_or(stacks)) {
        say(format_args!("Removing {} from all stack traces.\n", named.outermost(named.pcs.address(second))));
        let mut shorter = Stacks::default();
        let mut path = Vec::new();
        for (stack, value) in result.as_ref().unwrap_or(stacks).iter() {
            path.clear();
            path.push(stack[0]);
            path.extend_from_slice(&stack[2..]);
            shorter.add(&path, value);
        }
        result = Some(shorter);
    }
    result
}

/// The second frame that all stacks have.
fn common_second(stacks: &Stacks) -> Option<PcId> {
    let mut seconds = stacks.iter().map(|(stack, _)| stack.get(1).copied());
    let second = seconds.next()??;
    seconds.all(|other| other == Some(second)).then_some(second)
}

/// Stacks with (`keep`) or without a frame that matches.
fn matching(stacks: &Stacks, named: Named<'_>, pattern: &Pattern, keep: bool) -> Stacks {
    let matches = named.by_pc(|address| {
        pattern.is_match(&named.width.text(address))
            || named.symbols.get(address).is_some_and(|names| {
                names.iter().any(|name| pattern.is_match(&name.short) || pattern.is_match(&name.line))
            })
    });
    let mut result = Stacks::default();
    for (stack, value) in stacks.iter() {
        if stack.iter().any(|&id| matches[id as usize]) == keep {
            result.add(stack, value);
        }
    }
    result
}

/// `--focus`.
pub fn focus(stacks: &Stacks, named: Named<'_>, expression: &str) -> Result<Stacks> {
    Ok(matching(stacks, named, &Pattern::new(expression, "--focus")?, true))
}

/// `--ignore`.
pub fn ignore(stacks: &Stacks, named: Named<'_>, expression: &str) -> Result<Stacks> {
    Ok(matching(stacks, named, &Pattern::new(expression, "--ignore")?, false))
}

#[cfg(test)]
mod tests {
    use rustc_hash::FxHashMap;

    use super::*;

    fn shown(stacks: &Stacks) -> Vec<(Vec<PcId>, f64)> {
        stacks.iter().map(|(stack, value)| (stack.to_vec(), value)).collect()
    }

    fn run(options: &Options, kind: Kind) -> Vec<(Vec<PcId>, f64)> {
        let mut pcs = Pcs::default();
        let texts = ["operator new(unsigned long)", "malloc", "leaf(int)", "main", "mallocator"];
        let mut table = FxHashMap::default();
        for (address, name) in texts.iter().enumerate() {
            pcs.id(address as u64);
            table.insert(address as u64, (*name).to_owned());
        }
        let symbols = Symbols::from_names(&[0, 1, 2, 3, 4], &table, Width::W16);
        let named = Named { pcs: &pcs, symbols: &symbols, width: Width::W16 };
        let mut stacks = Stacks::default();
        stacks.add(&[4, 1, 0, 2, 3], 1.0);
        stacks.add(&[2, 3], 2.0);
        stacks.add(&[1], 4.0);
        shown(&without_uninteresting(&stacks, named, kind, options).expect("patterns are right"))
    }

    #[test]
    fn everything_younger_than_the_allocator_goes() {
        let options = Options::default();
        assert_eq!(run(&options, Kind::Heap), [(vec![2, 3], 3.0), (vec![], 4.0)]);
        assert_eq!(run(&options, Kind::Unknown).len(), 3);
        let newer = Options { compat: Compat::V531, ..options };
        assert_eq!(run(&newer, Kind::Heap)[0], (vec![0, 2, 3], 1.0));
    }

    #[test]
    fn frames_are_retained_and_excluded() {
        let retain = Options { retain: "main".into(), ..Options::default() };
        assert_eq!(run(&retain, Kind::Heap), [(vec![3], 3.0)]);
        let without = Options { exclude: "^main$".into(), ..Options::default() };
        assert_eq!(run(&without, Kind::Heap), [(vec![2], 3.0)]);
    }
}
