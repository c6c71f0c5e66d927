//! Names → numbers → nodes: how a control name is looked up. Pure; the names themselves are in `tree.rs`.
//!
//! ```text
//!  "arena.3.purge"   components split at "."          at most MAX_DEPTH of them
//!   ─► [8, 3, 1]      the mib: a named component is its place among its siblings, an index stands for itself
//!   ─► handler(mib)   run with the whole mib, so that a handler finds its indexes there
//! ```
//!
//! Places change between versions; programs ask for them with `mallctlnametomib`.
#![forbid(unsafe_code)]

use super::args::{Answer, Args, ENOENT};
use crate::error::CtlError;

/// Most components of a name.
pub(super) const MAX_DEPTH: usize = 7;

/// A place in the tree.
pub(super) struct Node {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
}

/// What stands behind a component.
pub(super) enum Kind {
    /// More components.
    Names(&'static [Node]),
    /// An index that the function accepts, then more components.
    Index(fn(usize) -> bool, &'static [Node]),
    /// The end: gets the whole mib.
    Leaf(fn(&[usize], &Args<'_>) -> Answer),
}

/// What the next component of a walk may be.
enum Next {
    Names(&'static [Node]),
    Index(fn(usize) -> bool, &'static [Node]),
    Leaf(fn(&[usize], &Args<'_>) -> Answer),
}

impl Node {
    fn next(&'static self) -> Next {
        match self.kind {
            Kind::Names(children) => Next::Names(children),
            Kind::Index(accepts, children) => Next::Index(accepts, children),
            Kind::Leaf(handler) => Next::Leaf(handler),
        }
    }
}

/// Looks `name` up, filling `mib` from its start; how many components were stored. A name that ends before a leaf is
/// legal; a name longer than `mib` is cut, and the part cut off is not looked at.
pub(super) fn lookup(root: &'static [Node], name: &[u8], mib: &mut [usize]) -> Result<usize, CtlError> {
    let mut next = Next::Names(root);
    let mut depth = 0;
    let mut components = name.split(|byte| *byte == b'.');
    if name.first().is_none_or(|byte| *byte == b'.') {
        return Err(ENOENT);
    }
    for slot in mib {
        let Some(component) = components.next() else {
            break;
        };
        *slot = match next {
            Next::Names(children) => {
                let at = children.iter().position(|node| node.name.as_bytes() == component).ok_or(ENOENT)?;
                next = children[at].next();
                at
            }
            Next::Index(accepts, children) => {
                let index = index(component).filter(|index| accepts(*index)).ok_or(ENOENT)?;
                next = Next::Names(children);
                index
            }
            Next::Leaf(_) => return Err(ENOENT),
        };
        depth += 1;
    }
    Ok(depth)
}

/// Runs the handler that `mib` names.
pub(super) fn run(root: &'static [Node], mib: &[usize], args: &Args<'_>) -> Answer {
    let mut next = Next::Names(root);
    for number in mib {
        next = match next {
            Next::Names(children) => children.get(*number).ok_or(ENOENT)?.next(),
            Next::Index(accepts, children) if accepts(*number) => Next::Names(children),
            Next::Index(..) | Next::Leaf(_) => return Err(ENOENT),
        };
    }
    match next {
        Next::Leaf(handler) => handler(mib, args),
        Next::Names(_) | Next::Index(..) => Err(ENOENT),
    }
}

/// C's `strtoull` in base 10: leading blanks and a sign, then digits, the rest ignored. `None` without a digit, beyond
/// 64 bits, and for the largest value, which is what a failed conversion gives.
fn index(text: &[u8]) -> Option<usize> {
    let blanks = text.iter().take_while(|byte| byte.is_ascii_whitespace() || **byte == 0x0b).count();
    let text = text.get(blanks..)?;
    let (negative, text) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    };
    if !text.first().is_some_and(u8::is_ascii_digit) {
        return None;
    }
    let mut sum = 0_usize;
    for byte in text.iter().take_while(|byte| byte.is_ascii_digit()) {
        sum = sum.checked_mul(10)?.checked_add(usize::from(byte - b'0'))?;
    }
    let index = if negative { sum.wrapping_neg() } else { sum };
    (index != usize::MAX).then_some(index)
}

#[cfg(test)]
mod tests {
    use super::super::args::{nothing, reading};
    use super::*;

    #[expect(clippy::unnecessary_wraps, reason = "the type of a handler")]
    fn ok(_: &[usize], _: &Args<'_>) -> Answer {
        Ok(())
    }

    fn third(mib: &[usize], args: &Args<'_>) -> Answer {
        args.read(mib[1] as u64)
    }

    static ROOT: &[Node] = &[
        Node { name: "leaf", kind: Kind::Leaf(ok) },
        Node {
            name: "many",
            kind: Kind::Index(
                |index| index < 3 || index == 4096,
                &[Node { name: "a", kind: Kind::Leaf(ok) }, Node { name: "value", kind: Kind::Leaf(third) }],
            ),
        },
        Node { name: "inner", kind: Kind::Names(&[Node { name: "leaf", kind: Kind::Leaf(ok) }]) },
    ];

    fn find(name: &str, room: usize) -> Result<std::vec::Vec<usize>, CtlError> {
        let mut mib = [usize::MAX; MAX_DEPTH];
        let depth = lookup(ROOT, name.as_bytes(), &mut mib[..room])?;
        Ok(mib[..depth].to_vec())
    }

    #[test]
    fn names_become_places() {
        assert_eq!(find("leaf", 7), Ok([0].to_vec()));
        assert_eq!(find("many.2.value", 7), Ok([1, 2, 1].to_vec()));
        assert_eq!(find("many.4096.a", 7), Ok([1, 4096, 0].to_vec()));
        assert_eq!(find("inner", 7), Ok([2].to_vec()));
        assert_eq!(find("many", 7), Ok([1].to_vec()));
        assert_eq!(find("many.0", 7), Ok([1, 0].to_vec()));
        assert_eq!(find("many.0.nothing", 2), Ok([1, 0].to_vec()));
        assert_eq!(find("nothing", 0), Ok([].to_vec()));
    }

    #[test]
    fn everything_else_is_unknown() {
        for name in [
            "",
            ".",
            ".leaf",
            "leaf.",
            "Leaf",
            "leaf.x",
            "lea",
            "leaff",
            "many.3.a",
            "many.a",
            "many..a",
            "many.-1.a",
            "many.0.",
            "many.0.a.b",
            "inner.",
            "inner.leaf.leaf",
            "many.99999999999999999999.a",
            "many.18446744073709551615.a",
        ] {
            assert_eq!(find(name, 7), Err(ENOENT), "{name:?}");
        }
        assert_eq!(find("", 0), Err(ENOENT));
    }

    #[test]
    fn indexes_are_read_as_c_reads_them() {
        for (text, want) in [
            ("0junk", Some(0)),
            ("00", Some(0)),
            (" 0", Some(0)),
            ("\t+12", Some(12)),
            ("0x1", Some(0)),
            ("-", None),
            ("+ 1", None),
            ("x", None),
        ] {
            assert_eq!(index(text.as_bytes()), want, "{text:?}");
        }
        assert_eq!(index(b"-1"), None);
        assert_eq!(index(b"-2"), Some(usize::MAX - 1));
    }

    #[test]
    fn running_needs_a_whole_mib() {
        let (mut value, mut len) = (0_u64, 8);
        let nothing = nothing();
        for mib in [&[][..], &[3], &[1], &[1, 2], &[1, 3, 0], &[1, 0, 2], &[0, 0], &[2], &[usize::MAX]] {
            assert_eq!(run(ROOT, mib, &nothing), Err(ENOENT), "{mib:?}");
        }
        assert_eq!(run(ROOT, &[2, 0], &nothing), Ok(()));
        let args = reading(&mut value, &mut len);
        assert_eq!(run(ROOT, &[1, 2, 1], &args), Ok(()));
        assert_eq!(value, 2);
    }
}
