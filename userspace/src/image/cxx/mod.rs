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
//! - `print`, `values`: to text.
//!
//! Any bytes may be given as a name: nesting, steps and length of the text are bounded.
#![forbid(unsafe_code)]

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
    print::text(&parser.tree, root)
}
