//! The store: there, private, of this version, sound, with room, and its key.

use std::fs;
use std::io::ErrorKind;
use std::ops::ControlFlow;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use postrider_engine::ports::{Clock as _, SystemClock};
use postrider_store::postgres::{self, OpenError};
use postrider_store::sqlite::{Checkup, KNOWN_VERSION, Sealed, Soundness};

use super::Args;
use super::check::Check;
use super::machine::compare_clocks;
use crate::progress::size;
use crate::secret_key;
use crate::stores::Place;

/// How long a file is read in search of damage.
const CHECK_FOR: Duration = Duration::from_secs(20);

/// How long a server may take.
const SERVER_DEADLINE: Duration = Duration::from_secs(15);

/// A file that somebody begins to write to while it is looked at is looked at again, so often.
const MAX_LOOKS: usize = 3;

/// What others may not do.
const OTHERS: u32 = 0o077;

/// Less room than this on the disk is too little, and less than this is little.
const TOO_LITTLE: u64 = 64 << 20;
const LITTLE: u64 = 1 << 30;

pub(super) async fn look(place: &Place, args: &Args) -> Vec<Check> {
    match place {
        Place::File(path) => file(path, args),
        Place::Server(url) => server(url, place, args).await,
    }
}

fn file(path: &Path, args: &Args) -> Vec<Check> {
    let shown = path.display();
    let mode = match fs::metadata(path) {
        Ok(found) => found.permissions().mode(),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let says = format!("there is no database at {shown}");
            let advice = "run this where the gateway runs, or say where its store is with --data or \
                          --store; `postrider serve` makes a new one";
            return vec![if args.whereabouts.is_given() {
                Check::fail("store", says, advice)
            } else {
                Check::warn("store", says, advice)
            }];
        }
        Err(error) => {
            let advice = "run this as the user that the gateway runs as";
            return vec![Check::fail(
                "store",
                format!("{shown} cannot be looked at: {error}"),
                advice,
            )];
        }
    };
    let mut checks = vec![if mode & OTHERS == 0 {
        Check::ok("store", format!("{shown} is there, and private"))
    } else {
        Check::warn(
            "store",
            format!("{shown} is open to other users (mode {:04o})", mode & 0o7777),
            format!("run `chmod 600 {shown}`"),
        )
    }];
    checks.push(room(path));
    let mut contents = Vec::new();
    for _ in 0..MAX_LOOKS {
        let outdated;
        (contents, outdated) = look_into(path, args);
        if !outdated {
            break;
        }
    }
    checks.extend(contents);
    checks
}

/// What is in the file, and whether somebody has begun to write to it meanwhile.
fn look_into(path: &Path, args: &Args) -> (Vec<Check>, bool) {
    let mut checkup = match Checkup::open(path) {
        Ok(checkup) => checkup,
        Err(error) => {
            let advice = "run this as the user that the gateway runs as; if it is no database of \
                          Postrider's, choose another path";
            return (vec![Check::fail("schema", error.to_string(), advice)], false);
        }
    };
    let version = match checkup.version() {
        Ok(version) => version,
        Err(error) => {
            let advice = "restore the last good backup";
            return (vec![Check::fail("schema", error.to_string(), advice)], false);
        }
    };
    let mut checks = vec![schema(version.into(), KNOWN_VERSION.into())];
    if version == KNOWN_VERSION {
        checks.push(key(&checkup, path, args));
    }
    checks.push(soundness(&mut checkup));
    let outdated = checkup.is_outdated();
    (checks, outdated)
}

fn schema(found: i64, known: i64) -> Check {
    match found.cmp(&known) {
        std::cmp::Ordering::Equal => {
            Check::ok("schema", format!("version {found}, which is this program's"))
        }
        std::cmp::Ordering::Less => Check::warn(
            "schema",
            format!("version {found}, and this program's is {known}"),
            "the next start brings it up to date, or `postrider migrate` does; make a backup before",
        ),
        std::cmp::Ordering::Greater => Check::fail(
            "schema",
            format!("version {found}, which is newer than this program's ({known})"),
            "use the version of postrider that wrote it, or a later one",
        ),
    }
}

fn soundness(checkup: &mut Checkup) -> Check {
    let end = Instant::now() + CHECK_FOR;
    let go_on =
        || if Instant::now() < end { ControlFlow::Continue(()) } else { ControlFlow::Break(()) };
    match checkup.quick_check(go_on) {
        Ok(Soundness::Sound) => Check::ok("integrity", "every page is sound"),
        Ok(Soundness::Unfinished) => Check::warn(
            "integrity",
            format!("nothing wrong so far, but {CHECK_FOR:?} were not enough to read everything"),
            "`postrider backup` checks the whole of its copy, and takes its time",
        ),
        Ok(Soundness::Damaged(what)) => Check::fail(
            "integrity",
            format!("the database is damaged: {what}"),
            "stop the gateway, keep the file, and restore the last good backup; look at the disk",
        ),
        Err(error) => Check::fail(
            "integrity",
            format!("it could not be checked: {error}"),
            "run this as the user that the gateway runs as, and look at the disk",
        ),
    }
}

