//! `--text` and `top`: one row per key.
#![forbid(unsafe_code)]

use std::cmp::Ordering;
use std::io::Write;

use super::address::parse_hex;
use super::filter::Named;
use super::options::Options;
use super::reduce::{Rows, Sums};
use super::stop::Result;
use super::values::{Unit, put_percent};

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
    let (mut running, mut line) = (0.0, String::new());
    for &key in order.iter().take(limit.map_or(order.len(), |limit| limit.max(1))) {
        let flat = sums.flat[key].unwrap_or(0.0);
        let cumulative = sums.cumulative[key].unwrap_or(0.0);
        running += flat;
        if flat == 0.0 && cumulative == 0.0 {
            continue;
        }
        line.clear();
        column(&mut line, 8, |line| unit.put(line, flat));
        column(&mut line, 6, |line| put_percent(line, flat, total));
        column(&mut line, 6, |line| put_percent(line, running, total));
        column(&mut line, 8, |line| unit.put(line, cumulative));
        column(&mut line, 6, |line| put_percent(line, cumulative, total));
        put_name(&mut line, &rows.keys[key], named, options);
        line.push('\n');
        out.write_all(line.as_bytes())?;
    }
    Ok(())
}

/// A number, right-justified, and a blank.
fn column(line: &mut String, width: usize, put: impl FnOnce(&mut String)) {
    const BLANKS: &str = "        ";
    let start = line.len();
    put(line);
    if let Some(missing) = (start + width).checked_sub(line.len()) {
        line.insert_str(start, &BLANKS[..missing]);
    }
    line.push(' ');
}

/// A bare address of which something is known is shown with it.
fn put_name(line: &mut String, key: &str, named: Named<'_>, options: &Options) {
    let is_address = key.len() == named.width.digits() && key.bytes().all(|byte| byte.is_ascii_hexdigit());
    let known = parse_hex(key.as_bytes()).filter(|_| is_address).and_then(|address| named.symbols.get(address));
    let Some([name, ..]) = known else {
        line.push_str(key);
        return;
    };
    if options.addresses {
        line.push_str(key);
        line.push(' ');
    }
    line.push_str(&name.short);
    line.push(' ');
    line.push_str(&name.line);
}
