//! From a host to the addresses that may be dialled: one lookup per name at a time, a time budget,
//! and every answer judged before any is used.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;

use super::resolver::{LookupError, Resolver};
use super::{Guard, Host, LOOPBACK, Refusal, is_local};

/// How long a lookup may take before the attempt fails.
pub const DNS_BUDGET: Duration = Duration::from_secs(2);
/// How many addresses a name may have. A name with more is refused, because all have to be judged.
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
    #[error("{host} could not be resolved: DNS knows no such name")]
    NoSuchName { host: Host },
    #[error("{host} has no address")]
    NoAddress { host: Host },
    #[error("{host} has more than {MAX_ANSWERS} addresses, which is too many to judge")]
    TooManyAddresses { host: Host },
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
        let refused = |refusal| ResolveError::Refused { host: host.clone(), refusal };
        // An endpoint may have been made under other rules.
        self.check_port(host, port).map_err(refused)?;
        match host {
            Host::Name(name) if is_local(name) => {
                // Allowing one of the two loopback networks is enough.
                let standing = self.standing(host);
                let reachable = |address: &IpAddr| self.judge(*address, standing).is_ok();
                let answers: Vec<IpAddr> = LOOPBACK.into_iter().filter(reachable).collect();
                if answers.is_empty() {
                    return Err(refused(Refusal::LocalName(name.clone())));
                }
                self.vet(host, &answers, port)
            }
            Host::Name(_) | Host::Address(_) => self.vet(host, &self.find(host).await?, port),
        }
    }

    /// The addresses of a host that the operator configured, which is not judged: best first, at
    /// most [`MAX_DIALED`].
    pub(crate) async fn resolve_trusted(
        &self,
        host: &Host,
        port: u16,
    ) -> Result<Vec<SocketAddr>, ResolveError> {
        let answers = match host {
            Host::Name(name) if is_local(name) => LOOPBACK.into(),
            Host::Name(_) | Host::Address(_) => self.find(host).await?,
        };
        choose(host, &answers, port)
    }

    async fn find(&self, host: &Host) -> Result<Arc<[IpAddr]>, ResolveError> {
        match host {
            Host::Address(address) => Ok([*address].into()),
            Host::Name(name) => self.lookups.run(host, name).await,
        }
    }

    pub(super) fn vet(
        &self,
        host: &Host,
        answers: &[IpAddr],
        port: u16,
    ) -> Result<Vec<SocketAddr>, ResolveError> {
        if answers.len() > MAX_ANSWERS {
            return Err(ResolveError::TooManyAddresses { host: host.clone() });
        }
        let standing = self.standing(host);
        for answer in answers {
            self.judge(*answer, standing)
                .map_err(|refusal| ResolveError::Refused { host: host.clone(), refusal })?;
        }
        choose(host, answers, port)
    }
}

fn choose(host: &Host, answers: &[IpAddr], port: u16) -> Result<Vec<SocketAddr>, ResolveError> {
    let Some(first) = answers.first() else {
        return Err(ResolveError::NoAddress { host: host.clone() });
    };
    // The second address is of the other family if there is one, so that a host whose IPv6 is
    // broken is reached over IPv4 at the second try, not the fifth.
    let other_family = answers.iter().find(|answer| answer.is_ipv4() != first.is_ipv4());
    let mut dialed = Vec::with_capacity(MAX_DIALED);
    for answer in std::iter::once(first).chain(other_family).chain(answers) {
        let address = SocketAddr::new(*answer, port);
        if dialed.len() < MAX_DIALED && !dialed.contains(&address) {
            dialed.push(address);
        }
    }
    Ok(dialed)
}

/// The lookups under way, by name.
///
/// A name is looked up once at a time: a silent name server then holds one thread per name, however
/// many deliveries wait for it, and other names are not starved.
#[derive(Debug, Clone)]
pub(super) struct Lookups {
    resolver: Arc<dyn Resolver>,
    running: Arc<Mutex<HashMap<Box<str>, Waiting>>>,
}

type Waiting = watch::Receiver<Option<Result<Arc<[IpAddr]>, LookupError>>>;

impl Lookups {
    pub(super) fn through(resolver: Arc<dyn Resolver>) -> Self {
        Self { resolver, running: Arc::default() }
    }

    async fn run(&self, host: &Host, name: &str) -> Result<Arc<[IpAddr]>, ResolveError> {
        let host = || host.clone();
        let mut waiting = self.join(name).ok_or_else(|| ResolveError::Busy { host: host() })?;
        let failed = |reason: &str| ResolveError::Failed { host: host(), reason: reason.into() };
        let answer = tokio::time::timeout(DNS_BUDGET, waiting.wait_for(Option::is_some))
            .await
            .map_err(|_| ResolveError::TimedOut { host: host() })?
            .map_err(|_| failed("the lookup was interrupted"))?;
        match &*answer {
            Some(Ok(addresses)) => Ok(Arc::clone(addresses)),
            Some(Err(LookupError::NoSuchName)) => Err(ResolveError::NoSuchName { host: host() }),
            Some(Err(LookupError::NoAddress)) => Err(ResolveError::NoAddress { host: host() }),
            Some(Err(LookupError::TimedOut)) => Err(ResolveError::TimedOut { host: host() }),
            Some(Err(LookupError::Failed(reason))) => Err(failed(reason)),
            None => Err(failed("the lookup was interrupted")),
        }
    }

    /// Joins the lookup of this name that is under way, or starts one; `None` when too many run.
    pub(super) fn join(&self, name: &str) -> Option<Waiting> {
        let mut running = self.running.lock();
        if let Some(waiting) = running.get(name) {
            return Some(waiting.clone());
        }
        if running.len() >= MAX_LOOKUPS {
            return None;
        }
        let (answer, waiting) = watch::channel(None);
        let name: Box<str> = name.into();
        running.insert(name.clone(), waiting.clone());
        let entry = Entry { lookups: self.clone(), name };
        // A task of its own, because a blocked resolver thread outlives whoever asked.
        tokio::spawn(async move {
            let found = entry.lookups.resolver.addresses(&entry.name).await;
            drop(entry);
            // Nobody listening means that everybody gave up waiting.
            answer.send_replace(Some(found.map(Arc::from)));
        });
        Some(waiting)
    }
}

/// A lookup's place among those under way, given up even if the resolver panics.
struct Entry {
    lookups: Lookups,
    name: Box<str>,
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.lookups.running.lock().remove(&self.name);
    }
}

#[cfg(test)]
impl Lookups {
    pub(super) fn under_way(&self) -> usize {
        self.running.lock().len()
    }
}
