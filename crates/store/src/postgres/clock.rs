//! What time it is on the server, for whoever compares clocks.

use postrider_core::Timestamp;

use super::OpenError;
use super::address::Address;
use super::config::Options;
use super::rows;
use super::session::{Pace, Session};

const CLOCK: &str = "SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::int8";

/// The time by the clock of the server at `url`. Changes nothing.
pub async fn clock(url: &str, options: Options) -> Result<Timestamp, OpenError> {
    let address = Address::parse(url, options.connect_timeout)?;
    let session = Session::open(&address, &options, Pace::Patient).await?;
    let answer = session.rows(CLOCK, &[]).await?;
    let row = answer.first().ok_or_else(|| OpenError::Refused("it has no clock".to_owned()))?;
    let now = rows::get::<i64>(row, 0).map_err(|error| OpenError::Refused(error.to_string()))?;
    session.close().await;
    Ok(Timestamp::from_millis(now))
}
