//! What Prometheus is told.

use {
    super::limits::Refusal,
    prometheus_client::{
        encoding::{EncodeLabelSet, text::encode},
        metrics::{counter::Counter, family::Family, gauge::Gauge},
        registry::Registry,
    },
    std::sync::Mutex,
};

/// The type of what [`Metrics::text`] returns.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// All of them.
#[derive(Debug, Default)]
pub struct Metrics {
    /// Bytes of archives.
    pub sent_bytes: Counter,
    /// Transfers that run.
    pub transfers: Gauge,
    /// Archives that are served.
    pub archives: Gauge,
    /// Slots of the newest archives, full and incremental.
    newest_slot: Family<Kind, Gauge>,
    /// Open connections.
    pub connections: Gauge,
    responses: Family<Status, Counter>,
    ended: Family<Outcome, Counter>,
    refused: Family<Reason, Counter>,
    /// Readers that were cut off.
    pub stalled: Counter,
    registry: Mutex<Registry>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Status {
    status: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reason {
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Kind {
    kind: &'static str,
}

impl Metrics {
    /// All at nothing.
    pub fn new() -> Self {
        let metrics = Self::default();
        let mut registry = Registry::with_prefix("slotpress_serve");
        registry.register("sent_bytes", "Bytes of archives sent", metrics.sent_bytes.clone());
        registry.register("transfers", "Transfers that run", metrics.transfers.clone());
        registry.register("transfers_ended", "Transfers that have ended", metrics.ended.clone());
        registry.register("archives", "Archives that are served", metrics.archives.clone());
        registry.register("newest_slot", "Slot of the archive that a node would choose", metrics.newest_slot.clone());
        registry.register("connections", "Open connections", metrics.connections.clone());
        registry.register("connections_refused", "Connections over a limit", metrics.refused.clone());
        registry.register(
            "connections_stalled",
            "Connections closed because the reader stalled",
            metrics.stalled.clone(),
        );
        registry.register("responses", "Responses by status", metrics.responses.clone());
        *metrics.registry.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = registry;
        metrics
    }

    /// A response was sent.
    pub fn response(&self, status: u16) {
        self.responses.get_or_create(&Status { status }).inc();
    }

    /// A transfer has ended.
    pub fn finished(&self, is_complete: bool) {
        self.transfers.dec();
        let outcome = if is_complete { "complete" } else { "cut" };
        self.ended.get_or_create(&Outcome { outcome }).inc();
    }

    /// A connection was refused.
    pub fn refused(&self, refusal: Refusal) {
        let reason = match refusal {
            Refusal::Full => "full",
            Refusal::ClientFull => "client",
        };
        self.refused.get_or_create(&Reason { reason }).inc();
    }

    /// What is served now.
    pub fn catalog(&self, archives: usize, full_slot: Option<u64>, incremental_slot: Option<u64>) {
        self.archives.set(archives.try_into().unwrap_or(i64::MAX));
        for (kind, slot) in [("full", full_slot), ("incremental", incremental_slot)] {
            self.newest_slot.get_or_create(&Kind { kind }).set(slot.unwrap_or_default().try_into().unwrap_or(i64::MAX));
        }
    }

    /// As Prometheus reads them.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let registry = self.registry.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        // Writing to a string does not fail.
        let _ = encode(&mut text, &registry);
        text
    }
}
