//! Declarators: types are written around what they are the type of (`int (*name)[3]`), so a declarator's parts wait in a chain
//! until the innermost type is written.
//!
//! ```text
//!  pointer to array of int      write(pointer) ─► chain [pointer] ─► write(array) ─► chain [array, pointer] ─► int
//!                               int ─► array takes what waits: ` (*)` ─► `[3]`
//! ```
#![forbid(unsafe_code)]

use super::node::{Id, Mark, Node};
use super::print::{Printer, Waiting};

/// Parts of one declarator.
const MAX_PARTS: usize = 4;

impl Printer<'_, '_> {
    pub(super) fn wait(&mut self, node: Id) -> usize {
        self.waiting.push(Waiting { node, around: self.chain, is_written: false, scope: self.scope });
        let part = self.waiting.len() - 1;
        self.chain = Some(part);
        part
    }

    /// A function with its name: the name waits for its place between result and arguments.
    pub(super) fn typed(&mut self, name: Id, kind: Id) {
        let chain = self.chain.take();
        let mut parts = Vec::new();
        let mut name = name;
        loop {
            parts.push(self.wait(name));
            match self.node(name) {
                Node::Marked(mark, of, _) if mark.is_of_function() => name = of,
                _ => break,
            }
        }
        // Qualifiers of a member of a local class belong to the function as a whole.
        if let Node::Local(_, entity) = self.node(name) {
            name = match self.node(entity) {
                Node::DefaultArgument(_, entity) => entity,
                _ => entity,
            };
            while let Node::Marked(mark, of, _) = self.node(name)
                && mark.is_of_function()
            {
                let last = parts[parts.len() - 1];
                let local = Waiting { around: Some(last), ..self.waiting[last] };
                self.waiting[last] = Waiting { node: name, is_written: false, scope: self.scope, ..self.waiting[last] };
                self.waiting.push(local);
                parts.push(self.waiting.len() - 1);
                self.chain = parts.last().copied();
                name = of;
            }
        }
        if parts.len() > MAX_PARTS {
            self.failed = true;
            return;
        }
        let scope = self.scope;
        if let Node::Template(..) = self.node(name) {
            self.enter(name);
        }
        self.write(kind);
        self.scope = scope;
        for part in parts.into_iter().rev() {
            if !self.waiting[part].is_written {
                self.push(" ");
                self.part(self.waiting[part].node);
            }
        }
        self.chain = chain;
    }

    pub(super) fn marked(&mut self, id: Id, mark: Mark, of: Id) {
        let (mut shown, mut inner, scope) = (id, of, self.scope);
        if mark.is_qualifier() {
            // Qualifiers of an array reach its elements as well, and are written once.
            let mut part = self.chain;
            while let Some(waiting) = part.map(|part| self.waiting[part]) {
                if !waiting.is_written {
                    match self.node(waiting.node) {
                        Node::Marked(other, _, _) if other == mark => return self.write(of),
                        Node::Marked(other, _, _) if other.is_qualifier() => {}
                        _ => break,
                    }
                }
                part = waiting.around;
            }
        }
        if matches!(mark, Mark::Reference | Mark::Rvalue) {
            let mut referred = of;
            if let Node::Parameter(number) = self.node(of)
                && self.lambdas == 0
            {
                self.scope_of_first(id, of);
                let Some(argument) = self.argument(number) else {
                    self.failed = true;
                    return;
                };
                referred = argument;
            }
            // `& &&` is `&`.
            if let Node::Marked(other @ (Mark::Reference | Mark::Rvalue), behind, _) = self.node(referred) {
                if other == Mark::Reference || other == mark {
                    shown = referred;
                }
                inner = behind;
            }
        }
        let part = self.wait(shown);
        self.write(inner);
        if !self.waiting[part].is_written {
            self.part(shown);
        }
        self.chain = self.waiting[part].around;
        self.scope = scope;
    }

    /// Goes to the scope in which a parameter under a reference was met first, unless that is around already.
    pub(super) fn scope_of_first(&mut self, reference: Id, parameter: Id) {
        let Some(first) = self.first_scopes.get(&parameter).copied() else {
            self.first_scopes.insert(parameter, self.scope);
            return;
        };
        let outer = &self.open[..self.open.len().saturating_sub(1)];
        if !self.open.contains(&parameter) && !outer.contains(&reference) {
            self.scope = first;
        }
    }

    pub(super) fn function(&mut self, id: Id, result: Option<Id>) {
        if let Some(result) = result {
            let part = self.wait(id);
            self.write(result);
            self.chain = self.waiting[part].around;
            if self.waiting[part].is_written {
                return;
            }
            self.push(" ");
        }
        self.function_parts(id, self.chain);
    }

    /// What waits around a function type, and its arguments.
    pub(super) fn function_parts(&mut self, id: Id, parts: Option<usize>) {
        let (mut needs_parentheses, mut needs_blank) = (false, false);
        let mut part = parts;
        while let Some(waiting) = part.map(|part| self.waiting[part]).filter(|waiting| !waiting.is_written) {
            match self.node(waiting.node) {
                Node::Marked(Mark::Pointer | Mark::Reference | Mark::Rvalue, _, _) => needs_parentheses = true,
                Node::Marked(mark, _, _) if !mark.is_of_function() => (needs_parentheses, needs_blank) = (true, true),
                Node::MemberPointer(..) => (needs_parentheses, needs_blank) = (true, true),
                _ => {}
            }
            if needs_parentheses {
                break;
            }
            part = waiting.around;
        }
        if needs_parentheses {
            needs_blank |= !matches!(self.last, b'(' | b'*');
            if needs_blank && self.last != b' ' {
                self.push(" ");
            }
            self.push("(");
        }
        let chain = self.chain.take();
        self.parts(parts, false);
        if needs_parentheses {
            self.push(")");
        }
        self.push("(");
        if let Node::Function(_, arguments) = self.node(id) {
            self.write_some(arguments);
        }
        self.push(")");
        self.parts(parts, true);
        self.chain = chain;
    }

