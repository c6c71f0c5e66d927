//! One row per function, line, file or address: what it holds itself, and what it and everything it calls hold.
//!
//! | number | is |
//! |---|---|
//! | flat | stacks whose leaf it is |
//! | cumulative | stacks that contain it; recursion counts once |
//!
//! Stacks without a frame outside the allocator are the row `[no stack]`.
#![forbid(unsafe_code)]

use std::cmp::Ordering;
use std::convert::Infallible;

use super::select::{Options, Selection, Sort};
use super::view::Keys;
use super::whole::is_nothing;

/// One row.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row {
    pub name: String,
    pub flat: f64,
    pub cumulative: f64,
}

/// The rows that are not all 0, sorted: of equal ones what holds more with its calls comes first, then by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    pub rows: Vec<Row>,
    /// Sum of the whole selection, before focus and ignore.
    pub total: f64,
    /// Sum of what is shown in rows, as leaves.
    pub shown: f64,
}

impl Table {
    /// Sums the shown value by row.
    pub fn new(selection: &Selection<'_>, options: &Options) -> Table {
        let mut keys = Keys::new(options.granularity);
        let mut sums: Vec<(f64, f64)> = Vec::new();
        let walked = selection.walk::<Infallible>(options, |stack, frames| {
            let value = stack.numbers[options.value as usize];
            let leaf = keys.of(stack.frames[0], frames);
            sums.resize(keys.names.len(), (0.0, 0.0));
            sums[leaf].0 += value;
            keys.each_once(stack.frames, frames, |row| sums[row].1 += value);
            Ok(())
        });
        let Ok(_) = walked;
        sums.resize(keys.names.len(), (0.0, 0.0));
        let named = keys.names.into_iter().zip(sums);
        let mut rows: Vec<Row> = named
            .map(|(name, (flat, cumulative))| Row { name, flat, cumulative })
            // A process that frees most of what it takes has many.
            .filter(|row| row.flat != 0.0 || row.cumulative != 0.0)
            // What two builds hold alike is nothing but what floating sums leave.
            .filter(|row| !selection.has_base() || !is_nothing(row.flat) || !is_nothing(row.cumulative))
            .collect();
        let shown = rows.iter().map(|row| row.flat).sum::<f64>();
        let shown = if selection.has_base() && is_nothing(shown) { 0.0 } else { shown };
        rows.sort_by(|a, b| falling(a, b, options.sort));
        Table { rows, total: selection.total(), shown }
    }
}

fn falling(a: &Row, b: &Row, sort: Sort) -> Ordering {
    let keys = |row: &Row| match sort {
        Sort::Flat => [row.flat, row.cumulative],
        Sort::Cumulative => [row.cumulative, 0.0],
        Sort::Name => [0.0; 2],
    };
    keys(b).partial_cmp(&keys(a)).unwrap_or(Ordering::Equal).then_with(|| a.name.cmp(&b.name))
}
