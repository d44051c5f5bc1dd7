//! Computes for each level the time from a ledger here to a ledger on another node, over a network
//! link.
//!
//! [`network`] computes the rate of a link. This module computes the stages until a node can be
//! started, and the report that compares levels; [`break_even`] finds the bandwidth at which one
//! level overtakes another, and [`recommend`] chooses. All of them compute from rows of measured levels,
//! without I/O. `docs/levels.md` describes the model and its validation.
//!
//! Store and forward runs the stages one after another: the time is their sum. Streaming runs
//! them at once: the time is that of the slowest stage, plus fill and drain, which is a frame's
//! time in each other stage. The stages buffer next to nothing, so the slow start of the link
//! delays all of them: its two round trips, and its ramp up to the rate of the slowest stage,
//! are always part of the time.
//!
//! The validator's own start (reading accounts, replaying, catching up) takes the same time at
//! every level and is not included.
//!
//! Sender and receiver are two machines, each with as many cores as the levels were measured on, so
//! sending and receiving stages do not compete for cores.

#![allow(missing_docs, reason = "the names suffice")]

pub mod break_even;
pub mod network;
pub mod recommend;

use serde::Serialize;

use self::break_even::{BreakEven, find_break_evens};
use self::network::Link;
use self::recommend::{LinkRecommendation, choose_level};
use crate::levels::LevelRow;
use crate::levels::codec::{FrameCodec, REFERENCE_CODEC};
use crate::levels::recommend::is_uncompressed;

const UNCOMPRESSED: &str = "none";

/// Default rate of reading a ledger: that of a validator's NVMe disk, with a reserve.
pub const READ_BYTES_PER_SECOND: f64 = 2e9;

/// Default rate of writing and syncing storages: half of the reading rate, because there are many
/// files.
pub const PLACE_BYTES_PER_SECOND: f64 = 1e9;

/// Options of [`LinkReport`]: the link, the machines at its ends, the price of egress.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LinkOptions {
    #[serde(flatten)]
    pub link: Link,
    pub read_bytes_per_second: f64,
    pub place_bytes_per_second: f64,
    pub frame_size_bytes: u64,
    pub threads: usize,
    /// Price per GB (10^9 bytes) of archive sent, in any currency.
    pub egress_price_per_gb: Option<f64>,
    #[serde(skip)]
    pub any_format: bool,
}

impl LinkOptions {
    pub fn egress_bytes(&self, row: &LinkRow) -> u64 {
        row.archive_bytes.saturating_mul(u64::from(self.link.nodes))
    }

    pub fn egress_price(&self, row: &LinkRow) -> Option<f64> {
        Some(self.egress_bytes(row) as f64 / 1e9 * self.egress_price_per_gb?)
    }

    /// Returns the time until a node can be started, in seconds, with this bandwidth instead of the link's.
    pub fn seconds_at(&self, row: &LinkRow, mode: TransferMode, bandwidth_bits_per_second: f64) -> f64 {
        let link = Link { bandwidth_bits_per_second, ..self.link };
        Self { link, ..*self }.compute_times(*row).total_seconds(mode)
    }

    /// Scales the measurements of a level to the whole ledger, and computes the times of its stages.
    fn make_row(&self, measured: &LevelRow, tar_bytes: u64) -> LinkRow {
        let scale = tar_bytes as f64 / (measured.input_bytes as f64).max(1.0);
        self.compute_times(LinkRow {
            codec: measured.codec,
            tar_bytes,
            archive_bytes: measured.estimated_output_bytes.unwrap_or((measured.output_bytes as f64 * scale) as u64),
            size_error_percent: measured.size_error_percent,
            compress_seconds: measured.compress.median * scale,
            decompress_seconds: measured.decompress.median * scale,
            ..LinkRow::default()
        })
    }