    pub(super) fn array(&mut self, id: Id, of: Id) {
        let chain = self.chain;
        let own = self.wait(id);
        let mut moved = Vec::new();
        let mut part = chain;
        // Qualifiers of the array are its elements'.
        while let Some(at) = part {
            let waiting = self.waiting[at];
            if !matches!(self.node(waiting.node), Node::Marked(mark, _, _) if mark.is_qualifier()) {
                break;
            }
            if !waiting.is_written {
                if moved.len() + 1 >= MAX_PARTS {
                    self.failed = true;
                    return;
                }
                self.waiting.push(Waiting { around: self.chain, ..waiting });
                self.chain = Some(self.waiting.len() - 1);
                moved.push(self.waiting.len() - 1);
                self.waiting[at].is_written = true;
            }
            part = waiting.around;
        }
        self.write(of);
        self.chain = chain;
        if self.waiting[own].is_written {
            return;
        }
        for part in moved.into_iter().rev() {
            self.part(self.waiting[part].node);
        }
        self.array_parts(id, chain);
    }

    pub(super) fn array_parts(&mut self, id: Id, parts: Option<usize>) {
        let mut needs_blank = true;
        if parts.is_some() {
            let mut part = parts;
            while part.is_some_and(|part| self.waiting[part].is_written) {
                part = part.and_then(|part| self.waiting[part].around);
            }
            let is_array = |part: usize| matches!(self.node(self.waiting[part].node), Node::Array(..));
            let needs_parentheses = part.is_some_and(|part| !is_array(part));
            needs_blank = part.is_none_or(|part| !is_array(part));
            if needs_parentheses {
                self.push(" (");
            }
            self.parts(parts, false);
            if needs_parentheses {
                self.push(")");
            }
        }
        if needs_blank {
            self.push(" ");
        }
        self.push("[");
        if let Node::Array(dimension, _) = self.node(id) {
            self.write_some(dimension);
        }
        self.push("]");
    }

    /// Writes a chain of parts from the inside out: those that stand before a function's arguments, or behind them.
    pub(super) fn parts(&mut self, parts: Option<usize>, is_behind: bool) {
        let mut part = parts;
        while let Some(at) = part {
            if self.failed {
                return;
            }
            let waiting = self.waiting[at];
            part = waiting.around;
            let node = self.node(waiting.node);
            let is_of_function = matches!(node, Node::Marked(mark, _, _) if mark.is_of_function());
            if waiting.is_written || (is_of_function && !is_behind) {
                continue;
            }
            self.waiting[at].is_written = true;
            let scope = std::mem::replace(&mut self.scope, waiting.scope);
            match node {
                // These write the rest of the chain in their middle.
                Node::Function(..) => self.function_parts(waiting.node, waiting.around),
                Node::Array(..) => self.array_parts(waiting.node, waiting.around),
                Node::Local(function, entity) => {
                    let chain = self.chain.take();
                    self.write(function);
                    self.chain = chain;
                    self.push("::");
                    let mut entity = self.behind_default(entity);
                    while let Node::Marked(mark, of, _) = self.node(entity)
                        && mark.is_of_function()
                    {
                        entity = of;
                    }
                    self.write(entity);
                    self.scope = scope;
                    return;
                }
                _ => {
                    self.part(waiting.node);
                    self.scope = scope;
                    continue;
                }
            }
            self.scope = scope;
            return;
        }
    }

    /// One part of a declarator.
    pub(super) fn part(&mut self, id: Id) {
        let with_extra = |printer: &mut Self, text, extra: Option<Id>| {
            printer.push(text);
            if let Some(extra) = extra {
                printer.push("(");
                printer.write(extra);
                printer.push(")");
            }
        };
        match self.node(id) {
            Node::Marked(mark, _, extra) => match mark {
                Mark::Restrict | Mark::RestrictThis => self.push(" restrict"),
                Mark::Volatile | Mark::VolatileThis => self.push(" volatile"),
                Mark::Const | Mark::ConstThis => self.push(" const"),
                Mark::TransactionSafe => self.push(" transaction_safe"),
                Mark::Noexcept => with_extra(self, " noexcept", extra),
                Mark::Throw => with_extra(self, " throw", extra),
                Mark::Vendor => {
                    self.push(" ");
                    self.write_some(extra);
                }
                Mark::Pointer => self.push("*"),
                Mark::ReferenceThis => self.push(" &"),
                Mark::Reference => self.push("&"),
                Mark::RvalueThis => self.push(" &&"),
                Mark::Rvalue => self.push("&&"),
                Mark::Complex => self.push(" _Complex"),
                Mark::Imaginary => self.push(" _Imaginary"),
            },
            Node::MemberPointer(class, _) => {
                if self.last != b'(' {
                    self.push(" ");
                }
                self.write(class);
                self.push("::*");
            }
            Node::Typed(name, _) => self.write(name),
            Node::Vector(dimension, _) => {
                self.push(" __vector(");
                self.write(dimension);
                self.push(")");
            }
            _ => self.write(id),
        }
    }
}
