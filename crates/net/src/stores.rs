//! Reads from stores as from servers. A URL `s3://BUCKET/KEY` names a file, and each request for it
//! is signed right before it is sent. The signing is done by an implementation of [`Stores`] that
//! the client is given.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use reqwest::Method;
use slotpress_base::{Error, Progress, Result};
use slotpress_format::ArchiveName;

use super::{Client, NetError, Url, shown};

/// Scheme of URLs of stores.
pub const SCHEME: &str = "s3";

pub(super) const SCHEME_PREFIX: &str = "s3://";

/// Future of a store's answer.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, NetError>> + Send + 'a>>;

/// Access to stores by `s3://` URLs.
pub trait Stores: fmt::Debug + Send + Sync {
    /// Returns the signed URL for a request that is sent at once. Its query may be a key.
    fn signed<'a>(&'a self, client: &'a Client, method: &'a Method, url: &'a Url) -> Answer<'a, Url>;

    /// Asks why a file cannot be read. Fails with the reason, if the store tells more than a
    /// status.
    fn why_not<'a>(&'a self, client: &'a Client, url: &'a Url) -> Answer<'a, ()>;

    /// Lists the names of files below a prefix.
    fn names<'a>(&'a self, client: &'a Client, url: &'a Url) -> Answer<'a, Vec<String>>;
}

/// True for characters that need no encoding in a URL or signature. Other characters are refused,
/// so that each key has only one spelling.
fn is_plain(char: char) -> bool {
    char.is_ascii_alphanumeric() || "._-=/+".contains(char)
}

/// Refuses a URL that is not of the form `s3://BUCKET/KEY`.
pub(super) fn checked(url: Url) -> Result<Url> {
    let is_only_path = url.query().is_none() && url.fragment().is_none() && url.username().is_empty();
    let bucket = url.host_str().unwrap_or_default();
    let is_bucket =
        !bucket.is_empty() && url.port().is_none() && bucket.chars().all(|char| is_plain(char) && char != '/');
    let has_gap = url.path().trim_start_matches('/').contains("//");
    match is_only_path && url.password().is_none() && is_bucket && !has_gap && url.path().chars().all(is_plain) {
        true => Ok(url),
        // The message does not repeat the argument: it may contain a key.
        false => Err(Error::usage("an argument is not a store's URL: s3://BUCKET/PREFIX")
            .with_hint("a prefix has letters, digits and ._-=+/; keys come from the environment, never from a URL")),
    }
}

impl Client {
    fn stores(&self, url: &Url) -> Result<&dyn Stores, NetError> {
        let none = || NetError::forbidden(url, "this program was built without stores");
        self.stores.as_deref().ok_or_else(none)
    }

    pub(super) async fn signed(&self, method: &Method, url: &Url) -> Result<Url, NetError> {
        // Only URLs that the operator named are signed, never one that a server named.
        if !self.is_operator {
            return Err(NetError::forbidden(url, "a store that was not given as a source"));
        }
        let signed = self.stores(url)?.signed(self, method, url).await?;
        match signed.scheme() {
            "http" | "https" => Ok(signed),
            _ => Err(NetError::forbidden(url, format!("a store at {}", shown(&signed)))),
        }
    }

    /// Replaces an error by the store's explanation, unless a later attempt may succeed.
    pub(super) async fn explained(&self, url: &Url, error: NetError) -> NetError {
        match self.stores(url) {
            Ok(stores) if !error.is_retryable() => stores.why_not(self, url).await.err().unwrap_or(error),
            _ => error,
        }
    }

    pub(super) fn store_names(&self, url: &Url, stop: &dyn Progress) -> Result<Vec<ArchiveName>, NetError> {
        let names = self.wait(stop, async { self.stores(url)?.names(self, url).await })?;
        Ok(names.iter().filter_map(|name| ArchiveName::parse(name)).collect())
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn urls_of_stores() {
        let parse = crate::parse_url;
        for text in ["s3://bucket", "s3://bucket/", "s3://my.bucket-1/a/b_c/", "s3://bucket/year=2026/x.tar.zst"] {
            assert_eq!(parse(text).expect("a URL").as_str(), text);
        }
        for text in [
            "s3://",
            "s3:///x",
            "s3://key:secret@bucket/x",
            "s3://bucket/x?X-Amz-Signature=secret",
            "s3://b/a b",
            "s3://b:1/",
        ] {
            let error = parse(text).expect_err(text);
            assert!(!format!("{error:?}").contains("secret"), "{error:?}");
        }
    }
}
