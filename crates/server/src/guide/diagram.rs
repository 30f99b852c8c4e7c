//! State diagrams, which are written in Mermaid's words: drawn as a picture that needs no script, with a
//! table of every way beneath it.

use std::fmt::Write as _;

use super::page::escape;

/// The language of code blocks that are diagrams.
pub(super) const LANGUAGE: &str = "mermaid";

/// Where a diagram begins and where it ends.
const OUTSIDE: &str = "[*]";
const COLUMN: f64 = 250.0;
const ROW: f64 = 110.0;
/// Half the width and half the height of a state's box.
const BOX: (f64, f64) = (62.0, 21.0);
const MARGIN: f64 = 16.0;

/// A way from one state to another.
#[derive(Debug, PartialEq, Eq)]
struct Way<'a> {
    from: &'a str,
    to: &'a str,
    when: &'a str,
}

/// A state in the picture.
#[derive(Debug)]
struct Place<'a> {
    name: &'a str,
    column: usize,
    /// Its middle.
    at: (f64, f64),
}

pub(super) fn write(code: &str) -> String {
    let ways: Vec<Way<'_>> = code.lines().filter_map(way).collect();
    let places = arrange(&ways);
    format!("{}{}", picture(&ways, &places), table(&ways))
}

/// `from --> to: when`, of which the last may be missing.
fn way(line: &str) -> Option<Way<'_>> {
    let (from, rest) = line.trim().split_once(" --> ")?;
    let (to, when) = rest.split_once(": ").unwrap_or((rest, ""));
    Some(Way { from, to, when })
}

/// States in columns, by how many ways they are from the beginning.
fn arrange<'a>(ways: &[Way<'a>]) -> Vec<Place<'a>> {
    let mut columns: Vec<Vec<&'a str>> = vec![vec![OUTSIDE]];
    loop {
        let reached = |name: &str| columns.iter().flatten().any(|known| *known == name);
        let mut next: Vec<&'a str> = Vec::new();
        for way in ways {
            let starts_here = columns.last().is_some_and(|last| last.contains(&way.from));
            if starts_here && !reached(way.to) && !next.contains(&way.to) {
                next.push(way.to);
            }
        }
        if next.is_empty() {
            break;
        }
        columns.push(next);
    }
    let columns = &columns[1..];
    let tallest = columns.iter().map(Vec::len).max().unwrap_or(0);
    let mut places = Vec::new();
    for (column, names) in columns.iter().enumerate() {
        let missing = real(tallest - names.len());
        for (row, name) in names.iter().enumerate() {
            let x = MARGIN + BOX.0 + real(column) * COLUMN;
            let y = MARGIN + BOX.1 + (real(row) + missing / 2.0) * ROW;
            places.push(Place { name, column, at: (x, y) });
        }
    }
    places
}

fn picture(ways: &[Way<'_>], places: &[Place<'_>]) -> String {
    let far = |of: fn(&Place<'_>) -> f64| places.iter().map(of).fold(0.0, f64::max);
    let width = far(|place| place.at.0) + BOX.0 + 4.0 * MARGIN;
    let height = far(|place| place.at.1) + BOX.1 + MARGIN;
    let mut svg = format!(
        "<figure><svg viewBox=\"0 0 {width:.0} {height:.0}\" role=\"img\" \
         aria-label=\"States and the ways between them, which the table below lists\">\n\
         <defs><marker id=\"tip\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"8\" \
         markerHeight=\"8\" orient=\"auto\"><path class=\"tip\" d=\"M0 0L8 4L0 8z\"/></marker></defs>\n"
    );
    let find = |name: &str| places.iter().find(|place| place.name == name);
    let mut drawn: Vec<(&str, &str)> = Vec::new();
    for way in ways {
        let (Some(from), Some(to)) = (find(way.from), find(way.to)) else { continue };
        if way.from == way.to || drawn.contains(&(way.from, way.to)) {
            continue;
        }
        drawn.push((way.from, way.to));
        let _ = writeln!(
            svg,
            "<path class=\"way\" marker-end=\"url(#tip)\" d=\"{}\"/>",
            curve(from, to)
        );
    }
    for place in places {
        let (x, y) = place.at;
        let ends = ways.iter().any(|way| way.from == place.name && way.to == OUTSIDE);
        let class = if ends { "state end" } else { "state" };
        let _ = writeln!(
            svg,
            "<rect class=\"{class}\" x=\"{:.0}\" y=\"{:.0}\" width=\"{:.0}\" height=\"{:.0}\" \
             rx=\"8\"/><text x=\"{x:.0}\" y=\"{y:.0}\">{}</text>",
            x - BOX.0,
            y - BOX.1,
            2.0 * BOX.0,
            2.0 * BOX.1,
            escape(place.name)
        );
    }
    svg.push_str("</svg></figure>\n");
    svg
}

/// From border to border, bent to one side so that a way and the way back are two lines, and far enough
/// to pass by what stands between two states of a column.
fn curve(from: &Place<'_>, to: &Place<'_>) -> String {
    let (dx, dy) = (to.at.0 - from.at.0, to.at.1 - from.at.1);
    let length = dx.hypot(dy).max(1.0);
    let bend = if from.column == to.column { length * 0.55 } else { 24.0 };
    let middle = (from.at.0.midpoint(to.at.0), from.at.1.midpoint(to.at.1));
    let control = (middle.0 + dy / length * bend, middle.1 - dx / length * bend);
    let (start, end) = (border(from.at, control), border(to.at, control));
    format!(
        "M{:.0} {:.0}Q{:.0} {:.0} {:.0} {:.0}",
        start.0, start.1, control.0, control.1, end.0, end.1
    )
}

/// Where the line from the middle of a box to a point leaves the box.
fn border(middle: (f64, f64), towards: (f64, f64)) -> (f64, f64) {
    let (dx, dy) = (towards.0 - middle.0, towards.1 - middle.1);
    let reach = (BOX.0 / dx.abs().max(0.001)).min(BOX.1 / dy.abs().max(0.001));
    (middle.0 + dx * reach, middle.1 + dy * reach)
}

fn table(ways: &[Way<'_>]) -> String {
    let mut table = String::from(
        "<div class=\"table\" tabindex=\"0\"><table><thead><tr><th>from</th><th>to</th><th>when</th></tr></thead><tbody>\n",
    );
    for way in ways.iter().filter(|way| way.from != OUTSIDE && way.to != OUTSIDE) {
        let _ = writeln!(
            table,
            "<tr><td>{}</td><td>{}</td><td>{}</td></tr>",
            escape(way.from),
            escape(way.to),
            escape(way.when)
        );
    }
    table.push_str("</tbody></table></div>\n");
    table
}

/// A count of rows or columns, of which there are few.
fn real(count: usize) -> f64 {
    f64::from(u16::try_from(count).unwrap_or(u16::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_is_in_the_table_and_every_state_in_the_picture() {
        let drawn = write(
            "stateDiagram-v2\n    [*] --> new: made\n    new --> new: again\n    new --> done: all <b>\n    \
             done --> new: back\n    done --> [*]\n",
        );
        for text in [">new</text>", ">done</text>", "<td>all &lt;b&gt;</td>", "state end"] {
            assert_eq!(drawn.matches(text).count(), 1, "{text} in {drawn}");
        }
        assert_eq!(drawn.matches("class=\"way\"").count(), 2, "there and back: {drawn}");
        assert_eq!(drawn.matches("<tr><td>").count(), 3, "{drawn}");
    }
}
