//! Builtin types, abbreviations and operators of the mangling.
#![forbid(unsafe_code)]

use super::node::{Literal, Operator};

const fn op(code: &'static str, text: &'static str, operands: u8) -> Operator {
    Operator { code, text, operands }
}

/// Sorted by code.
#[rustfmt::skip]
static OPERATORS: &[Operator] = &[
    op("aN", "&=", 2), op("aS", "=", 2), op("aa", "&&", 2), op("ad", "&", 1), op("an", "&", 2), op("at", "alignof ", 1),
    op("aw", "co_await ", 1), op("az", "alignof ", 1), op("cc", "const_cast", 2), op("cl", "()", 2), op("cm", ",", 2),
    op("co", "~", 1), op("dV", "/=", 2), op("dX", "[...]=", 3), op("da", "delete[] ", 1), op("dc", "dynamic_cast", 2),
    op("de", "*", 1), op("di", "=", 2), op("dl", "delete ", 1), op("ds", ".*", 2), op("dt", ".", 2), op("dv", "/", 2),
    op("dx", "]=", 2), op("eO", "^=", 2), op("eo", "^", 2), op("eq", "==", 2), op("fL", "...", 3), op("fR", "...", 3),
    op("fl", "...", 2), op("fr", "...", 2), op("ge", ">=", 2), op("gs", "::", 1), op("gt", ">", 2), op("ix", "[]", 2),
    op("lS", "<<=", 2), op("le", "<=", 2), op("li", "operator\"\" ", 1), op("ls", "<<", 2), op("lt", "<", 2),
    op("mI", "-=", 2), op("mL", "*=", 2), op("mi", "-", 2), op("ml", "*", 2), op("mm", "--", 1), op("na", "new[]", 3),
    op("ne", "!=", 2), op("ng", "-", 1), op("nt", "!", 1), op("nw", "new", 3), op("nx", "noexcept", 1), op("oR", "|=", 2),
    op("oo", "||", 2), op("or", "|", 2), op("pL", "+=", 2), op("pl", "+", 2), op("pm", "->*", 2), op("pp", "++", 1),
    op("ps", "+", 1), op("pt", "->", 2), op("qu", "?", 3), op("rM", "%=", 2), op("rS", ">>=", 2),
    op("rc", "reinterpret_cast", 2), op("rm", "%", 2), op("rs", ">>", 2), op("sP", "sizeof...", 1),
    op("sZ", "sizeof...", 1), op("sc", "static_cast", 2), op("ss", "<=>", 2), op("st", "sizeof ", 1),
    op("sz", "sizeof ", 1), op("tr", "throw", 0), op("tw", "throw ", 1),
];

/// The operator of a code.
pub(super) fn operator(code: &[u8]) -> Option<&'static Operator> {
    let at = OPERATORS.binary_search_by(|operator| operator.code.as_bytes().cmp(code)).ok()?;
    Some(&OPERATORS[at])
}

/// The builtin type of a letter.
pub(super) fn builtin(letter: u8) -> Option<(&'static str, Literal)> {
    Some(match letter {
        b'a' => ("signed char", Literal::Cast),
        b'b' => ("bool", Literal::Bool),
        b'c' => ("char", Literal::Cast),
        b'd' => ("double", Literal::Float),
        b'e' => ("long double", Literal::Float),
        b'f' => ("float", Literal::Float),
        b'g' => ("__float128", Literal::Float),
        b'h' => ("unsigned char", Literal::Cast),
        b'i' => ("int", Literal::Bare),
        b'j' => ("unsigned int", Literal::Suffix("u")),
        b'l' => ("long", Literal::Suffix("l")),
        b'm' => ("unsigned long", Literal::Suffix("ul")),
        b'n' => ("__int128", Literal::Cast),
        b'o' => ("unsigned __int128", Literal::Cast),
        b's' => ("short", Literal::Cast),
        b't' => ("unsigned short", Literal::Cast),
        b'v' => ("void", Literal::Cast),
        b'w' => ("wchar_t", Literal::Cast),
        b'x' => ("long long", Literal::Suffix("ll")),
        b'y' => ("unsigned long long", Literal::Suffix("ull")),
        b'z' => ("...", Literal::Cast),
        _ => return None,
    })
}

/// The builtin type of a letter behind `D`.
pub(super) fn builtin_after_d(letter: u8) -> Option<(&'static str, Literal)> {
    Some(match letter {
        b'a' => ("auto", Literal::Cast),
        b'c' => ("decltype(auto)", Literal::Cast),
        b'f' => ("decimal32", Literal::Cast),
        b'd' => ("decimal64", Literal::Cast),
        b'e' => ("decimal128", Literal::Cast),
        b'h' => ("half", Literal::Float),
        b's' => ("char16_t", Literal::Cast),
        b'u' => ("char8_t", Literal::Cast),
        b'i' => ("char32_t", Literal::Cast),
        b'n' => ("decltype(nullptr)", Literal::Cast),
        _ => return None,
    })
}

/// What a letter behind `S` stands for: short, written out, and the name of its constructors.
pub(super) fn standard(letter: u8) -> Option<(&'static str, &'static str, Option<&'static str>)> {
    Some(match letter {
        b't' => ("std", "std", None),
        b'a' => ("std::allocator", "std::allocator", Some("allocator")),
        b'b' => ("std::basic_string", "std::basic_string", Some("basic_string")),
        b's' => (
            "std::string",
            "std::basic_string<char, std::char_traits<char>, std::allocator<char> >",
            Some("basic_string"),
        ),
        b'i' => ("std::istream", "std::basic_istream<char, std::char_traits<char> >", Some("basic_istream")),
        b'o' => ("std::ostream", "std::basic_ostream<char, std::char_traits<char> >", Some("basic_ostream")),
        b'd' => ("std::iostream", "std::basic_iostream<char, std::char_traits<char> >", Some("basic_iostream")),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::{OPERATORS, operator};

    #[test]
    fn operators_are_found_by_code() {
        assert!(OPERATORS.windows(2).all(|pair| pair[0].code < pair[1].code));
        assert_eq!(operator(b"ss").map(|operator| operator.text), Some("<=>"));
        assert_eq!(operator(b"zz"), None);
    }
}
