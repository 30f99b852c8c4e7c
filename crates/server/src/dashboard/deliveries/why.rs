//! Why a delivery is where it is, in words.

use postrider_core::{DeliveryId, Reason, State, Timestamp};
use postrider_engine::MAX_PLACE;
use serde::Deserialize;

use super::row::Delivery;

/// What a delivery waits for, as the API says it.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct WaitingOn {
    pub(crate) reason: WaitReason,
    pub(crate) until: Option<Timestamp>,
    pub(crate) delivery_id: Option<DeliveryId>,
    pub(crate) position: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum WaitReason {
    Backoff,
    DeliverAt,
    Behind,
    Paused,
    Disabled,
    RateLimit,
    Breaker,
    RetryAfter,
    HubOffline,
    Leased,
    Capacity,
}

impl WaitReason {
    /// For a line of a list.
    pub(crate) const fn in_short(self) -> &'static str {
        match self {
            Self::Backoff => "waits to be tried again",
            Self::DeliverAt => "not to go earlier",
            Self::Behind => "in line behind another",
            Self::Paused => "endpoint paused",
            Self::Disabled => "endpoint disabled",
            Self::RateLimit => "rate limit",
            Self::Breaker => "endpoint keeps failing",
            Self::RetryAfter => "endpoint asked to wait",
            Self::HubOffline => "hub not connected",
            Self::Leased => "a worker has it",
            Self::Capacity => "waits for a free place",
        }
    }
}

/// A sentence, perhaps with a delivery in its middle.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Why {
    pub(crate) says: String,
    pub(crate) behind: Option<DeliveryId>,
    pub(crate) then: String,
}

impl Why {
    fn is(says: impl Into<String>) -> Self {
        Self { says: says.into(), ..Self::default() }
    }
}

/// `head` is the delivery at the head of its line, if it is behind one.
pub(crate) fn why(delivery: &Delivery, head: Option<&Delivery>, now: Timestamp) -> Why {
    if let Some(waiting) = &delivery.waiting_on {
        return waits(delivery, waiting, head, now);
    }
    let tries = times(delivery.attempts);
    match delivery.state {
        State::InFlight => Why::is("In flight: an attempt is being made."),
        // Nothing is in its way.
        State::Pending | State::Retrying => Why::is("About to go."),
        State::Delivered => match delivery.delivered_at {
            Some(at) => Why::is(format!("Delivered at {}.", clock(at, now))),
            None => Why::is("Delivered."),
        },
        State::Failed | State::Dead => match delivery.reason {
            Some(Reason::Rejected) => Why::is(
                "Failed: the last answer says that trying again will not help. It waits for you to \
                 retry or purge it.",
            ),
            Some(Reason::Exhausted) => Why::is(format!(
                "Dead: tried {tries}, which is as often as the endpoint's policy allows. It waits \
                 for you to retry or purge it."
            )),
            Some(Reason::Expired) => Why::is(format!(
                "Dead: tried {tries}, and older now than the endpoint's policy allows. It waits \
                 for you to retry or purge it."
            )),
            None => Why::is("It has ended, and waits for you to retry or purge it."),
        },
        State::Cancelled => match delivery.ended_at {
            Some(at) => {
                Why::is(format!("Cancelled at {}. A retry brings it back.", clock(at, now)))
            }
            None => Why::is("Cancelled. A retry brings it back."),
        },
    }
}

