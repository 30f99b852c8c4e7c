//! The picture of a policy: each attempt on a time axis, the room that jitter leaves it, and where the
//! policy gives up. Pure: a plan in, coordinates out.

use std::time::Duration;

use serde::Deserialize;

use crate::dashboard::words;

/// The plan of a policy, as the API previews it.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Plan {
    attempts: Vec<Attempt>,
    gives_up: Option<GivesUp>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
struct Attempt {
    number: u32,
    delay_seconds: f64,
    earliest_seconds: f64,
    latest_seconds: f64,
}

#[derive(Debug, Clone, Deserialize)]
struct GivesUp {
    reason: String,
    after_seconds: f64,
}

/// Where the axis begins and ends, of a picture that is 720 wide.
const LEFT: f64 = 24.0;
const RIGHT: f64 = 688.0;
/// Attempts that are nearer to one another than this are drawn as one.
const MIN_APART: f64 = 1.5;
/// A tick's text needs this much room, and that of a wait this much.
const TICK_ROOM: f64 = 56.0;
const WAIT_ROOM: f64 = 40.0;
/// A span of more than this many first waits is drawn by its logarithm: on an even axis all that
/// comes early would stand in one place.
const LONGEST_EVEN: f64 = 20.0;
const MOST_EVEN_TICKS: f64 = 9.0;
/// The rows of the table: so many at the beginning, so many at the end.
const FIRST_ROWS: usize = 12;
const LAST_ROWS: usize = 3;

const MINUTE: f64 = 60.0;
const HOUR: f64 = 60.0 * MINUTE;
const DAY: f64 = 24.0 * HOUR;
/// Where ticks can be.
const ROUND_SECONDS: [f64; 32] = [
    0.001,
    0.005,
    0.01,
    0.05,
    0.1,
    0.5,
    1.0,
    2.0,
    5.0,
    10.0,
    30.0,
    MINUTE,
    2.0 * MINUTE,
    5.0 * MINUTE,
    10.0 * MINUTE,
    30.0 * MINUTE,
    HOUR,
    2.0 * HOUR,
    6.0 * HOUR,
    12.0 * HOUR,
    DAY,
    2.0 * DAY,
    3.0 * DAY,
    7.0 * DAY,
    14.0 * DAY,
    30.0 * DAY,
    90.0 * DAY,
    365.0 * DAY,
    1_000.0 * DAY,
    5_000.0 * DAY,
    30_000.0 * DAY,
    150_000.0 * DAY,
];

/// What the template draws.
#[derive(Debug, Clone)]
pub(crate) struct Picture {
    pub(crate) bands: Vec<Band>,
    pub(crate) dots: Vec<Dot>,
    pub(crate) waits: Vec<Label>,
    pub(crate) ticks: Vec<Label>,
    /// Where it gives up, if the plan is shown to its end.
    pub(crate) end: Option<Coordinate>,
    /// The whole in a sentence, for those who do not see it.
    pub(crate) sentence: String,
    pub(crate) first: Vec<Row>,
    /// How many rows are left out between the first and the last.
    pub(crate) left_out: usize,
    pub(crate) last: Vec<Row>,
}

/// Written with one decimal: more is not seen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Coordinate(f64);

impl std::fmt::Display for Coordinate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.1}", self.0)
    }
}

impl askama::filters::HtmlSafe for Coordinate {}

/// When an attempt can be, by jitter.
#[derive(Debug, Clone)]
pub(crate) struct Band {
    pub(crate) x: Coordinate,
    pub(crate) width: Coordinate,
}

#[derive(Debug, Clone)]
pub(crate) struct Dot {
    pub(crate) x: Coordinate,
    pub(crate) title: String,
    pub(crate) is_last: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct Label {
    pub(crate) x: Coordinate,
    pub(crate) text: String,
}

#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) number: u32,
    pub(crate) wait: String,
    pub(crate) earliest: String,
    pub(crate) latest: String,
}

impl Picture {
    pub(crate) fn of(plan: &Plan) -> Self {
        let times = nominal_times(plan);
        let last_at = times.last().copied().unwrap_or(0.0);
        let latest = plan.attempts.last().map_or(0.0, |attempt| attempt.latest_seconds);
        let scale = Scale::new(times.get(1).copied().unwrap_or(0.0), last_at.max(latest));
        let rows: Vec<Row> = plan.attempts.iter().map(Row::of).collect();
        let split = if rows.len() > FIRST_ROWS + LAST_ROWS + 1 { FIRST_ROWS } else { rows.len() };
        let ends_at = if split == rows.len() { split } else { rows.len() - LAST_ROWS };
        Self {
            bands: bands(plan, scale),
            dots: dots(plan, &times, scale),
            waits: waits(plan, &times, scale),
            ticks: scale.ticks(),
            end: plan.gives_up.as_ref().map(|end| Coordinate(scale.x(end.after_seconds))),
            sentence: sentence(plan, last_at),
            first: rows[..split].to_vec(),
            left_out: ends_at - split,
            last: rows[ends_at..].to_vec(),
        }
    }

