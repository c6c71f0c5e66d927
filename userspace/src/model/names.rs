//! What a profile itself says of its addresses: names that travelled with it, and what its numbers measure.
#![forbid(unsafe_code)]

/// A function at an address, as the file names it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Named {
    /// As tables print it.
    pub short: String,
    /// Complete; equal to `short` where the file has one name.
    pub full: String,
    /// Empty when unknown.
    pub file: String,
    /// 0 when unknown.
    pub line: u32,
}

/// What the two numbers of a profile measure: the model's "bytes" and "objects".
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// Bytes and objects, in use and ever allocated.
    #[default]
    Heap,
    /// Nanoseconds waited for locks, and how often.
    Contention,
    /// Nanoseconds of processor time, and samples.
    Cpu,
    /// Something else that a pprof file names.
    Other { amount: Measure, count: Measure },
}

/// A name with its unit, as pprof gives them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Measure {
    pub name: String,
    pub unit: String,
}

impl Measure {
    pub fn new(name: &str, unit: &str) -> Measure {
        Measure { name: name.to_owned(), unit: unit.to_owned() }
    }
}

impl Kind {
    /// What stands in the place of bytes.
    pub fn amount(&self) -> Measure {
        match self {
            Kind::Heap => Measure::new("space", "bytes"),
            Kind::Contention => Measure::new("delay", "nanoseconds"),
            Kind::Cpu => Measure::new("cpu", "nanoseconds"),
            Kind::Other { amount, .. } => amount.clone(),
        }
    }

    /// What stands in the place of objects.
    pub fn count(&self) -> Measure {
        match self {
            Kind::Heap => Measure::new("objects", "count"),
            Kind::Contention => Measure::new("contentions", "count"),
            Kind::Cpu => Measure::new("samples", "count"),
            Kind::Other { count, .. } => count.clone(),
        }
    }
}
