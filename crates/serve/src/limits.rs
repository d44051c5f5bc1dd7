//! Limits connections and rates of each client. A client is an IPv4 address, or an IPv6 network of
//! 64 bits, since one host has a whole such network.
//!
//! Rates are fair: a client has one piece waiting at a time, however many connections it opens, and
//! pieces are sent in the order in which they came. A [`TokenBucket`] bounds bursts.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use parking_lot::Mutex;
use slotpress_base::TokenBucket;
use tokio::time::Instant;

use super::ServeOptions;

/// Limit on a request's head, in bytes. An idle connection may hold as much memory.
pub const HEAD_BYTES_MAX: usize = 16 * 1024;

pub const HEADERS_MAX: usize = 64;

/// Largest number of bytes read at a time. A piece of this length is still in the processor's cache
/// when it is sent. A transfer holds at most one piece in memory, and the end of another.
const PIECE_BYTES: u64 = 512 * 1024;

/// Memory for the pieces of all connections: with more than 64, pieces are shorter.
const PIECES_BYTES: u64 = 64 * PIECE_BYTES;

/// Bounds for the number of bytes sent at once under a rate limit: small for fairness at low rates,
/// large for efficiency at high ones.
const PIECE_MIN: u64 = 16 * 1024;
const PIECE_MAX: u64 = 256 * 1024;

/// Resolution of timers. A shorter wait is skipped, and added to a later one.
const SHORTEST_WAIT: Duration = Duration::from_millis(1);

#[derive(Debug)]
pub struct ClientLimits {
    options: Arc<ServeOptions>,
    start: Instant,
    /// The lower of the two rates.
    rate: Option<u64>,
    total: Mutex<Option<TokenBucket>>,
    connections: AtomicUsize,
    clients: Mutex<HashMap<IpAddr, Arc<ClientUse>>>,
}

#[derive(Debug)]
struct ClientUse {
    connections: AtomicUsize,
    turn: tokio::sync::Mutex<Option<TokenBucket>>,
}

impl ClientUse {
    fn new(rate: Option<u64>, connections: usize) -> Self {
        Self { connections: AtomicUsize::new(connections), turn: tokio::sync::Mutex::new(rate.map(TokenBucket::new)) }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    Full,
    ClientFull,
}

/// An admitted connection, or an admitted request of a client behind a proxy. It counts until it is
/// dropped.
#[derive(Debug)]
pub struct Admission {
    limits: Arc<ClientLimits>,
    client: Arc<ClientUse>,
    is_connection: bool,
}

impl ClientLimits {
    pub fn new(options: Arc<ServeOptions>) -> Arc<Self> {
        let total_rate = options.max_rate_bytes_per_second;
        let client_rate = options.max_client_rate_bytes_per_second;
        Arc::new(Self {
            start: Instant::now(),
            rate: total_rate.into_iter().chain(client_rate).min(),
            total: Mutex::new(total_rate.map(TokenBucket::new)),
            options,
            connections: AtomicUsize::new(0),
            clients: Mutex::default(),
        })
    }

    /// Admits a connection. A proxy's connection counts for no client: for each of its requests,
    /// [`admit_request`](Self::admit_request) is called.
    ///
    /// # Errors
    /// The reason why the connection is refused.
    pub fn admit(self: &Arc<Self>, address: IpAddr, is_proxy: bool) -> Result<Admission, Refusal> {
        if self.connections.load(Relaxed) >= self.options.connections {
            return Err(Refusal::Full);
        }
        let client = if is_proxy { Arc::new(ClientUse::new(None, 1)) } else { self.admit_client(address)? };
        self.connections.fetch_add(1, Relaxed);
        Ok(Admission { limits: self.clone(), client, is_connection: true })
    }

    /// Admits a request of a client behind a proxy; it counts as a connection of that client.
    ///
    /// # Errors
    /// The client has reached its limit of connections.
    pub fn admit_request(self: &Arc<Self>, address: IpAddr) -> Result<Admission, Refusal> {
        Ok(Admission { limits: self.clone(), client: self.admit_client(address)?, is_connection: false })
    }

    fn admit_client(&self, address: IpAddr) -> Result<Arc<ClientUse>, Refusal> {
        let rate = self.options.max_client_rate_bytes_per_second;
        let new = || Arc::new(ClientUse::new(rate, 0));
        let mut clients = self.clients.lock();
        let client = clients.entry(client_of(address)).or_insert_with(new);
        if client.connections.load(Relaxed) >= self.options.client_connections {
            return Err(Refusal::ClientFull);
        }
        // Connections are added only here, under the lock.
        client.connections.fetch_add(1, Relaxed);
        Ok(client.clone())
    }

