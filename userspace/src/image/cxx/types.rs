//! Types, template arguments and substitutions of mangled names.
#![forbid(unsafe_code)]

use super::node::{Id, Literal, Mark, Node};
use super::operators::{builtin, builtin_after_d, standard};
use super::parse::Parser;

impl<'a> Parser<'a> {
    /// Declares a parameter of a template, which is not printed.
    pub(super) fn template_head(&mut self) -> Option<()> {
        self.at += 1;
        match self.next() {
            b'n' => self.a_type().map(|_| ()),
            b'p' => self.template_head(),
            b't' => {
                while !self.eat(b"E") {
                    self.template_head()?;
                }
                Some(())
            }
            _ => Some(()),
        }
    }

    /// What stands before a type or a member function, outermost first.
    pub(super) fn qualifiers(&mut self, is_member: bool) -> Option<Vec<(Mark, Option<Id>)>> {
        let mut marks = Vec::new();
        loop {
            let mark = match (self.peek(), self.peek_second()) {
                (b'r', _) => (Mark::Restrict, 1),
                (b'V', _) => (Mark::Volatile, 1),
                (b'K', _) => (Mark::Const, 1),
                (b'D', b'x') => (Mark::TransactionSafe, 2),
                (b'D', b'o' | b'O') => (Mark::Noexcept, 2),
                (b'D', b'w') => (Mark::Throw, 2),
                _ => break,
            };
            let has_condition = self.peek_second() == b'O';
            self.at += mark.1;
            let extra = match mark.0 {
                Mark::Noexcept if has_condition => {
                    let condition = self.expression()?;
                    self.need(b'E')?;
                    Some(condition)
                }
                Mark::Throw => {
                    let types = self.parameters()?;
                    self.need(b'E')?;
                    Some(types)
                }
                _ => None,
            };
            marks.push((mark.0, extra));
        }
        if is_member || self.peek() == b'F' {
            for (mark, _) in &mut marks {
                *mark = mark.of_this();
            }
        }
        Some(marks)
    }

    pub(super) fn marked(&mut self, mut id: Id, marks: &[(Mark, Option<Id>)]) -> Option<Id> {
        for (mark, extra) in marks.iter().rev() {
            id = self.add(Node::Marked(*mark, id, *extra))?;
        }
        Some(id)
    }

    pub(super) fn reference_qualifier(&mut self) -> Option<Mark> {
        let mark = match self.peek() {
            b'R' => Mark::ReferenceThis,
            b'O' => Mark::RvalueThis,
            _ => return None,
        };
        self.at += 1;
        Some(mark)
    }

    pub(super) fn a_type(&mut self) -> Option<Id> {
        self.nested(Self::type_unguarded)
    }

    pub(super) fn type_unguarded(&mut self) -> Option<Id> {
        let (first, second) = (self.peek(), self.peek_second());
        if matches!(first, b'r' | b'V' | b'K') || (first == b'D' && matches!(second, b'x' | b'o' | b'O' | b'w')) {
            return self.qualified_type();
        }
        let id = match first {
            b'a'..=b'z' if first != b'u' => {
                let (name, literal) = builtin(first)?;
                self.at += 1;
                return self.add(Node::Builtin(name, literal));
            }
            b'u' => {
                self.at += 1;
                let name = self.source_name()?;
                if self.peek() == b'I' {
                    let arguments = self.template_arguments()?;
                    self.add(Node::Template(name, arguments))?
                } else {
                    name
                }
            }
            b'F' => self.function_type()?,
            b'0'..=b'9' | b'N' | b'Z' => self.name()?,
            b'A' => self.array_type()?,
            b'M' => {
                self.at += 1;
                let class = self.a_type()?;
                let of = self.a_type()?;
                self.add(Node::MemberPointer(class, of))?
            }
            b'T' => {
                let parameter = self.template_parameter()?;
                if self.peek() == b'I' { self.parameter_with_arguments(parameter)? } else { parameter }
            }
            b'S' if second.is_ascii_digit() || second == b'_' || second.is_ascii_uppercase() => {
                let id = self.substitution(false)?;
                if self.peek() != b'I' {
                    return Some(id);
                }
                let arguments = self.template_arguments()?;
                self.add(Node::Template(id, arguments))?
            }
            b'S' => {
                let id = self.name()?;
                if matches!(self.tree.get(id), Node::Standard(_)) {
                    return Some(id);
                }
                id
            }
            b'O' | b'P' | b'R' | b'C' | b'G' => {
                let mark = match first {
                    b'O' => Mark::Rvalue,
                    b'P' => Mark::Pointer,
                    b'R' => Mark::Reference,
                    b'C' => Mark::Complex,
                    _ => Mark::Imaginary,
                };
                self.at += 1;
                let of = self.a_type()?;
                self.add(Node::Marked(mark, of, None))?
            }
            b'U' if matches!(second, b'l' | b't') => self.name()?,
            b'U' => self.vendor_qualified()?,
            b'D' => return self.type_after_d(),
            _ => return None,
        };
        Some(self.remember(id))
    }

