//! Finds the bandwidths at which one level overtakes its neighbour.
//!
//! The times of two levels are compared on a grid of bandwidths from a kilobit to ten terabits per
//! second, and each change of the faster level is refined by bisection. Everything else that limits
//! the link (delay, window) is included: where a window limits a stream, no bandwidth helps.

use serde::Serialize;

use crate::levels::link::{LinkQuestion, LinkRow, Load, TransferMode};

/// Range of bandwidths on the grid, as decimal logarithm of bit/s.
const LOG_BANDWIDTHS: std::ops::Range<f64> = 3.0..13.0;

/// Grid points per factor of ten. A change that reverts within 12 % of bandwidth is not found.
const STEPS_PER_TEN: usize = 20;

/// At a crossing, both levels may take the same time for this many grid points. More points make a
/// range of their own.
const CROSSING_STEPS: usize = 2;

/// Bisection steps: the result is exact to a millionth of a grid step, far more than is shown.
const HALVINGS: usize = 20;

/// Relative difference below which times count as equal: no measurement distinguishes them.
const SAME: f64 = 1e-3;

/// The level with which a node starts sooner.
#[allow(missing_docs, reason = "the names say it")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Sooner {
    Lighter,
    Heavier,
    /// Neither: their times are within 0.1 %.
    Same,
}

/// A range of bandwidths in which the same level starts a node sooner.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Range {
    /// Upper end of the range; `None` for the last one.
    pub up_to_bits_per_second: Option<f64>,
    pub sooner: Sooner,
}

/// Two neighbouring levels, and the bandwidths at which one overtakes the other.
#[allow(missing_docs, reason = "the names say it")]
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename = "link_break_even")]
pub struct BreakEven {
    pub way: TransferMode,
    pub lighter_codec: String,
    pub lighter_level: i32,
    pub heavier_codec: String,
    pub heavier_level: i32,
    pub ranges: Vec<Range>,
}

/// Compares each row with the row before it of the same codec, and the first row of each codec with
/// the uncompressed one.
pub fn break_evens(rows: &[LinkRow], question: &LinkQuestion) -> Vec<BreakEven> {
    let Some(plain) = rows.first() else { return Vec::new() };
    let pairs = || {
        rows.windows(2).map(|pair| {
            let [before, row] = [&pair[0].load, &pair[1].load];
            (if before.codec == row.codec { before } else { &plain.load }, row)
        })
    };
    let of = |way: TransferMode| pairs().map(move |(lighter, heavier)| break_even(lighter, heavier, way, question));
    TransferMode::ALL.into_iter().flat_map(of).collect()
}

fn break_even(lighter: &Load, heavier: &Load, way: TransferMode, question: &LinkQuestion) -> BreakEven {
    // Positive if the heavier level is sooner; relative to the shorter time.
    let lead = |log_bandwidth: f64| {
        let seconds = |load: &Load| question.seconds_at(load, way, 10f64.powf(log_bandwidth));
        let (light, heavy) = (seconds(lighter), seconds(heavier));
        (light - heavy) / light.min(heavy).max(f64::MIN_POSITIVE)
    };
    BreakEven {
        way,
        lighter_codec: lighter.codec.clone(),
        lighter_level: lighter.level,
        heavier_codec: heavier.codec.clone(),
        heavier_level: heavier.level,
        ranges: ranges(&lead),
    }
}

/// Finds the ranges in which the same level is sooner. `lead` tells how far the heavier level leads
/// at a bandwidth, given as decimal logarithm.
fn ranges(lead: &dyn Fn(f64) -> f64) -> Vec<Range> {
    let steps = ((LOG_BANDWIDTHS.end - LOG_BANDWIDTHS.start) * STEPS_PER_TEN as f64) as usize;
    let at = |step: usize| LOG_BANDWIDTHS.start + step as f64 / STEPS_PER_TEN as f64;
    let mut ranges = Vec::new();
    let mut end = |log: f64, sooner| ranges.push(Range { up_to_bits_per_second: Some(10f64.powf(log)), sooner });
    // The last grid point at which one of the two levels was sooner.
    let mut last: Option<(usize, Sooner)> = None;
    for step in 0..=steps {
        let ahead = lead(at(step));
        if ahead.abs() <= SAME {
            continue;
        }
        let sooner = if ahead > 0.0 { Sooner::Heavier } else { Sooner::Lighter };
        match last {
            None if step > 0 => end(at(step), Sooner::Same),
            Some((clear, before)) if step - clear > CROSSING_STEPS => {
                end(at(clear), before);
                end(at(step), Sooner::Same);
            }
            Some((clear, before)) if before != sooner => {
                end(last_where(at(clear), at(step), &|log| (lead(log) > 0.0) != (ahead > 0.0)), before);
            }
            _ => {}
        }
        last = Some((step, sooner));
    }
    let sooner = match last {
        None => Sooner::Same,
        Some((clear, before)) if steps - clear > CROSSING_STEPS => {
            end(at(clear), before);
            Sooner::Same
        }
        Some((_, before)) => before,
    };
    ranges.push(Range { up_to_bits_per_second: None, sooner });
    ranges
}

