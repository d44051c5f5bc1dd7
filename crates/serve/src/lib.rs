//! An internal part of slotpress, without a stable interface: use the crate `slotpress`.
//!
//! Serves snapshot archives over HTTP/1.1, whole or in ranges, to Agave, Firedancer, browsers
//! and `bootstrap`.
//!
//! `conditions` and `files::Windows` do no I/O; `respond` handles requests, `connection` sockets.
//! [`catalog`](slotpress_read::catalog) finds the archives, and `cli::serve` writes the log.

// These lints apply because clients send what the crate handles.
#![cfg_attr(
    not(test),
    warn(
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects,
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::cast_sign_loss
    )
)]

mod api;
mod archives;
mod body;
mod conditions;
mod connection;
mod files;
mod gathered;
pub mod limits;
mod metrics;
mod page;
pub mod process;
mod proxies;
mod respond;
mod stream;
pub mod supervisor;
pub mod tell;
pub mod tls;
pub mod transfers;

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use archives::ServedArchives;
use connection::Endpoint;
use derive_setters::Setters;
use files::OpenFiles;
use gathered::Gathered;
pub use limits::Allowance;
use limits::ClientLimits;
use metrics::Metrics;
/// For commands that report metrics by [`tell`].
pub use prometheus_client;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use slotpress_base::{Error, ErrorKind, IoHint, Progress, Result, available_threads, cannot_start};
use slotpress_read::Catalog;
pub use tell::Facts;
use tls::Certificates;
pub use tls::TlsFiles;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use transfers::Transfers;
pub use transfers::{Answered, Finished};

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
    /// Address to listen at; port 0 takes a free one, which [`Event::Listening`] tells.
    pub listen: SocketAddr,
    /// Certificate and key for encryption. Default: none, plain HTTP.
    #[setters(into)]
    pub tls: Option<TlsFiles>,
    /// Address of a second listener for metrics and health, always without encryption. Default:
    /// none.
    #[setters(into)]
    pub metrics: Option<SocketAddr>,
    /// Limits of rates and connections. Default: 1024 connections, 64 for each client, no rate
    /// limit.
    pub allowance: Allowance,
    /// Proxies whose `X-Forwarded-For` header is trusted; limits then apply to their clients.
    /// Default: none.
    #[setters(into)]
    pub trusted_proxies: Vec<IpAddr>,
    /// Page cache policy for served files. Default: gentle, which drops what serving brought there.
    pub io_hint: IoHint,
    /// Threads that answer requests; 0 counts as 1. Further threads, which may wait for the disk,
    /// are started as needed. Default: one per core, at most 8.
    pub threads: usize,
    /// Time limits for clients.
    #[setters(skip)]
    #[doc(hidden)]
    pub timeouts: Timeouts,
    /// Time for which transfers may continue after a request to stop. Default: 60 seconds.
    pub grace: Duration,
    /// Reports ranges of one archive for one client as one transfer, some seconds after the last
    /// one. Default: true.
    pub gathers_ranges: bool,
}

/// Default limit on connections. They take 64 MiB of memory if all are busy.
pub const CONNECTIONS_DEFAULT: usize = 1024;

/// Default limit on connections of one client: more than aria2c and browsers open.
pub const CLIENT_CONNECTIONS_DEFAULT: usize = 64;

/// Largest default number of threads that answer requests.
pub const THREADS_DEFAULT_MAX: usize = 8;

#[warn(missing_docs)]
impl ServeOptions {
    /// Serves directories at an address, without encryption, with up to 1024 connections, 64 for
    /// each client, and without rate limits.
    pub fn new(dirs: impl IntoIterator<Item = PathBuf>, listen: SocketAddr) -> Self {
        Self {
            dirs: Vec::from_iter(dirs),
            listen,
            tls: None,
            metrics: None,
            allowance: Allowance::default(),
            trusted_proxies: Vec::new(),
            io_hint: IoHint::default(),
            threads: available_threads().min(THREADS_DEFAULT_MAX),
            timeouts: Timeouts::default(),
            grace: Duration::from_secs(60),
            gathers_ranges: true,
        }
    }
}

/// Time limits for clients.
#[derive(Clone, Copy, Debug, Setters)]
#[non_exhaustive]
#[warn(missing_docs)]
pub struct Timeouts {
    /// Time for a complete request, since the connection or the last answer.
    pub head: Duration,
    /// Time in which a client must take a minimum of the data that waits for it.
    pub stall: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { head: Duration::from_secs(15), stall: Duration::from_secs(60) }
    }
}

