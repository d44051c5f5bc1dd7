//! Decides whether a redirect is followed. Pure.
//!
//! - Redirects from `https` to `http`, and to other schemes, are never followed.
//! - A literal address must be public. The addresses of a host name are checked when it is resolved
//!   ([`Reach`]).
//! - The host and port that the operator named may have a private address. Redirects to other private
//!   addresses (for example through a tunnel on this machine) are followed only with
//!   `--allow-private`.
//! - User and password are sent only to the host and port for which they were given.

use std::net::IpAddr;

use slotpress_base::hint;

use super::address::is_public;
use super::{NetError, Url};

pub const REDIRECTS_MAX: usize = 4;

/// Limit on the length of `Location` in bytes. Signed URLs have up to 2 KiB.
const LOCATION_BYTES_MAX: usize = 16 * 1024;

/// Addresses to which a host may resolve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    Anywhere,
    PublicOnly,
}

/// Limits the addresses that a request and its redirects may reach.
#[derive(Clone, Debug)]
pub struct Scope<'a> {
    /// The requested URL if the operator named it; `None` if it comes from a server or a peer.
    pub named_url: Option<&'a Url>,
    pub allow_private: bool,
}

impl Scope<'_> {
    /// Returns the addresses to which the URL's host may resolve.
    ///
    /// # Errors
    /// The host is a literal address that is not allowed.
    pub fn reach_of(&self, url: &Url) -> Result<Reach, NetError> {
        if self.allow_private || self.named_url.is_some_and(|named_url| is_same_server(named_url, url)) {
            return Ok(Reach::Anywhere);
        }
        match literal_address(url) {
            Some(address) if !is_public(address) => {
                Err(NetError::forbidden(url, "a private address that was not given as a source")
                    .with_hint(hint::ALLOW_PRIVATE))
            }
            _ => Ok(Reach::PublicOnly),
        }
    }
}

/// Returns the URL to which a redirect leads.
///
/// # Errors
/// `Location` is invalid, or leads from `https` to `http`.
pub fn resolve_redirect(from: &Url, location: &[u8]) -> Result<Url, NetError> {
    let bad_answer = |why: &str| NetError::bad_answer(from, why);
    let reference = match std::str::from_utf8(location) {
        Ok(text) if text.len() <= LOCATION_BYTES_MAX => text,
        _ => return Err(bad_answer("a redirect that is too long or not text")),
    };
    let mut url = from.join(reference).map_err(|_| bad_answer("a redirect to something that is not a URL"))?;
    match (from.scheme(), url.scheme()) {
        ("https", "http") => {
            return Err(NetError::forbidden(from, "a redirect from https to http is not followed"));
        }
        (_, "http" | "https") if url.host().is_some() => {}
        _ => return Err(bad_answer("a redirect to something that is not http or https")),
    }
    let (user, password) = if is_same_server(from, &url) { (from.username(), from.password()) } else { ("", None) };
    // These fail only for URLs without a host.
    let _ = url.set_username(user);
    let _ = url.set_password(password);
    url.set_fragment(None);
    Ok(url)
}

fn is_same_server(first: &Url, second: &Url) -> bool {
    first.host() == second.host() && first.port_or_known_default() == second.port_or_known_default()
}

fn literal_address(url: &Url) -> Option<IpAddr> {
    // The URL parser has already converted spellings such as 0x7f000001 to addresses.
    url.host_str()?.trim_start_matches('[').trim_end_matches(']').parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NetErrorKind;

    fn url(text: &str) -> Url {
        Url::parse(text).expect("a URL")
    }

    fn kind(result: Result<Url, NetError>) -> NetErrorKind {
        result.expect_err("an error").kind()
    }

    #[test]
    fn redirects_lead_to_web_servers_only() {
        let from = url("http://user:secret@host.example:8899/snapshot.tar.bz2");
        let next = resolve_redirect(&from, b"/snapshot-5-abc.tar.zst").expect("relative");
        assert_eq!(next.as_str(), "http://user:secret@host.example:8899/snapshot-5-abc.tar.zst");
        let next = resolve_redirect(&from, b"https://other.example/x#part").expect("absolute");
        assert_eq!(next.as_str(), "https://other.example/x");
        let next = resolve_redirect(&from, b"//evil:pw@other.example/x").expect("without a scheme");
        assert_eq!(next.as_str(), "http://other.example/x");
        assert_eq!(
            kind(resolve_redirect(&url("https://host.example/"), b"http://host.example/x")),
            NetErrorKind::Forbidden
        );
        for location in [&b"file:///etc/passwd"[..], b"ftp://a/b", b"http://", b"\xff", &[b'a'; 20_000], b"data:,x"] {
            assert_eq!(kind(resolve_redirect(&from, location)), NetErrorKind::BadAnswer, "{location:?}");
        }
    }

    #[test]
    fn private_addresses_must_be_named_or_allowed() {
        let named_url = url("http://127.0.0.1:8899/");
        let operator = Scope { named_url: Some(&named_url), allow_private: false };
        assert_eq!(operator.reach_of(&url("http://127.0.0.1:8899/x")).expect("itself"), Reach::Anywhere);
        assert_eq!(operator.reach_of(&url("http://host.example/x")).expect("a name"), Reach::PublicOnly);
        assert_eq!(operator.reach_of(&url("http://8.8.8.8/x")).expect("public"), Reach::PublicOnly);
        let private = [
            "http://127.0.0.1:22/",
            "http://127.0.0.2:8899/",
            "http://10.0.0.1/",
            "http://[::1]/",
            "http://[::ffff:10.0.0.1]/",
            "http://2130706433/",
            "http://0x7f.1/",
            "http://0/",
            "http://169.254.169.254/latest/meta-data",
        ];
        for text in private {
            assert_eq!(operator.reach_of(&url(text)).expect_err(text).kind(), NetErrorKind::Forbidden);
            let permissive = Scope { named_url: None, allow_private: true };
            assert_eq!(permissive.reach_of(&url(text)).expect(text), Reach::Anywhere);
        }
        let peer = Scope { named_url: None, allow_private: false };
        assert_eq!(peer.reach_of(&named_url).expect_err("named by a peer").kind(), NetErrorKind::Forbidden);
    }
}
