//! Metrics of the server, in OpenMetrics.

use parking_lot::{Mutex, MutexGuard};
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Metric, Registry};

use slotpress_base::clock;

use super::Server;
use super::limits::Refusal;

pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

type Label = [(&'static str, &'static str); 1];

#[derive(Debug)]
pub struct Metrics {
    pub sent_bytes: Counter,
    transfers: Gauge,
    archives: Gauge,
    newest_slot: Family<Label, Gauge>,
    newest_age_seconds: Gauge,
    connections: Gauge,
    responses: Family<[(&'static str, u16); 1], Counter>,
    ended_transfers: Family<Label, Counter>,
    refused_connections: Family<Label, Counter>,
    pub stalled_connections: Counter,
    registry: Mutex<Registry>,
}

/// Adds a registry whose names begin with `prefix` to `parent`, and registers `build_info` in it.
pub fn add_sub_registry<'r>(parent: &'r mut Registry, prefix: &str) -> &'r mut Registry {
    let registry = parent.sub_registry_with_prefix(prefix);
    let build_info: Family<Label, Gauge> = register(registry, "build_info", "Version of the program");
    let version = [("version", env!("CARGO_PKG_VERSION"))];
    build_info.get_or_create(&version).set(1);
    registry
}

fn register<M: Metric + Clone + Default>(registry: &mut Registry, name: &str, help: &str) -> M {
    let metric = M::default();
    registry.register(name, help, metric.clone());
    metric
}

const STATUSES: [u16; 13] = [200, 204, 206, 303, 304, 400, 404, 405, 412, 413, 416, 431, 503];

impl Metrics {
    pub fn new() -> Self {
        let mut root = Registry::default();
        let registry = add_sub_registry(&mut root, "slotpress_serve");
        let age = "Age in seconds of the newest archive that a node would choose";
        let metrics = Self {
            sent_bytes: register(registry, "sent_bytes", "Bytes of archives sent"),
            transfers: register(registry, "transfers", "Running transfers"),
            ended_transfers: register(registry, "transfers_ended", "Transfers that have ended"),
            archives: register(registry, "archives", "Archives that are served"),
            newest_slot: register(registry, "newest_slot", "Slot of the archive that a node would choose"),
            newest_age_seconds: register(registry, "newest_age_seconds", age),
            connections: register(registry, "connections", "Open connections"),
            refused_connections: register(registry, "connections_refused", "Connections refused because of a limit"),
            stalled_connections: register(
                registry,
                "connections_stalled",
                "Connections closed because the client stalled",
            ),
            responses: register(registry, "responses", "Responses by status"),
            registry: Mutex::new(root),
        };
        // Creates all counters now, because rates would miss the first event of a counter that appears with it.
        for status in STATUSES {
            drop(metrics.responses.get_or_create(&[("status", status)]));
        }
        for outcome in ["complete", "cut"] {
            drop(metrics.ended_transfers.get_or_create(&[("outcome", outcome)]));
        }
        for reason in ["full", "client"] {
            drop(metrics.refused_connections.get_or_create(&[("reason", reason)]));
        }
        metrics
    }

    pub fn count_response(&self, status: u16) {
        self.responses.get_or_create(&[("status", status)]).inc();
    }

    pub fn count_ended_transfer(&self, is_complete: bool) {
        let outcome = if is_complete { "complete" } else { "cut" };
        self.ended_transfers.get_or_create(&[("outcome", outcome)]).inc();
    }

    pub fn count_refusal(&self, refusal: Refusal) {
        let reason = match refusal {
            Refusal::ServerFull => "full",
            Refusal::ClientFull => "client",
        };
        self.refused_connections.get_or_create(&[("reason", reason)]).inc();
    }

    pub(crate) fn set_gauges(&self, server: &Server) {
        let to_i64 = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        let transfers = server.transfers.list().len() as u64;
        let connections = server.limits.connection_count() as u64;
        self.transfers.set(to_i64(transfers));
        self.connections.set(to_i64(connections));
        let catalog = server.archives.last_scan();
        let choice = catalog.choice();
        let full = choice.map(|choice| choice.full);
        let incremental = choice.and_then(|choice| choice.incremental);
        let newest = incremental.or(full);
        let age_seconds = newest.map_or(0, |archive| archive.age(clock::now()).as_secs());
        self.newest_age_seconds.set(to_i64(age_seconds));
        self.archives.set(to_i64(catalog.archives().len() as u64));
        for (kind, archive) in [("full", full), ("incremental", incremental)] {
            let slot = archive.map_or(0, |archive| archive.name.slot);
            let gauge = self.newest_slot.get_or_create(&[("kind", kind)]);
            gauge.set(to_i64(slot));
        }
    }

    pub fn registry(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock()
    }
}

pub fn encode_text(registry: &Registry) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = encode(&mut text, registry);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_exist_from_the_start() {
        let metrics = Metrics::new();
        let text = encode_text(&metrics.registry());
        assert!(text.contains("# TYPE slotpress_serve_responses counter\n"), "{text}");
        assert!(text.ends_with("# EOF\n"), "{text}");
        assert!(text.contains("slotpress_serve_responses_total{status=\"404\"} 0\n"), "{text}");
        assert!(text.contains("slotpress_serve_connections_refused_total{reason=\"client\"} 0\n"), "{text}");
        assert!(text.contains("slotpress_serve_build_info{version=\"0."), "{text}");
    }
}
