//! Finds the bandwidth at which one level overtakes its neighbour.
//!
//! Of two levels of a codec, the heavier one takes more time and makes less to send, so the lead
//! changes once at most: it is found between the slowest and the fastest link by bisection. What
//! else limits the link (delay, window) is included: where a window limits a stream, no bandwidth
//! helps.

#![allow(missing_docs, reason = "the names say it")]

use serde::Serialize;

use crate::levels::link::{LinkQuestion, LinkRow, TransferMode};

/// The slowest and the fastest link, as decimal logarithms of bit/s.
const LOG_BANDWIDTHS: (f64, f64) = (3.0, 13.0);

/// Bisection steps: the result is far more exact than what is shown.
const HALVINGS: usize = 40;

/// Relative difference below which times count as equal: no measurement distinguishes them.
const SAME: f64 = 1e-3;

/// The bandwidths, in bit/s, at which a level starts a node sooner.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "lowercase", tag = "heavier_is_sooner", content = "bits_per_second")]
pub enum SoonerAt {
    Never,
    Always,
    Below(f64),
    Above(f64),
}

/// Two neighbouring levels, and the bandwidth at which one overtakes the other.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename = "link_break_even")]
pub struct BreakEven {
    pub way: TransferMode,
    pub lighter_codec: &'static str,
    pub lighter_level: i32,
    pub heavier_codec: &'static str,
    pub heavier_level: i32,
    #[serde(flatten)]
    pub heavier_is_sooner: SoonerAt,
}

/// Compares each row with the row before it of the same codec, and the first row of each codec with
/// the uncompressed one.
pub fn break_evens(rows: &[LinkRow], question: &LinkQuestion) -> Vec<BreakEven> {
    let mut found = Vec::new();
    for way in TransferMode::ALL {
        for pair in rows.windows(2) {
            let [before, row] = [&pair[0], &pair[1]];
            let is_same_codec = before.codec.name == row.codec.name;
            let lighter = if is_same_codec { before } else { &rows[0] };
            found.push(break_even(lighter, row, way, question));
        }
    }
    found
}

fn break_even(lighter: &LinkRow, heavier: &LinkRow, way: TransferMode, question: &LinkQuestion) -> BreakEven {
    // Positive if the heavier level is sooner; relative to the shorter time.
    let lead = |log_bandwidth: f64| {
        let seconds = |load: &LinkRow| question.seconds_at(load, way, 10f64.powf(log_bandwidth));
        let light = seconds(lighter);
        let heavy = seconds(heavier);
        (light - heavy) / light.min(heavy).max(f64::MIN_POSITIVE)
    };
    BreakEven {
        way,
        lighter_codec: lighter.codec.name,
        lighter_level: lighter.codec.level,
        heavier_codec: heavier.codec.name,
        heavier_level: heavier.codec.level,
        heavier_is_sooner: sooner_at(&lead),
    }
}

