//! Which store a command means, and opening it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, anyhow};
use postrider_store::Store;
use postrider_store::postgres::{self, OpenError, Postgres};
use postrider_store::sqlite::{self, Sealed, Sqlite};
use url::Url;

use crate::Failure;
use crate::secret::Secret;
use crate::secret_key::{self, KeyArgs};

/// Where the database is if nothing is said, and what it is called there.
const DATA: &str = "postrider-data";
const DATABASE: &str = "postrider.db";

#[derive(Debug, clap::Args)]
pub(crate) struct StoreArgs {
    /// Directory for the database and its key; it is made if it is not there
    #[arg(long, env = "POSTRIDER_DATA", default_value = DATA, value_name = "DIR")]
    data: PathBuf,

    /// The store, instead of a database in --data: `sqlite:PATH`, or `postgres://USER@HOST/NAME`.
    /// Rather set the variable if it holds a password
    #[arg(long, env = "POSTRIDER_STORE", hide_env_values = true, value_name = "URL")]
    store: Option<Secret>,

    #[command(flatten)]
    secret_key: KeyArgs,
}

/// Where the store of a gateway is, for a command that looks at it from outside.
#[derive(Debug, clap::Args)]
pub(crate) struct Whereabouts {
    /// Directory with the database of the gateway and its key [default: postrider-data]
    #[arg(long, env = "POSTRIDER_DATA", value_name = "DIR")]
    data: Option<PathBuf>,

    /// The store, if it is not a database in --data: `sqlite:PATH`, or `postgres://USER@HOST/NAME`.
    /// Rather set the variable if it holds a password
    #[arg(long, env = "POSTRIDER_STORE", hide_env_values = true, value_name = "URL")]
    store: Option<Secret>,
}

/// A store that is open.
pub(crate) struct Opened {
    pub(crate) store: Arc<dyn Store>,
    /// The file of the key that was just made for a server, which other nodes need as well.
    pub(crate) made_key: Option<PathBuf>,
}

/// Where a store is.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Place {
    File(PathBuf),
    Server(String),
}

/// Without the password.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Server(url) => match Url::parse(url) {
                Ok(mut url) => {
                    // Only a URL without a host has no place for one.
                    let _without = url.set_password(None);
                    url.set_query(None);
                    url.fmt(f)
                }
                Err(_) => f.write_str("a PostgreSQL server"),
            },
        }
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Place {
    /// What `--store` says, or the database in `--data`.
    fn of(store: Option<&Secret>, data: &Path) -> Result<Self, Failure> {
        let Some(Secret(url)) = store else { return Ok(Self::File(data.join(DATABASE))) };
        // What was given may hold a password.
        Self::parse(url).ok_or_else(|| {
            Failure::usage(anyhow!("--store: expected sqlite:PATH or postgres://USER@HOST/NAME"))
        })
    }

    /// What a URL of a store means; none if it means none.
    pub(crate) fn parse(url: &str) -> Option<Self> {
        if url.starts_with("postgres://") || url.starts_with("postgresql://") {
            return Some(Self::Server(url.to_owned()));
        }
        let path = url.strip_prefix("sqlite:").filter(|path| !path.is_empty())?;
        Some(Self::File(PathBuf::from(path)))
    }
}

impl Whereabouts {
    pub(crate) fn data(&self) -> &Path {
        self.data.as_deref().unwrap_or(Path::new(DATA))
    }

    /// Whether somebody said where it is.
    pub(crate) fn is_given(&self) -> bool {
        self.data.is_some() || self.store.is_some()
    }

    pub(crate) fn place(&self) -> Result<Place, Failure> {
        Place::of(self.store.as_ref(), self.data())
    }
}

impl StoreArgs {
    pub(crate) fn data(&self) -> &Path {
        &self.data
    }

    pub(crate) fn place(&self) -> Result<Place, Failure> {
        Place::of(self.store.as_ref(), &self.data)
    }

    /// For a command that has to be alone with what is there, and needs the key of it.
    pub(crate) async fn open(&self, place: &Place) -> Result<Arc<dyn Store>, Failure> {
        match place {
            Place::File(path) => open_file(path, &self.secret_key),
            Place::Server(url) => {
                let sealed = Sealed::Some;
                let key = secret_key::shared_keyring(&self.secret_key, &self.data, place, sealed)?;
                let pool = postgres::Options::default();
                let store = Postgres::connect_alone(url, pool, key.keyring).await;
                Ok(Arc::new(store.map_err(|error| unconnected(error, place))?))
            }
        }
    }

