//! Metrics and health of another command that runs for long, at an address of their own: by the same server.

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

/// What there is to tell.
pub trait Facts: fmt::Debug + Send + Sync {
    /// At `/metrics`.
    fn metrics(&self) -> MutexGuard<'_, Registry>;

    /// At `/healthz`: whether all is well, or what is not, in a line.
    ///
    /// # Errors
    /// What is not well.
    fn health(&self) -> std::result::Result<(), String>;
}

/// Answers until it is dropped.
#[derive(Debug)]
pub struct Telling {
    /// Where.
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

/// Answers `/metrics` and `/healthz` at an address.
///
/// # Errors
/// The address is taken; no thread is to be had.
pub fn tell(listen: SocketAddr, facts: Arc<dyn Facts>) -> Result<Telling> {
    let (listener, address) = bind(listen)?;
    let runtime = runtime(1, "metrics")?;
    // Metrics have no log: what is sent there goes nowhere.
    let log = sync_channel(1).0;
    let server = Server::new(&ServeOptions::new([], listen), Some(facts), log)?;
    let (stop, stopping) = watch::channel(false);
    start(&runtime, Endpoint { server, purpose: Purpose::Metrics, certificates: None, stop: stopping }, listener)?;
    Ok(Telling { address, runtime: Some(runtime), _stop: stop })
}
