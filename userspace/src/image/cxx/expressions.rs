//! Expressions of mangled names, which stand in template arguments and in `decltype`.
#![forbid(unsafe_code)]

use super::node::{Id, Node};
use super::operators::operator;
use super::parse::Parser;

impl Parser<'_> {
    /// An operator, a conversion, or a cast in an expression.
    pub(super) fn operator_name(&mut self) -> Option<Id> {
        let code = [self.next(), self.next()];
        if code[0] == b'v' && code[1].is_ascii_digit() {
            let name = self.source_name()?;
            return self.add(Node::VendorOperator(name));
        }
        if &code == b"cv" {
            let before = std::mem::replace(&mut self.in_conversion, !self.in_expression);
            let kind = self.a_type();
            let is_conversion = std::mem::replace(&mut self.in_conversion, before);
            let kind = kind?;
            return self.add(if is_conversion { Node::Conversion(kind) } else { Node::Cast(kind) });
        }
        if &code == b"nx" && !self.with_new {
            return None;
        }
        self.add(Node::Operator(operator(&code)?))
    }

    pub(super) fn expression(&mut self) -> Option<Id> {
        let before = std::mem::replace(&mut self.in_expression, true);
        let id = self.operand();
        self.in_expression = before;
        id
    }

    pub(super) fn operand(&mut self) -> Option<Id> {
        self.nested(Self::operand_unguarded)
    }

    pub(super) fn operand_unguarded(&mut self) -> Option<Id> {
        match (self.peek(), self.peek_second()) {
            (b'L', _) => self.primary(),
            (b'T', _) => self.template_parameter(),
            (b's', b'r') => {
                self.at += 2;
                let (scope, is_type) = self.unresolved_scope()?;
                let name = self.unqualified_name()?;
                if is_type {
                    let name = self.with_arguments(name)?;
                    self.add(Node::Qualified(scope, name))
                } else {
                    let name = self.add(Node::Qualified(scope, name))?;
                    self.with_arguments(name)
                }
            }
            (b's', b'p') => {
                self.at += 2;
                let of = self.operand()?;
                self.add(Node::Expansion(of))
            }
            (b'f', b'p') => {
                self.at += 2;
                if self.eat(b"T") {
                    return self.add(Node::FunctionParameter(0));
                }
                let number = self.compact_number()?;
                self.add(Node::FunctionParameter(number + 1))
            }
            (b'0'..=b'9', _) | (b'o', b'n') => {
                self.eat(b"on");
                let name = self.unqualified_name()?;
                self.with_arguments(name)
            }
            (kind @ (b'i' | b't'), b'l') => {
                self.at += 2;
                let of = if kind == b't' { Some(self.a_type()?) } else { None };
                let list = self.operands(b'E')?;
                self.add(Node::Braced(of, list))
            }
            (b'u', _) => {
                self.at += 1;
                let name = self.source_name()?;
                let arguments = self.template_arguments_to_end()?;
                self.add(Node::VendorCall(name, Some(arguments)))
            }
            _ => self.operation(),
        }
    }

    /// What stands before the last `::` of a name that depends on parameters: names up to an `E`, or a type (then true).
    pub(super) fn unresolved_scope(&mut self) -> Option<(Id, bool)> {
        let (at, known, last) = (self.at, self.substitutions.len(), self.last_name);
        if self.peek().is_ascii_digit()
            && let Some(scope) = self.names_to_end()
            && (self.peek().is_ascii_digit() || self.eat(b"on"))
        {
            return Some((scope, false));
        }
        (self.at, self.last_name) = (at, last);
        self.substitutions.truncate(known);
        Some((self.a_type()?, true))
    }

    pub(super) fn names_to_end(&mut self) -> Option<Id> {
        let mut so_far = None;
        while !self.eat(b"E") {
            let name = self.source_name()?;
            let name = self.with_arguments(name)?;
            so_far = Some(match so_far {
                Some(scope) => self.add(Node::Qualified(scope, name))?,
                None => name,
            });
        }
        so_far
    }

    pub(super) fn with_arguments(&mut self, name: Id) -> Option<Id> {
        if self.peek() != b'I' {
            return Some(name);
        }
        let arguments = self.template_arguments()?;
        self.add(Node::Template(name, arguments))
    }

    pub(super) fn operands(&mut self, end: u8) -> Option<Id> {
        let mut items = Vec::new();
        while !self.eat(&[end]) {
            items.push(self.operand()?);
        }
        self.list(&items, Node::List)
    }

    pub(super) fn operation(&mut self) -> Option<Id> {
        let op = self.operator_name()?;
        let (code, operands) = match self.tree.get(op) {
            Node::Operator(operator) => (operator.code, operator.operands),
            Node::VendorOperator(_) => ("", 1),
            Node::Cast(_) => ("cv", 1),
            _ => return None,
        };
        match (code, operands) {
            ("st", _) => {
                let of = self.a_type()?;
                self.add(Node::Unary(op, of, false))
            }
            (_, 0) => self.add(Node::Nullary(op)),
            ("cv", _) if self.eat(b"_") => {
                let list = self.operands(b'E')?;
                self.add(Node::Unary(op, list, false))
            }
            ("sP", _) => {
                let arguments = self.template_arguments_to_end()?;
                self.add(Node::Unary(op, arguments, false))
            }
            (_, 1) => {
                let is_suffix = matches!(code, "pp" | "mm") && !self.eat(b"_");
                let operand = self.operand()?;
                self.add(Node::Unary(op, operand, is_suffix))
            }
            (_, 2) => {
                let left = match code {
                    "cc" | "dc" | "rc" | "sc" => self.a_type()?,
                    "fl" | "fr" => self.operator_name()?,
                    "di" => self.unqualified_name()?,
                    _ => self.operand()?,
                };
                let right = match code {
                    "cl" => self.operands(b'E')?,
                    "dt" | "pt" if !matches!((self.peek(), self.peek_second()), (b'g', b's') | (b's', b'r')) => {
                        let name = self.unqualified_name()?;
                        self.with_arguments(name)?
                    }
                    _ => self.operand()?,
                };
                self.add(Node::Binary(op, left, right))
            }
            ("fL" | "fR", _) => {
                let inner = self.operator_name()?;
                let (second, third) = (self.operand()?, self.operand()?);
                self.add(Node::Ternary(op, inner, second, Some(third)))
            }
            ("qu" | "dX", _) => {
                let (first, second, third) = (self.operand()?, self.operand()?, self.operand()?);
                self.add(Node::Ternary(op, first, second, Some(third)))
            }
            ("nw" | "na", _) => {
                let placement = self.operands(b'_')?;
                let of = self.a_type()?;
                let with = match (self.peek(), self.peek_second()) {
                    (b'E', _) => {
                        self.at += 1;
                        None
                    }
                    (b'p', b'i') => {
                        self.at += 2;
                        Some(self.operands(b'E')?)
                    }
                    (b'i', b'l') => Some(self.operand()?),
                    _ => return None,
                };
                self.add(Node::Ternary(op, placement, of, with))
            }
            _ => None,
        }
    }

    pub(super) fn primary(&mut self) -> Option<Id> {
        self.need(b'L')?;
        // GCC leaves out the first of the two.
        let id = if matches!(self.peek(), b'_' | b'Z') {
            self.eat(b"_");
            self.need(b'Z')?;
            self.encoding()?
        } else {
            let of = self.a_type()?;
            if let Node::Builtin("decltype(nullptr)", _) = self.tree.get(of)
                && self.eat(b"E")
            {
                return Some(of);
            }
            let is_negative = self.eat(b"n");
            let length = self.text.as_bytes()[self.at..].iter().position(|byte| *byte == b'E').filter(|at| *at > 0)?;
            let digits = self.text.get(self.at..self.at + length)?;
            self.at += length;
            self.add(Node::Value(of, digits, is_negative))?
        };
        self.need(b'E')?;
        Some(id)
    }
}