/// Finds where the heavier level is sooner. `lead` tells how far it leads at a bandwidth, given as
/// decimal logarithm.
fn sooner_at(lead: &dyn Fn(f64) -> f64) -> SoonerAt {
    let (mut low, mut high) = LOG_BANDWIDTHS;
    let at_low = lead(low);
    let at_high = lead(high);
    let is_below = match (at_low > SAME, at_high > SAME) {
        (false, false) => return SoonerAt::Never,
        (true, true) => return SoonerAt::Always,
        (is_below, _) => is_below,
    };
    // Where the lighter level never leads, the heavier one is sooner until they count as equal.
    let least = if at_low.min(at_high) < -SAME { 0.0 } else { SAME };
    for _ in 0..HALVINGS {
        let middle = (low + high) / 2.0;
        if (lead(middle) > least) == is_below { low = middle } else { high = middle }
    }
    let bits = 10f64.powf(high);
    if is_below { SoonerAt::Below(bits) } else { SoonerAt::Above(bits) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::levels::codec::FrameCodec;
    use crate::levels::link::network::Link;
    use crate::levels::link::network::tests::any_link;
    use crate::levels::link::tests::{any_load, question};

    fn load(level: i32, archive_bytes: u64, compress_seconds: f64) -> LinkRow {
        let tar_bytes = 100_000_000_000;
        let codec = FrameCodec::zstd(level);
        LinkRow { codec, tar_bytes, archive_bytes, compress_seconds, decompress_seconds: 50.0, ..LinkRow::default() }
    }

    /// Store and forward: 100 s more for compressing and 2 GB less to send balance at 20 MB/s of
    /// payload, or 170 Mbit/s.
    #[test]
    fn break_evens_match_calculations_by_hand() {
        let light = load(1, 30_000_000_000, 100.0);
        let heavy = load(3, 28_000_000_000, 200.0);
        let found = break_even(&light, &heavy, TransferMode::StoreAndForward, &question(Link::new(1e9)));
        let SoonerAt::Below(bandwidth) = found.heavier_is_sooner else { panic!("{found:?}") };
        assert!((bandwidth / (20e6 * 8.0 * 1538.0 / 1448.0) - 1.0).abs() < 0.02, "{bandwidth}");
        // Streaming: level 3 compresses 140 MB/s, so the crossing is at a rate of the link above
        // that.
        let found = break_even(&light, &heavy, TransferMode::Streaming, &question(Link::new(1e9)));
        let SoonerAt::Below(bandwidth) = found.heavier_is_sooner else { panic!("{found:?}") };
        assert!((1.10e9..1.30e9).contains(&bandwidth), "{bandwidth}");
    }

    #[test]
    fn levels_without_a_crossing_have_no_bandwidth() {
        let light = load(1, 30_000_000_000, 100.0);
        let heavy = load(3, 31_000_000_000, 200.0);
        let found = break_even(&light, &heavy, TransferMode::StoreAndForward, &question(Link::new(1e9)));
        assert_eq!(found.heavier_is_sooner, SoonerAt::Never);
        let found = break_even(&heavy, &light, TransferMode::StoreAndForward, &question(Link::new(1e9)));
        assert_eq!(found.heavier_is_sooner, SoonerAt::Always);
        let found =
            break_even(&light, &load(2, 30_000_000_000, 100.0), TransferMode::Streaming, &question(Link::new(1e9)));
        assert_eq!(found.heavier_is_sooner, SoonerAt::Never);
        // A window of 2.7 MiB per second is slower than any codec: level 1 is not better at any
        // bandwidth.
        let far = question(Link { rtt_seconds: 1.0, ..Link::new(1e9) });
        let found = break_even(&light, &load(3, 28_000_000_000, 200.0), TransferMode::StoreAndForward, &far);
        assert_eq!(found.heavier_is_sooner, SoonerAt::Always);
    }

    proptest! {
        #[test]
        fn the_lead_changes_there(light in any_load(), heavy in any_load(), link in any_link()) {
            let heavy = LinkRow { tar_bytes: light.tar_bytes, ..heavy };
            let question = question(link);
            for way in TransferMode::ALL {
                let found = break_even(&light, &heavy, way, &question).heavier_is_sooner;
                let lead = |bits: f64| {
                    let seconds = |load: &LinkRow| question.seconds_at(load, way, bits);
                    (seconds(&light) - seconds(&heavy)) / seconds(&light).min(seconds(&heavy))
                };
                let ends = (lead(1e3) > SAME, lead(1e13) > SAME);
                let expected = match found {
                    SoonerAt::Never => (false, false),
                    SoonerAt::Always => (true, true),
                    SoonerAt::Below(_) => (true, false),
                    SoonerAt::Above(_) => (false, true),
                };
                prop_assert_eq!(ends, expected);
                if let SoonerAt::Below(bits) | SoonerAt::Above(bits) = found {
                    let below = lead(bits * 0.9999);
                    let above = lead(bits * 1.0001);
                    let (sooner, later) = if ends.0 { (below, above) } else { (above, below) };
                    prop_assert!(sooner > -1e-4 && later < SAME + 1e-4, "{} {}", sooner, later);
                }
            }
        }
    }
}
