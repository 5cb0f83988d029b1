//! Conditions over data elements, written in CEL.
//!
//! A condition refers to elements by name and yields true or false; anything else is an error,
//! never a guess. It knows no clock, no randomness and no order of map keys, so the same values
//! always give the same answer, in time linear in their size.

mod limits;
mod profile;
mod scope;
mod typing;

use std::fmt;
use std::sync::{Arc, LazyLock};

use cel::parser::{Expression, Parser};
use cel::{Context, Env, ExecutionError};

use crate::value::{Value, ValueType};
pub use limits::{BRACKETS_MAX, OPERATORS_MAX, SOURCE_BYTES_MAX};
pub use profile::ADDITIONS_MAX;
use scope::Scope;
pub use scope::WORK_MAX;
pub(crate) use scope::{double, is_in_range};

/// A parsed condition within the limits.
#[derive(Clone)]
pub struct Condition {
    inner: Arc<Inner>,
}

struct Inner {
    source: Box<str>,
    expression: Expression,
    facts: profile::Facts,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConditionError {
    #[error(
        "{bytes} bytes are more than the {SOURCE_BYTES_MAX} a condition may have; compute part of it in a step before"
    )]
    TooLong { bytes: usize },
    #[error(
        "{found} {what} are more than the {limit} a condition may have; compute part of it in a step before"
    )]
    TooComplex { what: &'static str, found: usize, limit: usize },
    #[error("syntax error at line {line}, column {column}: {reason}")]
    Syntax { line: usize, column: usize, reason: String },
    /// Valid CEL that is not part of conditions.
    #[error("{what} cannot be used in a condition; {instead}")]
    Unsupported { what: String, instead: &'static str },
    #[error("there is no function `{name}`; there are {}", profile::FUNCTIONS.join(", "))]
    UnknownFunction { name: String },
    #[error("`{name}` is called with {found} arguments; {expected}")]
    Arguments { name: String, found: usize, expected: &'static str },
    #[error("there is no data element `{name}`")]
    UnknownName { name: Arc<str> },
    #[error("{reason}")]
    Types { reason: String },
    #[error("yields {found}, not true or false")]
    NotBool { found: String },
    #[error("{reason}")]
    Evaluation { reason: String },
    #[error(
        "would take {work} steps over these values, more than the {WORK_MAX} allowed; compute it in a step before"
    )]
    TooMuchWork { work: u64 },
}

/// The functions, built once: building them takes longer than an evaluation.
static FUNCTIONS: LazyLock<Arc<Env>> =
    LazyLock::new(|| Arc::new(Env::default().with_optional_support(false).with_stdlib()));

impl Condition {
    /// Parses a condition and checks all limits that need no data.
    pub fn parse(source: &str) -> Result<Self, ConditionError> {
        limits::admit(source)?;
        let expression = Parser::new()
            // One more than the depth of brackets: the condition itself is the outermost.
            .max_recursion_depth(BRACKETS_MAX as u16 + 1)
            .parse(source)
            .map_err(|errors| syntax_error(&errors))?;
        let facts = profile::admit(&expression)?;
        Ok(Self { inner: Arc::new(Inner { source: Box::from(source), expression, facts }) })
    }

    pub fn source(&self) -> &str {
        &self.inner.source
    }

    /// The names of the data elements that it reads, sorted.
    pub fn variables(&self) -> &[Arc<str>] {
        &self.inner.facts.variables
    }

    /// The read elements that it compares with `null`: it handles a missing value. Sorted.
    pub fn null_tested(&self) -> &[Arc<str>] {
        &self.inner.facts.null_tested
    }

    /// The mistakes of the condition over elements of these types: unknown names, mismatched types,
    /// a result that is not true or false.
    pub fn problems(&self, kind_of: impl Fn(&str) -> Option<ValueType>) -> Vec<ConditionError> {
        let unknown: Vec<ConditionError> = self
            .variables()
            .iter()
            .filter(|name| kind_of(name).is_none())
            .map(|name| ConditionError::UnknownName { name: name.clone() })
            .collect();
        if unknown.is_empty() {
            typing::check(&self.inner.expression, &kind_of).err().into_iter().collect()
        } else {
            unknown
        }
    }

    /// Evaluates it; an element without a value is `null`.
    pub fn holds<'a>(
        &self,
        value_of: impl Fn(&str) -> Option<&'a Value>,
    ) -> Result<bool, ConditionError> {
        let facts = &self.inner.facts;
        let scope = Scope::new(facts, |name| value_of(name))?;
        let mut context = Context::with_env(Arc::clone(&FUNCTIONS));
        context.set_variable_resolver(&scope);
        match evaluate(&self.inner.expression, &context) {
            Ok(cel::Value::Bool(truth)) => Ok(truth),
            Ok(other) => Err(ConditionError::NotBool { found: other.type_of().to_string() }),
            Err(error) => Err(ConditionError::Evaluation { reason: scope.explain(&error) }),
        }
    }

    pub(crate) fn expression(&self) -> &Expression {
        &self.inner.expression
    }
}

/// The value of an expression that reads no data.
pub(crate) fn constant(expression: &Expression) -> Option<cel::Value> {
    evaluate_constant(expression).ok()
}

/// Evaluates an expression that reads no data.
fn evaluate_constant(expression: &Expression) -> Result<cel::Value, ExecutionError> {
    evaluate(expression, &Context::with_env(Arc::clone(&FUNCTIONS)))
}

fn evaluate(expression: &Expression, context: &Context<'_, '_>) -> cel::ResolveResult {
    // Not `resolve_val`: it is inlined here, where an unoptimised build gives it 30 KiB of stack
    // for each operator.
    cel::Value::resolve(expression, context)
}

fn syntax_error(errors: &cel::ParseErrors) -> ConditionError {
    const REASON_CHARS_MAX: usize = 120;
    // The parser recovers and goes on; the first error is the author's mistake.
    let Some(first) = errors.errors.first() else {
        return ConditionError::Syntax { line: 1, column: 1, reason: "it cannot be read".into() };
    };
    let text = first.msg.strip_prefix("Syntax error: ").unwrap_or(&first.msg);
    // The list of alternatives is longer than the condition.
    let text = text.split(" expecting ").next().unwrap_or(text);
    let place = |number: isize| usize::try_from(number).unwrap_or(0).max(1);
    ConditionError::Syntax {
        line: place(first.pos.0),
        column: place(first.pos.1),
        reason: text.chars().take(REASON_CHARS_MAX).collect(),
    }
}

impl PartialEq for Condition {
    fn eq(&self, other: &Self) -> bool {
        self.source() == other.source()
    }
}

impl Eq for Condition {}

impl fmt::Debug for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Condition({})", self.source())
    }
}
