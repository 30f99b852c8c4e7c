//! The hub agent: dials out to a gateway, takes deliveries, and forwards each to where it belongs.
//!
//! A hub stands behind NAT, beside the services that webhooks are for. [`Agent::run`] keeps one
//! connection to the gateway, forwards what comes over it with body and headers unchanged, and
//! answers with what it met: a status, no connection, no answer in time. What that means is decided
//! by the gateway. `docs/hub-protocol.md` says what is said on the connection.
//!
//! ```no_run
//! use postrider_client::hub::{Agent, AgentOptions, Routes};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let routes = Routes::to("http://localhost:3000")?;
//! let options = AgentOptions::new("https://hooks.example.com", "prh_…", routes);
//! let stop = async { tokio::signal::ctrl_c().await.unwrap_or(()) };
//! Agent::new(options)?.run(stop, |happening| println!("{happening:?}")).await?;
//! # Ok(())
//! # }
//! ```

mod dial;
mod forward;
mod happening;
mod pulse;
mod routes;
mod session;
mod url;

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use postrider_core::hub::{GREETING, HEARTBEAT, MAX_CAPACITY, PROTOCOL, SILENCE};
use rustls::pki_types::CertificateDer;

pub use happening::Happening;
pub use routes::{MAX_ROUTES, Routes};

use crate::{Error, ports};
use dial::{Dialer, Undialed};
use forward::Forwarder;
use session::{End, Session};

/// How many deliveries a hub takes at once if nothing else is said.
pub const DEFAULT_CAPACITY: u32 = 64;

const AGENT: &str = concat!("postrider/", env!("CARGO_PKG_VERSION"));

/// What an agent needs to know.
#[derive(Clone)]
pub struct AgentOptions {
    /// Where the gateway listens, such as `https://hooks.example.com`.
    pub gateway: String,
    /// The hub's token, `prh_…`.
    pub token: String,
    /// Where deliveries go.
    pub routes: Routes,
    /// How many deliveries may be in the agent's hands at once.
    pub capacity: u32,
    /// What the gateway shows of the agent.
    pub agent: String,
    /// Certificate authorities trusted beside the public ones, for the gateway and for targets.
    pub extra_roots: Vec<CertificateDer<'static>>,
    pub timing: Timing,
}

impl AgentOptions {
    pub fn new(gateway: impl Into<String>, token: impl Into<String>, routes: Routes) -> Self {
        Self {
            gateway: gateway.into(),
            token: token.into(),
            routes,
            capacity: DEFAULT_CAPACITY,
            agent: AGENT.to_owned(),
            extra_roots: Vec::new(),
            timing: Timing::default(),
        }
    }
}

impl fmt::Debug for AgentOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { gateway, token: _, routes, capacity, agent, extra_roots: _, timing } = self;
        f.debug_struct("AgentOptions")
            .field("gateway", gateway)
            .field("routes", routes)
            .field("capacity", capacity)
            .field("agent", agent)
            .field("timing", timing)
            .finish_non_exhaustive()
    }
}

/// The agent's patience.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timing {
    /// How often the gateway is sent a ping.
    pub heartbeat: Duration,
    /// A gateway that has not been heard, or has not taken what was sent, for so long is gone.
    pub silence: Duration,
    /// How long a connection may take from the dial to the end of the handshake.
    pub dial: Duration,
    /// How long the gateway may take to welcome the hub.
    pub greeting: Duration,
    /// The most to wait before the first try to connect again; it doubles with each further one.
    pub first_retry: Duration,
    /// The most to wait before any try to connect again.
    pub longest_retry: Duration,
    /// A connection that has lasted so long makes the next wait a first one again.
    pub lasted: Duration,
    /// How long a stop waits for what is in hand.
    pub drain: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            heartbeat: HEARTBEAT,
            silence: SILENCE,
            dial: Duration::from_secs(10),
            greeting: GREETING,
            first_retry: Duration::from_millis(500),
            longest_retry: Duration::from_secs(30),
            lasted: Duration::from_secs(10),
            drain: Duration::from_secs(20),
        }
    }
}

/// Why an agent has ended although nobody stopped it: connecting again would not help.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AgentError {
    #[error("the gateway refused the hub token: {detail}")]
    TokenRefused { detail: String },
    #[error("the gateway does not speak {PROTOCOL}: {detail}")]
    VersionRefused { detail: String },
    #[error("the hub was deleted at the gateway, or has been given another token")]
    Revoked,
    #[error("another hub uses this token")]
    TakenOver,
}

/// A hub, ready to run.
#[derive(Debug)]
pub struct Agent {
    dialer: Dialer,
    forwarder: Arc<Forwarder>,
    name: String,
    capacity: u32,
    timing: Timing,
}

