//! Linker names as they are shown: each is demangled once, or not at all where a former run did.
#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use foldhash::fast::RandomState;

use super::demangle::{demangle, full};
use super::short::shorten;
use super::text::Text;

/// A function's name as binutils prints it, and what jeprof leaves of that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionName {
    /// See [`demangle`].
    pub full: Text,
    /// See [`shorten`]; the same text as `full` where there is nothing to leave out.
    pub short: Text,
}

/// A linker name as binutils prints it, what jeprof leaves of that, and in full; `None` where nobody asked.
pub(super) type Forms<T = Arc<str>> = [Option<T>; 3];

/// Names that were asked for.
#[derive(Debug, Default)]
pub(super) struct Shown {
    known: Mutex<HashMap<Arc<str>, Forms, RandomState>>,
}

impl Shown {
    /// Of a function, for jeprof.
    pub(super) fn of_binutils(&self, linker: &Arc<str>) -> FunctionName {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some([Some(full), Some(short), _]) = known.get(linker) {
            return FunctionName { full: full.clone().into(), short: short.clone().into() };
        }
        // Symbols are listed with their version behind the name, and looked up without.
        let plain = linker.find('@').and_then(|at| {
            let [full, ..] = known.get(&linker[..at])?;
            Some(format!("{}{}", full.as_deref()?, &linker[at..]))
        });
        let full: Arc<str> = plain.map_or_else(|| demangle(linker).into(), Arc::from);
        let short = shorten(&full);
        let short = if short == *full { full.clone() } else { short.into() };
        let forms = known.entry(linker.clone()).or_default();
        (forms[0], forms[1]) = (Some(full.clone()), Some(short.clone()));
        FunctionName { full: full.into(), short: short.into() }
    }

    /// See [`full`].
    pub(super) fn full(&self, linker: &str) -> Arc<str> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some([_, _, Some(full)]) = known.get(linker) {
            return full.clone();
        }
        let shown: Arc<str> = full(linker).into();
        known.entry(linker.into()).or_default()[2] = Some(shown.clone());
        shown
    }

    /// Takes over what a former run found out.
    pub(super) fn recall(&self, linker: &Arc<str>, forms: impl FnOnce() -> Forms) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.entry(linker.clone()).or_insert_with(forms);
    }

    /// What is known of a name.
    pub(super) fn forms(&self, linker: &str) -> Forms {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(linker).cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_demangler_and_of_former_runs() {
        let shown = Shown::default();
        let linker: Arc<str> = "_ZN3app4Pool4grabEm@@V1".into();
        let (full, short) = ("app::Pool::grab(unsigned long)@@V1", "app::Pool::grab@@V1");
        assert_eq!(shown.of_binutils(&linker), FunctionName { full: full.into(), short: short.into() });
        assert_eq!(shown.forms(&linker), [Some(full.into()), Some(short.into()), None]);
        for (plain, versioned) in [("_Zy", "_Zy@V"), ("._ZN3app4PoolC1Ev", "._ZN3app4PoolC1Ev@@V2"), ("main", "main@")]
        {
            shown.of_binutils(&plain.into());
            assert_eq!(shown.of_binutils(&versioned.into()).full.text(), demangle(versioned));
        }
        assert_eq!(&*shown.full(&linker), "app::Pool::grab(unsigned long)");
        shown.recall(&linker, || unreachable!("it is known"));
        let other: Arc<str> = "_Zx".into();
        shown.recall(&other, || [None, None, Some("x of old".into())]);
        assert_eq!((&*shown.full(&other), &*shown.of_binutils(&other).full.text()), ("x of old", "_Zx"));
    }

    #[test]
    fn what_cannot_be_cut_is_not_copied() {
        let name = Shown::default().of_binutils(&"main".into());
        assert!(std::ptr::eq(name.full.bytes(), name.short.bytes()));
    }
}
