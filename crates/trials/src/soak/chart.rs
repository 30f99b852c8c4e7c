//! Figures over time as an SVG that needs nothing else: panels below each other, readable on a light
//! and on a dark page.

use std::fmt::Write as _;

/// One picture.
#[derive(Debug)]
pub(crate) struct Chart {
    pub(crate) title: String,
    /// What the horizontal axes count.
    pub(crate) across: &'static str,
    pub(crate) panels: Vec<Panel>,
}

/// Figures with axes of their own, both from 0.
#[derive(Debug)]
pub(crate) struct Panel {
    pub(crate) title: String,
    pub(crate) series: Vec<Series>,
}

#[derive(Debug)]
pub(crate) struct Series {
    pub(crate) name: String,
    /// In order of the first, which is the place on the horizontal axis.
    pub(crate) points: Vec<(f64, f64)>,
}

const WIDTH: f64 = 800.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 44.0;
/// Of a panel: its title, the drawing, and what is below.
const HEAD: f64 = 26.0;
const BODY: f64 = 110.0;
const GAP: f64 = 24.0;
const BOTTOM: f64 = 34.0;
/// About how many lines there are across a panel.
const LINES: f64 = 4.0;
const LINES_DOWN: f64 = 8.0;
/// More cannot be told apart at this width.
const MAX_POINTS: usize = 600;

/// Told apart by dashes too, for those who do not see the colours. As many as a panel may have.
const DASHES: [&str; 4] = ["none", "6 3", "2 3", "8 3 2 3"];

/// Both pages have contrast enough for every colour on them.
const STYLE: &str = "\
.page{fill:#ffffff}.text{fill:#1f2328;font:12px system-ui,sans-serif}\
.title{font-size:15px;font-weight:600}.head{font-weight:600}\
.grid{stroke:#d0d7de;stroke-width:1}.axis{stroke:#59636e;stroke-width:1}\
.s{fill:none;stroke-width:1.8;stroke-linejoin:round}\
.s0{stroke:#0550ae}.s1{stroke:#bc4c00}.s2{stroke:#116329}.s3{stroke:#8250df}\
@media (prefers-color-scheme:dark){\
.page{fill:#0d1117}.text{fill:#e6edf3}.grid{stroke:#30363d}.axis{stroke:#8d96a0}\
.s0{stroke:#79c0ff}.s1{stroke:#ffa657}.s2{stroke:#7ee787}.s3{stroke:#d2a8ff}}";

impl Chart {
    pub(crate) fn render(&self) -> String {
        let height = TOP + per_panel() * count(self.panels.len()) + BOTTOM;
        let mut svg = String::new();
        let title = escaped(&self.title);
        let _ = writeln!(
            svg,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
             width=\"{WIDTH}\" height=\"{height}\" role=\"img\" aria-label=\"{title}\">\n\
             <title>{title}</title>\n<style>{STYLE}</style>\n\
             <rect class=\"page\" width=\"{WIDTH}\" height=\"{height}\"/>\n\
             <text class=\"text title\" x=\"{LEFT}\" y=\"26\">{title}</text>"
        );
        for (index, panel) in self.panels.iter().enumerate() {
            let top = TOP + per_panel() * count(index) + HEAD;
            panel.draw(&mut svg, top);
        }
        let _ = writeln!(
            svg,
            "<text class=\"text\" x=\"{:.0}\" y=\"{:.0}\" text-anchor=\"middle\">{}</text>\n</svg>",
            f64::midpoint(LEFT, WIDTH - RIGHT),
            height - 8.0,
            escaped(self.across)
        );
        svg
    }
}

impl Panel {
    fn draw(&self, svg: &mut String, top: f64) {
        let points = || self.series.iter().flat_map(|series| &series.points);
        let longest = points().map(|(x, _)| *x).fold(0.0, f64::max);
        // With a rounded end the lines would stop short of the edge.
        let across = Scale { step: nice_step(longest, LINES_DOWN), end: longest.max(1e-9) };
        let up = Scale::rounded(points().map(|(_, y)| *y).fold(0.0, f64::max));
        let (bottom, right) = (top + BODY, WIDTH - RIGHT);
        let x_of = |x: f64| LEFT + (right - LEFT) * (x / across.end);
        let y_of = |y: f64| bottom - BODY * (y / up.end);
        let head = top - 9.0;
        let _ = writeln!(
            svg,
            "<text class=\"text head\" x=\"{LEFT}\" y=\"{head:.1}\">{}</text>",
            escaped(&self.title)
        );
        for tick in up.ticks() {
            let y = y_of(tick);
            let _ = writeln!(
                svg,
                "<line class=\"grid\" x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{right}\" y2=\"{y:.1}\"/>\
                 <text class=\"text\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT - 8.0,
                y + 4.0,
                label(tick, up.step)
            );
        }
        for tick in across.ticks() {
            let x = x_of(tick);
            let _ = writeln!(
                svg,
                "<line class=\"axis\" x1=\"{x:.1}\" y1=\"{bottom:.1}\" x2=\"{x:.1}\" y2=\"{:.1}\"/>\
                 <text class=\"text\" x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                bottom + 4.0,
                bottom + 17.0,
                label(tick, across.step)
            );
        }
        let _ = writeln!(
            svg,
            "<line class=\"axis\" x1=\"{LEFT}\" y1=\"{bottom:.1}\" x2=\"{right}\" y2=\"{bottom:.1}\"/>"
        );
        for (index, series) in self.series.iter().enumerate() {
            let (class, dashes) = (index % DASHES.len(), DASHES[index % DASHES.len()]);
            let mut path = String::new();
            for (x, y) in thinned(&series.points) {
                let _ = write!(path, "{:.1},{:.1} ", x_of(x), y_of(y));
            }
            let _ = writeln!(
                svg,
                "<polyline class=\"s s{class}\" stroke-dasharray=\"{dashes}\" points=\"{}\"/>",
                path.trim_end()
            );
            self.name(svg, index, head, right);
        }
    }

