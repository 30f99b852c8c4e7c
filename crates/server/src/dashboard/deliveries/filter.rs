//! What a list of deliveries or dead letters is narrowed to, as the address of its page says it.
//!
//! Everything stays the text that was typed: the API says what is wrong with it, by name, and the page
//! shows both.

use std::time::Duration;

use postrider_core::Timestamp;
use serde_json::{Map, Value};
use url::form_urlencoded::{self, Serializer};

use crate::dashboard::fields::Form;

/// What the API filters by, named as it does.
const NAMES: [&str; 8] =
    ["state", "endpoint", "event", "type", "error_class", "reason", "since", "until"];
/// How far back to look, in words, instead of `since`.
const LAST: &str = "last";

/// A filter, and where in the list the page begins.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Filter {
    pub(crate) state: String,
    pub(crate) endpoint: String,
    pub(crate) event: String,
    /// Of the event.
    pub(crate) kind: String,
    pub(crate) error_class: String,
    pub(crate) reason: String,
    pub(crate) since: String,
    pub(crate) until: String,
    /// `hour`, `day` or `week`; counts where `since` says nothing.
    pub(crate) last: String,
    /// None of the filter, but it stands beside it.
    pub(crate) cursor: String,
}

impl Filter {
    /// What an address asks for. What it does not know it leaves out.
    pub(crate) fn read(query: &str) -> Self {
        let mut filter = Self::default();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            if let Some(field) = filter.field(&name) {
                value.trim().clone_into(field);
            }
        }
        filter
    }

    /// What a form carries along.
    pub(crate) fn of(form: &Form) -> Self {
        let mut filter = Self::default();
        for name in NAMES {
            if let (Some(field), Some(text)) = (filter.field(name), form.text(name)) {
                text.clone_into(field);
            }
        }
        filter
    }

    fn field(&mut self, name: &str) -> Option<&mut String> {
        Some(match name {
            "state" => &mut self.state,
            "endpoint" => &mut self.endpoint,
            "event" => &mut self.event,
            "type" => &mut self.kind,
            "error_class" => &mut self.error_class,
            "reason" => &mut self.reason,
            "since" => &mut self.since,
            "until" => &mut self.until,
            LAST => &mut self.last,
            "cursor" => &mut self.cursor,
            _ => return None,
        })
    }

    /// What it narrows to, without what is not narrowed.
    pub(crate) fn pairs(&self) -> Vec<(&'static str, &str)> {
        let values = [
            &self.state,
            &self.endpoint,
            &self.event,
            &self.kind,
            &self.error_class,
            &self.reason,
            &self.since,
            &self.until,
        ];
        let last = (LAST, self.last.as_str());
        let pairs = NAMES.into_iter().zip(values.map(String::as_str)).chain([last]);
        pairs.filter(|(_, value)| !value.is_empty()).collect()
    }

    /// Nothing is left out of the list.
    pub(crate) fn is_empty(&self) -> bool {
        self.pairs().is_empty()
    }

    /// It shows the beginning of the list, which is what changes while it is looked at.
    pub(crate) fn is_first_page(&self) -> bool {
        self.cursor.is_empty()
    }

    /// The address of a page with this filter, from where it stands.
    pub(crate) fn address(&self, path: &str) -> String {
        let mut pairs = self.pairs();
        if !self.cursor.is_empty() {
            pairs.push(("cursor", &self.cursor));
        }
        join(path, pairs)
    }

    /// The address of the next page.
    pub(crate) fn next(&self, path: &str, cursor: &str) -> String {
        Self { cursor: cursor.to_owned(), ..self.clone() }.address(path)
    }

    /// The address of the same list, in another state.
    pub(crate) fn in_state(&self, path: &str, state: &str) -> String {
        Self { state: state.to_owned(), cursor: String::new(), ..self.clone() }.address(path)
    }

    /// What to ask the API for.
    pub(crate) fn question(&self, path: &str, now: Timestamp) -> String {
        self.fixed(now).address(path)
    }

    /// The same as a body of the API has it.
    pub(crate) fn as_json(&self, now: Timestamp) -> Value {
        let fixed = self.fixed(now);
        let pairs = fixed.pairs().into_iter();
        let fields: Map<String, Value> =
            pairs.map(|(name, value)| (name.to_owned(), Value::from(value))).collect();
        fields.into()
    }

    /// The same with its times spelled out, so that it means the same a minute later.
    pub(crate) fn fixed(&self, now: Timestamp) -> Self {
        let since = match span(&self.last) {
            Some(span) if self.since.is_empty() => now.minus(span).to_string(),
            Some(_) | None => instant(&self.since),
        };
        Self { since, until: instant(&self.until), last: String::new(), ..self.clone() }
    }

    /// The same for nothing that comes after `now`: what is about to be changed is what was looked at.
    pub(crate) fn settled(&self, now: Timestamp) -> Self {
        let mut fixed = Self { cursor: String::new(), ..self.fixed(now) };
        if fixed.until.is_empty() {
            // What was made in this millisecond is looked at, too.
            fixed.until = now.plus(Duration::from_millis(1)).to_string();
        }
        fixed
    }

    /// `since` as the field for a date and a time takes it.
    pub(crate) fn since_field(&self) -> String {
        local(&self.since)
    }

    pub(crate) fn until_field(&self) -> String {
        local(&self.until)
    }
}

