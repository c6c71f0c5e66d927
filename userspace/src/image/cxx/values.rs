//! Expressions and names of operators as text.
#![forbid(unsafe_code)]

use super::node::{Id, Literal, Node, Operator};
use super::print::{MAX_DEPTH, MAX_STEPS, Printer};

impl<'a> Printer<'_, 'a> {
    /// Nodes of expressions and of names of operators.
    pub(super) fn expression(&mut self, node: Node<'a>) {
        match node {
            Node::Operator(operator) => {
                self.push("operator");
                if operator.text.starts_with(|first: char| first.is_ascii_lowercase()) {
                    self.push(" ");
                }
                self.push(operator.text.strip_suffix(' ').unwrap_or(operator.text));
            }
            Node::VendorOperator(name) => {
                self.push("operator ");
                self.write(name);
            }
            Node::Conversion(to) => {
                self.push("operator ");
                self.conversion(to);
            }
            Node::Cast(to) => {
                self.push("operator ");
                self.write(to);
            }
            Node::Nullary(operator) => self.operator(operator),
            Node::Unary(operator, operand, is_suffix) => self.unary(operator, operand, is_suffix),
            Node::Binary(operator, left, right) => self.binary(operator, left, right),
            Node::Ternary(operator, first, second, third) => self.ternary(operator, first, second, third),
            Node::Braced(of, list) => {
                self.write_some(of);
                self.push("{");
                self.write(list);
                self.push("}");
            }
            Node::Value(of, digits, is_negative) => self.value(of, digits, is_negative),
            Node::VendorCall(name, arguments) => {
                self.write(name);
                self.push("(");
                self.write_some(arguments);
                self.push(")");
            }
            Node::Decltype(expression) => {
                self.push("decltype (");
                self.write(expression);
                self.push(")");
            }
            Node::Expansion(of) => self.expansion(of),
            Node::FunctionParameter(0) => self.push("this"),
            Node::FunctionParameter(number) => {
                self.push("{parm#");
                self.number(number);
                self.push("}");
            }
            _ => self.failed = true,
        }
    }

    /// The type of a conversion sees the parameters of the template that the conversion is a member of.
    pub(super) fn conversion(&mut self, to: Id) {
        let scope = self.scope;
        if let Some(template) = self.template {
            self.enter(template);
        }
        match self.node(to) {
            Node::Template(name, arguments) => {
                self.write(name);
                self.scope = scope;
                self.arguments(arguments);
            }
            _ => self.write(to),
        }
        self.scope = scope;
    }

    pub(super) fn operator(&mut self, id: Id) {
        match self.node(id) {
            Node::Operator(operator) => self.push(operator.text),
            _ => self.write(id),
        }
    }

    pub(super) fn code(&self, id: Id) -> &'static Operator {
        const NONE: &Operator = &Operator { code: "", text: "", operands: 0 };
        match self.node(id) {
            Node::Operator(operator) => operator,
            _ => NONE,
        }
    }

    pub(super) fn in_parentheses(&mut self, id: Id) {
        self.push("(");
        self.write(id);
        self.push(")");
    }

    /// An operand, in parentheses unless it is simple.
    pub(super) fn operand(&mut self, id: Id) {
        match self.node(id) {
            Node::Text(_) | Node::Qualified(..) | Node::Braced(..) | Node::FunctionParameter(_) => self.write(id),
            _ => self.in_parentheses(id),
        }
    }

    pub(super) fn unary(&mut self, operator: Id, operand: Id, is_suffix: bool) {
        let code = self.code(operator).code;
        if is_suffix {
            self.operand(operand);
            self.operator(operator);
            return;
        }
        let mut operand = operand;
        match code {
            // The address of a function is written without its arguments.
            "ad" => {
                if let Node::Typed(name, kind) = self.node(operand)
                    && matches!(self.node(name), Node::Qualified(..))
                    && matches!(self.node(kind), Node::Function(..))
                {
                    operand = name;
                }
            }
            // Sizes of packs are written as numbers.
            "sZ" => {
                let length = self.find_pack(operand).map_or(0, |pack| self.pack_length(pack));
                return self.number(length);
            }
            "sP" => {
                let length = self.arguments_length(operand);
                return self.number(length);
            }
            _ => {}
        }
        match self.node(operator) {
            Node::Cast(to) => self.in_parentheses(to),
            _ => self.operator(operator),
        }
        match code {
            "gs" => self.write(operand),
            "st" | "nx" => self.in_parentheses(operand),
            _ => self.operand(operand),
        }
    }

    pub(super) fn binary(&mut self, operator: Id, left: Id, right: Id) {
        let Operator { code, text, .. } = *self.code(operator);
        match code {
            "cc" | "dc" | "rc" | "sc" => {
                self.operator(operator);
                self.push("<");
                self.write(left);
                self.push(">(");
                self.write(right);
                self.push(")");
                return;
            }
            "fl" | "fr" => {
                let index = std::mem::replace(&mut self.pack_index, -1);
                self.push("(");
                if code == "fl" {
                    self.push("...");
                    self.operator(left);
                    self.operand(right);
                } else {
                    self.operand(right);
                    self.operator(left);
                    self.push("...");
                }
                self.push(")");
                self.pack_index = index;
                return;
            }
            "di" | "dx" => {
                self.push(if code == "di" { "." } else { "[" });
                self.write(left);
                if code == "dx" {
                    self.push("]");
                }
                return self.designated(right);
            }
            _ => {}
        }
        // Not taken for the end of template arguments.
        let is_greater = text == ">";
        if is_greater {
            self.push("(");
        }
        // A call is written without the types of the function's arguments.
        match self.node(left) {
            Node::Typed(name, _) if code == "cl" => self.operand(name),
            _ => self.operand(left),
        }
        match code {
            "ix" => {
                self.push("[");
                self.write(right);
                self.push("]");
            }
            "cl" => self.operand(right),
            _ => {
                self.operator(operator);
                self.operand(right);
            }
        }
        if is_greater {
            self.push(")");
        }
    }

    /// The value of a designated initializer; a further designator follows without a sign.
    pub(super) fn designated(&mut self, value: Id) {
        let is_designator = matches!(self.node(value), Node::Binary(op, _, _) | Node::Ternary(op, _, _, _)
            if matches!(self.code(op).code, "di" | "dx" | "dX"));
        if is_designator {
            self.write(value);
        } else {
            self.push("=");
            self.operand(value);
        }
    }

    pub(super) fn ternary(&mut self, operator: Id, first: Id, second: Id, third: Option<Id>) {
        match (self.code(operator).code, third) {
            ("fL" | "fR", Some(third)) => {
                let index = std::mem::replace(&mut self.pack_index, -1);
                self.push("(");
                self.operand(second);
                self.operator(first);
                self.push("...");
                self.operator(first);
                self.operand(third);
                self.push(")");
                self.pack_index = index;
            }
            ("dX", Some(third)) => {
                self.push("[");
                self.write(first);
                self.push(" ... ");
                self.write(second);
                self.push("]");
                self.designated(third);
            }
            ("qu", Some(third)) => {
                self.operand(first);
                self.operator(operator);
                self.operand(second);
                self.push(" : ");
                self.operand(third);
            }
            _ => {
                self.push("new ");
                if matches!(self.node(first), Node::List(Some(_), _)) {
                    self.operand(first);
                    self.push(" ");
                }
                self.write(second);
                if let Some(third) = third {
                    self.operand(third);
                }
            }
        }
    }

    pub(super) fn value(&mut self, of: Id, digits: &str, is_negative: bool) {
        let literal = match self.node(of) {
            Node::Builtin(_, literal) => literal,
            _ => Literal::Cast,
        };
        let sign = if is_negative { "-" } else { "" };
        match (literal, digits, is_negative) {
            (Literal::Bare | Literal::Suffix(_), _, _) => {
                self.push(sign);
                self.push(digits);
                if let Literal::Suffix(suffix) = literal {
                    self.push(suffix);
                }
                return;
            }
            (Literal::Bool, "0", false) => return self.push("false"),
            (Literal::Bool, "1", false) => return self.push("true"),
            _ => {}
        }
        self.in_parentheses(of);
        self.push(sign);
        let is_float = literal == Literal::Float;
        if is_float {
            self.push("[");
        }
        self.push(digits);
        if is_float {
            self.push("]");
        }
    }

    pub(super) fn expansion(&mut self, of: Id) {
        let pack = if self.lambdas > 0 { None } else { self.find_pack(of) };
        let Some(pack) = pack else {
            // Only packs of function parameters are in it.
            self.operand(of);
            self.push("...");
            return;
        };
        let length = self.pack_length(pack);
        for index in 0..length {
            if self.failed {
                return;
            }
            self.pack_index = index;
            self.write(of);
            if index + 1 < length {
                self.push(", ");
            }
        }
    }

    /// The first pack in a pattern.
    pub(super) fn find_pack(&mut self, id: Id) -> Option<Id> {
        self.find_pack_within(id, 0)
    }

    fn find_pack_within(&mut self, id: Id, depth: usize) -> Option<Id> {
        self.steps += 1;
        if self.failed || self.steps > MAX_STEPS || depth > MAX_DEPTH {
            self.failed = true;
            return None;
        }
        if let Node::Parameter(number) = self.node(id) {
            let found = self.lookup(number)?;
            return matches!(self.node(found), Node::TemplateList(..)).then_some(found);
        }
        self.tree.parts(id).into_iter().flatten().find_map(|part| self.find_pack_within(part, depth + 1))
    }

    pub(super) fn pack_length(&self, pack: Id) -> i64 {
        let (mut list, mut length) = (Some(pack), 0);
        while let Some(Node::TemplateList(Some(_), rest)) = list.map(|list| self.node(list)) {
            length += 1;
            list = rest;
        }
        length
    }

    /// Length of an argument list in which expansions count as many as they have.
    pub(super) fn arguments_length(&mut self, arguments: Id) -> i64 {
        let (mut list, mut length) = (Some(arguments), 0);
        while let Some(Node::TemplateList(Some(item), rest)) = list.map(|list| self.node(list)) {
            length += match self.node(item) {
                Node::Expansion(of) => self.find_pack(of).map_or(0, |pack| self.pack_length(pack)),
                _ => 1,
            };
            list = rest;
        }
        length
    }
}
