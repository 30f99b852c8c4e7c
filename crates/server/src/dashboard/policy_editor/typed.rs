//! What was typed into the policy editor, and the policy that it says, in the form the API takes.

use serde_json::{Map, Value, json};

use crate::dashboard::api::FieldError;

/// Rows of the table of classes that are empty, to be filled in.
const BLANK_ROWS: usize = 3;
/// The API takes no more.
const MAX_ROWS: usize = 100;
const MAX_DELAYS: usize = 100;

/// The controls of the editor, and where in a policy each of them stands.
pub(crate) const CONTROLS: [(&str, &[&str]); 10] = [
    ("preset", &["policy", "policy.preset"]),
    ("schedule", &["policy.schedule"]),
    ("list", &["policy.schedule.list"]),
    ("jitter", &["policy.schedule.jitter", "policy.schedule.exponential.jitter"]),
    ("initial", &["policy.schedule.exponential.initial"]),
    ("multiplier", &["policy.schedule.exponential.multiplier"]),
    ("max_delay", &["policy.schedule.exponential.max_delay"]),
    ("max_attempts", &["policy.max_attempts"]),
    ("max_age", &["policy.max_age"]),
    ("classify", &["policy.classify"]),
];

/// As it was typed, right or wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Typed {
    pub(crate) preset: String,
    pub(crate) schedule: Schedule,
    pub(crate) list: String,
    pub(crate) jitter: String,
    pub(crate) initial: String,
    pub(crate) multiplier: String,
    pub(crate) max_delay: String,
    pub(crate) max_attempts: String,
    pub(crate) unlimited_attempts: bool,
    pub(crate) max_age: String,
    pub(crate) unlimited_age: bool,
    pub(crate) classify: Vec<Class>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Schedule {
    /// As the preset has it.
    Preset,
    List,
    Exponential,
}

impl Schedule {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Preset => "preset",
            Self::List => "list",
            Self::Exponential => "exponential",
        }
    }

    pub(crate) fn is(self, name: &str) -> bool {
        self.as_str() == name
    }
}

/// A row of the table of classes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Class {
    pub(crate) key: String,
    pub(crate) rule: String,
}

impl Default for Typed {
    fn default() -> Self {
        Self {
            preset: "standard".into(),
            schedule: Schedule::Preset,
            list: String::new(),
            jitter: String::new(),
            initial: String::new(),
            multiplier: String::new(),
            max_delay: String::new(),
            max_attempts: String::new(),
            unlimited_attempts: false,
            max_age: String::new(),
            unlimited_age: false,
            classify: Vec::new(),
        }
    }
}

