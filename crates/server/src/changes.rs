//! Keys, tenants and sources are held in memory: when another node changes them, they are read
//! again.

use std::time::Duration;

use postrider_engine::Engine;
use postrider_store::{Error, Registry};

use crate::background::Background;
use crate::inbound::Inbound;
use crate::keys::Keys;

/// After the store could not be read, the wait before it is tried again.
const PAUSE: Duration = Duration::from_secs(1);

/// Takes over what other nodes change, until what is returned is dropped.
pub(crate) fn take_over(engine: &Engine, keys: &Keys, inbound: &Inbound) -> Background {
    let (engine, keys, inbound) = (engine.clone(), keys.clone(), inbound.clone());
    let mut changes = engine.configuration_changes();
    Background::spawn(async move {
        if engine.store().fleet().is_none() {
            // Nobody else changes anything.
            return;
        }
        // The first time at once: what was loaded at the start may have changed before this node
        // was one of those that are told.
        loop {
            let change = *changes.borrow_and_update();
            while let Err(error) = reload(&**engine.store(), &keys, &inbound).await {
                if matches!(error, Error::Closed) {
                    return;
                }
                tracing::warn!(%error, "cannot read what another node has changed; trying again");
                pause(&engine).await;
            }
            engine.configuration_reloaded(change);
            if changes.changed().await.is_err() {
                return;
            }
        }
    })
}

/// All of it or nothing. Nobody changes anything here meanwhile: what is read would not have it.
async fn reload(store: &dyn Registry, keys: &Keys, inbound: &Inbound) -> Result<(), Error> {
    let keys = keys.read(store).await?;
    let sources = inbound.read(store).await?;
    let _turns = (keys.apply(), sources.apply());
    Ok(())
}

async fn pause(engine: &Engine) {
    let clock = engine.clock();
    let end = clock.now().plus(PAUSE);
    while clock.now() < end {
        clock.sleep_until(end).await;
    }
}