fn key(checkup: &Checkup, path: &Path, args: &Args) -> Check {
    const NAME: &str = "secret key";
    const KEEP: &str = "put the key back from where it is kept; secrets cannot be read without it";
    let sealed = match checkup.sealed() {
        Ok(sealed) => sealed,
        Err(error) => return Check::fail(NAME, error.to_string(), "restore the last good backup"),
    };
    // As if there were secrets: then none is made that is not there.
    let keyring = secret_key::keyring(&args.secret_key, path, Sealed::Some);
    match (keyring, sealed) {
        (Ok(keyring), _) => match checkup.open_secrets(&keyring) {
            Ok(0) => Check::ok(NAME, "there, and nothing is sealed with it yet"),
            Ok(count) => Check::ok(NAME, format!("it opens every secret that is stored ({count})")),
            Err(error) => Check::fail(NAME, format!("it is not the right one: {error}"), KEEP),
        },
        (Err(failure), Sealed::Some) => Check::fail(NAME, format!("{:#}", failure.error), KEEP),
        (Err(_), Sealed::None) => {
            Check::ok(NAME, "nothing is sealed yet; a key is made or read at the next start")
        }
    }
}

fn room(path: &Path) -> Check {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    match rustix::fs::statvfs(folder) {
        Ok(disk) => judge_room(
            disk.f_bavail.saturating_mul(disk.f_frsize),
            disk.f_blocks.saturating_mul(disk.f_frsize),
        ),
        Err(error) => Check::warn(
            "disk",
            format!("how much room there is for {} cannot be told: {error}", folder.display()),
            "look at it with `df`",
        ),
    }
}

fn judge_room(free: u64, all: u64) -> Check {
    let says = format!("{} of {} are free", size(free), size(all));
    let advice = "make room, or shorten --keep-delivered, --keep-failed and --keep-dead: a gateway on a \
                  full disk accepts nothing";
    if free < TOO_LITTLE {
        Check::fail("disk", says, advice)
    } else if free < LITTLE {
        Check::warn("disk", says, advice)
    } else {
        Check::ok("disk", says)
    }
}

async fn server(url: &str, place: &Place, args: &Args) -> Vec<Check> {
    let asked = async {
        let pending = postgres::pending(url, postgres::Options::default()).await?;
        let before = SystemClock.now();
        let clock = postgres::clock(url, postgres::Options::default()).await?;
        Ok::<_, OpenError>((pending, before, clock, SystemClock.now()))
    };
    let answer = match tokio::time::timeout(SERVER_DEADLINE, asked).await {
        Ok(answer) => answer,
        Err(_) => Err(OpenError::Unreachable(format!("no answer within {SERVER_DEADLINE:?}"))),
    };
    let (pending, before, clock, after) = match answer {
        Ok(answer) => answer,
        Err(error) => {
            let advice = "look whether the server runs, whether the address and the password are \
                          right, and whether pg_hba.conf lets this machine in";
            return vec![Check::fail("store", format!("{place}: {error}"), advice)];
        }
    };
    let current = pending.version == pending.wanted;
    let mut checks = vec![
        Check::ok("store", format!("{place} answers")),
        schema(pending.version.into(), pending.wanted.into()),
        compare_clocks("database clock", "the database's clock", clock, before, after),
    ];
    let data = args.whereabouts.data();
    let keyring = secret_key::shared_keyring(&args.secret_key, data, place, Sealed::Some);
    checks.push(match keyring {
        Ok(_) if !current => {
            Check::ok("secret key", "there; whether it is the right one shows when a node starts")
        }
        Ok(found) => {
            let tried = postgres::try_key(url, postgres::Options::default(), &found.keyring);
            let tried = tokio::time::timeout(SERVER_DEADLINE, tried).await.unwrap_or_else(|_| {
                Err(OpenError::Unreachable(format!("no answer within {SERVER_DEADLINE:?}")))
            });
            match tried {
                Ok(()) => Check::ok("secret key", "there, and the one of this database"),
                Err(error) => Check::fail(
                    "secret key",
                    format!("it is not the right one: {error}"),
                    "copy the key file of a node that runs; a node does not start with another key",
                ),
            }
        }
        Err(failure) => Check::warn(
            "secret key",
            format!("{:#}", failure.error),
            "copy the key file of another node to here; the first node of all makes one",
        ),
    });
    checks
}

#[cfg(test)]
mod tests {
    use super::super::check::Status;
    use super::*;

    #[test]
    fn little_room_is_a_warning_and_none_a_failure() {
        for (free, expected) in [
            (0, Status::Fail),
            (TOO_LITTLE - 1, Status::Fail),
            (TOO_LITTLE, Status::Warn),
            (LITTLE, Status::Ok),
        ] {
            let check = judge_room(free, 1 << 40);
            assert_eq!(check.status, expected, "{free}");
            assert_eq!(check.advice.is_some(), expected != Status::Ok);
        }
    }

    #[test]
    fn only_a_newer_schema_is_a_failure() {
        for (found, expected) in [(4, Status::Warn), (5, Status::Ok), (6, Status::Fail)] {
            assert_eq!(schema(found, 5).status, expected, "{found}");
        }
    }
}
