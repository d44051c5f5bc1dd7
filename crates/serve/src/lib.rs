//! An internal part of slotpress, without a stable interface: use the crate `slotpress`.
//!
//! Serves snapshot archives over HTTP/1.1, whole or in ranges, to Agave, Firedancer, browsers
//! and `bootstrap`.
//!
//! `connection` accepts connections, and `respond` answers their requests. `archives` scans directories
//! with [`catalog`](slotpress_read::catalog), and `transfers` lists the running transfers. `conditions`
//! and `files::Windows` do no I/O. `cli::serve` writes the log.

// Clients send what this crate handles: indexing and arithmetic must not panic.
#![cfg_attr(not(test), warn(clippy::indexing_slicing))]
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]
#![cfg_attr(not(test), warn(clippy::cast_possible_truncation))]
#![cfg_attr(not(test), warn(clippy::cast_possible_wrap))]
#![cfg_attr(not(test), warn(clippy::cast_sign_loss))]

mod api;
mod archives;
mod body;
mod conditions;
mod connection;
mod files;
pub mod limits;
mod metrics;
pub mod monitoring;
mod page;
mod proxies;
mod respond;
pub mod tls;
pub mod transfers;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use api::ArchiveList;
use archives::ServedArchives;
use connection::{Endpoint, Site};
use derive_setters::Setters;
use files::OpenFiles;
use limits::ClientLimits;
use metrics::Metrics;
/// For commands whose metrics [`monitoring`] serves.
pub use metrics::add_sub_registry;
pub use monitoring::Monitored;
use monitoring::{NotifyState, notify, serve_metrics};
pub use prometheus_client;
use rustix::process::{Resource, getrlimit, setrlimit};
use slotpress_base::{Error, ErrorKind, IoHint, Progress, Result, available_threads, clock, spawn_error};
use tls::Certificates;
pub use tls::TlsFiles;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use transfers::Transfers;
pub use transfers::{AnsweredRequest, TransferReport};

/// Rate in bytes per second below which Firedancer gives up on a server.
pub const FIREDANCER_RATE_MIN: u64 = 10 << 20;

/// Options of the server.
#[derive(Clone, Debug, Setters)]
#[non_exhaustive]
#[warn(missing_docs)]
pub struct ServeOptions {
    /// Directories of archives, at least one. If several have a file of the same name, the first is
    /// served.
    #[setters(into)]
    pub dirs: Vec<PathBuf>,
    /// Address to listen on. Port 0 picks a free port, which [`ServeEvent::Listening`] reports.
    pub listen: SocketAddr,
    /// Certificate and key for encryption. Default: none, plain HTTP.
    #[setters(strip_option)]
    pub tls: Option<TlsFiles>,
    /// Address of a second listener for metrics and health, always without encryption. Default:
    /// none.
    #[setters(strip_option)]
    pub metrics: Option<SocketAddr>,
    /// Limit on the rate of all clients together, in bytes per second. Default: none.
    #[setters(strip_option)]
    pub max_rate_bytes_per_second: Option<u64>,
    /// Limit on the rate of each client, in bytes per second. Default: none.
    #[setters(strip_option)]
    pub max_client_rate_bytes_per_second: Option<u64>,
    /// Maximum number of connections of all clients together. Default: 1024, which use about 64 MiB of
    /// memory if all are busy.
    pub max_connections: usize,
    /// Maximum number of connections of each client. Default: 64, which is enough for download programs and
    /// browsers.
    pub max_connections_per_client: usize,
    /// Proxies whose header `X-Forwarded-For` is trusted; limits apply to the clients of these proxies.
    /// Default: none.
    #[setters(into)]
    pub trusted_proxies: Vec<IpAddr>,
    /// Page cache policy for served files. Default: gentle, which drops the pages that were read only to be
    /// served.
    pub io_hint: IoHint,
    /// Number of threads that answer requests; 0 counts as 1. Further threads, which may wait for the disk,
    /// are started as needed. Default: one per core, at most 8.
    pub threads: usize,
    /// Time within which the head of a request must arrive, after the start of the connection or after the last
    /// response. Also limits a TLS handshake. Default: 15 seconds.
    pub head_timeout: Duration,
    /// Time within which a client must accept the pending piece: 512 KiB, or less under a rate limit or
    /// with more than 64 connections. Default: 60 seconds.
    pub stall_timeout: Duration,
    /// Time for which transfers may continue after a request to stop. Default: 60 seconds.
    pub grace: Duration,
    /// Reports all ranges of one archive for one client as one transfer, a few seconds after the last range.
    /// Default: true.
    pub gathers_ranges: bool,
}

pub const CONNECTIONS_DEFAULT: usize = 1024;

pub const CLIENT_CONNECTIONS_DEFAULT: usize = 64;

pub const THREADS_DEFAULT_MAX: usize = 8;

