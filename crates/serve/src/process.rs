//! Makes metrics of the program and its process, under the usual names.

use std::time::{Duration, SystemTime};
use std::{fmt, fs};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::{MetricType, TypedMetric};
use prometheus_client::registry::Registry;
use slotpress_base::clock;

/// Makes a registry with metrics of the process, and with those of the program under names that
/// begin with `prefix`. `fill` registers more of the latter.
pub fn registry(prefix: &str, fill: impl FnOnce(&mut Registry)) -> Registry {
    let mut all = Registry::default();
    all.register_collector(Box::new(Process { since: clock::now() }));
    let ours = all.sub_registry_with_prefix(prefix);
    let build = Family::<[(&str, &str); 1], Gauge>::default();
    build.get_or_create(&[("version", env!("CARGO_PKG_VERSION"))]).set(1);
    ours.register("build_info", "The program", build);
    fill(ours);
    all
}

#[derive(Debug)]
struct Process {
    since: SystemTime,
}

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let since = clock::since_1970(self.since).as_secs_f64();
        let cpu = Duration::try_from(rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime));
        let mut gauge = |name: &str, help: &str, value: f64| {
            let to = encoder.encode_descriptor(name, help, None, <ConstGauge as TypedMetric>::TYPE)?;
            ConstGauge::new(value).encode(to)
        };
        gauge("process_start_time_seconds", "When the process started, in seconds since 1970", since)?;
        if let Some(bytes) = resident_bytes() {
            gauge("process_resident_memory_bytes", "Memory of the process", bytes as f64)?;
        }
        if let Ok(open) = fs::read_dir("/proc/self/fd") {
            // One of the descriptors is that of this directory listing.
            gauge("process_open_fds", "Open file descriptors", open.count().saturating_sub(1) as f64)?;
        }
        let to = encoder.encode_descriptor("process_cpu_seconds", "Processor time used", None, MetricType::Counter)?;
        ConstCounter::new(cpu.unwrap_or_default().as_secs_f64()).encode(to)
    }
}

fn resident_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split(' ').nth(1)?.parse().ok()?;
    pages.checked_mul(rustix::param::page_size() as u64)
}
