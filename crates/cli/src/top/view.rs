//! The picture: a pure function of what was seen and how it is to be shown. Everything that came from
//! outside is made inert before it is drawn.

use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::widgets::{Sparkline, Widget as _};
use ratatui::{Frame, Terminal};

use super::Seen;
use super::keys::Ui;
use super::snapshot::{Endpoint, Flow, Node, Snapshot};
use crate::output::{clock, inert, inert_to, relative};
use crate::progress::grouped;

/// The size of a picture that is printed as text, which is as high as it has to be, but not higher.
const TEXT_COLUMNS: u16 = 120;
const MAX_TEXT_ROWS: u16 = 60;

/// How many rows stand above the endpoints, and beneath.
const HEAD_ROWS: usize = 9;
/// How many nodes are shown, if there are several.
const MAX_NODES: usize = 6;

const PLAIN: Style = Style::new();
const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
const DIM: Style = Style::new().add_modifier(Modifier::DIM);
const BAD: Style = Style::new().fg(Color::Red);
const WARN: Style = Style::new().fg(Color::Yellow);
const GOOD: Style = Style::new().fg(Color::Green);

const HELP: [&str; 7] = [
    "q, Esc       quit, or close this",
    "p, space     pause, and go on",
    "s            sort in another order: worst, waiting, failures, name",
    "up, down     scroll; page up, page down, home",
    "?            this help",
    "",
    "Waiting is what is not at its end. Failures are attempts of the last hour.",
];

/// Draws what was seen, as much of it as there is room for.
pub(super) fn draw(frame: &mut Frame<'_>, seen: &Seen, ui: &mut Ui) {
    let area = frame.area();
    let mut page = Page { buffer: frame.buffer_mut(), rest: area };
    head(&mut page, seen, *ui);
    // From here on the most important comes first: what there is no room for is left out.
    let foot = page.take_last();
    if ui.help {
        for line in HELP {
            page.line(&[(line, PLAIN)]);
        }
    } else if let Some(snapshot) = &seen.snapshot {
        body(&mut page, snapshot, ui);
    } else if seen.trouble.is_none() {
        page.line(&[("asking the gateway …", DIM)]);
    }
    if let Some(mut foot) = foot.map(|rest| Page { buffer: page.buffer, rest }) {
        let sort = format!("s sort: {}", ui.sort.as_str());
        foot.line(&[("q quit  p pause  ", DIM), (&sort, DIM), ("  ↑↓ scroll  ? help", DIM)]);
    }
}

/// One picture as text.
pub(super) fn text(seen: &Seen) -> String {
    let snapshot = seen.snapshot.as_ref();
    let rows = snapshot.map_or(0, |snapshot| snapshot.endpoints.len() + snapshot.nodes.len());
    let rows = u16::try_from(rows + HEAD_ROWS + 2).unwrap_or(MAX_TEXT_ROWS).min(MAX_TEXT_ROWS);
    let Ok(mut terminal) = Terminal::new(TestBackend::new(TEXT_COLUMNS, rows));
    let Ok(drawn) = terminal.draw(|frame| draw(frame, seen, &mut Ui::default()));
    let mut lines = lines(drawn.buffer);
    // The last one says which keys there are.
    lines.pop();
    while lines.last().is_some_and(String::is_empty) {
        lines.pop();
    }
    lines.push(String::new());
    lines.join("\n")
}

/// The rows of a picture, without the blanks at their ends.
fn lines(buffer: &Buffer) -> Vec<String> {
    let width = usize::from(buffer.area.width).max(1);
    let rows = buffer.content.chunks(width);
    let row = |cells: &[ratatui::buffer::Cell]| {
        let mut text = String::new();
        let mut hidden = 0;
        for cell in cells {
            // What stands behind a wide character is under it.
            if hidden > 0 {
                hidden -= 1;
                continue;
            }
            text.push_str(cell.symbol());
            hidden = unicode_width::UnicodeWidthStr::width(cell.symbol()).saturating_sub(1);
        }
        text.trim_end().to_owned()
    };
    rows.map(row).collect()
}

