//! How a [`Client`](super::Client) connects.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use derive_setters::Setters;

use crate::Stores;

/// A connection that brings less than this fails as a silent one does, and a server of which less is kept for two minutes is given
/// up. Through it, an archive of 1 GiB would take 12 days: no line that a validator has is as slow, shared by 64 connections.
pub const BYTES_PER_SECOND_MIN: u64 = 1024;

/// Times, certificates, proxy and bounds of a client. The defaults suit servers on other continents.
#[derive(Clone, Debug, Setters)]
#[non_exhaustive]
pub struct ClientOptions {
    /// Until a connection stands, with its name looked up and TLS agreed.
    pub connect_timeout: Duration,
    /// Until the head of an answer is there; connecting is part of it.
    pub head_timeout: Duration,
    /// The longest time without a byte, or with less than 1 KiB in each second. There is no time limit for a whole transfer.
    pub read_timeout: Duration,
    /// For the whole of a small document or of an RPC answer.
    pub document_timeout: Duration,
    /// Certificates of authorities, PEM, that are trusted beside those of the system.
    #[setters(into)]
    pub ca_file: Option<PathBuf>,
    /// The proxy for everything. Without it, those that `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY` name.
    #[setters(into)]
    pub proxy: Option<String>,
    /// What reads from stores: without it, `s3://` is not asked.
    #[setters(into)]
    pub stores: Option<Arc<dyn Stores>>,
    /// Servers may lead to private addresses.
    pub allow_private: bool,
    /// The most bytes of bodies in a second, all transfers of the client together.
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
