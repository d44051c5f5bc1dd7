//! What Prometheus and a load balancer are told: how fresh each target is, how much was published, what failed.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, SystemTime};

use parking_lot::{Mutex, MutexGuard};
use slotpress_base::quantity;
use slotpress_serve::Facts;
use slotpress_serve::process::registry;
use slotpress_serve::prometheus_client::metrics::counter::Counter;
use slotpress_serve::prometheus_client::metrics::family::Family;
use slotpress_serve::prometheus_client::metrics::gauge::Gauge;
use slotpress_serve::prometheus_client::registry::Registry;

use super::event::Event;
use super::shelf::Newest;
use super::target::Shelves;

/// What tells samples of one metric apart.
type Label = [(&'static str, String); 1];

/// The same of two of them.
type Labels = [(&'static str, String); 2];

fn of(target: &str) -> Label {
    [("target", target.to_string())]
}

fn by(name: &'static str, value: &str) -> Label {
    [(name, value.to_string())]
}

/// Reasons of failures, all of which are there from the start.
const REASONS: [&str; 4] = ["archive", "skipped", "target", "other"];

type Seconds = Counter<f64, AtomicU64>;

/// All of them.
#[derive(Debug)]
pub struct Metrics {
    newest_slot: Family<Label, Gauge>,
    newest_age_seconds: Family<Label, Gauge>,
    kind_slot: Family<Labels, Gauge>,
    kind_age_seconds: Family<Labels, Gauge>,
    is_up: Family<Label, Gauge>,
    last_success: Family<Label, Gauge>,
    free_bytes: Family<Label, Gauge>,
    hook_failures: Counter,
    kept_bytes: Family<Label, Gauge>,
    backlog: Family<Label, Gauge>,
    published: Family<Label, Counter>,
    published_bytes: Family<Label, Counter>,
    failures: Family<Label, Counter>,
    stage_seconds: Family<Label, Seconds>,
    /// Bytes of pinned archives.
    pub pinned_bytes: Gauge,
    registry: Mutex<Registry>,
    /// The newest archives of each target; `None` where that is not known.
    newest: Mutex<BTreeMap<String, Option<Newest>>>,
    alert_after: Option<Duration>,
    since: SystemTime,
}

impl Metrics {
    /// Of these targets. Health turns red when the newest archive of one of them is older than `alert_after`.
    pub fn new(targets: &[String], alert_after: Option<Duration>) -> Self {
        let metrics = Self {
            newest_slot: Family::default(),
            newest_age_seconds: Family::default(),
            kind_slot: Family::default(),
            kind_age_seconds: Family::default(),
            is_up: Family::default(),
            last_success: Family::default(),
            free_bytes: Family::default(),
            hook_failures: Counter::default(),
            kept_bytes: Family::default(),
            backlog: Family::default(),
            published: Family::default(),
            published_bytes: Family::default(),
            failures: Family::default(),
            stage_seconds: Family::default(),
            pinned_bytes: Gauge::default(),
            registry: Mutex::default(),
            newest: Mutex::new(targets.iter().map(|target| (target.clone(), None)).collect()),
            alert_after,
            since: SystemTime::now(),
        };
        let registry = registry("slotpress_publish", |registry| metrics.register(registry));
        *metrics.registry.lock() = registry;
        // What begins when something happens for the first time has no rate then.
        for target in targets {
            drop(metrics.published.get_or_create(&of(target)));
            drop(metrics.published_bytes.get_or_create(&of(target)));
        }
        REASONS.iter().for_each(|reason| drop(metrics.failures.get_or_create(&by("reason", reason))));
        metrics
    }

    fn register(&self, registry: &mut Registry) {
        registry.register("newest_slot", "Newest slot on a target", self.newest_slot.clone());
        let age = "Seconds since the newest archive of a target was published";
        registry.register("newest_age_seconds", age, self.newest_age_seconds.clone());
        registry.register("newest_kind_slot", "Newest slot of a kind of archive on a target", self.kind_slot.clone());
        let age = "Seconds since the newest archive of a kind was published on a target";
        registry.register("newest_kind_age_seconds", age, self.kind_age_seconds.clone());
        registry.register("target_up", "1 where a target works, 0 where it fails", self.is_up.clone());
        let success = "When a target last did what it was asked for, in seconds since 1970";
        registry.register("last_success_timestamp_seconds", success, self.last_success.clone());
        let free = "Bytes that are free for the directory of pins, or of a target, as of the last look";
        registry.register("free_bytes", free, self.free_bytes.clone());
        registry.register("hook_failures", "Programs of the operator that failed", self.hook_failures.clone());
        registry.register("kept_bytes", "Bytes of archives that a target keeps apart", self.kept_bytes.clone());
        registry.register("backlog", "Archives that are ready and not on a target yet", self.backlog.clone());
        registry.register("archives", "Archives published on a target", self.published.clone());
        registry.register("bytes", "Bytes published on a target", self.published_bytes.clone());
        let failures = "Damaged archives, archives left out, failures of targets, others";
        registry.register("failures", failures, self.failures.clone());
        let seconds = "Seconds spent checking and recompressing, and publishing";
        registry.register("stage_seconds", seconds, self.stage_seconds.clone());
        registry.register("pinned_bytes", "Bytes of archives pinned against the purge", self.pinned_bytes.clone());
    }

    /// Something happened.
    pub fn count(&self, event: &Event) {
        let stage = |stage: &'static str, elapsed: &Duration| {
            self.stage_seconds.get_or_create(&by("stage", stage)).inc_by(elapsed.as_secs_f64());
        };
        let failure = |reason: &'static str| {
            self.failures.get_or_create(&by("reason", reason)).inc();
        };
        match event {
            Event::Prepared { elapsed, .. } => stage("prepare", elapsed),
            Event::Published(published) => {
                stage("publish", &published.elapsed);
                let of = of(&published.target);
                self.published.get_or_create(&of).inc();
                self.published_bytes.get_or_create(&of).inc_by(published.bytes);
            }
            Event::Refused { .. } => failure("archive"),
            Event::Skipped { .. } => failure("skipped"),
            Event::Failed { target: Some(_), .. } => failure("target"),
            Event::Failed { is_of_hook, .. } => {
                self.hook_failures.inc_by(u64::from(*is_of_hook));
                failure("other");
            }
            _ => {}
        }
    }

    /// What a target has, how many archives wait for it, and whether it works.
    pub fn see(&self, target: &str, shelves: &Shelves, backlog: usize, is_up: bool) {
        let of = of(target);
        let set = |family: &Family<Label, Gauge>, value: u64| {
            family.get_or_create(&of).set(value.try_into().unwrap_or(i64::MAX));
        };
        set(&self.backlog, backlog as u64);
        set(&self.kept_bytes, shelves.kept_bytes);
        set(&self.is_up, u64::from(is_up));
        if let Some(free_bytes) = shelves.free_bytes {
            self.see_free(target, free_bytes);
        }
        if shelves.newest.of_all().is_some() {
            self.newest.lock().insert(target.to_string(), Some(shelves.newest));
        }
    }

    /// A target has done what it was asked for.
    pub fn succeeded(&self, target: &str) {
        let now = age(SystemTime::UNIX_EPOCH).as_secs();
        self.last_success.get_or_create(&of(target)).set(now.try_into().unwrap_or(i64::MAX));
    }

    /// How much is free for a directory.
    pub fn see_free(&self, dir: &str, bytes: u64) {
        self.free_bytes.get_or_create(&by("directory", dir)).set(bytes.try_into().unwrap_or(i64::MAX));
    }

    fn newest(&self) -> Vec<(String, Option<Newest>)> {
        let newest = self.newest.lock();
        newest.iter().map(|(target, newest)| (target.clone(), *newest)).collect()
    }
}

fn age(at: SystemTime) -> Duration {
    SystemTime::now().duration_since(at).unwrap_or_default()
}

impl Facts for Metrics {
    fn metrics(&self) -> MutexGuard<'_, Registry> {
        let number = |value: u64| value.try_into().unwrap_or(i64::MAX);
        for (target, newest) in self.newest() {
            let Some(newest) = newest else { continue };
            if let Some(of_all) = newest.of_all() {
                self.newest_slot.get_or_create(&of(&target)).set(number(of_all.slot));
                self.newest_age_seconds.get_or_create(&of(&target)).set(number(of_all.age().as_secs()));
            }
            for (kind, newest) in [("full", newest.full), ("incremental", newest.incremental)] {
                let Some(newest) = newest else { continue };
                let of = [("target", target.clone()), ("kind", kind.to_string())];
                self.kind_slot.get_or_create(&of).set(number(newest.slot));
                self.kind_age_seconds.get_or_create(&of).set(number(newest.age().as_secs()));
            }
        }
        self.registry.lock()
    }

    fn health(&self) -> Result<(), String> {
        let Some(alert_after) = self.alert_after else { return Ok(()) };
        // Where nothing was ever published, since the start.
        let age_of = |newest: Option<Newest>| {
            newest.and_then(|newest| newest.of_all()).map_or_else(|| age(self.since), |newest| newest.age())
        };
        let old = self.newest().into_iter().map(|(target, newest)| (target, age_of(newest)));
        let old: Vec<String> = old
            .filter(|(_, age)| *age > alert_after)
            .map(|(target, age)| format!("{target}: the newest archive was published {} ago", quantity::duration(age)))
            .collect();
        if old.is_empty() { Ok(()) } else { Err(old.join("; ")) }
    }
}

#[cfg(test)]
mod tests {
    use slotpress_serve::prometheus_client::encoding::text::encode;

    use super::super::shelf::NewestOf;
    use super::*;

    #[test]
    fn health_turns_red_when_a_target_is_stale() {
        let targets = ["a".to_string(), "b".to_string()];
        let metrics = Metrics::new(&targets, Some(Duration::from_secs(600)));
        assert_eq!(metrics.health(), Ok(()), "it has just begun");
        let fresh = age(SystemTime::UNIX_EPOCH).as_secs();
        let shelves = |unix_seconds| {
            let newest = Newest { full: Some(NewestOf { slot: 7, unix_seconds }), incremental: None };
            Shelves { newest, ..Shelves::default() }
        };
        metrics.see("a", &shelves(fresh), 0, true);
        metrics.see("b", &shelves(fresh - 700), 1, false);
        let why = metrics.health().unwrap_err();
        assert!(why.starts_with("b: ") && !why.contains("a: "), "{why}");
        let mut text = String::new();
        encode(&mut text, &metrics.metrics()).unwrap();
        assert!(text.contains("slotpress_publish_newest_age_seconds{target=\"b\"} 70"), "{text}");
        assert!(text.contains("slotpress_publish_newest_kind_slot{target=\"b\",kind=\"full\"} 7"), "{text}");
        assert!(text.contains("slotpress_publish_target_up{target=\"b\"} 0"), "{text}");
        assert!(text.contains("slotpress_publish_failures_total{reason=\"target\"} 0"), "{text}");
        assert_eq!(Metrics::new(&targets, None).health(), Ok(()));
    }
}