/// A path with parameters, escaped.
pub(crate) fn join<'a>(path: &str, pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let mut query = Serializer::new(String::new());
    query.extend_pairs(pairs);
    let query = query.finish();
    if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") }
}

fn span(last: &str) -> Option<Duration> {
    match last {
        "hour" => Some(Duration::from_hours(1)),
        "day" => Some(Duration::from_hours(24)),
        "week" => Some(Duration::from_hours(7 * 24)),
        _ => None,
    }
}

/// A time as the API takes it, from what a field for a date and a time sends (UTC, with or without
/// seconds). Anything else stays as it is, to be refused by name.
pub(crate) fn instant(text: &str) -> String {
    let forms = [text.to_owned(), format!("{text}Z"), format!("{text}:00Z")];
    let time = forms.iter().find_map(|form| form.parse::<Timestamp>().ok());
    time.map_or_else(|| text.to_owned(), |time| time.to_string())
}

/// A time as such a field shows it; nothing where it is none.
fn local(text: &str) -> String {
    match instant(text).parse::<Timestamp>() {
        Ok(time) => time.to_string().chars().take("2026-01-31T12:00:00".len()).collect(),
        Err(_) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);

    #[test]
    fn an_address_survives_being_read_and_written() {
        for query in [
            "",
            "state=dead",
            "state=dead%2Cfailed&endpoint=ep_1&event=evt_1&type=a.b&error_class=final&reason=rejected&since=a&until=b&last=day&cursor=x",
            "state=%26endpoint%3D%22%3E%3Cscript%3E",
        ] {
            let filter = Filter::read(query);
            let address = filter.address("/deliveries");
            assert_eq!(address.strip_prefix("/deliveries?").unwrap_or_default(), query);
            assert_eq!(filter.is_empty(), query.is_empty());
        }
        assert_eq!(Filter::read("colour=red&limit=9999"), Filter::default());
    }

    #[test]
    fn what_is_asked_has_times_that_the_api_takes() {
        for (query, expected) in [
            ("since=2026-01-31T12:00", "since=2026-01-31T12%3A00%3A00.000Z"),
            ("until=2026-01-31T12:00:07", "until=2026-01-31T12%3A00%3A07.000Z"),
            ("since=2026-01-31T12:00:07.5Z", "since=2026-01-31T12%3A00%3A07.500Z"),
            ("since=yesterday", "since=yesterday"),
            ("last=hour", "since=2027-01-15T07%3A00%3A00.000Z"),
            ("last=week&since=2026-01-31T12:00", "since=2026-01-31T12%3A00%3A00.000Z"),
            ("last=year", ""),
        ] {
            let asked = Filter::read(query).question("/v1/deliveries", NOW);
            assert_eq!(asked.strip_prefix("/v1/deliveries?").unwrap_or_default(), expected);
        }
    }

    #[test]
    fn what_is_settled_means_the_same_later() {
        let settled = Filter::read("state=dead&last=day&cursor=x").settled(NOW);
        let expected = json!({
            "state": "dead",
            "since": "2027-01-14T08:00:00.000Z",
            "until": "2027-01-15T08:00:00.001Z",
        });
        assert_eq!(settled.as_json(NOW.plus(Duration::from_mins(1))), expected);
        assert_eq!(settled.settled(NOW.plus(Duration::from_mins(1))), settled);
    }

    #[test]
    fn a_field_for_a_time_shows_what_it_understands() {
        let filter = Filter::read("since=2026-01-31T12:00:07.123Z&until=%22%3E");
        assert_eq!(filter.since_field(), "2026-01-31T12:00:07");
        assert_eq!(filter.until_field(), "");
    }
}