fn waits(delivery: &Delivery, waiting: &WaitingOn, head: Option<&Delivery>, now: Timestamp) -> Why {
    let until = waiting.until.map(|until| clock(until, now));
    let at = |before: &str, without: &str| match &until {
        Some(until) => Why::is(format!("{before} {until}.")),
        None => Why::is(without),
    };
    match waiting.reason {
        WaitReason::Backoff => {
            let tries = times(delivery.attempts);
            let before = format!("Waiting: tried {tries}; the next attempt is at");
            at(&before, "Waiting for its next attempt.")
        }
        WaitReason::DeliverAt => at(
            "Waiting: whoever sent the event asked for it to go at",
            "Waiting for the time that the event asks for.",
        ),
        WaitReason::Behind => behind(waiting, head, now),
        WaitReason::Paused => {
            Why::is("Waiting: its endpoint is paused. It goes when the endpoint is resumed.")
        }
        WaitReason::Disabled => Why::is(
            "Waiting: its endpoint is disabled. It goes when the endpoint is enabled again.",
        ),
        WaitReason::RateLimit => at(
            "Waiting: its endpoint's rate limit lets the next one go at",
            "Waiting for its endpoint's rate limit.",
        ),
        WaitReason::Breaker => at(
            "Waiting: its endpoint keeps failing, so sending has stopped; it is tried again at",
            "Waiting: its endpoint kept failing, and is being tried gently before others go.",
        ),
        WaitReason::RetryAfter => at(
            "Waiting: the endpoint asked to be left alone until",
            "Waiting: the endpoint asked to be left alone for a while.",
        ),
        WaitReason::HubOffline => {
            Why::is("Waiting: its hub is not connected. It goes when the hub comes back.")
        }
        WaitReason::Leased => at(
            "In flight: a worker has it, and has to answer or ask for more time before",
            "In flight: a worker has it.",
        ),
        WaitReason::Capacity => Why::is(
            "Waiting: it is due, and goes as soon as one of those in flight has been answered.",
        ),
    }
}

fn behind(waiting: &WaitingOn, head: Option<&Delivery>, now: Timestamp) -> Why {
    let says = match waiting.position {
        Some(MAX_PLACE..) => format!("Waiting: {MAX_PLACE} or further back in line, behind "),
        Some(position) => format!("Waiting: {} in line behind ", ordinal(position)),
        None => "Waiting: in line behind ".to_owned(),
    };
    let Some(behind) = waiting.delivery_id else {
        return Why::is("Waiting for others of its line.");
    };
    let head = head.filter(|head| head.id == behind);
    let then = match (head, waiting.until) {
        (Some(Delivery { state: State::InFlight, .. }), _) => ", which is in flight.".to_owned(),
        (Some(Delivery { state: State::Retrying, .. }), Some(at)) if at > now => {
            format!(", which retries at {}.", clock(at, now))
        }
        (Some(Delivery { state: State::Pending, .. }), Some(at)) if at > now => {
            format!(", which goes at {}.", clock(at, now))
        }
        (Some(_) | None, _) => ".".to_owned(),
    };
    Why { says, behind: Some(behind), then }
}

/// A time to the second, with its day where that is another one.
pub(crate) fn clock(at: Timestamp, now: Timestamp) -> String {
    let (at, now) = (at.to_string(), now.to_string());
    match (at.split_once('T'), now.split_once('T')) {
        (Some((day, time)), Some((today, _))) => {
            let time = time.split('.').next().unwrap_or(time);
            if day == today { format!("{time} UTC") } else { format!("{day} {time} UTC") }
        }
        (_, _) => at,
    }
}

fn times(count: u32) -> String {
    match count {
        0 => "without an attempt that counts".to_owned(),
        1 => "once".to_owned(),
        2 => "twice".to_owned(),
        _ => format!("{count} times"),
    }
}

