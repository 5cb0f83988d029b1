//! The part of CEL that conditions may use, and what a condition reads.
//!
//! Left out is what could take more than linear time or memory (nested loops, `map`, regular
//! expressions), what depends on the order of map keys (lists made by `filter`, unless they are
//! only counted), and what no data element has a type for (bytes, unsigned numbers, messages).

use std::collections::BTreeSet;
use std::sync::Arc;

use cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, LiteralValue, operators,
};

use super::ConditionError;

/// The most additions: each may make a text or a list longer by another whole one.
pub const ADDITIONS_MAX: usize = 16;

/// The functions there are, as they are written.
pub(super) const FUNCTIONS: [&str; 25] = [
    "all",
    "bool",
    "contains",
    "double",
    "duration",
    "endsWith",
    "exists",
    "exists_one",
    "filter",
    "getDate",
    "getDayOfMonth",
    "getDayOfWeek",
    "getDayOfYear",
    "getFullYear",
    "getHours",
    "getMilliseconds",
    "getMinutes",
    "getMonth",
    "getSeconds",
    "has",
    "int",
    "size",
    "startsWith",
    "string",
    "timestamp",
];

/// What a condition reads and how often, computed once.
#[derive(Debug, Default)]
pub(super) struct Facts {
    /// Sorted.
    pub(super) variables: Vec<Arc<str>>,
    /// Sorted.
    pub(super) null_tested: Vec<Arc<str>>,
    pub(super) loops: Vec<LoopFacts>,
}

/// A comprehension: `range.exists(x, body)`.
#[derive(Debug)]
pub(super) struct LoopFacts {
    /// The variables in the range, as indices into `Facts::variables`.
    pub(super) range: Vec<usize>,
    /// The variables in its body, one entry for each use.
    pub(super) body: Vec<usize>,
    /// The number of nodes in the body.
    pub(super) body_size: u64,
}

/// Refuses unsupported expressions; returns what the condition reads.
pub(super) fn admit(expression: &IdedExpr) -> Result<Facts, ConditionError> {
    let mut walk = Walk::default();
    walk.expression(expression)?;
    let found = walk.additions;
    if found > ADDITIONS_MAX {
        return Err(ConditionError::TooComplex { what: "additions", found, limit: ADDITIONS_MAX });
    }
    let variables: Vec<Arc<str>> = walk.variables.into_iter().map(Arc::from).collect();
    let place = |name: &str| variables.iter().position(|variable| &**variable == name);
    let loops = walk
        .loops
        .iter()
        .map(|l| LoopFacts {
            range: l.range.iter().filter_map(|name| place(name)).collect(),
            body: l.body.iter().filter_map(|name| place(name)).collect(),
            body_size: l.body_size,
        })
        .collect();
    let null_tested = walk.null_tested.into_iter().map(Arc::from).collect();
    Ok(Facts { variables, null_tested, loops })
}

/// The macro of a comprehension, and its body.
pub(super) fn macro_of(l: &ComprehensionExpr) -> Option<(&'static str, &IdedExpr)> {
    let Expr::Call(CallExpr { func_name, args, .. }) = &l.loop_step.expr else { return None };
    match (func_name.as_str(), args.as_slice()) {
        (operators::LOGICAL_OR, [_, body]) => Some(("exists", body)),
        (operators::LOGICAL_AND, [_, body]) => Some(("all", body)),
        (operators::CONDITIONAL, [body, _, _]) => {
            let counts = matches!(l.accu_init.expr, Expr::Literal(_));
            Some((if counts { "exists_one" } else { "filter" }, body))
        }
        _ => None,
    }
}

#[derive(Default)]
struct Walk<'e> {
    variables: BTreeSet<&'e str>,
    null_tested: BTreeSet<&'e str>,
    loops: Vec<LoopNames<'e>>,
    additions: usize,
    size: u64,
    /// The variable of the enclosing loop.
    item: Option<&'e str>,
    /// All variables, one entry for each use.
    reads: Vec<&'e str>,
}

struct LoopNames<'e> {
    range: Vec<&'e str>,
    body: Vec<&'e str>,
    body_size: u64,
}

fn unsupported(what: impl Into<String>, instead: &'static str) -> ConditionError {
    ConditionError::Unsupported { what: what.into(), instead }
}

impl<'e> Walk<'e> {
    fn expression(&mut self, expression: &'e IdedExpr) -> Result<(), ConditionError> {
        self.size += 1;
        match &expression.expr {
            Expr::Ident(name) => self.name(name),
            Expr::Literal(literal) => admit_literal(literal),
            Expr::Call(call) => self.call(call),
            Expr::Comprehension(l) => self.repeat(l),
            Expr::List(list) => list.elements.iter().try_for_each(|part| self.expression(part)),
            Expr::Map(map) => map.entries.iter().try_for_each(|entry| match &entry.expr {
                EntryExpr::MapEntry(entry) => {
                    self.expression(&entry.key)?;
                    self.expression(&entry.value)
                }
                EntryExpr::StructField(field) => self.expression(&field.value),
            }),
            Expr::Select(select) => self.expression(&select.operand),
            Expr::Struct(message) => Err(unsupported(
                format!("the message `{}`", message.type_name),
                "compare with plain values",
            )),
            Expr::Unspecified => Err(unsupported("an empty expression", "write a condition")),
        }
    }

