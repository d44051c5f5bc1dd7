//! A part of slotpress, without promises of its own: use the crate `slotpress`.
//!
//! A server of snapshot archives, over HTTP/1.1: whole files and ranges of them, to Agave, Firedancer, browsers and
//! `bootstrap`.
//!
//! `conditions` and `files::Windows` are pure; `respond` knows requests and responses, `connection` sockets. Not here: which
//! archives there are ([`catalog`](slotpress_read::catalog)), and the log (`cli::serve`).

// What it decides by comes from clients.
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
mod shelf;
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
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant, SystemTime};

use body::Buffers;
use derive_setters::Setters;
use files::OpenFiles;
use gathered::Gathered;
pub use limits::Allowance;
use limits::Limits;
use metrics::Metrics;
/// What metrics are made of, for commands that [`tell`] theirs.
pub use prometheus_client;
use respond::Purpose;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use shelf::Shelf;
use slotpress_base::{Error, IoHint, Progress, Result, available_threads};
use slotpress_read::{Catalog, unix_ns};
pub use tell::Facts;
use tls::Certificates;
pub use tls::TlsFiles;
use tokio::sync::watch;
pub use transfers::{Answered, Finished};
use transfers::{Logged, Transfers};

/// Firedancer gives up on a server that is slower, in bytes per second.
pub const FIREDANCER_RATE_MIN: u64 = 10 << 20;

/// What to serve, and how.
#[derive(Clone, Debug, Setters)]
#[non_exhaustive]
pub struct ServeOptions {
    /// Where the archives are; of several files of one name, the first is served.
    #[setters(into)]
    pub dirs: Vec<PathBuf>,
    /// Where to listen.
    pub listen: SocketAddr,
    /// With what to encrypt.
    #[setters(into)]
    pub tls: Option<TlsFiles>,
    /// Where to tell metrics.
    #[setters(into)]
    pub metrics: Option<SocketAddr>,
    /// Rates and connections.
    pub allowance: Allowance,
    /// Proxies whose `X-Forwarded-For` tells the client; the limits of a client are then those of their clients.
    #[setters(into)]
    pub trusted_proxies: Vec<IpAddr>,
    /// How to treat the page cache.
    pub io_hint: IoHint,
    /// Threads that answer. Others, which may wait for the disk, are started as needed.
    pub threads: usize,
    /// When to give up on clients.
    pub timeouts: Timeouts,
    /// How long transfers may go on when asked to stop.
    pub grace: Duration,
    /// Ranges of one archive that one client asks for are told as one transfer, some seconds after the last one.
    pub gathers_ranges: bool,
}

/// Connections at a time, unless told otherwise: 64 MiB of memory where all of them are busy.
pub const CONNECTIONS_DEFAULT: usize = 1024;

/// Connections at a time of each client, unless told otherwise: what aria2c and browsers open at most, with room.
pub const CLIENT_CONNECTIONS_DEFAULT: usize = 64;

/// Threads that answer, unless told otherwise.
pub const THREADS_DEFAULT_MAX: usize = 8;

impl ServeOptions {
    /// Some directories at an address, without encryption: up to 1024 connections, 64 of each client, no limit of rates.
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

/// When to give up on a client.
#[derive(Clone, Copy, Debug, Setters)]
#[non_exhaustive]
pub struct Timeouts {
    /// It has sent no whole request: since it connected, or since the last answer.
    pub head: Duration,
    /// It has taken next to nothing of what waits for it.
    pub stall: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { head: Duration::from_secs(15), stall: Duration::from_secs(60) }
    }
}

/// What happens.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// Clients may come.
    Listening {
        /// The address, with the port that the system chose where none was given.
        listen: SocketAddr,
        /// The address of the metrics.
        metrics: Option<SocketAddr>,
        /// How many archives there are.
        archives: usize,
    },
    /// A transfer has ended.
    Finished(Finished),
    /// A request was answered without a transfer, or refused.
    Answered(Answered),
    /// New certificates are in use.
    Reloaded,
    /// Asked to stop; so many connections are still open.
    Stopping {
        /// Connections.
        connections: usize,
    },
}

/// What all connections share.
#[derive(Debug)]
struct Server {
    shelf: Shelf,
    transfers: Arc<Transfers>,
    files: OpenFiles,
    buffers: Arc<Buffers>,
    limits: Arc<Limits>,
    metrics_limits: Arc<Limits>,
    trusted_proxies: Vec<IpAddr>,
    log: SyncSender<Logged>,
    metrics: Arc<Metrics>,
    /// What is told in place of that, of another command.
    told: Option<Arc<dyn tell::Facts>>,
    io_hint: IoHint,
    timeouts: Timeouts,
    /// A connection has ended in a panic.
    has_panicked: AtomicBool,
}

impl Server {
    fn new(options: &ServeOptions, shelf: Shelf, told: Option<Arc<dyn tell::Facts>>, log: SyncSender<Logged>) -> Self {
        let metrics = Arc::new(Metrics::new());
        Self {
            shelf,
            transfers: Transfers::new(log.clone(), metrics.clone()),
            trusted_proxies: options.trusted_proxies.clone(),
            log,
            files: OpenFiles::default(),
            buffers: Arc::default(),
            limits: Limits::new(options.allowance),
            metrics_limits: Limits::new(Allowance {
                total_rate: None,
                client_rate: None,
                connections: METRICS_CONNECTIONS_MAX,
                client_connections: METRICS_CONNECTIONS_MAX,
            }),
            metrics,
            told,
            io_hint: options.io_hint,
            timeouts: options.timeouts,
            has_panicked: AtomicBool::new(false),
        }
    }

