//! Mangled names of the Itanium C++ ABI as trees: the cursor, and names of functions, data and what compilers make of them.
//!
//! The grammar is the ABI's, with what GCC writes besides. Each function reads one production at the cursor and gives its node;
//! `None`: the name is none of the grammar. Substitutions are numbered as compilers number them, so the order in which nodes are
//! remembered matters.
#![forbid(unsafe_code)]

use super::node::{Id, Node, Tree};

/// Productions inside each other; more are no name of a compiler.
const MAX_DEPTH: u32 = 600;

pub(super) struct Parser<'a> {
    pub(super) text: &'a str,
    pub(super) at: usize,
    pub(super) tree: Tree<'a>,
    pub(super) substitutions: Vec<Id>,
    /// The name that constructors and destructors repeat.
    pub(super) last_name: Option<Id>,
    pub(super) in_expression: bool,
    pub(super) in_conversion: bool,
    /// With forms that binutils 2.40 does not know.
    pub(super) with_new: bool,
    pub(super) depth: u32,
}

impl<'a> Parser<'a> {
    pub(super) fn new(text: &'a str, with_new: bool) -> Parser<'a> {
        Parser {
            text,
            at: 0,
            tree: Tree::default(),
            substitutions: Vec::new(),
            last_name: None,
            in_expression: false,
            in_conversion: false,
            with_new,
            depth: 0,
        }
    }

    /// The whole name, with what a compiler appended to it.
    pub(super) fn whole(&mut self) -> Option<Id> {
        let global = self.text.strip_prefix("_GLOBAL_").map(str::as_bytes);
        if let Some([b'.' | b'_' | b'$', kind @ (b'D' | b'I'), b'_', ..]) = global {
            self.at = 11;
            let text = if *kind == b'I' { "global constructors keyed to " } else { "global destructors keyed to " };
            let of = if self.eat(b"_Z") { self.encoding()? } else { self.rest() };
            return self.is_at_end().then(|| self.tree.add(Node::Special(text, of)));
        }
        if !self.eat(b"_Z") {
            return None;
        }
        let mut id = self.encoding()?;
        while self.peek() == b'.' && is_suffix(self.peek_second()) {
            let from = self.at;
            self.at += 2;
            while is_suffix(self.peek()) {
                self.at += 1;
            }
            while self.peek() == b'.' && self.peek_second().is_ascii_digit() {
                self.at += 2;
                while self.peek().is_ascii_digit() {
                    self.at += 1;
                }
            }
            id = self.tree.add(Node::Clone(id, self.text.get(from..self.at)?));
        }
        self.is_at_end().then_some(id)
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.at == self.text.len()
    }

    /// Everything that is left, as a name.
    pub(super) fn rest(&mut self) -> Id {
        let rest = self.text.get(self.at..).unwrap_or_default();
        self.at = self.text.len();
        self.tree.add(Node::Text(rest))
    }

    /// 0 at the end.
    pub(super) fn peek(&self) -> u8 {
        self.text.as_bytes().get(self.at).copied().unwrap_or(0)
    }

    pub(super) fn peek_second(&self) -> u8 {
        self.text.as_bytes().get(self.at + 1).copied().unwrap_or(0)
    }

    pub(super) fn next(&mut self) -> u8 {
        let byte = self.peek();
        if byte != 0 {
            self.at += 1;
        }
        byte
    }

    pub(super) fn eat(&mut self, expected: &[u8]) -> bool {
        let found = self.text.as_bytes()[self.at..].starts_with(expected);
        if found {
            self.at += expected.len();
        }
        found
    }

    pub(super) fn need(&mut self, expected: u8) -> Option<()> {
        self.eat(&[expected]).then_some(())
    }

    #[expect(clippy::unnecessary_wraps, reason = "the last step of productions, which may all fail")]
    pub(super) fn add(&mut self, node: Node<'a>) -> Option<Id> {
        Some(self.tree.add(node))
    }

    pub(super) fn text(&mut self, text: &'a str) -> Option<Id> {
        self.add(Node::Text(text))
    }

    pub(super) fn remember(&mut self, id: Id) -> Id {
        self.substitutions.push(id);
        id
    }

    /// Runs one production unless too many are open.
    pub(super) fn nested<T>(&mut self, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        if self.depth >= MAX_DEPTH {
            return None;
        }
        self.depth += 1;
        let result = read(self);
        self.depth -= 1;
        result
    }

    /// A function with its type, data, or something that the compiler made.
    pub(super) fn encoding(&mut self) -> Option<Id> {
        self.nested(|parser| {
            if matches!(parser.peek(), b'G' | b'T') {
                return parser.special_name();
            }
            let name = parser.name()?;
            if matches!(parser.peek(), 0 | b'E') || (parser.with_new && parser.peek() == b'.') {
                return Some(name);
            }
            let has_result = parser.has_result(name);
            let function = parser.bare_function_type(has_result)?;
            parser.add(Node::Typed(name, function))
        })
    }

    /// Functions that are templates are mangled with their result, but constructors and conversions.
    pub(super) fn has_result(&self, name: Id) -> bool {
        let mut name = name;
        loop {
            match self.tree.get(name) {
                Node::Local(_, entity) => name = entity,
                Node::Marked(mark, of, _) if mark.is_of_function() => name = of,
                Node::Template(of, _) => return !self.has_no_result(of),
                _ => return false,
            }
        }
    }

    fn has_no_result(&self, name: Id) -> bool {
        let mut name = name;
        loop {
            match self.tree.get(name) {
                Node::Qualified(_, of) | Node::Local(_, of) => name = of,
                Node::Constructor(_) | Node::Destructor(_) | Node::Conversion(_) => return true,
                _ => return false,
            }
        }
    }

    pub(super) fn name(&mut self) -> Option<Id> {
        self.nested(|parser| match parser.peek() {
            b'N' => parser.nested_name(),
            b'Z' => parser.local_name(),
            b'S' => {
                let is_substituted = parser.peek_second() != b't';
                let id = if is_substituted {
                    parser.substitution(false)?
                } else {
                    parser.at += 2;
                    let scope = parser.text("std")?;
                    let name = parser.unqualified_name()?;
                    parser.add(Node::Qualified(scope, name))?
                };
                if parser.peek() != b'I' {
                    return Some(id);
                }
                if !is_substituted {
                    parser.remember(id);
                }
                let arguments = parser.template_arguments()?;
                parser.add(Node::Template(id, arguments))
            }
            _ => {
                let id = parser.unqualified_name()?;
                if parser.peek() != b'I' {
                    return Some(id);
                }
                parser.remember(id);
                let arguments = parser.template_arguments()?;
                parser.add(Node::Template(id, arguments))
            }
        })
    }

    pub(super) fn nested_name(&mut self) -> Option<Id> {
        self.need(b'N')?;
        let marks = self.qualifiers(true)?;
        let reference = self.reference_qualifier();
        let mut id = self.prefix()?;
        id = self.marked(id, &marks)?;
        if let Some(mark) = reference {
            id = self.add(Node::Marked(mark, id, None))?;
        }
        self.need(b'E')?;
        Some(id)
    }

    pub(super) fn prefix(&mut self) -> Option<Id> {
        let mut so_far: Option<Id> = None;
        loop {
            let first = self.peek();
            let part = match first {
                b'E' => return so_far,
                b'I' => {
                    let of = so_far?;
                    let arguments = self.template_arguments()?;
                    so_far = Some(self.add(Node::Template(of, arguments))?);
                    None
                }
                b'T' if so_far.is_none() => Some(self.template_parameter()?),
                b'S' if so_far.is_none() => Some(self.substitution(true)?),
                // The member that a lambda initializes; it was remembered as a name.
                b'M' if so_far.is_some() => {
                    self.at += 1;
                    continue;
                }
                b'D' if matches!(self.peek_second(), b'T' | b't') => Some(self.a_type()?),
                _ => Some(self.unqualified_name()?),
            };
            let id = match (so_far, part) {
                (Some(scope), Some(part)) => self.add(Node::Qualified(scope, part))?,
                (known, part) => part.or(known)?,
            };
            so_far = Some(id);
            if first != b'S' && self.peek() != b'E' {
                self.remember(id);
            }
        }
    }

    pub(super) fn unqualified_name(&mut self) -> Option<Id> {
        let mut id = match self.peek() {
            b'0'..=b'9' => self.source_name()?,
            b'a'..=b'z' => {
                let was_in_expression = std::mem::replace(&mut self.in_expression, false);
                if self.peek() == b'o' && self.peek_second() == b'n' {
                    self.at += 2;
                }
                let id = self.operator_name();
                self.in_expression = was_in_expression;
                let id = id?;
                match self.tree.get(id) {
                    Node::Operator(operator) if operator.code == "li" => {
                        let suffix = self.source_name()?;
                        self.add(Node::Unary(id, suffix, false))?
                    }
                    _ => id,
                }
            }
            b'D' if self.peek_second() == b'C' => {
                self.at += 2;
                let mut names = vec![self.source_name()?];
                while !self.eat(b"E") {
                    names.push(self.source_name()?);
                }
                let list = self.list(&names, Node::List)?;
                self.add(Node::Structured(list))?
            }
            b'C' | b'D' => self.constructor_or_destructor()?,
            b'L' => {
                self.at += 1;
                let id = self.source_name()?;
                self.discriminator()?;
                id
            }
            b'U' if self.peek_second() == b'l' => self.lambda()?,
            b'U' if self.peek_second() == b't' => self.unnamed_type()?,
            _ => return None,
        };
        while self.eat(b"B") {
            let before = self.last_name;
            let tag = self.source_name()?;
            self.last_name = before;
            id = self.add(Node::Tagged(id, tag))?;
        }
        Some(id)
    }

    pub(super) fn source_name(&mut self) -> Option<Id> {
        let length = self.unsigned()?;
        let end = self.at.checked_add(usize::try_from(length).ok().filter(|length| *length > 0)?)?;
        let name = self.text.get(self.at..end)?;
        self.at = end;
        let anonymous = name.strip_prefix("_GLOBAL_").map(str::as_bytes);
        let is_anonymous = matches!(anonymous, Some([b'.' | b'_' | b'$', b'N', ..]));
        let id = self.tree.add(Node::Text(if is_anonymous { "(anonymous namespace)" } else { name }));
        self.last_name = Some(id);
        Some(id)
    }

    pub(super) fn unsigned(&mut self) -> Option<i64> {
        let mut number = None;
        while self.peek().is_ascii_digit() {
            let digit = i64::from(self.next() - b'0');
            number = Some(number.unwrap_or(0_i64).checked_mul(10)?.checked_add(digit)?).filter(|n| *n < 1 << 31);
            number?;
        }
        number
    }

    pub(super) fn number(&mut self) -> i64 {
        let sign = if self.eat(b"n") { -1 } else { 1 };
        self.unsigned().unwrap_or(0) * sign
    }

    /// `_` is 0, `0_` is 1 and so on.
    pub(super) fn compact_number(&mut self) -> Option<i64> {
        if self.eat(b"_") {
            return Some(0);
        }
        let number = self.unsigned()?;
        self.need(b'_')?;
        Some(number + 1)
    }

    /// Tells entities of one name in one function apart, which is not printed.
    pub(super) fn discriminator(&mut self) -> Option<()> {
        if !self.eat(b"_") {
            return Some(());
        }
        let is_long = self.eat(b"_");
        let number = self.number();
        if number < 0 {
            return None;
        }
        if is_long && number >= 10 {
            self.need(b'_')?;
        }
        Some(())
    }

    pub(super) fn constructor_or_destructor(&mut self) -> Option<Id> {
        let name = self.last_name?;
        if self.next() == b'D' {
            if !matches!(self.next(), b'0'..=b'2' | b'4' | b'5') {
                return None;
            }
            return self.add(Node::Destructor(name));
        }
        let is_inherited = self.eat(b"I");
        if !(b'1'..=b'5').contains(&self.next()) {
            return None;
        }
        if is_inherited {
            // Takes the name of the class that it was inherited from.
            self.a_type()?;
        }
        let name = self.last_name?;
        self.add(Node::Constructor(name))
    }

    pub(super) fn lambda(&mut self) -> Option<Id> {
        self.at += 2;
        while self.with_new && self.peek() == b'T' && matches!(self.peek_second(), b'y' | b'n' | b't' | b'p') {
            self.template_head()?;
        }
        let parameters = self.parameters()?;
        self.need(b'E')?;
        let number = self.compact_number()?;
        self.add(Node::Lambda(parameters, number))
    }

    pub(super) fn unnamed_type(&mut self) -> Option<Id> {
        self.at += 2;
        let number = self.compact_number()?;
        let id = self.add(Node::Unnamed(number))?;
        Some(self.remember(id))
    }

    pub(super) fn local_name(&mut self) -> Option<Id> {
        self.need(b'Z')?;
        let function = self.encoding()?;
        self.need(b'E')?;
        let entity = if self.eat(b"s") {
            self.discriminator()?;
            self.text("string literal")?
        } else {
            let default = if self.eat(b"d") { Some(self.compact_number()?) } else { None };
            let name = self.name()?;
            // These carry a number of their own.
            if !matches!(self.tree.get(name), Node::Lambda(..) | Node::Unnamed(_)) {
                self.discriminator()?;
            }
            match default {
                Some(number) => self.add(Node::DefaultArgument(number, name))?,
                None => name,
            }
        };
        // The result of the function around could be taken for that of what is in it.
        if let Node::Typed(_, kind) = self.tree.get(function)
            && let Node::Function(_, parameters) = self.tree.get(kind)
        {
            self.tree.set(kind, Node::Function(None, parameters));
        }
        self.add(Node::Local(function, entity))
    }

    pub(super) fn special_name(&mut self) -> Option<Id> {
        let of_type = |parser: &mut Self, text| {
            let of = parser.a_type()?;
            parser.add(Node::Special(text, of))
        };
        let of_name = |parser: &mut Self, text| {
            let of = parser.name()?;
            parser.add(Node::Special(text, of))
        };
        let of_encoding = |parser: &mut Self, text| {
            let of = parser.encoding()?;
            parser.add(Node::Special(text, of))
        };
        match (self.next(), self.next()) {
            (b'T', b'V') => of_type(self, "vtable for "),
            (b'T', b'T') => of_type(self, "VTT for "),
            (b'T', b'I') => of_type(self, "typeinfo for "),
            (b'T', b'S') => of_type(self, "typeinfo name for "),
            (b'T', b'F') => of_type(self, "typeinfo fn for "),
            (b'T', b'J') => of_type(self, "java Class for "),
            (b'T', b'H') => of_name(self, "TLS init function for "),
            (b'T', b'W') => of_name(self, "TLS wrapper function for "),
            (b'T', b'A') => {
                let of = self.template_argument()?;
                self.add(Node::Special("template parameter object for ", of))
            }
            (b'T', kind @ (b'h' | b'v')) => {
                self.call_offset(kind)?;
                of_encoding(self, if kind == b'h' { "non-virtual thunk to " } else { "virtual thunk to " })
            }
            (b'T', b'c') => {
                for _ in 0..2 {
                    let kind = self.next();
                    self.call_offset(kind)?;
                }
                of_encoding(self, "covariant return thunk to ")
            }
            (b'T', b'C') => {
                let derived = self.a_type()?;
                if self.number() < 0 {
                    return None;
                }
                self.need(b'_')?;
                let base = self.a_type()?;
                self.add(Node::ConstructionTable(derived, base))
            }
            (b'G', b'V') => of_name(self, "guard variable for "),
            (b'G', b'R') => {
                let name = self.name()?;
                let number = self.number();
                self.add(Node::Temporary(name, number))
            }
            (b'G', b'A') => of_encoding(self, "hidden alias for "),
            (b'G', b'T') => {
                let is_clone = self.next() == b'n';
                of_encoding(self, if is_clone { "non-transaction clone for " } else { "transaction clone for " })
            }
            _ => None,
        }
    }

    pub(super) fn call_offset(&mut self, kind: u8) -> Option<()> {
        match kind {
            b'h' => {
                self.number();
            }
            b'v' => {
                self.number();
                self.need(b'_')?;
                self.number();
            }
            _ => return None,
        }
        self.need(b'_')
    }
}

fn is_suffix(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_'
}
