//! Names of C++ as jeprof's tables have them: without arguments, template arguments and return type.
#![forbid(unsafe_code)]

use std::borrow::Cow;

/// Removes argument lists (with a `const` behind them), then template arguments, then what precedes the last blank
/// before a qualified name.
pub fn shorten(full: &str) -> String {
    let name = without_pairs(full, b'(', b')', true);
    let name = without_pairs(&name, b'<', b'>', false);
    without_return_type(&name).to_owned()
}

/// Removes every balanced pair and what is inside.
fn without_pairs(text: &str, open: u8, close: u8, and_const: bool) -> Cow<'_, str> {
    if memchr::memchr(close, text.as_bytes()).is_none() {
        return Cow::Borrowed(text);
    }
    let mut kept = String::with_capacity(text.len());
    let mut opened = Vec::new();
    let mut rest = text;
    while let Some(at) = memchr::memchr2(open, close, rest.as_bytes()) {
        kept.push_str(&rest[..at]);
        let found = rest.as_bytes()[at];
        rest = &rest[at + 1..];
        if found == open {
            opened.push(kept.len());
            kept.push(char::from(open));
        } else if let Some(start) = opened.pop() {
            kept.truncate(start);
            if and_const && let Some(after) = rest.trim_ascii_start().strip_prefix("const") {
                rest = after;
            }
        } else {
            kept.push(char::from(close));
        }
    }
    kept.push_str(rest);
    Cow::Owned(kept)
}

fn without_return_type(name: &str) -> &str {
    // Most names have no blank left.
    if name.bytes().all(|byte| byte > b' ') {
        return name;
    }
    let qualified = |text: &str| {
        let word = text.bytes().take_while(|b| b.is_ascii_alphanumeric() || *b == b'_').count();
        word > 0 && text[word..].starts_with("::")
    };
    let blanks = name.bytes().enumerate().filter(|(_, b)| b.is_ascii_whitespace());
    let last = blanks.map(|(at, _)| at + 1).rfind(|&at| qualified(&name[at..]));
    &name[last.unwrap_or(0)..]
}

#[cfg(test)]
mod tests {
    use super::shorten;

    #[test]
    fn cpp_names_are_shortened_as_jeprof_does() {
        for (full, short) in [
            ("app::Pool::grab(unsigned long)", "app::Pool::grab"),
            ("std::vector<int, std::allocator<int> >::push_back(int const&)", "std::vector::push_back"),
            ("void app::fill<std::pair<int, long> >(std::function<void (int)>)", "app::fill"),
            ("Node::find(int) const", "Node::find"),
            ("operator new(unsigned long)", "operator new"),
            ("(anonymous namespace)::make()", "::make"),
            ("main", "main"),
            ("unbalanced(", "unbalanced("),
        ] {
            assert_eq!(shorten(full), short);
        }
    }
}
