//! `--test`: address arithmetic checked against a table, results on stderr, exit code the number of failures.
//!
//! Rows are `(a, b, a + b, a - b, a + 1)`; both tables wrap at their width.
#![forbid(unsafe_code)]

use super::address::Width;
use super::streams::say;

type Row = (u64, u64, u64, u64, u64);

const NARROW: [Row; 5] = [
    (0xaaaaaaaa, 0x50505050, 0xfafafafa, 0x5a5a5a5a, 0xaaaaaaab),
    (0x50505050, 0xaaaaaaaa, 0xfafafafa, 0xa5a5a5a6, 0x50505051),
    (0xffffffff, 0xaaaaaaaa, 0xaaaaaaa9, 0x55555555, 0x00000000),
    (0x00000001, 0xffffffff, 0x00000000, 0x00000002, 0x00000002),
    (0x00000001, 0xfffffff0, 0xfffffff1, 0x00000011, 0x00000002),
];

const WIDE: [Row; 10] = [
    (0xaaaaaaaa, 0x50505050, 0xfafafafa, 0x5a5a5a5a, 0xaaaaaaab),
    (0x50505050, 0xaaaaaaaa, 0xfafafafa, 0xffffffffa5a5a5a6, 0x50505051),
    (0xffffffff, 0xaaaaaaaa, 0x1aaaaaaa9, 0x55555555, 0x100000000),
    (0x1, 0xffffffff, 0x100000000, 0xffffffff00000002, 0x2),
    (0x1, 0xfffffff0, 0xfffffff1, 0xffffffff00000011, 0x2),
    (0xa00000aaaaaaaa, 0x50505050, 0xa00000fafafafa, 0xa000005a5a5a5a, 0xa00000aaaaaaab),
    (0x0ffff00050505050, 0xaaaaaaaa, 0x0ffff000fafafafa, 0x0fffefffa5a5a5a6, 0x0ffff00050505051),
    (0xffffffff, 0x01800000aaaaaaaa, 0x01800001aaaaaaa9, 0xfe80000055555555, 0x100000000),
    (0x1, 0xffffffffffffffff, 0x0, 0x2, 0x2),
    (0x1, 0xfffffffffffffff0, 0xfffffffffffffff1, 0x11, 0x2),
];

/// Runs all tables; the number of rows that failed.
pub fn run() -> u8 {
    let mut failed = 0;
    failed += operation("AddressAdd", |width, row| (width.add(row.0, row.1), row.2));
    failed += operation("AddressSub", |width, row| (width.sub(row.0, row.1), row.3));
    failed += operation("AddressInc", |width, row| (width.inc(row.0), row.4));
    if failed > 0 {
        say(format_args!("{failed} errors: FAILED\n"));
    } else {
        say(format_args!("PASS\n"));
    }
    failed
}

fn operation(name: &str, compute: impl Fn(Width, &Row) -> (u64, u64)) -> u8 {
    let mut all = 0;
    for (bits, width, rows) in [(32, Width::W8, &NARROW[..]), (64, Width::W16, &WIDE[..])] {
        let mut failures = 0;
        for row in rows {
            let (got, expected) = compute(width, row);
            if got != expected {
                failures += 1;
                say(format_args!("ERROR: {name}: {} instead of {}\n", width.text(got), width.text(expected)));
            }
        }
        let passes = rows.len() - failures;
        say(format_args!("{name} {bits}-bit tests: {passes} passes, {failures} failures\n"));
        all += failures;
    }
    all as u8
}

#[cfg(test)]
mod tests {
    #[test]
    fn all_rows_pass() {
        assert_eq!(super::run(), 0);
    }
}
