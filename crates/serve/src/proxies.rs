//! Determines the client of a request that came through a proxy.

use std::net::{IpAddr, SocketAddr};

use hyper::HeaderMap;
use hyper::header::HeaderName;

use super::conditions::list_values;

/// De facto standard header. Each proxy appends the address of its client.
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Returns the client of a request from the proxy at `peer`. Reads `X-Forwarded-For` from its end, up to
/// the first address that is not a trusted proxy's. That client may have invented the addresses before it.
/// If the list ends or an address is invalid before that, the last proxy that was read counts as the client.
pub fn find_client(peer: IpAddr, headers: &HeaderMap, trusted: &[IpAddr]) -> IpAddr {
    let hops: Vec<&str> = list_values(headers, &FORWARDED_FOR).collect();
    let mut client = peer;
    for hop in hops.into_iter().rev() {
        let Some(hop) = parse_address(hop) else { break };
        client = hop;
        if !is_trusted(hop, trusted) {
            break;
        }
    }
    client
}

pub fn is_trusted(address: IpAddr, trusted: &[IpAddr]) -> bool {
    let address = address.to_canonical();
    trusted.iter().any(|proxy| proxy.to_canonical() == address)
}

/// Parses an address. Some proxies append a port.
fn parse_address(text: &str) -> Option<IpAddr> {
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    bare.parse().ok().or_else(|| text.parse::<SocketAddr>().ok().map(|address| address.ip()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_address_that_is_not_a_proxy_is_the_client() {
        let ip = |text: &str| text.parse::<IpAddr>().expect("an address");
        let trusted = [ip("127.0.0.1"), ip("10.0.0.9")];
        let client = |lines: &[&str]| {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(FORWARDED_FOR, line.parse().expect("a value"));
            }
            find_client(ip("127.0.0.1"), &headers, &trusted).to_string()
        };
        for (lines, expected) in [
            (&[][..], "127.0.0.1"),
            (&["203.0.113.7"], "203.0.113.7"),
            (&["203.0.113.7:4711"], "203.0.113.7"),
            (&["[2001:db8::1]:4711"], "2001:db8::1"),
            (&["[2001:db8::1]"], "2001:db8::1"),
            // The addresses before the one that the proxy saw are only the client's claims.
            (&["1.2.3.4, 203.0.113.7"], "203.0.113.7"),
            (&["1.2.3.4", "203.0.113.7, 10.0.0.9"], "203.0.113.7"),
            (&["203.0.113.7, ::ffff:10.0.0.9"], "203.0.113.7"),
            // If all are proxies, the first one counts.
            (&["10.0.0.9, 127.0.0.1"], "10.0.0.9"),
            (&["unknown"], "127.0.0.1"),
            (&["1.2.3.4, unknown, 10.0.0.9"], "10.0.0.9"),
        ] {
            assert_eq!(client(lines), expected, "{lines:?}");
        }
    }
}
