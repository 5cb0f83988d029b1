//! Conditions over data elements, written in CEL.
//!
//! A condition names elements by their names and yields true or false; anything else is an error,
//! never a guess.

use std::fmt;
use std::sync::Arc;

use cel::{Context, Program};

use crate::value::Value;

#[derive(Clone)]
pub struct Condition {
    source: Arc<str>,
    program: Arc<Program>,
    variables: Vec<Arc<str>>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConditionError {
    #[error("{reason}")]
    Syntax { reason: String },
    #[error("{reason}")]
    Evaluation { reason: String },
    #[error("yields {found}, not true or false")]
    NotBool { found: String },
}

impl Condition {
    pub fn parse(source: &str) -> Result<Self, ConditionError> {
        let program = Program::compile(source)
            .map_err(|errors| ConditionError::Syntax { reason: errors.to_string() })?;
        let mut variables: Vec<Arc<str>> =
            program.references().variables().into_iter().map(Arc::from).collect();
        variables.sort();
        Ok(Self { source: Arc::from(source), program: Arc::new(program), variables })
    }

    pub fn source(&self) -> &str {
        &self.source
    }

    /// The names of the data elements it reads, sorted.
    pub fn variables(&self) -> &[Arc<str>] {
        &self.variables
    }

    /// Evaluates it; an element without a value is `null`.
    pub fn holds<'a>(
        &self,
        value_of: impl Fn(&str) -> Option<&'a Value>,
    ) -> Result<bool, ConditionError> {
        let mut context = Context::default();
        for name in &self.variables {
            let value = value_of(name).map_or(cel::Value::Null, to_cel);
            context.add_variable_from_value(name.to_string(), value);
        }
        match self.program.execute(&context) {
            Ok(cel::Value::Bool(truth)) => Ok(truth),
            Ok(other) => Err(ConditionError::NotBool { found: format!("{other:?}") }),
            Err(error) => Err(ConditionError::Evaluation { reason: error.to_string() }),
        }
    }
}

fn to_cel(value: &Value) -> cel::Value {
    match value {
        Value::Bool(truth) => cel::Value::Bool(*truth),
        Value::Int(number) => cel::Value::Int(*number),
        Value::String(text) | Value::Json(text) => cel::Value::from(text.as_str()),
        Value::Decimal(_) | Value::DateTime(_) | Value::File(_) => {
            cel::Value::from(value.to_json().to_string())
        }
    }
}

impl PartialEq for Condition {
    fn eq(&self, other: &Self) -> bool {
        self.source == other.source
    }
}

impl Eq for Condition {}

impl fmt::Debug for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Condition({})", self.source)
    }
}