    pub(super) fn qualified_type(&mut self) -> Option<Id> {
        let marks = self.qualifiers(false)?;
        let of = if self.peek() == b'F' { self.function_type()? } else { self.a_type()? };
        // The reference behind a function's arguments stands behind its qualifiers.
        let id = match self.tree.get(of) {
            Node::Marked(mark @ (Mark::ReferenceThis | Mark::RvalueThis), function, None) => {
                let inner = self.marked(function, &marks)?;
                self.add(Node::Marked(mark, inner, None))?
            }
            _ => self.marked(of, &marks)?,
        };
        Some(self.remember(id))
    }

    pub(super) fn vendor_qualified(&mut self) -> Option<Id> {
        self.at += 1;
        let mut qualifier = self.source_name()?;
        if self.peek() == b'I' {
            let arguments = self.template_arguments()?;
            qualifier = self.add(Node::Template(qualifier, arguments))?;
        }
        let of = self.a_type()?;
        self.add(Node::Marked(Mark::Vendor, of, Some(qualifier)))
    }

    pub(super) fn type_after_d(&mut self) -> Option<Id> {
        self.at += 1;
        let id = match self.next() {
            b'T' | b't' => {
                let expression = self.expression()?;
                self.need(b'E')?;
                self.add(Node::Decltype(expression))?
            }
            b'p' => {
                let of = self.a_type()?;
                self.add(Node::Expansion(of))?
            }
            b'v' => {
                let dimension = if self.eat(b"_") {
                    self.expression()?
                } else {
                    let number = self.unsigned()?;
                    self.add(Node::Number(number))?
                };
                self.need(b'_')?;
                let of = self.a_type()?;
                self.add(Node::Vector(dimension, of))?
            }
            b'F' => {
                let from = self.at;
                self.unsigned()?;
                let bits = self.text.get(from..self.at)?;
                let name = match (bits, self.next()) {
                    ("16", b'b') => "std::bfloat16_t",
                    ("16", b'_') => "_Float16",
                    ("32", b'_') => "_Float32",
                    ("64", b'_') => "_Float64",
                    ("128", b'_') => "_Float128",
                    ("32", b'x') => "_Float32x",
                    ("64", b'x') => "_Float64x",
                    _ => return None,
                };
                return self.add(Node::Builtin(name, Literal::Float));
            }
            letter => {
                let (name, literal) = builtin_after_d(letter)?;
                return self.add(Node::Builtin(name, literal));
            }
        };
        Some(self.remember(id))
    }

    /// `T_` before template arguments. In the name of a conversion they may be the conversion's own.
    pub(super) fn parameter_with_arguments(&mut self, parameter: Id) -> Option<Id> {
        if !self.in_conversion {
            self.remember(parameter);
            let arguments = self.template_arguments()?;
            return self.add(Node::Template(parameter, arguments));
        }
        let (at, known, last) = (self.at, self.substitutions.len(), self.last_name);
        if let Some(arguments) = self.template_arguments()
            && self.peek() == b'I'
        {
            self.remember(parameter);
            return self.add(Node::Template(parameter, arguments));
        }
        (self.at, self.last_name) = (at, last);
        self.substitutions.truncate(known);
        Some(parameter)
    }

    pub(super) fn function_type(&mut self) -> Option<Id> {
        self.nested(|parser| {
            parser.need(b'F')?;
            // Linkage of C, which is not printed.
            parser.eat(b"Y");
            let id = parser.bare_function_type(true)?;
            let reference = parser.reference_qualifier();
            parser.need(b'E')?;
            match reference {
                Some(mark) => parser.add(Node::Marked(mark, id, None)),
                None => Some(id),
            }
        })
    }

