//! What of a profile is shown: which value, which stacks, under which names.
//!
//! ```text
//!  profile ──► four numbers per stack (minus the base's)
//!     │ cut: frames of the allocator fall away at the leaf
//!     │ focus, ignore: stacks fall away; hide, show: functions fall away
//!     ▼ addresses become frames, one for each inlined function
//!  Stack { frames leaf first, numbers } ── Granularity ──► rows
//! ```
//!
//! Steps and order are jeprof's; so the sums are too. The steps themselves are in `view`. The frames of the allocator are
//! found by address first (the range on record, and mappings of its library), then by the names of jeprof's list.
#![forbid(unsafe_code)]

use regex::Regex;

use super::style::Style;
use crate::model::{Kind, Measure, Profile, StackId, Values};
use crate::symbolize::{Function, Site, Symbols};

/// Functions of allocators, by short name: jeprof's list for heap profiles.
#[rustfmt::skip]
const ALLOCATOR_FUNCTIONS: &[&str] = &[
    "calloc", "cfree", "malloc", "newImpl", "void* newImpl", "free", "memalign", "posix_memalign", "aligned_alloc",
    "pvalloc", "valloc", "realloc", "mallocx", "rallocx", "xallocx", "dallocx", "sdallocx", "sdallocx_noflags",
    "tc_calloc", "tc_cfree", "tc_malloc", "tc_free", "tc_memalign", "tc_posix_memalign", "tc_pvalloc", "tc_valloc",
    "tc_realloc", "tc_new", "tc_delete", "tc_newarray", "tc_deletearray", "tc_new_nothrow", "tc_newarray_nothrow",
    "do_malloc", "::do_malloc", "::do_malloc_or_cpp_alloc", "DoSampledAllocation", "simple_alloc::allocate",
    "__malloc_alloc_template::allocate", "__builtin_delete", "__builtin_new", "__builtin_vec_delete",
    "__builtin_vec_new", "operator new", "operator new[]", "malloc_zone_malloc", "malloc_zone_calloc",
    "malloc_zone_valloc", "malloc_zone_realloc", "malloc_zone_memalign", "malloc_zone_free", "__start_google_malloc",
    "__stop_google_malloc", "__start_malloc_hook", "__stop_malloc_hook",
];

/// Beginnings of Rust paths in jeprobe's own allocator: linked into a program, it has no file that tells its frames.
const OWN_CRATES: &[&str] = &["jeprobe_alloc::", "jeprobe_capi::"];

/// Beginnings of Rust paths between a collection and the allocator: as little of the user as `operator new` is.
const RUST_ALLOCATION: &[&str] =
    &["alloc::alloc::", "alloc::raw_vec::", "__rustc::__r", "__rust_alloc", "__rust_realloc"];

/// Which number of a stack is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Value {
    /// Bytes live now.
    #[default]
    InuseSpace,
    /// Objects live now.
    InuseObjects,
    /// Bytes ever allocated.
    AllocSpace,
    /// Objects ever allocated.
    AllocObjects,
}

impl Value {
    /// All of them; a value's place here is its index in [`Numbers`].
    pub const ALL: [Value; 4] = [Value::InuseSpace, Value::InuseObjects, Value::AllocSpace, Value::AllocObjects];

    /// The estimate of it, unbiased: bytes or objects.
    pub fn of(self, values: &Values) -> f64 {
        match self {
            Value::InuseSpace => values.current.est.bytes,
            Value::InuseObjects => values.current.est.objects,
            Value::AllocSpace => values.cumulative.est.bytes,
            Value::AllocObjects => values.cumulative.est.objects,
        }
    }

