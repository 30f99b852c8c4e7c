//! The settings of a file: every flag of `postrider serve`, as the flag itself takes it.

use std::any::TypeId;
use std::error::Error as _;
use std::ffi::OsString;
use std::fmt;

use clap::error::{ContextKind, ContextValue};
use clap::{Arg, ArgAction, Command};
use toml::de::{DeArray, DeValue};
use url::Url;

use super::document::{Entry, Faults, LineIndex, integer, kind};
use super::references::{Outside, Reference, WANTED};
use crate::serve;

/// One flag, and how it is written in a file.
#[derive(Debug, Clone)]
pub(crate) struct Flag {
    pub(crate) arg: Arg,
    pub(crate) takes: Takes,
    /// It can be given several times, and is a list.
    pub(crate) repeatable: bool,
    /// What it holds is shown nowhere.
    pub(crate) secret: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Takes {
    Text,
    Number,
    Truth,
}

impl Flag {
    pub(crate) fn key(&self) -> &str {
        self.arg.get_id().as_str()
    }
}

/// Every flag that can stand in a file.
pub(crate) fn flags() -> Vec<Flag> {
    let command = <serve::Args as clap::Args>::augment_args(Command::new("serve"));
    let flags = command.get_arguments().filter(|arg| arg.get_long().is_some());
    flags
        .map(|arg| Flag {
            takes: takes(arg),
            repeatable: matches!(arg.get_action(), ArgAction::Append),
            secret: arg.is_hide_env_values_set(),
            arg: arg.clone(),
        })
        .collect()
}

fn takes(arg: &Arg) -> Takes {
    let numbers = [
        TypeId::of::<u16>(),
        TypeId::of::<u32>(),
        TypeId::of::<u64>(),
        TypeId::of::<usize>(),
        TypeId::of::<i64>(),
        TypeId::of::<f32>(),
        TypeId::of::<f64>(),
    ];
    let kind = arg.get_value_parser().type_id();
    if kind == TypeId::of::<bool>() {
        Takes::Truth
    } else if numbers.iter().any(|number| kind == *number) {
        Takes::Number
    } else {
        Takes::Text
    }
}

/// A setting that a file makes.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct FileSetting {
    /// What clap calls the flag, which is what the file calls it.
    pub(crate) key: String,
    pub(crate) line: usize,
    /// As they would stand after the flag.
    pub(crate) values: Vec<String>,
    /// Where the values are that are not in the file.
    pub(crate) reference: Option<String>,
    secret: bool,
}

/// Without a value that is secret.
impl fmt::Debug for FileSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, line, values, reference, secret } = self;
        let mut shown = f.debug_struct("FileSetting");
        shown.field("key", key).field("line", line).field("reference", reference);
        if *secret { shown.finish_non_exhaustive() } else { shown.field("values", values).finish() }
    }
}

/// What an entry of the file sets, if it can be that.
pub(super) fn read(
    flag: &Flag,
    entry: &Entry<'_, '_>,
    index: &LineIndex,
    outside: Outside<'_>,
    faults: &mut Faults,
) -> Option<FileSetting> {
    let mut setting = FileSetting {
        key: entry.name.to_owned(),
        line: entry.line,
        values: Vec::new(),
        reference: None,
        secret: flag.secret,
    };
    match (entry.value, flag.repeatable) {
        (DeValue::Array(list), true) => {
            let mut read = Reading { flag, outside, faults, setting: &mut setting };
            read.list(list, &entry.path, index);
        }
        (other, true) => {
            let message = format!(
                "can be given several times, so it must be a list such as {}, not {}",
                example(flag),
                kind(other)
            );
            faults.add(entry.line, &entry.path, message);
            return None;
        }
        (value, false) => {
            let mut read = Reading { flag, outside, faults, setting: &mut setting };
            read.value(value, entry.line, &entry.path);
        }
    }
    Some(setting)
}

struct Reading<'a> {
    flag: &'a Flag,
    outside: Outside<'a>,
    faults: &'a mut Faults,
    setting: &'a mut FileSetting,
}

