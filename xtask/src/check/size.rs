//! Long files: a warning over 600 lines, a breach over 1000. Generated code is exempt.
#![forbid(unsafe_code)]

use std::path::Path;

use anyhow::Result;

use super::{files, read, shown};

/// Lines from which a file asks to be split.
const WARN_LINES: usize = 600;
/// Most lines of a file.
const MAX_LINES: usize = 1000;

pub(super) fn check(root: &Path) -> Result<Vec<String>> {
    let mut breaches = Vec::new();
    for file in files(root, &["rs", "c", "cc", "cpp", "h", "py", "sh"])? {
        if file.components().any(|part| part.as_os_str() == "generated") {
            continue;
        }
        let lines = read(&file)?.lines().count();
        let name = shown(root, &file);
        if lines > MAX_LINES {
            breaches.push(format!("{name}:{lines}: size: over {MAX_LINES} lines"));
        } else if lines > WARN_LINES {
            eprintln!("{name}:{lines}: size: over {WARN_LINES} lines, split it");
        }
    }
    Ok(breaches)
}

#[cfg(test)]
mod tests {
    use super::super::Sample;
    use super::check;

    #[test]
    fn a_long_file_fails_and_a_generated_one_does_not() {
        let (long, fair) = ("x\n".repeat(1001), "x\n".repeat(1000));
        let files = [("a/long.rs", long.as_str()), ("a/fair.rs", &fair), ("a/generated/table.rs", &long)];
        let sample = Sample::new("size", &files);
        assert_eq!(check(&sample.0).unwrap(), ["a/long.rs:1001: size: over 1000 lines"]);
    }
}
