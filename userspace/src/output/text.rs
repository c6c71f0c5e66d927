//! jeprof's text layout.
//!
//! ```text
//! Total: 3.3 MB
//!      3.1  95.2%  95.2%      3.1  95.2% leaf
//!   flat    flat% running%    cumulative  name
//! ```
//!
//! Columns `%8s %6s %6s %8s %6s %s`. The total is that of the whole profile, percentages are of what is left after focus
//! and ignore. Sorted by flat number (or cumulative), descending, then by name. A row with both numbers 0 is not printed; nor
//! is a total of 0. Bytes and objects are cut at the point, not rounded; MB are 2^20 bytes with one decimal.
#![forbid(unsafe_code)]

use std::cmp::Ordering;
use std::io::{self, Write};

use super::select::{Keyed, Options, Selection};

/// Writes the table.
pub fn write(selection: &Selection<'_>, options: &Options, mut out: impl Write) -> io::Result<()> {
    let total = selection.total();
    if total != 0.0 {
        let unit = match (options.value.is_bytes(), options.show_bytes) {
            (false, _) => "objects",
            (true, true) => "B",
            (true, false) => "MB",
        };
        writeln!(out, "Total: {} {unit}", amount(total, options))?;
    }
    let keyed = selection.keyed(options);
    let mut rows = rows(&keyed);
    // Before the limit counts them: a process that frees most of what it takes has many.
    rows.retain(|row| row.flat != 0.0 || row.cumulative != 0.0);
    let base: f64 = rows.iter().map(|row| row.flat).sum();
    let sorted_by = |row: &Row<'_>| if options.cum { row.cumulative } else { row.flat };
    rows.sort_by(|a, b| {
        let falling = sorted_by(b).partial_cmp(&sorted_by(a)).unwrap_or(Ordering::Equal);
        falling.then_with(|| a.name.cmp(b.name))
    });
    let mut running = 0.0;
    for row in rows.iter().take(options.limit.unwrap_or(usize::MAX)) {
        running += row.flat;
        writeln!(
            out,
            "{:>8} {:>6} {:>6} {:>8} {:>6} {}",
            amount(row.flat, options),
            percent(row.flat, base),
            percent(running, base),
            amount(row.cumulative, options),
            percent(row.cumulative, base),
            row.name
        )?;
    }
    Ok(())
}

struct Row<'a> {
    name: &'a str,
    flat: f64,
    cumulative: f64,
}

fn rows(keyed: &Keyed) -> Vec<Row<'_>> {
    let mut rows: Vec<Row<'_>> = keyed.keys.iter().map(|name| Row { name, flat: 0.0, cumulative: 0.0 }).collect();
    for (stack, value) in &keyed.stacks {
        if let Some(&leaf) = stack.first() {
            rows[leaf].flat += value;
        }
        for &key in stack {
            rows[key].cumulative += value;
        }
    }
    rows
}

fn amount(value: f64, options: &Options) -> String {
    if options.value.is_bytes() && !options.show_bytes {
        format!("{:.1}", value / f64::from(1 << 20))
    } else {
        format!("{}", value as i64)
    }
}

fn percent(value: f64, total: f64) -> String {
    if total != 0.0 {
        format!("{:.1}%", value * 100.0 / total)
    } else if value == 0.0 {
        "nan".to_owned()
    } else if value > 0.0 {
        "+inf".to_owned()
    } else {
        "-inf".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::percent;

    #[test]
    fn percentages_of_nothing_have_names() {
        assert_eq!(percent(1.0, 3.0), "33.3%");
        assert_eq!(percent(0.0, 0.0), "nan");
        assert_eq!(percent(2.0, 0.0), "+inf");
        assert_eq!(percent(-2.0, 0.0), "-inf");
    }
}
