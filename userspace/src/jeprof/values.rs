//! How numbers are printed: the unit that belongs to a profile, rounding, percentages.
//!
//! Values are floating; whole numbers are cut, not rounded, as `%d` of Perl cuts them.
#![forbid(unsafe_code)]

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
        match self {
            Unit::Megabytes => format!("{:.1}", value / 1_048_576.0),
            Unit::Seconds => format!("{:.3}", value / 1e9),
            Unit::Objects | Unit::Bytes | Unit::Samples => whole(value),
        }
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
    if total != 0.0 {
        return format!("{:.1}%", value * 100.0 / total);
    }
    if value == 0.0 {
        "nan"
    } else if value > 0.0 {
        "+inf"
    } else {
        "-inf"
    }
    .to_owned()
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
    fn percentages_of_nothing() {
        assert_eq!(percent(0.0, 0.0), "nan");
        assert_eq!(percent(1.0, 0.0), "+inf");
        assert_eq!(percent(-1.0, 0.0), "-inf");
        assert_eq!(percent(-4195711.0, 2591179.0), "-161.9%");
    }
}
