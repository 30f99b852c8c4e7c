//! The guard against a name server that answers as an attacker would have it.

use super::name_server::{Family, NXDOMAIN, NameServer, Question, Reply, SERVFAIL};
use super::*;

const PUBLIC: &str = "93.184.215.14";

fn asking(server: &NameServer, rules: Rules) -> Guard {
    let resolver = NameServers::new(&[server.address]).unwrap();
    Guard::with_resolver(rules, Arc::new(resolver))
}

fn name(text: &str) -> Host {
    Host::Name(text.into())
}

fn addresses(texts: &[&str]) -> Vec<IpAddr> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

#[tokio::test]
async fn name_servers_are_asked_for_both_families_and_nobody_else_is() {
    let server = NameServer::start(|question| match &*question.name {
        "both.example" => Reply::Addresses(addresses(&[PUBLIC, "2606:4700::1111"]), 300),
        "v6.example" => Reply::Addresses(addresses(&["2606:4700::1111"]), 300),
        // Names that the hosts file and the search list of a machine could answer for.
        "worker" | "ip6-localhost" => Reply::Addresses(addresses(&["10.0.0.7"]), 300),
        other => panic!("asked for {other}"),
    })
    .await;
    let guard = asking(&server, Rules { networks: networks(&["10.0.0.0/8"]), ..Rules::default() });
    for (host, expected) in [
        ("both.example", &["93.184.215.14:443", "[2606:4700::1111]:443"][..]),
        ("v6.example", &["[2606:4700::1111]:443"]),
        ("worker", &["10.0.0.7:443"]),
        ("ip6-localhost", &["10.0.0.7:443"]),
    ] {
        let dialed = guard.resolve(&name(host), 443).await.unwrap();
        let expected: Vec<SocketAddr> = expected.iter().map(|a| a.parse().unwrap()).collect();
        assert_eq!(dialed, expected, "{host}");
    }
}

#[tokio::test]
async fn an_answer_is_used_once_whatever_its_time_to_live() {
    for ttl in [0, 3600] {
        let server = NameServer::start(move |question| match question.number {
            // Both families of the first lookup.
            0 | 1 => Reply::Addresses(addresses(&[PUBLIC]), ttl),
            _ => Reply::Addresses(addresses(&["127.0.0.1"]), ttl),
        })
        .await;
        let guard = asking(&server, Rules::default());
        let host = name("rebind.example");
        let first = guard.resolve(&host, 443).await.unwrap();
        assert_eq!(first, [SocketAddr::new(PUBLIC.parse().unwrap(), 443)]);
        let second = guard.resolve(&host, 443).await.unwrap_err();
        assert!(matches!(second, ResolveError::Refused { .. }), "{second}");
        assert_eq!(server.questions(), 4);
    }
}

#[tokio::test]
async fn one_forbidden_answer_among_public_ones_refuses_the_name() {
    for answers in [
        &[PUBLIC, "127.0.0.1"][..],
        &["10.0.0.1", PUBLIC],
        &[PUBLIC, "::1"],
        &["2606:4700::1111", "169.254.169.254"],
        &[PUBLIC, "::ffff:127.0.0.1"],
        &[PUBLIC, "64:ff9b::7f00:1"],
    ] {
        let answers = addresses(answers);
        let server =
            NameServer::start(move |_: &Question| Reply::Addresses(answers.clone(), 0)).await;
        let outcome = asking(&server, Rules::default()).resolve(&name("mixed.example"), 443).await;
        assert!(matches!(outcome, Err(ResolveError::Refused { .. })), "{outcome:?}");
    }
}

#[tokio::test]
async fn an_allowed_name_is_judged_again_at_every_lookup() {
    let server = NameServer::start(|question| {
        let answer = match question.number / 2 {
            0 => "10.0.0.7",
            1 => PUBLIC,
            _ => "169.254.169.254",
        };
        Reply::Addresses(addresses(&[answer]), 0)
    })
    .await;
    let hosts = vec!["billing.internal".parse().unwrap()];
    let guard = asking(&server, Rules { hosts, ..Rules::default() });
    let host = name("billing.internal");
    for expected in ["10.0.0.7:9200", "93.184.215.14:9200"] {
        let dialed = guard.resolve(&host, 9200).await.unwrap();
        assert_eq!(dialed, [expected.parse().unwrap()]);
    }
    let metadata = guard.resolve(&host, 9200).await.unwrap_err();
    assert!(matches!(metadata, ResolveError::Refused { .. }), "{metadata}");
}

