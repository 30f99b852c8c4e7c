//! Charts, drawn as SVG on the way out: bars of what happened over time, and the same small enough for
//! a row of a table. Pure functions of what the API tells; colours come from the style sheet.

mod axis;
mod history;

use std::time::Duration;

use askama::Template;
use askama::filters::HtmlSafe;
use postrider_core::Timestamp;
use serde::Deserialize;

pub(crate) use history::{Each, History, Span};

use axis::{Percent, Scale, Tick, clock, short_count, weekday};

use super::words;

/// The heights of a chart of bars, in units of a page: they stay while its width follows the page.
const TOP: f64 = 16.0;
const PLOT: f64 = 144.0;
const LABELS: f64 = 20.0;
/// The height of a sparkline.
const SPARK: f64 = 24.0;
/// What there is is seen, however little it is beside the rest.
const LEAST: f64 = 2.0;
/// The share of a column that its bar fills.
const FILLED: f64 = 0.8;
/// More columns than this are more than a screen can show; the rest is left out.
const MAX_COLUMNS: usize = 240;

/// What happened in one stretch of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub(crate) struct Column {
    pub(crate) start: Timestamp,
    pub(crate) delivered: u64,
    /// Attempts that were no success.
    pub(crate) failures: u64,
    /// Deliveries that became dead letters.
    pub(crate) dead: u64,
}

impl Column {
    fn total(&self) -> u64 {
        self.delivered.saturating_add(self.failures).saturating_add(self.dead)
    }

    /// From the bottom up, each with its class in the style sheet.
    fn parts(&self) -> [(&'static str, u64); 3] {
        [("delivered", self.delivered), ("failures", self.failures), ("dead", self.dead)]
    }
}

/// A chart with a bar for each stretch of time, its figures in a table below. Put into a page by
/// `{{ chart }}`.
#[derive(Debug, Template)]
#[template(path = "chart_bars.html")]
pub(crate) struct Bars {
    /// What the picture shows, in a sentence.
    label: String,
    columns: Vec<Bar>,
    lines: Vec<Line>,
    ticks: Vec<Tick>,
    rows: Vec<Row>,
    height: Px,
    floor: Px,
    /// Where the labels along the bottom are written.
    below: Px,
    is_empty: bool,
}

// Its template escapes what it writes.
impl HtmlSafe for Bars {}

/// Draws the columns of a span, the oldest first. `label` says of what: "Deliveries of all endpoints".
pub(crate) fn bars(columns: &[Column], grain: Duration, span: Span, label: &str) -> Bars {
    let columns = &columns[columns.len().saturating_sub(MAX_COLUMNS)..];
    let most = columns.iter().map(Column::total).max().unwrap_or(0);
    let scale = Scale::up_to(most);
    let slots = Slots { count: columns.len() };
    let floor = TOP + PLOT;
    let bars = columns.iter().enumerate().map(|(index, column)| Bar {
        title: told(column, grain, span),
        slot: slots.left(index),
        slot_width: slots.width(),
        x: slots.left_of_bar(index),
        width: slots.width_of_bar(),
        parts: stack(column, scale, floor, PLOT),
    });
    let lines = scale
        .steps()
        .map(|count| Line { y: Px(floor - PLOT * scale.share(count)), label: short_count(count) });
    let every = span.label_every().as_secs().max(1);
    let ticks = columns.iter().enumerate().filter(|(_, column)| {
        let begins = u64::try_from(column.start.as_seconds()).unwrap_or(0);
        begins.is_multiple_of(every)
    });
    let ticks = ticks.map(|(index, column)| Tick {
        at: slots.left(index),
        label: match span {
            Span::Hour | Span::Day => clock(column.start),
            Span::Week => weekday(column.start).to_owned(),
        },
    });
    Bars {
        label: summary(columns, span, label),
        columns: bars.collect(),
        lines: lines.collect(),
        ticks: ticks.collect(),
        rows: columns.iter().rev().map(|column| Row::of(column, grain, span)).collect(),
        height: Px(floor + LABELS),
        floor: Px(floor),
        below: Px(floor + LABELS - 5.0),
        is_empty: most == 0,
    }
}

/// A chart of the height of a line of text.
#[derive(Debug, Template)]
#[template(path = "chart_spark.html")]
pub(crate) struct Sparkline {
    label: String,
    bars: Vec<Bar>,
    height: Px,
}

// Its template escapes what it writes.
impl HtmlSafe for Sparkline {}

/// Draws `slots` stretches from `since` on, of which only those are given in which something
/// happened. `label` says of what, such as the endpoint's name.
pub(crate) fn sparkline(
    columns: &[Column],
    since: Timestamp,
    grain: Duration,
    slots: usize,
    label: &str,
) -> Sparkline {
    let most = columns.iter().map(Column::total).max().unwrap_or(0);
    let scale = Scale { top: most.max(1), step: most.max(1) };
    let slots = Slots { count: slots.min(MAX_COLUMNS) };
    let grain_millis = grain.as_millis().max(1);
    let placed = columns.iter().filter(|column| column.start >= since).filter_map(|column| {
        let index = usize::try_from(column.start.since(since).as_millis() / grain_millis).ok()?;
        (index < slots.count).then_some((index, column))
    });
    let bars = placed.map(|(index, column)| Bar {
        title: String::new(),
        slot: slots.left(index),
        slot_width: slots.width(),
        x: slots.left_of_bar(index),
        width: slots.width_of_bar(),
        parts: stack(column, scale, SPARK, SPARK),
    });
    let [delivered, failures, dead] = totals(columns);
    Sparkline {
        label: format!("{label}: {}", told_counts(delivered, failures, dead)),
        bars: bars.collect(),
        height: Px(SPARK),
    }
}

#[derive(Debug)]
struct Bar {
    title: String,
    slot: Percent,
    slot_width: Percent,
    x: Percent,
    width: Percent,
    parts: Vec<Part>,
}

/// What of a bar is of one kind.
#[derive(Debug, PartialEq)]
struct Part {
    class: &'static str,
    y: Px,
    height: Px,
}

/// A line across, with the count that it stands for.
#[derive(Debug)]
struct Line {
    y: Px,
    label: String,
}

impl Line {
    /// Where the label is written, left of its line: as high as the middle of its figures.
    fn label_y(&self) -> Px {
        Px(self.y.0 + 4.0)
    }
}

/// A row of the table that says the same as the picture.
#[derive(Debug)]
struct Row {
    at: String,
    delivered: String,
    failures: String,
    dead: String,
}

impl Row {
    fn of(column: &Column, grain: Duration, span: Span) -> Self {
        Self {
            at: stretch(column.start, grain, span),
            delivered: words::count(column.delivered),
            failures: words::count(column.failures),
            dead: words::count(column.dead),
        }
    }
}

/// A height or a place upwards, as an attribute of SVG writes it.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
struct Px(f64);

impl std::fmt::Display for Px {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.1}", self.0)
    }
}

