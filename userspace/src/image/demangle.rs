//! Names of C++ and Rust from linker names.
//!
//! Two readers want two forms. [`demangle`] prints what binutils' tools print, since jeprof's output is made of it;
//! [`full`] prints the best name that is known.
//!
//! | linker name | `demangle` | `full` |
//! |---|---|---|
//! | `_ZN3app4Pool4grabEm` | `app::Pool::grab(unsigned long)` | the same |
//! | `_ZN4core3ptr13drop_in_place17h0123456789abcdefE` | `core::ptr::drop_in_place` | the same |
//! | `_ZN3app4PoolC2IiTnNS_2okE…` (constrained) | as it is: binutils 2.40 does not know the form | `app::Pool::Pool<int, …>` |
//! | `.foo@VERSION` | prefix and version kept around the demangled part | without the version |
#![forbid(unsafe_code)]

use std::borrow::Cow;

use super::cxx::{self, Forms};

/// As `nm --demangle` and `addr2line -C` print a name; the name itself when it is not mangled.
pub fn demangle(linker: &str) -> Cow<'_, str> {
    let core_start = linker.find(|c| c != '.' && c != '$').unwrap_or(linker.len());
    let (prefix, rest) = linker.split_at(core_start);
    let (core, suffix) = rest.find('@').map_or((rest, ""), |at| rest.split_at(at));
    match language_name(core, Forms::OfBinutils) {
        Some(name) if prefix.is_empty() && suffix.is_empty() => Cow::Owned(name),
        Some(name) => Cow::Owned(format!("{prefix}{name}{suffix}")),
        None => Cow::Borrowed(linker),
    }
}

/// A name for people: without symbol version and hash.
pub fn full(linker: &str) -> Cow<'_, str> {
    let plain = linker.split('@').next().filter(|name| !name.is_empty()).unwrap_or(linker);
    language_name(plain, Forms::All).map_or(Cow::Borrowed(plain), Cow::Owned)
}

fn language_name(name: &str, forms: Forms) -> Option<String> {
    if let Some(rust) = rust_part(name) {
        return rustc_demangle::try_demangle(rust).ok().map(|rust| format!("{rust:#}"));
    }
    cxx::demangle(name, forms)
}

/// The mangled part of a Rust name, without what a compiler appended (`.llvm.123`, `.cold`).
///
/// v0 names begin with `_R`. Legacy ones look like C++ names up to the hash at their end, and may hold dots themselves.
pub(crate) fn rust_part(linker: &str) -> Option<&str> {
    if linker.starts_with("_R") {
        return linker.split('.').next();
    }
    if !linker.starts_with("_ZN") {
        return None;
    }
    let ends = linker.match_indices('E').map(|(at, _)| at + 1);
    let mut ends = ends.filter(|end| linker[*end..].is_empty() || linker[*end..].starts_with('.'));
    let part = &linker[..ends.next_back()?];
    let hash = part[..part.len() - 1].get(part.len().checked_sub(20)?..)?;
    let is_hash = hash.strip_prefix("17h").is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
    is_hash.then_some(part)
}

#[cfg(test)]
mod tests {
    use super::{demangle, full, rust_part};

    #[test]
    fn languages_and_suffixes_are_told_apart() {
        for (linker, name) in [
            ("_ZN3app4Pool4grabEm", "app::Pool::grab(unsigned long)"),
            ("_ZN4core3ptr13drop_in_place17h0123456789abcdefE", "core::ptr::drop_in_place"),
            ("_ZN4core3ptr13drop_in_place17h0123456789abcdefE.llvm.123", "core::ptr::drop_in_place"),
            ("_ZN34_$LT$A$u20$as$u20$core..fmt..E$GT$3fmt17h0123456789abcdefE", "<A as core::fmt::E>::fmt"),
            ("_RNvC6_123foo3bar.cold", "123foo::bar"),
            ("_Znwm@@GLIBCXX_3.4", "operator new(unsigned long)@@GLIBCXX_3.4"),
            ("_ZTVN3app4PoolE", "vtable for app::Pool"),
            ("_ZN3app4fillILj4EEEvv", "void app::fill<4u>()"),
            (
                "_ZNSsC1ERKSs",
                "std::basic_string<char, std::char_traits<char>, std::allocator<char> >::basic_string(std::string const&)",
            ),
            ("_ZNSi6ignoreEl", "std::istream::ignore(long)"),
            ("main", "main"),
            ("_Z", "_Z"),
            ("", ""),
        ] {
            assert_eq!(demangle(linker), name);
        }
        let constrained = "_ZN3app4PoolC2IiTnNSt9enable_ifIXsr3stdE11is_signed_vIT_EEiE4typeELi0EEES3_";
        assert_eq!(demangle(constrained), constrained);
        assert_eq!(full(constrained), "app::Pool::Pool<int, 0>(int)");
        assert_eq!(full("malloc@@GLIBC_2.2.5"), "malloc");
        assert_eq!(rust_part("_ZN3app4Pool4grabEm"), None);
        assert_eq!(rust_part("_ZNE"), None);
    }
}