    pub(super) fn bare_function_type(&mut self, has_result: bool) -> Option<Id> {
        let has_result = self.eat(b"J") || has_result;
        let result = if has_result { Some(self.a_type()?) } else { None };
        let parameters = self.parameters()?;
        self.add(Node::Function(result, Some(parameters)))
    }

    pub(super) fn parameters(&mut self) -> Option<Id> {
        let mut types = Vec::new();
        loop {
            let (first, second) = (self.peek(), self.peek_second());
            if matches!(first, 0 | b'E' | b'.') || (matches!(first, b'R' | b'O') && second == b'E') {
                break;
            }
            types.push(self.a_type()?);
        }
        if types.is_empty() {
            return None;
        }
        if let [only] = types[..]
            && let Node::Builtin("void", _) = self.tree.get(only)
        {
            return self.add(Node::List(None, None));
        }
        self.list(&types, Node::List)
    }

    /// A chain of lists.
    pub(super) fn list(&mut self, items: &[Id], make: fn(Option<Id>, Option<Id>) -> Node<'a>) -> Option<Id> {
        let mut list = None;
        for item in items.iter().rev() {
            list = Some(self.add(make(Some(*item), list))?);
        }
        match list {
            Some(list) => Some(list),
            None => self.add(make(None, None)),
        }
    }

    pub(super) fn array_type(&mut self) -> Option<Id> {
        self.need(b'A')?;
        let dimension = if self.peek() == b'_' {
            None
        } else if self.peek().is_ascii_digit() {
            let from = self.at;
            while self.peek().is_ascii_digit() {
                self.at += 1;
            }
            let digits = self.text.get(from..self.at)?;
            Some(self.text(digits)?)
        } else {
            Some(self.expression()?)
        };
        self.need(b'_')?;
        let of = self.a_type()?;
        self.add(Node::Array(dimension, of))
    }

    pub(super) fn template_parameter(&mut self) -> Option<Id> {
        self.need(b'T')?;
        let number = self.compact_number()?;
        self.add(Node::Parameter(number))
    }

    pub(super) fn template_arguments(&mut self) -> Option<Id> {
        if !matches!(self.next(), b'I' | b'J') {
            return None;
        }
        self.template_arguments_to_end()
    }

    pub(super) fn template_arguments_to_end(&mut self) -> Option<Id> {
        let last_name = self.last_name;
        let mut arguments = Vec::new();
        while !self.eat(b"E") {
            arguments.push(self.template_argument()?);
        }
        self.last_name = last_name;
        self.list(&arguments, Node::TemplateList)
    }

    pub(super) fn template_argument(&mut self) -> Option<Id> {
        self.nested(|parser| match parser.peek() {
            b'X' => {
                parser.at += 1;
                let expression = parser.expression()?;
                parser.need(b'E')?;
                Some(expression)
            }
            b'L' => parser.primary(),
            b'I' | b'J' => parser.template_arguments(),
            // A newer form says first what the parameter was declared as.
            b'T' if parser.with_new && matches!(parser.peek_second(), b'y' | b'n' | b't' | b'p') => {
                parser.template_head()?;
                parser.template_argument()
            }
            _ => parser.a_type(),
        })
    }

    pub(super) fn substitution(&mut self, is_prefix: bool) -> Option<Id> {
        self.need(b'S')?;
        let first = self.peek();
        if first == b'_' || first.is_ascii_digit() || first.is_ascii_uppercase() {
            let mut number = 0_usize;
            if !self.eat(b"_") {
                loop {
                    let digit = match self.next() {
                        b'_' => break,
                        byte @ b'0'..=b'9' => byte - b'0',
                        byte @ b'A'..=b'Z' => byte - b'A' + 10,
                        _ => return None,
                    };
                    number = number.checked_mul(36)?.checked_add(usize::from(digit))?;
                }
                number = number.checked_add(1)?;
            }
            return self.substitutions.get(number).copied();
        }
        let (short, long, own) = standard(first)?;
        self.at += 1;
        // Constructors and destructors stand in the name written out.
        let is_long = is_prefix && matches!(self.peek(), b'C' | b'D');
        if let Some(own) = own {
            self.last_name = Some(self.tree.add(Node::Standard(own)));
        }
        let mut id = self.tree.add(Node::Standard(if is_long { long } else { short }));
        if self.peek() == b'B' {
            while self.eat(b"B") {
                let before = self.last_name;
                let tag = self.source_name()?;
                self.last_name = before;
                id = self.add(Node::Tagged(id, tag))?;
            }
            self.remember(id);
        }
        Some(id)
    }
}
