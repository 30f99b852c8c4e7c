//! What can be said of a source by flags.

use clap::ValueEnum;
use serde_json::{Value, json};

use crate::Failure;
use crate::resource::body::{Body, pair, secret};
use crate::secret::Secret;

#[derive(Debug, clap::Args)]
pub(super) struct Fields {
    /// What to call it
    #[arg(long, value_name = "TEXT")]
    name: Option<String>,

    /// How what is posted is verified: `none`, `standard`, `stripe`, `github`, `slack`, `shopify`,
    /// `twilio`, `linear`, `paddle`, `telegram`, `hmac` or `token`
    #[arg(long, value_name = "SCHEME")]
    scheme: Option<String>,

    /// What it is verified with; may be repeated, the newest first. `-` reads it from standard input,
    /// where other users of this machine cannot see it
    #[arg(long = "secret", value_name = "SECRET", allow_hyphen_values = true)]
    secrets: Vec<Secret>,

    /// Something else the scheme wants to know, such as `tolerance=1m` or `header=x-signature`; may be
    /// repeated
    #[arg(long = "option", value_name = "NAME=VALUE", value_parser = |text: &str| pair(text, '='))]
    options: Vec<(String, String)>,

    /// What becomes of what does not hold
    #[arg(long, value_name = "WHAT")]
    on_invalid: Option<OnInvalid>,

    /// Where the type of an event stands: `header:NAME`, `pointer:/a/b` in the JSON, or `fixed:TYPE`
    #[arg(long, value_name = "PLACE", value_parser = type_place)]
    type_from: Option<Value>,

    /// Where it says whether this is the same webhook again: `header:NAME`, `pointer:/a/b`, or `none`
    #[arg(long, value_name = "PLACE", value_parser = dedup_place)]
    dedup_from: Option<Value>,

    /// Keep only this header with the event; may be repeated [default: all]
    #[arg(long = "keep-header", value_name = "NAME")]
    keep_headers: Vec<String>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum OnInvalid {
    /// It is refused
    Reject,
    /// It is kept, and marked
    Mark,
}

impl OnInvalid {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Reject => "reject",
            Self::Mark => "mark",
        }
    }
}

impl Fields {
    /// Says what was said.
    pub(super) fn put_into(&self, body: &mut Body) -> Result<(), Failure> {
        body.set("name", self.name.as_deref());
        body.set_in("verify", "scheme", self.scheme.as_deref());
        let secrets = self.secrets.iter().map(secret).collect::<Result<Vec<_>, _>>()?;
        match secrets.as_slice() {
            [] => {}
            [one] => body.set_in("verify", "secret", Some(one.as_str())),
            [..] => body.set_in("verify", "secrets", Some(secrets)),
        }
        for (name, value) in &self.options {
            // Numbers, truths and lists are written as such, anything else is text.
            let value = serde_json::from_str(value).unwrap_or_else(|_| value.as_str().into());
            body.set_in("verify", name, Some::<Value>(value));
        }
        body.set("on_invalid", self.on_invalid.map(OnInvalid::as_str));
        body.set("type_from", self.type_from.clone());
        body.set("dedup_from", self.dedup_from.clone());
        body.set_list("keep_headers", &self.keep_headers);
        Ok(())
    }
}

fn type_place(text: &str) -> Result<Value, String> {
    match text.split_once(':') {
        Some(("fixed", kind)) => Ok(json!({ "fixed": kind })),
        Some(_) | None => place(text, "header:NAME, pointer:/a/b or fixed:TYPE"),
    }
}

fn dedup_place(text: &str) -> Result<Value, String> {
    if text == "none" { Ok(Value::Null) } else { place(text, "header:NAME, pointer:/a/b or none") }
}

fn place(text: &str, forms: &str) -> Result<Value, String> {
    match text.split_once(':') {
        Some(("header", name)) => Ok(json!({ "header": name })),
        Some(("pointer", pointer)) => Ok(json!({ "json_pointer": pointer })),
        Some(_) | None => Err(format!("write it like {forms}")),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Sample {
        #[command(flatten)]
        fields: Fields,
    }

    #[test]
    fn flags_become_fields_of_the_api() {
        for (flags, expected) in [
            (&["--name", "a"][..], json!({ "name": "a" })),
            (
                &["--scheme", "github", "--secret", "s"],
                json!({ "verify": { "scheme": "github", "secret": "s" } }),
            ),
            (
                &["--secret", "new", "--secret", "old"],
                json!({ "verify": { "secrets": ["new", "old"] } }),
            ),
            (
                &["--option", "tolerance=1m", "--option", "n=3"],
                json!({ "verify": { "tolerance": "1m", "n": 3 } }),
            ),
            (&["--type-from", "fixed:a.b"], json!({ "type_from": { "fixed": "a.b" } })),
            (&["--type-from", "header:X-Kind"], json!({ "type_from": { "header": "X-Kind" } })),
            (&["--dedup-from", "pointer:/id"], json!({ "dedup_from": { "json_pointer": "/id" } })),
            (&["--dedup-from", "none"], json!({ "dedup_from": null })),
            (
                &["--keep-header", "x-a", "--on-invalid", "mark"],
                json!({ "keep_headers": ["x-a"], "on_invalid": "mark" }),
            ),
        ] {
            let arguments = ["sample"].iter().chain(flags);
            let sample = Sample::try_parse_from(arguments).expect("valid");
            let mut body = Body::default();
            sample.fields.put_into(&mut body).expect("nothing is read");
            assert_eq!(body.into_value(), expected, "{flags:?}");
            assert!(!format!("{sample:?}").contains("old"), "{sample:?}");
        }
        for flags in [["--type-from", "x"], ["--dedup-from", "fixed:a"], ["--option", "x"]] {
            let arguments = ["sample"].iter().chain(&flags);
            assert!(Sample::try_parse_from(arguments).is_err(), "{flags:?}");
        }
    }
}
