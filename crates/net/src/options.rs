//! Options of a [`Client`](super::Client).

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use derive_setters::Setters;

use crate::Stores;

/// Least transfer rate. A slower connection fails like a silent one, and a server from which less is kept for two
/// minutes is given up. At this rate, an archive of 1 GiB would take 12 days: the lines of validators are faster, even
/// shared by 64 connections.
pub const BYTES_PER_SECOND_MIN: u64 = 1024;

/// Timeouts, certificates, proxy and limits of a client. The defaults suit servers on other continents.
#[derive(Clone, Debug, Setters)]
#[non_exhaustive]
pub struct ClientOptions {
    /// Time limit for a connection, including name lookup and TLS handshake.
    pub connect_timeout: Duration,
    /// Time limit for the head of an answer, including the connection.
    pub head_timeout: Duration,
    /// Time limit without a byte, or with less than 1 KiB/s. A whole transfer has no time limit.
    pub read_timeout: Duration,
    /// Time limit for a whole small document or RPC answer.
    pub document_timeout: Duration,
    /// PEM file with certificates of authorities to trust in addition to the system's.
    #[setters(into)]
    pub ca_file: Option<PathBuf>,
    /// Proxy for all requests; `None` to follow `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY`.
    #[setters(into)]
    pub proxy: Option<String>,
    /// Reader of `s3://` URLs; `None` to refuse them.
    #[setters(into)]
    pub stores: Option<Arc<dyn Stores>>,
    pub allow_private: bool,
    /// Limit on the rate of bodies in bytes per second, for all transfers of the client together; `None` for none.
    #[setters(into)]
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
            stores: None,
            allow_private: false,
            max_rate_bytes_per_second: None,
        }
    }
}