fn head(page: &mut Page<'_>, seen: &Seen, ui: Ui) {
    let gateway = inert(&seen.gateway);
    let at = seen.snapshot.as_ref().map(|snapshot| clock(snapshot.at)).unwrap_or_default();
    let paused = if ui.paused { "  paused" } else { "" };
    page.line(&[
        ("postrider top  ", BOLD),
        (&gateway, PLAIN),
        ("  ", PLAIN),
        (&at, DIM),
        (paused, WARN),
    ]);
    if let Some(trouble) = &seen.trouble {
        let trouble = inert_to(trouble, usize::from(page.rest.width));
        page.line(&[(&trouble, BAD)]);
    }
}

fn body(page: &mut Page<'_>, snapshot: &Snapshot, ui: &mut Ui) {
    let counts = &snapshot.counts;
    let waiting = grouped(counts.waiting());
    let parts = format!(
        " ({} new, {} retrying, {} in flight)",
        grouped(counts.pending),
        grouped(counts.retrying),
        grouped(counts.in_flight)
    );
    let oldest = match snapshot.oldest_waiting_at {
        Some(at) => format!("  oldest {}", relative(at, snapshot.at)),
        None => String::new(),
    };
    page.line(&[("waiting ", DIM), (&waiting, BOLD), (&parts, PLAIN), (&oldest, WARN)]);
    let [delivered, failed, dead] = [counts.delivered, counts.failed, counts.dead].map(grouped);
    let bad = |count: u64| if count > 0 { BAD } else { PLAIN };
    page.line(&[
        ("delivered ", DIM),
        (&delivered, GOOD),
        ("  failed ", DIM),
        (&failed, bad(counts.failed)),
        ("  dead ", DIM),
        (&dead, bad(counts.dead)),
    ]);
    let [half, most, nearly_all] = snapshot.latency.map(millis);
    page.line(&[
        ("latency p50 ", DIM),
        (&half, PLAIN),
        ("  p95 ", DIM),
        (&most, PLAIN),
        ("  p99 ", DIM),
        (&nearly_all, PLAIN),
    ]);
    page.flow("in ", &snapshot.received);
    page.flow("out", &snapshot.delivered);
    page.skip();
    if snapshot.nodes.len() > 1 {
        nodes(page, &snapshot.nodes);
        page.skip();
    }
    endpoints(page, snapshot, ui);
}

fn nodes(page: &mut Page<'_>, nodes: &[Node]) {
    for node in nodes.iter().take(MAX_NODES) {
        let (state, style) = if node.live { ("live", GOOD) } else { ("gone", BAD) };
        let work = format!(
            "  {} lanes  {} in flight  lag {:.1} s",
            node.lanes, node.in_flight, node.lag_seconds
        );
        let name = format!("node {}  ", inert_to(&node.name, 24));
        page.line(&[(&name, PLAIN), (state, style), (&work, PLAIN)]);
    }
    if nodes.len() > MAX_NODES {
        page.line(&[(&format!("and {} more nodes", nodes.len() - MAX_NODES), DIM)]);
    }
}

/// A line for each, from the one that is scrolled to.
fn endpoints(page: &mut Page<'_>, snapshot: &Snapshot, ui: &mut Ui) {
    let mut sorted = snapshot.clone();
    sorted.sort(ui.sort);
    let room = usize::from(page.rest.height).saturating_sub(1);
    ui.scroll = ui.scroll.min(sorted.endpoints.len().saturating_sub(room.max(1)));
    let name_columns = (usize::from(page.rest.width) / 5).clamp(8, 32);
    let heading = format!(
        "{:<name_columns$} {:<8} {:>7} {:>8} {:>7}  last error",
        "endpoint", "state", "waiting", "failures", "dead"
    );
    page.line(&[(&heading, BOLD)]);
    if sorted.endpoints.is_empty() {
        page.line(&[("There is no endpoint yet.", DIM)]);
    }
    for endpoint in sorted.endpoints.iter().skip(ui.scroll).take(room) {
        row(page, endpoint, name_columns);
    }
}

