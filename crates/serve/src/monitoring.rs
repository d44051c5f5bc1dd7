//! Serves metrics and health of a long-running command at a separate address, and notifies a service
//! manager (`sd_notify(3)`), if there is one.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use parking_lot::MutexGuard;
use prometheus_client::registry::Registry;
pub use sd_notify::NotifyState;
use slotpress_base::Result;
use tokio::runtime::Runtime;
use tokio::sync::watch;

use super::connection::{self, Endpoint, Site};
use super::limits::ClientLimits;
use super::{ServeOptions, Server, bind, start_runtime};

const CONNECTIONS_MAX: usize = 32;

/// A command whose metrics and health can be requested.
pub trait Monitored: fmt::Debug + Send + Sync {
    /// Returns the metrics with their present values.
    fn metrics(&self) -> MutexGuard<'_, Registry>;

    /// Checks the command's health, for `/healthz`.
    ///
    /// # Errors
    /// The text describes the problem.
    fn health(&self) -> std::result::Result<(), String>;
}

impl Monitored for Server {
    fn metrics(&self) -> MutexGuard<'_, Registry> {
        self.metrics.set_gauges(self);
        self.metrics.registry()
    }

    fn health(&self) -> std::result::Result<(), String> {
        if self.archives.has_failed.load(Relaxed) {
            return Err("A directory of archives cannot be read.".into());
        }
        Ok(())
    }
}

/// A running metrics server. Dropping this value stops it.
#[derive(Debug)]
pub struct MetricsServer {
    pub address: SocketAddr,
    _runtime: Runtime,
    _stop: watch::Sender<bool>,
}

/// Serves `/metrics` and `/healthz` at an address.
///
/// # Errors
/// The address cannot be used; no thread can be started.
pub fn serve_metrics(listen: SocketAddr, monitored: Arc<dyn Monitored>) -> Result<MetricsServer> {
    let runtime = start_runtime(1, "metrics")?;
    let (listener, address) = bind(&runtime, listen)?;
    let (stop, stopping) = watch::channel(false);
    let options = ServeOptions::new([""; 0], listen).max_connections(CONNECTIONS_MAX);
    let options = options.max_connections_per_client(CONNECTIONS_MAX);
    let endpoint = Endpoint {
        site: Site::Metrics(monitored),
        limits: ClientLimits::new(Arc::new(options)),
        certificates: None,
        stop: stopping,
    };
    runtime.spawn(connection::listen(endpoint, listener));
    Ok(MetricsServer { address, _runtime: runtime, _stop: stop })
}

/// Notifies the service manager. For a unit with `WatchdogSec=`, call this with `Watchdog` at least
/// twice in that time.
pub fn notify(state: NotifyState<'_>) {
    let _ = sd_notify::notify(&[state]);
}