#[warn(missing_docs)]
impl ServeOptions {
    /// Creates options that serve directories at an address, without encryption or rate limits, over at
    /// most 1024 connections, 64 per client.
    pub fn new(dirs: impl IntoIterator<Item = impl Into<PathBuf>>, listen: SocketAddr) -> Self {
        Self {
            dirs: dirs.into_iter().map(Into::into).collect(),
            listen,
            tls: None,
            metrics: None,
            max_rate_bytes_per_second: None,
            max_client_rate_bytes_per_second: None,
            max_connections: CONNECTIONS_DEFAULT,
            max_connections_per_client: CLIENT_CONNECTIONS_DEFAULT,
            trusted_proxies: Vec::new(),
            io_hint: IoHint::default(),
            threads: available_threads().min(THREADS_DEFAULT_MAX),
            head_timeout: Duration::from_secs(15),
            stall_timeout: Duration::from_secs(60),
            grace: Duration::from_secs(60),
            gathers_ranges: true,
        }
    }
}

/// An event of the server, for a log.
#[derive(Clone, Debug)]
#[non_exhaustive]
#[warn(missing_docs)]
pub enum ServeEvent {
    /// The server accepts connections.
    Listening {
        /// Address of the archives, with the actual port.
        listen: SocketAddr,
        /// Address of metrics, if there are any.
        metrics: Option<SocketAddr>,
        /// Number of archives that are served.
        archives: usize,
    },
    /// A transfer has ended, complete or cut short.
    Finished(TransferReport),
    /// A request was answered without a transfer, or a connection was refused.
    Answered(AnsweredRequest),
    /// A changed certificate and key were read, and are now in use.
    Reloaded,
    /// The server accepts no more connections.
    Stopping {
        /// Number of connections that are still open.
        connections: usize,
    },
}

#[derive(Debug)]
struct Server {
    options: Arc<ServeOptions>,
    archives: ServedArchives,
    transfers: Arc<Transfers>,
    files: OpenFiles,
    limits: Arc<ClientLimits>,
    log: SyncSender<ServeEvent>,
    metrics: Arc<Metrics>,
}

impl Server {
    fn new(options: &ServeOptions, log: SyncSender<ServeEvent>) -> Result<Self> {
        let metrics = Arc::new(Metrics::new());
        let options = Arc::new(options.clone());
        Ok(Self {
            archives: ServedArchives::new(options.dirs.clone())?,
            transfers: Transfers::new(options.gathers_ranges, metrics.clone()),
            log,
            files: OpenFiles::default(),
            limits: ClientLimits::new(options.clone()),
            metrics,
            options,
        })
    }

    fn list(&self) -> ArchiveList {
        let archives = self.archives.last_scan();
        ArchiveList::new(&archives, self.transfers.list(), clock::now())
    }

    /// Logs an answered request. Drops the event if the log is full, because clients must not wait for the log.
    fn log_response(&self, client: IpAddr, request: String, status: u16, sent_bytes: u64) {
        let answered = AnsweredRequest { client: client.to_canonical(), request, status, sent_bytes };
        let _ = self.log.try_send(ServeEvent::Answered(answered));
    }
}

/// Number of events that may wait to be logged.
const LOG_EVENTS_MAX: usize = 4096;

/// Interval for forwarding events and checking for an interruption.
const EVENT_INTERVAL: Duration = Duration::from_millis(50);

/// Interval for checking certificates, warnings and idle clients.
const HOUSEKEEPING_INTERVAL: Duration = Duration::from_secs(1);

/// Time for the threads to end after the grace period.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

const BLOCKING_THREADS_MAX: usize = 64;

/// Number of open files other than connections and the files that they send.
const OTHER_DESCRIPTORS: u64 = 128;

