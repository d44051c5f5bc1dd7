//! What Prometheus and a load balancer are told: how fresh each target is, how much was published, what failed.

use {
    super::{event::Event, target::Shelves},
    slotpress_base::quantity,
    slotpress_serve::{
        prometheus_client::{
            metrics::{counter::Counter, family::Family, gauge::Gauge},
            registry::Registry,
        },
        tell::Facts,
    },
    std::{
        collections::BTreeMap,
        sync::{Mutex, MutexGuard, PoisonError, atomic::AtomicU64},
        time::{Duration, SystemTime},
    },
};

/// What tells samples of one metric apart.
type Label = [(&'static str, String); 1];

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
    kept_bytes: Family<Label, Gauge>,
    backlog: Family<Label, Gauge>,
    published: Family<Label, Counter>,
    published_bytes: Family<Label, Counter>,
    failures: Family<Label, Counter>,
    stage_seconds: Family<Label, Seconds>,
    /// Bytes of pinned archives.
    pub pinned_bytes: Gauge,
    registry: Mutex<Registry>,
    /// When the newest archive of each target was published; `None` where that is not known.
    newest: Mutex<BTreeMap<String, Option<SystemTime>>>,
    alert_after: Option<Duration>,
    since: SystemTime,
}

impl Metrics {
    /// Of these targets. Health turns red when the newest archive of one of them is older than `alert_after`.
    pub fn new(targets: &[String], alert_after: Option<Duration>) -> Self {
        let metrics = Self {
            newest_slot: Family::default(),
            newest_age_seconds: Family::default(),
            kept_bytes: Family::default(),
            backlog: Family::default(),
            published: Family::default(),
            published_bytes: Family::default(),
            failures: Family::default(),
            stage_seconds: Family::default(),
            pinned_bytes: Gauge::default(),
            registry: Mutex::new(Registry::with_prefix("slotpress_publish")),
            newest: Mutex::new(targets.iter().map(|target| (target.clone(), None)).collect()),
            alert_after,
            since: SystemTime::now(),
        };
        let mut registry = metrics.registry.lock().unwrap_or_else(PoisonError::into_inner);
        registry.register("newest_slot", "Newest slot on a target", metrics.newest_slot.clone());
        let age = "Seconds since the newest archive of a target was published";
        registry.register("newest_age_seconds", age, metrics.newest_age_seconds.clone());
        registry.register("kept_bytes", "Bytes of archives that a target keeps apart", metrics.kept_bytes.clone());
        registry.register("backlog", "Archives that are ready and not on a target yet", metrics.backlog.clone());
        registry.register("archives", "Archives published on a target", metrics.published.clone());
        registry.register("bytes", "Bytes published on a target", metrics.published_bytes.clone());
        let failures = "Damaged archives, archives left out, failures of targets, others";
        registry.register("failures", failures, metrics.failures.clone());
        let seconds = "Seconds spent checking and recompressing, and publishing";
        registry.register("stage_seconds", seconds, metrics.stage_seconds.clone());
        registry.register("pinned_bytes", "Bytes of archives pinned against the purge", metrics.pinned_bytes.clone());
        drop(registry);
        // What begins when something happens for the first time has no rate then.
        for target in targets {
            drop(metrics.published.get_or_create(&of(target)));
            drop(metrics.published_bytes.get_or_create(&of(target)));
        }
        REASONS.iter().for_each(|reason| drop(metrics.failures.get_or_create(&by("reason", reason))));
        metrics
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
            Event::Failed { .. } | Event::HookFailed(_) => failure("other"),
            _ => {}
        }
    }

    /// What a target has, and how many archives wait for it.
    pub fn see(&self, target: &str, shelves: &Shelves, backlog: usize) {
        let of = of(target);
        let set = |family: &Family<Label, Gauge>, value: u64| {
            family.get_or_create(&of).set(value.try_into().unwrap_or(i64::MAX));
        };
        set(&self.backlog, backlog as u64);
        set(&self.kept_bytes, shelves.kept_bytes);
        if let Some((slot, seconds)) = shelves.newest {
            set(&self.newest_slot, slot);
            let at = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds));
            self.newest.lock().unwrap_or_else(PoisonError::into_inner).insert(target.to_string(), at);
        }
    }

    fn ages(&self) -> Vec<(String, Option<Duration>)> {
        let newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        newest.iter().map(|(target, at)| (target.clone(), at.map(age))).collect()
    }
}

fn age(at: SystemTime) -> Duration {
    SystemTime::now().duration_since(at).unwrap_or_default()
}

impl Facts for Metrics {
    fn metrics(&self) -> MutexGuard<'_, Registry> {
        for (target, age) in self.ages() {
            if let Some(age) = age {
                let seconds = age.as_secs().try_into().unwrap_or(i64::MAX);
                self.newest_age_seconds.get_or_create(&of(&target)).set(seconds);
            }
        }
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn health(&self) -> Result<(), String> {
        let Some(alert_after) = self.alert_after else { return Ok(()) };
        // Where nothing was ever published, since the start.
        let age_of = |newest: Option<Duration>| newest.unwrap_or_else(|| age(self.since));
        let old = self.ages().into_iter().map(|(target, newest)| (target, age_of(newest)));
        let old: Vec<String> = old
            .filter(|(_, age)| *age > alert_after)
            .map(|(target, age)| format!("{target}: the newest archive was published {} ago", quantity::duration(age)))
            .collect();
        if old.is_empty() { Ok(()) } else { Err(old.join("; ")) }
    }
}

#[cfg(test)]
mod tests {
    use {super::*, slotpress_serve::prometheus_client::encoding::text::encode};

    #[test]
    fn health_turns_red_when_a_target_is_stale() {
        let targets = ["a".to_string(), "b".to_string()];
        let metrics = Metrics::new(&targets, Some(Duration::from_secs(600)));
        assert_eq!(metrics.health(), Ok(()), "it has just begun");
        let fresh = age(SystemTime::UNIX_EPOCH).as_secs();
        let shelves = |seconds| Shelves { newest: Some((7, seconds)), ..Shelves::default() };
        metrics.see("a", &shelves(fresh), 0);
        metrics.see("b", &shelves(fresh - 700), 1);
        let why = metrics.health().unwrap_err();
        assert!(why.starts_with("b: ") && !why.contains("a: "), "{why}");
        let mut text = String::new();
        encode(&mut text, &metrics.metrics()).unwrap();
        assert!(text.contains("slotpress_publish_newest_age_seconds{target=\"b\"} 70"), "{text}");
        assert!(text.contains("slotpress_publish_failures_total{reason=\"target\"} 0"), "{text}");
        assert_eq!(Metrics::new(&targets, None).health(), Ok(()));
    }
}