    pub fn connections(&self) -> usize {
        self.connections.load(Relaxed)
    }

    /// Forgets clients without connections whose rate has recovered. Call about every second.
    pub fn sweep(&self) {
        let now = self.start.elapsed();
        self.clients.lock().retain(|_, client| {
            let owes = match client.turn.try_lock() {
                Ok(bucket) => bucket.is_some_and(|bucket| !bucket.is_full(now)),
                Err(_) => true,
            };
            client.connections.load(Relaxed) > 0 || owes
        });
    }
}

impl Admission {
    pub async fn wait(&self, bytes: u64) {
        let limits = &self.limits;
        if limits.rate.is_none() {
            return;
        }
        let mut turn = self.client.turn.lock().await;
        if let Some(bucket) = turn.as_mut() {
            sleep(bucket.take(limits.start.elapsed(), bytes)).await;
        }
        let now = limits.start.elapsed();
        let wait = limits.total.lock().as_mut().map(|bucket| bucket.take(now, bytes));
        sleep(wait.unwrap_or_default()).await;
    }

    pub fn piece_bytes(&self) -> u64 {
        let connections = self.limits.connections() as u64;
        let share = PIECES_BYTES.checked_div(connections).unwrap_or(PIECES_BYTES);
        let max = match self.limits.rate {
            Some(rate) => (rate / 64).clamp(PIECE_MIN, PIECE_MAX),
            None => PIECE_BYTES,
        };
        share.clamp(PIECE_MIN, max)
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
    if wait >= SHORTEST_WAIT {
        tokio::time::sleep(wait).await;
    }
}

fn client_of(address: IpAddr) -> IpAddr {
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

    fn limits(connections: usize, client_connections: usize, rates: [Option<u64>; 2]) -> Arc<ClientLimits> {
        let listen = SocketAddr::new(address("127.0.0.1"), 0);
        let options = ServeOptions::new([], listen).connections(connections).client_connections(client_connections);
        ClientLimits::new(Arc::new(
            options.max_rate_bytes_per_second(rates[0]).max_client_rate_bytes_per_second(rates[1]),
        ))
    }

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn connections_are_counted() {
        let limits = limits(3, 2, [None; 2]);
        let first = limits.admit(address("10.0.0.1"), false).expect("the first");
        let second = limits.admit(address("::ffff:10.0.0.1"), false).expect("the second");
        assert_eq!(limits.admit(address("10.0.0.1"), false).err(), Some(Refusal::ClientFull));
        let third = limits.admit(address("2001:db8::1"), false).expect("the third");
        assert_eq!(limits.admit(address("10.0.0.2"), false).err(), Some(Refusal::Full));
        drop(third);
        let third = limits.admit(address("2001:db8::2"), false).expect("another");
        drop(second);
        let fourth = limits.admit(address("2001:db8::3"), false).expect("of the same network");
        assert_eq!(limits.connections(), 3);
        drop((first, third, fourth));
        limits.sweep();
        assert!(limits.connections() == 0);
        assert!(limits.clients.lock().is_empty());
    }

    /// Runs a future with a clock that moves on as soon as all tasks wait.
    fn in_own_time<T>(test: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.expect("a runtime").block_on(test)
    }

    #[test]
    fn a_client_that_comes_back_has_no_new_burst() {
        let waited = in_own_time(async {
            let limits = limits(3, 2, [None, Some(1 << 20)]);
            let start = Instant::now();
            for _ in 0..8 {
                let admission = limits.admit(address("10.0.0.1"), false).expect("admitted");
                admission.wait(256 * 1024).await;
                drop(admission);
                limits.sweep();
            }
            start.elapsed()
        });
        // 2 MiB take 2 s at 1 MiB/s: a new client has no unused rate to spend.
        assert_eq!(waited, Duration::from_secs(2));
    }

    #[test]
    fn clients_share_alike_however_many_connections_they_have() {
        let sent: Arc<[AtomicUsize; 2]> = Arc::default();
        in_own_time(async {
            let limits = limits(100, 100, [Some(4 << 20), None]);
            let mut tasks = Vec::new();
            for number in 0..10 {
                let client = usize::from(number > 0);
                let admission = limits.admit(address(["10.0.0.1", "10.0.0.2"][client]), false).expect("admitted");
                let sent = sent.clone();
                tasks.push(tokio::spawn(async move {
                    loop {
                        admission.wait(64 * 1024).await;
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
