//! Reading an expression: its bounds as a text, the parser, and what the parser complains of.

use std::collections::BTreeSet;
use std::panic::catch_unwind;

use cel::common::ast::IdedExpr;
use cel::parser::{ParseErrors, Parser};

use super::check::Checker;
use super::error::{InvalidFilter, UNREADABLE, shorten};
use super::node;
use super::pattern::Pattern;

/// The longest expression, in bytes.
pub const MAX_SOURCE_BYTES: usize = 4096;

/// The most opening brackets and question marks in one, those in texts included. Only these make
/// the parser call itself, so this bounds its stack.
pub const MAX_BRACKETS: usize = 256;

/// The stack for reading an expression. The generated parser wants some tens of kilobytes for each
/// bracket, and what it made is as deep as the expression is long; what is not used costs nothing.
const STACK_BYTES: usize = 64 << 20;

/// An expression that may be evaluated.
pub(super) struct Checked {
    pub(super) expression: IdedExpr,
    /// The steps it takes without its loops.
    pub(super) steps: u64,
    /// How deep it is nested, charges included.
    pub(super) levels: usize,
    pub(super) patterns: Vec<Pattern>,
    /// The fields that it names.
    pub(super) fields: BTreeSet<String>,
}

pub(super) fn compile(source: &str) -> Result<Checked, InvalidFilter> {
    if source.trim().is_empty() {
        return Err(InvalidFilter::whole("the filter is empty; leave it out to get every event"));
    }
    if source.len() > MAX_SOURCE_BYTES {
        let message = format!("the filter is longer than {MAX_SOURCE_BYTES} bytes");
        return Err(InvalidFilter::whole(message));
    }
    let brackets = source.bytes().filter(|byte| matches!(byte, b'(' | b'[' | b'{' | b'?')).count();
    if brackets > MAX_BRACKETS {
        let message =
            format!("the filter has more than {MAX_BRACKETS} brackets and question marks");
        return Err(InvalidFilter::whole(message));
    }
    catch_unwind(|| stacker::grow(STACK_BYTES, || read(source)))
        .unwrap_or_else(|_| Err(InvalidFilter::whole(UNREADABLE)))
}

fn read(source: &str) -> Result<Checked, InvalidFilter> {
    let (expression, info) =
        Parser::new().parse_with_source_info(source).map_err(|errors| unreadable(&errors))?;
    let mut checker = Checker::new(info);
    let expression = checker.check(expression, 0)?;
    let Checker { patterns, fields, .. } = checker;
    let (steps, levels) = (node::steps(&expression), node::levels(&expression));
    Ok(Checked { expression, steps, levels, patterns, fields })
}

/// The first of the parser's complaints that has a place, in one line. Where the parser gave up there
/// is one before it that has none and says nothing.
fn unreadable(errors: &ParseErrors) -> InvalidFilter {
    if errors.errors.first().is_some_and(|error| error.msg.contains("Recursion limit")) {
        return InvalidFilter::whole("the filter is nested too deeply");
    }
    let place = |number: isize| usize::try_from(number).ok().filter(|number| *number > 0);
    let placed = errors.errors.iter().find_map(|error| {
        let position = (place(error.pos.0)?, place(error.pos.1)?);
        Some((position, error.msg.trim_start_matches("Syntax error: ")))
    });
    let Some((position, message)) = placed else { return InvalidFilter::whole(UNREADABLE) };
    // What follows is a list of all that could stand there.
    let message = message.split(" expecting {").next().unwrap_or(message);
    InvalidFilter {
        position: Some(position),
        message: format!("the filter cannot be read: {}", shorten(message)),
    }
}