fn ordinal(place: u64) -> String {
    let ending = match (place % 10, place % 100) {
        (_, 11..=13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        (_, _) => "th",
    };
    format!("{place}{ending}")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);

    fn delivery(fields: Value) -> Delivery {
        let mut whole = json!({
            "id": "dlv_0000000000007",
            "event_id": "evt_0000000000007",
            "endpoint_id": "ep_0000000000007",
            "state": "pending",
            "attempts": 0,
            "deferrals": 0,
            "replay": false,
        });
        let Value::Object(fields) = fields else { panic!("fields") };
        for (name, value) in fields {
            whole[name] = value;
        }
        serde_json::from_value(whole).expect("a delivery")
    }

    fn said(fields: Value, head: Option<&Delivery>) -> String {
        let Why { says, behind, then } = why(&delivery(fields), head, NOW);
        format!("{says}{}{then}", behind.map(|id| id.to_string()).unwrap_or_default())
    }

    #[test]
    fn every_reason_is_a_sentence() {
        let at = "2027-01-15T08:02:10.123Z";
        for (reason, expected) in [
            ("backoff", "Waiting: tried 3 times; the next attempt is at 08:02:10 UTC."),
            ("deliver_at", "Waiting: whoever sent the event asked for it to go at 08:02:10 UTC."),
            ("paused", "Waiting: its endpoint is paused. It goes when the endpoint is resumed."),
            (
                "rate_limit",
                "Waiting: its endpoint's rate limit lets the next one go at 08:02:10 UTC.",
            ),
            ("retry_after", "Waiting: the endpoint asked to be left alone until 08:02:10 UTC."),
        ] {
            let waiting = json!({"reason": reason, "until": at});
            let fields = json!({"attempts": 3, "state": "retrying", "waiting_on": waiting});
            assert_eq!(said(fields, None), expected);
        }
        for reason in [
            "backoff",
            "deliver_at",
            "behind",
            "paused",
            "disabled",
            "rate_limit",
            "breaker",
            "retry_after",
            "hub_offline",
            "leased",
            "capacity",
        ] {
            for until in [json!(null), json!(at)] {
                let waiting = json!({"reason": reason, "until": until});
                let sentence = said(json!({"waiting_on": waiting}), None);
                assert!(sentence.ends_with('.') && !sentence.contains(" ."), "{sentence}");
            }
        }
    }

    #[test]
    fn the_place_in_a_line_is_said_with_what_its_head_does() {
        let at = "2027-01-15T08:02:10.123Z";
        let behind = "dlv_0000000000001";
        for (position, until, state, expected) in [
            (
                Some(3),
                at,
                "retrying",
                "3rd in line behind dlv_0000000000001, which retries at 08:02:10 UTC.",
            ),
            (Some(2), at, "in_flight", "2nd in line behind dlv_0000000000001, which is in flight."),
            (
                Some(21),
                at,
                "pending",
                "21st in line behind dlv_0000000000001, which goes at 08:02:10 UTC.",
            ),
            (
                Some(12),
                "2027-01-15T07:00:00Z",
                "retrying",
                "12th in line behind dlv_0000000000001.",
            ),
            (
                Some(10_000),
                at,
                "delivered",
                "10000 or further back in line, behind dlv_0000000000001.",
            ),
            (
                None,
                at,
                "retrying",
                "in line behind dlv_0000000000001, which retries at 08:02:10 UTC.",
            ),
        ] {
            let head = delivery(json!({"id": behind, "state": state}));
            let waiting = json!({
                "reason": "behind", "until": until, "delivery_id": behind, "position": position,
            });
            let sentence = said(json!({"waiting_on": waiting}), Some(&head));
            assert_eq!(sentence, format!("Waiting: {expected}"));
        }
    }

    #[test]
    fn what_has_ended_says_how() {
        for (fields, expected) in [
            (
                json!({"state": "delivered", "delivered_at": "2027-01-15T07:59:59.999Z"}),
                "Delivered at 07:59:59 UTC.",
            ),
            (
                json!({"state": "delivered", "delivered_at": "2027-01-14T23:59:59.999Z"}),
                "Delivered at 2027-01-14 23:59:59 UTC.",
            ),
            (json!({"state": "in_flight"}), "In flight: an attempt is being made."),
            (
                json!({"state": "cancelled", "ended_at": "2027-01-15T07:59:59.999Z"}),
                "Cancelled at 07:59:59 UTC. A retry brings it back.",
            ),
        ] {
            assert_eq!(said(fields, None), expected);
        }
        for reason in ["rejected", "exhausted", "expired"] {
            let fields = json!({"state": "dead", "attempts": 5, "reason": reason});
            assert!(said(fields, None).contains("retry or purge"), "{reason}");
        }
    }
}
