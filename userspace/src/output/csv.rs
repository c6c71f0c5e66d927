//! The table as comma-separated values (RFC 4180), for spreadsheets and scripts.
//!
//! `function,flat_bytes,flat_percent,cumulative_bytes,cumulative_percent`; the first word is what a row is, `bytes` or
//! `objects` the unit, in profiles of another kind theirs. Whole numbers, cut at the point, whose flat column sums up to the text table's total. With a base the
//! numbers are differences.
#![forbid(unsafe_code)]

use std::io::{self, Write};

use super::select::{Granularity, Options, Selection};
use super::table::Table;
use super::whole::{Whole, cut};

/// Writes the table.
pub fn write(selection: &Selection<'_>, options: &Options, mut out: impl Write) -> io::Result<()> {
    let table = Table::new(selection, options);
    let row = match options.granularity {
        Granularity::Functions => "function",
        Granularity::Lines => "line",
        Granularity::Files => "file",
        Granularity::Addresses => "address",
    };
    let unit = options.unit();
    write!(out, "{row},flat_{unit},flat_percent,cumulative_{unit},cumulative_percent\r\n")?;
    let share = |value: f64| if table.shown == 0.0 { 0.0 } else { value * 100.0 / table.shown };
    let mut whole = Whole::default();
    for row in table.rows.iter().take(options.limit.unwrap_or(usize::MAX)) {
        let flat = whole.next(row.flat);
        write!(
            out,
            "{},{},{:.2},{},{:.2}\r\n",
            field(&row.name),
            flat,
            share(row.flat),
            // What the flat column carried on is not more than the whole.
            if row.flat > 0.0 { flat.max(cut(row.cumulative)) } else { cut(row.cumulative) },
            share(row.cumulative)
        )?;
    }
    Ok(())
}

/// Quoted where a reader would split or trim it.
pub(super) fn field(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) || text.starts_with(' ') || text.ends_with(' ') {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::field;

    #[test]
    fn names_with_separators_are_quoted() {
        assert_eq!(field("operator new"), "operator new");
        assert_eq!(field("f(int, \"x\")"), "\"f(int, \"\"x\"\")\"");
    }
}