    /// Returns the row with the times of its stages and of streaming, computed from its other fields.
    fn compute_times(&self, row: LinkRow) -> LinkRow {
        let link = &self.link;
        let tar_bytes = row.tar_bytes as f64;
        let archive_bytes = row.archive_bytes as f64;
        let frames = (tar_bytes / self.frame_size_bytes.max(1) as f64).max(1.0);
        let workers = (self.threads.max(1) as f64).min(frames);
        // Workers read ahead while others compress: the slower of the two determines the time.
        let archive = row.compress_seconds.max(tar_bytes / self.read_bytes_per_second);
        let send = link.seconds_for(archive_bytes);
        let decode = row.decompress_seconds;
        let place = tar_bytes / self.place_bytes_per_second;
        // One worker compresses a frame, so the first frame takes as long as `workers` frames take on
        // average.
        let send_fill = archive_bytes / link.bytes_per_second() / frames;
        let archive_fill = archive * workers / frames;
        let decode_fill = decode * workers / frames;
        let place_fill = place / frames;
        let fill = archive_fill + send_fill + decode_fill + place_fill;
        // The maximum over the stages: a stage with a long fill may decide even if another one is a
        // little slower.
        let mut streaming_seconds = send + fill - send_fill;
        let stages = [(archive, archive_fill), (decode, decode_fill), (place, place_fill)];
        for (seconds, stage_fill) in stages {
            if seconds * link.bytes_per_second() > archive_bytes {
                let transfer = link.seconds_at_rate(archive_bytes, archive_bytes / seconds);
                streaming_seconds = streaming_seconds.max(transfer + fill - stage_fill);
            }
        }
        LinkRow { stages: StageSeconds { archive, send, decode, place }, streaming_seconds, ..row }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StageSeconds {
    pub archive: f64,
    pub send: f64,
    pub decode: f64,
    pub place: f64,
}

impl StageSeconds {
    fn to_array(self) -> [f64; 4] {
        [self.archive, self.send, self.decode, self.place]
    }
}

/// Timing of the stages: all at once, or one after another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TransferMode {
    Streaming,
    StoreAndForward,
}

impl TransferMode {
    pub const ALL: [Self; 2] = [Self::Streaming, Self::StoreAndForward];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Streaming => "streaming",
            Self::StoreAndForward => "store and forward",
        }
    }
}

/// A level: its measurements, scaled to the whole ledger, and the times of its stages.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LinkRow {
    pub codec: FrameCodec,
    pub tar_bytes: u64,
    pub archive_bytes: u64,
    pub size_error_percent: Option<f64>,
    pub compress_seconds: f64,
    pub decompress_seconds: f64,
    pub stages: StageSeconds,
    pub streaming_seconds: f64,
}

impl LinkRow {
    /// Returns the name in words: `zstd 3`, `lz4`, `uncompressed`.
    pub fn name(&self) -> String {
        if self.codec.name == UNCOMPRESSED { "uncompressed".to_string() } else { self.codec.to_string() }
    }

    /// Returns the stage that takes longest. If several take equally long, returns the first of them.
    pub fn slowest_stage(&self) -> &'static str {
        let names = ["archive", "send", "decode", "place"];
        let longest = self.stages.to_array().into_iter().fold(0.0, f64::max);
        let mut stages = names.into_iter().zip(self.stages.to_array());
        stages.find(|(_, seconds)| *seconds >= longest).map_or("", |(name, _)| name)
    }

    /// Returns the seconds from the start until a node has all storages in place.
    pub fn total_seconds(&self, mode: TransferMode) -> f64 {
        match mode {
            TransferMode::StoreAndForward => self.stages.to_array().iter().sum(),
            TransferMode::Streaming => self.streaming_seconds,
        }
    }
}

/// Results for a link and a ledger. Rows, break-evens and recommendations are serialized as
/// separate reports.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LinkReport {
    #[serde(flatten)]
    pub options: LinkOptions,
    pub tar_bytes: u64,
    pub node_bytes_per_second: f64,
    /// Limit on the rate of a node: `bandwidth` or `window`.
    pub limit: &'static str,
    #[serde(skip)]
    pub rows: Vec<LinkRow>,
    #[serde(skip)]
    pub break_evens: Vec<BreakEven>,
    #[serde(skip)]
    pub recommendations: Vec<LinkRecommendation>,
}