impl Typed {
    /// `all` is every value that a control sent.
    pub(crate) fn read<'a>(all: impl Fn(&str) -> Vec<&'a str>) -> Self {
        let one = |name: &str| all(name).first().map_or("", |text| text.trim()).to_owned();
        let rows = all("class_key").into_iter().zip(all("class_rule")).take(MAX_ROWS);
        let classify = rows
            .map(|(key, rule)| Class { key: key.trim().to_owned(), rule: rule.trim().to_owned() })
            .filter(|class| !class.key.is_empty());
        let preset = one("preset");
        Self {
            preset: if preset.is_empty() { Self::default().preset } else { preset },
            schedule: match one("schedule").as_str() {
                "list" => Schedule::List,
                "exponential" => Schedule::Exponential,
                _ => Schedule::Preset,
            },
            list: one("list"),
            jitter: one("jitter"),
            initial: one("initial"),
            multiplier: one("multiplier"),
            max_delay: one("max_delay"),
            max_attempts: one("max_attempts"),
            unlimited_attempts: !all("unlimited_attempts").is_empty(),
            max_age: one("max_age"),
            unlimited_age: !all("unlimited_age").is_empty(),
            classify: classify.collect(),
        }
    }

    /// A policy as the API shows it: a preset's name, or spelled out.
    pub(crate) fn of(policy: &Value) -> Self {
        let mut typed = Self::default();
        if let Some(name) = policy.as_str().or(policy["preset"].as_str()) {
            name.clone_into(&mut typed.preset);
        }
        let schedule = &policy["schedule"];
        if let Some(list) = schedule["list"].as_array() {
            typed.schedule = Schedule::List;
            let delays: Vec<&str> = list.iter().filter_map(Value::as_str).collect();
            typed.list = delays.join(" ");
            typed.jitter = written(&schedule["jitter"]);
        } else if schedule["exponential"].is_object() {
            let exponential = &schedule["exponential"];
            typed.schedule = Schedule::Exponential;
            typed.initial = written(&exponential["initial"]);
            typed.multiplier = written(&exponential["multiplier"]);
            typed.max_delay = written(&exponential["max_delay"]);
            typed.jitter = written(&exponential["jitter"]);
        }
        let has = |field: &str| policy.get(field).is_some();
        typed.max_attempts = written(&policy["max_attempts"]);
        typed.unlimited_attempts = has("max_attempts") && policy["max_attempts"].is_null();
        typed.max_age = written(&policy["max_age"]);
        typed.unlimited_age = has("max_age") && policy["max_age"].is_null();
        let rules = policy["classify"].as_object();
        let rows = rules.into_iter().flatten().map(|(key, rule)| Class {
            key: key.clone(),
            rule: rule.as_str().unwrap_or_default().to_owned(),
        });
        typed.classify = rows.collect();
        typed
    }

    /// The policy that this says; the API judges it.
    pub(crate) fn policy(&self) -> Result<Value, FieldError> {
        let mut policy = Map::new();
        match self.schedule {
            Schedule::Preset => {}
            Schedule::List => {
                policy.insert("schedule".into(), self.list_schedule()?);
            }
            Schedule::Exponential => {
                policy.insert("schedule".into(), self.exponential_schedule()?);
            }
        }
        if self.unlimited_attempts {
            policy.insert("max_attempts".into(), Value::Null);
        } else if !self.max_attempts.is_empty() {
            let attempts: u32 = self
                .max_attempts
                .parse()
                .map_err(|_| wrong("policy.max_attempts", "must be a whole number, such as 5"))?;
            policy.insert("max_attempts".into(), attempts.into());
        }
        if self.unlimited_age {
            policy.insert("max_age".into(), Value::Null);
        } else if !self.max_age.is_empty() {
            policy.insert("max_age".into(), self.max_age.as_str().into());
        }
        if !self.classify.is_empty() {
            let mut rules = Map::new();
            for Class { key, rule } in &self.classify {
                if rules.insert(key.clone(), rule.as_str().into()).is_some() {
                    let field = format!("policy.classify.{key}");
                    return Err(wrong(&field, "is given twice"));
                }
            }
            policy.insert("classify".into(), rules.into());
        }
        if policy.is_empty() {
            return Ok(self.preset.as_str().into());
        }
        policy.insert("preset".into(), self.preset.as_str().into());
        Ok(policy.into())
    }

    fn list_schedule(&self) -> Result<Value, FieldError> {
        let words = self.list.split([' ', ',', ';', '\n', '\r', '\t']);
        let delays: Vec<&str> =
            words.filter(|word| !word.is_empty()).take(MAX_DELAYS + 1).collect();
        let mut schedule = json!({ "list": delays });
        if !self.jitter.is_empty() {
            schedule["jitter"] = number("policy.schedule.jitter", &self.jitter)?;
        }
        Ok(schedule)
    }

    fn exponential_schedule(&self) -> Result<Value, FieldError> {
        let mut exponential = json!({ "initial": self.initial, "max_delay": self.max_delay });
        if !self.multiplier.is_empty() {
            let field = "policy.schedule.exponential.multiplier";
            exponential["multiplier"] = number(field, &self.multiplier)?;
        }
        if !self.jitter.is_empty() {
            let field = "policy.schedule.exponential.jitter";
            exponential["jitter"] = number(field, &self.jitter)?;
        }
        Ok(json!({ "exponential": exponential }))
    }

    /// A policy in a line: the preset, and what is said otherwise.
    pub(crate) fn in_words(&self) -> String {
        let mut words = vec![self.preset.clone()];
        match self.schedule {
            Schedule::Preset => {}
            Schedule::List => words.push(format!("waits {}", self.list)),
            Schedule::Exponential => {
                words.push(format!("waits from {} up to {}", self.initial, self.max_delay));
            }
        }
        if self.unlimited_attempts {
            words.push("any number of attempts".into());
        } else if !self.max_attempts.is_empty() {
            words.push(format!("at most {} attempts", self.max_attempts));
        }
        if self.unlimited_age {
            words.push("however long it takes".into());
        } else if !self.max_age.is_empty() {
            words.push(format!("for at most {}", self.max_age));
        }
        if !self.classify.is_empty() {
            let rules =
                self.classify.iter().map(|class| format!("{} is {}", class.key, class.rule));
            words.push(rules.collect::<Vec<_>>().join(", ").replace('_', " "));
        }
        words.join(", ")
    }

    /// The rows to show: those that are filled in, and some to fill in.
    pub(crate) fn rows(&self) -> Vec<Class> {
        let blank = std::iter::repeat_n(Class::default(), BLANK_ROWS);
        self.classify.iter().cloned().chain(blank).collect()
    }
}

