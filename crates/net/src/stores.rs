//! URLs of stores, `s3://BUCKET/KEY`. With the feature `s3`, the module `s3` sends requests to them.

use slotpress_base::{Error, Result};

use super::Url;

pub const SCHEME: &str = "s3";

/// True for the characters that a store's URL may contain. All others are refused, because an object key
/// that contains them could be spelled in several ways.
fn is_plain(character: char) -> bool {
    character.is_ascii_alphanumeric() || "._-=/+".contains(character)
}

/// Refuses a URL that is not of the form `s3://BUCKET/KEY`.
pub(super) fn check_url(url: Url) -> Result<Url> {
    let has_user = !url.username().is_empty() || url.password().is_some();
    let has_more = url.port().is_some() || url.query().is_some() || url.fragment().is_some();
    let bucket = url.host_str().unwrap_or_default();
    let is_bucket = !bucket.is_empty() && bucket.chars().all(|character| is_plain(character) && character != '/');
    let has_empty_segment = url.path().trim_start_matches('/').contains("//");
    let is_key = !has_empty_segment && url.path().chars().all(is_plain);
    if is_bucket && is_key && !has_user && !has_more {
        Ok(url)
    } else {
        // The message does not repeat the argument: it may contain credentials.
        Err(Error::usage("an argument is not a store's URL: s3://BUCKET/PREFIX")
            .with_hint("a prefix consists of letters, digits and ._-=+/; never add credentials"))
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn urls_of_stores_have_only_a_bucket_and_a_path() {
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
