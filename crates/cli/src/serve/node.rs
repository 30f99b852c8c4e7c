//! What a node says of itself where several share one server, and how many connections it has there.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::time::Duration;

use anyhow::anyhow;
use postrider_core::lane::{DEFAULT_LANES, MAX_LANES};
use postrider_core::span;
use postrider_engine::NodeOptions;
use postrider_store::postgres;

use crate::Failure;
use crate::stores::Place;

const HEADING: &str = "PostgreSQL";

const DEFAULT_LEASE: Duration = Duration::from_secs(10);
/// Shorter, a pause of the machine or of the network would be taken for the end of a node.
const SHORTEST_LEASE: Duration = Duration::from_secs(2);
/// Longer, what a node that has died was carrying would wait without need.
const LONGEST_LEASE: Duration = Duration::from_mins(5);

const MAX_NAME_CHARS: usize = 100;
/// What a node is called on a machine without a name.
const NAMELESS: &str = "postrider";
/// Where the system says what the machine is called: as it is known now, then as it was set up.
const HOST_NAMES: [&str; 2] = ["/proc/sys/kernel/hostname", "/etc/hostname"];

/// The most connections of each kind that a store takes.
const MAX_CONNECTIONS: i64 = 64;

#[derive(Debug, clap::Args)]
pub(super) struct NodeArgs {
    /// What people call this node where several share one database [default: the machine's name]
    #[arg(long, env = "POSTRIDER_NODE_NAME", help_heading = HEADING, value_name = "NAME", value_parser = node_name)]
    node_name: Option<String>,

    /// How long a node that does not answer keeps its lanes, before others carry on with them (2s
    /// to 5m). One that is stopped hands them over at once [default: 10s]
    #[arg(long, env = "POSTRIDER_LEASE", help_heading = HEADING, value_name = "DURATION", value_parser = lease)]
    lease: Option<Duration>,

    /// Into how many lanes endpoints are divided; nodes share these out evenly (1 to 4096). Fixed by
    /// the first start on a new database [default: 64]
    #[arg(long, env = "POSTRIDER_LANES", help_heading = HEADING, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=i64::from(MAX_LANES)))]
    lanes: Option<u16>,

    #[arg(long, env = "POSTRIDER_WRITERS", help_heading = HEADING, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=MAX_CONNECTIONS), help = writers_help())]
    writers: Option<u16>,

    /// Connections that read for deliveries, and as many again that read for the API [default: 2]
    #[arg(long, env = "POSTRIDER_READERS", help_heading = HEADING, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=MAX_CONNECTIONS))]
    readers: Option<u16>,
}

impl NodeArgs {
    /// Refuses what a store that one node has to itself cannot do anything with. A name does no
    /// harm.
    pub(super) fn check(&self, place: &Place) -> Result<(), Failure> {
        match place {
            Place::Server(_) => return Ok(()),
            Place::File(_) => {}
        }
        let given = [
            ("--lease", self.lease.is_some()),
            ("--lanes", self.lanes.is_some()),
            ("--writers", self.writers.is_some()),
            ("--readers", self.readers.is_some()),
        ];
        match given.into_iter().find(|(_, given)| *given) {
            None => Ok(()),
            Some((flag, _)) => Err(Failure::usage(anyhow!(
                "{flag} is about PostgreSQL, and the store is the file {place}, which one node at a \
                 time has: leave it out, or name a server with --store postgres://USER@HOST/NAME"
            ))),
        }
    }

    /// Where it listens is not known yet.
    pub(super) fn options(&self) -> NodeOptions {
        NodeOptions {
            name: self.node_name.clone().unwrap_or_else(|| host_name(&HOST_NAMES)),
            lease: self.lease.unwrap_or(DEFAULT_LEASE),
            lanes: self.lanes.unwrap_or(DEFAULT_LANES),
            ..NodeOptions::default()
        }
    }

