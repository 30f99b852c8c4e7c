//! The kinds of faults there are, on which store each can happen, and what each may cost.

use super::{clock, disk, power};

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Store {
    Sqlite,
    Postgres,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub(crate) enum Kind {
    /// `kill -9` at any moment
    Kill,
    /// SIGSTOP, and SIGCONT after the lease has run out
    Stop,
    /// A disk without room; sqlite only
    Disk,
    /// The server restarted, in order and not; postgres only
    Restart,
    /// A network that delays, resets, swallows and cuts short
    Proxy,
    /// A clock that is set by hours and days
    Clock,
    /// Writes that were not synced are gone; sqlite only
    Power,
}

impl Kind {
    pub(crate) const ALL: [Self; 7] =
        [Self::Kill, Self::Stop, Self::Disk, Self::Restart, Self::Proxy, Self::Clock, Self::Power];

    /// As it is given on the command line.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::Stop => "stop",
            Self::Disk => "disk",
            Self::Restart => "restart",
            Self::Proxy => "proxy",
            Self::Clock => "clock",
            Self::Power => "power",
        }
    }

    pub(crate) const fn happens_on(self, store: Store) -> bool {
        match self {
            Self::Kill | Self::Stop | Self::Proxy | Self::Clock => true,
            Self::Disk | Self::Power => matches!(store, Store::Sqlite),
            Self::Restart => matches!(store, Store::Postgres),
        }
    }

    /// Why it cannot be done on this machine. What it needs is installed where that needs no
    /// question.
    pub(crate) fn obstacle(self) -> Option<String> {
        match self {
            Self::Kill | Self::Stop | Self::Restart | Self::Proxy => None,
            Self::Disk => disk::require().err().map(|error| format!("{error:#}")),
            Self::Clock => clock::require().err().map(|error| format!("{error:#}")),
            Self::Power => power::require().err().map(|error| format!("{error:#}")),
        }
    }
}

impl Store {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum as _;

    use super::*;

    #[test]
    fn names_are_those_of_the_command_line() {
        for kind in Kind::ALL {
            let known = kind.to_possible_value().expect("a value");
            assert_eq!(known.get_name(), kind.name());
            assert!([Store::Sqlite, Store::Postgres].iter().any(|store| kind.happens_on(*store)));
        }
        assert_eq!(Kind::value_variants(), Kind::ALL);
        for store in Store::value_variants() {
            assert_eq!(store.to_possible_value().expect("a value").get_name(), store.name());
        }
    }
}