impl HtmlSafe for Px {}

/// Where columns stand, side by side over the whole width.
#[derive(Debug, Clone, Copy)]
struct Slots {
    count: usize,
}

#[expect(clippy::cast_precision_loss, reason = "there are at most MAX_COLUMNS")]
impl Slots {
    fn width(self) -> Percent {
        Percent(100.0 / self.count.max(1) as f64)
    }

    fn left(self, index: usize) -> Percent {
        Percent(self.width().0 * index as f64)
    }

    fn width_of_bar(self) -> Percent {
        Percent(self.width().0 * FILLED)
    }

    fn left_of_bar(self, index: usize) -> Percent {
        Percent(self.left(index).0 + self.width().0 * (1.0 - FILLED) / 2.0)
    }
}

/// Stacks the parts of a bar on the floor. The smallest are drawn larger than they are, at the cost of
/// the largest, so that a single dead letter among a million deliveries is still seen.
fn stack(column: &Column, scale: Scale, floor: f64, height: f64) -> Vec<Part> {
    let mut parts: Vec<(&'static str, f64)> = column
        .parts()
        .into_iter()
        .filter(|(_, count)| *count > 0)
        .map(|(class, count)| (class, (height * scale.share(count)).max(LEAST)))
        .collect();
    let excess = parts.iter().map(|(_, height)| height).sum::<f64>() - height;
    if excess > 0.0
        && let Some((_, tallest)) = parts.iter_mut().max_by(|one, other| one.1.total_cmp(&other.1))
    {
        *tallest -= excess;
    }
    let mut top = floor;
    let placed = parts.into_iter().map(|(class, height)| {
        top -= height;
        Part { class, y: Px(top), height: Px(height) }
    });
    placed.collect()
}

fn totals(columns: &[Column]) -> [u64; 3] {
    columns.iter().fold([0; 3], |[delivered, failures, dead]: [u64; 3], column| {
        [
            delivered.saturating_add(column.delivered),
            failures.saturating_add(column.failures),
            dead.saturating_add(column.dead),
        ]
    })
}

fn summary(columns: &[Column], span: Span, label: &str) -> String {
    let [delivered, failures, dead] = totals(columns);
    format!("{label} in the last {span}: {}", told_counts(delivered, failures, dead))
}

fn told(column: &Column, grain: Duration, span: Span) -> String {
    let Column { start, delivered, failures, dead } = *column;
    format!("{}: {}", stretch(start, grain, span), told_counts(delivered, failures, dead))
}

fn told_counts(delivered: u64, failures: u64, dead: u64) -> String {
    let failures = words::plural(failures, "failed attempt", "failed attempts");
    format!("{} delivered, {failures}, {} dead", words::count(delivered), words::count(dead))
}

/// From when to when, in UTC: `14:02`, `14:15–14:30`, `Mon 14:00–16:00`.
fn stretch(start: Timestamp, grain: Duration, span: Span) -> String {
    match span {
        Span::Hour => clock(start),
        Span::Day => format!("{}–{}", clock(start), clock(start.plus(grain))),
        Span::Week => {
            format!("{} {}–{}", weekday(start), clock(start), clock(start.plus(grain)))
        }
    }
}

#[cfg(test)]
mod tests;
