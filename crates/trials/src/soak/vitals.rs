//! What a process uses of the machine at one moment, and whether that grows.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::bench::process::Process;

/// As `/proc` shows it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Vitals {
    pub(crate) resident_mebibytes: f64,
    pub(crate) peak_mebibytes: f64,
    pub(crate) descriptors: u64,
    pub(crate) threads: u64,
    /// Processor time since its start.
    pub(crate) processor: Duration,
}

impl Vitals {
    pub(crate) fn of(process: &mut Process) -> Result<Self> {
        let folder = format!("/proc/{}", process.child().id());
        let usage = process.usage().context("a soak needs a /proc to read")?;
        let status = fs::read_to_string(format!("{folder}/status"))?;
        let threads = status.lines().find_map(|line| line.strip_prefix("Threads:"));
        let threads = threads.and_then(|count| count.trim().parse().ok());
        Ok(Self {
            resident_mebibytes: usage.resident_mebibytes,
            peak_mebibytes: usage.peak_mebibytes,
            descriptors: fs::read_dir(format!("{folder}/fd"))?.count() as u64,
            threads: threads.context("the system does not say how many threads there are")?,
            processor: usage.processor,
        })
    }
}

/// How much a line through the points of the second half rises from its beginning to its end, as a
/// ratio. None where there are too few points for a line.
pub(crate) fn growth_of_second_half(points: &[(f64, f64)]) -> Option<f64> {
    let half = &points[points.len() / 2..];
    let (first, last) = (half.first()?.0, half.last()?.0);
    let (intercept, slope) = line_through(half)?;
    let (begins, ends) = (intercept + slope * first, intercept + slope * last);
    (begins > 0.0).then(|| ends / begins)
}

/// By least squares: where it is at 0, and how much it rises a unit.
fn line_through(points: &[(f64, f64)]) -> Option<(f64, f64)> {
    #[expect(clippy::cast_precision_loss, reason = "samples are few")]
    let count = points.len() as f64;
    let mean = |values: &dyn Fn(&(f64, f64)) -> f64| points.iter().map(values).sum::<f64>() / count;
    let (mean_x, mean_y) = (mean(&|point| point.0), mean(&|point| point.1));
    let spread: f64 = points.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
    let shared: f64 = points.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
    (spread > 0.0).then(|| {
        let slope = shared / spread;
        (mean_y - slope * mean_x, slope)
    })
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn growth_is_that_of_the_second_half() {
        let close = |points: &[(f64, f64)], expected: f64| {
            let growth = growth_of_second_half(points).expect("a line");
            assert!((growth - expected).abs() < 1e-9, "{growth} instead of {expected}");
        };
        let flat = [(0.0, 1.0), (1.0, 90.0), (2.0, 50.0), (3.0, 50.0), (4.0, 50.0)];
        close(&flat, 1.0);
        close(&[(0.0, 7.0), (1.0, 7.0), (2.0, 100.0), (3.0, 150.0)], 1.5);
        close(&[(0.0, 7.0), (1.0, 7.0), (2.0, 100.0), (3.0, 50.0)], 0.5);
    }

    #[test]
    fn too_few_points_are_no_line() {
        for points in [&[][..], &[(0.0, 1.0)], &[(0.0, 1.0), (1.0, 1.0)]] {
            assert_eq!(growth_of_second_half(points), None);
        }
    }

    #[test]
    fn descriptors_and_threads_are_counted() {
        let mut command = Command::new("cat");
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut process = Process::spawn(command).expect("cat starts");
        let vitals = Vitals::of(&mut process).expect("there is a /proc");
        assert!(vitals.descriptors >= 3, "{vitals:?}");
        assert_eq!(vitals.threads, 1);
    }
}
