//! From linker names to names for people.
//!
//! | language | full | short |
//! |---|---|---|
//! | C++ | demangled | without argument lists, template arguments and return type, as jeprof prints names; but the operator `()` keeps its name |
//! | Rust | demangled, without the hash | the same |
//! | C, assembly | as it is, without a symbol version | the same |
#![forbid(unsafe_code)]

use crate::image::demangle::{full, rust_part};
pub use crate::image::short::shorten;

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
    Name { short: if is_rust { full.clone() } else { short(&full) }, full, is_rust }
}

/// What the call operator is called, and what stands for it while argument lists are removed.
const CALL: &str = "operator()";
const STAND_IN: &str = "operator\u{1}";

/// As jeprof has it, but for `operator()`: without its signs all lambdas would be one function.
fn short(full: &str) -> String {
    if full.contains(CALL) { shorten(&full.replace(CALL, STAND_IN)).replace(STAND_IN, CALL) } else { shorten(full) }
}

/// True for names that carry their path: of C++ or Rust.
pub fn is_mangled(linker: &str) -> bool {
    linker.starts_with("_Z") || linker.starts_with("_R")
}

#[cfg(test)]
mod tests {
    use super::demangle;

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

    #[test]
    fn call_operators_keep_their_signs() {
        assert_eq!(demangle("_ZZ4mainENKUlvE_clEv").short, "main::{lambda#1}::operator()");
        assert_eq!(demangle("_ZNKSt8functionIFviEEclEi").short, "std::function::operator()");
        assert_eq!(demangle("_ZN1AcviEv").short, "A::operator int");
        assert_eq!(demangle("operator() at main.cc:18").short, "operator() at main.cc:18");
    }
}
