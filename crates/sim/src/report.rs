//! What is said of all worlds together.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use crate::history::{FaultKind, Hitch};
use crate::world::Ended;

const SECONDS_PER_DAY: f64 = 86_400.0;

#[derive(Debug)]
pub(crate) struct Totals {
    begun: Instant,
    worlds: u64,
    /// Worlds in which a rule was broken.
    pub(crate) broken: u64,
    /// Virtual time lived through, and no other.
    lasted: Duration,
    events: usize,
    arrivals: usize,
    faults: BTreeMap<FaultKind, u64>,
    hitches: BTreeMap<Hitch, u64>,
}

impl Totals {
    pub(crate) fn begin() -> Self {
        Self {
            begun: Instant::now(),
            worlds: 0,
            broken: 0,
            lasted: Duration::ZERO,
            events: 0,
            arrivals: 0,
            faults: BTreeMap::new(),
            hitches: BTreeMap::new(),
        }
    }

    pub(crate) fn add(&mut self, ended: &Ended) {
        self.worlds += 1;
        self.lasted += ended.lasted;
        self.events += ended.events;
        self.arrivals += ended.arrivals;
        for fault in &ended.faults {
            *self.faults.entry(fault.kind).or_default() += 1;
        }
        for (hitch, count) in &ended.hitches {
            *self.hitches.entry(*hitch).or_default() += count;
        }
    }

    /// How far it has got, in one line.
    pub(crate) fn line(&self) -> String {
        let Self { worlds, broken, .. } = self;
        let (days, took) = (self.days(), self.begun.elapsed().as_secs_f64());
        format!("{worlds} worlds, {broken} broken, {days:.0} virtual days in {took:.0} s")
    }

    fn days(&self) -> f64 {
        self.lasted.as_secs_f64() / SECONDS_PER_DAY
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let took = self.begun.elapsed().as_secs_f64();
        let per_minute = self.days() / took.max(f64::EPSILON) * 60.0;
        writeln!(f, "worlds          {:>9}", self.worlds)?;
        writeln!(f, "broken          {:>9}", self.broken)?;
        writeln!(f, "virtual days    {:>9.1}", self.days())?;
        writeln!(f, "wall seconds    {took:>9.1}")?;
        writeln!(f, "days a minute   {per_minute:>9.0}")?;
        writeln!(f, "events          {:>9}", self.events)?;
        writeln!(f, "arrivals        {:>9}", self.arrivals)?;
        write!(f, "what went wrong")?;
        for (fault, count) in &self.faults {
            write!(f, "\n  {fault:<22} {count:>9}")?;
        }
        for (hitch, count) in &self.hitches {
            write!(f, "\n  {hitch:<22} {count:>9}")?;
        }
        Ok(())
    }
}
