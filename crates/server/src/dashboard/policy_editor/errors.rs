//! What is wrong with what was typed, each at the control that it is about.

use crate::dashboard::api::{FieldError, Refused};
use crate::dashboard::words;

const MAX_MESSAGE_CHARS: usize = 500;

/// A control of a form, and the fields of the API's body that it says.
pub(crate) type Control = (&'static str, &'static [&'static str]);

/// Messages by control.
#[derive(Debug, Clone, Default)]
pub(crate) struct Errors {
    at: Vec<(&'static str, String)>,
    /// What is at no control, and so is said above all of them.
    elsewhere: Option<String>,
}

impl Errors {
    /// What the API said, put to the controls of a form.
    pub(crate) fn of(refused: &Refused, controls: &[Control]) -> Self {
        let mut errors = Self::default();
        for error in &refused.errors {
            errors.add(error, controls);
        }
        if errors.at.is_empty() {
            errors.elsewhere = Some(refused.detail.clone());
        }
        errors
    }

    /// What was seen to be wrong before the API was asked.
    pub(crate) fn one(error: &FieldError, controls: &[Control]) -> Self {
        let mut errors = Self::default();
        errors.add(error, controls);
        errors
    }

    /// What is about no control.
    pub(crate) fn above(message: &str) -> Self {
        Self { at: Vec::new(), elsewhere: Some(message.to_owned()) }
    }

    fn add(&mut self, FieldError { field, message }: &FieldError, controls: &[Control]) {
        // The longest path is the nearest: `policy.schedule` is also that of its parts.
        let about = controls
            .iter()
            .flat_map(|(control, paths)| paths.iter().map(move |path| (*control, *path)))
            .filter_map(|(control, path)| Some((control, path, part_of(field, path)?)))
            .max_by_key(|(_, path, _)| path.len());
        let message = without_position(message);
        // A message can quote what was typed.
        let inert = |text: &str| words::line(text, MAX_MESSAGE_CHARS);
        match about {
            Some((control, _, "")) => self.at.push((control, inert(message))),
            Some((control, _, part)) => {
                self.at.push((control, inert(&format!("{part}: {message}"))));
            }
            None => self.elsewhere = Some(inert(&format!("{field}: {message}"))),
        }
    }

    pub(crate) fn at(&self, control: &str) -> Option<&str> {
        self.at.iter().find(|(name, _)| *name == control).map(|(_, message)| message.as_str())
    }

    pub(crate) fn elsewhere(&self) -> Option<&str> {
        self.elsewhere.as_deref()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.at.is_empty() && self.elsewhere.is_none()
    }

    /// The controls that something is wrong with, in words for a list of links.
    pub(crate) fn all(&self) -> &[(&'static str, String)] {
        &self.at
    }
}

/// What of a field's name is below `path`: empty for the field itself.
fn part_of<'a>(field: &'a str, path: &str) -> Option<&'a str> {
    match field.strip_prefix(path)? {
        "" => Some(""),
        rest if rest.starts_with('.') => Some(&rest[1..]),
        rest if rest.starts_with('[') => Some(rest),
        _ => None,
    }
}

/// Where in the body of a request something stood says nothing to whoever filled in a form.
fn without_position(message: &str) -> &str {
    let is_position = |text: &str| text.starts_with(|first: char| first.is_ascii_digit());
    match message.rsplit_once(" at line ") {
        Some((said, position)) if is_position(position) => said,
        Some(_) | None => message,
    }
}

#[cfg(test)]
mod tests {
    use super::super::typed::{CONTROLS, wrong};
    use super::*;

    #[test]
    fn a_message_goes_to_the_nearest_control() {
        let cases = [
            ("policy", "preset", "is bad"),
            ("policy.max_age", "max_age", "is bad"),
            ("policy.schedule", "schedule", "is bad"),
            ("policy.schedule.list[2]", "list", "[2]: is bad"),
            ("policy.schedule.exponential.jitter", "jitter", "is bad"),
            ("policy.schedule.exponential", "schedule", "exponential: is bad"),
            ("policy.classify.410", "classify", "410: is bad"),
        ];
        for (field, control, message) in cases {
            let errors = Errors::one(&wrong(field, "is bad"), &CONTROLS);
            assert_eq!(errors.at(control), Some(message), "{field}");
            assert_eq!((errors.all().len(), errors.elsewhere()), (1, None));
        }
        let errors = Errors::one(&wrong("policy", "is bad at line 1 column 18"), &CONTROLS);
        assert_eq!(errors.at("preset"), Some("is bad"));
        let errors = Errors::one(&wrong("colour", "is bad"), &CONTROLS);
        assert_eq!(errors.elsewhere(), Some("colour: is bad"));
        assert!(errors.all().is_empty() && !errors.is_empty());
    }
}
