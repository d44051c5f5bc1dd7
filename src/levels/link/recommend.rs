//! Recommends a level for a link.
//!
//! Levels with which a node starts within 1% of the shortest time are tied, because no measurement
//! distinguishes them. Of these, the level with the smallest archive is chosen, because it sends the fewest
//! bytes. By default, only zstd is considered, because every client reads it. On request, the other formats
//! that `archive` writes, lz4 and plain tar, are considered too.

#![allow(missing_docs, reason = "the names suffice")]

use serde::Serialize;
use slotpress_read::excluded_client;

use crate::levels::codec::FrameCodec;
use crate::levels::link::{LinkRow, TransferMode};
use crate::levels::recommend::{archive_flags, archive_format};

/// Times that exceed the shortest time by at most this share are tied with it.
const TIE_SHARE: f64 = 0.01;

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename = "link_recommendation")]
pub struct LinkRecommendation {
    pub mode: TransferMode,
    /// Codec and level; `none` means uncompressed.
    #[serde(flatten)]
    pub codec: FrameCodec,
    pub flag: String,
    pub seconds: f64,
}

/// Chooses a row; `None` if there are none. With `any_format`, formats that not every client reads
/// are considered too.
pub fn choose_level(rows: &[LinkRow], mode: TransferMode, any_format: bool) -> Option<LinkRecommendation> {
    let is_offered = |row: &&LinkRow| {
        archive_format(row.codec).is_some_and(|format| any_format || excluded_client(format).is_none())
    };
    let candidates = || rows.iter().filter(is_offered);
    let seconds = |row: &LinkRow| row.total_seconds(mode);
    let soonest = candidates().map(seconds).min_by(f64::total_cmp)?;
    let choice = candidates()
        .filter(|row| seconds(row) <= soonest * (1.0 + TIE_SHARE))
        .min_by(|a, b| a.archive_bytes.cmp(&b.archive_bytes).then(seconds(a).total_cmp(&seconds(b))))?;
    let codec = choice.codec;
    Some(LinkRecommendation { mode, codec, flag: archive_flags(codec), seconds: seconds(choice) })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::levels::link::LinkReport;
    use crate::levels::link::network::Link;
    use crate::levels::link::tests::options_for;

    fn report_for(bandwidth: f64, rtt_seconds: f64, any_format: bool) -> LinkReport {
        let link = Link { rtt_seconds, nodes: 3, ..Link::new(bandwidth) };
        let options = crate::levels::link::LinkOptions { any_format, ..options_for(link) };
        LinkReport::new(options, 100_000_000_000, &crate::levels::tests::rows())
    }

    #[test]
    fn slower_links_get_more_compression() {
        let choice = |bandwidth, mode| {
            let recommendations = report_for(bandwidth, 0.0, true).recommendations;
            recommendations.into_iter().find(|choice| choice.mode == mode).expect("one per mode").flag
        };
        assert_eq!(choice(1e6, TransferMode::Streaming), "--zstd-level 4");
        assert_eq!(choice(1e6, TransferMode::StoreAndForward), "--zstd-level 4");
        assert_eq!(choice(1e9, TransferMode::StoreAndForward), "--zstd-level -1");
        assert_eq!(choice(1e12, TransferMode::StoreAndForward), "--format none");
    }

    #[test]
    fn formats_that_a_client_does_not_read_are_recommended_only_on_request() {
        let choices = report_for(1e12, 0.0, false).recommendations;
        assert!(!choices.is_empty(), "{choices:?}");
        assert!(choices.iter().all(|choice| choice.codec.name == "zstd"), "{choices:?}");
        let any_format = report_for(1e12, 0.0, true).recommendations;
        assert!(any_format.iter().any(|choice| choice.flag == "--format none"), "{any_format:?}");
    }

    proptest! {
        #[test]
        fn the_recommended_level_is_among_the_soonest(log_bandwidth in 3.0f64..13.0, rtt_seconds in 0.0f64..1.0) {
            let report = report_for(10f64.powf(log_bandwidth), rtt_seconds, true);
            for choice in &report.recommendations {
                for row in &report.rows {
                    prop_assert!(choice.seconds <= row.total_seconds(choice.mode) * 1.0101);
                }
            }
        }
    }
}
