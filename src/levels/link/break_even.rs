//! Finds the bandwidth at which one level overtakes its neighbor.
//!
//! Of two levels, the heavier one compresses longer and leaves less to send, so the lead changes at most
//! once. Bisection between the slowest and the fastest link finds the change. The link's delay and window
//! are included: if a window limits a stream, more bandwidth does not help.

#![allow(missing_docs, reason = "the names suffice")]

use serde::Serialize;

use crate::levels::link::{LinkOptions, LinkRow, TransferMode};

/// The slowest and the fastest link, as decimal logarithms of bit/s.
const LOG_BANDWIDTH_MIN: f64 = 3.0;
const LOG_BANDWIDTH_MAX: f64 = 13.0;

/// Number of bisection steps: the result is far more exact than the printed value.
const BISECTION_STEPS: usize = 40;

/// Lead, relative to the shorter time, up to which two times are a tie: no measurement distinguishes them.
const TIE_LEAD: f64 = 1e-3;

/// The bandwidths, in bit/s, at which a level starts a node sooner.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "lowercase", tag = "heavier_is_sooner", content = "bits_per_second")]
pub enum BandwidthRange {
    Never,
    Always,
    Below(f64),
    Above(f64),
}

/// Two neighboring levels, and the bandwidth at which one overtakes the other.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename = "link_break_even")]
pub struct BreakEven {
    pub mode: TransferMode,
    pub lighter_codec: &'static str,
    pub lighter_level: i32,
    pub heavier_codec: &'static str,
    pub heavier_level: i32,
    #[serde(flatten)]
    pub heavier_is_sooner: BandwidthRange,
}

/// Compares each row with the previous row of the same codec. Compares the first row of each codec with the
/// uncompressed row, which must come first.
pub fn find_break_evens(rows: &[LinkRow], options: &LinkOptions) -> Vec<BreakEven> {
    let mut break_evens = Vec::new();
    for mode in TransferMode::ALL {
        for pair in rows.windows(2) {
            let [before, row] = [&pair[0], &pair[1]];
            let is_same_codec = before.codec.name == row.codec.name;
            let lighter = if is_same_codec { before } else { &rows[0] };
            break_evens.push(find_break_even(lighter, row, mode, options));
        }
    }
    break_evens
}

fn find_break_even(lighter: &LinkRow, heavier: &LinkRow, mode: TransferMode, options: &LinkOptions) -> BreakEven {
    // The lead of the heavier level in time, relative to the shorter time.
    let lead = |log_bandwidth: f64| {
        let seconds = |row: &LinkRow| options.seconds_at(row, mode, 10f64.powf(log_bandwidth));
        let lighter_seconds = seconds(lighter);
        let heavier_seconds = seconds(heavier);
        (lighter_seconds - heavier_seconds) / lighter_seconds.min(heavier_seconds).max(f64::MIN_POSITIVE)
    };
    BreakEven {
        mode,
        lighter_codec: lighter.codec.name,
        lighter_level: lighter.codec.level,
        heavier_codec: heavier.codec.name,
        heavier_level: heavier.codec.level,
        heavier_is_sooner: find_crossing(&lead),
    }
}

