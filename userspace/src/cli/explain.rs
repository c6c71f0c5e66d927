//! What is to be known about a result, on stderr: what the estimate rests on, what the recording lost, notes of the recorder,
//! addresses without names and why.
#![forbid(unsafe_code)]

use std::convert::Infallible;

use super::term::Term;
use crate::model::Profile;
use crate::output::unmatched::unmatched;
use crate::output::{Options, Selection, Value};
use crate::picture::flame::human;
use crate::symbolize::Symbols;
use crate::units::counted;

/// Files without names that are listed one by one.
const LISTED_PROBLEMS: usize = 5;

/// Says on stderr what the numbers rest on and what is missing from them.
pub fn explain(profile: &Profile, symbols: &Symbols, options: &Options, term: &mut Term) {
    explain_recording(profile, options, term);
    if let Some(line) = unresolved(symbols.counts()) {
        term.say(line);
    }
    for problem in symbols.problems().iter().take(LISTED_PROBLEMS) {
        term.say(format_args!("  {problem}"));
    }
    let more = symbols.problems().len().saturating_sub(LISTED_PROBLEMS);
    if more > 0 {
        term.say(format_args!("  and {} more", counted(more as u64, "file", "files")));
    }
    for failure in symbols.failures() {
        term.warn(failure);
    }
}

/// How many addresses have no name, if any.
fn unresolved((all, unnamed): (usize, usize)) -> Option<String> {
    let of = counted(all as u64, "address", "addresses");
    (unnamed > 0)
        .then(|| format!("unresolved: {unnamed} of {of} {} no name", if unnamed == 1 { "has" } else { "have" }))
}

/// Addresses without names over a series: those of the profile that has the most.
#[derive(Debug, Default)]
pub struct Unnamed {
    counts: (usize, usize),
    name: String,
    failures: Vec<String>,
}

impl Unnamed {
    /// Takes in the names of one profile.
    pub fn look(&mut self, symbols: &Symbols, name: &str) {
        if symbols.counts().1 > self.counts.1 {
            self.counts = symbols.counts();
            name.clone_into(&mut self.name);
        }
        for failure in symbols.failures() {
            if !self.failures.contains(failure) {
                self.failures.push(failure.clone());
            }
        }
    }

    pub fn tell(&self, term: &mut Term) {
        if let Some(line) = unresolved(self.counts) {
            term.say(format_args!("{line} in {}", self.name));
        }
        for failure in &self.failures {
            term.warn(failure);
        }
    }
}

/// The same of a difference: of both sides, and how far the difference may be off.
pub fn explain_difference(
    (before, after): (&Profile, &Profile),
    symbols: &Symbols,
    options: &Options,
    term: &mut Term,
) {
    term.heading("the old profile:");
    explain_recording(before, options, term);
    term.heading("the new profile:");
    explain(after, symbols, options, term);
    let is_cumulative = options.value.is_cumulative();
    let variance = before.basis(is_cumulative).variance + after.basis(is_cumulative).variance;
    if variance > 0.0 && options.value.is_bytes() {
        // Samples that both profiles hold cancel out.
        term.say(format_args!("standard error of the difference: at most {}", human(variance.sqrt(), &options.unit())));
    }
}