/// Bisects between `low`, where `holds` is true, and `high`, where it is not.
fn last_where(mut low: f64, mut high: f64, holds: &dyn Fn(f64) -> bool) -> f64 {
    for _ in 0..HALVINGS {
        let middle = (low + high) / 2.0;
        if holds(middle) { low = middle } else { high = middle }
    }
    high
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::levels::link::network::Link;
    use crate::levels::link::network::tests::any_link;
    use crate::levels::link::tests::{any_load, question};

    fn load(level: i32, archive_bytes: u64, compress_seconds: f64) -> Load {
        let tar_bytes = 100_000_000_000;
        let codec = "zstd".to_string();
        let size_error_percent = None;
        Load { codec, level, tar_bytes, archive_bytes, size_error_percent, compress_seconds, decompress_seconds: 50.0 }
    }

    fn heavier_below(found: &BreakEven) -> Option<f64> {
        found.ranges.iter().rev().find(|range| range.sooner == Sooner::Heavier)?.up_to_bits_per_second
    }

    fn all(found: &BreakEven) -> Vec<Sooner> {
        found.ranges.iter().map(|range| range.sooner).collect()
    }

    /// Store and forward: 100 s more for compressing and 2 GB less to send balance at 20 MB/s of
    /// payload, or 170 Mbit/s.
    #[test]
    fn by_hand() {
        let (light, heavy) = (load(1, 30_000_000_000, 100.0), load(3, 28_000_000_000, 200.0));
        let found = break_even(&light, &heavy, TransferMode::StoreAndForward, &question(Link::new(1e9)));
        let bandwidth = heavier_below(&found).expect("a crossing");
        assert!((bandwidth / (20e6 * 8.0 * 1538.0 / 1448.0) - 1.0).abs() < 0.02, "{bandwidth}");
        // Streaming: level 3 compresses 140 MB/s, so the crossing is at a rate of the link above
        // that.
        let found = break_even(&light, &heavy, TransferMode::Streaming, &question(Link::new(1e9)));
        let bandwidth = heavier_below(&found).expect("a crossing");
        assert!((1.10e9..1.30e9).contains(&bandwidth), "{bandwidth}");
    }

    #[test]
    fn no_crossing() {
        let (light, heavy) = (load(1, 30_000_000_000, 100.0), load(3, 31_000_000_000, 200.0));
        let found = break_even(&light, &heavy, TransferMode::StoreAndForward, &question(Link::new(1e9)));
        assert_eq!(all(&found), [Sooner::Lighter]);
        let found = break_even(&heavy, &light, TransferMode::StoreAndForward, &question(Link::new(1e9)));
        assert_eq!(all(&found), [Sooner::Heavier]);
        let found =
            break_even(&light, &load(2, 30_000_000_000, 100.0), TransferMode::Streaming, &question(Link::new(1e9)));
        assert_eq!(all(&found), [Sooner::Same]);
        assert_eq!(heavier_below(&found), None);
        // A window of 2.7 MiB per second is slower than any codec: level 1 is not better at any
        // bandwidth.
        let far = question(Link { rtt_seconds: 1.0, ..Link::new(1e9) });
        let found = break_even(&light, &load(3, 28_000_000_000, 200.0), TransferMode::StoreAndForward, &far);
        assert_eq!(all(&found), [Sooner::Heavier]);
    }

    proptest! {
        #[test]
        fn ranges_hold(light in any_load(), heavy in any_load(), link in any_link()) {
            let heavy = Load { tar_bytes: light.tar_bytes, ..heavy };
            let question = question(link);
            for way in TransferMode::ALL {
                let found = break_even(&light, &heavy, way, &question);
                prop_assert!(found.ranges.windows(2).all(|pair| pair[0].sooner != pair[1].sooner));
                let ends: Vec<f64> = found.ranges.iter().filter_map(|range| range.up_to_bits_per_second).collect();
                prop_assert!(ends.is_sorted() && ends.len() + 1 == found.ranges.len());
                let mut from = 1e3;
                for range in &found.ranges {
                    let to = range.up_to_bits_per_second.unwrap_or(1e13);
                    let middle = (from * to).sqrt();
                    let seconds = |load: &Load| question.seconds_at(load, way, middle);
                    let (light, heavy) = (seconds(&light), seconds(&heavy));
                    // A range as narrow as a grid step may hold more than one change.
                    if to / from > 1.3 {
                        match range.sooner {
                            Sooner::Lighter => prop_assert!(light <= heavy * 1.0011),
                            Sooner::Heavier => prop_assert!(heavy <= light * 1.0011),
                            Sooner::Same => prop_assert!((light / heavy - 1.0).abs() < 0.0021),
                        }
                    }
                    from = to;
                }
            }
        }
    }
}
