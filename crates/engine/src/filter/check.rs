//! From what was parsed to an expression that is safe to evaluate: only known names and functions,
//! nothing nested too deeply, and every operation whose cost depends on the event preceded by a
//! charge.

use std::collections::BTreeSet;

use cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, ListExpr, LiteralValue, MapExpr,
    SelectExpr, SourceInfo, operators,
};
use cel::common::types::CelInt;

use super::error::{InvalidFilter, UNREADABLE, shorten};
use super::facts::Part;
use super::meter::{KEY, LOOP, MATCHES, MEMBER, METER, OUTSIDE, WHOLE};
use super::node::{SO_FAR, call, charged, ident, is_append, is_headers, is_literal, steps};
use super::pattern::Pattern;

/// How deep operations may be nested.
pub const MAX_DEPTH: usize = 32;

/// How deep loops (`all`, `exists`, `map`, …) may be nested.
pub const MAX_NESTED_LOOPS: usize = 3;

/// The most regular expressions in one expression: each keeps a table.
pub const MAX_PATTERNS: usize = 8;

/// The types that `type(x)` can be compared with.
const TYPES: [&str; 9] =
    ["bool", "int", "uint", "double", "string", "bytes", "list", "map", "null_type"];

pub(super) struct Checker {
    info: SourceInfo,
    /// The variables of the loops around the present place.
    variables: Vec<String>,
    pub(super) patterns: Vec<Pattern>,
    pub(super) fields: BTreeSet<String>,
}

type Check<T = IdedExpr> = Result<T, InvalidFilter>;

impl Checker {
    pub(super) fn new(info: SourceInfo) -> Self {
        let (variables, patterns, fields) = Default::default();
        Self { info, variables, patterns, fields }
    }

    pub(super) fn check(&mut self, node: IdedExpr, depth: usize) -> Check {
        let id = node.id;
        if depth > MAX_DEPTH {
            let message = format!("the filter is nested more than {MAX_DEPTH} levels deep");
            return Err(self.refuse(id, message));
        }
        let depth = depth + 1;
        match node.expr {
            Expr::Literal(literal) => Ok(IdedExpr { id, expr: Expr::Literal(literal) }),
            Expr::Ident(name) => self.name(id, &name),
            Expr::Select(select) => self.select(id, select, depth),
            Expr::Call(call) => self.call(id, call, depth),
            Expr::Comprehension(turns) => self.turns(id, *turns, depth),
            Expr::List(list) => {
                let elements = self.each(list.elements, depth)?;
                let elements = elements.into_iter().map(|element| charged(WHOLE, element));
                Ok(IdedExpr { id, expr: Expr::List(ListExpr::new(elements.collect())) })
            }
            Expr::Map(map) => self.map(id, map, depth),
            Expr::Struct(_) => Err(self.refuse(id, "a filter makes no messages; use a map")),
            Expr::Unspecified => Err(self.refuse(id, UNREADABLE)),
        }
    }

    fn each(&mut self, nodes: Vec<IdedExpr>, depth: usize) -> Check<Vec<IdedExpr>> {
        nodes.into_iter().map(|node| self.check(node, depth)).collect()
    }

    fn name(&self, id: u64, name: &str) -> Check {
        if name == SO_FAR || TYPES.contains(&name) || self.variables.iter().any(|it| it == name) {
            return Ok(ident(id, name));
        }
        if let Some(part) = Part::of_short_name(name) {
            return Ok(ident(id, part.variable()));
        }
        Err(self.refuse(
            id,
            match name {
                "event" => "event is used by its fields, such as event.type".to_owned(),
                _ if Part::of_field(name).is_some() => format!("write event.{name}"),
                _ => format!(
                    "{} is not known; there are event, payload, headers and metadata",
                    shorten(name)
                ),
            },
        ))
    }

