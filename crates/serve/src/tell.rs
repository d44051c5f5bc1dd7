//! Metrics and health of another command that runs for long, at an address of their own: by the same server.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use parking_lot::MutexGuard;
use prometheus_client::registry::Registry;
use slotpress_base::{Error, Result, cannot_start};
use tokio::runtime::Runtime;
use tokio::sync::watch;

use super::respond::Purpose;
use super::shelf::Shelf;
use super::{FINISHED_MAX, SLOW_TICK, ServeOptions, Server, bind, connection};

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
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("metrics")
        .enable_all()
        .build()
        .map_err(|error| cannot_start(&error))?;
    // Metrics have no log: what is sent there goes nowhere.
    let log = sync_channel(FINISHED_MAX).0;
    let server = Server::new(&ServeOptions::new([], listen), Shelf::new(Vec::new())?, Some(facts), log);
    let (stop, stopping) = watch::channel(false);
    {
        let _inside = runtime.enter();
        let listener = tokio::net::TcpListener::from_std(listener)
            .map_err(|error| Error::failed(format!("cannot listen: {error}")))?;
        runtime.spawn(connection::listen(Arc::new(server), listener, Purpose::Metrics, None, stopping));
    }
    Ok(Telling { address, runtime: Some(runtime), _stop: stop })
}
