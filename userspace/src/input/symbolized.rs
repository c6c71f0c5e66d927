//! Symbolized profiles in: names first, then the profile itself, as jeprof writes them for later, and `jeprobe symbolize`.
//!
//! ```text
//! --- symbol
//! binary=/usr/bin/prog
//! 0x0000000000401175 main--inlined_into_main       outermost first, joined by `--`
//! ---
//! --- heap                                         then any text profile
//! ```
//!
//! An address is that of the call: what readers look up. jeprobe's own files add, after the mappings, a line
//! `# source ADDRESS FILE:LINE` for each function, in the order of the names (see `tail`).
//!
//! Everything before `---` that is neither an address nor `name=value` is an error that names its line.
#![forbid(unsafe_code)]

use std::collections::HashMap;

use super::heap_v2;
use super::lines::{ReadError, Reason};
use crate::model::{Named, Profile};
use crate::symbolize::name::{demangle, is_mangled, shorten};

/// Reads a text profile, with or without names.
pub fn read(bytes: &[u8]) -> Result<Profile, ReadError> {
    read_releasing(bytes, &|_| {})
}

/// The same of a file that is mapped; see [`super::read_releasing`].
pub fn read_releasing(bytes: &[u8], release: &dyn Fn(&[u8])) -> Result<Profile, ReadError> {
    let is_title = bytes
        .split(|&byte| byte == b'\n')
        .next()
        .and_then(|line| line.strip_prefix(b"---"))
        .is_some_and(|rest| rest.trim_ascii() == b"symbol");
    if !is_title {
        return heap_v2::read_releasing(bytes, release);
    }
    let (names, program, lines, rest) = names(bytes)?;
    let mut profile = heap_v2::read_releasing(rest, release).map_err(|error| ReadError {
        line: error.line + lines,
        byte: error.byte + (bytes.len() - rest.len()) as u64,
        reason: error.reason,
    })?;
    if let Some(program) = program.filter(|program| program != "unknown") {
        profile.set_program(program.into());
    }
    for (site, mut functions) in names {
        // Sources came with the profile, innermost first as well.
        if let Some(known) = profile.names().get(&site) {
            for (function, source) in functions.iter_mut().zip(known) {
                (function.file, function.line) = (source.file.clone(), source.line);
            }
        }
        profile.set_names(site, functions);
    }
    Ok(profile)
}

type Names<'a> = (HashMap<u64, Vec<Named>>, Option<String>, u64, &'a [u8]);

/// The names, the program, how many lines they took, and what follows.
fn names(bytes: &[u8]) -> Result<Names<'_>, ReadError> {
    let mut names = HashMap::new();
    let mut program = None;
    let mut rest = bytes;
    let mut number = 0;
    loop {
        let byte = (bytes.len() - rest.len()) as u64;
        let line_number = number + 1;
        let failed = |reason| ReadError { line: line_number, byte, reason };
        if rest.is_empty() {
            return Err(failed(Reason::NoEndOfNames));
        }
        let end = rest.iter().position(|&byte| byte == b'\n').unwrap_or(rest.len());
        let line = rest[..end].trim_ascii();
        rest = rest.get(end + 1..).unwrap_or_default();
        number = line_number;
        let text = String::from_utf8_lossy(line);
        if line == b"---" {
            return Ok((names, program, number, rest));
        } else if let Some((address, name)) =
            text.strip_prefix("0x").and_then(|text| text.split_once(char::is_whitespace))
        {
            let Ok(site) = u64::from_str_radix(address, 16) else {
                return Err(failed(Reason::BadAddress(address.chars().take(60).collect())));
            };
            names.insert(site, functions(name.trim()));
        } else if let Some(path) = text.strip_prefix("binary=") {
            program = Some(path.to_owned());
        } else if number > 1 && !line.is_empty() && !text.contains('=') {
            return Err(failed(Reason::Unknown(text.chars().take(60).collect())));
        }
    }
}

/// `OUTER--INNER` to functions, innermost first. An address without a name has none.
fn functions(text: &str) -> Vec<Named> {
    if text.starts_with("0x") || text == "??" {
        return Vec::new();
    }
    let mut functions: Vec<Named> = text
        .split("--")
        .map(|name| {
            // jeprof marks names with the address of their start, `<0000000000401175>`.
            let full = match name.rsplit_once('<') {
                Some((name, tag)) if tag.len() == 17 && tag.ends_with('>') => name,
                _ => name,
            };
            let full = if is_mangled(full) { demangle(full).full } else { full.to_owned() };
            // Argument lists are C++'s; signs in names of Rust are no brackets.
            let is_cxx = full.contains('(') && !full.starts_with('<') && !full.contains("{{");
            let short = if is_cxx { shorten(&full) } else { full.clone() };
            Named { short, full, ..Named::default() }
        })
        .collect();
    functions.reverse();
    functions
}

#[cfg(test)]
mod tests {
    use super::read;
    use crate::input::lines::Reason;

    const TEXT: &str = "--- symbol\nbinary=/bin/prog\n0x0000000000401175 main--app::grow(int)\n0x4011c1 start<00000000004011a0>\n---\n\
                        --- heap\nheap_v2/1\n@ 0x401175 0x4011c2\n  t*: 1: 10 [0: 0]\n\nMAPPED_LIBRARIES:\n# jeprobe 1\n\
                        # process 7 \n# source 401175 grow.cc:12\n# source 401175 main.cc:3\n# end\n";

    #[test]
    fn names_and_sources_belong_to_addresses_of_calls() {
        let profile = read(TEXT.as_bytes()).expect("whole");
        let named = |site: u64| -> Vec<_> {
            profile.names()[&site].iter().map(|named| (named.short.as_str(), named.file.as_str(), named.line)).collect()
        };
        assert_eq!(named(0x401175), [("app::grow", "grow.cc", 12), ("main", "main.cc", 3)]);
        assert_eq!(named(0x4011c1), [("start", "", 0)]);
        assert_eq!(profile.stack_count(), 1);
    }

    #[test]
    fn errors_count_the_lines_of_the_names() {
        let cut = &TEXT[..TEXT.find("---\n--- heap").expect("present")];
        assert_eq!(read(cut.as_bytes()).expect_err("no end").reason, Reason::NoEndOfNames);
        let damaged = TEXT.replace("1: 10 [0: 0]", "1: x");
        let error = read(damaged.as_bytes()).expect_err("no counts");
        assert_eq!((error.line, error.byte as usize), (9, damaged.find("  t*").expect("present")));
        let junk = TEXT.replace("binary=/bin/prog", "junk");
        assert_eq!(read(junk.as_bytes()).expect_err("junk").line, 2);
    }
}
