//! The guard against tables of URLs, addresses, allowed networks and DNS answers.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod dns;
pub(crate) mod name_server;
mod rules;

use std::net::SocketAddr;

use super::*;

const URLS: &str = include_str!("../../tests/data/destination_urls.tsv");

fn guard(allowed: &[&str]) -> Guard {
    Guard::new(networks(allowed))
}

fn networks(texts: &[&str]) -> Vec<IpNet> {
    texts.iter().map(|network| network.parse().unwrap()).collect()
}

/// The table writes JSON strings, but NUL as `\0`, which JSON does not know.
fn unquote(json: &str) -> String {
    serde_json::from_str(&json.replace(r"\0", r"\u0000")).unwrap()
}

#[test]
fn every_url_of_the_table_comes_out_as_its_verdict_says() {
    let guard = guard(&[]);
    let mut rows = 0;
    let mut wrong = Vec::new();
    for line in URLS.lines().skip(1) {
        let [url, verdict, why] = line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("not three columns: {line}");
        };
        let url = unquote(url);
        let outcome = guard.check_url(&url);
        let expected = match verdict {
            "ACCEPT" => true,
            "REJECT" => false,
            other => panic!("unknown verdict {other}"),
        };
        if outcome.is_ok() != expected {
            wrong.push(format!("{url:?} should be {verdict} ({why}), got {outcome:?}"));
        }
        rows += 1;
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(rows, 79);
}

#[test]
fn every_unusual_spelling_is_refused_even_where_its_address_is_allowed() {
    let guard = guard(&["0.0.0.0/0", "::/0"]);
    for line in URLS.lines().filter(|line| line.contains("non-canonical")) {
        let url = unquote(line.split('\t').next().unwrap());
        let refusal = guard.check_url(&url).unwrap_err();
        assert!(matches!(refusal, Refusal::Spelling(_) | Refusal::EncodedHost), "{url}: {refusal}");
    }
}

#[test]
fn refusals_are_sentences_without_the_password() {
    let cases = [
        ("https://bob:s3cret@example.com/", Refusal::Userinfo),
        ("bob:s3cret@example.com", Refusal::Scheme),
        ("ftp://bob:s3cret@example.com/", Refusal::Scheme),
        ("https://bob:s3cret@[::1", Refusal::Userinfo),
        ("https://example.com:22/", Refusal::Port(22)),
        ("https://bob:s3 cret@example.com/", Refusal::Characters),
        ("http://localhost:8080/", Refusal::LocalName("localhost".into())),
        ("http://a.localhost/", Refusal::LocalName("a.localhost".into())),
        ("http://db.internal/", Refusal::InternalName("db.internal".into())),
        ("http://printer.local/", Refusal::InternalName("printer.local".into())),
        ("http://example.com./", Refusal::Name("a part between the dots is empty")),
        ("http://[2001:DB8::1]/", {
            Refusal::Address("2001:db8::1".parse().unwrap(), "a documentation address")
        }),
        ("http://10.1.2.3.nip.io/", {
            let address = "10.1.2.3".parse().unwrap();
            Refusal::NameOfAddress("10.1.2.3.nip.io".into(), address, "a private address")
        }),
    ];
    for (url, refusal) in cases {
        let got = guard(&[]).check_url(url).unwrap_err();
        assert_eq!(got, refusal, "{url}");
        let sentence = got.to_string();
        assert!(!sentence.contains("s3cret") && !sentence.contains("bob"), "{sentence}");
    }
}

#[test]
fn a_url_is_bounded_in_length() {
    let longest = format!("https://example.com/{}", "a".repeat(MAX_URL_BYTES - 20));
    assert_eq!(longest.len(), MAX_URL_BYTES);
    assert!(guard(&[]).check_url(&longest).is_ok());
    assert_eq!(guard(&[]).check_url(&format!("{longest}a")), Err(Refusal::TooLong));
}

#[test]
fn a_destination_is_normalised_and_split_once() {
    let destination =
        guard(&[]).check_url("HTTPS://Exämple.COM:8443/a b?q=1#frag".replace(' ', "%20").as_str());
    let destination = destination.unwrap();
    assert_eq!(destination.to_string(), "https://xn--exmple-cua.com:8443/a%20b?q=1");
    assert_eq!(destination.target(), "/a%20b?q=1");
    assert_eq!(destination.authority(), "xn--exmple-cua.com:8443");
    let origin = destination.origin();
    assert_eq!((origin.scheme, origin.port), (Scheme::Https, 8443));
    assert_eq!(origin.host, Host::Name("xn--exmple-cua.com".into()));

    let bare = guard(&[]).check_url("http://93.184.215.14:80").unwrap();
    assert_eq!((bare.target().path(), bare.authority().to_str().unwrap()), ("/", "93.184.215.14"));
    assert_eq!(bare.origin().port, 80);
    assert_eq!(bare.origin().host, Host::Address("93.184.215.14".parse().unwrap()));
}

