//! Patterns that find nothing: a misspelt one shows everything, or an empty table, and neither says why.
#![forbid(unsafe_code)]

use regex::Regex;

use super::select::{Options, Selection};
use super::view::Frame;

/// The options whose pattern matches no stack (focus and ignore) or no function (hide and show) of the whole selection.
pub fn unmatched<'o>(selection: &Selection<'_>, options: &'o Options) -> Vec<(&'static str, &'o Regex)> {
    let stacks = [("--focus", &options.focus), ("--ignore", &options.ignore)].map(|(name, pattern)| {
        let pattern = pattern.as_ref()?;
        let only = Options { focus: Some(pattern.clone()), ..Options::default() };
        // The first stack ends the walk.
        selection.walk(&only, |_, _| Err(())).is_ok().then_some((name, pattern))
    });
    let functions = [("--hide", &options.hide), ("--show", &options.show)].map(|(name, pattern)| {
        let pattern = pattern.as_ref()?;
        let mut looked = 0;
        let walked = selection.walk(&Options::default(), |_, frames| {
            let found = frames[looked..].iter().any(|frame: &Frame| pattern.is_match(&frame.name));
            looked = frames.len();
            if found { Err(()) } else { Ok(()) }
        });
        walked.is_ok().then_some((name, pattern))
    });
    stacks.into_iter().chain(functions).flatten().collect()
}