/// Row R41 of the hostile responses. The names are looked up side by side, because one of them
/// takes the whole budget.
#[tokio::test]
async fn hostile_answers_come_to_one_error_within_the_budget() {
    let server = NameServer::start(|question| match &*question.name {
        "nxdomain.example" => NXDOMAIN,
        "servfail.example" => SERVFAIL,
        "empty.example" => Reply::Addresses(Vec::new(), 0),
        "silent.example" => Reply::Silence,
        "many.example" => {
            let first = u32::from_be_bytes([8, 0, 0, 0]);
            let many = (0..4000).map(|n| Ipv4Addr::from_bits(first + n).into());
            Reply::Addresses(many.collect(), 0)
        }
        "loop.example" => Reply::Alias("pool.example".into()),
        "pool.example" => Reply::Alias("loop.example".into()),
        "self.example" => Reply::Alias("self.example".into()),
        chain => match chain.strip_suffix(".chain.example").unwrap().parse::<u8>().unwrap() {
            20 => Reply::Addresses(addresses(&[PUBLIC]), 0),
            step => Reply::Alias(format!("{}.chain.example", step + 1)),
        },
    })
    .await;
    let guard = asking(&server, Rules::default());
    let cases = [
        ("nxdomain.example", "could not be resolved: DNS knows no such name"),
        ("servfail.example", "could not be resolved: the DNS server answered \"Server Failure\""),
        ("empty.example", "has no address"),
        ("silent.example", "could not be resolved: no answer from DNS within 2s"),
        ("many.example", "has more than 64 addresses, which is too many to judge"),
        ("loop.example", "could not be resolved: its aliases (CNAME) lead to no address"),
        ("self.example", "has no address"),
        ("0.chain.example", "could not be resolved: its aliases (CNAME) lead to no address"),
    ];
    let lookups = cases.map(async |(host, expected)| {
        let budget = DNS_BUDGET * 2;
        let outcome = tokio::time::timeout(budget, guard.resolve(&name(host), 443)).await;
        let error = outcome.expect("the budget bounds it").unwrap_err();
        assert_eq!(error.to_string(), format!("{host} {expected}"));
    });
    futures_util::future::join_all(lookups).await;
    // The longest that any name asks: eight steps for each family, each step tried twice.
    assert!(server.questions() <= cases.len() * 2 * 8 * 2, "{} questions", server.questions());
}

#[tokio::test]
async fn a_family_that_is_never_answered_does_not_hide_the_other() {
    let server = NameServer::start(|question| match question.family {
        Family::V4 => Reply::Addresses(addresses(&[PUBLIC]), 0),
        Family::V6 => Reply::Silence,
    })
    .await;
    let guard = asking(&server, Rules::default());
    let dialed = guard.resolve(&name("half.example"), 443).await.unwrap();
    assert_eq!(dialed, [SocketAddr::new(PUBLIC.parse().unwrap(), 443)]);
}

#[tokio::test]
async fn an_answer_that_fits_no_datagram_comes_over_tcp() {
    let many = || (1..=64_u8).map(|n| IpAddr::from([8, 8, 8, n]));
    let padded = format!("{}.{}.example", "a".repeat(60), "b".repeat(60));
    let server = NameServer::start(move |_: &Question| Reply::Addresses(many().collect(), 0)).await;
    let guard = asking(&server, Rules::default());
    let dialed = guard.resolve(&name(&padded), 443).await.unwrap();
    assert_eq!(dialed.len(), MAX_DIALED);
    // The address family without records is answered at once; the other is asked again over TCP.
    assert!(server.questions() >= 2);
}

#[test]
fn the_number_of_name_servers_is_bounded() {
    let server: SocketAddr = "127.0.0.1:53".parse().unwrap();
    assert_eq!(NameServers::new(&[]).unwrap_err(), BadNameServers::None);
    let too_many = [server; MAX_DNS_SERVERS + 1];
    assert_eq!(NameServers::new(&too_many).unwrap_err(), BadNameServers::TooMany);
}
