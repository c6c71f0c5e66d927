//! Two profiles side by side, row by row: what grew, shrank, came and went.
//!
//! ```text
//! Total: 8.5 MiB before, 10.2 MiB after: +1.7 MiB (+20.0%)
//!     flat   change   before    after
//!     +1.2     +1.2      0.0      1.2 new    cache_put
//!     +0.5     +0.5      5.0      5.5 grown  session_open
//! 1 grown, 0 shrunk, 1 new, 0 gone
//! ```
//!
//! `flat` is the change of what the row holds itself; the other columns are about what it and everything it calls hold. Rows
//! are matched by name, so across restarts, address spaces and builds. Sorted by the size of the change, flat first
//! (`--sort cum`: of the cumulative change). Rows that did not change are left out; the last line counts all that did.
#![forbid(unsafe_code)]

use std::cmp::Ordering;
use std::convert::Infallible;
use std::io::{self, Write};

use super::csv::field;
use super::select::{Options, Selection, Sort};
use super::text::{amount, unit};
use super::view::Keys;
use super::whole::{cut, is_nothing};

/// A row of both profiles.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row {
    pub name: String,
    /// Itself, before and after.
    pub flat: (f64, f64),
    /// With everything it calls.
    pub cumulative: (f64, f64),
}

/// What became of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Grown,
    Shrunk,
    New,
    Gone,
}

impl Row {
    fn flat_change(&self) -> f64 {
        self.flat.1 - self.flat.0
    }

    fn change(&self) -> f64 {
        self.cumulative.1 - self.cumulative.0
    }

    /// By the cumulative numbers; a row that only moved between itself and its callees by what it holds itself.
    pub fn state(&self) -> State {
        let (before, after) = self.cumulative;
        if is_nothing(before) && !is_nothing(after) {
            State::New
        } else if is_nothing(after) && !is_nothing(before) {
            State::Gone
        } else {
            let change = if is_nothing(self.change()) { self.flat_change() } else { self.change() };
            if change < 0.0 { State::Shrunk } else { State::Grown }
        }
    }
}

impl State {
    pub fn name(self) -> &'static str {
        match self {
            State::Grown => "grown",
            State::Shrunk => "shrunk",
            State::New => "new",
            State::Gone => "gone",
        }
    }
}

/// Rows that changed, sorted.
pub fn rows(selection: &Selection<'_>, options: &Options) -> Vec<Row> {
    let mut keys = Keys::new(options.granularity);
    let mut rows: Vec<Row> = Vec::new();
    let walked = selection.walk::<Infallible>(options, |stack, frames| {
        let before = selection.base_of(stack.id)[options.value as usize];
        let after = before + stack.numbers[options.value as usize];
        let leaf = keys.of(stack.frames[0], frames);
        rows.resize(keys.names.len(), Row::default());
        rows[leaf].flat.0 += before;
        rows[leaf].flat.1 += after;
        keys.each_once(stack.frames, frames, |row| {
            rows[row].cumulative.0 += before;
            rows[row].cumulative.1 += after;
        });
        Ok(())
    });
    let Ok(_) = walked;
    for (row, name) in rows.iter_mut().zip(keys.names) {
        row.name = name;
    }
    rows.retain(|row| !is_nothing(row.change()) || !is_nothing(row.flat_change()));
    let key = |row: &Row| match options.sort {
        Sort::Flat => (row.flat_change().abs(), row.change().abs()),
        Sort::Cumulative => (row.change().abs(), row.flat_change().abs()),
        Sort::Name => (0.0, 0.0),
    };
    rows.sort_by(|a, b| key(b).partial_cmp(&key(a)).unwrap_or(Ordering::Equal).then_with(|| a.name.cmp(&b.name)));
    rows
}

/// Sums of the shown value over all stacks, before and after.
pub fn totals(selection: &Selection<'_>, options: &Options) -> (f64, f64) {
    let change = selection.total();
    let before: f64 =
        selection.profile().totals().map(|(id, _, _)| selection.base_of(id)[options.value as usize]).sum();
    (before, before + change)
}

/// Writes the table.
pub fn write(selection: &Selection<'_>, options: &Options, mut out: impl Write) -> io::Result<()> {
    let (before, after) = totals(selection, options);
    let unit = unit(options);
    let heading = format!(
        "Total: {} {unit} before, {} {unit} after: {} {unit}{}",
        amount(before, options),
        amount(after, options),
        signed(after - before, options),
        if before == 0.0 { String::new() } else { format!(" ({:+.1}%)", (after - before) * 100.0 / before) }
    );
    writeln!(out, "{}", options.style.heading(&heading))?;
    let rows = rows(selection, options);
    if !rows.is_empty() {
        writeln!(out, "{:>8} {:>8} {:>8} {:>8}", "flat", "change", "before", "after")?;
    }
    let moved: f64 = rows.iter().map(|row| row.flat_change().abs()).sum();
    for row in rows.iter().take(options.limit.unwrap_or(usize::MAX)) {
        let numbers = format!(
            "{:>8} {:>8} {:>8} {:>8} {:<6}",
            signed(row.flat_change(), options),
            signed(row.change(), options),
            amount(row.cumulative.0, options),
            amount(row.cumulative.1, options),
            row.state().name()
        );
        let name = options.style.name(&row.name, numbers.len() + 1);
        let share = row.change().abs().max(row.flat_change().abs()) * 100.0 / moved;
        writeln!(out, "{} {name}", options.style.numbers(&numbers, share))?;
    }
    let count = |state: State| rows.iter().filter(|row| row.state() == state).count();
    writeln!(
        out,
        "{} grown, {} shrunk, {} new, {} gone",
        count(State::Grown),
        count(State::Shrunk),
        count(State::New),
        count(State::Gone)
    )
}

/// Writes the rows as comma-separated values.
pub fn write_csv(selection: &Selection<'_>, options: &Options, mut out: impl Write) -> io::Result<()> {
    let unit = options.unit();
    write!(
        out,
        "name,state,flat_before_{unit},flat_after_{unit},cumulative_before_{unit},cumulative_after_{unit}\r\n"
    )?;
    for row in rows(selection, options).iter().take(options.limit.unwrap_or(usize::MAX)) {
        write!(
            out,
            "{},{},{},{},{},{}\r\n",
            field(&row.name),
            row.state().name(),
            cut(row.flat.0),
            cut(row.flat.1),
            cut(row.cumulative.0),
            cut(row.cumulative.1)
        )?;
    }
    Ok(())
}

fn signed(value: f64, options: &Options) -> String {
    let text = amount(value, options);
    if value > 0.0 && !text.starts_with('-') { format!("+{text}") } else { text }
}
