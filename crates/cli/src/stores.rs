//! Which store a command means, and opening it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, anyhow};
use postrider_store::Store;
use postrider_store::postgres::{self, OpenError, Postgres};
use postrider_store::sqlite::{self, Sqlite};
use url::Url;

use crate::Failure;
use crate::secret_key::{self, KeyArgs};

/// The database in `--data`.
const DATABASE: &str = "postrider.db";

#[derive(Debug, clap::Args)]
pub(crate) struct StoreArgs {
    /// Directory for the database and its key; it is made if it is not there
    #[arg(long, env = "POSTRIDER_DATA", default_value = "postrider-data", value_name = "DIR")]
    data: PathBuf,

    /// The store, instead of a database in --data: `sqlite:PATH`, or `postgres://USER@HOST/NAME`.
    /// Rather set the variable if it holds a password
    #[arg(long, env = "POSTRIDER_STORE", hide_env_values = true, value_name = "URL")]
    store: Option<String>,

    #[command(flatten)]
    secret_key: KeyArgs,
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

impl StoreArgs {
    pub(crate) fn place(&self) -> Result<Place, Failure> {
        let Some(url) = &self.store else { return Ok(Place::File(self.data.join(DATABASE))) };
        if url.starts_with("postgres://") || url.starts_with("postgresql://") {
            return Ok(Place::Server(url.clone()));
        }
        match url.strip_prefix("sqlite:") {
            Some(path) if !path.is_empty() => Ok(Place::File(PathBuf::from(path))),
            // What was given may hold a password.
            Some(_) | None => Err(Failure::usage(anyhow!(
                "--store: expected sqlite:PATH or postgres://USER@HOST/NAME"
            ))),
        }
    }

    pub(crate) async fn open(&self, place: &Place) -> Result<Arc<dyn Store>, Failure> {
        match place {
            Place::File(path) => open_file(path, &self.secret_key),
            Place::Server(url) => self.connect(url, place).await,
        }
    }

    async fn connect(&self, url: &str, place: &Place) -> Result<Arc<dyn Store>, Failure> {
        // Where the key is made if none is given.
        make_private(&self.data)?;
        let beside = self.data.join(DATABASE);
        let options = postgres::Options::default();
        let connected = Postgres::connect_asking(url, options, |sealed| {
            secret_key::keyring(&self.secret_key, &beside, sealed).map_err(Unopened::Key)
        });
        let store = connected.await.map_err(|error| match error {
            Unopened::Key(failure) => failure,
            Unopened::Server(refused @ (OpenError::Address(_) | OpenError::Refused(_))) => {
                Failure::usage(refused)
            }
            Unopened::Server(other @ (OpenError::Unreachable(_) | OpenError::InUse(_))) => {
                Failure::from(anyhow!(other).context(format!("cannot use {place}")))
            }
            Unopened::File(other) => Failure::from(other),
        })?;
        Ok(Arc::new(store))
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
    use super::*;

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