impl LinkReport {
    /// Builds the report from measured levels of any codec. If the codec `none` was not measured,
    /// the uncompressed row is computed.
    pub fn new(options: LinkOptions, tar_bytes: u64, measured: &[LevelRow]) -> Self {
        let mut plain = uncompressed_row(tar_bytes);
        let mut rows = Vec::new();
        for row in measured {
            if is_uncompressed(row) {
                plain = row.clone();
            } else {
                rows.push(options.make_row(row, tar_bytes));
            }
        }
        // zstd comes first, as the usual choice.
        rows.sort_by_key(|row: &LinkRow| {
            let FrameCodec { name, level } = row.codec;
            (name != REFERENCE_CODEC, name, level)
        });
        rows.insert(0, options.make_row(&plain, tar_bytes));
        let choose_for = |mode| choose_level(&rows, mode, options.any_format);
        let recommendations = TransferMode::ALL.into_iter().filter_map(choose_for).collect();
        Self {
            tar_bytes,
            node_bytes_per_second: options.link.bytes_per_second(),
            limit: if options.link.is_limited_by_window() { "window" } else { "bandwidth" },
            break_evens: find_break_evens(&rows, &options),
            recommendations,
            rows,
            options,
        }
    }
}

/// Returns the row of a plain tar, whose times depend only on the disks and the link.
fn uncompressed_row(bytes: u64) -> LevelRow {
    let codec = FrameCodec { name: UNCOMPRESSED, level: 0 };
    LevelRow { codec, input_bytes: bytes, output_bytes: bytes, ..LevelRow::default() }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::levels::link::network::tests::any_link;
    use crate::levels::tests::{row, rows};

    pub(crate) fn options_for(link: Link) -> LinkOptions {
        LinkOptions {
            link,
            read_bytes_per_second: READ_BYTES_PER_SECOND,
            place_bytes_per_second: PLACE_BYTES_PER_SECOND,
            frame_size_bytes: 8 << 20,
            threads: 2,
            egress_price_per_gb: Some(0.09),
            any_format: false,
        }
    }

    fn options_for_three_nodes() -> LinkOptions {
        options_for(Link { rtt_seconds: 0.06, nodes: 3, ..Link::new(1e9) })
    }

    #[test]
    fn a_sample_is_scaled_to_the_whole_ledger() {
        let options = options_for_three_nodes();
        let unsampled = options.make_row(&row(1), 1_000_000_000);
        assert_eq!((unsampled.archive_bytes, unsampled.compress_seconds), (289_000_000, row(1).compress.median));
        let mut sampled = row(1);
        sampled.estimated_output_bytes = Some(2_890_000_001);
        sampled.size_error_percent = Some(1.2);
        let scaled = options.make_row(&sampled, 10_000_000_000);
        assert_eq!((scaled.archive_bytes, scaled.size_error_percent), (2_890_000_001, Some(1.2)));
        assert_eq!(scaled.compress_seconds, row(1).compress.median * 10.0);
    }

    /// Calculated by hand: 1 GB is compressed at level 1 in 2.1 s; 289 MB over 100 Mbit/s (11.77
    /// MB/s of payload) take 24.55 s, then 0.6 s and 1 s.
    #[test]
    fn times_match_calculations_by_hand() {
        let times = options_for(Link::new(1e8)).make_row(&row(1), 1_000_000_000);
        let rounded = times.stages.to_array().map(|seconds| (seconds * 100.0).round() / 100.0);
        assert_eq!(rounded, [2.1, 24.56, 0.6, 1.0]);
        assert_eq!(times.slowest_stage(), "send");
        assert!((times.total_seconds(TransferMode::StoreAndForward) - 28.26).abs() < 0.01);
        // The other stages add their time for one of 119.2 frames, twice that where two workers
        // share the frames: 2 x 2.1 / 119.2 + 2 x 0.6 / 119.2 + 1 / 119.2 = 0.05 s.
        assert!(
            (times.total_seconds(TransferMode::Streaming) - 24.61).abs() < 0.01,
            "{}",
            times.total_seconds(TransferMode::Streaming)
        );
        // If archiving is the slowest stage, the slow start adds to it.
        let slow = LinkRow { compress_seconds: 100.0, ..times };
        let far = Link { rtt_seconds: 0.06, ..Link::new(1e9) };
        let times = options_for(far).compute_times(slow);
        // The slow start adds 2 round trips, then 3.58 round trips in which the bytes in flight double from
        // 14 KB to 173 KB, which 2.89 MB/s need. The time for the bytes that are sent meanwhile is
        // subtracted. The frames of the other stages add up to 0.08 s.
        let ramp = 0.06 * (2.0 + 3.582 - (1.0 - 14_480.0 / 173_400.0) / std::f64::consts::LN_2);
        let streaming = times.total_seconds(TransferMode::Streaming) - 100.0;
        assert!((ramp..ramp + 0.08).contains(&streaming), "{streaming} {ramp}");
        let plain = options_for(Link::new(1e11)).make_row(&uncompressed_row(1_000_000_000), 1_000_000_000);
        assert_eq!((plain.stages.archive, plain.slowest_stage()), (0.5, "place"));
    }

    prop_compose! {
        pub(crate) fn any_row()(
            tar_bytes in 1u64..1 << 44,
            ratio in 0.01f64..1.1,
            compress in 0.0f64..1e5,
            decompress in 0.0f64..1e4,
            level in -1000i32..=22,
        ) -> LinkRow {
            LinkRow {
                codec: FrameCodec::zstd(level),
                tar_bytes,
                archive_bytes: (tar_bytes as f64 * ratio) as u64,
                size_error_percent: None,
                compress_seconds: compress,
                decompress_seconds: decompress,
                ..LinkRow::default()
            }
        }
    }

    proptest! {
        #[test]
        fn streaming_lies_between_the_slowest_stage_and_the_sum(
            row in any_row(), link in any_link(), threads in 1usize..200, frame in 16u32..26,
        ) {
            let options = LinkOptions { threads, frame_size_bytes: 1 << frame, ..options_for(link) };
            let times = options.compute_times(row);
            let slowest = times.stages.to_array().iter().copied().fold(0.0, f64::max);
            let streaming = times.total_seconds(TransferMode::Streaming);
            let sum = times.total_seconds(TransferMode::StoreAndForward);
            prop_assert!(streaming.is_finite() && streaming >= slowest, "{:?}", times);
            prop_assert!(streaming <= sum * (1.0 + 1e-9), "{:?}", times);
        }

        #[test]
        fn a_wider_link_never_takes_longer(row in any_row(), link in any_link(), factor in 1.0f64..100.0) {
            let wider = Link { bandwidth_bits_per_second: link.bandwidth_bits_per_second * factor, ..link };
            for mode in TransferMode::ALL {
                let seconds = |link: &Link| options_for(*link).compute_times(row).total_seconds(mode);
                prop_assert!(seconds(&wider) <= seconds(&link) * (1.0 + 1e-9), "{:?}", mode);
            }
        }

        #[test]
        fn less_work_never_takes_longer(row in any_row(), link in any_link()) {
            let less = LinkRow {
                archive_bytes: row.archive_bytes / 2,
                compress_seconds: row.compress_seconds / 2.0,
                ..row
            };
            for mode in TransferMode::ALL {
                let seconds = |row: &LinkRow| options_for(link).compute_times(*row).total_seconds(mode);
                prop_assert!(seconds(&less) <= seconds(&row) * (1.0 + 1e-9), "{:?}", mode);
            }
        }
    }

    #[test]
    fn rows_add_up() {
        let report = LinkReport::new(options_for_three_nodes(), 100_000_000_000, &rows());
        assert_eq!(report.rows.iter().map(|row| row.codec.level).collect::<Vec<_>>(), [0, -1, 1, 2, 3, 4]);
        for row in &report.rows {
            assert!(
                (row.total_seconds(TransferMode::StoreAndForward) - row.stages.to_array().iter().sum::<f64>()).abs()
                    < 1e-9
            );
            let price = report.options.egress_price(row).expect("asked for");
            assert!((price - row.archive_bytes as f64 * 3.0 * 0.09e-9).abs() < 1e-6);
            assert_eq!(report.options.seconds_at(row, TransferMode::Streaming, 1e9), row.streaming_seconds);
        }
    }

    #[test]
    fn a_measured_plain_row_is_the_uncompressed_one() {
        let mut plain = rows()[0].clone();
        plain.codec = FrameCodec { name: "none", level: 0 };
        plain.output_bytes = plain.input_bytes;
        let report = LinkReport::new(options_for_three_nodes(), 1_000_000_000, &[rows()[0].clone(), plain]);
        assert_eq!(report.rows.len(), 2);
        assert!(report.rows[0].name() == "uncompressed");
        assert!(report.rows[0].stages.archive > 2.0);
    }
}