/// A number or a text as one types it; nothing for what is not there.
fn written(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => String::new(),
    }
}

pub(crate) fn number(field: &str, text: &str) -> Result<Value, FieldError> {
    let number = text.parse().ok().and_then(serde_json::Number::from_f64);
    number.map(Value::Number).ok_or_else(|| wrong(field, "must be a number, such as 0.1"))
}

pub(crate) fn wrong(field: &str, message: &str) -> FieldError {
    FieldError { field: field.to_owned(), message: message.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_that_is_shown_and_not_touched_is_the_same() {
        let policies = [
            json!("edge"),
            json!({"preset": "router", "max_attempts": 3}),
            json!({"preset": "edge", "max_age": null, "max_attempts": 4}),
            json!({"preset": "standard", "schedule": {"list": ["5s", "1h30m"], "jitter": 0.25}}),
            json!({"preset": "standard", "schedule": {"exponential":
                {"initial": "1s", "multiplier": 2.5, "max_delay": "1h", "jitter": 0.1}},
                "classify": {"410": "final", "5xx": "retryable", "timeout": "rate_limited"}}),
        ];
        for policy in policies {
            assert_eq!(Typed::of(&policy).policy().expect("valid"), policy);
        }
        // Without a preset it is that of `standard`.
        let bare = Typed::of(&json!({"max_attempts": 3})).policy().expect("valid");
        assert_eq!(bare, json!({"preset": "standard", "max_attempts": 3}));
    }

    #[test]
    fn what_is_typed_is_read_by_name() {
        let sent = [
            ("preset", "edge"),
            ("schedule", "list"),
            ("list", "5s, 1m\n 1h"),
            ("jitter", " 0.5 "),
            ("max_attempts", "7"),
            ("unlimited_age", "on"),
            ("class_key", "410"),
            ("class_key", ""),
            ("class_key", "5xx"),
            ("class_rule", "final"),
            ("class_rule", "final"),
            ("class_rule", "retryable"),
        ];
        let all = |name: &str| -> Vec<&str> {
            sent.iter().filter(|(key, _)| *key == name).map(|(_, value)| *value).collect()
        };
        assert_eq!(
            Typed::read(all).policy().expect("valid"),
            json!({"preset": "edge", "schedule": {"list": ["5s", "1m", "1h"], "jitter": 0.5},
                "max_attempts": 7, "max_age": null,
                "classify": {"410": "final", "5xx": "retryable"}})
        );
    }

    #[test]
    fn what_is_no_number_is_said_at_its_place() {
        let row = |key: &str| Class { key: key.into(), rule: "final".into() };
        let cases = [
            (Typed { max_attempts: "many".into(), ..Typed::default() }, "policy.max_attempts"),
            (Typed { max_attempts: "-1".into(), ..Typed::default() }, "policy.max_attempts"),
            (
                Typed { schedule: Schedule::List, jitter: "NaN".into(), ..Typed::default() },
                "policy.schedule.jitter",
            ),
            (
                Typed {
                    schedule: Schedule::Exponential,
                    multiplier: "two".into(),
                    ..Typed::default()
                },
                "policy.schedule.exponential.multiplier",
            ),
            (
                Typed { classify: vec![row("410"), row("410")], ..Typed::default() },
                "policy.classify.410",
            ),
        ];
        for (typed, field) in cases {
            assert_eq!(typed.policy().expect_err(field).field, field);
        }
    }
}
