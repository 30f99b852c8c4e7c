//! What a service manager and the gateway tell each other: a socket that is passed in, so that a restart
//! refuses nobody; readiness; signs of life; that it stops.

use std::net::{SocketAddr, TcpListener};

use anyhow::{Context as _, anyhow};
use listenfd::ListenFd;
use sd_notify::NotifyState;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};

use crate::Failure;

/// The socket that whoever started this process listens on, if there is one. To be called before there
/// is a second thread: it takes variables out of the environment, so that no child believes that they
/// are meant for it.
pub(super) fn passed_in() -> Result<Option<TcpListener>, Failure> {
    let mut passed = ListenFd::from_env();
    match passed.len() {
        0 => return Ok(None),
        1 => {}
        more => {
            return Err(Failure::usage(anyhow!(
                "{more} sockets were passed in, and one is served: have one ListenStream= only"
            )));
        }
    }
    let socket = passed.take_tcp_listener(0).map_err(|error| {
        Failure::usage(anyhow!("the socket that was passed in is no TCP listener: {error}"))
    })?;
    let Some(socket) = socket else { return Ok(None) };
    socket.set_nonblocking(true).context("the socket that was passed in")?;
    Ok(Some(socket))
}

/// What tells the service manager that the gateway is alive, as often as it wants to hear it.
#[derive(Debug)]
pub(super) struct Supervised {
    life: Option<JoinHandle<()>>,
}

impl Supervised {
    /// Says that the gateway is ready. Signs of life come from the runtime that carries everything:
    /// where it gets to nothing any more, they stop, and the manager starts the gateway anew.
    pub(super) fn ready(address: SocketAddr) -> Self {
        tell(&[NotifyState::Ready, NotifyState::Status(&format!("listening on {address}"))]);
        let life = sd_notify::watchdog_enabled().filter(|limit| !limit.is_zero()).map(|limit| {
            tokio::spawn(async move {
                let mut beats = interval(limit / 2);
                beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
                loop {
                    beats.tick().await;
                    tell(&[NotifyState::Watchdog]);
                }
            })
        });
        Self { life }
    }

    /// Says that it stops. The signs of life go on: a drain may take longer than they may be missed.
    pub(super) fn stopping() {
        tell(&[NotifyState::Stopping, NotifyState::Status("finishing what is in flight")]);
    }
}

impl Drop for Supervised {
    fn drop(&mut self) {
        if let Some(life) = &self.life {
            life.abort();
        }
    }
}

/// Does nothing where nobody asked for it.
fn tell(what: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(what) {
        tracing::warn!(%error, "the service manager was not told");
    }
}