    /// The name that options, pprof and JSON have for it.
    pub fn name(self) -> &'static str {
        match self {
            Value::InuseSpace => "inuse_space",
            Value::InuseObjects => "inuse_objects",
            Value::AllocSpace => "alloc_space",
            Value::AllocObjects => "alloc_objects",
        }
    }

    /// The amount, not the count: bytes, in profiles of another kind what stands in their place.
    pub fn is_bytes(self) -> bool {
        matches!(self, Value::InuseSpace | Value::AllocSpace)
    }

    /// Those that profiles of a kind have: only of a heap, what is in use is not all that ever was.
    pub fn of_kind(kind: &Kind) -> &'static [Value] {
        if *kind == Kind::Heap { &Value::ALL } else { &Value::ALL[..2] }
    }

    /// [`Value::name`] in a profile of a kind.
    pub fn name_in(self, kind: &Kind) -> String {
        match kind {
            Kind::Heap => self.name().to_owned(),
            kind => self.measure(kind).name,
        }
    }

    /// [`Value::title`] in a profile of a kind.
    pub fn title_in(self, kind: &Kind) -> String {
        let title = match (kind, self.is_bytes()) {
            (Kind::Heap, _) => self.title(),
            (Kind::Contention, true) => "time waited for locks",
            (Kind::Contention, false) => "waits for locks",
            (Kind::Cpu, true) => "processor time",
            (Kind::Cpu, false) => "samples",
            (Kind::Other { .. }, _) => return self.measure(kind).name,
        };
        title.to_owned()
    }

    /// What a number of the value counts in a profile of a kind: `bytes`, `objects`, `nanoseconds`, `samples`.
    pub fn unit_in(self, kind: &Kind) -> String {
        let Measure { name, unit } = self.measure(kind);
        if unit.is_empty() || unit == "count" { name } else { unit }
    }

    fn measure(self, kind: &Kind) -> Measure {
        if self.is_bytes() { kind.amount() } else { kind.count() }
    }

    pub fn is_cumulative(self) -> bool {
        matches!(self, Value::AllocSpace | Value::AllocObjects)
    }

    /// For titles.
    pub fn title(self) -> &'static str {
        match self {
            Value::InuseSpace => "bytes in use",
            Value::InuseObjects => "objects in use",
            Value::AllocSpace => "bytes allocated",
            Value::AllocObjects => "objects allocated",
        }
    }
}

/// What one row is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Granularity {
    #[default]
    Functions,
    Lines,
    Files,
    Addresses,
}

/// The order of rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sort {
    /// What the row holds itself, most first.
    #[default]
    Flat,
    /// What it and everything it calls hold, most first.
    Cumulative,
    /// By name.
    Name,
}

/// The user's choice.
#[derive(Clone, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent choices")]
pub struct Options {
    pub value: Value,
    pub granularity: Granularity,
    /// Bytes instead of MiB.
    pub show_bytes: bool,
    /// How rows are ordered.
    pub sort: Sort,
    /// With a base: what shrank counts as 0.
    pub drop_negative: bool,
    /// Only stacks with a matching frame.
    pub focus: Option<Regex>,
    /// No stacks with a matching frame.
    pub ignore: Option<Regex>,
    /// Without the functions that match; their callers take over what they hold.
    pub hide: Option<Regex>,
    /// Only the functions that match.
    pub show: Option<Regex>,
    /// With the frames of the allocator.
    pub keep_allocator: bool,
    /// What the profile's numbers measure.
    pub kind: Kind,
    /// Without functions that the compiler inlined: their callers take over what they hold.
    pub no_inlines: bool,
    /// Looks of tables and trees.
    pub style: Style,
    /// Rows printed at most; all when `None`.
    pub limit: Option<usize>,
    /// In call graphs, every call between the functions that are shown.
    pub all_edges: bool,
}

impl Options {
    /// See [`Value::title_in`].
    pub fn title(&self) -> String {
        self.value.title_in(&self.kind)
    }

    /// See [`Value::unit_in`].
    pub fn unit(&self) -> String {
        self.value.unit_in(&self.kind)
    }
}

/// The four values of a stack, unbiased, indexed by [`Value`]: bytes in use, objects in use, bytes and objects allocated.
pub type Numbers = [f64; 4];

