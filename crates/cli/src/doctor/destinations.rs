//! Where events go: whether the guard allows it, DNS knows it, and somebody listens.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use postrider_client::{Error, Gateway, Method};
use postrider_engine::destination::{
    Destination, Guard, Host, LookupError, NameServers, ResolveError, Resolver as _, Scheme,
};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::check::Check;
use super::dial::{self, Layer};
use crate::output::inert;

/// How many destinations are looked at, how many of them at the same time, and for how long all of
/// them.
const MAX_DESTINATIONS: usize = 200;
const AT_ONCE: usize = 16;
const DEADLINE: Duration = Duration::from_mins(1);

/// A name that is there to be asked for (RFC 6761). Names that cannot exist would do as well, but they
/// are not asked for: the resolver knows the answer.
const ANY_NAME: &str = "example.com";

/// How long a name server may take to say anything.
const DNS_DEADLINE: Duration = Duration::from_secs(3);

/// Whether each of the name servers answers.
pub(super) async fn name_servers(servers: &[SocketAddr]) -> Vec<Check> {
    let asked = servers.iter().map(|server| async move {
        let answered = match NameServers::new(&[*server]) {
            Ok(alone) => tokio::time::timeout(DNS_DEADLINE, alone.addresses(ANY_NAME))
                .await
                .unwrap_or(Err(LookupError::TimedOut)),
            Err(error) => Err(LookupError::Failed(error.to_string())),
        };
        let advice = "look whether it runs and can be reached from here, or give another \
                      --dns-server";
        match answered {
            Ok(_) | Err(LookupError::NoSuchName | LookupError::NoAddress) => {
                Check::ok("dns", format!("the name server {server} answers"))
            }
            Err(LookupError::TimedOut) => {
                Check::fail("dns", format!("the name server {server} does not answer"), advice)
            }
            // One that knows the names of its own network only may still be right for this gateway.
            Err(LookupError::Failed(why)) => Check::warn(
                "dns",
                format!("the name server {server} has no answer for {ANY_NAME}: {why}"),
                advice,
            ),
        }
    });
    stream::iter(asked).buffered(AT_ONCE).collect().await
}

/// One place, and who sends to it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Place {
    /// One of the URLs.
    url: String,
    /// One of the endpoints, by its id and its name.
    id: String,
    name: String,
    endpoints: usize,
    /// It has certificates of its own, which only the gateway can judge.
    own_tls: bool,
}

/// Looks at every destination once.
pub(super) async fn look(
    gateway: &Gateway,
    guard: &Guard,
    endpoints: &[Value],
    through_proxy: bool,
) -> Vec<Check> {
    let (places, left_out) = places(endpoints);
    let end = Instant::now() + DEADLINE;
    let looks = places.into_values().map(|place| async move {
        let look = one(gateway, guard, &place, through_proxy);
        tokio::time::timeout_at(end, look).await.unwrap_or_else(|_| {
            Check::warn(
                "destination",
                format!("{}: there was no time left to look at it", place.shown()),
                "run this again",
            )
        })
    });
    let mut checks: Vec<Check> = stream::iter(looks).buffered(AT_ONCE).collect().await;
    if left_out > 0 {
        checks.push(Check::warn(
            "destination",
            format!("{left_out} more destinations were not looked at"),
            "`postrider endpoints test` tries one endpoint",
        ));
    }
    checks
}

/// Destinations by scheme, host and port, and how many there is no room for.
fn places(endpoints: &[Value]) -> (BTreeMap<String, Place>, usize) {
    let mut places: BTreeMap<String, Place> = BTreeMap::new();
    let mut left_out = 0;
    for endpoint in endpoints {
        let Some(url) = endpoint["url"].as_str() else { continue };
        let id = endpoint["id"].as_str().unwrap_or_default();
        let name = endpoint["name"].as_str().filter(|name| !name.is_empty()).unwrap_or(id);
        let own_tls = endpoint["tls"].is_object();
        let origin = url::Url::parse(url).map(|url| url.origin().ascii_serialization());
        let key = format!("{} {own_tls}", origin.unwrap_or_else(|_| url.to_owned()));
        if let Some(place) = places.get_mut(&key) {
            place.endpoints += 1;
        } else if places.len() < MAX_DESTINATIONS {
            let (url, id, name) = (url.to_owned(), id.to_owned(), name.to_owned());
            places.insert(key, Place { url, id, name, endpoints: 1, own_tls });
        } else {
            left_out += 1;
        }
    }
    (places, left_out)
}

impl Place {
    fn shown(&self) -> String {
        let others = match self.endpoints - 1 {
            0 => String::new(),
            others => format!(" and {others} more"),
        };
        // Without its path and query, which may hold a token.
        let origin = url::Url::parse(&self.url).map(|url| url.origin().ascii_serialization());
        let origin = origin.unwrap_or_else(|_| "a URL that cannot be read".to_owned());
        format!("{} ({}{others})", inert(&origin), inert(&self.name))
    }
}

