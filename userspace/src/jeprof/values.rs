//! How numbers are printed: the unit that belongs to a profile, rounding, percentages.
//!
//! Values are floating; whole numbers are cut, not rounded, as `%d` of Perl cuts them.
#![forbid(unsafe_code)]

use std::fmt::Write as _;

use super::options::Options;

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// Not known: a server that offers a service of its own.
    #[default]
    Unknown,
    Heap,
    Growth,
    Contention,
    Cpu,
}

/// Which unit values are shown in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Objects,
    Bytes,
    Megabytes,
    /// Values are nanoseconds.
    Seconds,
    Samples,
}

impl Unit {
    pub fn of(kind: Kind, options: &Options) -> Unit {
        match kind {
            Kind::Heap | Kind::Growth if options.inuse_objects || options.alloc_objects => Unit::Objects,
            Kind::Heap | Kind::Growth if options.show_bytes => Unit::Bytes,
            Kind::Heap | Kind::Growth => Unit::Megabytes,
            Kind::Contention if !options.contentions => Unit::Seconds,
            _ => Unit::Samples,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Unit::Objects => "objects",
            Unit::Bytes => "B",
            Unit::Megabytes => "MB",
            Unit::Seconds => "seconds",
            Unit::Samples => "samples",
        }
    }

    pub fn text(self, value: f64) -> String {
        let mut text = String::new();
        self.put(&mut text, value);
        text
    }

    /// Adds the text of a value.
    pub fn put(self, into: &mut String, value: f64) {
        let _infallible = match self {
            Unit::Megabytes => {
                put_tenths(into, value / 1_048_576.0);
                Ok(())
            }
            Unit::Seconds => write!(into, "{:.3}", value / 1e9),
            Unit::Objects | Unit::Bytes | Unit::Samples => write!(into, "{}", whole(value)),
        };
    }

    /// The same with a mark for exactly 0.
    pub fn text_or(self, value: f64, zero: &str) -> String {
        if value == 0.0 { zero.to_owned() } else { self.text(value) }
    }
}

/// A value cut to a whole number.
pub fn whole(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "Inf" } else { "-Inf" }.to_owned();
    }
    // Cut by the cast; beyond 64 bits it stops at the ends.
    (value as i64).to_string()
}

/// Part of a total.
pub fn percent(value: f64, total: f64) -> String {
    let mut text = String::new();
    put_percent(&mut text, value, total);
    text
}

/// Adds the text of a part of a total.
pub fn put_percent(into: &mut String, value: f64, total: f64) {
    if total != 0.0 {
        put_tenths(into, value * 100.0 / total);
        into.push('%');
        return;
    }
    into.push_str(if value == 0.0 {
        "nan"
    } else if value > 0.0 {
        "+inf"
    } else {
        "-inf"
    });
}

/// `{value:.1}`, which is the exact value rounded to even; a table has thousands of them, and nearly all have few bits behind
/// the point.
fn put_tenths(into: &mut String, value: f64) {
    const FRACTION_BITS: u32 = 52;
    let bits = value.to_bits();
    if bits == 0 {
        into.push_str("0.0");
        return;
    }
    let exponent = (bits >> FRACTION_BITS) & 0x7ff;
    // value = significand / 2^shift
    let shift = (1023 + u64::from(FRACTION_BITS)).wrapping_sub(exponent);
    if bits >> 63 != 0 || exponent == 0 || !(1..64).contains(&shift) {
        let _infallible = write!(into, "{value:.1}");
        return;
    }
    let significand = (bits & ((1 << FRACTION_BITS) - 1)) | (1 << FRACTION_BITS);
    let tenfold = significand * 10;
    let (tenths, rest) = (tenfold >> shift, tenfold & ((1 << shift) - 1));
    let half = 1_u64 << (shift - 1);
    let tenths = tenths + u64::from(rest > half || (rest == half && tenths % 2 == 1));
    // Digits, point, tenth.
    let mut text = *b"00000000000000000000.0";
    let mut at = text.len() - 1;
    text[at] += (tenths % 10) as u8;
    let mut left = tenths / 10;
    at -= 1;
    loop {
        at -= 1;
        text[at] += (left % 10) as u8;
        left /= 10;
        if left == 0 {
            break;
        }
    }
    into.push_str(std::str::from_utf8(&text[at..]).unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_and_cutting() {
        assert_eq!(Unit::Bytes.text(5248001.9), "5248001");
        assert_eq!(Unit::Bytes.text(-0.9), "0");
        assert_eq!(Unit::Megabytes.text(8_886_091.0), "8.5");
        assert_eq!(Unit::Seconds.text(9.05e9), "9.050");
        assert_eq!(Unit::Samples.text_or(0.0, "."), ".");
    }

    #[test]
    fn tenths_are_rounded_as_the_formatter_does() {
        let mut bits = 1_u64;
        let random = std::iter::repeat_with(|| {
            bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            bits
        });
        let scaled = random.take(100_000).map(|bits| (bits >> (bits % 64)) as f64 / f64::from(1 << (bits % 19) as u32));
        let halves = (0..4_000).flat_map(|at| [f64::from(at) / 20.0, f64::from(at) / 16.0, -f64::from(at) / 10.0]);
        let edges = [0.0, -0.0, f64::NAN, f64::INFINITY, f64::MIN_POSITIVE, 5e-324, 1e300, 99.95, 0.05, 2_f64.powi(52)];
        for value in scaled.chain(halves).chain(edges) {
            let mut text = String::new();
            put_tenths(&mut text, value);
            assert_eq!(text, format!("{value:.1}"), "{value:?}");
        }
    }

    #[test]
    fn percentages_of_nothing() {
        assert_eq!(percent(0.0, 0.0), "nan");
        assert_eq!(percent(1.0, 0.0), "+inf");
        assert_eq!(percent(-1.0, 0.0), "-inf");
        assert_eq!(percent(-4195711.0, 2591179.0), "-161.9%");
    }
}
