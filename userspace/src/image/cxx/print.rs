//! Trees of mangled names as text, as binutils' tools write them.
//!
//! Template parameters are looked up in the templates around them; a parameter that is reached again through a substitution
//! is looked up where it stood first.
//!
//! Bounds: [`MAX_STEPS`] nodes and [`MAX_LENGTH`] bytes; a short name may stand for an exponentially long one.
#![forbid(unsafe_code)]

use std::collections::HashMap;

use super::node::{Id, Node, Tree};

pub(super) const MAX_STEPS: u32 = 1 << 20;
const MAX_LENGTH: usize = 1 << 20;
/// Nodes inside each other; more are a cycle through a substitution.
pub(super) const MAX_DEPTH: usize = 1024;

/// A part of a declarator that waits for its type, and the parts around it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    pub(super) node: Id,
    pub(super) around: Option<usize>,
    pub(super) is_written: bool,
    pub(super) scope: Scope,
}

/// The templates around: place of the innermost in `templates`.
pub(super) type Scope = Option<usize>;

pub(super) struct Printer<'t, 'a> {
    pub(super) tree: &'t Tree<'a>,
    pub(super) out: String,
    /// The last byte that was written, even when it was taken back.
    pub(super) last: u8,
    pub(super) waiting: Vec<Waiting>,
    /// Innermost of the chain.
    pub(super) chain: Option<usize>,
    pub(super) templates: Vec<(Id, Scope)>,
    pub(super) scope: Scope,
    /// Scope in which a parameter under a reference was met first.
    pub(super) first_scopes: HashMap<Id, Scope>,
    /// Nodes that are being written.
    pub(super) open: Vec<Id>,
    pub(super) times_open: Vec<u8>,
    pub(super) pack_index: i64,
    pub(super) lambdas: u32,
    pub(super) template: Option<Id>,
    pub(super) steps: u32,
    pub(super) failed: bool,
}

/// The text of a tree, about as long as `likely` bytes; `None` when it has none.
pub(super) fn text(tree: &Tree<'_>, root: Id, likely: usize) -> Option<String> {
    let mut printer = Printer {
        tree,
        out: String::with_capacity(likely),
        last: 0,
        waiting: Vec::new(),
        chain: None,
        templates: Vec::new(),
        scope: None,
        first_scopes: HashMap::new(),
        open: Vec::with_capacity(32),
        times_open: vec![0; tree.len()],
        pack_index: 0,
        lambdas: 0,
        template: None,
        steps: 0,
        failed: false,
    };
    printer.write(root);
    (!printer.failed).then_some(printer.out)
}