    /// `a.b`, or `has(a.b)`.
    fn select(&mut self, id: u64, select: SelectExpr, depth: usize) -> Check {
        let SelectExpr { operand, mut field, test } = select;
        if matches!(&operand.expr, Expr::Ident(name) if name == "event")
            && !self.variables.iter().any(|variable| variable == "event")
        {
            let Some(part) = Part::of_field(&field) else {
                let known = "type, headers, metadata, payload, content_type and source";
                let message = format!("event has no field {}; it has {known}", shorten(&field));
                return Err(self.refuse(id, message));
            };
            let part = ident(id, part.variable());
            if !test {
                return Ok(part);
            }
            let null = IdedExpr { id, expr: Expr::Literal(LiteralValue::Null) };
            return Ok(call(id, operators::NOT_EQUALS, vec![part, null]));
        }
        let operand = self.check(*operand, depth)?;
        if is_headers(&operand) {
            field.make_ascii_lowercase();
        }
        self.fields.insert(field.clone());
        let operand = Box::new(operand);
        Ok(IdedExpr { id, expr: Expr::Select(SelectExpr { operand, field, test }) })
    }

    fn call(&mut self, id: u64, made: CallExpr, depth: usize) -> Check {
        let CallExpr { func_name: name, target, args } = made;
        let is_member = target.is_some();
        let args: Vec<_> = target.into_iter().map(|target| *target).chain(args).collect();
        let Some(operation) = Operation::of(&name, is_member, args.len()) else {
            let name = shorten(&name);
            let message = format!("{name}() is not known, or not with these arguments");
            return Err(self.refuse(id, message));
        };
        let mut args = self.each(args, depth)?;
        match operation {
            Operation::Logic => Ok(call(id, &name, args)),
            Operation::Arithmetic => {
                if !is_append(&name, &args) {
                    args = args.into_iter().map(|arg| charged(WHOLE, arg)).collect();
                }
                Ok(call(id, &name, args))
            }
            Operation::Equality => {
                // Comparing something with a literal costs no more than the literal is long, if
                // the literal is on the right: on the left, a number copies what it differs from.
                if args.first().is_some_and(is_literal) {
                    args.reverse();
                }
                if !args.last().is_some_and(is_literal) {
                    args = args.into_iter().map(|arg| charged(WHOLE, arg)).collect();
                }
                Ok(call(id, &name, args))
            }
            Operation::Index => {
                let [holder, key] = self.pair(id, args)?;
                if matches!(&key.expr, Expr::Literal(LiteralValue::Double(_))) {
                    return Err(self.refuse(key.id, "an index is a whole number"));
                }
                let key = self.key(&holder, key);
                Ok(call(id, &name, vec![holder, charged(KEY, key)]))
            }
            Operation::Membership => {
                let [value, holder] = self.pair(id, args)?;
                let value = self.key(&holder, value);
                Ok(call(id, MEMBER, vec![ident(id, METER), value, holder]))
            }
            Operation::Matching => {
                let [text, pattern] = self.pair(id, args)?;
                let pattern = self.pattern(&pattern)?;
                Ok(call(id, MATCHES, vec![ident(id, METER), text, pattern]))
            }
            Operation::Function => {
                let mut args = args.into_iter().map(|arg| charged(OUTSIDE, arg));
                let target = if is_member { args.next().map(Box::new) } else { None };
                let made = CallExpr { func_name: name, target, args: args.collect() };
                Ok(IdedExpr { id, expr: Expr::Call(made) })
            }
        }
    }

    fn pair(&self, id: u64, args: Vec<IdedExpr>) -> Check<[IdedExpr; 2]> {
        args.try_into().map_err(|_| self.refuse(id, UNREADABLE))
    }

    /// What something is looked up by. Names of headers have no case.
    fn key(&mut self, holder: &IdedExpr, key: IdedExpr) -> IdedExpr {
        let Expr::Literal(LiteralValue::String(text)) = &key.expr else { return key };
        let mut name = text.inner().to_owned();
        if is_headers(holder) {
            name.make_ascii_lowercase();
        }
        self.fields.insert(name.clone());
        let literal = LiteralValue::String(name.into());
        IdedExpr { id: key.id, expr: Expr::Literal(literal) }
    }

    /// A regular expression is compiled here, so it has to stand here.
    fn pattern(&mut self, node: &IdedExpr) -> Check {
        let Expr::Literal(LiteralValue::String(text)) = &node.expr else {
            return Err(self.refuse(node.id, "matches() takes a pattern in quotation marks"));
        };
        if self.patterns.len() == MAX_PATTERNS {
            let message = format!("there are more than {MAX_PATTERNS} patterns");
            return Err(self.refuse(node.id, message));
        }
        let pattern =
            Pattern::compile(text.inner()).map_err(|message| self.refuse(node.id, message))?;
        let variable = Pattern::variable(self.patterns.len());
        self.patterns.push(pattern);
        Ok(ident(node.id, &variable))
    }