fn row(page: &mut Page<'_>, endpoint: &Endpoint, name_columns: usize) {
    let Some(line) = page.take() else { return };
    let style = match endpoint.trouble() {
        0 => PLAIN,
        1 | 2 => WARN,
        3.. => BAD,
    };
    let bad = endpoint.counts.failed.saturating_add(endpoint.counts.dead);
    let numbers = format!(
        "{:>7} {:>8} {:>7}",
        short(endpoint.counts.waiting()),
        short(endpoint.failures),
        short(bad)
    );
    let error = endpoint.last_error.as_deref().map(|error| inert_to(error, 400));
    // By columns of the terminal, which a character may take two of.
    let mut x = usize::from(line.x);
    for (text, columns, style) in [
        (&*inert_to(&endpoint.name, name_columns), name_columns, style),
        (&*inert_to(endpoint.condition(), 8), 8, style),
        (&*numbers, 24, PLAIN),
        ("", 0, PLAIN),
        (error.as_deref().unwrap_or_default(), usize::MAX, DIM),
    ] {
        let room = usize::from(line.right()).saturating_sub(x);
        let Ok(at) = u16::try_from(x) else { return };
        if room == 0 {
            return;
        }
        page.buffer.set_stringn(at, line.y, text, columns.min(room), style);
        x = x.saturating_add(columns).saturating_add(1);
    }
}

/// A number in at most seven characters.
fn short(number: u64) -> String {
    match number {
        0..1_000_000 => grouped(number),
        1_000_000..1_000_000_000 => format!("{}.{}M", number / 1_000_000, number / 100_000 % 10),
        1_000_000_000.. => format!("{}G", number / 1_000_000_000),
    }
}

fn millis(time: Option<u64>) -> String {
    match time {
        None => "–".to_owned(),
        Some(millis @ 0..10_000) => format!("{} ms", grouped(millis)),
        Some(millis) => format!("{} s", grouped(millis / 1_000)),
    }
}

/// What is left to draw on, from the top.
struct Page<'a> {
    buffer: &'a mut Buffer,
    rest: Rect,
}

impl Page<'_> {
    /// The next line, if there is one.
    fn take(&mut self) -> Option<Rect> {
        if self.rest.height == 0 {
            return None;
        }
        let line = Rect { height: 1, ..self.rest };
        self.skip();
        Some(line)
    }

    fn take_last(&mut self) -> Option<Rect> {
        self.rest.height = self.rest.height.checked_sub(1)?;
        Some(Rect { y: self.rest.bottom(), height: 1, ..self.rest })
    }

    fn skip(&mut self) {
        if let Some(height) = self.rest.height.checked_sub(1) {
            self.rest = Rect { y: self.rest.y + 1, height, ..self.rest };
        }
    }

    fn line(&mut self, parts: &[(&str, Style)]) {
        let Some(line) = self.take() else { return };
        let mut x = line.x;
        for (text, style) in parts {
            let room = usize::from(line.right().saturating_sub(x));
            (x, _) = self.buffer.set_stringn(x, line.y, text, room, *style);
        }
    }

    /// How much a second, and how it was in the last hour.
    fn flow(&mut self, name: &str, flow: &Flow) {
        let Some(line) = self.take() else { return };
        let text = format!("{name} {:>9.1}/s ", flow.per_second);
        let room = usize::from(line.width);
        let (x, _) = self.buffer.set_stringn(line.x, line.y, text, room, PLAIN);
        let width = line.right().saturating_sub(x);
        let newest = flow.minutes.len().saturating_sub(width.into());
        let chart = Rect { x, width, ..line };
        Sparkline::default().data(&flow.minutes[newest..]).style(GOOD).render(chart, self.buffer);
    }
}

#[cfg(test)]
mod tests;
