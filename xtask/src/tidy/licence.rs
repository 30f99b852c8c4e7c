//! SPDX licence expressions: whether one can be met with the licences that are allowed.

use anyhow::{Result, bail, ensure};

/// `expression`: names joined by `AND`, `OR` (or the old `/`), with parentheses; `X WITH Y` is one
/// name. `AND` binds tighter than `OR`.
pub(crate) fn is_met(expression: &str, allowed: &[String]) -> Result<bool> {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let mut words = Words { words: spaced.split_whitespace().collect(), next: 0 };
    let met = either(&mut words, allowed)?;
    ensure!(words.peek().is_none(), "words after the end of the licence {expression:?}");
    Ok(met)
}

struct Words<'a> {
    words: Vec<&'a str>,
    next: usize,
}

impl<'a> Words<'a> {
    fn peek(&self) -> Option<&'a str> {
        self.words.get(self.next).copied()
    }

    fn take(&mut self) -> Option<&'a str> {
        let word = self.peek();
        self.next += usize::from(word.is_some());
        word
    }

    fn take_if(&mut self, expected: &str) -> bool {
        let found = self.peek() == Some(expected);
        self.next += usize::from(found);
        found
    }
}

fn either(words: &mut Words<'_>, allowed: &[String]) -> Result<bool> {
    let mut met = both(words, allowed)?;
    while words.take_if("OR") {
        met |= both(words, allowed)?;
    }
    Ok(met)
}

fn both(words: &mut Words<'_>, allowed: &[String]) -> Result<bool> {
    let mut met = one(words, allowed)?;
    while words.take_if("AND") {
        met &= one(words, allowed)?;
    }
    Ok(met)
}

fn one(words: &mut Words<'_>, allowed: &[String]) -> Result<bool> {
    match words.take() {
        None => bail!("a licence expression ends where a name should be"),
        Some(word @ (")" | "AND" | "OR" | "WITH")) => bail!("{word:?} where a licence should be"),
        Some("(") => {
            let met = either(words, allowed)?;
            ensure!(words.take_if(")"), "a licence expression lacks its closing parenthesis");
            Ok(met)
        }
        Some(name) => {
            let mut full = name.to_owned();
            if words.take_if("WITH") {
                let Some(exception) = words.take() else { bail!("WITH lacks its exception") };
                full = format!("{name} WITH {exception}");
            }
            Ok(allowed.contains(&full))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn met(expression: &str) -> bool {
        let allowed: Vec<String> =
            ["MIT", "Apache-2.0", "ISC", "GPL-2.0 WITH exception"].map(String::from).into();
        is_met(expression, &allowed).expect("a well-formed expression")
    }

    #[test]
    fn expressions_are_read_as_spdx_says() {
        for (expression, expected) in [
            ("MIT", true),
            ("GPL-3.0", false),
            ("MIT OR GPL-3.0", true),
            ("GPL-3.0 OR LGPL-2.1", false),
            ("MIT AND GPL-3.0", false),
            ("Apache-2.0 AND ISC", true),
            ("MIT/Apache-2.0", true),
            ("GPL-3.0 / MIT", true),
            ("(MIT OR GPL-3.0) AND ISC", true),
            ("(GPL-3.0 OR LGPL-2.1) AND MIT", false),
            ("GPL-3.0 AND MIT OR ISC", true),
            ("ISC OR GPL-3.0 AND MIT", true),
            ("GPL-2.0 WITH exception", true),
            ("GPL-2.0", false),
            ("MIT WITH exception", false),
            ("MIT WITH exception OR ISC", true),
        ] {
            assert_eq!(met(expression), expected, "{expression}");
        }
    }

    #[test]
    fn a_malformed_expression_is_an_error_and_not_a_permission() {
        for expression in ["", "MIT OR", "MIT ISC", "(MIT", "MIT)", "AND MIT", "MIT WITH"] {
            assert!(is_met(expression, &["MIT".into(), "ISC".into()]).is_err(), "{expression:?}");
        }
    }
}
