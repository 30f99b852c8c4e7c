//! What a command sends: fields from a file of JSON, and the flags, which win over it.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use serde_json::{Map, Value};

use crate::Failure;
use crate::secret::Secret;

/// The largest file of fields.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Stands for standard input.
const STDIN: &str = "-";

#[derive(Debug, clap::Args)]
pub(crate) struct FromArgs {
    /// A file with the fields as JSON, the way the API takes them; `-` is standard input. Flags win
    /// over what stands there
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
}

/// The fields of a request.
#[derive(Debug, Default)]
pub(crate) struct Body(Map<String, Value>);

impl FromArgs {
    /// What the file says, or nothing.
    pub(crate) fn read(&self) -> Result<Body, Failure> {
        let Some(path) = &self.from else { return Ok(Body::default()) };
        let text = if path == Path::new(STDIN) {
            bounded(io::stdin().lock()).context("standard input")
        } else {
            File::open(path).and_then(bounded).with_context(|| format!("--from {}", path.display()))
        };
        parse(&text.map_err(Failure::usage)?).map_err(Failure::usage)
    }
}

impl Body {
    /// Says this, if it was said.
    pub(crate) fn set(&mut self, field: &str, value: Option<impl Into<Value>>) {
        if let Some(value) = value {
            self.0.insert(field.to_owned(), value.into());
        }
    }

    /// Says a list, if anything is in it.
    pub(crate) fn set_list(&mut self, field: &str, values: &[String]) {
        if !values.is_empty() {
            self.0.insert(field.to_owned(), values.into());
        }
    }

    /// Says something within an object, which is made if there is none.
    pub(crate) fn set_in(&mut self, object: &str, field: &str, value: Option<impl Into<Value>>) {
        let Some(value) = value else { return };
        let within = self.0.entry(object).or_insert(Value::Null);
        if !within.is_object() {
            *within = Value::Object(Map::new());
        }
        within[field] = value.into();
    }

    /// Goes back to what is usual.
    pub(crate) fn clear(&mut self, fields: &[String]) {
        for field in fields {
            self.0.insert(field.replace('-', "_"), Value::Null);
        }
    }

    pub(crate) fn has(&self, field: &str) -> bool {
        self.0.contains_key(field)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn into_value(self) -> Value {
        Value::Object(self.0)
    }
}

/// A secret of the command line, or of standard input where it is `-`.
pub(crate) fn secret(given: &Secret) -> Result<String, Failure> {
    let Secret(text) = given;
    if text != STDIN {
        return Ok(text.clone());
    }
    let text = bounded(io::stdin().lock()).context("standard input").map_err(Failure::usage)?;
    match text.trim_end_matches(['\r', '\n']) {
        // Or something else has read it already.
        "" => Err(Failure::usage(anyhow!("nothing is left to read on standard input"))),
        text => Ok(text.to_owned()),
    }
}

/// `NAME=VALUE` or `NAME: VALUE`, whichever `between` says.
pub(crate) fn pair(text: &str, between: char) -> Result<(String, String), String> {
    match text.split_once(between) {
        Some((name, value)) if !name.trim().is_empty() => {
            Ok((name.trim().to_owned(), value.trim().to_owned()))
        }
        Some(_) | None => Err(format!("write it like NAME{between}VALUE")),
    }
}

fn bounded(from: impl Read) -> io::Result<String> {
    let mut text = String::new();
    from.take(MAX_FILE_BYTES + 1).read_to_string(&mut text)?;
    if u64::try_from(text.len()).is_ok_and(|length| length <= MAX_FILE_BYTES) {
        Ok(text)
    } else {
        Err(io::Error::other(format!("has more than {MAX_FILE_BYTES} bytes")))
    }
}

fn parse(text: &str) -> anyhow::Result<Body> {
    match serde_json::from_str(text) {
        Ok(Value::Object(fields)) => Ok(Body(fields)),
        Ok(_) => Err(anyhow!("--from: an object is needed, like {{\"url\": \"https://…\"}}")),
        // Its text would repeat what stands there, which may be a secret; the place is enough.
        Err(error) => Err(anyhow!(
            "--from: this is no JSON, at line {} column {}",
            error.line(),
            error.column()
        )),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn flags_win_over_the_file_and_leave_the_rest() {
        let mut body =
            parse(r#"{"url":"https://a","headers":{"x-a":"1"},"name":"old"}"#).expect("an object");
        body.set("name", Some("new"));
        body.set("filter", None::<String>);
        body.set_list("event_types", &["order.*".to_owned()]);
        body.set_list("sources", &[]);
        body.set_in("headers", "x-b", Some("2"));
        body.set_in("rate_limit", "per_second", Some(5.0));
        body.clear(&["max-in-flight".to_owned()]);
        assert_eq!(
            body.into_value(),
            json!({
                "url": "https://a",
                "name": "new",
                "headers": { "x-a": "1", "x-b": "2" },
                "event_types": ["order.*"],
                "rate_limit": { "per_second": 5.0 },
                "max_in_flight": null,
            })
        );
    }

    #[test]
    fn what_is_no_object_is_refused_without_repeating_it() {
        for text in ["", "[]", "7", "{\"secret\": hunter2}", "null"] {
            let said = parse(text).expect_err(text).to_string();
            assert!(said.contains("--from") && !said.contains("hunter2"), "{said}");
        }
    }

    #[test]
    fn a_file_without_an_end_is_not_read_to_it() {
        let error = bounded(io::repeat(b' ')).expect_err("too long").to_string();
        assert!(error.contains("more than"), "{error}");
    }

    #[test]
    fn a_pair_has_a_name() {
        assert_eq!(pair("x-a: b:c", ':'), Ok(("x-a".into(), "b:c".into())));
        assert_eq!(pair("a=", '='), Ok(("a".into(), String::new())));
        for text in ["", "a", "=b"] {
            assert!(pair(text, '=').is_err(), "{text}");
        }
    }
}
