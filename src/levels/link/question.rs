//! What is asked about a link, and what it comes to for one level.

use {
    super::{
        model::{Ends, Load, PLACE_BYTES_PER_SECOND, READ_BYTES_PER_SECOND, Stage, StageTimes, Way},
        network::Link,
    },
    serde::Serialize,
};

/// Bytes in a GB of egress, as those who bill it count.
pub const EGRESS_GB_BYTES: f64 = 1e9;

/// What is asked: a link, the machines at its ends, and what egress costs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LinkQuestion {
    /// The link.
    #[serde(flatten)]
    pub link: Link,
    /// The machines at its ends.
    #[serde(flatten)]
    pub ends: Ends,
    /// For each GB (10^9 bytes) of archive that leaves, in whatever currency.
    pub egress_price_per_gb: Option<f64>,
    /// Whether formats that some client does not read are recommended too.
    #[serde(skip)]
    pub any_format: bool,
    /// Whether nobody asked about this link.
    #[serde(skip)]
    pub is_assumed: bool,
}

impl LinkQuestion {
    /// Where nobody asked about a link: 1 Gbit/s without delay, to one node.
    pub fn usual(frame_size_bytes: u64, threads: usize) -> Self {
        let ends = Ends {
            read_bytes_per_second: READ_BYTES_PER_SECOND,
            place_bytes_per_second: PLACE_BYTES_PER_SECOND,
            frame_size_bytes,
            threads,
        };
        Self { link: Link::new(1e9), ends, egress_price_per_gb: None, any_format: false, is_assumed: true }
    }

    /// Seconds to a node that can be started, over the same link with another bandwidth.
    pub fn seconds_at(&self, load: &Load, way: Way, bandwidth_bits_per_second: f64) -> f64 {
        StageTimes::of(load, &self.link.with_bandwidth(bandwidth_bits_per_second), &self.ends).total(way)
    }
}

/// A level over the link.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LinkRow {
    /// What was measured, for the whole.
    #[serde(flatten)]
    pub load: Load,
    /// Seconds to archive.
    pub archive_seconds: f64,
    /// Seconds to send, with connecting and slow start.
    pub send_seconds: f64,
    /// Seconds to decode.
    pub decode_seconds: f64,
    /// Seconds to write storages.
    pub place_seconds: f64,
    /// All at once: the slowest stage, with fill and drain.
    pub streaming_seconds: f64,
    /// One after the other: the sum.
    pub store_and_forward_seconds: f64,
    /// The stage that takes longest.
    pub slowest_stage: Stage,
    /// Bytes of archive that leave for all nodes.
    pub egress_bytes: u64,
    /// What they cost.
    pub egress_price: Option<f64>,
}

impl LinkRow {
    /// Seconds to a node that can be started.
    pub fn seconds(&self, way: Way) -> f64 {
        match way {
            Way::Streaming => self.streaming_seconds,
            Way::StoreAndForward => self.store_and_forward_seconds,
        }
    }

    /// What a level comes to over the link that is asked about.
    pub fn new(load: Load, question: &LinkQuestion) -> Self {
        let times = StageTimes::of(&load, &question.link, &question.ends);
        let [archive_seconds, send_seconds, decode_seconds, place_seconds] = times.seconds;
        let egress_bytes = load.archive_bytes.saturating_mul(u64::from(question.link.nodes));
        Self {
            archive_seconds,
            send_seconds,
            decode_seconds,
            place_seconds,
            streaming_seconds: times.total(Way::Streaming),
            store_and_forward_seconds: times.total(Way::StoreAndForward),
            slowest_stage: times.slowest(),
            egress_bytes,
            egress_price: question.egress_price_per_gb.map(|price| egress_bytes as f64 / EGRESS_GB_BYTES * price),
            load,
        }
    }
}
