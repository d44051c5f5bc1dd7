//! Limits the connections and the rate of each client, and of all clients together. A client is an IPv4
//! address, or an IPv6 network of 64 bits, because one host usually has such a network.
//!
//! Rates are fair: only one piece of each client waits at a time, however many connections the client
//! opens, and waiting pieces are sent in order. A [`TokenBucket`] bounds bursts.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use slotpress_base::TokenBucket;
use tokio::time::Instant;

use super::ServeOptions;
use super::proxies::is_trusted;

/// Limit on the length of a request's headers, in bytes. An idle connection may occupy that much memory.
pub const HEAD_BYTES_MAX: usize = 16 * 1024;

pub const HEADERS_MAX: usize = 64;

/// Maximum length of a piece without a rate limit. A piece of this length is still in the processor's cache
/// when it is sent. A request keeps at most one piece and the end of another in memory.
const PIECE_BYTES_MAX: u64 = 512 * 1024;

/// Memory for one piece of each connection. If there are more than 64 connections, pieces are shorter.
const ALL_PIECES_BYTES: u64 = 64 * PIECE_BYTES_MAX;

/// Bounds on the length of a piece under a rate limit: short for fairness at low rates, long for
/// efficiency at high rates.
const PIECE_BYTES_MIN: u64 = 16 * 1024;
const LIMITED_PIECE_BYTES_MAX: u64 = 256 * 1024;

/// Resolution of timers. A shorter wait is skipped, and its time is added to a later wait.
const WAIT_MIN: Duration = Duration::from_millis(1);

#[derive(Debug)]
pub struct ClientLimits {
    pub options: Arc<ServeOptions>,
    start: Instant,
    /// The lower of the two rate limits.
    lower_rate: Option<u64>,
    total_bucket: Mutex<Option<TokenBucket>>,
    connections: AtomicUsize,
    clients: Mutex<HashMap<IpAddr, Arc<ClientUsage>>>,
}

#[derive(Debug)]
struct ClientUsage {
    connections: AtomicUsize,
    /// Locked while a piece of the client waits.
    bucket: tokio::sync::Mutex<Option<TokenBucket>>,
}

impl ClientUsage {
    fn new(rate: Option<u64>, connections: usize) -> Self {
        let bucket = tokio::sync::Mutex::new(rate.map(TokenBucket::new));
        Self { connections: AtomicUsize::new(connections), bucket }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    ServerFull,
    ClientFull,
}

/// An admitted connection, or an admitted request of a client behind a proxy. It counts against the
/// limits until it is dropped.
#[derive(Debug)]
pub struct Admission {
    limits: Arc<ClientLimits>,
    client: Arc<ClientUsage>,
    is_connection: bool,
}

impl ClientLimits {
    pub fn new(options: Arc<ServeOptions>) -> Arc<Self> {
        let total_rate = options.max_rate_bytes_per_second;
        let client_rate = options.max_client_rate_bytes_per_second;
        Arc::new(Self {
            start: Instant::now(),
            lower_rate: total_rate.into_iter().chain(client_rate).min(),
            total_bucket: Mutex::new(total_rate.map(TokenBucket::new)),
            options,
            connections: AtomicUsize::new(0),
            clients: Mutex::default(),
        })
    }

    /// Admits a connection. Each request on the connection of a trusted proxy must also be admitted by
    /// [`admit_request`](Self::admit_request).
    ///
    /// # Errors
    /// The server or the client has too many connections.
    pub fn admit_connection(self: &Arc<Self>, address: IpAddr) -> Result<Admission, Refusal> {
        if self.connections.load(Relaxed) >= self.options.max_connections {
            return Err(Refusal::ServerFull);
        }
        let is_proxy = is_trusted(address, &self.options.trusted_proxies);
        let client = if is_proxy { Arc::new(ClientUsage::new(None, 1)) } else { self.admit_client(address)? };
        self.connections.fetch_add(1, Relaxed);
        Ok(Admission { limits: self.clone(), client, is_connection: true })
    }

    /// Admits a request of a client behind a proxy. The request counts as a connection of that client.
    ///
    /// # Errors
    /// The client has reached its limit of connections.
    pub fn admit_request(self: &Arc<Self>, address: IpAddr) -> Result<Admission, Refusal> {
        let client = self.admit_client(address)?;
        Ok(Admission { limits: self.clone(), client, is_connection: false })
    }

    fn admit_client(&self, address: IpAddr) -> Result<Arc<ClientUsage>, Refusal> {
        let rate = self.options.max_client_rate_bytes_per_second;
        let new_client = || Arc::new(ClientUsage::new(rate, 0));
        let mut clients = self.clients.lock();
        let network = client_network(address);
        let client = clients.entry(network).or_insert_with(new_client);
        if client.connections.load(Relaxed) >= self.options.max_connections_per_client {
            return Err(Refusal::ClientFull);
        }
        // Connections are added only here, under the lock.
        client.connections.fetch_add(1, Relaxed);
        Ok(client.clone())
    }

    pub fn connection_count(&self) -> usize {
        self.connections.load(Relaxed)
    }