    fn map(&mut self, id: u64, map: MapExpr, depth: usize) -> Check {
        let mut entries = map.entries;
        for entry in &mut entries {
            let EntryExpr::MapEntry(entry) = &mut entry.expr else {
                return Err(self.refuse(id, UNREADABLE));
            };
            let key = self.check(std::mem::take(&mut entry.key), depth)?;
            let value = self.check(std::mem::take(&mut entry.value), depth)?;
            (entry.key, entry.value) = (charged(OUTSIDE, key), charged(WHOLE, value));
        }
        Ok(IdedExpr { id, expr: Expr::Map(MapExpr { entries }) })
    }

    /// A loop. Its shape stays what the macro made it, since the evaluator knows some shapes.
    fn turns(&mut self, id: u64, turns: ComprehensionExpr, depth: usize) -> Check {
        if self.variables.len() == MAX_NESTED_LOOPS {
            let message = format!("loops are nested more than {MAX_NESTED_LOOPS} deep");
            return Err(self.refuse(id, message));
        }
        let range = self.check(turns.iter_range, depth)?;
        self.variables.push(turns.iter_var.clone());
        let loop_cond = self.check(turns.loop_cond, depth)?;
        let loop_step = self.check(turns.loop_step, depth)?;
        self.variables.pop();
        let steps = i64::try_from(steps(&loop_cond) + steps(&loop_step)).unwrap_or(i64::MAX);
        let steps = CelInt::from(steps);
        let steps = IdedExpr { id, expr: Expr::Literal(LiteralValue::Int(steps)) };
        let turns = ComprehensionExpr {
            iter_range: call(id, LOOP, vec![ident(id, METER), range, steps]),
            loop_cond,
            loop_step,
            accu_init: self.check(turns.accu_init, depth)?,
            result: self.check(turns.result, depth)?,
            iter_var: turns.iter_var,
            iter_var2: turns.iter_var2,
            accu_var: turns.accu_var,
        };
        Ok(IdedExpr { id, expr: Expr::Comprehension(Box::new(turns)) })
    }

    fn refuse(&self, id: u64, message: impl Into<String>) -> InvalidFilter {
        let position = self.info.offset_for(id).and_then(|(start, _)| {
            let before = self.info.source.get(..usize::try_from(start).ok()?)?.chars();
            Some(before.fold((1, 1), |(line, column), char| match char {
                '\n' => (line + 1, 1),
                _ => (line, column + 1),
            }))
        });
        InvalidFilter { position, message: message.into() }
    }
}

/// What a call is, by what has to be charged for.
#[derive(Clone, Copy)]
enum Operation {
    Logic,
    Arithmetic,
    Equality,
    Index,
    Membership,
    Matching,
    Function,
}

impl Operation {
    /// The receiver of a member counts as an argument.
    fn of(name: &str, is_member: bool, arguments: usize) -> Option<Self> {
        let operation = match (name, is_member, arguments) {
            (operators::LOGICAL_NOT | operators::NOT_STRICTLY_FALSE, false, 1)
            | (operators::LOGICAL_AND | operators::LOGICAL_OR, false, 2)
            | (operators::CONDITIONAL, false, 3) => Self::Logic,
            (operators::NEGATE, false, 1)
            | (
                operators::ADD
                | operators::SUBSTRACT
                | operators::MULTIPLY
                | operators::DIVIDE
                | operators::MODULO
                | operators::LESS
                | operators::LESS_EQUALS
                | operators::GREATER
                | operators::GREATER_EQUALS,
                false,
                2,
            ) => Self::Arithmetic,
            (operators::EQUALS | operators::NOT_EQUALS, false, 2) => Self::Equality,
            (operators::INDEX, false, 2) => Self::Index,
            (operators::IN, false, 2) => Self::Membership,
            ("matches", _, 2) => Self::Matching,
            ("size", _, 1)
            | ("contains" | "startsWith" | "endsWith", true, 2)
            | (
                "bool" | "bytes" | "double" | "dyn" | "int" | "string" | "type" | "uint",
                false,
                1,
            ) => Self::Function,
            _ => return None,
        };
        Some(operation)
    }
}
