//! What is wrong with an expression, and why one could not be evaluated: short sentences that
//! repeat nothing of an event beyond the names of fields that the expression itself spells.

use std::collections::BTreeSet;
use std::fmt;

use cel::ExecutionError;

use super::facts::{Part, Subject};
use super::json::{MAX_JSON_BYTES, MAX_JSON_DEPTH, Unreadable};
use super::meter::{MAX_STEPS, MAX_STEPS_PER_EVENT};

/// The longest piece of an expression that a message repeats, in characters.
const MAX_QUOTED_CHARS: usize = 60;

/// All that can be said when the parser itself gives up.
pub(super) const UNREADABLE: &str = "the filter cannot be read";

/// Why an expression is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct InvalidFilter {
    /// Line and column, from one; none if it concerns the expression as a whole.
    pub position: Option<(usize, usize)>,
    pub message: String,
}

impl fmt::Display for InvalidFilter {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((line, column)) = self.position {
            write!(formatter, "line {line}, column {column}: ")?;
        }
        formatter.write_str(&self.message)
    }
}

impl InvalidFilter {
    pub(super) fn whole(message: impl Into<String>) -> Self {
        Self { position: None, message: message.into() }
    }
}

/// Why a filter has no verdict on an event.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    #[error("the filter comes to {0}, not to true or false")]
    NotABool(Box<str>),
    #[error("there is no field {0}; has() tells whether there is")]
    NoField(Box<str>),
    #[error("there is no field of the name that the filter computes")]
    NoComputedField,
    #[error("{0} has no fields")]
    NoFields(Box<str>),
    #[error("a list has no element at the index that the filter asks for")]
    NoElement,
    #[error("{operation} does not work on {operands}")]
    Mismatch { operation: Box<str>, operands: Box<str> },
    #[error("{0}() cannot convert what it is given")]
    Conversion(Box<str>),
    #[error("the filter divides by zero")]
    DivisionByZero,
    #[error("a number grows too large")]
    Overflow,
    #[error("the filter takes more than {MAX_STEPS} steps on this event")]
    TooManySteps,
    #[error("the filters before this one took {MAX_STEPS_PER_EVENT} steps on this event")]
    TooManyFilters,
    #[error("filters read no JSON larger than {MAX_JSON_BYTES} bytes, and this event's is")]
    TooLarge,
    #[error("filters read no JSON nested deeper than {MAX_JSON_DEPTH} levels, and this event's is")]
    TooDeep,
    #[error("the filter could not be evaluated")]
    Broken,
}

impl FilterError {
    pub(super) fn not_a_bool(type_name: &str) -> Self {
        Self::NotABool(article(type_name))
    }

    /// The evaluator's errors hold values, and their texts print them: nothing of that goes on.
    pub(super) fn of(
        error: &ExecutionError,
        spelled: &BTreeSet<String>,
        subject: &Subject<'_>,
    ) -> Self {
        match error {
            ExecutionError::NoSuchKey(name) if spelled.contains(name.as_str()) => {
                Self::NoField(shorten(name).into())
            }
            ExecutionError::NoSuchKey(_) => Self::NoComputedField,
            // Names were checked when the filter was compiled; what has none here is unreadable.
            ExecutionError::UndeclaredReference(variable) => {
                match Part::of_variable(variable).and_then(|part| subject.unreadable(part)) {
                    Some(Unreadable::TooLarge) => Self::TooLarge,
                    Some(Unreadable::TooDeep) => Self::TooDeep,
                    None => Self::Broken,
                }
            }
            ExecutionError::NoSuchOverload(overload) => {
                mismatch(overload.function(), overload.argument_types())
            }
            ExecutionError::UnsupportedBinaryOperator(operation, left, right) => {
                let types = [left, right].map(|value| value.type_of().to_string());
                mismatch(operation, &types)
            }
            ExecutionError::UnexpectedType { got, want } if want == "bool" => {
                Self::Mismatch { operation: "a condition".into(), operands: article(got) }
            }
            ExecutionError::UnexpectedType { got, .. } => {
                Self::Mismatch { operation: "a loop".into(), operands: article(got) }
            }
            ExecutionError::UnsupportedKeyType(value) => Self::Mismatch {
                operation: "a key of a map".into(),
                operands: article(&value.type_of().to_string()),
            },
            ExecutionError::IndexOutOfBounds(_) => Self::NoElement,
            ExecutionError::FunctionError { function, .. } => {
                Self::Conversion(shorten(function).into())
            }
            ExecutionError::DivisionByZero(_) | ExecutionError::RemainderByZero(_) => {
                Self::DivisionByZero
            }
            ExecutionError::Overflow(..) => Self::Overflow,
            ExecutionError::DuplicateKey(_) => {
                Self::Mismatch { operation: "a map".into(), operands: "the same key twice".into() }
            }
            _ => Self::Broken,
        }
    }
}

fn mismatch(function: &str, types: &[String]) -> FilterError {
    let operation = match function {
        "_._" => {
            return FilterError::NoFields(types.first().map_or("a value".into(), |it| article(it)));
        }
        "_[_]" => "an index",
        "add" => "+",
        "sub" => "-",
        "mul" => "*",
        "div" => "/",
        "rem" => "%",
        "@in" => "in",
        // Operators are named with a place for each operand.
        other => other.trim_matches('_'),
    };
    let operands: Vec<_> = types.iter().map(|name| article(name)).collect();
    FilterError::Mismatch { operation: operation.into(), operands: operands.join(" and ").into() }
}

fn article(type_name: &str) -> Box<str> {
    match type_name {
        "null_type" | "null" => "null".into(),
        "int" => "an int".into(),
        "uint" => "a uint".into(),
        "float" => "a double".into(),
        other => format!("a {other}").into(),
    }
}

/// As much of a text as a message repeats.
pub(super) fn shorten(text: &str) -> String {
    match text.char_indices().nth(MAX_QUOTED_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
