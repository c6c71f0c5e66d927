//! Linker names as they are shown: each is demangled once, or not at all where a former run did.
#![forbid(unsafe_code)]

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use foldhash::fast::RandomState;

use super::demangle::{demangle, full};

/// A name by the reader it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    OfBinutils,
    Full,
}

/// By reader; `None` where nobody asked.
pub(super) type Forms<T = Arc<str>> = [Option<T>; 2];

/// Names that were asked for.
#[derive(Debug, Default)]
pub(super) struct Shown {
    known: Mutex<HashMap<Box<str>, Forms, RandomState>>,
}

impl Shown {
    /// See [`demangle`].
    pub(super) fn of_binutils(&self, linker: &str) -> Arc<str> {
        self.get(linker, Form::OfBinutils, demangle)
    }

    /// See [`full`].
    pub(super) fn full(&self, linker: &str) -> Arc<str> {
        self.get(linker, Form::Full, full)
    }

    fn get(&self, linker: &str, form: Form, show: fn(&str) -> Cow<'_, str>) -> Arc<str> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(shown) = known.get(linker).and_then(|forms| forms[form as usize].as_ref()) {
            return shown.clone();
        }
        let shown: Arc<str> = show(linker).into();
        known.entry(linker.into()).or_default()[form as usize] = Some(shown.clone());
        shown
    }

    /// Takes over what a former run found out.
    pub(super) fn recall<'a>(&self, linker: &str, forms: impl FnOnce() -> Forms<&'a str>) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if !known.contains_key(linker) {
            known.insert(linker.into(), forms().map(|form| form.map(Arc::from)));
        }
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
        let linker = "_ZN3app4Pool4grabEm@@V1";
        assert_eq!(&*shown.of_binutils(linker), "app::Pool::grab(unsigned long)@@V1");
        assert_eq!(shown.forms(linker), [Some("app::Pool::grab(unsigned long)@@V1".into()), None]);
        assert_eq!(&*shown.full(linker), "app::Pool::grab(unsigned long)");
        shown.recall(linker, || unreachable!("it is known"));
        shown.recall("_Zx", || [None, Some("x of old")]);
        assert_eq!((&*shown.full("_Zx"), &*shown.of_binutils("_Zx")), ("x of old", "_Zx"));
    }
}
