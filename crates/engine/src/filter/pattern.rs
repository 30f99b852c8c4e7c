//! Regular expressions in filters. Each is compiled with its filter, to a table that takes one
//! look-up for a byte of the text whatever the pattern; one whose table would be too large is
//! refused.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use cel::common::types::Type;
use cel::common::value::{StaticVal, Val};
use regex_automata::dfa::{Automaton, StartKind, dense};
use regex_automata::nfa::thompson;
use regex_automata::util::syntax;
use regex_automata::{Input, MatchKind};

/// The largest table, in bytes, and what may be used to make it.
const MAX_TABLE_BYTES: usize = 512 << 10;
const MAX_WORKING_BYTES: usize = 2 << 20;

/// How deep groups may be nested.
const MAX_GROUPS: u32 = 32;

pub(super) static PATTERN_TYPE: Type = Type::new_unspecified_type("pattern");

/// How the variables begin that patterns are bound to. No expression can spell that.
const PREFIX: &str = "@pattern";

#[derive(Clone)]
pub(super) struct Pattern(Arc<dense::DFA<Vec<u32>>>);

impl Pattern {
    /// Or a sentence that says what is wrong with it.
    pub(super) fn compile(text: &str) -> Result<Self, &'static str> {
        let table = dense::Builder::new()
            .syntax(syntax::Config::new().nest_limit(MAX_GROUPS))
            .thompson(thompson::Config::new().nfa_size_limit(Some(MAX_WORKING_BYTES)))
            .configure(
                dense::Config::new()
                    .match_kind(MatchKind::All)
                    .start_kind(StartKind::Unanchored)
                    .dfa_size_limit(Some(MAX_TABLE_BYTES))
                    .determinize_size_limit(Some(MAX_WORKING_BYTES)),
            )
            .build(text);
        match table {
            Ok(table) => Ok(Self(Arc::new(table))),
            Err(error) if error.is_size_limit_exceeded() => {
                Err("the pattern is too large; repeat less, or write [a-z] for \\w")
            }
            Err(_) => Err("the pattern is not a regular expression that filters know"),
        }
    }

    /// Whether it matches any part of the text.
    pub(super) fn is_match(&self, text: &str) -> bool {
        let search = self.0.try_search_fwd(&Input::new(text).earliest(true));
        search.is_ok_and(|found| found.is_some())
    }

    pub(super) fn variable(place: usize) -> String {
        format!("{PREFIX}{place}")
    }

    pub(super) fn place(variable: &str) -> Option<usize> {
        variable.strip_prefix(PREFIX)?.parse().ok()
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Pattern").finish_non_exhaustive()
    }
}

impl Val for Pattern {
    fn get_type(&self) -> &Type {
        &PATTERN_TYPE
    }

    fn cel_type() -> &'static Type {
        &PATTERN_TYPE
    }

    fn clone_as_boxed<'v>(&self) -> Box<dyn Val + 'v> {
        Box::new(self.clone())
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }
}

impl StaticVal for Pattern {}
