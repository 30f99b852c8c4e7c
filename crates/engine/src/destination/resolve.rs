//! From a host to the addresses that may be dialled: one lookup per name at a time, a time budget,
//! and every answer judged before any is used.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;

use super::{Guard, Host, LOOPBACK, Refusal, is_local};

/// How long a lookup may take before the attempt fails.
pub const DNS_BUDGET: Duration = Duration::from_secs(2);
/// How many answers of one lookup are looked at; the rest is neither judged nor dialled.
pub const MAX_ANSWERS: usize = 64;
/// How many addresses of one name are handed out to be dialled.
pub const MAX_DIALED: usize = 4;
/// How many lookups run at once. The system resolver blocks a thread for each, for longer than the
/// budget when a name server is silent.
pub const MAX_LOOKUPS: usize = 128;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    #[error("{host} may not be reached: {refusal}")]
    Refused { host: Host, refusal: Refusal },
    #[error("{host} could not be resolved: {reason}")]
    Failed { host: Host, reason: String },
    #[error("{host} has no address")]
    NoAddress { host: Host },
    #[error("{host} could not be resolved: no answer from DNS within {DNS_BUDGET:?}")]
    TimedOut { host: Host },
    #[error("{host} could not be resolved: {MAX_LOOKUPS} lookups are already waiting for DNS")]
    Busy { host: Host },
}

impl Guard {
    /// Finds the addresses to dial for a host, best first, at most [`MAX_DIALED`].
    ///
    /// The caller must dial exactly these addresses: a second lookup could answer differently. One
    /// forbidden answer refuses the name, because its owner decides which answer is used when.
    pub async fn resolve(&self, host: &Host, port: u16) -> Result<Vec<SocketAddr>, ResolveError> {
        match host {
            Host::Address(address) => self.vet(host, &[SocketAddr::new(*address, port)]),
            Host::Name(name) if is_local(name) => {
                // RFC 6761: these names never leave the machine, so no resolver is asked; and
                // allowing one of the two loopback networks is enough.
                let allowed = LOOPBACK.into_iter().filter(|address| self.allows(*address));
                let answers: Vec<_> =
                    allowed.map(|address| SocketAddr::new(address, port)).collect();
                if answers.is_empty() {
                    let refusal = Refusal::LocalName(name.clone());
                    return Err(ResolveError::Refused { host: host.clone(), refusal });
                }
                self.vet(host, &answers)
            }
            Host::Name(name) => {
                let answers = self.lookups.run(host, name, port).await?;
                self.vet(host, &answers)
            }
        }
    }

    pub(super) fn vet(
        &self,
        host: &Host,
        answers: &[SocketAddr],
    ) -> Result<Vec<SocketAddr>, ResolveError> {
        let answers = &answers[..answers.len().min(MAX_ANSWERS)];
        for answer in answers {
            self.check_address(answer.ip())
                .map_err(|refusal| ResolveError::Refused { host: host.clone(), refusal })?;
        }
        let Some(first) = answers.first() else {
            return Err(ResolveError::NoAddress { host: host.clone() });
        };
        // The second address is of the other family if there is one, so that a host whose IPv6 is
        // broken is reached over IPv4 at the second try, not the fifth.
        let other_family = answers.iter().find(|answer| answer.is_ipv4() != first.is_ipv4());
        let mut dialed = Vec::with_capacity(MAX_DIALED);
        for answer in std::iter::once(first).chain(other_family).chain(answers) {
            if dialed.len() < MAX_DIALED && !dialed.contains(answer) {
                dialed.push(*answer);
            }
        }
        Ok(dialed)
    }
}

/// The lookups under way, by name and port.
///
/// A name is looked up once at a time: a silent name server then holds one thread per name, however
/// many deliveries wait for it, and other names are not starved.
#[derive(Debug, Default, Clone)]
pub(super) struct Lookups {
    running: Arc<Mutex<HashMap<Question, Waiting>>>,
}

type Question = (Box<str>, u16);
type Waiting = watch::Receiver<Option<Result<Vec<SocketAddr>, String>>>;

impl Lookups {
    async fn run(
        &self,
        host: &Host,
        name: &str,
        port: u16,
    ) -> Result<Vec<SocketAddr>, ResolveError> {
        let mut waiting =
            self.join(name, port).ok_or_else(|| ResolveError::Busy { host: host.clone() })?;
        let failed =
            |reason: &str| ResolveError::Failed { host: host.clone(), reason: reason.into() };
        let answer = tokio::time::timeout(DNS_BUDGET, waiting.wait_for(Option::is_some))
            .await
            .map_err(|_| ResolveError::TimedOut { host: host.clone() })?
            .map_err(|_| failed("the lookup was interrupted"))?;
        match &*answer {
            Some(Ok(addresses)) => Ok(addresses.clone()),
            Some(Err(reason)) => Err(failed(reason)),
            None => Err(failed("the lookup was interrupted")),
        }
    }

    /// Joins the lookup of this name that is under way, or starts one; `None` when too many run.
    pub(super) fn join(&self, name: &str, port: u16) -> Option<Waiting> {
        let key = (Box::from(name), port);
        let mut running = self.running.lock();
        if let Some(waiting) = running.get(&key) {
            return Some(waiting.clone());
        }
        if running.len() >= MAX_LOOKUPS {
            return None;
        }
        let (answer, waiting) = watch::channel(None);
        running.insert(key.clone(), waiting.clone());
        let lookups = self.clone();
        // A task of its own, because a blocked resolver thread outlives whoever asked.
        tokio::spawn(async move {
            let found = match tokio::net::lookup_host((&*key.0, key.1)).await {
                Ok(addresses) => Ok(addresses.take(MAX_ANSWERS).collect()),
                Err(error) => Err(error.to_string()),
            };
            lookups.running.lock().remove(&key);
            // Nobody listening means that everybody gave up waiting.
            answer.send_replace(Some(found));
        });
        Some(waiting)
    }
}

#[cfg(test)]
impl Lookups {
    pub(super) fn under_way(&self) -> usize {
        self.running.lock().len()
    }
}