/// A profile, minus a base when there is one, under the names that its addresses have.
#[derive(Debug)]
pub struct Selection<'a> {
    pub(super) profile: &'a Profile,
    pub(super) symbols: &'a Symbols,
    value: Value,
    /// By stack id; empty without a base.
    base: Vec<Numbers>,
    is_difference: bool,
    drop_negative: bool,
}

/// Stacks of keys.
#[derive(Debug, Default)]
pub struct Keyed {
    /// Names of rows.
    pub keys: Vec<String>,
    /// Indexes into `keys`, leaf first; and the number.
    pub stacks: Vec<(Vec<usize>, f64)>,
}

impl<'a> Selection<'a> {
    /// Shows `value` of every stack.
    pub fn new(profile: &'a Profile, symbols: &'a Symbols, value: Value) -> Selection<'a> {
        Selection { profile, symbols, value, base: Vec::new(), is_difference: false, drop_negative: false }
    }

    /// Subtracts the values of a base whose stacks were adopted: `base` gives the id of each here, and its numbers.
    pub fn subtract(&mut self, base: impl IntoIterator<Item = (StackId, Numbers)>, drop_negative: bool) {
        self.is_difference = true;
        self.base.resize(self.profile.stack_count(), [0.0; 4]);
        for (id, numbers) in base {
            for (sum, number) in self.base[id.index()].iter_mut().zip(numbers) {
                *sum += number;
            }
        }
        self.drop_negative = drop_negative;
    }

    pub fn profile(&self) -> &'a Profile {
        self.profile
    }

    pub fn symbols(&self) -> &'a Symbols {
        self.symbols
    }

    /// The value that is shown.
    pub fn value(&self) -> Value {
        self.value
    }

    /// What stands behind a number: nothing where every object was counted.
    pub fn remark(&self) -> &'static str {
        if self.profile.basis(self.value.is_cumulative()).variance > 0.0 { " (estimated)" } else { "" }
    }

    /// True when a base was subtracted.
    pub fn has_base(&self) -> bool {
        self.is_difference
    }

    /// What the base had of a stack.
    pub fn base_of(&self, id: StackId) -> Numbers {
        self.base.get(id.index()).copied().unwrap_or_default()
    }

    /// The numbers of a stack; negative where the base had more.
    pub fn numbers(&self, id: StackId) -> Numbers {
        let mut numbers = numbers(self.profile.values(id));
        if let Some(base) = self.base.get(id.index()) {
            for (number, base) in numbers.iter_mut().zip(base) {
                *number -= base;
                if self.drop_negative {
                    *number = number.max(0.0);
                }
            }
        }
        numbers
    }

    /// Sums over all stacks, before anything is left out.
    pub fn totals(&self) -> Numbers {
        let mut sums = [0.0; 4];
        for (id, _, _) in self.profile.totals() {
            sums.iter_mut().zip(self.numbers(id)).for_each(|(sum, number)| *sum += number);
        }
        sums
    }

    /// Sum of the shown value over all stacks, before anything is left out.
    pub fn total(&self) -> f64 {
        self.totals()[self.value as usize]
    }
}

/// All four values.
pub fn numbers(values: &Values) -> Numbers {
    Value::ALL.map(|value| value.of(values))
}

/// Functions of an address, innermost first, without the allocator's that were inlined into a function of the user.
pub(super) fn user_functions(site: &Site) -> &[Function] {
    let cut = |function: &&Function| function.is_inlined && is_listed(&function.short);
    &site.functions[site.functions.iter().take_while(cut).count()..]
}

pub(super) fn is_allocator_function(site: &Site) -> bool {
    site.functions.last().is_some_and(|function| is_listed(&function.short))
}

fn is_listed(short: &str) -> bool {
    let name = short.split_once('@').map_or(short, |(name, _)| name);
    let listed = |name: &str| ALLOCATOR_FUNCTIONS.contains(&name);
    listed(name)
        || name.strip_prefix('_').is_some_and(listed)
        || name.contains("TCMalloc")
        || name.starts_with("tcmalloc::")
        || OWN_CRATES.iter().chain(RUST_ALLOCATION).any(|path| name.trim_start_matches('<').starts_with(path))
}

