//! The symbol part of a file: `0xADDRESS NAME[--NAME...]`, outermost first, and `variable=value`, up to `---`.
//!
//! The reply of a server to a request for names has the same form.
#![forbid(unsafe_code)]

use rustc_hash::FxHashMap;

use super::super::address::parse_hex;
use super::super::stop::Result;
use super::super::streams::say;
use super::Source;

/// The program's name before any file told it.
pub const UNKNOWN_PROGRAM: &str = "(unknown)";

pub fn read(source: &mut Source<'_>, program: &mut String) -> Result<FxHashMap<u64, String>> {
    let mut names = FxHashMap::default();
    while let Some(line) = source.read()? {
        if !add_line(&String::from_utf8_lossy(line), &mut names, program) {
            break;
        }
    }
    Ok(names)
}

/// Takes one line; false at the end mark.
#[expect(clippy::implicit_hasher, reason = "all tables of names here have this hasher")]
pub fn add_line(line: &str, names: &mut FxHashMap<u64, String>, program: &mut String) -> bool {
    if let Some((address, name)) = address_and_name(line) {
        names.insert(address, name.to_owned());
    } else if line.starts_with("---") {
        return false;
    } else if let Some((variable, value)) = line.split_once('=')
        && variable.starts_with(|first: char| first.is_ascii_lowercase())
    {
        let (variable, value) = (variable.trim(), value.trim());
        if variable == "binary" {
            if program != UNKNOWN_PROGRAM && program != value {
                say(format_args!("Warning: Mismatched binary name '{program}', using '{value}'.\n"));
            }
            value.clone_into(program);
        } else {
            say(format_args!("Ignoring unknown variable in symbols list: '{variable}' = '{value}'\n"));
        }
    }
    true
}

fn address_and_name(line: &str) -> Option<(u64, &str)> {
    let rest = line.strip_prefix("0x")?;
    let digits = rest.bytes().take_while(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte)).count();
    let name = &rest[digits..];
    if digits == 0 || !name.starts_with(|c: char| c.is_ascii_whitespace()) {
        return None;
    }
    let name = name.trim_ascii_start();
    if name.is_empty() {
        return None;
    }
    Some((parse_hex(&rest.as_bytes()[..digits])?, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_variables_and_the_end() {
        let mut names = FxHashMap::default();
        let mut program = UNKNOWN_PROGRAM.to_owned();
        for line in ["0x000401175 leaf(unsigned long)", "binary=/opt/server ", "0x1\t a--b ", "junk"] {
            assert!(add_line(line, &mut names, &mut program), "{line}");
        }
        assert!(!add_line("---", &mut names, &mut program));
        assert_eq!(names[&0x40_1175], "leaf(unsigned long)");
        assert_eq!(names[&1], "a--b ");
        assert_eq!(program, "/opt/server");
    }
}
