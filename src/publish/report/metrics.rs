//! Metrics for Prometheus and health for load balancers: the age of each target's newest archives, and
//! counts of published archives and failures.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use slotpress_base::{clock, quantity};
use slotpress_serve::prometheus_client::metrics::counter::Counter;
use slotpress_serve::prometheus_client::metrics::family::Family;
use slotpress_serve::prometheus_client::metrics::gauge::Gauge;
use slotpress_serve::prometheus_client::registry::Registry;
use slotpress_serve::{Monitored, add_sub_registry};

use slotpress_read::{Catalog, ListedArchive, unix_ns};

use super::event::PublishEvent;
use crate::publish::decide::TargetStatus;

type Labels = Vec<(&'static str, String)>;

fn target_label(target: &str) -> Labels {
    label("target", target)
}

fn label(name: &'static str, value: &str) -> Labels {
    vec![(name, value.to_string())]
}

fn set_gauge(gauges: &Gauges, labels: &Labels, value: u64) {
    gauges.get_or_create(labels).set(to_i64(value));
}

fn to_i64(value: u64) -> i64 {
    value.try_into().unwrap_or(i64::MAX)
}

/// Returns the archive with the highest slot in an index. Ignores rebased archives, and archives for
/// which `is_counted` is false.
pub fn newest_archive(index: &Catalog, is_counted: impl Fn(&ListedArchive) -> bool) -> Option<&ListedArchive> {
    let archives = index.archives().iter().filter(|archive| !archive.is_rebased() && is_counted(archive));
    archives.max_by_key(|archive| archive.name.slot)
}

/// Values of the label `reason`.
const REASONS: [&str; 4] = ["archive", "skipped", "target", "other"];

#[derive(Debug)]
pub struct PublishMetrics {
    series: MetricSeries,
    registry: Mutex<Registry>,
    /// The last index of each target that had archives.
    indexes: Mutex<BTreeMap<String, Catalog>>,
    start: Instant,
    alert_after: Option<Duration>,
}

/// Declares all series, each with its name and its help text, and a function that registers them.
macro_rules! series {
    ($($field:ident: $kind:ty, $name:literal, $help:literal;)*) => {
        #[derive(Debug, Default)]
        struct MetricSeries {
            $($field: $kind,)*
        }

        impl MetricSeries {
            fn register(&self, registry: &mut Registry) {
                $(registry.register($name, $help, self.$field.clone());)*
            }
        }
    };
}

type Gauges = Family<Labels, Gauge>;
type Counters = Family<Labels, Counter>;
type SecondsCounters = Family<Labels, Counter<f64, AtomicU64>>;

series! {
    newest_slot: Gauges, "newest_slot", "Newest slot on a target";
    newest_age_seconds: Gauges, "newest_age_seconds", "Seconds since the newest archive of a target was published";
    slot_by_kind: Gauges, "newest_kind_slot", "Newest slot of a kind of archive on a target";
    age_seconds_by_kind: Gauges, "newest_kind_age_seconds",
        "Seconds since the newest archive of a kind was published on a target";
    is_up: Gauges, "target_up", "1 if a target works, 0 if it fails or was not reached yet";
    last_success: Gauges, "last_success_timestamp_seconds",
        "Time at which a target last answered without a failure, in seconds since 1970";
    free_bytes: Gauges, "free_bytes",
        "Free bytes on the file system of the directory of pins or of a target, when last checked";
    backlog: Gauges, "backlog", "Archives that are ready and not on a target yet";
    hook_failures: Counter, "hook_failures", "Hooks that failed";
    published: Counters, "archives", "Archives published on a target";
    published_bytes: Counters, "bytes", "Bytes published on a target";
    failures: Counters, "failures", "Damaged archives, archives left out, failures of targets, others";
    stage_seconds: SecondsCounters, "stage_seconds", "Seconds spent checking and recompressing, rebasing, and publishing";
    pinned_bytes: Gauge, "pinned_bytes", "Bytes of pinned archives";
}

impl PublishMetrics {
    /// Creates the metrics of these targets. Health requests fail if the newest archive of a target
    /// is older than `alert_after`.
    pub fn new(targets: impl Iterator<Item = String>, alert_after: Option<Duration>) -> Self {
        let series = MetricSeries::default();
        let indexes: BTreeMap<_, _> = targets.map(|target| (target, Catalog::default())).collect();
        // Create the counters now: Prometheus sees no increase in a counter that first appears with a
        // count of 1.
        for target in indexes.keys() {
            drop(series.published.get_or_create(&target_label(target)));
            drop(series.published_bytes.get_or_create(&target_label(target)));
        }
        for reason in REASONS {
            drop(series.failures.get_or_create(&label("reason", reason)));
        }
        let mut registry = Registry::default();
        series.register(add_sub_registry(&mut registry, "slotpress_publish"));
        Self {
            series,
            registry: Mutex::new(registry),
            indexes: Mutex::new(indexes),
            start: Instant::now(),
            alert_after,
        }
    }

    /// Returns the time since an archive was published. If there is no archive, or if the clock has jumped
    /// back since then, returns the time since the start of the run.
    fn age(&self, published: Option<&ListedArchive>) -> Duration {
        let age_ns = published.and_then(|archive| unix_ns(clock::now()).checked_sub(archive.modified_ns));
        age_ns.map_or_else(|| self.start.elapsed(), Duration::from_nanos)
    }

    pub fn count_event(&self, event: &PublishEvent) {
        let add_seconds = |stage: &'static str, elapsed: Duration| {
            self.series.stage_seconds.get_or_create(&label("stage", stage)).inc_by(elapsed.as_secs_f64());
        };
        let count_failure = |reason: &'static str| {
            self.series.failures.get_or_create(&label("reason", reason)).inc();
        };
        match event {
            PublishEvent::Prepared(prepared) => {
                let stage = if prepared.rebased_on.is_some() { "rebase" } else { "prepare" };
                add_seconds(stage, prepared.elapsed);
            }
            PublishEvent::Published(published) => {
                add_seconds("publish", published.elapsed);
                let labels = target_label(published.target.as_deref().unwrap_or_default());
                self.series.published.get_or_create(&labels).inc();
                self.series.published_bytes.get_or_create(&labels).inc_by(published.size_bytes);
            }
            PublishEvent::Refused { .. } => count_failure("archive"),
            PublishEvent::Skipped { .. } => count_failure("skipped"),
            PublishEvent::Failed { target: Some(_), .. } => count_failure("target"),
            PublishEvent::Failed { target: None, .. } => count_failure("other"),
            _ => {}
        }
    }

    pub fn count_hook_failure(&self) {
        self.series.hook_failures.inc();
    }

    pub fn set_pinned_bytes(&self, bytes: u64) {
        self.series.pinned_bytes.set(to_i64(bytes));
    }

    pub fn record_target(&self, target: &str, status: &TargetStatus<'_>) {
        let label = target_label(target);
        let contents = status.contents;
        set_gauge(&self.series.backlog, &label, status.backlog as u64);
        set_gauge(&self.series.is_up, &label, u64::from(status.is_up));
        if let Some(free_bytes) = contents.free_bytes {
            self.set_free_bytes(target, free_bytes);
        }
        if let Some(time) = contents.last_success {
            let seconds = clock::since_1970(time).as_secs();
            set_gauge(&self.series.last_success, &label, seconds);
        }
        // Keep the last index that had archives, so that the age of its newest one keeps rising.
        if !contents.index.archives().is_empty() {
            self.indexes.lock().insert(target.to_string(), contents.index.clone());
        }
    }

    pub fn set_free_bytes(&self, dir: &str, bytes: u64) {
        set_gauge(&self.series.free_bytes, &label("directory", dir), bytes);
    }
}