    /// The name of a series with a piece of its line, to the right of the panel's title; none where
    /// there is only one.
    fn name(&self, svg: &mut String, index: usize, y: f64, right: f64) {
        const WIDE: f64 = 130.0;
        if self.series.len() < 2 {
            return;
        }
        let (class, dashes) = (index % DASHES.len(), DASHES[index % DASHES.len()]);
        let x = right - WIDE * count(self.series.len() - index);
        let _ = writeln!(
            svg,
            "<line class=\"s s{class}\" stroke-dasharray=\"{dashes}\" x1=\"{x:.1}\" y1=\"{line:.1}\" \
             x2=\"{:.1}\" y2=\"{line:.1}\"/><text class=\"text\" x=\"{:.1}\" y=\"{y:.1}\">{}</text>",
            x + 22.0,
            x + 28.0,
            escaped(&self.series[index].name),
            line = y - 4.0,
        );
    }
}

const fn per_panel() -> f64 {
    HEAD + BODY + GAP
}

/// An axis from 0.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Scale {
    step: f64,
    end: f64,
}

impl Scale {
    /// Ends at a step, so that the highest figure is below a line.
    fn rounded(highest: f64) -> Self {
        let step = nice_step(highest, LINES);
        Self { step, end: step * (highest / step).ceil().max(1.0) }
    }

    fn ticks(self) -> impl Iterator<Item = f64> {
        // A little beyond the end, for what rounding leaves of the last one.
        let end = self.end * (1.0 + 1e-9);
        (0..=20_u32).map(move |index| self.step * f64::from(index)).take_while(move |at| *at <= end)
    }
}

/// 1, 2 or 5 times a power of ten, of which about `lines` make up `highest`.
fn nice_step(highest: f64, lines: f64) -> f64 {
    let rough = highest.max(1e-9) / lines;
    let power = 10_f64.powf(rough.log10().floor());
    let times = [1.0, 2.0, 5.0].into_iter().find(|times| times * power >= rough).unwrap_or(10.0);
    times * power
}

/// With as many digits as tell two steps apart.
fn label(value: f64, step: f64) -> String {
    if step >= 1.0 {
        format!("{value:.0}")
    } else if step >= 0.1 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}

/// No more than [`MAX_POINTS`]: the highest of each group, because peaks are what is looked for.
fn thinned(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let group = points.len().div_ceil(MAX_POINTS).max(1);
    let highest = |group: &[(f64, f64)]| group.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1));
    points.chunks(group).filter_map(highest).collect()
}

#[expect(clippy::cast_precision_loss, reason = "panels and series are few")]
fn count(count: usize) -> f64 {
    count as f64
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_have_a_few_round_steps_and_hold_the_highest() {
        for (highest, step, end) in [
            (0.0, 5e-10, 5e-10),
            (0.9, 0.5, 1.0),
            (7.0, 2.0, 8.0),
            (83.0, 50.0, 100.0),
            (100.0, 50.0, 100.0),
            (1_234.0, 500.0, 1_500.0),
        ] {
            let scale = Scale::rounded(highest);
            assert!((scale.step - step).abs() < step * 1e-6, "{highest}: {scale:?}");
            assert!((scale.end - end).abs() < end * 1e-6, "{highest}: {scale:?}");
            assert!((2..=9).contains(&scale.ticks().count()), "{highest}: {scale:?}");
        }
    }

    #[test]
    fn many_points_become_few_and_the_peak_stays() {
        let mut points: Vec<(f64, f64)> = (0..10_000).map(|x| (f64::from(x), 1.0)).collect();
        points[7_777].1 = 99.0;
        let thin = thinned(&points);
        assert!(thin.len() <= MAX_POINTS);
        assert!(thin.contains(&(7_777.0, 99.0)));
        assert_eq!(thinned(&points[..3]), points[..3]);
    }

    #[test]
    fn a_chart_has_its_titles_names_and_lines_and_is_inert() {
        let series =
            |name: &str| Series { name: name.into(), points: vec![(0.0, 1.0), (2.0, 3.0)] };
        let chart = Chart {
            title: "a < b".into(),
            across: "seconds",
            panels: vec![
                Panel { title: "memory, MiB".into(), series: vec![series("only")] },
                Panel { title: "rate".into(), series: vec![series("in & out"), series("ended")] },
            ],
        };
        let svg = chart.render();
        for wanted in ["a &lt; b", "memory, MiB", "in &amp; out", "ended", "seconds", "</svg>"] {
            assert!(svg.contains(wanted), "{wanted} is not in {svg}");
        }
        assert!(!svg.contains("only"), "a single series is named by its panel");
        assert_eq!(svg.matches("<polyline").count(), 3);
        assert!(svg.contains("prefers-color-scheme:dark"));
    }
}
