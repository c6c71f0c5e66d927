//! Comparison with checked-in text in `fixtures/`.
//!
//! A missing golden file fails. `JEPROBE_BLESS=1` writes the file instead, to be reviewed and committed alone.

use std::{env, fs};

use crate::artefact;

/// `actual` equals `fixtures/NAME`; on a difference the panic shows the first differing line.
pub fn compare(name: &str, actual: &str) {
    let path = artefact::fixture(name);
    if env::var_os("JEPROBE_BLESS").is_some_and(|value| value == "1") {
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).unwrap_or_else(|e| panic!("cannot create {}: {e}", parent.display()));
        }
        fs::write(&path, actual).unwrap_or_else(|e| panic!("cannot write {}: {e}", path.display()));
        return;
    }
    let expected = fs::read_to_string(&path)
        .unwrap_or_else(|e| panic!("golden file {}: {e}; JEPROBE_BLESS=1 writes it", path.display()));
    if expected == actual {
        return;
    }
    let line = expected.lines().zip(actual.lines()).take_while(|(want, got)| want == got).count();
    panic!(
        "{} differs from line {}:\n  expected {:?}\n  actual   {:?}\nJEPROBE_BLESS=1 accepts the new text:\n{actual}",
        path.display(),
        line + 1,
        expected.lines().nth(line),
        actual.lines().nth(line)
    );
}
