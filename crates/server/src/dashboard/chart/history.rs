//! What happened over time, as `/v1/stats/history` tells it.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use postrider_core::{EndpointId, Timestamp};
use serde::Deserialize;

use super::Column;
use crate::dashboard::api::{Api, Refused};

/// How far back a chart looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Span {
    #[default]
    Hour,
    Day,
    Week,
}

impl Span {
    pub(crate) const ALL: [Self; 3] = [Self::Hour, Self::Day, Self::Week];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Week => "week",
        }
    }

    /// What a page was asked for; the last hour where it was asked for nothing known.
    pub(crate) fn read(text: &str) -> Self {
        Self::ALL.into_iter().find(|span| span.as_str() == text).unwrap_or_default()
    }

    /// How far apart the labels under a chart of it stand.
    pub(super) const fn label_every(self) -> Duration {
        match self {
            Self::Hour => Duration::from_mins(10),
            Self::Day => Duration::from_hours(4),
            Self::Week => Duration::from_hours(24),
        }
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The history of a tenant, or of one of its endpoints.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct History {
    pub(crate) grain_seconds: u64,
    /// Every stretch of the span, the last one still growing.
    pub(crate) points: Vec<Point>,
    pub(crate) total: Total,
    pub(crate) per_second: PerSecond,
    pub(crate) oldest_waiting_at: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
pub(crate) struct Point {
    pub(crate) start: Timestamp,
    pub(crate) received: u64,
    pub(crate) delivered: u64,
    pub(crate) failures: u64,
    pub(crate) dead: u64,
}

#[derive(Debug, Clone, Copy, Deserialize)]
pub(crate) struct Total {
    /// None where nothing has ended.
    pub(crate) success_rate: Option<f64>,
    pub(crate) p50_ms: Option<f64>,
    pub(crate) p95_ms: Option<f64>,
    pub(crate) p99_ms: Option<f64>,
}

/// About the last minute.
#[derive(Debug, Clone, Copy, Deserialize)]
pub(crate) struct PerSecond {
    pub(crate) received: f64,
    pub(crate) delivered: f64,
}

/// The histories of all endpoints: of each only the stretches in which something happened.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Each {
    pub(crate) grain_seconds: u64,
    pub(crate) since: Timestamp,
    pub(crate) endpoints: BTreeMap<EndpointId, Vec<Column>>,
}

impl History {
    pub(crate) async fn of_tenant(api: &Api, span: Span) -> Result<Self, Refused> {
        api.get(&format!("/v1/stats/history?span={span}")).await
    }

    pub(crate) async fn of_endpoint(
        api: &Api,
        span: Span,
        id: EndpointId,
    ) -> Result<Self, Refused> {
        api.get(&format!("/v1/stats/history?span={span}&endpoint={id}")).await
    }

    pub(crate) fn columns(&self) -> Vec<Column> {
        let column = |point: &Point| {
            let Point { start, delivered, failures, dead, received: _ } = *point;
            Column { start, delivered, failures, dead }
        };
        self.points.iter().map(column).collect()
    }

    pub(crate) fn grain(&self) -> Duration {
        Duration::from_secs(self.grain_seconds)
    }
}

impl Each {
    pub(crate) async fn endpoint(api: &Api, span: Span) -> Result<Self, Refused> {
        api.get(&format!("/v1/stats/history?span={span}&endpoint=each")).await
    }

    pub(crate) fn of(&self, id: EndpointId) -> &[Column] {
        self.endpoints.get(&id).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn grain(&self) -> Duration {
        Duration::from_secs(self.grain_seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_that_is_not_known_is_the_last_hour() {
        for span in Span::ALL {
            assert_eq!(Span::read(span.as_str()), span);
        }
        for text in ["", "year", "HOUR", "hour&endpoint=each"] {
            assert_eq!(Span::read(text), Span::Hour, "{text}");
        }
    }
}