/// An event of the server, for a log.
#[derive(Clone, Debug)]
#[non_exhaustive]
#[warn(missing_docs)]
pub enum Event {
    /// The server accepts connections.
    Listening {
        /// Address of the archives, with the port that was taken.
        listen: SocketAddr,
        /// Address of metrics, if there are any.
        metrics: Option<SocketAddr>,
        /// Number of archives that are served.
        archives: usize,
    },
    /// A transfer has ended, whole or not.
    Finished(Finished),
    /// A request was answered without a transfer, or a connection was refused.
    Answered(Answered),
    /// Certificate and key were read again, and are used.
    Reloaded,
    /// The server accepts no more connections.
    Stopping {
        /// Number of connections that are still open.
        connections: usize,
    },
}

#[derive(Clone, Copy, Debug)]
enum Purpose {
    Archives,
    Metrics,
}

#[derive(Debug)]
struct Server {
    options: ServeOptions,
    archives: ServedArchives,
    transfers: Arc<Transfers>,
    files: OpenFiles,
    limits: Arc<ClientLimits>,
    metrics_limits: Arc<ClientLimits>,
    log: SyncSender<Event>,
    metrics: Arc<Metrics>,
    /// Metrics and health of another command, instead of archives.
    facts: Option<Arc<dyn tell::Facts>>,
    has_panicked: AtomicBool,
}

impl Server {
    fn new(options: &ServeOptions, facts: Option<Arc<dyn tell::Facts>>, log: SyncSender<Event>) -> Result<Arc<Self>> {
        let metrics = Arc::new(Metrics::new());
        let few = Allowance::default().connections(METRICS_CONNECTIONS_MAX).client_connections(METRICS_CONNECTIONS_MAX);
        Ok(Arc::new(Self {
            archives: ServedArchives::new(options.dirs.clone())?,
            transfers: Transfers::new(log.clone(), metrics.clone()),
            log,
            files: OpenFiles::default(),
            limits: ClientLimits::new(options.allowance),
            metrics_limits: ClientLimits::new(few),
            metrics,
            facts,
            has_panicked: AtomicBool::new(false),
            options: options.clone(),
        }))
    }

    /// The archives, and the error of the last scan.
    async fn look(&self) -> (Arc<Catalog>, Option<String>) {
        let (catalog, error) = self.archives.look().await;
        self.metrics.catalog(&catalog);
        (catalog, error)
    }
}

const METRICS_CONNECTIONS_MAX: usize = 32;

/// Limit on events that wait to be logged.
const LOG_EVENTS_MAX: usize = 4096;

/// Intervals for checking signals, and for checking certificates.
const TICK: Duration = Duration::from_millis(50);
const SLOW_TICK: Duration = Duration::from_secs(1);

/// Limit on threads that wait for the disk.
const BLOCKING_THREADS_MAX: usize = 64;

/// Number of descriptors needed besides those of connections and of the files that these send.
const OTHER_DESCRIPTORS: u64 = 128;