    pub(super) fn pool(&self) -> postgres::Options {
        let usual = postgres::Options::default();
        let readers = self.readers.map(usize::from);
        postgres::Options {
            writers: self.writers.map_or(usual.writers, usize::from),
            journal_readers: readers.unwrap_or(usual.journal_readers),
            ledger_readers: readers.unwrap_or(usual.ledger_readers),
            ..usual
        }
    }
}

/// The file that a process keeps locked while it is a node.
const LOCK: &str = "postrider.node";
/// What tells this run of the machine from every other.
const BOOT: &str = "/proc/sys/kernel/random/boot_id";

/// Where a node runs: a file that it has locked, on this run of this machine. Nobody else can be
/// there, so whoever was there before is gone.
#[derive(Debug)]
pub(super) struct Spot {
    pub(super) name: String,
    /// Locked for as long as this is kept.
    _lock: File,
}

impl Spot {
    /// None if another process is there, or the machine does not say enough of itself: then a node
    /// that died here is waited for, as one that died elsewhere is.
    pub(super) fn take(directory: &Path) -> Option<Self> {
        let boot = std::fs::read_to_string(BOOT).ok()?;
        let lock = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(directory.join(LOCK))
            .ok()?;
        lock.try_lock().ok()?;
        let file = lock.metadata().ok()?;
        let name = format!("{}/{}/{}", boot.trim(), file.dev(), file.ino());
        Some(Self { name, _lock: lock })
    }
}

/// Says as well what all of them come to: that is what the server has to have room for.
fn writers_help() -> String {
    let usual = postgres::Options::default();
    let others = usual.connections() - usual.writers - usual.journal_readers - usual.ledger_readers;
    format!(
        "Connections that write. A node has --writers + 2 × --readers + {others} connections in \
         all: {} unless told otherwise, and the server's max_connections must have room for those \
         of every node [default: {}]",
        usual.connections(),
        usual.writers
    )
}

fn lease(text: &str) -> Result<Duration, String> {
    let lease = span::parse(text).map_err(|error| error.to_string())?;
    if (SHORTEST_LEASE..=LONGEST_LEASE).contains(&lease) {
        Ok(lease)
    } else {
        let [shortest, longest] = [SHORTEST_LEASE, LONGEST_LEASE].map(span::format);
        Err(format!("a lease is from {shortest} to {longest}"))
    }
}

fn node_name(text: &str) -> Result<String, String> {
    if text.is_empty() || text.chars().count() > MAX_NAME_CHARS {
        Err(format!("a name has from 1 to {MAX_NAME_CHARS} characters"))
    } else if text.chars().any(char::is_control) {
        Err("a name has no control characters".to_owned())
    } else {
        Ok(text.to_owned())
    }
}