impl Reading<'_> {
    fn list(&mut self, list: &DeArray<'_>, path: &str, index: &LineIndex) {
        for (at, value) in list.iter().enumerate() {
            self.value(value.get_ref(), index.line(&value.span()), &format!("{path}[{at}]"));
        }
    }

    fn value(&mut self, value: &DeValue<'_>, line: usize, path: &str) {
        match self.text(value).and_then(|text| self.checked(text)) {
            Ok(text) => self.setting.values.push(text),
            Err(message) => self.faults.add(line, path, message),
        }
    }

    /// As it would stand after the flag.
    fn text(&mut self, value: &DeValue<'_>) -> Result<String, String> {
        let wrong = |wanted: &str| Err(format!("must be {wanted}, not {}", kind(value)));
        match (self.flag.takes, value) {
            (Takes::Text, DeValue::String(text)) => self.fetched(text),
            (Takes::Text, _) => wrong("a text in quotes"),
            (Takes::Number, DeValue::Integer(number)) => integer(number)
                .map(|number| number.to_string())
                .ok_or_else(|| "is larger than any number here can be".to_owned()),
            (Takes::Number, DeValue::Float(number)) => Ok(number.as_str().to_owned()),
            (Takes::Number, _) => wrong("a number without quotes"),
            (Takes::Truth, DeValue::Boolean(truth)) => Ok(truth.to_string()),
            (Takes::Truth, _) => wrong("true or false"),
        }
    }

    /// The text itself, or what it refers to where that may be secret.
    fn fetched(&mut self, text: &str) -> Result<String, String> {
        if !self.flag.secret {
            return Ok(text.to_owned());
        }
        match Reference::read(text) {
            Some(reference) => {
                let value = reference.fetch(self.outside)?;
                let before = self.setting.reference.take();
                let all = before.map_or_else(String::new, |before| before + ", ") + text;
                self.setting.reference = Some(all);
                Ok(value.to_string())
            }
            None if holds_secret(text) => Err(WANTED.to_owned()),
            None => Ok(text.to_owned()),
        }
    }

    /// Asks the flag whether it would take it. What is wrong with a secret does not repeat it.
    fn checked(&self, text: String) -> Result<String, String> {
        let delimiter = self.flag.arg.get_value_delimiter();
        if delimiter.is_some_and(|delimiter| text.contains(delimiter)) {
            return Err("must be one value; a list has each in quotes of its own".to_owned());
        }
        match alone(&self.flag.arg, &text) {
            Ok(()) => Ok(text),
            Err(_) if self.flag.secret && self.setting.reference.is_some() => {
                Err("refers to something that cannot be used here".to_owned())
            }
            Err(message) => Err(message),
        }
    }
}

/// Whether somebody who reads the file would learn a password or a key.
fn holds_secret(text: &str) -> bool {
    match Url::parse(text) {
        Ok(url) => {
            url.password().is_some() || url.query_pairs().any(|(name, _)| name == "password")
        }
        Err(_) => true,
    }
}

/// Parses one value with the parser of its flag, and nothing else.
fn alone(arg: &Arg, text: &str) -> Result<(), String> {
    let id = arg.get_id().clone();
    let flag = Arg::new(id).long("flag").action(ArgAction::Set).num_args(1);
    let flag = flag.value_parser(arg.get_value_parser().clone()).allow_hyphen_values(true);
    let given = [OsString::from("alone"), OsString::from(format!("--flag={text}"))];
    let parsed =
        Command::new("alone").disable_help_flag(true).arg(flag).try_get_matches_from(given);
    let Err(error) = parsed else { return Ok(()) };
    if let Some(source) = error.source() {
        return Err(one_line(&source.to_string()));
    }
    match error.get(ContextKind::ValidValue) {
        Some(ContextValue::Strings(valid)) if !valid.is_empty() => {
            Err(format!("must be one of {}", valid.join(", ")))
        }
        Some(_) | None => Err("must not be empty".to_owned()),
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// How it would be written.
pub(crate) fn example(flag: &Flag) -> String {
    let name = flag.arg.get_value_names().and_then(|names| names.first());
    let name = name.map_or("VALUE", |name| name.as_str());
    let value = match flag.takes {
        Takes::Text => format!("\"{name}\""),
        Takes::Number => "1".to_owned(),
        Takes::Truth => "true".to_owned(),
    };
    if flag.repeatable { format!("[{value}]") } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flag_has_a_kind_that_suits_it() {
        let flags = flags();
        let find = |key: &str| flags.iter().find(|flag| flag.key() == key).expect("a flag");
        for (key, takes, repeatable, secret) in [
            ("listen", Takes::Text, false, false),
            ("allow_destination", Takes::Text, true, false),
            ("allow_port", Takes::Number, true, false),
            ("max_in_flight", Takes::Number, false, false),
            ("requests_per_key", Takes::Number, false, false),
            ("lanes", Takes::Number, false, false),
            ("timeout", Takes::Text, false, false),
            ("log_format", Takes::Text, false, false),
            ("admin_key", Takes::Text, false, true),
            ("store", Takes::Text, false, true),
            ("egress_proxy", Takes::Text, false, true),
        ] {
            let flag = find(key);
            assert_eq!((flag.takes, flag.repeatable, flag.secret), (takes, repeatable, secret));
        }
        for flag in &flags {
            let long = flag.arg.get_long().expect("a long form");
            assert_eq!(long.replace('-', "_"), flag.key(), "the key of a file is the flag");
            assert!(flag.arg.get_env().is_some(), "--{long} has no variable");
        }
    }

    #[test]
    fn a_password_or_a_key_is_known_for_one() {
        for (text, secret) in [
            ("pr_0123456789", true),
            ("postgres://me:pw@db/hooks", true),
            ("postgres://me@db/hooks?password=pw", true),
            ("http://me:pw@proxy:3128", true),
            ("postgres://me@db/hooks", false),
            ("sqlite:/var/lib/postrider.db", false),
            ("http://proxy:3128", false),
        ] {
            assert_eq!(holds_secret(text), secret, "{text}");
        }
    }
}
