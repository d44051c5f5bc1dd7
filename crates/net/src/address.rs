//! Tells public addresses of the internet from all others. Pure.
//!
//! Every block in the IANA registries of special-purpose addresses (RFC 6890 and its updates) counts
//! as private, including the few that are globally reachable (AS112, AMT), because no archive server
//! is there. The exceptions are mapped, translated and 6to4 IPv6 addresses: these are as public as the
//! IPv4 address that they contain.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// True for a public address of the internet; false for loopback, private, link-local (cloud
/// metadata), shared, documentation, multicast and reserved addresses.
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, d] = address.octets();
    let is_private = matches!(
        (a, b, c),
        (0 | 10 | 127, _, _)               // this network, private, loopback
            | (100, 64..=127, _)           // carrier-grade NAT
            | (169, 254, _)                // link-local, cloud metadata
            | (172, 16..=31, _)            // private
            | (192, 0, 0 | 2)              // protocols, documentation
            | (192, 31, 196)               // AS112
            | (192, 52, 193)               // AMT
            | (192, 88, 99)                // 6to4 relays, deprecated
            | (192, 168, _)                // private
            | (192, 175, 48)               // AS112
            | (198, 18..=19, _)            // benchmarks
            | (198, 51, 100)               // documentation
            | (203, 0, 113)                // documentation
            | (224.., _, _) // multicast, reserved, broadcast
    );
    // Azure's metadata service has an address in a public range.
    let is_metadata = (a, b, c, d) == (168, 63, 129, 16);
    !is_private && !is_metadata
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let segments = address.segments();
    let v4 = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        Ipv4Addr::new(a, b, c, d)
    };
    match segments {
        // Mapped (::ffff:a.b.c.d), translated (64:ff9b::a.b.c.d), and 6to4 (2002:a.b.c.d::).
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => {
            is_public_v4(v4(high, low))
        }
        // Protocols (Teredo, benchmarks, ORCHID), documentation, AS112, documentation.
        [0x2001, ..0x200 | 0xdb8, ..] | [0x2620, 0x4f, 0x8000, ..] | [0x3fff, ..0x1000, ..] => false,
        // Only 2000::/3 is global unicast; loopback, unique local, link-local, site-local,
        // multicast and all others are not.
        [first, ..] => first & 0xe000 == 0x2000,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn is_public_text(text: &str) -> bool {
        is_public(text.parse().expect("an address"))
    }

    #[test]
    fn private_addresses_are_not_public() {
        for text in [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "100.64.0.1",
            "100.127.255.255",
            "127.0.0.1",
            "127.8.8.8",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.8",
            "192.0.2.1",
            "192.168.1.1",
            "198.18.0.1",
            "198.51.100.7",
            "203.0.113.9",
            "224.0.0.1",
            "239.255.255.255",
            "240.0.0.1",
            "255.255.255.255",
            "168.63.129.16",
            "100.100.100.200",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::ffff:169.254.169.254",
            "64:ff9b::a00:1",
            "2002:7f00:1::",
            "2001::1",
            "2001:db8::1",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "::7f00:1",
            "64:ff9b:1::1",
            "100::1",
            "2620:4f:8000::1",
            "3fff::1",
        ] {
            assert!(!is_public_text(text), "{text}");
        }
    }

    #[test]
    fn public_addresses_are_public() {
        for text in [
            "1.1.1.1",
            "8.8.8.8",
            "100.63.255.255",
            "100.128.0.1",
            "172.15.0.1",
            "172.32.0.1",
            "192.0.1.1",
            "198.17.0.1",
            "223.255.255.255",
            "2606:4700::1111",
            "2a01:4f8::1",
            "::ffff:8.8.8.8",
            "64:ff9b::808:808",
            "2002:808:808::1",
        ] {
            assert!(is_public_text(text), "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_mapped_address_is_as_public_as_its_ipv4_address(bits in any::<u32>()) {
            let address = Ipv4Addr::from_bits(bits);
            prop_assert_eq!(is_public(address.to_ipv6_mapped().into()), is_public(address.into()));
        }

        #[test]
        fn addresses_that_the_standard_library_calls_private_are_private(bits in any::<u32>()) {
            let address = Ipv4Addr::from_bits(bits);
            let is_private = address.is_private() || address.is_loopback() || address.is_link_local()
                || address.is_multicast() || address.is_broadcast() || address.is_documentation() || address.is_unspecified();
            prop_assert!(!is_private || !is_public(address.into()));
        }
    }
}