    fn name(&mut self, name: &'e str) -> Result<(), ConditionError> {
        if let Some(plain) = name.strip_prefix('.') {
            return Err(unsupported(format!("`.{plain}`"), "write the name without the dot"));
        }
        if self.item != Some(name) {
            self.variables.insert(name);
            self.reads.push(name);
        }
        Ok(())
    }

    fn call(&mut self, call: &'e CallExpr) -> Result<(), ConditionError> {
        admit_call(call)?;
        if call.func_name == operators::ADD {
            self.additions += 1;
        }
        if let Some(name) = null_test(call)
            && self.item != Some(name)
        {
            self.null_tested.insert(name);
        }
        let counts = call.func_name == "size";
        for part in call.target.as_deref().into_iter().chain(&call.args) {
            if counts && let Expr::Comprehension(l) = &part.expr {
                self.repeat_counted(l)?;
            } else {
                self.expression(part)?;
            }
        }
        Ok(())
    }

    /// A loop that yields true or false.
    fn repeat(&mut self, l: &'e ComprehensionExpr) -> Result<(), ConditionError> {
        match macro_of(l) {
            Some(("filter", _)) => Err(unsupported(
                "`filter` outside of `size(…)`",
                "use `exists` or `all`, or count with `size(items.filter(i, …))`",
            )),
            Some((_, body)) => self.repeat_body(l, body),
            None => Err(unsupported("`map`", "use `exists` or `all` with the condition itself")),
        }
    }

    /// A loop that may also yield a list, because only its length is used.
    fn repeat_counted(&mut self, l: &'e ComprehensionExpr) -> Result<(), ConditionError> {
        match macro_of(l) {
            Some(("filter", body)) => self.repeat_body(l, body),
            Some(_) | None => self.repeat(l),
        }
    }

    fn repeat_body(
        &mut self,
        l: &'e ComprehensionExpr,
        body: &'e IdedExpr,
    ) -> Result<(), ConditionError> {
        let outside = (self.reads.len(), self.loops.len());
        self.expression(&l.iter_range)?;
        let (inside, size) = (self.reads.len(), self.size);
        if self.item.replace(&l.iter_var).is_some() {
            return Err(nested());
        }
        self.expression(body)?;
        self.item = None;
        if self.loops.len() > outside.1 {
            return Err(nested());
        }
        self.loops.push(LoopNames {
            range: self.reads[outside.0..inside].to_vec(),
            body: self.reads[inside..].to_vec(),
            body_size: self.size - size,
        });
        Ok(())
    }
}

fn nested() -> ConditionError {
    unsupported("a loop inside of a loop", "compute the inner one in a step before")
}

fn admit_literal(literal: &LiteralValue) -> Result<(), ConditionError> {
    match literal {
        LiteralValue::Bytes(_) => Err(unsupported("bytes (b'…')", "compare text with text")),
        LiteralValue::UInt(number) => {
            Err(unsupported(format!("the unsigned number {}u", number.inner()), "leave out the u"))
        }
        LiteralValue::Boolean(_)
        | LiteralValue::Double(_)
        | LiteralValue::Int(_)
        | LiteralValue::Null
        | LiteralValue::String(_) => Ok(()),
    }
}

/// Refuses unknown functions and calls with a wrong number of arguments.
fn admit_call(call: &CallExpr) -> Result<(), ConditionError> {
    let (name, found) = (call.func_name.as_str(), call.args.len());
    let arguments = |fits: bool, expected: &'static str| {
        let wrong = ConditionError::Arguments { name: name.to_owned(), found, expected };
        if fits { Ok(()) } else { Err(wrong) }
    };
    match (name, call.target.is_some()) {
        ("size", true) => arguments(found == 0, "write x.size()"),
        ("size" | "int" | "double" | "string" | "bool" | "timestamp" | "duration", false) => {
            arguments(found == 1, "it takes one")
        }
        ("contains" | "startsWith" | "endsWith", true) => arguments(found == 1, "it takes one"),
        (
            "getDate" | "getDayOfMonth" | "getDayOfWeek" | "getDayOfYear" | "getFullYear"
            | "getHours" | "getMilliseconds" | "getMinutes" | "getMonth" | "getSeconds",
            true,
        ) => arguments(found <= 1, "it takes none, or a time zone"),
        ("all" | "exists" | "exists_one" | "filter", true) => Err(ConditionError::Arguments {
            name: name.to_owned(),
            found,
            expected: "write list.exists(item, condition on the item)",
        }),
        ("has", false) => arguments(false, "write has(element.field)"),
        (operator, false) if is_operator(operator) => Ok(()),
        (unknown, _) => Err(ConditionError::UnknownFunction { name: unknown.to_owned() }),
    }
}

fn is_operator(name: &str) -> bool {
    // Names that cannot be written as functions: only the parser creates them.
    name.starts_with(['_', '!', '-', '@']) && name.contains(['_', '@']) && !is_word(name)
}

fn is_word(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// The element in `x == null` or `null != x`.
fn null_test(call: &CallExpr) -> Option<&str> {
    let is_test = matches!(call.func_name.as_str(), operators::EQUALS | operators::NOT_EQUALS);
    match call.args.as_slice() {
        [
            IdedExpr { expr: Expr::Ident(name), .. },
            IdedExpr { expr: Expr::Literal(LiteralValue::Null), .. },
        ]
        | [
            IdedExpr { expr: Expr::Literal(LiteralValue::Null), .. },
            IdedExpr { expr: Expr::Ident(name), .. },
        ] if is_test => Some(name),
        _ => None,
    }
}
