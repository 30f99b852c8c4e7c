//! The schema by itself, for whoever brings it up to date apart from running a node.

use super::OpenError;
use super::address::Address;
use super::config::Options;
use super::schema::{self, Migrated, Pending};
use super::session::{Pace, Session};
use super::sources;
use crate::sealing::Keyring;

/// Applies what has not been applied to the database at `url`, while nodes use it, if they can go on
/// with it: otherwise they are waited for, and [`OpenError::InUse`] says that they did not go.
/// Another that does the same is waited for.
pub async fn migrate(url: &str, options: Options) -> Result<Migrated, OpenError> {
    let session = open(url, &options).await?;
    let migrated = schema::migrate(&session, options.lock_patience).await?;
    session.close().await;
    Ok(migrated)
}

/// Tells what [`migrate`] would do. Changes nothing.
pub async fn pending(url: &str, options: Options) -> Result<Pending, OpenError> {
    let session = open(url, &options).await?;
    let pending = schema::pending(&session).await?;
    session.close().await;
    Ok(pending)
}

/// Tells whether the keys are those of the database at `url`, whose schema has to be the newest.
/// Changes nothing.
pub async fn try_key(url: &str, options: Options, keyring: &Keyring) -> Result<(), OpenError> {
    let session = open(url, &options).await?;
    let tried = sources::try_key(&session, keyring).await;
    session.close().await;
    Ok(tried?)
}

async fn open(url: &str, options: &Options) -> Result<Session, OpenError> {
    let address = Address::parse(url, options.connect_timeout)?;
    let session = Session::open(&address, options, Pace::Patient).await?;
    schema::check_server(&session).await?;
    Ok(session)
}
