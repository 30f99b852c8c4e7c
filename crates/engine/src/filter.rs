//! Filters: which events an endpoint wants, as an expression in CEL. A filter is compiled once,
//! when an endpoint is configured, and evaluated for each event within a bounded number of steps.
//!
//! The `cel` crate parses and evaluates; it knows no bound. So `check` admits only names and
//! functions that are known here and rewrites the expression so that whatever costs time asks the
//! `meter` first.

mod check;
mod error;
mod facts;
mod json;
mod meter;
mod node;
mod parse;
mod pattern;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use cel::common::ast::IdedExpr;
use cel::common::types::CelBool;
use cel::common::value::CowVal;
use cel::context::VariableResolver;
use cel::{Context, Value};

pub use check::{MAX_DEPTH, MAX_NESTED_LOOPS, MAX_PATTERNS};
pub use error::{FilterError, InvalidFilter};
pub use facts::{Facts, Subject};
pub use json::{MAX_JSON_BYTES, MAX_JSON_DEPTH};
pub use meter::{MAX_STEPS, MAX_STEPS_PER_EVENT};
pub use parse::{MAX_BRACKETS, MAX_SOURCE_BYTES};

use facts::Part;
use meter::{METER, Meter};
use pattern::Pattern;

/// An expression that says of each event whether an endpoint gets it.
pub struct Filter {
    source: Box<str>,
    expression: IdedExpr,
    /// The regular expressions of its `matches`, which it refers to by their place.
    patterns: Vec<Pattern>,
    /// The fields that the expression names: only these may be named in an error.
    fields: BTreeSet<String>,
    /// The steps it takes without its loops.
    steps: u64,
    /// The stack that evaluating it may take.
    stack_bytes: usize,
}

/// The stack that the evaluator takes for each level of an expression. It is one large function
/// that calls itself; optimised, that was seen to take 52 KiB.
const STACK_BYTES_PER_LEVEL: usize = 96 << 10;

/// What reading JSON takes, and everything else.
const STACK_BYTES_BESIDE: usize = 384 << 10;

impl Filter {
    /// Reads an expression. Takes milliseconds: it is for configuration, not for each event.
    pub fn compile(source: &str) -> Result<Self, InvalidFilter> {
        let parse::Checked { expression, steps, levels, patterns, fields } =
            parse::compile(source)?;
        let stack_bytes = levels * STACK_BYTES_PER_LEVEL + STACK_BYTES_BESIDE;
        Ok(Self { source: source.into(), expression, patterns, fields, steps, stack_bytes })
    }

    /// Whether the event passes. An error is neither yes nor no: the expression does not fit the
    /// event, and that has to be shown to somebody.
    pub fn passes(&self, subject: &Subject<'_>) -> Result<bool, FilterError> {
        // The thread's own stack will do for all but elaborate filters. And the evaluator has
        // assertions of its own; one that fails must not take the event along.
        let evaluate =
            || stacker::maybe_grow(self.stack_bytes, self.stack_bytes, || self.evaluate(subject));
        catch_unwind(AssertUnwindSafe(evaluate)).unwrap_or(Err(FilterError::Broken))
    }

    fn evaluate(&self, subject: &Subject<'_>) -> Result<bool, FilterError> {
        let meter = subject.meter();
        let given = meter.left();
        let scope = Scope { filter: self, subject, meter };
        let mut context = Context::with_env(meter::env());
        context.set_variable_resolver(&scope);
        let result = match scope.meter.charge(self.steps) {
            Ok(()) => Value::resolve_val(&self.expression, &context),
            Err(error) => Err(error),
        };
        subject.used(given - scope.meter.left());
        // `x || true` swallows any error of x, and must not swallow that this one went too far.
        if scope.meter.is_exhausted() {
            return Err(match given {
                MAX_STEPS => FilterError::TooManySteps,
                _ => FilterError::TooManyFilters,
            });
        }
        match result {
            Ok(value) => match value.downcast_ref::<CelBool>() {
                Some(verdict) => Ok(*verdict.inner()),
                None => Err(FilterError::not_a_bool(value.get_type().name())),
            },
            Err(error) => Err(FilterError::of(&error, &self.fields, subject)),
        }
    }
}

impl fmt::Debug for Filter {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Filter").field(&self.source).finish()
    }
}

/// What the names in an expression stand for, while it is evaluated for one event.
struct Scope<'s, 'a> {
    filter: &'s Filter,
    subject: &'s Subject<'a>,
    meter: Meter,
}

impl VariableResolver for Scope<'_, '_> {
    fn resolve<'b>(&'b self, name: &str) -> Option<CowVal<'b, 'b>> {
        if name == METER {
            return Some(CowVal::Borrowed(&self.meter));
        }
        if let Some(place) = Pattern::place(name) {
            return Some(CowVal::Borrowed(self.filter.patterns.get(place)?));
        }
        let part = Part::of_variable(name)?;
        self.subject.part(part).map(CowVal::Borrowed)
    }
}
