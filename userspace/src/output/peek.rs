//! Callers and callees of the functions that match: who makes them allocate, and where below them it is allocated.
//!
//! ```text
//! small_user: 5.0 MiB (59.1%) in and below it, 0.0 MiB (0.0%) itself
//!      5.0 100.0%   called by main
//!      5.0 100.0%   calls leaf
//! ```
//!
//! Shares are of the function's cumulative number. A recursive function is taken where it is nearest to the leaf for what it
//! calls, and where it is nearest to the root for who calls it, so the callers' numbers and the callees' together with its own
//! each sum up to the cumulative number.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::convert::Infallible;
use std::io::{self, Write};

use regex::Regex;

use super::select::{Options, Selection};
use super::text::{amount, percent, unit};
use super::view::Keys;

#[derive(Default)]
struct Found {
    flat: f64,
    cumulative: f64,
    /// `None`: the root of a stack.
    callers: HashMap<Option<usize>, f64>,
    callees: HashMap<usize, f64>,
}

/// Writes one paragraph for each matching row, largest first. False when nothing matched.
pub fn write(selection: &Selection<'_>, options: &Options, pattern: &Regex, mut out: impl Write) -> io::Result<bool> {
    let mut keys = Keys::new(options.granularity);
    let mut matching: Vec<bool> = Vec::new();
    let mut found: HashMap<usize, Found> = HashMap::new();
    let mut rows = Vec::new();
    let mut total = 0.0;
    let walked = selection.walk::<Infallible>(options, |stack, frames| {
        let value = stack.numbers[options.value as usize];
        total += value;
        rows.clear();
        rows.extend(stack.frames.iter().map(|&frame| keys.of(frame, frames)));
        while matching.len() < keys.names.len() {
            matching.push(pattern.is_match(&keys.names[matching.len()]));
        }
        for (depth, &row) in rows.iter().enumerate() {
            if !matching[row] || rows[..depth].contains(&row) {
                continue;
            }
            let entry = found.entry(row).or_default();
            entry.cumulative += value;
            match depth {
                0 => entry.flat += value,
                _ => *entry.callees.entry(rows[depth - 1]).or_default() += value,
            }
            let outermost = rows.iter().rposition(|other| *other == row).unwrap_or(depth);
            *entry.callers.entry(rows.get(outermost + 1).copied()).or_default() += value;
        }
        Ok(())
    });
    let Ok(_) = walked;
    let mut found: Vec<(usize, Found)> = found.into_iter().filter(|(_, entry)| entry.cumulative != 0.0).collect();
    found.sort_by(|(a, left), (b, right)| {
        right.cumulative.total_cmp(&left.cumulative).then_with(|| keys.names[*a].cmp(&keys.names[*b]))
    });
    let unit = unit(options);
    for (place, (row, entry)) in found.iter().enumerate() {
        if place > 0 {
            writeln!(out)?;
        }
        writeln!(
            out,
            "{}: {} {unit} ({}) in and below it, {} {unit} ({}) itself",
            keys.names[*row],
            amount(entry.cumulative, options),
            percent(entry.cumulative, total),
            amount(entry.flat, options),
            percent(entry.flat, total)
        )?;
        let name = |row: usize| keys.names[row].as_str();
        let above = entry.callers.iter().map(|(row, value)| (row.map_or("(root of the stack)", name), *value));
        list("called by", above.collect(), entry.cumulative, options, &mut out)?;
        let below = entry.callees.iter().map(|(row, value)| (name(*row), *value));
        list("calls", below.collect(), entry.cumulative, options, &mut out)?;
    }
    Ok(!found.is_empty())
}

fn list(what: &str, mut rows: Vec<(&str, f64)>, whole: f64, options: &Options, out: &mut impl Write) -> io::Result<()> {
    rows.sort_by(|a, b| b.1.abs().total_cmp(&a.1.abs()).then_with(|| a.0.cmp(b.0)));
    for (name, value) in rows.iter().take(options.limit.unwrap_or(usize::MAX)) {
        writeln!(out, "{:>8} {:>6}   {what} {name}", amount(*value, options), percent(*value, whole))?;
    }
    Ok(())
}
