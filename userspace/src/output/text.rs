//! jeprof's text layout.
//!
//! ```text
//! Total: 3.3 MiB
//!      3.1  95.2%  95.2%      3.1  95.2% leaf
//!   flat    flat% running%    cumulative  name
//! ```
//!
//! Columns `%8s %6s %6s %8s %6s %s`. The total is that of the whole profile, percentages are of what is left after focus
//! and ignore. Sorted by flat number (or cumulative), descending, then by name. A row with both numbers 0 is not printed.
//! Bytes and objects are cut at the point, not rounded. Where jeprof's table is another: a total of 0 is printed too, stacks
//! without a frame outside the allocator are the row `[no stack]`, which jeprof has only in the total, and what jeprof calls MB
//! is MiB, as everywhere here.
#![forbid(unsafe_code)]

use std::io::{self, Write};

use super::select::{Options, Selection};
use super::table::Table;
use super::whole::{cut, is_nothing};

/// Writes the table. How many of its rows are left out.
pub fn write(selection: &Selection<'_>, options: &Options, mut out: impl Write) -> io::Result<usize> {
    let table = Table::new(selection, options);
    let heading = format!("Total: {} {}", amount(table.total, options), unit(options));
    writeln!(out, "{}", options.style.heading(&heading))?;
    let mut running = 0.0;
    let shown = options.limit.unwrap_or(usize::MAX).min(table.rows.len());
    for row in &table.rows[..shown] {
        running += row.flat;
        let numbers = format!(
            "{:>8} {:>6} {:>6} {:>8} {:>6}",
            amount(row.flat, options),
            percent(row.flat, table.shown),
            percent(running, table.shown),
            amount(row.cumulative, options),
            percent(row.cumulative, table.shown)
        );
        let share = row.cumulative * 100.0 / table.shown;
        let name = options.style.name(&row.name, numbers.len() + 1);
        writeln!(out, "{} {name}", options.style.numbers(&numbers, share))?;
    }
    Ok(table.rows.len() - shown)
}

/// The unit that [`amount`] counts in.
pub(super) fn unit(options: &Options) -> String {
    let measure = if options.value.is_bytes() { options.kind.amount() } else { options.kind.count() };
    match (options.value.is_bytes(), measure.unit.as_str()) {
        (true, "bytes") if options.show_bytes => "B".to_owned(),
        (true, "bytes") => "MiB".to_owned(),
        (true, "nanoseconds") => "seconds".to_owned(),
        (true, _) => measure.unit,
        (false, _) => measure.name,
    }
}

/// A number as tables print it; nothing has no sign.
pub(super) fn amount(value: f64, options: &Options) -> String {
    let value = if is_nothing(value) { 0.0 } else { value };
    let unit = options.value.is_bytes().then(|| options.kind.amount().unit);
    match unit.as_deref() {
        Some("bytes") if !options.show_bytes => format!("{:.1}", value / f64::from(1 << 20)),
        Some("nanoseconds") => format!("{:.3}", value / 1e9),
        _ => cut(value).to_string(),
    }
}

/// Share of a total.
pub(super) fn percent(value: f64, total: f64) -> String {
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
