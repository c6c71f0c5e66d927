//! Documents: every folder has its README, every source file its header, and what a README names is there.
//!
//! | rule | looked at |
//! |---|---|
//! | the README exists | the folders listed below |
//! | a file opens with `//!`, after attributes at most | every `src/**/*.rs` |
//! | a relative link leads to a file | every README |
//! | a `cargo xtask` command exists, with its arguments | every README, code spans and blocks |
#![forbid(unsafe_code)]

use std::path::Path;

use anyhow::Result;
use clap::CommandFactory as _;

use super::{files, read, shown};
use crate::Args;

const FOLDERS: &[&str] = &["", "allocator/", "ebpf/", "ebpf/common/", "userspace/", "xtask/", "tests/"];

pub(super) fn check(root: &Path) -> Result<Vec<String>> {
    let mut breaches = Vec::new();
    for folder in FOLDERS {
        if !root.join(folder).join("README.md").exists() {
            breaches.push(format!("{folder}README.md:1: docs: no such file"));
        }
    }
    for file in files(root, &["rs"])? {
        let in_src = file.components().any(|part| part.as_os_str() == "src");
        if in_src && !has_header(&read(&file)?) {
            breaches.push(format!("{}:1: docs: no `//!` header", shown(root, &file)));
        }
    }
    for file in files(root, &["md"])? {
        let text = read(&file)?;
        let folder = file.parent().unwrap_or(root);
        for (index, line) in text.lines().enumerate() {
            let here = format!("{}:{}: docs:", shown(root, &file), index + 1);
            for link in links(line) {
                if !folder.join(link).exists() {
                    breaches.push(format!("{here} link to `{link}`, which does not exist"));
                }
            }
            for command in line.split("cargo xtask ").skip(1) {
                if let Some(wrong) = unknown_command(command) {
                    breaches.push(format!("{here} `cargo xtask {wrong}` is no command"));
                }
            }
        }
    }
    Ok(breaches)
}

fn has_header(source: &str) -> bool {
    source
        .lines()
        .map(str::trim)
        .find(|line| !line.is_empty() && !line.starts_with("#!["))
        .is_some_and(|line| line.starts_with("//!"))
}

/// Relative link targets of a line, without their anchors.
fn links(text: &str) -> impl Iterator<Item = &str> {
    text.split("](").skip(1).filter_map(|rest| {
        let link = rest.split([')', ' ', '#']).next()?;
        (!link.is_empty() && !link.contains("://") && !link.starts_with("mailto:")).then_some(link)
    })
}

/// The command in the text after `cargo xtask `, when there is none of that name or with that argument. Capital words
/// and brackets stand for arguments.
fn unknown_command(text: &str) -> Option<String> {
    let end = text.find(['`', '#', '\n', '(', ')', '[', '|', ',', ';', ':', '&', '.']).unwrap_or(text.len());
    let mut words = text[..end].split_whitespace();
    let name = words.next()?;
    if !name.starts_with(|c: char| c.is_ascii_lowercase()) {
        return None;
    }
    let args = Args::command();
    let Some(command) = args.find_subcommand(name) else { return Some(name.to_owned()) };
    let argument = command.get_positionals().next();
    let values: Vec<String> = argument
        .map(|argument| argument.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect())
        .unwrap_or_default();
    // Only what stands in a code span is an argument for sure; prose goes on after the name.
    let in_span = text[end..].starts_with('`') || end == text.len();
    words
        .filter(|word| in_span && word.chars().all(|c| c.is_ascii_lowercase() || c == '_'))
        .find(|word| !values.iter().any(|value| value == word))
        .map(|word| format!("{name} {word}"))
}

#[cfg(test)]
mod tests {
    use super::super::Sample;
    use super::*;

    #[test]
    fn missing_readme_header_link_and_command_fail() {
        let sample = Sample::new(
            "docs",
            &[
                (
                    "README.md",
                    "[a](allocator/README.md#x) [b](gone.md) [c](https://example.org/x)\n`cargo xtask test unit` and `cargo xtask tset`\n",
                ),
                ("allocator/README.md", "`cargo xtask test nothing`"),
                ("allocator/src/a.rs", "#![forbid(unsafe_code)]\n\n//! Header.\n"),
                ("allocator/src/b.rs", "use x;\n//! late\n"),
            ],
        );
        let found = check(&sample.0).unwrap();
        for breach in [
            "ebpf/README.md:1: docs: no such file",
            "allocator/src/b.rs:1: docs: no `//!` header",
            "README.md:1: docs: link to `gone.md`, which does not exist",
            "README.md:2: docs: `cargo xtask tset` is no command",
            "allocator/README.md:1: docs: `cargo xtask test nothing` is no command",
        ] {
            assert!(found.iter().any(|line| line == breach), "{breach} in {found:#?}");
        }
        assert_eq!(found.len(), 4 + FOLDERS.len() - 2, "{found:#?}");
    }

    #[test]
    fn prose_and_placeholders_are_no_arguments() {
        assert_eq!(unknown_command("deps` installs it"), None);
        assert_eq!(unknown_command("test unit abi`"), None);
        assert_eq!(unknown_command("test [TIER…]`"), None);
        assert_eq!(unknown_command("COMMAND`: builds"), None);
        assert_eq!(unknown_command("test   # everything"), None);
    }
}
