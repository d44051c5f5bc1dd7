//! Levels side by side over one link: time to a node that can be started, bytes and price of egress.

use serde::Serialize;

use crate::levels::link::break_even::{BreakEven, break_evens};
use crate::levels::link::model::{Load, Way};
use crate::levels::link::network::Limit;
use crate::levels::link::question::{LinkQuestion, LinkRow};
use crate::levels::link::recommend::{LinkRecommendation, recommend};
use crate::levels::{LevelRow, REFERENCE_CODEC};

/// The answers for a link and a ledger. Rows, break-evens and recommendations are reports of their own.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LinkReport {
    /// The question.
    #[serde(flatten)]
    pub question: LinkQuestion,
    /// Bytes of tar of the whole input.
    pub tar_bytes: u64,
    /// Rate of each node, in bytes of payload per second.
    pub node_bytes_per_second: f64,
    /// The limit of that rate.
    pub limit: Limit,
    /// Uncompressed, then the levels in ascending order, codec by codec.
    #[serde(skip)]
    pub rows: Vec<LinkRow>,
    /// Between neighbouring rows, for each way.
    #[serde(skip)]
    pub break_evens: Vec<BreakEven>,
    /// The recommendation for each way.
    #[serde(skip)]
    pub recommendations: Vec<LinkRecommendation>,
}

impl LinkReport {
    /// The report of measured levels, of any codec. A row of the codec `none` is uncompressed; if it was not measured,
    /// it is computed.
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
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::levels::link::model::tests::ends;
    use crate::levels::link::network::Link;
    use crate::levels::report::tests::rows;

    pub(crate) fn question() -> LinkQuestion {
        let link = Link { rtt_seconds: 0.06, nodes: 3, ..Link::new(1e9) };
        LinkQuestion { link, ends: ends(), egress_price_per_gb: Some(0.09), any_format: false }
    }

    pub(crate) fn report() -> LinkReport {
        LinkReport::new(question(), 100_000_000_000, &rows())
    }

    #[test]
    fn rows_add_up() {
        let report = report();
        assert_eq!(report.rows.iter().map(|row| row.load.level).collect::<Vec<_>>(), [0, -1, 1, 2, 3, 4]);
        for row in &report.rows {
            assert!((row.times.total(Way::StoreAndForward) - row.times.seconds.iter().sum::<f64>()).abs() < 1e-9);
            assert_eq!(row.egress_bytes, row.load.archive_bytes * 3);
            let price = row.egress_price.expect("asked for");
            assert!((price - row.egress_bytes as f64 * 0.09e-9).abs() < 1e-6);
            assert_eq!(report.question.seconds_at(&row.load, Way::Streaming, 1e9), row.times.streaming_seconds);
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
        assert!(report.rows[0].load.is_uncompressed() && report.rows[0].times.seconds[0] > 2.0);
    }
}
