//! The nodes of an expression: making them, and walking through them.

use cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, LiteralValue, operators,
};

use super::facts::Part;
use super::meter::{self, METER};

/// The result of a loop so far, as the macros of the parser call it.
pub(super) const SO_FAR: &str = "@result";

pub(super) fn call(id: u64, name: &str, args: Vec<IdedExpr>) -> IdedExpr {
    let made = CallExpr { func_name: name.to_owned(), target: None, args };
    IdedExpr { id, expr: Expr::Call(made) }
}

pub(super) fn ident(id: u64, name: &str) -> IdedExpr {
    IdedExpr { id, expr: Expr::Ident(name.to_owned()) }
}

/// A value that is charged for before it is used, unless that was done: a literal is part of the
/// expression, and what is put into a list or a map is charged for there.
pub(super) fn charged(by: &str, node: IdedExpr) -> IdedExpr {
    match node.expr {
        Expr::Literal(_) | Expr::List(_) | Expr::Map(_) => node,
        _ => call(node.id, by, vec![ident(node.id, METER), node]),
    }
}

/// `so far + [x]`, with which a loop gathers a list. The evaluator appends if it looks just so.
pub(super) fn is_append(operator: &str, args: &[IdedExpr]) -> bool {
    operator == operators::ADD
        && matches!(args, [list, element] if matches!(&list.expr, Expr::Ident(name) if name == SO_FAR)
        && matches!(element.expr, Expr::List(_)))
}

pub(super) fn is_literal(node: &IdedExpr) -> bool {
    matches!(node.expr, Expr::Literal(_))
}

pub(super) fn is_headers(node: &IdedExpr) -> bool {
    matches!(&node.expr, Expr::Ident(name) if name == Part::Headers.variable())
}

/// The steps that a checked expression takes without its loops' turns: one for each node, and as
/// many more as its literals are long.
pub(super) fn steps(node: &IdedExpr) -> u64 {
    let text = match &node.expr {
        Expr::Literal(LiteralValue::String(text)) => text.inner().len(),
        Expr::Literal(LiteralValue::Bytes(bytes)) => bytes.inner().len(),
        _ => 0,
    };
    meter::text_steps(text) + parts(node).into_iter().map(steps).sum::<u64>()
}

pub(super) fn levels(node: &IdedExpr) -> usize {
    1 + parts(node).into_iter().map(levels).max().unwrap_or(0)
}

/// The expressions that an expression is made of.
fn parts(node: &IdedExpr) -> Vec<&IdedExpr> {
    match &node.expr {
        Expr::Literal(_) | Expr::Ident(_) | Expr::Unspecified | Expr::Struct(_) => Vec::new(),
        Expr::Select(select) => vec![&select.operand],
        Expr::Call(call) => call.target.as_deref().into_iter().chain(&call.args).collect(),
        Expr::List(list) => list.elements.iter().collect(),
        Expr::Map(map) => map
            .entries
            .iter()
            .flat_map(|entry| match &entry.expr {
                EntryExpr::MapEntry(entry) => vec![&entry.key, &entry.value],
                EntryExpr::StructField(field) => vec![&field.value],
            })
            .collect(),
        Expr::Comprehension(turns) => {
            let ComprehensionExpr { iter_range, accu_init, loop_cond, loop_step, result, .. } =
                turns.as_ref();
            vec![iter_range, accu_init, loop_cond, loop_step, result]
        }
    }
}
