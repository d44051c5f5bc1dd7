//! Levels side by side over one link: time to a node that can be started, bytes and price of egress.

use {
    crate::levels::{
        LevelRow, REFERENCE_CODEC,
        link::{
            break_even::{BreakEven, break_evens},
            model::{Load, Way},
            network::Limit,
            question::{LinkQuestion, LinkRow},
            recommend::{LinkRecommendation, recommend},
        },
    },
    serde::Serialize,
};

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

#[cfg(test)]
pub(crate) mod tests {
    use {
        super::*,
        crate::levels::{
            link::{model::tests::ends, network::Link},
            report::tests::rows,
        },
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
