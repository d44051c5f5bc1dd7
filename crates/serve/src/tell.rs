//! Serves metrics and health of a long-running command, at an address of their own.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use parking_lot::MutexGuard;
use prometheus_client::registry::Registry;
use slotpress_base::Result;
use tokio::runtime::Runtime;
use tokio::sync::watch;

use super::connection::{self, Endpoint, Site};
use super::limits::ClientLimits;
use super::{ServeOptions, Server, bind, start_runtime};

/// Limit on connections to an address of metrics.
const CONNECTIONS_MAX: usize = 32;

pub trait Facts: fmt::Debug + Send + Sync {
    fn metrics(&self) -> MutexGuard<'_, Registry>;

    /// Health, as `/healthz` reports it.
    ///
    /// # Errors
    /// A line that says what is wrong.
    fn health(&self) -> std::result::Result<(), String>;
}

impl Facts for Server {
    fn metrics(&self) -> MutexGuard<'_, Registry> {
        self.metrics.update(&self.archives.last_scan(), self.transfers.list().len(), self.limits.connections());
        self.metrics.registry()
    }

    fn health(&self) -> std::result::Result<(), String> {
        if self.archives.has_failed.load(Relaxed) {
            return Err("A directory of archives cannot be read.".into());
        }
        Ok(())
    }
}

pub(crate) fn metrics_endpoint(facts: Arc<dyn Facts>, listen: SocketAddr, stop: watch::Receiver<bool>) -> Endpoint {
    let options = ServeOptions::new([], listen).connections(CONNECTIONS_MAX);
    let options = Arc::new(options.client_connections(CONNECTIONS_MAX));
    Endpoint {
        site: Site::Metrics(facts),
        limits: ClientLimits::new(options.clone()),
        options,
        certificates: None,
        stop,
    }
}

/// A server of metrics, which runs until it is dropped.
#[derive(Debug)]
pub struct MetricsServer {
    pub address: SocketAddr,
    _runtime: Runtime,
    _stop: watch::Sender<bool>,
}

/// Serves `/metrics` and `/healthz` at an address.
///
/// # Errors
/// The address is in use; no thread can be started.
pub fn serve_metrics(listen: SocketAddr, facts: Arc<dyn Facts>) -> Result<MetricsServer> {
    let runtime = start_runtime(1, "metrics")?;
    let (listener, address) = bind(&runtime, listen)?;
    let (stop, stopping) = watch::channel(false);
    runtime.spawn(connection::listen(metrics_endpoint(facts, address, stopping), listener));
    Ok(MetricsServer { address, _runtime: runtime, _stop: stop })
}