impl Monitored for PublishMetrics {
    fn metrics(&self) -> MutexGuard<'_, Registry> {
        let set_newest = |slots: &Gauges, ages: &Gauges, labels: Labels, newest: Option<&ListedArchive>| {
            let Some(archive) = newest else { return };
            set_gauge(slots, &labels, archive.name.slot);
            set_gauge(ages, &labels, self.age(newest).as_secs());
        };
        let series = &self.series;
        for (target, index) in self.indexes.lock().iter() {
            let newest = newest_archive(index, |_| true);
            set_newest(&series.newest_slot, &series.newest_age_seconds, target_label(target), newest);
            for (kind, is_full) in [("full", true), ("incremental", false)] {
                let labels = vec![("target", target.clone()), ("kind", kind.to_string())];
                let newest = newest_archive(index, |archive| archive.is_full() == is_full);
                let ages = &series.age_seconds_by_kind;
                set_newest(&series.slot_by_kind, ages, labels, newest);
            }
        }
        self.registry.lock()
    }

    fn health(&self) -> Result<(), String> {
        let Some(alert_after) = self.alert_after else { return Ok(()) };
        let mut problems = Vec::new();
        for (target, index) in self.indexes.lock().iter() {
            let age = self.age(newest_archive(index, |_| true));
            if age > alert_after {
                problems.push(format!("{target}: the newest archive was published {} ago", quantity::duration(age)));
            }
        }
        if problems.is_empty() { Ok(()) } else { Err(problems.join("; ")) }
    }
}

#[cfg(test)]
mod tests {
    use slotpress_format::ledger::names::{ArchiveCompression, ArchiveName, Hash};
    use slotpress_serve::prometheus_client::encoding::text::encode;

    use super::*;
    use crate::publish::act::target::TargetContents;

    #[test]
    fn health_fails_when_a_target_is_stale() {
        let targets = ["a".to_string(), "b".to_string()];
        let metrics = PublishMetrics::new(targets.clone().into_iter(), Some(Duration::from_secs(600)));
        assert_eq!(metrics.health(), Ok(()), "it has just begun");
        let contents = |age_seconds| {
            let name =
                ArchiveName { base_slot: None, slot: 7, hash: Hash([7; 32]), compression: ArchiveCompression::Zstd };
            let modified_ns = unix_ns(clock::now() - Duration::from_secs(age_seconds));
            let index = Catalog::new([ListedArchive { modified_ns, ..ListedArchive::new(name, "", 1) }]);
            TargetContents { index, ..TargetContents::default() }
        };
        metrics.record_target("a", &TargetStatus { contents: &contents(0), backlog: 0, is_up: true });
        metrics.record_target("b", &TargetStatus { contents: &contents(700), backlog: 1, is_up: false });
        let problem = metrics.health().unwrap_err();
        assert!(problem.starts_with("b: "), "{problem}");
        assert!(!problem.contains("a: "), "{problem}");
        let mut text = String::new();
        encode(&mut text, &metrics.metrics()).unwrap();
        let (_, after) = text.split_once("slotpress_publish_newest_age_seconds{target=\"b\"} ").unwrap();
        let age_seconds: u64 = after.lines().next().unwrap().parse().unwrap();
        assert!((700..7000).contains(&age_seconds), "{text}");
        assert!(text.contains("slotpress_publish_newest_kind_slot{target=\"b\",kind=\"full\"} 7"), "{text}");
        assert!(text.contains("slotpress_publish_target_up{target=\"b\"} 0"), "{text}");
        assert!(text.contains("slotpress_publish_failures_total{reason=\"target\"} 0"), "{text}");
        assert_eq!(PublishMetrics::new(targets.into_iter(), None).health(), Ok(()));
    }
}