/// Serves until `progress` is interrupted, and then until all connections are closed or the grace
/// period is over. Reads certificates again every second, and uses them if they have changed.
///
/// # Errors
/// A directory or certificate cannot be read; an address cannot be used; threads cannot be started.
pub fn serve(options: &ServeOptions, progress: &dyn Progress, mut on_event: impl FnMut(&ServeEvent)) -> Result<()> {
    let certificates = options.tls.clone().map(Certificates::new).transpose()?;
    let (sender, events) = sync_channel(LOG_EVENTS_MAX);
    let server = Arc::new(Server::new(options, sender)?);
    let runtime = start_runtime(options.threads, "serve")?;
    let (listener, listen) = bind(&runtime, options.listen)?;
    let start_metrics = |address| serve_metrics(address, server.clone());
    let metrics_server = options.metrics.map(start_metrics).transpose()?;
    raise_descriptor_limit(options.max_connections, progress);

    let (stop, stopping) = watch::channel(false);
    let endpoint = Endpoint {
        site: Site::Archives(server.clone()),
        limits: server.limits.clone(),
        certificates: certificates.clone(),
        stop: stopping,
    };
    runtime.spawn(connection::listen(endpoint, listener));
    runtime.spawn(archives::keep_scanning(server.clone()));
    let archives = server.archives.last_scan().archives().len();
    let metrics = metrics_server.as_ref().map(|metrics| metrics.address);
    on_event(&ServeEvent::Listening { listen, metrics, archives });
    notify(NotifyState::Ready);

    let mut last_housekeeping: Option<Instant> = None;
    while !progress.is_interrupted() {
        forward_events(&events, &server.transfers, transfers::QUIET_TIME, &mut on_event);
        if last_housekeeping.is_some_and(|last| last.elapsed() < HOUSEKEEPING_INTERVAL) {
            continue;
        }
        last_housekeeping = Some(Instant::now());
        notify(NotifyState::Watchdog);
        server.limits.forget_idle_clients();
        for unusable in server.archives.last_scan().unusable() {
            // The progress display shows each warning once.
            progress.warn(&unusable.to_string());
        }
        if let Some(certificates) = &certificates {
            match certificates.reload() {
                Ok(true) => on_event(&ServeEvent::Reloaded),
                Ok(false) => {}
                Err(error) => progress.warn(&format!("{error}; the old certificate stays in use")),
            }
        }
    }

    notify(NotifyState::Stopping);
    on_event(&ServeEvent::Stopping { connections: server.limits.connection_count() });
    let _ = stop.send(true);
    let start = Instant::now();
    while server.limits.connection_count() > 0 && start.elapsed() < options.grace {
        forward_events(&events, &server.transfers, transfers::QUIET_TIME, &mut on_event);
    }
    // End the remaining transfers, and report them.
    runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
    forward_events(&events, &server.transfers, Duration::ZERO, &mut on_event);
    Ok(())
}

fn start_runtime(threads: usize, name: &str) -> Result<Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads.max(1))
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        .thread_name(name)
        .enable_all()
        .build()
        .map_err(|error| spawn_error(&error))
}

/// Forwards events for one interval, but at most [`LOG_EVENTS_MAX`], so this function returns even if requests
/// arrive faster than they are logged. Then reports the transfers that have ended.
fn forward_events(
    events: &Receiver<ServeEvent>,
    transfers: &Transfers,
    quiet_time: Duration,
    on_event: &mut dyn FnMut(&ServeEvent),
) {
    let start = Instant::now();
    for _ in 0..LOG_EVENTS_MAX {
        let Ok(event) = events.recv_timeout(EVENT_INTERVAL.saturating_sub(start.elapsed())) else { break };
        on_event(&event);
    }
    for finished in transfers.take_finished(quiet_time) {
        on_event(&ServeEvent::Finished(finished));
    }
}

/// Returns a listening socket and its address with the actual port.
fn bind(runtime: &Runtime, address: SocketAddr) -> Result<(TcpListener, SocketAddr)> {
    let to_listen_error = |error: std::io::Error| listen_error(address, &error);
    let listener = runtime.block_on(TcpListener::bind(address)).map_err(to_listen_error)?;
    let actual_address = listener.local_addr().map_err(to_listen_error)?;
    Ok((listener, actual_address))
}

fn listen_error(address: SocketAddr, error: &std::io::Error) -> Error {
    let hint = match error.kind() {
        std::io::ErrorKind::PermissionDenied => {
            "choose port 1024 or higher; or allow lower ports (AmbientCapabilities=CAP_NET_BIND_SERVICE in the service's unit)"
        }
        _ => "choose another address or port; `ss -ltnp` shows what listens there now",
    };
    let message = format!("cannot listen on {address}: {error}");
    Error::new(ErrorKind::from_io(error), message).with_hint(hint)
}

/// Raises the limit on open files as far as the system allows: each connection needs a descriptor, and
/// a second one for the file that it sends.
fn raise_descriptor_limit(connections: usize, progress: &dyn Progress) {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit);
    let needed = (connections as u64).saturating_mul(2).saturating_add(OTHER_DESCRIPTORS);
    let allowed = getrlimit(Resource::Nofile).current;
    if allowed.is_some_and(|allowed| allowed < needed) {
        progress.warn(&format!(
            "{connections} connections need up to {needed} open files, more than the system allows (see ulimit -n, or \
             LimitNOFILE of the service)"
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_threads_count_as_one() {
        assert!(start_runtime(0, "test").is_ok());
    }

    /// The loop of `serve` checks for an interruption between two calls.
    #[test]
    fn forwarding_ends_although_events_keep_coming() {
        let transfers = Transfers::new(true, Arc::new(Metrics::new()));
        let (sender, events) = sync_channel(1);
        sender.send(ServeEvent::Reloaded).expect("sent");
        let mut forwarded = 0;
        let mut forward_another = |event: &ServeEvent| {
            forwarded += 1;
            sender.send(event.clone()).expect("sent");
        };
        forward_events(&events, &transfers, Duration::ZERO, &mut forward_another);
        assert_eq!(forwarded, LOG_EVENTS_MAX);
    }
}