    /// For a node, which shares a server with others; `pool` says how many connections it has there.
    pub(crate) async fn open_shared(
        &self,
        place: &Place,
        pool: postgres::Options,
    ) -> Result<Opened, Failure> {
        match place {
            Place::File(path) => {
                Ok(Opened { store: open_file(path, &self.secret_key)?, made_key: None })
            }
            Place::Server(url) => self.connect(url, place, pool).await,
        }
    }

    async fn connect(
        &self,
        url: &str,
        place: &Place,
        pool: postgres::Options,
    ) -> Result<Opened, Failure> {
        // Where the key is made if none is given.
        make_private(&self.data)?;
        let mut made_key = None;
        let connected = Postgres::connect_asking(url, pool, |sealed| {
            let key = secret_key::shared_keyring(&self.secret_key, &self.data, place, sealed);
            let key = key.map_err(Unopened::Key)?;
            made_key = key.made;
            Ok(key.keyring)
        });
        let store = connected.await.map_err(|error| match error {
            Unopened::Key(failure) => failure,
            Unopened::Server(error) => unconnected(error, place),
            Unopened::File(other) => Failure::from(other),
        })?;
        Ok(Opened { store: Arc::new(store), made_key })
    }
}

/// Why a server cannot be used.
pub(crate) fn unconnected(error: OpenError, place: &Place) -> Failure {
    match error {
        refused @ (OpenError::Address(_) | OpenError::Refused(_)) => Failure::usage(refused),
        other @ (OpenError::Unreachable(_) | OpenError::InUse(_)) => {
            Failure::from(anyhow!(other).context(format!("cannot use {place}")))
        }
    }
}

/// Opens a database file, in a directory that only its owner can read.
fn open_file(path: &Path, key: &KeyArgs) -> Result<Arc<dyn Store>, Failure> {
    if let Some(directory) = path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
        make_private(directory)?;
    }
    let options = sqlite::Options::default();
    let opened = Sqlite::open_asking(path, options, |sealed| {
        secret_key::keyring(key, path, sealed).map_err(Unopened::Key)
    });
    let store = opened.map_err(|error| match error {
        Unopened::Key(failure) => failure,
        Unopened::File(refused @ postrider_store::Error::Refused(_)) => Failure::usage(refused),
        Unopened::File(other) => {
            Failure::from(anyhow!(other).context(format!("cannot open {}", path.display())))
        }
        Unopened::Server(other) => Failure::from(other),
    })?;
    Ok(Arc::new(store))
}

fn make_private(directory: &Path) -> Result<(), Failure> {
    let mut builder = std::fs::DirBuilder::new();
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    Ok(builder
        .recursive(true)
        .create(directory)
        .with_context(|| format!("cannot make the directory {}", directory.display()))?)
}

/// Why a store was not opened.
enum Unopened {
    Key(Failure),
    File(postrider_store::Error),
    Server(OpenError),
}

impl From<postrider_store::Error> for Unopened {
    fn from(error: postrider_store::Error) -> Self {
        Self::File(error)
    }
}

impl From<OpenError> for Unopened {
    fn from(error: OpenError) -> Self {
        Self::Server(error)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Sample {
        #[command(flatten)]
        store: StoreArgs,
    }

    #[test]
    fn what_was_given_may_hold_a_password_and_is_not_shown() {
        for url in ["postgres://me:hunter2@db/hooks", "mysql://me:hunter2@db/hooks"] {
            let sample = Sample::try_parse_from(["sample", "--store", url]).expect("parsed");
            assert!(!format!("{sample:?}").contains("hunter2"));
            if let Err(failure) = sample.store.place() {
                assert!(failure.usage && !format!("{:?}", failure.error).contains("hunter2"));
            }
        }
    }

    #[test]
    fn what_is_shown_of_a_server_holds_no_password() {
        for (url, shown) in [
            (
                "postgres://me:hunter2@db.example.com:5433/hooks",
                "postgres://me@db.example.com:5433/hooks",
            ),
            ("postgres://me@db/hooks?password=hunter2", "postgres://me@db/hooks"),
            ("postgres://", "a PostgreSQL server"),
        ] {
            let place = Place::Server(url.to_owned());
            assert!(!place.to_string().contains("hunter2"));
            assert!(!format!("{place:?}").contains("hunter2"));
            if shown.contains('@') {
                assert_eq!(place.to_string(), shown);
            }
        }
    }
}
