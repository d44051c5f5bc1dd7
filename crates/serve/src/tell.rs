//! Serves metrics and health of a long-running command other than `serve`, at an address of their
//! own.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use parking_lot::MutexGuard;
use prometheus_client::registry::Registry;
use slotpress_base::Result;
use tokio::runtime::Runtime;
use tokio::sync::watch;

use super::connection::Endpoint;
use super::{Purpose, SLOW_TICK, ServeOptions, Server, bind, runtime, start};

pub trait Facts: fmt::Debug + Send + Sync {
    /// Metrics for `/metrics`.
    fn metrics(&self) -> MutexGuard<'_, Registry>;

    /// Health for `/healthz`.
    ///
    /// # Errors
    /// A line that says what is wrong.
    fn health(&self) -> std::result::Result<(), String>;
}

/// A server of metrics, which runs until it is dropped.
#[derive(Debug)]
pub struct Telling {
    pub address: SocketAddr,
    runtime: Option<Runtime>,
    _stop: watch::Sender<bool>,
}

impl Drop for Telling {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(SLOW_TICK);
        }
    }
}

/// Serves `/metrics` and `/healthz` at an address.
///
/// # Errors
/// The address is in use; no thread can be started.
pub fn tell(listen: SocketAddr, facts: Arc<dyn Facts>) -> Result<Telling> {
    let bound = bind(listen)?;
    let address = bound.1;
    let runtime = runtime(1, "metrics")?;
    // Requests for metrics are not logged: the server drops its events.
    let log = sync_channel(1).0;
    let server = Server::new(&ServeOptions::new([], listen), Some(facts), log)?;
    let (stop, stopping) = watch::channel(false);
    start(&runtime, Endpoint { server, purpose: Purpose::Metrics, certificates: None, stop: stopping }, bound)?;
    Ok(Telling { address, runtime: Some(runtime), _stop: stop })
}