    /// What there is to serve, and why the last look at the directories failed.
    async fn look(&self) -> (Arc<Catalog>, Option<String>) {
        let (catalog, error) = self.shelf.look().await;
        let choice = catalog.choice();
        let incremental = choice.and_then(|choice| choice.incremental).map(|archive| archive.name.slot);
        let now_ns = unix_ns(SystemTime::now());
        let newest_age = choice.map(|choice| choice.incremental.unwrap_or(choice.full).age(now_ns));
        let full = choice.map(|choice| choice.full.name.slot);
        self.metrics.catalog(catalog.archives().len(), full, incremental, newest_age);
        (catalog, error)
    }
}

/// A scraper of metrics needs one or two.
const METRICS_CONNECTIONS_MAX: usize = 32;

/// Lines of the log that wait to be written.
const FINISHED_MAX: usize = 4096;

/// How often the outside is looked at: signals often, certificates seldom.
const TICK: Duration = Duration::from_millis(50);
const SLOW_TICK: Duration = Duration::from_secs(1);

/// Threads that may wait for a disk.
const BLOCKING_THREADS_MAX: usize = 64;

/// Descriptors beside those of connections, each of which may have a file open too.
const OTHER_DESCRIPTORS: u64 = 128;

/// Serves until `progress` says that the user asked to stop, and then until all transfers are done, or the grace is over.
/// `wants_reload` says whether certificates shall be read again now.
///
/// # Errors
/// A directory or a certificate cannot be read, an address is taken.
pub fn run(
    options: &ServeOptions,
    wants_reload: &dyn Fn() -> bool,
    on_event: &mut dyn FnMut(Event),
    progress: &dyn Progress,
) -> Result<()> {
    let certificates = options.tls.clone().map(Certificates::new).transpose()?.map(Arc::new);
    let shelf = Shelf::new(options.dirs.clone())?;
    let (listener, listen) = bind(options.listen)?;
    let metrics_listener = options.metrics.map(bind).transpose()?;
    raise_descriptors(options.allowance.connections, progress);

    let (sender, finished) = sync_channel(FINISHED_MAX);
    let server = Arc::new(Server::new(options, shelf, None, sender));

    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(options.threads)
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        .thread_name("serve")
        .enable_all()
        .build()
        .map_err(|error| slotpress_base::threads::cannot_start(&error))?;
    let (stop, stopping) = watch::channel(false);
    let metrics_address = metrics_listener.as_ref().map(|(_, address)| *address);
    let start = |listener: TcpListener, purpose: Purpose, certificates| -> Result<()> {
        let _inside = runtime.enter();
        let listener = tokio::net::TcpListener::from_std(listener)
            .map_err(|error| Error::failed(format!("cannot listen: {error}")))?;
        runtime.spawn(connection::listen(server.clone(), listener, purpose, certificates, stopping.clone()));
        Ok(())
    };
    start(listener, Purpose::Archives, certificates.clone())?;
    if let Some((listener, _)) = metrics_listener {
        start(listener, Purpose::Metrics, None)?;
    }
    let archives = runtime.block_on(server.look()).0.archives().len();
    on_event(Event::Listening { listen, metrics: metrics_address, archives });
    supervisor::ready();

    let mut gathered = options.gathers_ranges.then(Gathered::default);
    let mut last_slow_tick: Option<Instant> = None;
    while !progress.is_interrupted() {
        forward(&finished, TICK, &mut gathered, on_event);
        let over = gathered.as_mut().map(|it| it.over(|| server.transfers.list(), Instant::now()));
        over.into_iter().flatten().for_each(|over| on_event(Event::Finished(over)));
        let is_asked = wants_reload();
        if last_slow_tick.is_some_and(|last| last.elapsed() < SLOW_TICK) && !is_asked {
            continue;
        }
        last_slow_tick = Some(Instant::now());
        supervisor::alive();
        server.limits.sweep();
        // Each is told once.
        let known = server.shelf.known();
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
        forward(&finished, TICK, &mut gathered, on_event);
    }
    // Ends what is left, and tells of it.
    runtime.shutdown_timeout(SLOW_TICK);
    drop(server);
    forward(&finished, Duration::ZERO, &mut gathered, on_event);
    gathered.into_iter().flat_map(|mut it| it.all()).for_each(|over| on_event(Event::Finished(over)));
    Ok(())
}

/// Tells of transfers and answers, for a while.
fn forward(
    finished: &Receiver<Logged>,
    time: Duration,
    gathered: &mut Option<Gathered>,
    on_event: &mut dyn FnMut(Event),
) {
    let start = Instant::now();
    loop {
        match finished.recv_timeout(time.saturating_sub(start.elapsed())) {
            Ok(Logged::Finished(finished)) => {
                let told = match gathered {
                    Some(gathered) => gathered.add(finished, Instant::now()),
                    None => Some(finished),
                };
                told.into_iter().for_each(|told| on_event(Event::Finished(told)));
            }
            Ok(Logged::Answered(answered)) => on_event(Event::Answered(answered)),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return,
        }
    }
}

fn bind(address: SocketAddr) -> Result<(TcpListener, SocketAddr)> {
    let failed = |error: std::io::Error| {
        Error::failed(format!("cannot listen on {address}: {error}"))
            .with_hint("choose another address or port; `ss -ltnp` shows what listens there now")
    };
    let listener = TcpListener::bind(address).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    Ok((listener, address))
}

/// Each connection needs a descriptor, and one for its file.
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