#[test]
fn addresses_are_refused_by_class_and_public_ones_are_not() {
    let forbidden = [
        "0.0.0.0",
        "0.1.2.3",
        "10.0.0.0",
        "10.255.255.255",
        "100.64.0.0",
        "100.127.255.255",
        "127.0.0.1",
        "127.255.255.255",
        "168.63.129.16",
        "169.254.169.254",
        "172.16.0.1",
        "172.31.255.255",
        "192.0.0.1",
        "192.0.2.1",
        "192.88.99.1",
        "192.168.0.1",
        "198.18.0.1",
        "198.19.255.255",
        "198.51.100.7",
        "203.0.113.9",
        "224.0.0.1",
        "239.255.255.255",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::7f00:1",
        "::808:808",
        "::ffff:127.0.0.1",
        "::ffff:169.254.169.254",
        "::ffff:0:7f00:1",
        "64:ff9b::7f00:1",
        "64:ff9b::a9fe:a9fe",
        "64:ff9b:1::808:808",
        "100::1",
        "100:0:0:1::1",
        "2001::1",
        "2001:0:7f00:1::",
        "2001:2::1",
        "2001:1ff::1",
        "2001:db8::1",
        "2002:7f00:1::",
        "2002:808:808::1",
        "3fff::1",
        "5f00::1",
        "fc00::1",
        "fd00:ec2::254",
        "fd12:3456::1",
        "fe80::1",
        "febf::1",
        "fec0::1",
        "feff::1",
        "ff02::1",
        "4000::1",
        "8000::1",
    ];
    let public = [
        "1.1.1.1",
        "8.8.8.8",
        "9.255.255.255",
        "11.0.0.0",
        "100.63.255.255",
        "100.128.0.0",
        "126.255.255.255",
        "128.0.0.0",
        "169.253.0.1",
        "172.15.255.255",
        "172.32.0.0",
        "192.167.255.255",
        "192.169.0.0",
        "198.17.255.255",
        "198.20.0.0",
        "223.255.255.255",
        "::ffff:8.8.8.8",
        "64:ff9b::808:808",
        "2001:200::1",
        "2606:4700::1111",
        "2a00:1450::1",
        "2003::1",
        "3ffe::1",
    ];
    let guard = guard(&[]);
    for address in forbidden {
        let address: IpAddr = address.parse().unwrap();
        assert!(guard.check_address(address).is_err(), "{address} passed");
    }
    for address in public {
        let address: IpAddr = address.parse().unwrap();
        assert_eq!(guard.check_address(address), Ok(()));
    }
}

#[test]
fn allowed_networks_open_exactly_what_they_contain() {
    let check = |allowed: &[&str], url: &str| guard(allowed).check_url(url).is_ok();
    let loopback = &["127.0.0.0/8"];
    let cases: &[(&[&str], &str, bool)] = &[
        (loopback, "http://127.0.0.1/", true),
        (loopback, "http://127.0.0.1:9/", true),
        (loopback, "http://127.0.0.1:0/", false),
        (loopback, "http://[::ffff:127.0.0.1]/", true),
        (loopback, "http://localhost:8080/", true),
        (loopback, "http://localhost:22/", true),
        (loopback, "http://localhost:0/", false),
        (loopback, "http://x.localhost/", true),
        (loopback, "http://127.0.0.1.nip.io/", true),
        (loopback, "http://[::1]/", false),
        (loopback, "http://10.0.0.1/", false),
        (loopback, "http://93.184.215.14:22/", false),
        (loopback, "http://worker:8080/", false),
        (loopback, "http://metadata.google.internal/", false),
        (&["::1/128"], "http://[::1]:81/", true),
        (&["::1/128"], "http://localhost/", true),
        (&["::1/128"], "http://127.0.0.1/", false),
        (&["10.0.0.0/8"], "http://10.1.2.3:25/", true),
        (&["10.0.0.0/8"], "http://worker:8080/", true),
        (&["10.0.0.0/8"], "http://billing.internal/", true),
        (&["10.0.0.0/8"], "http://localhost/", false),
        (&["10.0.0.0/8"], "http://127.0.0.1/", false),
        (&["10.0.0.0/8"], "http://169.254.169.254.nip.io/", false),
        (&["10.0.0.0/8"], "http://[64:ff9b::a01:203]/", true),
        (&["64:ff9b::/96"], "http://[64:ff9b::a9fe:a9fe]/", false),
        (&["fd00::/8"], "http://[fd12::1]/", true),
        (&["fd00::/8"], "http://[fc12::1]/", false),
    ];
    for (allowed, url, expected) in cases {
        assert_eq!(check(allowed, url), *expected, "{url} with {allowed:?}");
    }
}