/// What the first of these files says, if it would do as a node's name.
fn host_name(files: &[impl AsRef<Path>]) -> String {
    let read = |file| std::fs::read_to_string(file).ok();
    let mut names = files.iter().filter_map(read);
    let usable = names.find_map(|name| node_name(name.trim()).ok());
    usable.unwrap_or_else(|| NAMELESS.to_owned())
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser};

    use super::*;

    #[test]
    fn one_process_at_a_time_has_a_spot_and_the_next_has_the_same() {
        let [here, there] = [(); 2].map(|()| tempfile::tempdir().expect("a directory"));
        let first = Spot::take(here.path()).expect("free");
        assert!(Spot::take(here.path()).is_none(), "somebody is there");
        let other = Spot::take(there.path()).expect("free");
        assert_ne!(first.name, other.name);
        let name = first.name.clone();
        drop(first);
        assert_eq!(Spot::take(here.path()).expect("free again").name, name);
        assert!(Spot::take(&here.path().join("nowhere")).is_none());
    }

    #[derive(Debug, Parser)]
    struct Sample {
        #[command(flatten)]
        node: NodeArgs,
    }

    fn parse(arguments: &[&str]) -> Result<NodeArgs, clap::Error> {
        let arguments = ["sample"].iter().chain(arguments);
        Sample::try_parse_from(arguments).map(|sample| sample.node)
    }

    #[test]
    fn what_is_not_given_is_usual() {
        let args = parse(&[]).expect("valid");
        let node = args.options();
        assert_eq!((node.lease, node.lanes), (DEFAULT_LEASE, 64));
        assert!(!node.name.is_empty());
        assert_eq!(node.address, "");
        assert_eq!(args.pool().connections(), postgres::Options::default().connections());
    }

    #[test]
    fn what_is_given_is_used() {
        let args = ["--node-name", "a", "--lease", "3s", "--lanes", "8", "--writers", "4"];
        let args = parse(&[&args[..], &["--readers", "3"]].concat()).expect("valid");
        let node = args.options();
        assert_eq!((node.name.as_str(), node.lease, node.lanes), ("a", Duration::from_secs(3), 8));
        let pool = args.pool();
        assert_eq!((pool.writers, pool.journal_readers, pool.ledger_readers), (4, 3, 3));
    }

    #[test]
    fn what_is_out_of_bounds_is_refused() {
        let long = "x".repeat(MAX_NAME_CHARS + 1);
        for (flag, bad) in [
            ("--node-name", ""),
            ("--node-name", "two\nlines"),
            ("--node-name", &long),
            ("--lease", "1999ms"),
            ("--lease", "5m1s"),
            ("--lease", "10"),
            ("--lanes", "0"),
            ("--lanes", "4097"),
            ("--writers", "0"),
            ("--writers", "65"),
            ("--readers", "0"),
        ] {
            let refused = parse(&[flag, bad]).expect_err(bad).to_string();
            assert!(refused.contains(flag), "{refused}");
        }
        let longest = "é".repeat(MAX_NAME_CHARS);
        for (flag, good) in [
            ("--node-name", longest.as_str()),
            ("--lease", "2s"),
            ("--lease", "5m"),
            ("--lanes", "1"),
            ("--lanes", "4096"),
            ("--writers", "64"),
        ] {
            parse(&[flag, good]).unwrap_or_else(|refused| panic!("{refused}"));
        }
    }

    #[test]
    fn a_file_has_no_use_for_what_is_about_a_server() {
        let (file, server) = (
            Place::File("/data/postrider.db".into()),
            Place::Server("postgres://me@db/hooks".to_owned()),
        );
        for flag in ["--lease=10s", "--lanes=64", "--writers=2", "--readers=2"] {
            let args = parse(&[flag]).expect("valid");
            args.check(&server).expect("of use");
            let refused = args.check(&file).expect_err("of no use");
            let said = refused.error.to_string();
            let name = flag.split('=').next().unwrap_or_default();
            assert!(refused.usage && said.contains(name), "{said}");
            assert!(said.contains("/data/postrider.db"), "{said}");
        }
        for arguments in [&[][..], &["--node-name=a"]] {
            parse(arguments).expect("valid").check(&file).expect("harmless");
        }
    }

    #[test]
    fn a_node_is_called_what_its_machine_is_called() {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).expect("written");
            path
        };
        let missing = folder.path().join("missing");
        let (empty, odd) = (write("empty", "\n"), write("odd", "a\u{1b}[2Jb\n"));
        let (first, second) = (write("first", "web-1\n"), write("second", "web-2\n"));
        for (files, name) in [
            ([&first, &second], "web-1"),
            ([&missing, &second], "web-2"),
            ([&empty, &second], "web-2"),
            ([&odd, &second], "web-2"),
            ([&missing, &odd], NAMELESS),
        ] {
            assert_eq!(host_name(&files), name);
        }
    }

    #[test]
    fn the_help_says_how_many_connections_there_are() {
        let help = Sample::command().render_help().to_string();
        let total = postgres::Options::default().connections();
        assert!(help.contains(&format!("{total} unless told otherwise")), "{help}");
        assert!(help.contains(HEADING), "{help}");
    }
}