    /// On which side of the end there is room for its words.
    pub(crate) fn end_anchor(&self) -> &'static str {
        match self.end {
            Some(Coordinate(x)) if x > f64::midpoint(LEFT, RIGHT) => "end",
            Some(_) | None => "start",
        }
    }
}

impl Row {
    fn of(attempt: &Attempt) -> Self {
        Self {
            number: attempt.number,
            wait: span(attempt.delay_seconds),
            earliest: span(attempt.earliest_seconds),
            latest: span(attempt.latest_seconds),
        }
    }
}

/// When each attempt is if jitter does nothing.
fn nominal_times(plan: &Plan) -> Vec<f64> {
    let mut at = 0.0;
    let times = plan.attempts.iter().map(|attempt| {
        at += attempt.delay_seconds;
        at
    });
    times.collect()
}

fn sentence(plan: &Plan, last_at: f64) -> String {
    let count = plan.attempts.len();
    let attempts = if count == 1 { "1 attempt".to_owned() } else { format!("{count} attempts") };
    match &plan.gives_up {
        Some(end) => {
            let why = match end.reason.as_str() {
                "expired" => "because the next one would come too late",
                _ => "because that was the last one",
            };
            format!("{attempts}; gives up {} after arrival, {why}.", span(end.after_seconds))
        }
        None => format!("The first {attempts}, over {}; it goes on after that.", span(last_at)),
    }
}

fn bands(plan: &Plan, scale: Scale) -> Vec<Band> {
    let mut drawn_to = f64::NEG_INFINITY;
    let mut bands = Vec::new();
    for attempt in &plan.attempts {
        let (from, to) = (scale.x(attempt.earliest_seconds), scale.x(attempt.latest_seconds));
        // What another band covers already, or what is too narrow to be seen, is not drawn.
        if to - from >= MIN_APART && to > drawn_to + MIN_APART {
            bands.push(Band { x: Coordinate(from), width: Coordinate(to - from) });
            drawn_to = to;
        }
    }
    bands
}

fn dots(plan: &Plan, times: &[f64], scale: Scale) -> Vec<Dot> {
    let mut dots: Vec<Dot> = Vec::new();
    let mut before = f64::NEG_INFINITY;
    for (index, (attempt, at)) in plan.attempts.iter().zip(times).enumerate() {
        let x = scale.x(*at);
        let is_last = index + 1 == times.len();
        if x - before < MIN_APART && !is_last {
            continue;
        }
        let title = format!("attempt {}: {}", attempt.number, after_arrival(*at));
        dots.push(Dot { x: Coordinate(x), title, is_last });
        before = x;
    }
    dots
}

fn waits(plan: &Plan, times: &[f64], scale: Scale) -> Vec<Label> {
    let pairs = times.windows(2).zip(&plan.attempts[1.min(plan.attempts.len())..]);
    let labels = pairs.filter_map(|(pair, attempt)| {
        let (from, to) = (scale.x(pair[0]), scale.x(pair[1]));
        (to - from >= WAIT_ROOM).then(|| Label {
            x: Coordinate(f64::midpoint(from, to)),
            text: format!("+{}", span(attempt.delay_seconds)),
        })
    });
    labels.collect()
}

fn after_arrival(seconds: f64) -> String {
    if seconds == 0.0 { "at once".into() } else { format!("{} after arrival", span(seconds)) }
}

/// Where a time is on the axis.
#[derive(Debug, Clone, Copy)]
struct Scale {
    end: f64,
    /// The unit of a logarithmic axis; none is an even one.
    unit: Option<f64>,
}

impl Scale {
    fn new(first_wait: f64, end: f64) -> Self {
        let long = first_wait > 0.0 && end > first_wait * LONGEST_EVEN;
        // One attempt, at once: the axis has a length all the same.
        let end = if end > 0.0 { end } else { 1.0 };
        Self { end, unit: long.then_some(first_wait) }
    }

    fn x(self, seconds: f64) -> f64 {
        let share = match self.unit {
            None => seconds / self.end,
            Some(unit) => (seconds / unit).ln_1p() / (self.end / unit).ln_1p(),
        };
        LEFT + share.clamp(0.0, 1.0) * (RIGHT - LEFT)
    }

    fn ticks(self) -> Vec<Label> {
        let label = |seconds: f64| Label {
            x: Coordinate(self.x(seconds)),
            text: if seconds == 0.0 { "0".into() } else { span(seconds) },
        };
        let mut ticks = vec![label(0.0)];
        match self.unit {
            None => {
                let fits = |step: &&f64| self.end / **step <= MOST_EVEN_TICKS;
                let step = ROUND_SECONDS.iter().find(fits).copied().unwrap_or(self.end);
                let mut at = step;
                while at <= self.end {
                    ticks.push(label(at));
                    at += step;
                }
            }
            Some(_) => {
                for at in ROUND_SECONDS.into_iter().filter(|at| *at <= self.end) {
                    let tick = label(at);
                    if ticks.last().is_none_or(|last| tick.x.0 - last.x.0 >= TICK_ROOM) {
                        ticks.push(tick);
                    }
                }
            }
        }
        ticks
    }
}

