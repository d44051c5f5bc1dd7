//! URLs of stores, `s3://BUCKET/KEY`. With the feature `s3`, `s3` sends requests to them.

use slotpress_base::{Error, Result};

use super::Url;

pub const SCHEME: &str = "s3";

/// True for characters that a URL may hold as they are. Other characters are refused, because a key with
/// them would have several spellings.
fn is_plain(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || "._-=/+".contains(letter)
}

/// Refuses a URL that is not of the form `s3://BUCKET/KEY`.
pub(super) fn check_url(url: Url) -> Result<Url> {
    let is_only_path = url.query().is_none() && url.fragment().is_none() && url.username().is_empty();
    let bucket = url.host_str().unwrap_or_default();
    let is_bucket =
        !bucket.is_empty() && url.port().is_none() && bucket.chars().all(|letter| is_plain(letter) && letter != '/');
    let has_gap = url.path().trim_start_matches('/').contains("//");
    if is_only_path && url.password().is_none() && is_bucket && !has_gap && url.path().chars().all(is_plain) {
        Ok(url)
    } else {
        // The message does not repeat the argument: it may contain a key.
        Err(Error::usage("an argument is not a store's URL: s3://BUCKET/PREFIX")
            .with_hint("a prefix has letters, digits and ._-=+/; keys come from the environment, never from a URL"))
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn urls_of_stores_have_bucket_and_path_only() {
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
