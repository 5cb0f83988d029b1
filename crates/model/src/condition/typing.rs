//! Finds type mismatches before a condition runs.
//!
//! The contents of `json` elements are unknown and match everything; an element without a value is
//! `null` whatever its type. Refused is an expression that always fails, or that has only one
//! possible result because of its types, such as an int compared with text.

use std::fmt;

use cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, LiteralValue, SelectExpr, operators,
};

use super::profile::macro_of;
use super::{ConditionError, evaluate_constant};
use crate::value::ValueType;

/// Finds the first type error of a condition.
pub(super) fn check(
    expression: &IdedExpr,
    kind_of: &dyn Fn(&str) -> Option<ValueType>,
) -> Result<(), ConditionError> {
    let types = Types { kind_of, item: None };
    let found = types.of(expression)?;
    if found.may_be_bool() {
        Ok(())
    } else {
        Err(ConditionError::NotBool { found: found.to_string() })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Type {
    Null,
    Bool,
    Int,
    Decimal,
    String,
    DateTime,
    Duration,
    List(Box<Type>),
    Map,
    File,
    /// A value inside JSON.
    Any,
}

struct Types<'t> {
    kind_of: &'t dyn Fn(&str) -> Option<ValueType>,
    /// The variable of the enclosing loop, and its type.
    item: Option<(&'t str, Type)>,
}

fn mismatch(reason: String) -> ConditionError {
    ConditionError::Types { reason }
}

impl Types<'_> {
    fn of(&self, expression: &IdedExpr) -> Result<Type, ConditionError> {
        match &expression.expr {
            Expr::Ident(name) => self.of_name(name),
            Expr::Literal(literal) => Ok(of_literal(literal)),
            Expr::Call(call) => self.of_call(call),
            Expr::Comprehension(l) => self.of_loop(l),
            Expr::List(list) => Ok(of_list(self.of_all(&list.elements)?)),
            Expr::Map(map) => {
                for entry in &map.entries {
                    if let EntryExpr::MapEntry(entry) = &entry.expr {
                        self.of(&entry.key)?;
                        self.of(&entry.value)?;
                    }
                }
                Ok(Type::Map)
            }
            Expr::Select(select) => of_field(&self.of(&select.operand)?, select),
            Expr::Struct(_) | Expr::Unspecified => Ok(Type::Any),
        }
    }

    fn of_name(&self, name: &str) -> Result<Type, ConditionError> {
        if let Some((item, kind)) = &self.item
            && *item == name
        {
            return Ok(kind.clone());
        }
        match (self.kind_of)(name) {
            Some(kind) => Ok(Type::from(kind)),
            None => Err(ConditionError::UnknownName { name: name.into() }),
        }
    }

    fn of_loop(&self, l: &ComprehensionExpr) -> Result<Type, ConditionError> {
        let range = self.of(&l.iter_range)?;
        let item =
            range.item().ok_or_else(|| mismatch(format!("{range} has no items to go through")))?;
        let Some((name, body)) = macro_of(l) else { return Ok(Type::Any) };
        let inner = Types { kind_of: self.kind_of, item: Some((&l.iter_var, item.clone())) };
        require_bool(&inner.of(body)?, &format!("the condition inside of `{name}`"))?;
        Ok(if name == "filter" { Type::List(Box::new(item)) } else { Type::Bool })
    }

    // Small on purpose: a chain of operators recurses here, and the frame of the type rules would
    // take ten times the stack.
    fn of_call(&self, call: &CallExpr) -> Result<Type, ConditionError> {
        let arguments = self.of_all(&call.args)?;
        match &call.target {
            Some(target) => of_method(call, &self.of(target)?, &arguments),
            None => of_operator(call, &arguments),
        }
    }

    fn of_all(&self, expressions: &[IdedExpr]) -> Result<Vec<Type>, ConditionError> {
        let mut types = Vec::with_capacity(expressions.len());
        for expression in expressions {
            types.push(self.of(expression)?);
        }
        Ok(types)
    }
}

fn of_operator(call: &CallExpr, arguments: &[Type]) -> Result<Type, ConditionError> {
    match (call.func_name.as_str(), arguments) {
        (operators::LOGICAL_AND | operators::LOGICAL_OR, _) | (operators::LOGICAL_NOT, [_]) => {
            let name = call.func_name.trim_matches('_');
            for argument in arguments {
                require_bool(argument, &format!("a side of `{name}`"))?;
            }
            Ok(Type::Bool)
        }
        (operators::CONDITIONAL, [condition, yes, no]) => {
            require_bool(condition, "what stands before `?`")?;
            Ok(if yes == no { yes.clone() } else { Type::Any })
        }
        (operators::EQUALS | operators::NOT_EQUALS, [left, right]) => {
            require(left.equals(right), left, right, "is compared with")
        }
        (
            operators::LESS
            | operators::LESS_EQUALS
            | operators::GREATER
            | operators::GREATER_EQUALS,
            [left, right],
        ) => require(left.orders_with(right), left, right, "is compared with"),
        (operators::IN, [item, range]) => of_in(item, range),
        (operators::INDEX, [range, place]) => of_index(range, place),
        (operators::NEGATE, [number @ (Type::Int | Type::Decimal | Type::Any)]) => {
            Ok(number.clone())
        }
        (operators::NEGATE, [other]) => Err(mismatch(format!("{other} cannot be negated"))),
        (operator, [left, right]) if operator.starts_with('_') => {
            of_arithmetic(operator, left, right)
        }
        (name, _) => of_function(call, name, arguments),
    }
}

fn of_literal(literal: &LiteralValue) -> Type {
    match literal {
        LiteralValue::Boolean(_) => Type::Bool,
        LiteralValue::Double(_) => Type::Decimal,
        LiteralValue::Int(_) => Type::Int,
        LiteralValue::Null => Type::Null,
        LiteralValue::String(_) => Type::String,
        LiteralValue::Bytes(_) | LiteralValue::UInt(_) => Type::Any,
    }
}

fn of_list(types: Vec<Type>) -> Type {
    let same = types.windows(2).all(|pair| pair[0] == pair[1]);
    let item = types.into_iter().next().filter(|_| same).unwrap_or(Type::Any);
    Type::List(Box::new(item))
}

fn of_field(owner: &Type, select: &SelectExpr) -> Result<Type, ConditionError> {
    let field = match (owner, select.field.as_str()) {
        (Type::Any | Type::Map, _) => Type::Any,
        (Type::File, "name" | "media_type") => Type::String,
        (Type::File, "size") => Type::Int,
        (Type::File, other) => {
            return Err(mismatch(format!(
                "a file has no field `{other}`; it has `name`, `size` and `media_type`"
            )));
        }
        (other, field) => return Err(mismatch(format!("{other} has no field `{field}`"))),
    };
    Ok(if select.test { Type::Bool } else { field })
}

fn of_in(item: &Type, range: &Type) -> Result<Type, ConditionError> {
    let Some(member) = range.item() else {
        return Err(mismatch(format!(
            "`in` needs a list on its right side, as in x in [1, 2]; this is {range}"
        )));
    };
    require(item.equals(&member), item, &member, "is looked for among")
}

fn of_index(range: &Type, place: &Type) -> Result<Type, ConditionError> {
    match (range, place) {
        (Type::List(item), Type::Int | Type::Any) => Ok((**item).clone()),
        (Type::Any | Type::Map | Type::File, _) => Ok(Type::Any),
        (other, place) => Err(mismatch(format!("{other} has no item at {place}"))),
    }
}

fn of_arithmetic(operator: &str, left: &Type, right: &Type) -> Result<Type, ConditionError> {
    use Type::{Any, DateTime, Decimal, Duration, Int, List, String};
    let name = operator.trim_matches('_');
    match (name, left, right) {
        ("%", Int, Int) | ("+" | "-" | "*" | "/", Int, Int) => Ok(Int),
        ("+" | "-" | "*" | "/", Decimal, Decimal) => Ok(Decimal),
        ("+", String, String) => Ok(String),
        ("+", List(_), List(_)) => Ok(List(Box::new(Any))),
        ("+", DateTime, Duration) | ("+", Duration, DateTime) | ("-", DateTime, Duration) => {
            Ok(DateTime)
        }
        ("-", DateTime, DateTime) | ("+" | "-", Duration, Duration) => Ok(Duration),
        (_, Any, _) | (_, _, Any) => Ok(Any),
        (_, Int, Decimal) | (_, Decimal, Int) => Err(mismatch(format!(
            "`{name}` does not mix decimal and int; write 2.0 for 2, or double(x) for an int x"
        ))),
        (_, left, right) => Err(mismatch(format!("`{name}` does not go with {left} and {right}"))),
    }
}

fn of_function(call: &CallExpr, name: &str, arguments: &[Type]) -> Result<Type, ConditionError> {
    use Type::{Any, Bool, DateTime, Decimal, Duration, File, Int, List, Map, String};
    let result = match (name, arguments) {
        ("size", [String | List(_) | Map | File | Any]) => Int,
        ("int", [Int | Decimal | String | DateTime | Any]) => Int,
        ("double", [Int | Decimal | String | Any]) => Decimal,
        ("string", [Bool | Int | Decimal | String | DateTime | Duration | Any]) => String,
        ("bool", [Bool | String | Any]) => Bool,
        ("timestamp", [String | DateTime | Int | Any]) => DateTime,
        ("duration", [String | Duration | Any]) => Duration,
        (_, [argument]) => {
            return Err(mismatch(format!("`{name}` does not go with {argument}")));
        }
        _ => Any,
    };
    if let [IdedExpr { expr: Expr::Literal(literal), .. }] = call.args.as_slice()
        && evaluate_constant(&constant_call(call)).is_err()
    {
        let LiteralValue::String(text) = literal else { return Ok(result) };
        let text: std::string::String = text.chars().take(80).collect();
        let example = match name {
            "timestamp" => "timestamp(\"2026-03-01T09:30:00Z\")",
            "duration" => "duration(\"36h\")",
            _ => "a number",
        };
        return Err(mismatch(format!("`{name}` cannot read \"{text}\"; write it as {example}")));
    }
    Ok(result)
}

fn constant_call(call: &CallExpr) -> IdedExpr {
    IdedExpr { id: 0, expr: Expr::Call(call.clone()) }
}

fn of_method(call: &CallExpr, target: &Type, arguments: &[Type]) -> Result<Type, ConditionError> {
    use Type::{Any, DateTime, Duration, File, List, Map, String};
    let name = call.func_name.as_str();
    let fits = match (name, target, arguments) {
        ("size", String | List(_) | Map | File | Any, []) => true,
        ("contains" | "startsWith" | "endsWith", String | Any, [String | Any]) => true,
        ("getHours" | "getMinutes" | "getSeconds" | "getMilliseconds", Duration, []) => true,
        (getter, DateTime | Any, [] | [String | Any]) => getter.starts_with("get"),
        _ => false,
    };
    if !fits {
        let with: Vec<_> = arguments.iter().map(|kind| format!(" and {kind}")).collect();
        return Err(mismatch(format!("`{name}` does not go with {target}{}", with.concat())));
    }
    let is_test = matches!(name, "contains" | "startsWith" | "endsWith");
    Ok(if is_test { Type::Bool } else { Type::Int })
}

fn require(fits: bool, left: &Type, right: &Type, how: &str) -> Result<Type, ConditionError> {
    if fits { Ok(Type::Bool) } else { Err(mismatch(format!("{left} {how} {right}"))) }
}

fn require_bool(found: &Type, what: &str) -> Result<(), ConditionError> {
    if found.may_be_bool() {
        Ok(())
    } else {
        Err(mismatch(format!("{what} is {found}, not true or false")))
    }
}

impl Type {
    fn may_be_bool(&self) -> bool {
        matches!(self, Self::Bool | Self::Any)
    }

    /// The items of a loop over it: the items of a list, the keys of a map.
    fn item(&self) -> Option<Self> {
        match self {
            Self::List(item) => Some((**item).clone()),
            Self::Any | Self::Map => Some(Self::Any),
            Self::File => Some(Self::String),
            Self::Null
            | Self::Bool
            | Self::Int
            | Self::Decimal
            | Self::String
            | Self::DateTime
            | Self::Duration => None,
        }
    }

    fn equals(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Any | Self::Null, _) | (_, Self::Any | Self::Null) => true,
            (Self::List(left), Self::List(right)) => left.equals(right),
            (Self::Int | Self::Decimal, Self::Int | Self::Decimal) => true,
            (left, right) => left == right,
        }
    }

    fn orders_with(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Null | Self::List(_) | Self::Map | Self::File, _)
            | (_, Self::Null | Self::List(_) | Self::Map | Self::File) => false,
            (left, right) => left.equals(right),
        }
    }
}

impl From<ValueType> for Type {
    fn from(kind: ValueType) -> Self {
        match kind {
            ValueType::Bool => Self::Bool,
            ValueType::Int => Self::Int,
            ValueType::Decimal => Self::Decimal,
            ValueType::String => Self::String,
            ValueType::DateTime => Self::DateTime,
            ValueType::Json => Self::Any,
            ValueType::File => Self::File,
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Null => "null",
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Decimal => "decimal",
            Self::String => "string",
            Self::DateTime => "date-time",
            Self::Duration => "a length of time",
            Self::List(_) => "a list",
            Self::Map => "a map",
            Self::File => "file",
            Self::Any => "json",
        })
    }
}
