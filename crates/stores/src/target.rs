//! Parses a TARGET argument.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use slotpress_base::{Error, EscapePath, Result};
use slotpress_net::{Url, join_name, parse_url, show_url};

/// A place to publish archives: a directory, or `s3://BUCKET/PREFIX`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A directory on a local disk.
    Dir(PathBuf),
    /// A prefix in a bucket; the URL ends in `/`.
    S3(Url),
}

impl Target {
    /// Returns a target below this one: a subdirectory, or a longer prefix.
    #[must_use]
    pub fn join(&self, name: &str) -> Self {
        match self {
            Self::Dir(dir) => Self::Dir(dir.join(name)),
            Self::S3(url) => Self::S3(join_name(&join_name(url, name), "")),
        }
    }
}

impl FromStr for Target {
    type Err = Error;

    /// Parses a path, which need not exist, or the URL of a bucket.
    fn from_str(text: &str) -> Result<Self> {
        if !text.contains("://") {
            return Ok(Self::Dir(PathBuf::from(text)));
        }
        if !text.get(..5).is_some_and(|scheme| scheme.eq_ignore_ascii_case("s3://")) {
            return Err(Error::usage("a target is a directory or s3://BUCKET/PREFIX")
                .with_hint("for a service that speaks S3, pass its URL as the endpoint"));
        }
        let url = parse_url(text)?;
        Ok(Self::S3(join_name(&url, "")))
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dir(dir) => dir.escaped().fmt(f),
            Self::S3(url) => f.write_str(&show_url(url)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_paths_or_urls_of_buckets() {
        let parse = |text: &str| text.parse::<Target>().expect("a target");
        for (text, url) in [
            ("s3://bucket", "s3://bucket/"),
            ("s3://bucket/a/b", "s3://bucket/a/b/"),
            ("S3://bucket/a/b/", "s3://bucket/a/b/"),
        ] {
            assert_eq!(parse(text).to_string(), url);
        }
        assert_eq!(parse("s3://bucket/a").join("kept").to_string(), "s3://bucket/a/kept/");
        assert_eq!(parse("/a/b"), Target::Dir("/a/b".into()));
        for text in ["https://host/x", "gs://bucket", "s3://key:secret@bucket/"] {
            let error = text.parse::<Target>().expect_err(text);
            assert!(error.kind().exit_code() == 2 && !format!("{error:?}").contains("secret"), "{error:?}");
        }
    }
}