/// Serves until `progress` is interrupted, and then until all transfers are done or the grace
/// period is over. Reads certificates again when `wants_reload` returns true.
///
/// # Errors
/// A directory or certificate cannot be read; an address is in use.
pub fn run(
    options: &ServeOptions,
    wants_reload: &dyn Fn() -> bool,
    on_event: &mut dyn FnMut(Event),
    progress: &dyn Progress,
) -> Result<()> {
    let certificates = options.tls.clone().map(Certificates::new).transpose()?.map(Arc::new);
    let (sender, events) = sync_channel(LOG_EVENTS_MAX);
    let server = Server::new(options, None, sender)?;
    let bound = bind(options.listen)?;
    let listen = bound.1;
    let metrics_listener = options.metrics.map(bind).transpose()?;
    raise_descriptors(options.allowance.connections, progress);

    let runtime = runtime(options.threads, "serve")?;
    let (stop, stopping) = watch::channel(false);
    let endpoint = |purpose, certificates| {
        let (server, stop) = (server.clone(), stopping.clone());
        Endpoint { server, purpose, certificates, stop }
    };
    start(&runtime, endpoint(Purpose::Archives, certificates.clone()), bound)?;
    let mut metrics_address = None;
    if let Some(bound) = metrics_listener {
        metrics_address = Some(bound.1);
        start(&runtime, endpoint(Purpose::Metrics, None), bound)?;
    }
    let archives = runtime.block_on(server.look()).0.archives().len();
    on_event(Event::Listening { listen, metrics: metrics_address, archives });
    supervisor::ready();

    let mut gathered = Gathered::new(options.gathers_ranges);
    let mut last_slow_tick: Option<Instant> = None;
    while !progress.is_interrupted() {
        forward(&events, TICK, &mut gathered, on_event);
        let over = gathered.over(|| server.transfers.list(), Instant::now());
        over.into_iter().for_each(|over| on_event(Event::Finished(over)));
        let is_asked = wants_reload();
        if last_slow_tick.is_some_and(|last| last.elapsed() < SLOW_TICK) && !is_asked {
            continue;
        }
        last_slow_tick = Some(Instant::now());
        supervisor::alive();
        server.limits.sweep();
        // The progress display shows each warning once.
        let known = server.archives.known();
        known.iter().flat_map(|catalog| catalog.unusable()).for_each(|unusable| progress.warn(&unusable.to_string()));
        if server.has_panicked.swap(false, Relaxed) {
            progress.warn(
                "slotpress has a bug: a connection ended in a panic; report it, with what RUST_BACKTRACE=1 prints",
            );
        }
        match certificates.as_ref().map(|certificates| certificates.reload(is_asked)) {
            Some(Ok(true)) => on_event(Event::Reloaded),
            Some(Err(error)) => progress.warn(&format!("{error}; the old certificate stays in use")),
            Some(Ok(false)) | None => {}
        }
    }

    supervisor::stopping();
    on_event(Event::Stopping { connections: server.limits.connections() });
    let _ = stop.send(true);
    let start = Instant::now();
    while server.limits.connections() > 0 && start.elapsed() < options.grace {
        forward(&events, TICK, &mut gathered, on_event);
    }
    // Ends remaining transfers, and reports them.
    runtime.shutdown_timeout(SLOW_TICK);
    forward(&events, Duration::ZERO, &mut gathered, on_event);
    gathered.all().into_iter().for_each(|over| on_event(Event::Finished(over)));
    Ok(())
}

fn runtime(threads: usize, name: &str) -> Result<Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads.max(1))
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        .thread_name(name)
        .enable_all()
        .build()
        .map_err(|error| cannot_start(&error))
}

fn start(runtime: &Runtime, endpoint: Endpoint, (listener, address): (TcpListener, SocketAddr)) -> Result<()> {
    let _inside = runtime.enter();
    let listener = tokio::net::TcpListener::from_std(listener);
    let listener = listener.map_err(|error| cannot_listen(address, &error))?;
    runtime.spawn(connection::listen(endpoint, listener));
    Ok(())
}

fn forward(events: &Receiver<Event>, time: Duration, gathered: &mut Gathered, on_event: &mut dyn FnMut(Event)) {
    let start = Instant::now();
    while let Ok(event) = events.recv_timeout(time.saturating_sub(start.elapsed())) {
        let event = match event {
            Event::Finished(range) => gathered.add(range, Instant::now()).map(Event::Finished),
            event => Some(event),
        };
        event.into_iter().for_each(&mut *on_event);
    }
}

fn bind(address: SocketAddr) -> Result<(TcpListener, SocketAddr)> {
    let failed = |error: std::io::Error| cannot_listen(address, &error);
    let listener = TcpListener::bind(address).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    Ok((listener, address))
}

fn cannot_listen(address: SocketAddr, error: &std::io::Error) -> Error {
    let hint = match error.kind() {
        std::io::ErrorKind::PermissionDenied => {
            "choose a port from 1024 on; or allow lower ones (AmbientCapabilities=CAP_NET_BIND_SERVICE of the service)"
        }
        _ => "choose another address or port; `ss -ltnp` shows what listens there now",
    };
    Error::new(ErrorKind::of_io(error), format!("cannot listen on {address}: {error}")).with_hint(hint)
}

/// Raises the limit on open files: each connection needs a descriptor, and another one for its
/// file.
fn raise_descriptors(connections: usize, progress: &dyn Progress) {
    let needed = (connections as u64).saturating_mul(2).saturating_add(OTHER_DESCRIPTORS);
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= needed) {
        return;
    }
    let current = limit.maximum.map_or(needed, |maximum| maximum.min(needed));
    let is_raised = setrlimit(Resource::Nofile, Rlimit { current: Some(current), maximum: limit.maximum }).is_ok();
    if !is_raised || current < needed {
        progress.warn(&format!(
            "{connections} connections need up to {needed} open files, more than the system allows (see ulimit -n, or \
             LimitNOFILE of the service)"
        ));
    }
}

#[cfg(test)]
mod tests {
    /// An embedding program may give any number.
    #[test]
    fn no_threads_are_one() {
        assert!(super::runtime(0, "test").is_ok());
    }
}