    /// Forgets clients that have no connection and a full bucket. Must be called about once a second.
    pub fn forget_idle_clients(&self) {
        let now = self.start.elapsed();
        self.clients.lock().retain(|_, client| {
            let is_bucket_in_use = match client.bucket.try_lock() {
                Ok(bucket) => bucket.is_some_and(|bucket| !bucket.is_full(now)),
                Err(_) => true,
            };
            client.connections.load(Relaxed) > 0 || is_bucket_in_use
        });
    }
}

impl Admission {
    /// Waits until the rate limits allow this many bytes more.
    pub async fn wait_for_rate(&self, bytes: u64) {
        let limits = &self.limits;
        if limits.lower_rate.is_none() {
            return;
        }
        let mut bucket = self.client.bucket.lock().await;
        if let Some(bucket) = bucket.as_mut() {
            sleep(bucket.take(limits.start.elapsed(), bytes)).await;
        }
        let now = limits.start.elapsed();
        let take = |bucket: &mut TokenBucket| bucket.take(now, bytes);
        let wait = limits.total_bucket.lock().as_mut().map(take);
        sleep(wait.unwrap_or_default()).await;
    }

    pub fn piece_bytes_max(&self) -> u64 {
        let connections = self.limits.connection_count() as u64;
        let share = ALL_PIECES_BYTES.checked_div(connections).unwrap_or(ALL_PIECES_BYTES);
        let max = match self.limits.lower_rate {
            Some(rate) => (rate / 64).clamp(PIECE_BYTES_MIN, LIMITED_PIECE_BYTES_MAX),
            None => PIECE_BYTES_MAX,
        };
        share.clamp(PIECE_BYTES_MIN, max)
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        self.client.connections.fetch_sub(1, Relaxed);
        if self.is_connection {
            self.limits.connections.fetch_sub(1, Relaxed);
        }
    }
}

async fn sleep(wait: Duration) {
    if wait >= WAIT_MIN {
        tokio::time::sleep(wait).await;
    }
}

fn client_network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let network = address.to_bits() >> 64 << 64;
            IpAddr::V6(Ipv6Addr::from_bits(network))
        }
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    fn options() -> ServeOptions {
        ServeOptions::new([""; 0], SocketAddr::new(address("127.0.0.1"), 0))
    }

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn connections_are_admitted_up_to_the_limits() {
        let limits = ClientLimits::new(Arc::new(options().max_connections(3).max_connections_per_client(2)));
        let first = limits.admit_connection(address("10.0.0.1")).expect("the first");
        let second = limits.admit_connection(address("::ffff:10.0.0.1")).expect("the second");
        assert_eq!(limits.admit_connection(address("10.0.0.1")).err(), Some(Refusal::ClientFull));
        let third = limits.admit_connection(address("2001:db8::1")).expect("the third");
        assert_eq!(limits.admit_connection(address("10.0.0.2")).err(), Some(Refusal::ServerFull));
        drop(third);
        let third = limits.admit_connection(address("2001:db8::2")).expect("another");
        drop(second);
        let fourth = limits.admit_connection(address("2001:db8::3")).expect("of the same network");
        assert_eq!(limits.connection_count(), 3);
        drop((first, third, fourth));
        limits.forget_idle_clients();
        assert_eq!(limits.connection_count(), 0);
        assert!(limits.clients.lock().is_empty());
    }

    /// Runs a future with a paused clock, which advances as soon as all tasks wait.
    fn run_with_paused_clock<T>(test: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.expect("a runtime").block_on(test)
    }

    #[test]
    fn a_returning_client_gets_no_new_burst() {
        let waited = run_with_paused_clock(async {
            let limits = ClientLimits::new(Arc::new(options().max_client_rate_bytes_per_second(1 << 20)));
            let start = Instant::now();
            for _ in 0..8 {
                let admission = limits.admit_connection(address("10.0.0.1")).expect("admitted");
                admission.wait_for_rate(256 * 1024).await;
                drop(admission);
                limits.forget_idle_clients();
            }
            start.elapsed()
        });
        // 2 MiB take 2 s at 1 MiB/s, because not even a new client gets a burst.
        assert_eq!(waited, Duration::from_secs(2));
    }

    #[test]
    fn clients_get_equal_shares_however_many_connections_they_have() {
        let sent: Arc<[AtomicUsize; 2]> = Arc::default();
        run_with_paused_clock(async {
            let limits = ClientLimits::new(Arc::new(options().max_rate_bytes_per_second(4 << 20)));
            let mut tasks = Vec::new();
            for number in 0..10 {
                let client = usize::from(number > 0);
                let admission = limits.admit_connection(address(["10.0.0.1", "10.0.0.2"][client])).expect("admitted");
                let sent = sent.clone();
                tasks.push(tokio::spawn(async move {
                    loop {
                        admission.wait_for_rate(64 * 1024).await;
                        sent[client].fetch_add(1, Relaxed);
                    }
                }));
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
            tasks.iter().for_each(tokio::task::JoinHandle::abort);
        });
        let [one, nine] = [sent[0].load(Relaxed), sent[1].load(Relaxed)];
        assert!(one.abs_diff(nine) <= 2, "{one} pieces to one connection, {nine} to nine");
        assert!(one > 10, "{one} pieces to one connection, {nine} to nine");
    }
}