#[cfg(test)]
mod tests {
    use super::{Granularity, Options, Selection, Value};
    use crate::model::{Profile, StackId};
    use crate::output::text;
    use crate::symbolize::{Function, Site, Symbols};
    use crate::units::{Count, EstCount, SampleInterval, Sums};
    use regex::Regex;

    fn site(names: &[&str]) -> Site {
        let functions = names.iter().enumerate().map(|(at, name)| Function {
            full: (*name).into(),
            short: (*name).into(),
            location: format!("{name}.c:{at}"),
            is_inlined: at + 1 < names.len(),
        });
        Site { functions: functions.collect(), label: "lib.so+0x1".into(), start: 1, ..Site::default() }
    }

    fn bytes(bytes: u64) -> Sums {
        Sums { raw: Count { objects: 1, bytes }, est: EstCount { objects: 1.0, bytes: bytes as f64 } }
    }

    /// Addresses are those of calls; frames behind the leaf are one past them.
    fn symbols() -> Symbols {
        Symbols::of([
            (1, Site { is_allocator: true, ..site(&["slow_path"]) }),
            (2, site(&["malloc"])),
            (3, site(&["make"])),
            (4, site(&["walk"])),
            (5, site(&["main"])),
            (6, site(&["helper", "make_all"])),
            (7, Site { label: "libx.so+0x7".into(), ..Site::default() }),
            (8, site(&["malloc", "load"])),
            (9, site(&["<jeprobe_alloc::Jeprobe as core::alloc::GlobalAlloc>::alloc"])),
            (10, site(&["alloc::alloc::alloc", "<alloc::raw_vec::RawVec<u8>>::with_capacity_in", "read"])),
            (11, site(&["<alloc::alloc::Global as core::alloc::Allocator>::allocate"])),
        ])
    }

    fn profile(stacks: &[(&[u64], u64)]) -> Profile {
        let mut profile = Profile::new(SampleInterval(0));
        for (sites, value) in stacks {
            let frames: Vec<u64> = sites.iter().enumerate().map(|(depth, site)| site + u64::from(depth > 0)).collect();
            profile.add(&frames, None, bytes(*value), Sums::ZERO);
        }
        profile
    }

    fn table(profile: &Profile, options: &Options) -> String {
        let symbols = symbols();
        let mut out = Vec::new();
        let options = Options { show_bytes: true, ..options.clone() };
        text::write(&Selection::new(profile, &symbols, options.value), &options, &mut out).expect("memory");
        let text = String::from_utf8(out).expect("text");
        text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ") + "\n").collect()
    }

    #[test]
    fn allocator_frames_fall_by_address_and_by_the_oldest_listed_name() {
        for stack in [&[1, 3, 5][..], &[1, 2, 3, 5], &[7, 2, 3, 5], &[2, 4, 2, 3, 5], &[1, 9, 3, 5]] {
            let table = table(&profile(&[(stack, 10)]), &Options::default());
            assert_eq!(
                table, "Total: 10 B\n10 100.0% 100.0% 10 100.0% make\n0 0.0% 100.0% 10 100.0% main\n",
                "{stack:?}"
            );
        }
    }

    #[test]
    fn an_inlined_malloc_is_no_row_and_other_inlined_functions_are() {
        let table = table(&profile(&[(&[8, 6], 10)]), &Options::default());
        assert_eq!(
            table,
            "Total: 10 B\n10 100.0% 100.0% 10 100.0% load\n0 0.0% 100.0% 10 100.0% helper (inline)\n0 0.0% 100.0% 10 100.0% \
             make_all\n"
        );
    }

