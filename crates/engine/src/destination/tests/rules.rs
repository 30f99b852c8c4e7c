//! What an operator's rules open and close: names, ports, and both together with networks.

use super::*;

fn rules(allow: &[&str], allow_ports: &[u16], deny_ports: &[u16]) -> Rules {
    let mut rules = Rules {
        allow_ports: allow_ports.to_vec(),
        deny_ports: deny_ports.to_vec(),
        ..Rules::default()
    };
    for text in allow {
        rules.allow(text.parse().unwrap());
    }
    rules
}

#[test]
fn allowances_are_networks_addresses_or_names() {
    let network = |text: &str| Ok(Allowance::Network(text.parse().unwrap()));
    let shown = |text: &str| {
        text.parse().map(|allowance| match allowance {
            Allowance::Network(network) => network.to_string(),
            Allowance::Host(host) => host.to_string(),
        })
    };
    assert_eq!("10.0.0.0/8".parse(), network("10.0.0.0/8"));
    assert_eq!("10.1.2.3".parse(), network("10.1.2.3/32"));
    assert_eq!("::1".parse(), network("::1/128"));
    for (text, expected) in [
        ("billing.internal", "billing.internal"),
        ("Billing.INTERNAL", "billing.internal"),
        ("*.internal.example", "*.internal.example"),
        ("*.internal", "*.internal"),
        ("exämple.com", "xn--exmple-cua.com"),
        ("localhost", "localhost"),
    ] {
        assert_eq!(shown(text), Ok(expected.to_owned()), "{text}");
    }
    let network = BadAllowance::Network as fn(String) -> BadAllowance;
    for (text, expected) in [
        ("10.0.0.0/33", network),
        ("10.0.0/8", network),
        ("billing.internal:80", network),
        ("http://billing.internal/", network),
        ("*", BadAllowance::Everything),
        ("*.", BadAllowance::Everything),
        ("", BadAllowance::Host),
        ("a..b", BadAllowance::Host),
        ("billing.internal.", BadAllowance::Host),
        ("a.*.b", BadAllowance::Host),
        ("*billing.internal", BadAllowance::Host),
        ("a b", BadAllowance::Host),
        ("127.1", BadAllowance::Address),
        ("*.0x7f000001", BadAllowance::Address),
    ] {
        assert_eq!(shown(text), Err(expected(text.to_owned())), "{text}");
    }
}

#[test]
fn names_are_matched_whole_or_below() {
    let cases = [
        ("billing.internal", "billing.internal", true),
        ("billing.internal", "x.billing.internal", false),
        ("billing.internal", "xbilling.internal", false),
        ("billing.internal", "internal", false),
        ("*.internal.example", "a.internal.example", true),
        ("*.internal.example", "a.b.internal.example", true),
        ("*.internal.example", "internal.example", false),
        ("*.internal.example", "xinternal.example", false),
        ("*.internal.example", "a.internal.example.evil", false),
    ];
    for (pattern, name, expected) in cases {
        let parsed: HostPattern = pattern.parse().unwrap();
        assert_eq!(parsed.matches(name), expected, "{pattern} and {name}");
    }
}

#[test]
fn an_allowed_name_passes_where_others_do_not() {
    let allowed = rules(&["billing.internal", "*.corp.example", "worker", "*.nip.io"], &[], &[]);
    let guard = Guard::with_rules(allowed);
    let cases = [
        ("http://billing.internal/", true),
        ("http://BILLING.internal:9200/", true),
        ("http://billing.internal:22/", true),
        ("http://billing.internal:0/", false),
        ("http://other.internal/", false),
        ("http://a.corp.example:6379/", true),
        ("http://corp.example:6379/", false),
        ("http://corp.example/", true),
        ("http://worker/", true),
        ("http://worker2/", false),
        ("http://127.0.0.1.nip.io/", true),
        ("http://127.0.0.1/", false),
        ("http://localhost/", false),
    ];
    for (url, expected) in cases {
        let outcome = guard.check_url(url);
        assert_eq!(outcome.is_ok(), expected, "{url}: {outcome:?}");
    }
}

#[test]
fn an_allowed_name_opens_ordinary_machines_and_nothing_else() {
    let opened = [
        "8.8.8.8",
        "10.0.0.1",
        "100.64.0.1",
        "127.0.0.1",
        "172.16.0.1",
        "192.168.0.1",
        "198.18.0.1",
        "240.0.0.1",
        "::1",
        "::ffff:10.0.0.1",
        "64:ff9b::a00:1",
        "fc00::1",
        "fd12:3456::1",
    ];
    let closed = [
        "0.0.0.0",
        "0.1.2.3",
        "100.100.100.200",
        "168.63.129.16",
        "169.254.169.254",
        "169.254.170.2",
        "192.0.0.192",
        "224.0.0.1",
        "239.255.255.255",
        "255.255.255.255",
        "::",
        "::7f00:1",
        "::ffff:0.0.0.0",
        "::ffff:169.254.169.254",
        "64:ff9b::a9fe:a9fe",
        "64:ff9b:1::a00:1",
        "2002:a9fe:a9fe::",
        "fd00:ec2::254",
        "fd20:ce::254",
        "fe80::1",
        "ff02::1",
    ];
    let host = Host::Name("billing.internal".into());
    let by_name = Guard::with_rules(rules(&["billing.internal"], &[], &[]));
    let by_both = Guard::with_rules(rules(&["billing.internal", "0.0.0.0/0", "::/0"], &[], &[]));
    let vet = |guard: &Guard, address: &str| guard.vet(&host, &[address.parse().unwrap()], 80);
    for address in opened {
        assert!(vet(&by_name, address).is_ok(), "{address}");
    }
    for address in closed {
        let outcome = vet(&by_name, address);
        assert!(matches!(outcome, Err(ResolveError::Refused { .. })), "{address}: {outcome:?}");
        assert!(vet(&by_both, address).is_ok(), "{address}");
    }
}

