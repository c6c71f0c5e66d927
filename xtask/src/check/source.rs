//! A look at Rust source that needs no parser: the text with comments and literals blanked, line breaks kept, so that
//! words found in it are code and their line numbers hold.
#![forbid(unsafe_code)]

/// `source` with every comment and every string or character literal replaced by spaces.
pub(super) fn code_only(source: &str) -> String {
    let bytes = source.as_bytes();
    let mut out = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = match bytes[at] {
            b'/' if bytes.get(at + 1) == Some(&b'/') => Some(line_end(bytes, at)),
            b'/' if bytes.get(at + 1) == Some(&b'*') => Some(block_comment_end(bytes, at)),
            b'r' | b'b' | b'c' if !after_word(bytes, at) => raw_string_end(bytes, at),
            b'"' => Some(string_end(bytes, at, b'"')),
            b'\'' => char_end(bytes, at),
            _ => None,
        };
        let Some(end) = end else {
            at += 1;
            continue;
        };
        for byte in &mut out[at..end] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        at = end;
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// `code` up to the first `#[cfg(test)]` that opens a module: tests may use what they like.
pub(super) fn without_tests(code: &str) -> &str {
    let mut from = 0;
    while let Some(found) = code[from..].find("#[cfg(test)]") {
        let start = from + found;
        let after = code[start + "#[cfg(test)]".len()..].trim_start();
        if after.starts_with("mod ") && after.find('{') < after.find(';').or(Some(usize::MAX)) {
            return &code[..start];
        }
        from = start + 1;
    }
    code
}

/// 1-based line of byte `at`.
pub(super) fn line_of(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}

/// Where `word` stands alone in `code`, as byte offsets.
pub(super) fn words<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let bytes = code.as_bytes();
    code.match_indices(word)
        .map(|(at, _)| at)
        .filter(move |at| !after_word(bytes, *at) && !bytes.get(at + word.len()).is_some_and(|b| is_word(*b)))
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

fn after_word(bytes: &[u8], at: usize) -> bool {
    at > 0 && is_word(bytes[at - 1])
}

fn line_end(bytes: &[u8], at: usize) -> usize {
    bytes[at..].iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |length| at + length)
}

/// Block comments nest.
fn block_comment_end(bytes: &[u8], at: usize) -> usize {
    let mut depth = 0_usize;
    let mut here = at;
    while here < bytes.len() {
        if bytes[here..].starts_with(b"/*") {
            depth += 1;
            here += 2;
        } else if bytes[here..].starts_with(b"*/") {
            depth -= 1;
            here += 2;
            if depth == 0 {
                return here;
            }
        } else {
            here += 1;
        }
    }
    bytes.len()
}

/// End of a quoted literal that opens at `at`, escapes skipped.
fn string_end(bytes: &[u8], at: usize, quote: u8) -> usize {
    let mut here = at + 1;
    while here < bytes.len() {
        match bytes[here] {
            b'\\' => here += 2,
            byte if byte == quote => return here + 1,
            _ => here += 1,
        }
    }
    bytes.len()
}

/// End of `r"…"`, `r#"…"#`, `b"…"`, `br"…"`, `c"…"`, `b'…'` at `at`; `None` when the letter opens a word.
fn raw_string_end(bytes: &[u8], at: usize) -> Option<usize> {
    let mut here = at;
    while here < at + 2 && matches!(bytes.get(here), Some(b'r' | b'b' | b'c')) {
        here += 1;
    }
    let raw = bytes[at..here].contains(&b'r');
    let mut hashes = 0;
    while raw && bytes.get(here) == Some(&b'#') {
        hashes += 1;
        here += 1;
    }
    match bytes.get(here)? {
        b'"' if raw => {
            let mut close = vec![b'"'];
            close.resize(hashes + 1, b'#');
            let body = &bytes[here + 1..];
            let length = body.windows(close.len()).position(|window| window == close).unwrap_or(body.len());
            Some((here + 1 + length + close.len()).min(bytes.len()))
        }
        b'"' => Some(string_end(bytes, here, b'"')),
        b'\'' if bytes[at] == b'b' && here == at + 1 => Some(string_end(bytes, here, b'\'')),
        _ => None,
    }
}

/// End of a character literal at `at`; `None` for a lifetime or a label.
fn char_end(bytes: &[u8], at: usize) -> Option<usize> {
    if bytes.get(at + 1) == Some(&b'\\') {
        return Some(string_end(bytes, at, b'\''));
    }
    // One character, up to four bytes long, then the closing quote.
    let length = match bytes.get(at + 1)? {
        0x00..=0x7f => 1,
        0x80..=0xdf => 2,
        0xe0..=0xef => 3,
        _ => 4,
    };
    (bytes.get(at + 1 + length) == Some(&b'\'')).then_some(at + length + 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_vanish_and_lines_stay() {
        let source =
            "a // unsafe\nb /* unsafe /* x */\n unsafe */ c\nr#\"unsafe \" \"# d b\"unsafe\\\"\" e '\"' f 'x: g\n";
        let code = code_only(source);
        assert_eq!(code.lines().count(), source.lines().count());
        assert!(!code.contains("unsafe"), "{code}");
        for word in ["a", "b", "c", "d", "e", "f", "x", "g"] {
            assert!(words(&code, word).next().is_some(), "{word} in {code}");
        }
    }

    #[test]
    fn words_stand_alone() {
        assert_eq!(words("unsafe_code unsafe fn_unsafe", "unsafe").collect::<Vec<_>>(), [12]);
    }

    #[test]
    fn a_test_module_ends_the_code() {
        assert_eq!(without_tests("a\n#[cfg(test)]\nmod tests {\n}\n"), "a\n");
        let declared = "#[cfg(test)]\nmod samples;\nb {}\n";
        assert_eq!(without_tests(declared), declared);
        let item = "#[cfg(test)]\nuse x;\nfn b() {}\n";
        assert_eq!(without_tests(item), item);
    }

    #[test]
    fn lines_count_from_one() {
        assert_eq!(line_of("a\nb\n", 0), 1);
        assert_eq!(line_of("a\nb\n", 2), 2);
    }
}