#[test]
fn one_forbidden_answer_refuses_the_name_and_few_answers_are_dialled() {
    let guard = guard(&[]);
    let host = Host::Name("example.com".into());
    let vet = |answers: &[&str]| {
        let answers: Vec<IpAddr> = answers.iter().map(|a| a.parse().unwrap()).collect();
        guard.vet(&host, &answers, 80)
    };
    assert_eq!(vet(&[]), Err(ResolveError::NoAddress { host: host.clone() }));
    for answers in
        [&["127.0.0.1"][..], &["8.8.8.8", "10.0.0.1"], &["2606:4700::1", "8.8.8.8", "fe80::1"]]
    {
        assert!(matches!(vet(answers), Err(ResolveError::Refused { .. })), "{answers:?}");
    }
    let dialed = vet(&["2606:4700::1", "2606:4700::1", "2606:4700::2", "8.8.8.8"]);
    let expected = ["[2606:4700::1]:80", "8.8.8.8:80", "[2606:4700::2]:80"];
    assert_eq!(dialed.unwrap(), expected.map(|a| a.parse().unwrap()));

    let many = |count: u32| -> Vec<IpAddr> {
        (0..count).map(|n| Ipv4Addr::from_bits(0x0800_0000 + n).into()).collect()
    };
    let most = many(u32::try_from(MAX_ANSWERS).unwrap());
    let dialed = guard.vet(&host, &most, 80).unwrap();
    assert!(dialed.iter().map(SocketAddr::ip).eq(most[..MAX_DIALED].iter().copied()));
    let too_many = many(u32::try_from(MAX_ANSWERS + 1).unwrap());
    let refused = guard.vet(&host, &too_many, 80);
    assert_eq!(refused, Err(ResolveError::TooManyAddresses { host: host.clone() }));
}

/// A name that the system resolver answers everywhere, without a network.
fn answered_name() -> Host {
    Host::Name("127.0.0.1".into())
}

#[tokio::test]
async fn names_and_literals_are_judged_at_dial_time() {
    let literal = Host::Address(Ipv4Addr::LOCALHOST.into());
    for host in [literal, answered_name(), Host::Name("localhost".into())] {
        let refused = guard(&[]).resolve(&host, 80).await.unwrap_err();
        assert!(matches!(refused, ResolveError::Refused { .. }), "{refused}");
        let dialed = guard(&["127.0.0.0/8"]).resolve(&host, 8080).await.unwrap();
        assert_eq!(dialed, ["127.0.0.1:8080".parse().unwrap()]);
    }
}

#[tokio::test]
async fn a_resolver_that_panics_leaves_the_name_free_to_be_asked_again() {
    #[derive(Debug)]
    struct Panicking;
    impl Resolver for Panicking {
        fn addresses<'a>(
            &'a self,
            _: &'a str,
        ) -> futures_util::future::BoxFuture<'a, Result<Vec<IpAddr>, LookupError>> {
            panic!("this is what the test is about")
        }
    }
    let guard = Guard::with_resolver(Rules::default(), Arc::new(Panicking));
    let failed = guard.resolve(&Host::Name("example.com".into()), 80).await;
    assert!(matches!(failed, Err(ResolveError::Failed { .. })), "{failed:?}");
    assert_eq!(guard.lookups.under_way(), 0);
}

#[tokio::test]
async fn waiting_callers_share_one_lookup_and_leave_nothing_behind() {
    let guard = guard(&["127.0.0.0/8"]);
    let host = answered_name();
    let first = guard.lookups.join("127.0.0.1").unwrap();
    let second = guard.lookups.join("127.0.0.1").unwrap();
    assert!(first.same_channel(&second));
    assert_eq!(guard.lookups.under_way(), 1);
    assert_eq!(guard.resolve(&host, 80).await.unwrap(), ["127.0.0.1:80".parse().unwrap()]);
    assert_eq!(guard.lookups.under_way(), 0);
}

#[tokio::test]
async fn lookups_under_way_are_bounded() {
    let guard = guard(&[]);
    // None of them begins before this test first waits.
    for n in 0..MAX_LOOKUPS {
        assert!(guard.lookups.join(&format!("10.0.0.{n}")).is_some());
    }
    assert!(guard.lookups.join("10.0.0.0").is_some());
    assert!(guard.lookups.join("10.0.1.0").is_none());
    let busy = guard.resolve(&Host::Name("10.0.1.0".into()), 80).await;
    assert!(matches!(busy, Err(ResolveError::Busy { .. })), "{busy:?}");
}
