//! What is to be known about a series of profiles: what its estimates rest on, what was lost or not sampled.
//!
//! ```text
//!  about each profile ─┬─► basis     one line: least and most of samples, intervals, standard errors
//!                      └─► remarks   each line once, with the profiles that say it
//! ```
//!
//! A series may have hundreds of profiles, which mostly say the same.
#![forbid(unsafe_code)]

use std::fmt::Display;
use std::sync::Arc;

use super::dataset::{About, Dataset};
use crate::output::Value;

/// Profiles that are named beside a remark, at most.
const NAMED: usize = 3;

/// What the estimates rest on, without line end; `None` when nothing of the series is estimated.
pub fn basis(series: &[Arc<Dataset>], value: Value) -> Option<String> {
    let side = usize::from(value.is_cumulative());
    let estimated: Vec<&About> = series
        .iter()
        .map(|data| &data.about)
        .filter(|about| about.samples[side] > 0 && (about.coarsest > 1 || about.errors[side] > 0.0))
        .collect();
    let samples = range(estimated.iter().map(|about| about.samples[side]))?;
    let intervals = range(estimated.iter().flat_map(|about| [about.interval.max(1), about.coarsest.max(1)]))?;
    let mut text = format!("estimated from {samples} samples, one per {intervals} bytes");
    let bytes = if side == 0 { Value::InuseSpace } else { Value::AllocSpace } as usize;
    let sized = estimated.iter().filter(|about| about.totals[bytes] > 0.0);
    // Tenths of a percent.
    let shares = sized.map(|about| (1000.0 * about.errors[side] / about.totals[bytes]).round() as u64);
    if let Some((least, most)) = extremes(shares) {
        let percent = |share: u64| format!("{}.{}", share / 10, share % 10);
        let words = match (least, most) {
            (0, 0) => "below 0.1%".to_owned(),
            _ if least == most => format!("{}%", percent(most)),
            _ => format!("{} to {}%", percent(least), percent(most)),
        };
        text.push_str("; standard error of a total ");
        text.push_str(&words);
    }
    Some(text)
}

/// Losses and notes, each once. What only some of the profiles say begins with their names.
pub fn remarks(series: &[Arc<Dataset>], value: Value) -> Vec<String> {
    let mut said: Vec<(String, Vec<&str>)> = Vec::new();
    for data in series {
        for line in lines(&data.about, value) {
            match said.iter_mut().find(|(known, _)| *known == line) {
                Some((_, by)) => by.push(&data.name),
                None => said.push((line, vec![&data.name])),
            }
        }
    }
    let prefixed = |(line, by): (String, Vec<&str>)| {
        let more = by.len().saturating_sub(NAMED);
        match more {
            _ if by.len() == series.len() => line,
            0 => format!("{}: {line}", by.join(", ")),
            _ => format!("{} and {more} more: {line}", by[..NAMED].join(", ")),
        }
    };
    said.into_iter().map(prefixed).collect()
}

fn lines(about: &About, value: Value) -> Vec<String> {
    let mut lines = Vec::new();
    if value.is_cumulative() && !about.has_cumulative {
        lines.push("no cumulative counts; run the program with MALLOC_CONF=prof_accum:true".to_owned());
    }
    lines.extend(about.losses.iter().cloned());
    lines.extend(about.since.filter(|_| value.is_cumulative()).map(ToOwned::to_owned));
    lines.extend(about.notes.iter().cloned());
    lines
}

fn extremes(numbers: impl Iterator<Item = u64>) -> Option<(u64, u64)> {
    numbers.fold(None, |known, number| {
        Some(known.map_or((number, number), |(least, most): (u64, u64)| (least.min(number), most.max(number))))
    })
}

fn range(numbers: impl Iterator<Item = u64>) -> Option<impl Display> {
    extremes(numbers).map(|(least, most)| if least == most { most.to_string() } else { format!("{least} to {most}") })
}

#[cfg(test)]
mod tests {
    use super::super::dataset::{About, Dataset};
    use super::{basis, remarks};
    use crate::output::Value;
    use std::sync::Arc;

    fn data(name: &str, samples: u64, error: f64, notes: &[&str]) -> Arc<Dataset> {
        let about = About {
            totals: [1e6; 4],
            errors: [error, 0.0],
            samples: [samples, 0],
            interval: 4096,
            coarsest: 4096,
            notes: notes.iter().map(|note| (*note).to_owned()).collect(),
            ..About::default()
        };
        Arc::new(Dataset { name: name.into(), about, ..Dataset::default() })
    }

    #[test]
    fn a_series_tells_the_least_and_the_most() {
        let series = [data("a", 10, 31_000.0, &[]), data("b", 40, 15_500.0, &[]), data("empty", 0, 0.0, &[])];
        let words = basis(&series, Value::InuseSpace);
        assert_eq!(
            words.as_deref(),
            Some("estimated from 10 to 40 samples, one per 4096 bytes; standard error of a total 1.6 to 3.1%")
        );
        let one = basis(&series[..1], Value::InuseObjects);
        assert!(
            one.is_some_and(|words| words.ends_with("10 samples, one per 4096 bytes; standard error of a total 3.1%"))
        );
        assert_eq!(basis(&series, Value::AllocSpace), None, "nothing was counted");
        assert_eq!(basis(&[], Value::InuseSpace), None);
    }

    #[test]
    fn what_all_say_is_said_once_and_what_some_say_is_theirs() {
        let series = ["a", "b", "c", "d", "e"].map(|name| match name {
            "a" => data(name, 1, 0.0, &["all"]),
            "b" => data(name, 1, 0.0, &["all", "only here"]),
            _ => data(name, 1, 0.0, &["all", "later"]),
        });
        assert_eq!(remarks(&series, Value::InuseSpace), ["all", "b: only here", "c, d, e: later"]);
        let lines = remarks(&series[..4], Value::AllocSpace);
        assert!(lines[0].starts_with("no cumulative counts"), "{lines:?}");
        let many = remarks(
            &[data("x", 1, 0.0, &[]), series[2].clone(), series[2].clone(), series[2].clone(), series[2].clone()],
            Value::InuseSpace,
        );
        assert_eq!(many, ["c, c, c and 1 more: all", "c, c, c and 1 more: later"]);
    }
}
