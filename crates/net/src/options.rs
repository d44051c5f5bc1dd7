//! Options of a [`Client`](super::Client).

#![warn(missing_docs)]

use std::path::PathBuf;
use std::time::Duration;

use derive_setters::Setters;

/// Minimum transfer rate. A slower connection fails as a silent one does, and a download gives up on a
/// server that is slower for two minutes. At this rate, 1 GiB would take 12 days. Even if 64 connections
/// share a validator's line, each is faster.
pub const BYTES_PER_SECOND_MIN: u64 = 1024;

/// Timeouts, certificates, proxy and limits of a client. The defaults suit servers on other
/// continents.
#[derive(Clone, Debug, Setters)]
#[non_exhaustive]
pub struct ClientOptions {
    /// Time limit for a connection, including name lookup and TLS handshake. Default: 10 seconds.
    pub connect_timeout: Duration,
    /// Time limit for the headers of a response, including the time to connect. Default: 15 seconds.
    pub head_timeout: Duration,
    /// Time after which a transfer fails if it receives no bytes, or less than 1 KiB/s. A transfer as a
    /// whole has no time limit. Default: 20 seconds.
    pub read_timeout: Duration,
    /// Time limit for a whole small document or RPC response. Default: 60 seconds.
    pub document_timeout: Duration,
    /// PEM file with certificates of authorities that are trusted in addition to the system's. Default:
    /// none.
    #[setters(into, strip_option)]
    pub ca_file: Option<PathBuf>,
    /// URL of a proxy for all requests. Default: the proxies that `HTTPS_PROXY`, `HTTP_PROXY` and
    /// `ALL_PROXY` name, except for hosts in `NO_PROXY`.
    #[setters(into, strip_option)]
    pub proxy: Option<String>,
    /// Options for `s3://` URLs; `None` refuses them.
    #[cfg(feature = "s3")]
    #[setters(skip)]
    pub(crate) s3: Option<crate::s3::S3Options>,
    /// Allows redirects and peers at private addresses that the operator did not name. Default:
    /// false, so that no server reaches into the operator's network.
    pub allow_private: bool,
    /// Limit on the rate of all transfers together. Default: none.
    #[setters(strip_option)]
    pub max_rate_bytes_per_second: Option<u64>,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(10),
            head_timeout: Duration::from_secs(15),
            read_timeout: Duration::from_secs(20),
            document_timeout: Duration::from_secs(60),
            ca_file: None,
            proxy: None,
            #[cfg(feature = "s3")]
            s3: None,
            allow_private: false,
            max_rate_bytes_per_second: None,
        }
    }
}
