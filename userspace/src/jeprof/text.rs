//! `--text` and `top`: one row per key.
#![forbid(unsafe_code)]

use std::cmp::Ordering;
use std::io::Write;

use super::address::parse_hex;
use super::filter::Named;
use super::options::Options;
use super::reduce::{Rows, Sums};
use super::stop::Result;
use super::values::{Unit, percent};

/// Rows sorted by value, then by name. `limit` counts rows that are not printed because they are 0, too.
pub fn write(
    out: &mut impl Write,
    (rows, sums): (&Rows, &Sums),
    named: Named<'_>,
    options: &Options,
    unit: Unit,
    limit: Option<usize>,
) -> Result<()> {
    let sorted_by = if options.cum { &sums.cumulative } else { &sums.flat };
    let mut order: Vec<usize> = (0..rows.keys.len()).filter(|&key| sums.cumulative[key].is_some()).collect();
    order.sort_by(|&a, &b| {
        let value = |key: usize| sorted_by[key].unwrap_or(0.0);
        value(b).partial_cmp(&value(a)).unwrap_or(Ordering::Equal).then_with(|| rows.keys[a].cmp(&rows.keys[b]))
    });
    let total = sums.total;
    let mut running = 0.0;
    for &key in order.iter().take(limit.map_or(order.len(), |limit| limit.max(1))) {
        let flat = sums.flat[key].unwrap_or(0.0);
        let cumulative = sums.cumulative[key].unwrap_or(0.0);
        running += flat;
        if flat == 0.0 && cumulative == 0.0 {
            continue;
        }
        writeln!(
            out,
            "{:>8} {:>6} {:>6} {:>8} {:>6} {}",
            unit.text(flat),
            percent(flat, total),
            percent(running, total),
            unit.text(cumulative),
            percent(cumulative, total),
            row_name(&rows.keys[key], named, options)
        )?;
    }
    Ok(())
}

/// A bare address of which something is known is shown with it.
fn row_name(key: &str, named: Named<'_>, options: &Options) -> String {
    let is_address = key.len() == named.width.digits() && key.bytes().all(|byte| byte.is_ascii_hexdigit());
    let known = parse_hex(key.as_bytes()).filter(|_| is_address).and_then(|address| named.symbols.get(address));
    match known {
        Some([name, ..]) if options.addresses => format!("{key} {} {}", name.short, name.line),
        Some([name, ..]) => format!("{} {}", name.short, name.line),
        _ => key.to_owned(),
    }
}