#[test]
fn ports_are_open_by_default_where_webhooks_live() {
    let guard = Guard::with_rules(Rules::default());
    for port in [80, 443, 1024, 3000, 5000, 8000, 8080, 8443, 9000, 9443, 49152, 65535] {
        assert!(guard.check_url(&format!("https://example.com:{port}/")).is_ok(), "{port}");
    }
    for port in [1, 21, 22, 25, 53, 79, 81, 110, 389, 442, 444, 465, 587, 1023] {
        let refused = guard.check_url(&format!("https://example.com:{port}/"));
        assert_eq!(refused, Err(Refusal::Port(port)));
    }
    for port in [
        1433, 1521, 2375, 2376, 2379, 2380, 3306, 3389, 5432, 5672, 5900, 6379, 6443, 8500, 9042,
        9092, 9200, 9300, 10250, 11211, 27017,
    ] {
        let refused = guard.check_url(&format!("https://example.com:{port}/"));
        assert!(matches!(refused, Err(Refusal::ServicePort(..))), "{port}: {refused:?}");
    }
}

/// What is allowed, the ports allowed, the ports denied; the URL; whether it passes.
type PortCase<'a> = (&'a [&'a str], &'a [u16], &'a [u16], &'a str, bool);

#[test]
fn allowed_and_denied_ports_change_the_defaults() {
    let everything = &["0.0.0.0/0", "::/0"][..];
    let cases: &[PortCase<'_>] = &[
        (&[], &[25], &[], "http://example.com:25/", true),
        (&[], &[25], &[], "http://example.com:26/", false),
        (&[], &[6379], &[], "http://example.com:6379/", true),
        (&[], &[0], &[], "http://example.com:0/", false),
        (&[], &[], &[8080], "http://example.com:8080/", false),
        (&[], &[], &[443], "https://example.com/", false),
        (&[], &[8080], &[8080], "http://example.com:8080/", false),
        (&["10.0.0.0/8"], &[], &[], "http://10.0.0.1:6379/", true),
        (&["10.0.0.0/8"], &[], &[], "http://[64:ff9b::a00:1]:6379/", true),
        (&["10.0.0.0/8"], &[], &[6379], "http://10.0.0.1:6379/", false),
        (&["10.0.0.0/8"], &[], &[], "http://example.com:6379/", false),
        (&["db.internal"], &[], &[], "http://db.internal:5432/", true),
        (&["db.internal"], &[], &[5432], "http://db.internal:5432/", false),
        (&["127.0.0.0/8"], &[], &[], "http://localhost:6379/", true),
        (everything, &[], &[], "http://example.com:6379/", true),
        (&["0.0.0.0/0"], &[], &[], "http://example.com:6379/", false),
    ];
    for (allow, allow_ports, deny_ports, url, expected) in cases {
        let outcome = Guard::with_rules(rules(allow, allow_ports, deny_ports)).check_url(url);
        let rules = (allow, allow_ports, deny_ports);
        assert_eq!(outcome.is_ok(), *expected, "{url} with {rules:?}: {outcome:?}");
    }
}

#[test]
fn refusals_name_the_flag_that_would_allow_it() {
    let denied = Guard::with_rules(rules(&[], &[], &[8080]));
    for (url, flag) in [
        ("http://10.0.0.1/", "--allow-destination"),
        ("http://localhost/", "--allow-destination 127.0.0.0/8"),
        ("http://billing.internal/", "--allow-destination billing.internal"),
        ("http://10.0.0.1.nip.io/", "--allow-destination"),
        ("http://example.com:25/", "--allow-port 25"),
        ("http://example.com:6379/", "--allow-port 6379"),
        ("http://example.com:8080/", "--deny-port 8080"),
    ] {
        let sentence = denied.check_url(url).unwrap_err().to_string();
        assert!(sentence.contains(flag), "{sentence}");
    }
    let redis = denied.check_url("http://example.com:6379/").unwrap_err().to_string();
    assert!(redis.contains("Redis"), "{redis}");
}

#[tokio::test]
async fn ports_and_names_are_judged_again_at_dial_time() {
    let loopback = Host::Address(Ipv4Addr::LOCALHOST.into());
    let public = Host::Address(Ipv4Addr::new(8, 8, 8, 8).into());
    let refusal = async |rules: Rules, host: &Host, port| match Guard::with_rules(rules)
        .resolve(host, port)
        .await
    {
        Err(ResolveError::Refused { refusal, .. }) => Some(refusal),
        Ok(_) => None,
        Err(other) => panic!("{other}"),
    };
    let none = Rules::default;
    assert_eq!(refusal(none(), &public, 25).await, Some(Refusal::Port(25)));
    assert_eq!(refusal(none(), &public, 443).await, None);
    let denied = rules(&["127.0.0.0/8"], &[], &[443]);
    assert_eq!(refusal(denied, &loopback, 443).await, Some(Refusal::DeniedPort(443)));
    let local = Host::Name("localhost".into());
    assert_eq!(refusal(rules(&["localhost"], &[], &[]), &local, 22).await, None);
    let other = refusal(rules(&["billing.internal"], &[], &[]), &local, 80).await;
    assert_eq!(other, Some(Refusal::LocalName("localhost".into())));
}
