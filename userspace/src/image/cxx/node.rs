//! The tree that a mangled name stands for.
#![forbid(unsafe_code)]

/// A node by its place in [`Tree`].
pub(super) type Id = u32;

/// How a literal of a builtin type is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Literal {
    /// With its type before it: `(char)65`.
    Cast,
    /// Bare: `1`.
    Bare,
    /// With this behind it: `1ul`.
    Suffix(&'static str),
    /// `true`, `false`.
    Bool,
    /// `(double)[3ff0000000000000]`.
    Float,
}

/// What a type or a member function carries besides itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    Restrict,
    Volatile,
    Const,
    /// The same of `this`.
    RestrictThis,
    VolatileThis,
    ConstThis,
    ReferenceThis,
    RvalueThis,
    TransactionSafe,
    Noexcept,
    Throw,
    Vendor,
    Pointer,
    Reference,
    Rvalue,
    Complex,
    Imaginary,
}

impl Mark {
    /// Of a function, printed behind its arguments.
    pub(super) fn is_of_function(self) -> bool {
        matches!(
            self,
            Mark::RestrictThis
                | Mark::VolatileThis
                | Mark::ConstThis
                | Mark::ReferenceThis
                | Mark::RvalueThis
                | Mark::TransactionSafe
                | Mark::Noexcept
                | Mark::Throw
        )
    }

    pub(super) fn is_qualifier(self) -> bool {
        matches!(self, Mark::Restrict | Mark::Volatile | Mark::Const)
    }

    /// Of a function type instead of a type.
    pub(super) fn of_this(self) -> Mark {
        match self {
            Mark::Restrict => Mark::RestrictThis,
            Mark::Volatile => Mark::VolatileThis,
            Mark::Const => Mark::ConstThis,
            other => other,
        }
    }
}

/// An operator: its code in mangled names, its text, its operands.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Operator {
    pub(super) code: &'static str,
    pub(super) text: &'static str,
    pub(super) operands: u8,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Node<'a> {
    /// A name of the source, or a fixed text.
    Text(&'a str),
    Number(i64),
    Builtin(&'static str, Literal),
    /// An abbreviation of the mangling, such as `St`.
    Standard(&'static str),
    Tagged(Id, Id),
    Qualified(Id, Id),
    /// Something inside a function.
    Local(Id, Id),
    /// Something inside the default value of a parameter, counted from the last one.
    DefaultArgument(i64, Id),
    /// Name and type of a function.
    Typed(Id, Id),
    Template(Id, Id),
    Parameter(i64),
    Constructor(Id),
    Destructor(Id),
    /// A text before something.
    Special(&'static str, Id),
    /// Derived and base type.
    ConstructionTable(Id, Id),
    Temporary(Id, i64),
    Marked(Mark, Id, Option<Id>),
    /// Result and arguments.
    Function(Option<Id>, Option<Id>),
    Array(Option<Id>, Id),
    MemberPointer(Id, Id),
    Vector(Id, Id),
    List(Option<Id>, Option<Id>),
    TemplateList(Option<Id>, Option<Id>),
    Braced(Option<Id>, Id),
    Operator(&'static Operator),
    VendorOperator(Id),
    Cast(Id),
    Conversion(Id),
    Nullary(Id),
    /// Operator, operand, whether the operator stands behind it.
    Unary(Id, Id, bool),
    Binary(Id, Id, Id),
    Ternary(Id, Id, Id, Option<Id>),
    /// Type, digits, sign.
    Value(Id, &'a str, bool),
    VendorCall(Id, Option<Id>),
    Lambda(Id, i64),
    Unnamed(i64),
    Structured(Id),
    Decltype(Id),
    Expansion(Id),
    FunctionParameter(i64),
    Clone(Id, &'a str),
}

/// Nodes refer to earlier nodes.
#[derive(Debug, Default)]
pub(super) struct Tree<'a> {
    nodes: Vec<Node<'a>>,
}

impl<'a> Tree<'a> {
    pub(super) fn add(&mut self, node: Node<'a>) -> Id {
        self.nodes.push(node);
        self.nodes.len() as Id - 1
    }

    pub(super) fn get(&self, id: Id) -> Node<'a> {
        self.nodes[id as usize]
    }

    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    pub(super) fn set(&mut self, id: Id, node: Node<'a>) {
        self.nodes[id as usize] = node;
    }

    /// The parts in which packs may stand, in the order of the name.
    pub(super) fn parts(&self, id: Id) -> [Option<Id>; 4] {
        match self.get(id) {
            Node::VendorOperator(a)
            | Node::Constructor(a)
            | Node::Destructor(a)
            | Node::Special(_, a)
            | Node::Decltype(a)
            | Node::Structured(a)
            | Node::Clone(a, _)
            | Node::Cast(a)
            | Node::Conversion(a)
            | Node::Nullary(a)
            | Node::Temporary(a, _)
            | Node::Value(a, _, _) => [Some(a), None, None, None],
            Node::Qualified(a, b)
            | Node::Local(a, b)
            | Node::Typed(a, b)
            | Node::Template(a, b)
            | Node::ConstructionTable(a, b)
            | Node::MemberPointer(a, b)
            | Node::Vector(a, b)
            | Node::Unary(a, b, _) => [Some(a), Some(b), None, None],
            Node::Marked(_, a, b) | Node::VendorCall(a, b) => [Some(a), b, None, None],
            Node::Function(a, b) | Node::List(a, b) | Node::TemplateList(a, b) => [a, b, None, None],
            Node::Array(a, b) | Node::Braced(a, b) => [a, Some(b), None, None],
            Node::Binary(a, b, c) => [Some(a), Some(b), Some(c), None],
            Node::Ternary(a, b, c, d) => [Some(a), Some(b), Some(c), d],
            Node::Text(_)
            | Node::Number(_)
            | Node::Builtin(..)
            | Node::Standard(_)
            | Node::Tagged(..)
            | Node::DefaultArgument(..)
            | Node::Parameter(_)
            | Node::Operator(_)
            | Node::Lambda(..)
            | Node::Unnamed(_)
            | Node::Expansion(_)
            | Node::FunctionParameter(_) => [None; 4],
        }
    }
}