/// Finds the bandwidths at which the heavier level starts a node sooner. `lead` returns its lead at a
/// bandwidth, which is given as a decimal logarithm.
fn find_crossing(lead: &dyn Fn(f64) -> f64) -> BandwidthRange {
    let mut low = LOG_BANDWIDTH_MIN;
    let mut high = LOG_BANDWIDTH_MAX;
    let at_low = lead(low);
    let at_high = lead(high);
    let is_below = match (at_low > TIE_LEAD, at_high > TIE_LEAD) {
        (false, false) => return BandwidthRange::Never,
        (true, true) => return BandwidthRange::Always,
        (is_below, _) => is_below,
    };
    // If the lighter level is nowhere clearly faster, find where the lead shrinks to a tie; otherwise,
    // find where the lead is 0.
    let lead_min = if at_low.min(at_high) < -TIE_LEAD { 0.0 } else { TIE_LEAD };
    for _ in 0..BISECTION_STEPS {
        let middle = (low + high) / 2.0;
        let is_heavier_sooner = lead(middle) > lead_min;
        if is_heavier_sooner == is_below {
            low = middle;
        } else {
            high = middle;
        }
    }
    let bits_per_second = 10f64.powf(high);
    if is_below { BandwidthRange::Below(bits_per_second) } else { BandwidthRange::Above(bits_per_second) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::levels::codec::FrameCodec;
    use crate::levels::link::network::Link;
    use crate::levels::link::network::tests::any_link;
    use crate::levels::link::tests::{any_row, options_for};

    fn row(level: i32, archive_bytes: u64, compress_seconds: f64) -> LinkRow {
        let tar_bytes = 100_000_000_000;
        let codec = FrameCodec::zstd(level);
        LinkRow { codec, tar_bytes, archive_bytes, compress_seconds, decompress_seconds: 50.0, ..LinkRow::default() }
    }

    /// Store and forward: 100 s more for compressing and 2 GB less to send balance at 20 MB/s of
    /// payload, or 170 Mbit/s.
    #[test]
    fn break_evens_match_calculations_by_hand() {
        let light = row(1, 30_000_000_000, 100.0);
        let heavy = row(3, 28_000_000_000, 200.0);
        let break_even = find_break_even(&light, &heavy, TransferMode::StoreAndForward, &options_for(Link::new(1e9)));
        let BandwidthRange::Below(bandwidth) = break_even.heavier_is_sooner else { panic!("{break_even:?}") };
        assert!((bandwidth / (20e6 * 8.0 * 1538.0 / 1448.0) - 1.0).abs() < 0.02, "{bandwidth}");
        // Streaming: level 3 produces 140 MB/s, so the crossing is at a higher rate of the link.
        let break_even = find_break_even(&light, &heavy, TransferMode::Streaming, &options_for(Link::new(1e9)));
        let BandwidthRange::Below(bandwidth) = break_even.heavier_is_sooner else { panic!("{break_even:?}") };
        assert!((1.10e9..1.30e9).contains(&bandwidth), "{bandwidth}");
    }

    #[test]
    fn levels_that_never_cross_have_no_break_even() {
        let light = row(1, 30_000_000_000, 100.0);
        let heavy = row(3, 31_000_000_000, 200.0);
        let break_even = find_break_even(&light, &heavy, TransferMode::StoreAndForward, &options_for(Link::new(1e9)));
        assert_eq!(break_even.heavier_is_sooner, BandwidthRange::Never);
        let break_even = find_break_even(&heavy, &light, TransferMode::StoreAndForward, &options_for(Link::new(1e9)));
        assert_eq!(break_even.heavier_is_sooner, BandwidthRange::Always);
        let break_even = find_break_even(
            &light,
            &row(2, 30_000_000_000, 100.0),
            TransferMode::Streaming,
            &options_for(Link::new(1e9)),
        );
        assert_eq!(break_even.heavier_is_sooner, BandwidthRange::Never);
        // A window of 2.7 MiB per second is slower than any codec, so level 3 is better at every bandwidth.
        let far = options_for(Link { rtt_seconds: 1.0, ..Link::new(1e9) });
        let break_even = find_break_even(&light, &row(3, 28_000_000_000, 200.0), TransferMode::StoreAndForward, &far);
        assert_eq!(break_even.heavier_is_sooner, BandwidthRange::Always);
    }

    proptest! {
        #[test]
        fn the_lead_changes_at_the_break_even(light in any_row(), heavy in any_row(), link in any_link()) {
            let heavy = LinkRow { tar_bytes: light.tar_bytes, ..heavy };
            let options = options_for(link);
            for mode in TransferMode::ALL {
                let heavier_is_sooner = find_break_even(&light, &heavy, mode, &options).heavier_is_sooner;
                let lead = |bits: f64| {
                    let seconds = |row: &LinkRow| options.seconds_at(row, mode, bits);
                    (seconds(&light) - seconds(&heavy)) / seconds(&light).min(seconds(&heavy))
                };
                let ends = (lead(1e3) > TIE_LEAD, lead(1e13) > TIE_LEAD);
                let expected = match heavier_is_sooner {
                    BandwidthRange::Never => (false, false),
                    BandwidthRange::Always => (true, true),
                    BandwidthRange::Below(_) => (true, false),
                    BandwidthRange::Above(_) => (false, true),
                };
                prop_assert_eq!(ends, expected);
                if let BandwidthRange::Below(bits) | BandwidthRange::Above(bits) = heavier_is_sooner {
                    let below = lead(bits * 0.9999);
                    let above = lead(bits * 1.0001);
                    let (sooner, later) = if ends.0 { (below, above) } else { (above, below) };
                    prop_assert!(sooner > -1e-4 && later < TIE_LEAD + 1e-4, "{} {}", sooner, later);
                }
            }
        }
    }
}
