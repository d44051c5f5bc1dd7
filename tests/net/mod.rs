//! Good and bad servers on this machine: what the client accepts, and what it refuses.

mod faults;
mod real;

use std::ops::Range;
use std::time::Duration;

use slotpress_base::NoProgress;
use slotpress_net::{Client, ClientOptions, NetError, Remote, Url, parse_url};

/// Returns options with short timeouts, because tests wait for stalls to end.
pub fn options() -> ClientOptions {
    ClientOptions::default()
        .connect_timeout(Duration::from_secs(5))
        .head_timeout(Duration::from_secs(5))
        .read_timeout(Duration::from_secs(1))
        .document_timeout(Duration::from_secs(5))
}

pub fn client() -> Client {
    Client::new(&options()).expect("a client")
}

pub fn url(text: &str) -> Url {
    parse_url(text).expect("a URL")
}

pub fn request_head(client: &Client, text: &str) -> Result<Remote, NetError> {
    client.head(&url(text), &NoProgress)
}

/// Requests a file or a range of it. Returns true if the server sent the whole file, and the bytes that
/// arrived before the end or an error.
pub fn get_bytes(client: &Client, remote: &Remote, range: Option<Range<u64>>) -> (Result<bool, NetError>, Vec<u8>) {
    let mut bytes = Vec::new();
    let transfer = || {
        let mut body = client.open(remote, range, &NoProgress)?;
        while let Some(piece) = body.next(client, &NoProgress)? {
            bytes.extend_from_slice(&piece);
        }
        Ok(body.is_whole)
    };
    (transfer(), bytes)
}

/// Returns pseudo-random bytes.
pub fn random_bytes(length: usize) -> Vec<u8> {
    (0..length as u32).flat_map(|number| number.wrapping_mul(2_654_435_761).to_le_bytes()).take(length).collect()
}
