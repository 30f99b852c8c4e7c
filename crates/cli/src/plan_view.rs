//! A policy's plan as text: a table of attempts and a plot of them on a time axis.

use std::fmt::Write as _;
use std::time::Duration;

use postrider_core::policy::{Plan, Policy, Preset, Rule};
use postrider_core::span;

/// Attempts shown one by one; a longer plan is shown by its beginning and its end.
const ROWS: usize = 20;
const TAIL_ROWS: usize = 3;
const PLOT_COLUMNS: u16 = 60;

/// The whole view, ending in a newline.
pub(crate) fn render(preset: Preset, policy: &Policy) -> String {
    let plan = policy.plan();
    let mut text = format!("{}: {}\n\n", preset.as_str(), preset.about());
    table(&mut text, &plan);
    text.push('\n');
    plot(&mut text, &plan);
    text.push('\n');
    limits(&mut text, policy, &plan);
    classes(&mut text, policy);
    text
}

fn table(text: &mut String, plan: &Plan) {
    line(
        text,
        format_args!("{:>7}  {:>10}  {:>12}  {:>12}", "attempt", "wait", "earliest", "latest"),
    );
    let count = plan.attempts.len();
    for (index, attempt) in plan.attempts.iter().enumerate() {
        if count > ROWS && index == ROWS - TAIL_ROWS {
            line(text, format_args!("{:>7}  ({} more)", "…", count - ROWS));
        }
        if count > ROWS && (ROWS - TAIL_ROWS..count - TAIL_ROWS).contains(&index) {
            continue;
        }
        let [delay, earliest, latest] =
            [attempt.delay, attempt.earliest, attempt.latest].map(short);
        line(
            text,
            format_args!("{:>7}  {delay:>10}  {earliest:>12}  {latest:>12}", attempt.number),
        );
    }
}

/// Attempts on a logarithmic axis: the early ones are seconds apart, the late ones days.
fn plot(text: &mut String, plan: &Plan) {
    let end = plan.attempts.last().map(|last| last.latest).unwrap_or_default();
    let mut axis = vec!['─'; usize::from(PLOT_COLUMNS)];
    for attempt in &plan.attempts {
        axis[column(attempt.earliest, end)..=column(attempt.latest, end)].fill('━');
    }
    for attempt in &plan.attempts {
        let nominal = (attempt.earliest + attempt.latest) / 2;
        axis[column(nominal, end)] = '●';
    }
    let axis: String = axis.into_iter().collect();
    line(text, format_args!("0s {axis} {}", short(end)));
}

fn column(at: Duration, end: Duration) -> usize {
    let log = |span: Duration| span.as_secs_f64().ln_1p();
    let last = PLOT_COLUMNS - 1;
    let position = (log(at) / log(end).max(f64::MIN_POSITIVE) * f64::from(last)).round();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within the plot")]
    usize::from((position as u16).min(last))
}

fn limits(text: &mut String, policy: &Policy, plan: &Plan) {
    let attempts = policy.max_attempts().map(|max| format!("{max} attempts"));
    let age = policy.max_age().map(|age| format!("{} old", span::format(age)));
    let limit = [attempts, age].into_iter().flatten().collect::<Vec<_>>().join(" or ");
    match &plan.gives_up {
        Some(end) => line(
            text,
            format_args!(
                "gives up at {limit}: {} {} after arrival",
                end.reason.as_str(),
                short(end.after)
            ),
        ),
        None => line(text, format_args!("gives up at {limit}")),
    }
}

fn classes(text: &mut String, policy: &Policy) {
    let entries = policy.rules().entries();
    let shown: Vec<String> = entries
        .iter()
        .map(|(key, rule)| {
            let meaning = match rule {
                Rule::Final => "final",
                Rule::FinalAndDisable => "final, disables the endpoint",
                Rule::Retryable => "retryable",
                Rule::RateLimited => "rate limited",
                Rule::RateLimitedIfHinted => "rate limited if it says Retry-After",
            };
            format!("{key} {meaning}")
        })
        .collect();
    line(text, format_args!("2xx delivered; {}; anything else retryable", shown.join("; ")));
}

/// Rounded to seconds once there are minutes.
fn short(span: Duration) -> String {
    let whole =
        if span >= Duration::from_mins(1) { Duration::from_secs(span.as_secs()) } else { span };
    span::format(whole)
}

fn line(text: &mut String, content: std::fmt::Arguments<'_>) {
    // Writing to a String cannot fail.
    let _infallible = writeln!(text, "{content}");
}

#[cfg(test)]
mod tests {
    use postrider_core::policy::Presets;

    use super::*;

    fn shown(preset: Preset) -> String {
        render(preset, &Presets::default().policy(preset))
    }

    #[test]
    fn every_attempt_of_router_is_in_the_table() {
        let text = shown(Preset::Router);
        let rows: Vec<Vec<&str>> =
            text.lines().map(|line| line.split_whitespace().collect()).collect();
        for row in [
            ["1", "0s", "0s", "0s"],
            ["2", "30s", "30s", "30s"],
            ["5", "1h", "1h12m30s", "1h12m30s"],
        ] {
            assert!(rows.iter().any(|shown| shown == &row), "{row:?} is missing in\n{text}");
        }
        assert_eq!(text.matches('●').count(), 5, "{text}");
        assert!(
            text.contains("gives up at 5 attempts: exhausted 1h12m30s after arrival"),
            "{text}"
        );
    }

    #[test]
    fn a_long_plan_is_shown_by_its_beginning_and_its_end() {
        let text = shown(Preset::Edge);
        assert!(text.contains("more)"), "{text}");
        assert!(text.contains("expired"), "{text}");
        assert!(text.lines().count() < ROWS + 10, "{text}");
    }
}
