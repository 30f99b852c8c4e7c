//! What charts show of what they are given.

use super::*;

const START: Timestamp = Timestamp::from_millis(1_767_225_600_000);
const MINUTE: Duration = Duration::from_mins(1);

fn column(minute: u64, delivered: u64, failures: u64, dead: u64) -> Column {
    let start = START.plus(MINUTE * u32::try_from(minute).expect("few"));
    Column { start, delivered, failures, dead }
}

#[test]
fn a_bar_is_as_tall_as_its_count_and_stands_on_the_floor() {
    let scale = Scale { top: 100, step: 50 };
    let parts = stack(&column(0, 50, 25, 0), scale, 120.0, 100.0);
    let expected = [
        Part { class: "delivered", y: Px(70.0), height: Px(50.0) },
        Part { class: "failures", y: Px(45.0), height: Px(25.0) },
    ];
    assert_eq!(parts, expected);
    assert_eq!(stack(&column(0, 0, 0, 0), scale, 120.0, 100.0), []);
}

#[test]
fn one_dead_letter_among_a_million_is_seen_and_the_bar_stays_inside() {
    let scale = Scale::up_to(1_000_001);
    for top in [scale.top, 1_000_001] {
        let scale = Scale { top, ..scale };
        let parts = stack(&column(0, 1_000_000, 0, 1), scale, 100.0, 100.0);
        let [delivered, dead] = &parts[..] else { panic!("{parts:?}") };
        assert!(dead.height.0 >= LEAST && dead.y.0 >= 0.0, "{parts:?}");
        assert!((delivered.y.0 - dead.y.0 - dead.height.0).abs() < 1e-9, "{parts:?}");
    }
}

#[test]
fn the_smallest_values_of_all_are_drawn_without_a_panic() {
    for counts in [[u64::MAX; 3], [u64::MAX, 0, 1], [0, 0, u64::MAX]] {
        let [delivered, failures, dead] = counts;
        let columns = [column(0, delivered, failures, dead), column(1, 1, 0, 0)];
        let text = bars(&columns, MINUTE, Span::Hour, "All").render().expect("a picture");
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
    }
}

#[test]
fn a_chart_has_a_title_for_each_bar_a_table_and_labels_on_round_minutes() {
    let columns: Vec<Column> = (0..60).map(|minute| column(minute, minute, 1, 0)).collect();
    let chart = bars(&columns, MINUTE, Span::Hour, "All deliveries");
    let labels: Vec<&str> = chart.ticks.iter().map(|tick| tick.label.as_str()).collect();
    assert_eq!(labels, ["00:00", "00:10", "00:20", "00:30", "00:40", "00:50"]);
    let lines: Vec<&str> = chart.lines.iter().map(|line| line.label.as_str()).collect();
    assert_eq!(lines, ["20", "40", "60"]);
    let text = chart.render().expect("a picture");
    assert_eq!(text.matches("<title>").count(), 60);
    assert!(text.contains("<title>00:07: 7 delivered, 1 failed attempt, 0 dead</title>"), "{text}");
    assert_eq!(text.matches(r#"<th scope="row">"#).count(), 60);
    assert!(text.contains("All deliveries in the last hour"), "{text}");
    assert!(!text.contains("style="), "the policy of the pages forbids it");
}

#[test]
fn what_is_written_on_a_chart_is_only_text() {
    let chart = bars(&[column(0, 1, 0, 0)], MINUTE, Span::Day, "<script>\"'&");
    let spark = sparkline(&[column(0, 1, 0, 0)], START, MINUTE, 60, "<script>\"'&");
    for text in [chart.render().expect("a picture"), spark.render().expect("a picture")] {
        assert!(!text.contains("<script>") && text.contains("&#60;script&#62;"), "{text}");
    }
}

#[test]
fn a_span_in_which_nothing_happened_says_so() {
    for columns in [vec![], vec![column(0, 0, 0, 0)]] {
        let text = bars(&columns, MINUTE, Span::Week, "All").render().expect("a picture");
        assert!(text.contains("Nothing has happened") && !text.contains("<svg"), "{text}");
    }
}

#[test]
fn a_sparkline_puts_what_there_is_into_its_slot() {
    let early = Column { start: START.minus(MINUTE), ..column(0, 9, 9, 9) };
    let columns = [early, column(0, 1, 0, 0), column(30, 0, 2, 0), column(60, 0, 0, 5)];
    let spark = sparkline(&columns, START, MINUTE, 60, "ep");
    let slots: Vec<String> = spark.bars.iter().map(|bar| bar.slot.to_string()).collect();
    assert_eq!(slots, ["0.00%", "50.00%"], "the first is too old, the last too new");
}

#[test]
fn times_of_a_stretch_are_as_long_as_they_need_to_be() {
    let table = [
        (Span::Hour, 60, "00:00"),
        (Span::Day, 900, "00:00–00:15"),
        (Span::Week, 7_200, "Thu 00:00–02:00"),
    ];
    for (span, seconds, text) in table {
        assert_eq!(stretch(START, Duration::from_secs(seconds), span), text);
    }
}
