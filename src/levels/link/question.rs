//! A question about a link, and the answer for one level.

use serde::Serialize;

use super::model::{Ends, Load, StageTimes, Way};
use super::network::Link;

/// Bytes in a GB of egress, as providers bill it.
pub const EGRESS_GB_BYTES: f64 = 1e9;

/// A link, the machines at its ends, and the price of egress.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LinkQuestion {
    /// The link.
    #[serde(flatten)]
    pub link: Link,
    /// The machines at its ends.
    #[serde(flatten)]
    pub ends: Ends,
    /// Price of each GB (10^9 bytes) of archive that leaves, in any currency.
    pub egress_price_per_gb: Option<f64>,
    /// Whether to recommend formats that some client does not read, too.
    #[serde(skip)]
    pub any_format: bool,
}

impl LinkQuestion {
    /// Seconds to a node that can be started, over the same link with another bandwidth.
    pub fn seconds_at(&self, load: &Load, way: Way, bandwidth_bits_per_second: f64) -> f64 {
        StageTimes::of(load, &self.link.with_bandwidth(bandwidth_bits_per_second), &self.ends).total(way)
    }
}

/// A level over the link.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkRow {
    /// The measurements, scaled to the whole.
    pub load: Load,
    /// Times of the stages, and of all of them.
    pub times: StageTimes,
    /// Bytes of archive that leave for all nodes.
    pub egress_bytes: u64,
    /// The price of these, in the currency of the question.
    pub egress_price: Option<f64>,
}

impl LinkRow {
    /// A level over the link of a question.
    pub fn new(load: Load, question: &LinkQuestion) -> Self {
        let times = StageTimes::of(&load, &question.link, &question.ends);
        let egress_bytes = load.archive_bytes.saturating_mul(u64::from(question.link.nodes));
        let egress_price = question.egress_price_per_gb.map(|price| egress_bytes as f64 / EGRESS_GB_BYTES * price);
        Self { load, times, egress_bytes, egress_price }
    }
}
