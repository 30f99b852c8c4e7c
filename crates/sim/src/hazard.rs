//! What can go wrong in a world, and what of a world can be left out to see what it takes to fail.

use std::fmt;

use clap::ValueEnum;

/// Something that can go wrong, as far as it can be left out by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Hazard {
    /// Processes that die between two things that they do
    Crashes,
    /// A store that does nothing and says so
    Refusals,
    /// A store that does what it is asked and reports a failure
    Unheard,
    /// Operations of the store that take their time
    Slowness,
    /// Requests, answers and words that get lost
    Loss,
    /// Requests, answers and words that come late
    Delay,
    /// Requests and words that come twice
    Duplication,
    /// Processes that stand still, some beyond their lease
    Pauses,
    /// Clocks that are set by up to a day
    Jumps,
    /// Disks without room
    FullDisks,
    /// Nodes that do not reach the store
    CutOffs,
    /// Nodes that do not reach the endpoints
    Partitions,
    /// Endpoints that fail for a while
    Outages,
    /// Endpoints that are slow, refuse, lie or hang by nature
    Manners,
    /// An operator who pauses, deletes, cancels and replays
    Operator,
}

impl Hazard {
    pub(crate) const ALL: [Self; 15] = [
        Self::Crashes,
        Self::Refusals,
        Self::Unheard,
        Self::Slowness,
        Self::Loss,
        Self::Delay,
        Self::Duplication,
        Self::Pauses,
        Self::Jumps,
        Self::FullDisks,
        Self::CutOffs,
        Self::Partitions,
        Self::Outages,
        Self::Manners,
        Self::Operator,
    ];
}

/// What of a world is left out, as the command line says it.
#[derive(Debug, Clone, Default, PartialEq, Eq, clap::Args)]
pub(crate) struct Cuts {
    /// Only the first so many events
    #[arg(long, value_name = "N", requires = "seed")]
    pub(crate) events: Option<u64>,

    /// Only these endpoints, by their place in the scenario, from 0
    #[arg(long, value_name = "PLACE,…", value_delimiter = ',', requires = "seed")]
    pub(crate) endpoints: Option<Vec<usize>>,

    /// Without some of what goes wrong
    #[arg(long, value_name = "HAZARD,…", value_delimiter = ',', requires = "seed")]
    pub(crate) without: Vec<Hazard>,
}

impl fmt::Display for Cuts {
    /// As it is written on the command line, with a space before each option.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(events) = self.events {
            write!(f, " --events {events}")?;
        }
        if let Some(endpoints) = &self.endpoints {
            let places: Vec<String> = endpoints.iter().map(ToString::to_string).collect();
            write!(f, " --endpoints {}", places.join(","))?;
        }
        let named = |hazard: &Hazard| Some(hazard.to_possible_value()?.get_name().to_owned());
        let without: Vec<String> = self.without.iter().filter_map(named).collect();
        if !without.is_empty() {
            write!(f, " --without {}", without.join(","))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_are_written_as_they_are_typed() {
        let cuts = Cuts {
            events: Some(12),
            endpoints: Some(vec![1, 3]),
            without: vec![Hazard::Pauses, Hazard::FullDisks],
        };
        assert_eq!(cuts.to_string(), " --events 12 --endpoints 1,3 --without pauses,full-disks");
        assert_eq!(Cuts::default().to_string(), "");
    }

    #[test]
    fn every_hazard_can_be_named() {
        assert_eq!(Hazard::ALL.as_slice(), Hazard::value_variants());
    }
}
