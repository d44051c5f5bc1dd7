//! An internal part of slotpress, without a stable interface: use the crate `slotpress`.
//!
//! HTTP client: reads archives and small documents from servers.
//!
//! A [`Client`] runs its asynchronous parts on its own threads. Its callers are ordinary threads, which
//! block and can be interrupted. Responses are untrusted: this crate checks lengths, names, addresses
//! and redirects. [`UrlSource`] reads an archive by ranges, and [`StreamSource`] reads it once, as it
//! arrives. [`servers`] parses SOURCE arguments, [`fetch`] downloads archives to disk, and [`find`]
//! decides which archive to download.
//!
//! Transfers use HTTP/1.1, because then each range has its own connection. Bodies are requested without an
//! encoding (`Accept-Encoding: identity`).

// These lints apply because this crate reads what servers send.
#![cfg_attr(not(test), warn(clippy::indexing_slicing))]
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]
#![cfg_attr(not(test), warn(clippy::cast_possible_truncation))]
#![cfg_attr(not(test), warn(clippy::cast_possible_wrap))]
#![cfg_attr(not(test), warn(clippy::cast_sign_loss))]

mod address;
mod client;
mod content_range;
mod error;
pub mod fetch;
pub mod find;
#[cfg(not(feature = "s3"))]
mod no_s3;
pub mod options;
mod redirect;
mod remote;
mod request;
pub mod retries;
mod rpc;
#[cfg(feature = "s3")]
pub mod s3;
pub mod servers;
pub mod stores;
pub mod stream_source;
mod transfer;
pub mod url_source;

pub use client::Client;
pub use error::{NetError, NetErrorKind};
pub use fetch::{
    Download, DownloadFault, FetchLimits, Fetched, PartialFile, STREAMS_DEFAULT, STREAMS_MAX, accept_file,
    remove_leftover_journal,
};
pub use find::{Candidate, Cluster, FindOptions, FindReport, MaxAge, ask_patiently};
pub use options::ClientOptions;
pub use remote::{Remote, origin_of};
pub use reqwest::{self, Url};
pub use servers::{Offer, OfferPlace, SourceLocation, join_name};
use slotpress_base::{Error, Result, one_line};
pub use stream_source::StreamSource;
pub use transfer::Body;
pub use url_source::{UrlSource, open_archive_at_url};

/// Formats a URL for messages, JSON and journals: without user, password, query and fragment. The
/// query of a signed URL is a secret, because it grants access.
pub fn show_url(url: &Url) -> String {
    let mut url = url.clone();
    // These fail only for URLs that cannot have a user.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    let had_query = url.query().is_some();
    url.set_query(None);
    url.set_fragment(None);
    one_line(&if had_query { format!("{url}?…") } else { url.to_string() })
}

/// True if an argument is a URL of a supported scheme, rather than a path.
pub fn is_url(argument: &str) -> bool {
    let scheme = argument.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
    matches!(scheme.as_deref(), Some("http" | "https" | stores::SCHEME))
}

/// Guesses the URL for `HOST:PORT`, with or without a path. Returns `None` if the text has no port, or
/// may contain a secret.
pub fn url_of_host(text: &str) -> Option<String> {
    let (host, port) = text.split('/').next()?.rsplit_once(':')?;
    let is_host =
        host.starts_with('[') || host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-".contains(&byte));
    if host.is_empty() || !is_host || port.parse::<u16>().is_err() {
        return None;
    }
    Url::parse(&format!("http://{text}")).ok().map(|url| show_url(&url))
}

/// Parses a URL that the operator passed.
///
/// # Errors
/// The text is not a URL, lacks a host, or has a scheme that is not supported.
pub fn parse_url(text: &str) -> Result<Url> {
    if !text.contains("://") {
        let hint = url_of_host(text).unwrap_or_else(|| "http://HOST:PORT".to_string());
        return Err(
            Error::usage("an argument is not a URL: it has no http:// or https://").with_hint(format!("write {hint}"))
        );
    }
    // The message does not repeat the argument: it may contain a password.
    let url = Url::parse(text).map_err(|error| Error::usage(format!("an argument is not a URL: {error}")))?;
    match url.scheme() {
        "http" | "https" if url.host().is_some() => Ok(url),
        "http" | "https" => Err(Error::usage(format!("{} has no host", show_url(&url)))),
        stores::SCHEME => stores::check_url(url),
        other => Err(Error::usage(format!("{other}:// is not supported: URLs start with http://, https:// or s3://"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shown_urls_and_errors_contain_no_secret() {
        let url = parse_url("https://user:secret@host.example:8443/a/b.tar.zst?X-Signature=abc#x").expect("a URL");
        assert_eq!(show_url(&url), "https://host.example:8443/a/b.tar.zst?…");
        let error = parse_url("http://user:secret@[::1").expect_err("no URL");
        assert!(!error.to_string().contains("secret"), "{error}");
        assert!(parse_url("ftp://host/x").is_err());
        assert!(parse_url("file:///etc/passwd").is_err());
    }

    #[test]
    fn hosts_without_a_scheme_get_a_hint() {
        for (text, url) in [
            ("localhost:8899", Some("http://localhost:8899/")),
            ("10.0.0.1:80/x.tar.zst", Some("http://10.0.0.1/x.tar.zst")),
            ("[::1]:8899", Some("http://[::1]:8899/")),
            ("user:secret@host:80", None),
            ("snapshot.tar.zst", None),
            ("a:b", None),
            (":80", None),
            ("a b:80", None),
        ] {
            assert_eq!(url_of_host(text).as_deref(), url, "{text}");
        }
        let error = parse_url("localhost:8899").expect_err("no scheme");
        assert_eq!(error.hint().map(ToString::to_string).as_deref(), Some("write http://localhost:8899/"), "{error}");
        let error = parse_url("user:secret@host:80").expect_err("no scheme");
        assert!(!format!("{error:?}").contains("secret"), "{error:?}");
    }

    #[test]
    fn paths_are_not_urls() {
        for text in ["http://a", "HTTPS://a"] {
            assert!(is_url(text), "{text}");
        }
        for text in ["httpx", "snapshot.tar.zst", "", "http:/a"] {
            assert!(!is_url(text), "{text}");
        }
    }
}
