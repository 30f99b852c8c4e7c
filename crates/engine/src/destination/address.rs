//! Which addresses are not public: the IANA special-purpose registries for IPv4 and IPv6, the
//! addresses at which clouds serve their machines' credentials, and the forms in which one address
//! carries another.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{Ipv4Net, Ipv6Net};

use Opens::{ByName, ByNetwork};

/// What an address is that is not a public one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Class {
    pub(super) what: &'static str,
    pub(super) opens: Opens,
}

/// What an operator has to allow before such an address is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Opens {
    /// A host name that stands for it is enough: it is an ordinary machine of somebody's network.
    ByName,
    /// Nothing but its network. Whoever answers for an allowed name must not be able to lead here:
    /// it is no machine at all, or the cloud's own, or it hides another address.
    ByNetwork,
}

pub(super) fn class(address: IpAddr) -> Option<Class> {
    let found = match address {
        IpAddr::V4(address) => SPECIAL_V4
            .iter()
            .find(|(network, ..)| network.contains(&address))
            .map(|(_, what, opens)| (*what, *opens)),
        IpAddr::V6(address) => SPECIAL_V6
            .iter()
            .find(|(network, ..)| network.contains(&address))
            .map(|(_, what, opens)| (*what, *opens))
            .or_else(|| (!GLOBAL_UNICAST.contains(&address)).then_some(OUTSIDE_GLOBAL_UNICAST)),
    };
    found.map(|(what, opens)| Class { what, opens })
}

/// The IPv4 address that a NAT64 gateway translates this one to (RFC 6052, the well-known prefix).
pub(super) fn nat64(address: IpAddr) -> Option<Ipv4Addr> {
    match address {
        IpAddr::V6(address) if NAT64.contains(&address) => {
            let [.., a, b, c, d] = address.octets();
            Some(Ipv4Addr::new(a, b, c, d))
        }
        IpAddr::V6(_) | IpAddr::V4(_) => None,
    }
}

/// The IPv4 addresses that four labels in a row of a host name spell.
pub(super) fn spelled_in(name: &str) -> impl Iterator<Item = Ipv4Addr> {
    let labels: Vec<Option<u8>> = name.split('.').map(|label| label.parse().ok()).collect();
    let spelled: Vec<Ipv4Addr> = labels
        .windows(4)
        .filter_map(|window| match *window {
            [Some(a), Some(b), Some(c), Some(d)] => Some(Ipv4Addr::new(a, b, c, d)),
            _ => None,
        })
        .collect();
    spelled.into_iter()
}

const OUTSIDE_GLOBAL_UNICAST: (&str, Opens) = ("outside the global unicast space", ByNetwork);
const GLOBAL_UNICAST: Ipv6Net = v6([0x2000, 0, 0, 0, 0, 0, 0, 0], 3);
const NAT64: Ipv6Net = v6([0x64, 0xff9b, 0, 0, 0, 0, 0, 0], 96);
const METADATA: &str = "a cloud's metadata address";

/// The first match names the class, so the narrower network stands first.
const SPECIAL_V4: [(Ipv4Net, &str, Opens); 18] = [
    (v4([0, 0, 0, 0], 8), "an address of this network", ByNetwork),
    (v4([10, 0, 0, 0], 8), "a private address", ByName),
    (v4([100, 100, 100, 200], 32), METADATA, ByNetwork),
    (v4([100, 64, 0, 0], 10), "a shared (carrier-grade NAT) address", ByName),
    (v4([127, 0, 0, 0], 8), "a loopback address", ByName),
    // A public address by its number, but it always is the host under an Azure machine.
    (v4([168, 63, 129, 16], 32), METADATA, ByNetwork),
    (v4([169, 254, 0, 0], 16), "a link-local address", ByNetwork),
    (v4([172, 16, 0, 0], 12), "a private address", ByName),
    (v4([192, 0, 0, 0], 24), "reserved for protocol assignments", ByNetwork),
    (v4([192, 0, 2, 0], 24), "a documentation address", ByName),
    (v4([192, 88, 99, 0], 24), "a 6to4 relay address", ByNetwork),
    (v4([192, 168, 0, 0], 16), "a private address", ByName),
    (v4([198, 18, 0, 0], 15), "a benchmarking address", ByName),
    (v4([198, 51, 100, 0], 24), "a documentation address", ByName),
    (v4([203, 0, 113, 0], 24), "a documentation address", ByName),
    (v4([224, 0, 0, 0], 4), "a multicast address", ByNetwork),
    (v4([255, 255, 255, 255], 32), "the broadcast address", ByNetwork),
    (v4([240, 0, 0, 0], 4), "a reserved address", ByName),
];

/// The first match names the class, so the narrower network stands first.
const SPECIAL_V6: [(Ipv6Net, &str, Opens); 20] = [
    (v6([0, 0, 0, 0, 0, 0, 0, 0], 128), "the unspecified address", ByNetwork),
    (v6([0, 0, 0, 0, 0, 0, 0, 1], 128), "a loopback address", ByName),
    (v6([0, 0, 0, 0, 0, 0, 0, 0], 96), "an IPv4-compatible address", ByNetwork),
    (v6([0, 0, 0, 0, 0xffff, 0, 0, 0], 96), "an IPv4-translated address", ByNetwork),
    (v6([0x64, 0xff9b, 1, 0, 0, 0, 0, 0], 48), "a local NAT64 address", ByNetwork),
    (v6([0x100, 0, 0, 0, 0, 0, 0, 0], 64), "a discard address", ByNetwork),
    (v6([0x100, 0, 0, 1, 0, 0, 0, 0], 64), "a dummy address", ByNetwork),
    (v6([0x2001, 0, 0, 0, 0, 0, 0, 0], 32), "a Teredo address", ByNetwork),
    (v6([0x2001, 2, 0, 0, 0, 0, 0, 0], 48), "a benchmarking address", ByName),
    (v6([0x2001, 0, 0, 0, 0, 0, 0, 0], 23), "reserved for protocol assignments", ByNetwork),
    (v6([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0], 32), "a documentation address", ByName),
    (v6([0x2002, 0, 0, 0, 0, 0, 0, 0], 16), "a 6to4 address", ByNetwork),
    (v6([0x3fff, 0, 0, 0, 0, 0, 0, 0], 20), "a documentation address", ByName),
    (v6([0x5f00, 0, 0, 0, 0, 0, 0, 0], 16), "a segment routing identifier", ByNetwork),
    (v6([0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254], 128), METADATA, ByNetwork),
    (v6([0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254], 128), METADATA, ByNetwork),
    (v6([0xfc00, 0, 0, 0, 0, 0, 0, 0], 7), "a unique local address", ByName),
    (v6([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10), "a link-local address", ByNetwork),
    (v6([0xfec0, 0, 0, 0, 0, 0, 0, 0], 10), "a site-local address", ByName),
    (v6([0xff00, 0, 0, 0, 0, 0, 0, 0], 8), "a multicast address", ByNetwork),
];

const fn v4(octets: [u8; 4], prefix: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::from_octets(octets), prefix)
}

const fn v6(segments: [u16; 8], prefix: u8) -> Ipv6Net {
    Ipv6Net::new_assert(Ipv6Addr::from_segments(segments), prefix)
}
