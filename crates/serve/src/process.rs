//! Makes a registry of metrics, with what the program is.

use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// Makes a registry of metrics under names that begin with `prefix`. `fill` registers all but
/// `build_info`.
pub fn registry(prefix: &str, fill: impl FnOnce(&mut Registry)) -> Registry {
    let mut all = Registry::default();
    let ours = all.sub_registry_with_prefix(prefix);
    let build = Family::<[(&str, &str); 1], Gauge>::default();
    build.get_or_create(&[("version", env!("CARGO_PKG_VERSION"))]).set(1);
    ours.register("build_info", "The program", build);
    fill(ours);
    all
}
