//! The guard of destinations: what it lets through is public, written in one way, and let through
//! again as it was normalised; what it refuses stays refused in other spellings. The bytes are a
//! URL, or what an operator allows.

use std::net::{IpAddr, Ipv6Addr};

use postrider_engine::destination::{
    Allowance, Destination, Guard, Host, HostPattern, MAX_URL_BYTES, Refusal, Rules,
};

/// What the guard that allows more lets through beside public addresses.
const ALLOWED: [&str; 3] = ["10.0.0.0/8", "::1/128", "*.internal.example"];

pub fn url_guard(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    allowances_read_back(text);
    let guard = Guard::new(Vec::new());
    let verdict = guard.check_url(text);
    assert_eq!(verdict, guard.check_url(text), "the same URL has the same verdict");
    match verdict {
        Ok(destination) => {
            let origin = destination.origin();
            assert_ne!(origin.port, 0);
            match &origin.host {
                Host::Address(address) => {
                    assert!(is_public(*address), "{address} was let through");
                    assert_eq!(guard.check_address(*address), Ok(()));
                }
                Host::Name(name) => name_is_plain(name),
            }
            let authority = destination.authority().as_bytes();
            let plain = |byte: &u8| byte.is_ascii_graphic() && !b"@/\\?#".contains(byte);
            assert!(!authority.is_empty() && authority.iter().all(plain), "{authority:?}");

            let url = destination.url().to_string();
            if url.len() <= MAX_URL_BYTES {
                reads_as_itself(&guard, &url, &destination);
            }
            let more = allowing_more().check_url(text);
            assert!(more.is_ok(), "{more:?} where more is allowed");
        }
        Err(refusal) => {
            assert!(!refusal.to_string().is_empty());
            stays_refused(&guard, &refusal);
        }
    }
}

/// A URL as it was normalised is the same destination. One exception refuses too much: of an address
/// that carries an IPv4 address, the usual spelling has dots and the normalised one has none.
fn reads_as_itself(guard: &Guard, url: &str, destination: &Destination) {
    let again = guard.check_url(url);
    let carries_v4 = match destination.origin().host {
        Host::Address(IpAddr::V6(address)) => address.to_ipv4_mapped().is_some(),
        Host::Address(IpAddr::V4(_)) | Host::Name(_) => false,
    };
    if !(carries_v4 && matches!(again, Err(Refusal::Spelling(_)))) {
        assert_eq!(again.as_ref(), Ok(destination), "{url} as it was normalised");
    }
}

fn allowing_more() -> Guard {
    let mut rules = Rules::default();
    for text in ALLOWED {
        rules.allow(text.parse().expect("a network or a name"));
    }
    Guard::with_rules(rules)
}

/// An address that is refused in one spelling is refused in all.
fn stays_refused(guard: &Guard, refusal: &Refusal) {
    let (Refusal::Address(address, _) | Refusal::NameOfAddress(_, address, _)) = refusal else {
        return;
    };
    let refused = |url: String| assert!(guard.check_url(&url).is_err(), "{url} was let through");
    assert!(guard.check_address(*address).is_err(), "{address}");
    let mut spellings = vec![*address, address.to_canonical()];
    if let IpAddr::V4(address) = address.to_canonical() {
        let [a, b, c, d] = address.octets();
        let (high, low) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
        // Mapped, and as a gateway to IPv4 would translate it.
        spellings.push(address.to_ipv6_mapped().into());
        spellings.push(Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, high, low).into());
        refused(format!("http://{}/", u32::from(address)));
        refused(format!("http://{:#x}/", u32::from(address)));
        refused(format!("http://{a:#o}.{b}.{c}.{d}/").replace("0o", "0"));
        refused(format!("http://{address}.nip.io/"));
    }
    for address in spellings {
        assert!(guard.check_address(address).is_err(), "{address} was let through");
        match address {
            IpAddr::V4(address) => refused(format!("https://{address}:8443/path?query")),
            IpAddr::V6(address) => refused(format!("https://[{address}]:8443/path?query")),
        }
    }
}

fn name_is_plain(name: &str) {
    let plain = |char: char| {
        char.is_ascii_lowercase() || char.is_ascii_digit() || matches!(char, '.' | '-' | '_')
    };
    assert!(!name.is_empty() && name.chars().all(plain), "{name:?} was let through");
    assert!(name.contains('.') && !name.ends_with('.'), "{name:?} was let through");
    assert!(name != "localhost" && !name.ends_with(".localhost"), "{name:?} was let through");
    assert!(name.parse::<IpAddr>().is_err(), "{name:?} is an address");
}

/// What the standard library knows of addresses: less than the guard does, and found by others.
fn is_public(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => {
            !(address.is_loopback()
                || address.is_private()
                || address.is_link_local()
                || address.is_unspecified()
                || address.is_broadcast()
                || address.is_multicast()
                || address.is_documentation())
        }
        IpAddr::V6(address) => {
            !(address.is_loopback()
                || address.is_unspecified()
                || address.is_multicast()
                || address.is_unique_local()
                || address.is_unicast_link_local())
        }
    }
}

/// What an operator allows is read, or refused by a sentence that repeats it; a pattern for names
/// is written as it is read.
fn allowances_read_back(text: &str) {
    match text.parse::<Allowance>() {
        Ok(Allowance::Host(pattern)) => {
            let again = pattern.to_string().parse::<HostPattern>();
            assert_eq!(again, Ok(pattern), "{text:?}");
        }
        Ok(Allowance::Network(_)) => {}
        Err(bad) => assert!(bad.to_string().contains(text), "{bad}"),
    }
    if let Ok(pattern) = text.parse::<HostPattern>() {
        let name = pattern.to_string();
        // `*.example.com` is for what is below that name.
        match name.strip_prefix("*.") {
            Some(base) => assert!(!pattern.matches(base) && pattern.matches(&format!("a.{base}"))),
            None => assert!(pattern.matches(&name) && !pattern.matches(&format!("a.{name}"))),
        }
    }
}