impl Agent {
    /// Fails if an option cannot be right. Nothing is sent yet.
    pub fn new(options: AgentOptions) -> Result<Self, Error> {
        let AgentOptions { gateway, token, routes, capacity, agent, extra_roots, timing } = options;
        if !(1..=MAX_CAPACITY).contains(&capacity) {
            return Err(Error::Invalid(format!(
                "a hub's capacity must be from 1 to {MAX_CAPACITY}, not {capacity}"
            )));
        }
        let connector = dial::connector(extra_roots)?;
        Ok(Self {
            dialer: Dialer::new(connector.clone(), &gateway, &token)?,
            forwarder: Arc::new(Forwarder::new(connector, routes)),
            name: agent,
            capacity,
            timing,
        })
    }

    /// Stays connected until `stop` is ready or the gateway will have no more of this hub.
    ///
    /// After `stop` no more deliveries are taken; what is in hand is finished and answered, within
    /// [`Timing::drain`]. `on` is called with everything that happens; it must not block.
    pub async fn run(
        &self,
        stop: impl Future<Output = ()>,
        mut on: impl FnMut(Happening),
    ) -> Result<(), AgentError> {
        let mut stop = pin!(stop);
        let mut failures = 0_u32;
        loop {
            let dialed = tokio::select! {
                dialed = self.dialer.dial(self.timing.dial) => dialed,
                () = &mut stop => return Ok(()),
            };
            let (reason, unanswered) = match dialed {
                Err(Undialed::ForGood(error)) => return Err(error),
                Err(Undialed::ForNow(reason)) => (reason, 0),
                Ok(line) => {
                    let session = Session {
                        forwarder: &self.forwarder,
                        name: &self.name,
                        capacity: self.capacity,
                        timing: &self.timing,
                    };
                    match session.hold(line, stop.as_mut(), &mut on).await {
                        End::Stopped => return Ok(()),
                        End::ForGood(error) => return Err(error),
                        End::Lost { reason, unanswered, lasted } => {
                            if lasted >= self.timing.lasted {
                                failures = 0;
                            }
                            (reason, unanswered)
                        }
                    }
                }
            };
            let retry_in = self.timing.retry_in(failures, ports::sample());
            failures = failures.saturating_add(1);
            on(Happening::Disconnected { reason, unanswered, retry_in });
            tokio::select! {
                () = tokio::time::sleep(retry_in) => {}
                () = &mut stop => return Ok(()),
            }
        }
    }
}

impl Timing {
    /// The wait after so many failures in a row. All of it is chance: the hubs of a gateway that was
    /// away come back spread over the whole of it.
    fn retry_in(&self, failures: u32, sample: f64) -> Duration {
        /// Doublings beyond this change nothing: every wait is at its longest by then.
        const MAX_DOUBLINGS: u32 = 16;
        let most = self.first_retry.saturating_mul(1 << failures.min(MAX_DOUBLINGS));
        most.min(self.longest_retry).mul_f64(sample.clamp(0.0, 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "prh_0123456789abcdefghijklmnopqrstuvwxyz";

    fn options() -> AgentOptions {
        AgentOptions::new(
            "http://127.0.0.1:1",
            TOKEN,
            Routes::to("http://localhost:1").expect("a URL"),
        )
    }

    #[test]
    fn waits_double_up_to_the_longest_and_are_all_chance() {
        let timing = Timing::default();
        for (failures, most_ms) in
            [(0, 500), (1, 1_000), (5, 16_000), (6, 30_000), (u32::MAX, 30_000)]
        {
            let most = Duration::from_millis(most_ms);
            assert_eq!(timing.retry_in(failures, 1.0), most, "{failures}");
            assert_eq!(timing.retry_in(failures, 0.5), most / 2, "{failures}");
            assert_eq!(timing.retry_in(failures, 0.0), Duration::ZERO, "{failures}");
        }
    }

    #[test]
    fn options_that_cannot_be_right_are_refused() {
        type Change = fn(&mut AgentOptions);
        let table: [(Change, &str); 8] = [
            (|options| options.capacity = 0, "from 1 to 1000, not 0"),
            (|options| options.capacity = 1_001, "from 1 to 1000, not 1001"),
            (|options| options.gateway = "hooks.example.com".into(), "is no URL"),
            (|options| options.gateway = "ftp://example.com".into(), "http://"),
            (|options| options.gateway = "http://me:hunter2@example.com".into(), "password"),
            (|options| options.token = String::new(), "prh_"),
            (|options| options.token = "pr_hunter2".into(), "an API key"),
            (|options| options.token = "prh_hunter2\n".into(), "prh_"),
        ];
        for (change, says) in table {
            let mut options = options();
            change(&mut options);
            let error = Agent::new(options).expect_err(says).to_string();
            assert!(error.contains(says), "{error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn the_token_is_in_no_debug_output() {
        let options = options();
        let shown = format!("{options:?}");
        assert!(!shown.contains(TOKEN), "{shown}");
        let agent = Agent::new(options).expect("valid options");
        let shown = format!("{agent:?}");
        assert!(!shown.contains(TOKEN), "{shown}");
    }
}