    #[test]
    fn what_lies_between_a_collection_of_rust_and_the_allocator_is_no_row() {
        let read = "Total: 10 B\n10 100.0% 100.0% 10 100.0% read\n0 0.0% 100.0% 10 100.0% main\n";
        assert_eq!(table(&profile(&[(&[1, 10, 5], 10)]), &Options::default()), read);
        assert_eq!(table(&profile(&[(&[1, 11, 10, 5], 10)]), &Options::default()), read);
        let kept = table(&profile(&[(&[10, 5], 10)]), &Options { keep_allocator: true, ..Options::default() });
        assert!(kept.contains("10 100.0% 100.0% 10 100.0% alloc::alloc::alloc (inline)\n"), "{kept}");
    }

    #[test]
    fn of_rows_that_hold_the_same_those_come_first_that_lead_to_more() {
        let table = table(&profile(&[(&[3, 6, 5], 10), (&[3, 5], 10)]), &Options::default());
        let names: Vec<&str> =
            table.lines().skip(1).filter_map(|line| line.rsplit_once("% ")).map(|row| row.1).collect();
        assert_eq!(names, ["make", "main", "helper (inline)", "make_all"]);
    }

    #[test]
    fn recursion_counts_once_and_unnamed_frames_keep_their_label() {
        let table = table(&profile(&[(&[7, 4, 4, 4], 10), (&[4, 5], 5)]), &Options::default());
        assert_eq!(
            table,
            "Total: 15 B\n10 66.7% 66.7% 10 66.7% libx.so+0x7\n5 33.3% 100.0% 15 100.0% walk\n0 0.0% 100.0% 5 33.3% main\n"
        );
    }

    #[test]
    fn focus_and_ignore_look_at_names_places_and_addresses() {
        let profile = profile(&[(&[3, 5], 10), (&[4, 5], 20)]);
        for (pattern, rest) in [("^walk$", 20), (r"make\.c:0", 10), ("0{15}4", 20), ("main", 30)] {
            let regex = Some(Regex::new(pattern).expect("a pattern"));
            let focused = table(&profile, &Options { focus: regex.clone(), ..Options::default() });
            assert!(focused.starts_with("Total: 30 B\n"), "the heading is the whole: {focused}");
            assert!(focused.contains(&format!("{rest} 100.0% main\n")), "{pattern}: {focused}");
            let ignored = table(&profile, &Options { ignore: regex, ..Options::default() });
            let expected = if rest == 30 { String::new() } else { format!("{} 100.0% main\n", 30 - rest) };
            assert!(
                ignored.ends_with(&expected) && (rest != 30 || ignored.lines().count() == 1),
                "{pattern}: {ignored}"
            );
        }
    }

    #[test]
    fn granularities_name_rows() {
        let profile = profile(&[(&[3, 7], 10)]);
        for (granularity, names) in [
            (Granularity::Functions, ["make", "libx.so+0x7"]),
            (Granularity::Lines, ["make make.c:0", "libx.so+0x7"]),
            (Granularity::Files, ["make.c", "?? (libx.so)"]),
            (Granularity::Addresses, ["0000000000000003 make make.c:0", "libx.so+0x7"]),
        ] {
            let table = table(&profile, &Options { granularity, ..Options::default() });
            assert!(names.iter().all(|name| table.contains(&format!("100.0% {name}\n"))), "{granularity:?}: {table}");
        }
    }

    #[test]
    fn a_base_subtracts_and_may_not_go_below_nothing() {
        let profile = profile(&[(&[3, 5], 10), (&[4, 5], 20)]);
        let symbols = symbols();
        let base = [(StackId(0), [25.0, 0.0, 0.0, 0.0]), (StackId(1), [5.0, 0.0, 0.0, 0.0])];
        for (drop_negative, total) in [(false, 0.0), (true, 15.0)] {
            let mut selection = Selection::new(&profile, &symbols, Value::InuseSpace);
            selection.subtract(base, drop_negative);
            assert!((selection.total() - total).abs() < 1e-9, "{drop_negative}: {}", selection.total());
        }
    }
}