/// Says which patterns find nothing in any of the selections.
pub fn explain_unmatched(selections: &[&Selection<'_>], options: &Options, term: &mut Term) {
    let (first, others) = selections.split_first().expect("something is shown");
    for (option, pattern) in unmatched(first, options) {
        if others.iter().all(|other| unmatched(other, options).iter().any(|(name, _)| *name == option)) {
            let what = if matches!(option, "--focus" | "--ignore") { "stack" } else { "function" };
            term.warn(format_args!("no {what} matches {option} {:?}", pattern.as_str()));
        }
    }
    if options.focus.is_none() && options.ignore.is_none() {
        return;
    }
    let leaves = |selection: &&Selection<'_>| selection.walk(options, |_, _| Err(())).is_err();
    if options.focus.is_some() && options.ignore.is_some() && !selections.iter().any(leaves) {
        term.warn("--focus and --ignore together leave no stack");
    } else if !first.has_base() && others.is_empty() && first.total() > 0.0 {
        let mut shown = 0.0;
        let Ok(_) = first.walk::<Infallible>(options, |stack, _| {
            shown += stack.numbers[options.value as usize];
            Ok(())
        });
        let amount = |value: f64| human(value, &options.unit());
        let share = 100.0 * shown / first.total();
        term.say(format_args!(
            "--focus and --ignore leave {} of {}, {share:.1}%; percentages are of what is left",
            amount(shown),
            amount(first.total())
        ));
    }
}

/// The part of it that is about the recording, whatever the names are.
pub fn explain_recording(profile: &Profile, options: &Options, term: &mut Term) {
    if options.value.is_cumulative() && !profile.has_cumulative() {
        term.warn("the profile has no cumulative counts; run the program with MALLOC_CONF=prof_accum:true");
    } else {
        let basis = profile.basis(options.value.is_cumulative());
        let sum = profile.sum();
        let bytes = if options.value.is_cumulative() { sum.cumulative.est.bytes } else { sum.current.est.bytes };
        if let Some(line) = empty(profile, options.value) {
            term.say(line);
        }
        let one_per = basis.one_per();
        if bytes > 0.0 && (one_per.is_some() || basis.variance > 0.0) {
            let one_per = one_per.map_or_else(String::new, |words| format!(", {words}"));
            let error = 100.0 * basis.variance.sqrt() / bytes;
            // Objects far above the interval are sampled for certain, but for once in a while.
            let error = if error < 0.05 { "below 0.1%".to_owned() } else { format!("{error:.1}%") };
            let samples = counted(basis.samples, "sample", "samples");
            term.say(format_args!("estimated from {samples}{one_per}; standard error of the total {error}"));
        }
    }
    if let Some(line) = profile.allocated_since().filter(|_| options.value.is_cumulative()) {
        term.say(line);
    }
    for line in profile.lost() {
        term.warn(line);
    }
    for note in profile.notes() {
        term.warn(note);
    }
}

/// Why nothing is in use, when nothing is.
pub fn empty(profile: &Profile, value: Value) -> Option<String> {
    (!value.is_cumulative() && profile.basis(false).samples == 0).then(|| nothing_live(profile))
}

/// Says why there is no table.
fn nothing_live(profile: &Profile) -> String {
    let counted = profile.counters().iter().find(|(name, _)| name == "samples").map(|&(_, count)| count);
    let cumulative = profile.has_cumulative().then(|| profile.sum().cumulative.raw.objects);
    match counted.or(cumulative) {
        Some(0) => "no live sampled memory: no sample was taken".to_owned(),
        Some(1) => "no live sampled memory: the one sample that was taken was freed".to_owned(),
        Some(taken) => format!("no live sampled memory: {taken} samples were taken and all were freed"),
        None => "no live sampled memory: no sample was taken, or all were freed".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::nothing_live;
    use crate::model::Profile;
    use crate::units::{Count, EstCount, SampleInterval, Sums};

    #[test]
    fn an_empty_table_is_explained() {
        let mut profile = Profile::new(SampleInterval(1024));
        assert!(nothing_live(&profile).ends_with("no sample was taken, or all were freed"));
        let freed = Sums { raw: Count { objects: 3, bytes: 30 }, est: EstCount { objects: 300.0, bytes: 3000.0 } };
        profile.add(&[1], None, Sums::ZERO, freed);
        assert_eq!(nothing_live(&profile), "no live sampled memory: 3 samples were taken and all were freed");
        profile.add_counter("samples", 5);
        assert_eq!(nothing_live(&profile), "no live sampled memory: 5 samples were taken and all were freed");
    }
}
