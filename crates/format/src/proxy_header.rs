//! What a proxy sends in front of a connection that it passes on: who the client is (the PROXY protocol of HAProxy, versions
//! 1 and 2). Pure.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// What a header of version 1 begins with.
pub const TEXT_START: &[u8] = b"PROXY ";

/// The longest line of version 1, with its end.
pub const TEXT_BYTES_MAX: usize = 107;

/// What a header of version 2 begins with.
pub const BINARY_START: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";

/// The part of version 2 that every header has: start, version and command, family, length of the rest.
pub const BINARY_HEAD_BYTES: usize = 16;

/// The most that may follow it: addresses take 36 bytes, what proxies add (names, an identifier, a certificate's) some
/// hundreds. The protocol allows 64 KiB.
pub const BINARY_REST_BYTES_MAX: usize = 4096;

/// Why a header is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadHeader;

/// The client of a connection, by a line of version 1 with its end. `None` where the proxy does not know it.
///
/// # Errors
/// It is no such line.
pub fn parse_text(line: &[u8]) -> Result<Option<SocketAddr>, BadHeader> {
    let text = line.strip_prefix(TEXT_START).and_then(|rest| rest.strip_suffix(b"\r\n")).ok_or(BadHeader)?;
    let mut words = std::str::from_utf8(text).map_err(|_| BadHeader)?.split(' ');
    let family = words.next();
    if family == Some("UNKNOWN") {
        return Ok(None);
    }
    let mut word = || words.next().ok_or(BadHeader);
    let ip = |text: &str| -> Result<IpAddr, BadHeader> {
        match family {
            Some("TCP4") => text.parse().map(IpAddr::V4).map_err(|_| BadHeader),
            Some("TCP6") => text.parse().map(IpAddr::V6).map_err(|_| BadHeader),
            _ => Err(BadHeader),
        }
    };
    let (client, _server) = (ip(word()?)?, ip(word()?)?);
    let port = |text: &str| text.parse::<u16>().map_err(|_| BadHeader);
    let (client_port, _server_port) = (port(word()?)?, port(word()?)?);
    match words.next() {
        None => Ok(Some(SocketAddr::new(client, client_port))),
        Some(_) => Err(BadHeader),
    }
}

/// How many bytes follow the head of a header of version 2.
///
/// # Errors
/// It is no such head, or of more than [`BINARY_REST_BYTES_MAX`].
pub fn rest_bytes(head: &[u8; BINARY_HEAD_BYTES]) -> Result<usize, BadHeader> {
    let [.., version_and_command, _, high, low] = *head;
    let length = usize::from(u16::from_be_bytes([high, low]));
    let is_known = head.starts_with(BINARY_START) && matches!(version_and_command, 0x20 | 0x21);
    (is_known && length <= BINARY_REST_BYTES_MAX).then_some(length).ok_or(BadHeader)
}

/// The client of a connection, by a header of version 2: its head, and what follows that. `None` where the proxy speaks for
/// itself, or passes on something else than TCP over IP.
///
/// # Errors
/// It is no such header.
pub fn parse_binary(head: &[u8; BINARY_HEAD_BYTES], rest: &[u8]) -> Result<Option<SocketAddr>, BadHeader> {
    if rest_bytes(head)? != rest.len() {
        return Err(BadHeader);
    }
    let [.., version_and_command, family, _, _] = *head;
    let (ip, ports) = match (version_and_command, family) {
        (0x21, 0x11) => {
            let (ip, rest) = rest.split_first_chunk::<4>().ok_or(BadHeader)?;
            (IpAddr::V4(Ipv4Addr::from(*ip)), rest.get(4..8))
        }
        (0x21, 0x21) => {
            let (ip, rest) = rest.split_first_chunk::<16>().ok_or(BadHeader)?;
            (IpAddr::V6(Ipv6Addr::from(*ip)), rest.get(16..20))
        }
        _ => return Ok(None),
    };
    let port = ports.and_then(|ports| ports.first_chunk::<2>()).ok_or(BadHeader)?;
    Ok(Some(SocketAddr::new(ip, u16::from_be_bytes(*port))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        let parse = |line: &str| parse_text(line.as_bytes()).map(|client| client.map(|client| client.to_string()));
        let is = |text: &str| Ok(Some(text.to_string()));
        assert_eq!(parse("PROXY TCP4 203.0.113.7 10.0.0.1 4711 80\r\n"), is("203.0.113.7:4711"));
        assert_eq!(parse("PROXY TCP6 2001:db8::1 ::1 65535 80\r\n"), is("[2001:db8::1]:65535"));
        assert_eq!(parse("PROXY UNKNOWN\r\n"), Ok(None));
        assert_eq!(parse("PROXY UNKNOWN ffff:: ffff:: 1 2\r\n"), Ok(None));
        for wrong in [
            "PROXY TCP4 203.0.113.7 10.0.0.1 4711 80\n",
            "PROXY TCP4 203.0.113.7 10.0.0.1 4711\r\n",
            "PROXY TCP4 203.0.113.7 10.0.0.1 4711 80 1\r\n",
            "PROXY TCP4 2001:db8::1 ::1 1 2\r\n",
            "PROXY TCP6 203.0.113.7 10.0.0.1 4711 80\r\n",
            "PROXY TCP4 203.0.113.7 10.0.0.1 65536 80\r\n",
            "PROXY  TCP4 203.0.113.7 10.0.0.1 1 80\r\n",
            "PROXY UDP4 203.0.113.7 10.0.0.1 1 80\r\n",
            "GET / HTTP/1.1\r\n",
            "PROXY \r\n",
        ] {
            assert_eq!(parse(wrong), Err(BadHeader), "{wrong}");
        }
    }

    #[test]
    fn bytes() {
        let head = |version_and_command: u8, family: u8, length: u16| -> [u8; BINARY_HEAD_BYTES] {
            let [high, low] = length.to_be_bytes();
            [&BINARY_START[..], &[version_and_command, family, high, low]].concat().try_into().expect("16 bytes")
        };
        let ipv4 = [203, 0, 113, 7, 10, 0, 0, 1, 0x12, 0x67, 0, 80];
        let client = Ok("203.0.113.7:4711".parse().ok());
        assert_eq!(parse_binary(&head(0x21, 0x11, 12), &ipv4), client);
        let with_more = [&ipv4[..], &[4, 0, 1, 9]].concat();
        assert_eq!(parse_binary(&head(0x21, 0x11, 16), &with_more), client, "what a proxy adds is passed over");
        let ipv6 = [&Ipv6Addr::LOCALHOST.octets()[..], &[0; 16], &[0, 9, 0, 80]].concat();
        assert_eq!(parse_binary(&head(0x21, 0x21, 36), &ipv6), Ok("[::1]:9".parse().ok()));
        assert_eq!(parse_binary(&head(0x20, 0, 0), &[]), Ok(None), "the proxy looks whether the server lives");
        assert_eq!(parse_binary(&head(0x21, 0x31, 3), &[1; 3]), Ok(None), "a socket of Unix");
        assert_eq!(parse_binary(&head(0x21, 0x11, 11), &ipv4[..11]), Err(BadHeader));
        assert_eq!(parse_binary(&head(0x21, 0x11, 12), &ipv4[..11]), Err(BadHeader));
        assert_eq!(rest_bytes(&head(0x11, 0x11, 12)), Err(BadHeader), "version 1");
        assert_eq!(rest_bytes(&head(0x21, 0x11, 4097)), Err(BadHeader), "too long");
    }
}
