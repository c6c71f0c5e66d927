//! C++ names from mangled ones (Itanium ABI, as GCC and clang mangle), written as nm, addr2line and objdump of binutils 2.40
//! write them.
//!
//! ```text
//!  _ZN3app4PoolIiE4grabEm ── parse ──► tree ── print ──► app::Pool<int>::grab(unsigned long)
//! ```
//!
//! - `node`: the tree.
//! - `operators`: tables of the grammar.
//! - `parse`, `types`, `expressions`: to the tree.
//! - `print`, `declarators`, `values`: to text.
//!
//! Any bytes may be given as a name: nesting, steps and length of the text are bounded.
#![forbid(unsafe_code)]

mod declarators;
mod expressions;
mod node;
mod operators;
mod parse;
mod print;
mod types;
mod values;

/// Longest name that binutils takes.
const LONGEST_OF_BINUTILS: usize = 1024;

/// Whose idea of a name is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Forms {
    /// What binutils 2.40 knows; what it does not know stays mangled.
    OfBinutils,
    /// Newer forms too, such as constrained templates, and longer names.
    All,
}

/// The name as text; `None` when it is not mangled.
pub(super) fn demangle(mangled: &str, forms: Forms) -> Option<String> {
    if forms == Forms::OfBinutils && mangled.len() > LONGEST_OF_BINUTILS {
        return None;
    }
    let mut parser = parse::Parser::new(mangled, forms == Forms::All);
    let root = parser.whole()?;
    // Most names are written in less.
    print::text(&parser.tree, root, mangled.len() * 2)
}

#[cfg(test)]
mod tests {
    use super::{Forms, demangle};
    use std::fmt::Write as _;

    /// Names that no compiler writes are answered, and with bounded work.
    #[test]
    fn deep_and_exponential_names_are_bounded() {
        let deep = |open: &str, close: &str| format!("{}i{}", open.repeat(20_000), close.repeat(20_000));
        let chain = (0..20_000).fold("_Z1fPi".to_owned(), |mut name, number: u32| {
            let digits = if number == 0 { String::new() } else { base36(number - 1) };
            let _infallible = write!(name, "PS{digits}_");
            name
        });
        let doubling = (0..60).fold("_Z1fI1AEv1BIiiE".to_owned(), |mut name, number: u32| {
            let digits = base36(number);
            let _infallible = write!(name, "1BIS{digits}_S{digits}_E");
            name
        });
        for name in [
            format!("_Z1f{}", deep("P", "")),
            format!("_Z1f{}", deep("K", "")),
            format!("_ZN{}1fEv", "K".repeat(20_000)),
            format!("_Z1fI{}Evv", deep("1BI", "E")),
            format!("_Z1fI{}Evv", deep("J", "E")),
            format!("_Z1f{}", deep("F", "E")),
            format!("_Z1fIX{}EEvv", deep("nt", "")),
            format!("_Z{}1fvE", "Z".repeat(20_000)),
            format!("_Z1f{}", deep("Dp", "")),
            format!("_Z1f{}", deep("A1_", "")),
            format!("_Z1fIJiiEEv{}T_", "Dp".repeat(300)),
            chain,
            doubling,
        ] {
            for forms in [Forms::All, Forms::OfBinutils] {
                assert!(demangle(&name, forms).is_none_or(|text| text.len() <= 1 << 20), "{name:.40}");
            }
        }
    }

    fn base36(number: u32) -> String {
        let digit = |number: u32| char::from_digit(number % 36, 36).expect("a digit").to_ascii_uppercase();
        if number < 36 { digit(number).to_string() } else { base36(number / 36) + &digit(number).to_string() }
    }
}
