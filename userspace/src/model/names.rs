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

impl Named {
    /// With nothing that a terminal would obey; see [`printable`].
    #[must_use]
    pub fn printable(mut self) -> Named {
        for text in [&mut self.short, &mut self.full, &mut self.file] {
            printable(text);
        }
        self
    }
}

/// Puts U+FFFD in the place of control characters, which files may have in names: shown as they are, they would move the
/// cursor of a terminal and break lines of tables.
pub fn printable(text: &mut String) {
    // 0xc2 begins U+0080 to U+009F, and letters.
    let is_suspect = |byte: u8| byte < b' ' || byte == 0x7f || byte == 0xc2;
    if text.bytes().any(is_suspect) && text.chars().any(char::is_control) {
        *text = text.replace(char::is_control, "\u{fffd}");
    }
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
    /// What is measured, for headings.
    pub fn title(&self) -> &'static str {
        match self {
            Kind::Heap => "Heap",
            Kind::Contention => "Contention",
            Kind::Cpu => "CPU",
            Kind::Other { .. } => "Profile",
        }
    }

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

/// A function from its name in a map. V8's names hold kind, tier and place: `JS:*grow file:///srv/app.js:12:14`.
pub fn jit_name(name: &str) -> Named {
    v8(name).unwrap_or_else(|| Named { short: name.to_owned(), full: name.to_owned(), ..Named::default() })
}

fn v8(name: &str) -> Option<Named> {
    const KINDS: &[&str] = &["JS", "LazyCompile", "Function", "Script", "Eval"];
    let (kind, rest) = name.split_once(':')?;
    if !KINDS.contains(&kind) {
        return None;
    }
    let rest = rest.trim_start_matches(['*', '~', '^', '+', '-']);
    let (function, place) = rest.rsplit_once(' ').unwrap_or(("", rest));
    let mut parts = place.rsplitn(3, ':');
    let (column, line, file) = (parts.next()?, parts.next()?, parts.next()?);
    let line = line.parse().ok().filter(|_| column.parse::<u32>().is_ok())?;
    let file = file.strip_prefix("file://").unwrap_or(file).to_owned();
    let short = if function.is_empty() { format!("(anonymous) {file}:{line}") } else { function.to_owned() };
    Some(Named { short, full: name.to_owned(), file, line })
}

#[cfg(test)]
mod tests {
    use super::{jit_name, printable};

    #[test]
    fn names_have_nothing_that_a_terminal_obeys() {
        for (given, shown) in [
            ("grow(int)", "grow(int)"),
            ("\u{1b}[31mred", "\u{fffd}[31mred"),
            ("two\nlines\t", "two\u{fffd}lines\u{fffd}"),
            ("\u{9b}2J", "\u{fffd}2J"),
            ("Größe \u{a0}", "Größe \u{a0}"),
        ] {
            let mut text = given.to_owned();
            printable(&mut text);
            assert_eq!(text, shown);
        }
    }

    #[test]
    fn javascript_functions_have_a_place() {
        let function = jit_name("JS:*grow file:///srv/app.js:12:14");
        assert_eq!((function.short.as_str(), function.file.as_str(), function.line), ("grow", "/srv/app.js", 12));
        let function = jit_name("LazyCompile:~next node:internal/timers:514:23");
        assert_eq!(
            (function.short.as_str(), function.file.as_str(), function.line),
            ("next", "node:internal/timers", 514)
        );
        assert_eq!(jit_name("Function:^ /a.js:3:1").short, "(anonymous) /a.js:3");
        assert_eq!(jit_name("java.lang.String::hashCode").short, "java.lang.String::hashCode");
        assert_eq!(jit_name("JS:odd").short, "JS:odd");
    }
}
