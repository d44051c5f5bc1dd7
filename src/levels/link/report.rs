//! Levels side by side over one link: time to a node that can be started, bytes and price of egress.

use {
    crate::levels::{
        LevelRow, REFERENCE_CODEC,
        link::{
            break_even::{BreakEven, break_evens},
            model::{Ends, Load, PLACE_BYTES_PER_SECOND, READ_BYTES_PER_SECOND, Stage, StageTimes, Way},
            network::{Limit, Link},
            recommend::{LinkRecommendation, recommend},
        },
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

/// All that is known of a link and a ledger.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkReport {
    /// What was asked.
    pub question: LinkQuestion,
    /// Bytes of tar of the whole input.
    pub tar_bytes: u64,
    /// What each node gets, in bytes of payload per second.
    pub node_bytes_per_second: f64,
    /// What limits it.
    pub limit: Limit,
    /// Uncompressed, then the levels in ascending order, codec by codec.
    pub rows: Vec<LinkRow>,
    /// Between neighbouring rows, for each way.
    pub break_evens: Vec<BreakEven>,
    /// What to do, for each way.
    pub recommendations: Vec<LinkRecommendation>,
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

    fn new(load: Load, question: &LinkQuestion) -> Self {
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

/// Time against bandwidth of one level, for a picture.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Curve {
    /// The codec; `none` for uncompressed.
    pub codec: String,
    /// The level.
    pub level: i32,
    /// In words: `level 3`, `uncompressed`.
    pub name: String,
    /// Bandwidth in bit/s, ascending, and seconds to a node that can be started.
    pub points: Vec<(f64, f64)>,
}

impl LinkReport {
    /// Of measured levels, of any codec. A row of the codec `none` is taken for uncompressed, and made where there is
    /// none.
    pub fn new(question: LinkQuestion, tar_bytes: u64, measured: &[LevelRow]) -> Self {
        let is_plain = |row: &&LevelRow| row.codec == super::model::UNCOMPRESSED;
        let mut loads: Vec<Load> =
            measured.iter().filter(|row| !is_plain(row)).map(|row| Load::of(row, tar_bytes)).collect();
        // zstd first, which most will take.
        loads.sort_by_key(|load| (load.codec != REFERENCE_CODEC, load.codec.clone(), load.level));
        let plain = measured.iter().find(is_plain).map(|row| Load::of(row, tar_bytes));
        loads.insert(0, plain.unwrap_or_else(|| Load::uncompressed(tar_bytes)));
        let rows: Vec<LinkRow> = loads.into_iter().map(|load| LinkRow::new(load, &question)).collect();
        Self {
            tar_bytes,
            node_bytes_per_second: question.link.bytes_per_second(),
            limit: question.link.limit(),
            break_evens: break_evens(&rows, &question),
            recommendations: Way::ALL.iter().filter_map(|way| recommend(&rows, *way, question.any_format)).collect(),
            rows,
            question,
        }
    }

    /// Whether egress has a price.
    pub fn has_price(&self) -> bool {
        self.question.egress_price_per_gb.is_some()
    }

    /// Seconds to a node that can be started, over the same link with another bandwidth.
    pub fn seconds_at(&self, row: &LinkRow, way: Way, bandwidth_bits_per_second: f64) -> f64 {
        self.question.seconds_at(&row.load, way, bandwidth_bits_per_second)
    }

    /// A curve per row, over `points` bandwidths (2 or more) from `from` to `to` in bit/s, evenly by their logarithm.
    pub fn curves(&self, way: Way, from: f64, to: f64, points: usize) -> Vec<Curve> {
        let steps = points.max(2) - 1;
        let bandwidth = |step: usize| from * (to / from).powf(step as f64 / steps as f64);
        let curve = |row: &LinkRow| Curve {
            codec: row.load.codec.clone(),
            level: row.load.level,
            name: row.load.name(),
            points: (0..=steps).map(bandwidth).map(|at| (at, self.seconds_at(row, way, at))).collect(),
        };
        self.rows.iter().map(curve).collect()
    }
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

#[cfg(test)]
pub(crate) mod tests {
    use {
        super::*,
        crate::levels::{link::model::tests::ends, report::tests::rows},
    };

    pub(crate) fn question() -> LinkQuestion {
        let link = Link { rtt_seconds: 0.06, nodes: 3, ..Link::new(1e9) };
        LinkQuestion { link, ends: ends(), egress_price_per_gb: Some(0.09), any_format: false, is_assumed: false }
    }

    pub(crate) fn report() -> LinkReport {
        LinkReport::new(question(), 100_000_000_000, &rows())
    }

    #[test]
    fn rows_add_up() {
        let report = report();
        assert_eq!(report.rows.iter().map(|row| row.load.level).collect::<Vec<_>>(), [0, -1, 1, 2, 3, 4]);
        for row in &report.rows {
            let sum = row.archive_seconds + row.send_seconds + row.decode_seconds + row.place_seconds;
            assert!((row.store_and_forward_seconds - sum).abs() < 1e-9);
            assert_eq!(row.egress_bytes, row.load.archive_bytes * 3);
            let price = row.egress_price.expect("asked for");
            assert!((price - row.egress_bytes as f64 * 0.09e-9).abs() < 1e-6);
            assert_eq!(report.seconds_at(row, Way::Streaming, 1e9), row.streaming_seconds);
        }
    }

    #[test]
    fn a_measured_plain_row_is_the_uncompressed_one() {
        let mut plain = rows()[0].clone();
        plain.codec = "none".to_string();
        plain.level = 0;
        plain.output_bytes = plain.input_bytes;
        let report = LinkReport::new(question(), 1_000_000_000, &[rows()[0].clone(), plain]);
        assert_eq!(report.rows.len(), 2);
        assert!(report.rows[0].load.is_uncompressed() && report.rows[0].archive_seconds > 2.0);
    }

    #[test]
    fn curves_fall() {
        let curves = report().curves(Way::StoreAndForward, 1e6, 1e11, 51);
        assert_eq!((curves.len(), curves[0].points.len(), curves[0].name.as_str()), (6, 51, "uncompressed"));
        for curve in curves {
            assert!((curve.points[50].0 / 1e11 - 1.0).abs() < 1e-9);
            assert!(curve.points.windows(2).all(|pair| pair[0].1 >= pair[1].1));
        }
    }
}
