//! Reports events to the caller, to the operator's programs, to the service manager, and as metrics.

pub mod event;
pub mod hooks;
mod metrics;

use std::sync::Arc;

use slotpress_base::{Error, ErrorKind, EscapePath, Progress, Result};
use slotpress_serve::monitoring::{MetricsServer, NotifyState, notify, serve_metrics};

use self::event::PublishEvent;
use self::hooks::Hooks;
use self::metrics::{PublishMetrics, newest_archive};
use super::PublishOptions;
use super::decide::Planner;

pub struct Reporter<'a> {
    options: &'a PublishOptions,
    progress: &'a dyn Progress,
    on_event: &'a mut dyn FnMut(&PublishEvent),
    hooks: Hooks<'a>,
    metrics: Arc<PublishMetrics>,
    server: Option<MetricsServer>,
    /// The most serious failure for which no other attempt is scheduled. A damaged archive is the most
    /// serious failure, and a network failure the least.
    pub worst_failure: Option<Error>,
}

impl<'a> Reporter<'a> {
    pub fn new(
        options: &'a PublishOptions,
        progress: &'a dyn Progress,
        on_event: &'a mut dyn FnMut(&PublishEvent),
    ) -> Result<Self> {
        let names = options.targets.iter().map(ToString::to_string);
        let metrics = Arc::new(PublishMetrics::new(names, options.alert_after));
        let server = options.metrics.map(|listen| serve_metrics(listen, metrics.clone())).transpose()?;
        Ok(Self { options, progress, on_event, hooks: Hooks::new(options), metrics, server, worst_failure: None })
    }

    pub fn begin(&mut self) {
        let targets = self.options.targets.iter().map(ToString::to_string);
        self.report(PublishEvent::Watching {
            snapshots: self.options.snapshots.clone(),
            targets: targets.collect(),
            metrics: self.server.as_ref().map(|server| server.address),
        });
        notify(NotifyState::Ready);
    }

    pub fn report(&mut self, event: PublishEvent) {
        match &event {
            // A failure with a time for the next attempt is ignored: that attempt may succeed.
            PublishEvent::Failed { error, retry: None, .. } | PublishEvent::Refused { error, .. } => {
                let severity = |error: &Error| match error.kind() {
                    ErrorKind::Damaged => 2,
                    ErrorKind::Network => 0,
                    _ => 1,
                };
                if self.worst_failure.as_ref().map(severity) < Some(severity(error)) {
                    self.worst_failure = Some(error.clone());
                }
            }
            PublishEvent::Stopping => notify(NotifyState::Stopping),
            _ => {}
        }
        self.metrics.count_event(&event);
        (self.on_event)(&event);
        if !self.hooks.queue(&event) {
            self.progress.warn("a hook was skipped: too many hooks are waiting");
        }
    }

    /// Reports a failed hook. The failure neither makes the run fail nor starts another hook.
    fn report_hook_failure(&mut self, error: Error) {
        let event = PublishEvent::Failed { error, target: None, retry: None };
        self.metrics.count_hook_failure();
        self.metrics.count_event(&event);
        (self.on_event)(&event);
    }

    pub fn poll_hooks(&mut self) {
        if let Err(error) = self.hooks.poll() {
            self.report_hook_failure(error);
        }
    }

    pub fn end(&mut self) {
        for error in self.hooks.end(self.progress) {
            self.report_hook_failure(error);
        }
    }

    pub fn update_status(&mut self, planner: &Planner<'_>, free_bytes: Option<u64>) {
        notify(NotifyState::Watchdog);
        self.metrics.set_pinned_bytes(planner.pinned_bytes());
        if let Some(bytes) = free_bytes {
            self.metrics.set_free_bytes(&self.options.pins.escaped(), bytes);
        }
        let mut newest_slot = None;
        for (target, status) in self.options.targets.iter().zip(planner.target_statuses()) {
            self.metrics.record_target(&target.to_string(), &status);
            let newest = newest_archive(&status.contents.index, |_| true);
            newest_slot = newest_slot.max(newest.map(|archive| archive.name.slot));
        }
        if let Some(slot) = newest_slot {
            notify(NotifyState::Status(&format!("slot {slot} is published")));
        }
    }
}
