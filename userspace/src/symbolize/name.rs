//! From linker names to names for people.
//!
//! | language | full | short |
//! |---|---|---|
//! | C++ | demangled | without argument lists, template arguments and return type, as jeprof prints names |
//! | Rust | demangled, without the hash | the same |
//! | C, assembly | as it is, without a symbol version | the same |
#![forbid(unsafe_code)]

use std::borrow::Cow;

use crate::image::demangle::{full, rust_part};

/// A function's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    pub full: String,
    pub short: String,
    /// Rust gives all instances of a generic function one name; such names are not told apart by address.
    pub is_rust: bool,
}

/// Demangles a linker name.
pub fn demangle(linker: &str) -> Name {
    of(linker, full(linker).into_owned())
}

/// The same of a name that was demangled to `full`.
pub fn of(linker: &str, full: String) -> Name {
    let is_rust = rust_part(linker).is_some() && full != linker;
    // Signs in names of Rust are no brackets of templates.
    Name { short: if is_rust { full.clone() } else { shorten(&full) }, full, is_rust }
}

/// True for names that carry their path: of C++ or Rust.
pub fn is_mangled(linker: &str) -> bool {
    linker.starts_with("_Z") || linker.starts_with("_R")
}

/// Removes argument lists (with a `const` behind them), then template arguments, then what precedes the last blank
/// before a qualified name.
pub fn shorten(full: &str) -> String {
    let name = without_pairs(full, b'(', b')', true);
    let name = without_pairs(&name, b'<', b'>', false);
    without_return_type(&name).to_owned()
}

/// Removes every balanced pair and what is inside.
fn without_pairs(text: &str, open: u8, close: u8, and_const: bool) -> Cow<'_, str> {
    if memchr::memchr(close, text.as_bytes()).is_none() {
        return Cow::Borrowed(text);
    }
    let mut kept = String::with_capacity(text.len());
    let mut opened = Vec::new();
    let mut rest = text;
    while let Some(at) = memchr::memchr2(open, close, rest.as_bytes()) {
        kept.push_str(&rest[..at]);
        let found = rest.as_bytes()[at];
        rest = &rest[at + 1..];
        if found == open {
            opened.push(kept.len());
            kept.push(char::from(open));
        } else if let Some(start) = opened.pop() {
            kept.truncate(start);
            if and_const && let Some(after) = rest.trim_ascii_start().strip_prefix("const") {
                rest = after;
            }
        } else {
            kept.push(char::from(close));
        }
    }
    kept.push_str(rest);
    Cow::Owned(kept)
}

fn without_return_type(name: &str) -> &str {
    // Most names have no blank left.
    if name.bytes().all(|byte| byte > b' ') {
        return name;
    }
    let qualified = |text: &str| {
        let word = text.bytes().take_while(|b| b.is_ascii_alphanumeric() || *b == b'_').count();
        word > 0 && text[word..].starts_with("::")
    };
    let blanks = name.bytes().enumerate().filter(|(_, b)| b.is_ascii_whitespace());
    let last = blanks.map(|(at, _)| at + 1).rfind(|&at| qualified(&name[at..]));
    &name[last.unwrap_or(0)..]
}

#[cfg(test)]
mod tests {
    use super::{demangle, shorten};

    #[test]
    fn cpp_names_are_shortened_as_jeprof_does() {
        for (full, short) in [
            ("app::Pool::grab(unsigned long)", "app::Pool::grab"),
            ("std::vector<int, std::allocator<int> >::push_back(int const&)", "std::vector::push_back"),
            ("void app::fill<std::pair<int, long> >(std::function<void (int)>)", "app::fill"),
            ("Node::find(int) const", "Node::find"),
            ("operator new(unsigned long)", "operator new"),
            ("(anonymous namespace)::make()", "::make"),
            ("main", "main"),
            ("unbalanced(", "unbalanced("),
        ] {
            assert_eq!(shorten(full), short);
        }
    }

    #[test]
    fn languages_are_told_apart() {
        assert_eq!(demangle("_ZN3app4Pool4grabEm").short, "app::Pool::grab");
        let rust = demangle("_ZN4core3ptr13drop_in_place17h0123456789abcdefE");
        assert_eq!((rust.full.as_str(), rust.is_rust), ("core::ptr::drop_in_place", true));
        assert_eq!(demangle("_RNvC6_123foo3bar").full, "123foo::bar");
        assert_eq!(demangle("malloc@@GLIBC_2.2.5").short, "malloc");
        assert_eq!(demangle("_Znwm").short, "operator new");
        assert_eq!(demangle("_Z").full, "_Z");
    }
}