async fn one(gateway: &Gateway, guard: &Guard, place: &Place, through_proxy: bool) -> Check {
    const NAME: &str = "destination";
    let shown = place.shown();
    let refused_there = refused_by(gateway, &place.id).await;
    if let Some(why) = refused_there {
        return Check::fail(
            NAME,
            format!("{shown}: the gateway's guard refuses it: {}", inert(&why)),
            "change the URL, or start the gateway with what would allow it",
        );
    }
    let same = "give this command the same --allow-destination, --allow-port and --deny-port as the \
                gateway, or change the URL";
    let destination: Destination = match guard.check_url(&place.url) {
        Ok(destination) => destination,
        Err(refusal) => {
            let says =
                format!("{shown}: the gateway allows it, but not the flags given here: {refusal}");
            return Check::warn(NAME, says, same);
        }
    };
    let origin = destination.origin();
    let addresses = match guard.resolve(&origin.host, origin.port).await {
        Ok(addresses) => addresses,
        Err(error @ ResolveError::Refused { .. }) => {
            let says = format!("{shown}: by the flags given here the guard refuses it: {error}");
            return Check::warn(NAME, says, same);
        }
        Err(error) if through_proxy => {
            // What the proxy does with the name is its own affair, but the gateway resolves it first.
            return Check::fail(NAME, format!("{shown}: {error}"), "look at the name and at DNS");
        }
        Err(error) => {
            return Check::fail(
                NAME,
                format!("{shown}: {error}"),
                "look at the name in the URL, and at DNS on this machine; --dns-server chooses another \
                 name server",
            );
        }
    };
    if through_proxy {
        return Check::ok(NAME, format!("{shown}: allowed; it goes through the proxy"));
    }
    let host = origin.host.to_string();
    let (layer, how) = match (origin.scheme, place.own_tls) {
        (Scheme::Http, _) => (Layer::Tcp, "TCP"),
        (Scheme::Https, true) => (Layer::Tcp, "TCP; its own certificates were not looked at"),
        (Scheme::Https, false) => (Layer::Tls(&host), "TLS"),
    };
    match dial::reach(&addresses, layer).await {
        Ok(address) => {
            let at = match &origin.host {
                Host::Name(_) => format!(" at {}", address.ip()),
                Host::Address(_) => String::new(),
            };
            Check::ok(NAME, format!("{shown}: allowed, reachable{at} ({how})"))
        }
        Err(why) => Check::fail(
            NAME,
            format!("{shown}: allowed, but cannot be reached ({how}): {why}"),
            "look whether the receiver runs, whether a firewall stands between, and at its certificate",
        ),
    }
}

/// Why the gateway itself would not take the endpoint as it is; none if it would, or does not say.
async fn refused_by(gateway: &Gateway, id: &str) -> Option<String> {
    let path = format!("/v1/endpoints/{id}/preview");
    match gateway.request(Method::POST, &path, Some(&json!({}))).await {
        Err(Error::Refused { status: 422, detail, .. }) => Some(detail),
        Ok(_)
        | Err(
            Error::Refused { .. }
            | Error::Unreachable { .. }
            | Error::BadAnswer { .. }
            | Error::Invalid(_),
        ) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_place_is_looked_at_once() {
        let endpoints = [
            json!({ "id": "ep_1", "name": "a", "url": "https://example.com/one?token=hunter2" }),
            json!({ "id": "ep_2", "name": null, "url": "https://example.com:443/two" }),
            json!({ "id": "ep_3", "url": "https://example.com/three", "tls": { "ca": "…" } }),
            json!({ "id": "ep_4", "url": "http://example.com/" }),
            json!({ "id": "ep_5", "pull": true }),
        ];
        let (found, left_out) = places(&endpoints);
        assert_eq!((found.len(), left_out), (3, 0));
        let shown: Vec<String> = found.values().map(Place::shown).collect();
        assert!(shown.contains(&"https://example.com (a and 1 more)".to_owned()), "{shown:?}");
        assert!(shown.iter().all(|shown| !shown.contains("hunter2")), "{shown:?}");
        assert_eq!(found.values().filter(|place| place.own_tls).count(), 1);
    }

    #[test]
    fn there_is_an_end_to_places() {
        let endpoint =
            |number: usize| json!({ "id": "ep", "url": format!("http://h{number}.example/") });
        let endpoints: Vec<Value> = (0..MAX_DESTINATIONS + 7).map(endpoint).collect();
        let (found, left_out) = places(&endpoints);
        assert_eq!((found.len(), left_out), (MAX_DESTINATIONS, 7));
    }
}