impl<'a> Printer<'_, 'a> {
    pub(super) fn push(&mut self, text: &str) {
        self.out.push_str(text);
        self.last = text.as_bytes().last().copied().unwrap_or(self.last);
        self.failed |= self.out.len() > MAX_LENGTH;
    }

    pub(super) fn number(&mut self, number: i64) {
        self.push(&number.to_string());
    }

    pub(super) fn node(&self, id: Id) -> Node<'a> {
        self.tree.get(id)
    }

    pub(super) fn write(&mut self, id: Id) {
        self.steps += 1;
        let is_again = self.times_open[id as usize] > 1;
        if self.failed || is_again || self.steps > MAX_STEPS || self.open.len() > MAX_DEPTH {
            self.failed = true;
            return;
        }
        self.times_open[id as usize] += 1;
        self.open.push(id);
        self.write_node(id);
        self.open.pop();
        self.times_open[id as usize] -= 1;
    }

    pub(super) fn write_some(&mut self, id: Option<Id>) {
        if let Some(id) = id {
            self.write(id);
        }
    }

    pub(super) fn write_node(&mut self, id: Id) {
        match self.node(id) {
            Node::Text(text) | Node::Standard(text) | Node::Builtin(text, _) => self.push(text),
            Node::Number(number) => self.number(number),
            Node::Tagged(name, tag) => {
                self.write(name);
                self.push("[abi:");
                self.write(tag);
                self.push("]");
            }
            Node::Qualified(scope, name) => {
                self.write(scope);
                self.push("::");
                self.write(name);
            }
            Node::Local(function, entity) => {
                self.write(function);
                self.push("::");
                let entity = self.behind_default(entity);
                self.write(entity);
            }
            Node::Typed(name, kind) => self.typed(name, kind),
            Node::Template(name, arguments) => {
                // Declarators do not reach into a template.
                let (chain, template) = (self.chain.take(), self.template.replace(id));
                self.write(name);
                self.arguments(arguments);
                (self.chain, self.template) = (chain, template);
            }
            Node::Parameter(number) => self.parameter(number),
            Node::Constructor(of) | Node::DefaultArgument(_, of) => self.write(of),
            Node::Destructor(name) => {
                self.push("~");
                self.write(name);
            }
            Node::Special(text, of) => {
                self.push(text);
                self.write(of);
            }
            Node::ConstructionTable(derived, base) => {
                self.push("construction vtable for ");
                self.write(base);
                self.push("-in-");
                self.write(derived);
            }
            Node::Marked(mark, of, _) => self.marked(id, mark, of),
            Node::Function(result, _) => self.function(id, result),
            Node::Array(_, of) => self.array(id, of),
            Node::MemberPointer(_, of) | Node::Vector(_, of) => {
                let part = self.wait(id);
                self.write(of);
                if !self.waiting[part].is_written {
                    self.part(id);
                }
                self.chain = self.waiting[part].around;
            }
            Node::List(first, rest) | Node::TemplateList(first, rest) => {
                self.write_some(first);
                if let Some(rest) = rest {
                    self.push(", ");
                    let length = self.out.len();
                    self.write(rest);
                    // An empty pack leaves nothing.
                    if self.out.len() == length {
                        self.out.truncate(length - 2);
                    }
                }
            }
            Node::Lambda(..) | Node::Unnamed(_) | Node::Structured(_) | Node::Clone(..) | Node::Temporary(..) => {
                self.without_name(id);
            }
            node => self.expression(node),
        }
    }

    /// What the source has no name for.
    pub(super) fn without_name(&mut self, id: Id) {
        match self.node(id) {
            Node::Lambda(parameters, number) => {
                self.push("{lambda(");
                self.lambdas += 1;
                self.write(parameters);
                self.lambdas -= 1;
                self.push(")#");
                self.number(number + 1);
                self.push("}");
            }
            Node::Unnamed(number) => {
                self.push("{unnamed type#");
                self.number(number + 1);
                self.push("}");
            }
            Node::Structured(names) => {
                self.push("[");
                self.write(names);
                self.push("]");
            }
            Node::Clone(of, suffix) => {
                self.write(of);
                self.push(" [clone ");
                self.push(suffix);
                self.push("]");
            }
            Node::Temporary(name, number) => {
                self.push("reference temporary #");
                self.number(number);
                self.push(" for ");
                self.write(name);
            }
            _ => self.failed = true,
        }
    }

    /// Writes what says in which parameter's default value something stands, and gives the thing.
    pub(super) fn behind_default(&mut self, entity: Id) -> Id {
        let Node::DefaultArgument(number, entity) = self.node(entity) else { return entity };
        self.push("{default arg#");
        self.number(number + 1);
        self.push("}::");
        entity
    }

    pub(super) fn arguments(&mut self, arguments: Id) {
        if self.last == b'<' {
            self.push(" ");
        }
        self.push("<");
        self.write(arguments);
        if self.last == b'>' {
            self.push(" ");
        }
        self.push(">");
    }

    pub(super) fn enter(&mut self, template: Id) {
        self.templates.push((template, self.scope));
        self.scope = Some(self.templates.len() - 1);
    }

    /// The argument that a parameter stands for: of a pack, the one at hand.
    pub(super) fn argument(&mut self, number: i64) -> Option<Id> {
        let found = self.lookup(number)?;
        match self.node(found) {
            Node::TemplateList(..) => self.item(found, self.pack_index),
            _ => Some(found),
        }
    }

    pub(super) fn lookup(&mut self, number: i64) -> Option<Id> {
        let Some(scope) = self.scope else {
            self.failed = true;
            return None;
        };
        match self.node(self.templates[scope].0) {
            Node::Template(_, arguments) => self.item(arguments, number),
            _ => None,
        }
    }

    /// An item of a list; below 0 the whole list.
    pub(super) fn item(&self, list: Id, number: i64) -> Option<Id> {
        if number < 0 {
            return Some(list);
        }
        let (mut list, mut left) = (list, number);
        loop {
            let Node::TemplateList(first, rest) = self.node(list) else { return None };
            if left == 0 {
                return first;
            }
            left -= 1;
            list = rest?;
        }
    }

    pub(super) fn parameter(&mut self, number: i64) {
        if self.lambdas > 0 {
            // Parameters of a generic lambda.
            self.push("auto:");
            self.number(number + 1);
            return;
        }
        let Some(argument) = self.argument(number) else {
            self.failed = true;
            return;
        };
        // The argument was written outside of the template.
        let scope = self.scope;
        self.scope = scope.and_then(|scope| self.templates[scope].1);
        self.write(argument);
        self.scope = scope;
    }
}
