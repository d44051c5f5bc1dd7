//! What Prometheus is told.

use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::limits::Refusal;
use super::process::registry;

/// How metrics are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextFormat {
    /// OpenMetrics 1.0, which Prometheus asks for.
    OpenMetrics,
    /// The text format of Prometheus, version 0.0.4, which other programs ask for as plain text.
    Prometheus,
}

impl TextFormat {
    /// What a client accepts: OpenMetrics, unless it wants plain text alone.
    pub fn of_accept(accept: &str) -> Self {
        match accept.contains("text/plain") && !accept.contains("application/openmetrics-text") {
            true => Self::Prometheus,
            false => Self::OpenMetrics,
        }
    }

    /// The type of such a text.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

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
    /// Age of the newest archive.
    newest_age_seconds: Gauge,
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

/// Statuses that this server answers with.
const STATUSES: [u16; 13] = [200, 204, 206, 303, 304, 400, 404, 405, 412, 413, 416, 431, 503];

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
        let registry = registry("slotpress_serve", |registry| metrics.register(registry));
        // Counters that begin when something happens for the first time have no rate then.
        for status in STATUSES {
            drop(metrics.responses.get_or_create(&Status { status }));
        }
        for outcome in ["complete", "cut"] {
            drop(metrics.ended.get_or_create(&Outcome { outcome }));
        }
        for reason in ["full", "client"] {
            drop(metrics.refused.get_or_create(&Reason { reason }));
        }
        *metrics.registry.lock() = registry;
        metrics
    }

    fn register(&self, registry: &mut Registry) {
        registry.register("sent_bytes", "Bytes of archives sent", self.sent_bytes.clone());
        registry.register("transfers", "Transfers that run", self.transfers.clone());
        registry.register("transfers_ended", "Transfers that have ended", self.ended.clone());
        registry.register("archives", "Archives that are served", self.archives.clone());
        registry.register("newest_slot", "Slot of the archive that a node would choose", self.newest_slot.clone());
        let age = "Seconds since the newest archive that a node would choose was modified";
        registry.register("newest_age_seconds", age, self.newest_age_seconds.clone());
        registry.register("connections", "Open connections", self.connections.clone());
        registry.register("connections_refused", "Connections over a limit", self.refused.clone());
        registry.register("connections_stalled", "Connections closed because the reader stalled", self.stalled.clone());
        registry.register("responses", "Responses by status", self.responses.clone());
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
    pub fn catalog(
        &self,
        archives: usize,
        full_slot: Option<u64>,
        incremental_slot: Option<u64>,
        newest_age: Option<Duration>,
    ) {
        let age_seconds = newest_age.unwrap_or_default().as_secs();
        self.newest_age_seconds.set(age_seconds.try_into().unwrap_or(i64::MAX));
        self.archives.set(archives.try_into().unwrap_or(i64::MAX));
        for (kind, slot) in [("full", full_slot), ("incremental", incremental_slot)] {
            self.newest_slot.get_or_create(&Kind { kind }).set(slot.unwrap_or_default().try_into().unwrap_or(i64::MAX));
        }
    }

    /// As Prometheus reads them.
    pub fn text(&self, format: TextFormat) -> String {
        text(&self.registry.lock(), format)
    }
}

/// Metrics as Prometheus reads them.
pub fn text(registry: &Registry, format: TextFormat) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = encode(&mut text, registry);
    match format {
        TextFormat::OpenMetrics => text,
        TextFormat::Prometheus => as_prometheus(&text),
    }
}

/// The text format of Prometheus: a counter is described under the name that its samples have, and there is no mark of the
/// end.
fn as_prometheus(text: &str) -> String {
    let counter = |line: &str| line.strip_prefix("# TYPE ")?.strip_suffix(" counter").map(str::to_string);
    let counters: Vec<String> = text.lines().filter_map(counter).collect();
    let mut to = String::new();
    for line in text.lines().filter(|line| *line != "# EOF") {
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("#"), Some(what), Some(name), Some(rest)) if counters.iter().any(|counter| counter == name) => {
                to.extend(["# ", what, " ", name, "_total ", rest, "\n"]);
            }
            _ => to.extend([line, "\n"]),
        }
    }
    to
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_exist_from_the_start_in_both_formats() {
        let metrics = Metrics::new();
        let (open, plain) = (metrics.text(TextFormat::OpenMetrics), metrics.text(TextFormat::Prometheus));
        assert!(open.contains("# TYPE slotpress_serve_responses counter\n") && open.ends_with("# EOF\n"), "{open}");
        assert!(plain.contains("# TYPE slotpress_serve_responses_total counter\n"), "{plain}");
        assert!(plain.contains("# HELP slotpress_serve_sent_bytes_total ") && !plain.contains("EOF"), "{plain}");
        for text in [open, plain] {
            assert!(text.contains("slotpress_serve_responses_total{status=\"404\"} 0\n"), "{text}");
            assert!(text.contains("slotpress_serve_connections_refused_total{reason=\"client\"} 0\n"), "{text}");
            assert!(text.contains("slotpress_serve_build_info{version=\"0."), "{text}");
            for name in ["start_time_seconds", "resident_memory_bytes", "open_fds", "cpu_seconds_total"] {
                assert!(text.contains(&format!("\nprocess_{name} ")), "{name}: {text}");
            }
        }
        assert_eq!(TextFormat::of_accept("text/plain"), TextFormat::Prometheus);
        let prometheus = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        assert_eq!(TextFormat::of_accept(prometheus), TextFormat::OpenMetrics);
        assert_eq!(TextFormat::of_accept("*/*"), TextFormat::OpenMetrics);
    }
}