/// A span in words.
fn span(seconds: f64) -> String {
    if seconds == 0.0 {
        return "0 s".into();
    }
    words::span(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX))
}

#[cfg(test)]
mod tests {
    use postrider_core::policy::{Preset, Presets};

    use super::*;

    fn plan(delays: &[f64], jitter: f64) -> Plan {
        let (mut earliest, mut latest, mut at) = (0.0, 0.0, 0.0);
        let mut attempts = Vec::new();
        for (number, delay) in (1..).zip([0.0].iter().chain(delays)) {
            earliest += delay * (1.0 - jitter);
            latest += delay * (1.0 + jitter);
            at += delay;
            attempts.push(Attempt {
                number,
                delay_seconds: *delay,
                earliest_seconds: earliest,
                latest_seconds: latest,
            });
        }
        let gives_up = Some(GivesUp { reason: "exhausted".into(), after_seconds: at });
        Plan { attempts, gives_up }
    }

    fn of_preset(preset: Preset) -> Plan {
        let plan = Presets::default().policy(preset).plan();
        let attempts = plan.attempts.iter().map(|attempt| Attempt {
            number: attempt.number,
            delay_seconds: attempt.delay.as_secs_f64(),
            earliest_seconds: attempt.earliest.as_secs_f64(),
            latest_seconds: attempt.latest.as_secs_f64(),
        });
        let gives_up = plan.gives_up.map(|end| GivesUp {
            reason: end.reason.as_str().to_owned(),
            after_seconds: end.after.as_secs_f64(),
        });
        Plan { attempts: attempts.collect(), gives_up }
    }

    #[test]
    fn time_goes_from_left_to_right_whatever_the_policy() {
        let cases = [
            plan(&[], 0.0),
            plan(&[0.001], 1.0),
            plan(&[5.0, 5.0, 5.0], 0.0),
            plan(&[1.0, 86_400.0, 86_400.0 * 366.0], 0.5),
            plan(&[86_400.0 * 366.0; 999], 1.0),
        ];
        for plan in cases.into_iter().chain(Preset::ALL.map(of_preset)) {
            let picture = Picture::of(&plan);
            let inside = |x: f64| (LEFT..=RIGHT).contains(&x);
            let xs: Vec<f64> = picture.dots.iter().map(|dot| dot.x.0).collect();
            assert!(xs.iter().all(|x| inside(*x)), "{xs:?}");
            assert!(xs.is_sorted(), "{xs:?}");
            assert!(xs.len() <= 1_000 && !xs.is_empty());
            assert_eq!(picture.dots.iter().filter(|dot| dot.is_last).count(), 1);
            for band in &picture.bands {
                assert!(inside(band.x.0) && inside(band.x.0 + band.width.0), "{band:?}");
            }
            let ticks: Vec<f64> = picture.ticks.iter().map(|tick| tick.x.0).collect();
            assert!(ticks.is_sorted() && ticks.iter().all(|x| inside(*x)), "{ticks:?}");
            assert!((1..=16).contains(&ticks.len()), "{ticks:?}");
            let rows = picture.first.len() + picture.left_out + picture.last.len();
            assert_eq!(rows, plan.attempts.len());
        }
    }

    #[test]
    fn jitter_is_a_band_around_its_attempt() {
        let picture = Picture::of(&plan(&[10.0, 10.0], 0.2));
        assert_eq!(picture.bands.len(), 2);
        for (band, dot) in picture.bands.iter().zip(&picture.dots[1..]) {
            assert!(band.x.0 < dot.x.0 && dot.x.0 < band.x.0 + band.width.0, "{picture:?}");
        }
        assert!(Picture::of(&plan(&[10.0, 10.0], 0.0)).bands.is_empty());
    }

    #[test]
    fn a_long_span_is_drawn_by_its_logarithm() {
        let picture = Picture::of(&of_preset(Preset::Router));
        // Half a minute of an hour and more can be told from nothing.
        assert!(picture.dots[1].x.0 - picture.dots[0].x.0 > 30.0, "{:?}", picture.dots);
        let even = Picture::of(&plan(&[10.0, 10.0, 10.0], 0.0));
        let gap = |index: usize| even.dots[index + 1].x.0 - even.dots[index].x.0;
        assert!((gap(0) - gap(2)).abs() < 0.01);
    }

    #[test]
    fn the_end_is_said_in_words() {
        let sentence = |plan: &Plan| Picture::of(plan).sentence;
        assert_eq!(
            sentence(&of_preset(Preset::Router)),
            "5 attempts; gives up 1 h 12 min after arrival, because that was the last one."
        );
        assert!(sentence(&of_preset(Preset::Edge)).contains("would come too late"));
        let endless = Plan { gives_up: None, ..plan(&[60.0], 0.0) };
        assert_eq!(sentence(&endless), "The first 2 attempts, over 1 min; it goes on after that.");
        assert_eq!(Picture::of(&endless).end, None);
    }
}
