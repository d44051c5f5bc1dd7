//! The bandwidths at which one level overtakes its neighbour.
//!
//! Time against bandwidth is looked at on a fine grid, from a kilobit to ten terabits per second, and the places where
//! the sooner of two levels changes are narrowed down by halving. So whatever limits the link besides its bandwidth
//! (delay, window, loss) counts too: where a window keeps a stream slow, no bandwidth helps.

use serde::Serialize;

use crate::levels::link::model::{Load, Way};
use crate::levels::link::question::{LinkQuestion, LinkRow};
use crate::levels::link::units::show_bandwidth;

/// The bandwidths that are looked at, by their decimal logarithm.
const LOG_BANDWIDTHS: std::ops::Range<f64> = 3.0..13.0;

/// Steps between them, per factor of ten: a change that comes and goes within 12 % of bandwidth is not seen.
const STEPS_PER_TEN: usize = 20;

/// Halvings of a step: to a millionth of its logarithm, far more than is shown.
const HALVINGS: usize = 20;

/// Times closer than this are the same: no measurement tells them apart.
const SAME: f64 = 1e-3;

/// Which of two levels boots a node sooner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Sooner {
    /// The one that compresses less.
    Lighter,
    /// The one that compresses more.
    Heavier,
    /// Within 0.1 % of each other.
    Same,
}

/// Bandwidths over which the same level boots a node sooner.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Range {
    /// The end of the range; `None` for the last.
    pub up_to_bits_per_second: Option<f64>,
    /// Which of the two levels.
    pub sooner: Sooner,
}

/// Two neighbouring levels, and the bandwidths at which one overtakes the other.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename = "link_break_even")]
pub struct BreakEven {
    /// How the stages are combined.
    pub way: Way,
    /// The codec of the one that compresses less; `none` for uncompressed.
    pub lighter_codec: String,
    /// Its level.
    pub lighter_level: i32,
    /// The codec of the one that compresses more.
    pub heavier_codec: String,
    /// Its level.
    pub heavier_level: i32,
    /// Ascending; never empty.
    pub ranges: Vec<Range>,
}

impl BreakEven {
    /// The bandwidths at which the heavier level boots a node sooner, for people: `below 297 Mbit/s`, `any`, `none`.
    pub fn heavier_at(&self) -> String {
        let from = [None].into_iter().chain(self.ranges.iter().map(|range| range.up_to_bits_per_second));
        let mut ranges = from.zip(&self.ranges).filter(|(_, range)| range.sooner == Sooner::Heavier);
        let Some((from, range)) = ranges.next() else { return "none".to_string() };
        let [from, to] = [from, range.up_to_bits_per_second].map(|end| end.map(show_bandwidth));
        let text = match (from, to) {
            (None, None) => "any".to_string(),
            (None, Some(to)) => format!("below {to}"),
            (Some(from), None) => format!("above {from}"),
            (Some(from), Some(to)) => format!("{from} to {to}"),
        };
        // Rare, and for a narrow column; JSON has all of them.
        if ranges.next().is_some() { text + ", ..." } else { text }
    }

    /// The bandwidth in bit/s below which the heavier level boots a node sooner; `None` if there is none.
    #[cfg(test)]
    pub fn heavier_below(&self) -> Option<f64> {
        self.ranges.iter().rev().find(|range| range.sooner == Sooner::Heavier)?.up_to_bits_per_second
    }
}

/// Between each row and the one before it of its codec; the first of each codec, and uncompressed.
pub fn break_evens(rows: &[LinkRow], question: &LinkQuestion) -> Vec<BreakEven> {
    let Some(plain) = rows.first() else { return Vec::new() };
    let pairs = || {
        rows.windows(2).map(|pair| {
            let [before, row] = [&pair[0].load, &pair[1].load];
            (if before.codec == row.codec { before } else { &plain.load }, row)
        })
    };
    let of = |way: Way| pairs().map(move |(lighter, heavier)| break_even(lighter, heavier, way, question));
    Way::ALL.into_iter().flat_map(of).collect()
}

fn break_even(lighter: &Load, heavier: &Load, way: Way, question: &LinkQuestion) -> BreakEven {
    // Above 0 if the heavier one is sooner, as a part of the time.
    let lead = |log_bandwidth: f64| {
        let seconds = |load: &Load| question.seconds_at(load, way, 10f64.powf(log_bandwidth));
        let (light, heavy) = (seconds(lighter), seconds(heavier));
        (light - heavy) / light.min(heavy).max(f64::MIN_POSITIVE)
    };
    let ranges = ranges(&lead);
    BreakEven {
        way,
        lighter_codec: lighter.codec.clone(),
        lighter_level: lighter.level,
        heavier_codec: heavier.codec.clone(),
        heavier_level: heavier.level,
        ranges,
    }
}

fn sooner(lead: f64) -> Sooner {
    match lead {
        lead if lead.abs() <= SAME => Sooner::Same,
        lead if lead < 0.0 => Sooner::Lighter,
        _ => Sooner::Heavier,
    }
}

/// From a bandwidth on, by its decimal logarithm, the same level is sooner.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    from: f64,
    sooner: Sooner,
}

/// How far the heavier level leads at a bandwidth, by its decimal logarithm.
type Lead<'a> = &'a dyn Fn(f64) -> f64;

fn ranges(lead: Lead<'_>) -> Vec<Range> {
    let stretches = without_crossings(stretches(lead), lead);
    let ends = stretches.iter().skip(1).map(|next| Some(10f64.powf(next.from))).chain([None]);
    let range = |(end, stretch): (Option<f64>, &Stretch)| Range { up_to_bits_per_second: end, sooner: stretch.sooner };
    ends.zip(&stretches).map(range).collect()
}

/// Ascending stretches of bandwidth over which the same level is sooner.
fn stretches(lead: Lead<'_>) -> Vec<Stretch> {
    let steps = ((LOG_BANDWIDTHS.end - LOG_BANDWIDTHS.start) * STEPS_PER_TEN as f64) as usize;
    let at = |step: usize| LOG_BANDWIDTHS.start + step as f64 / STEPS_PER_TEN as f64;
    let mut stretches = vec![Stretch { from: at(0), sooner: sooner(lead(at(0))) }];
    for step in 1..=steps {
        let (low, high) = (at(step - 1), at(step));
        let (before, after) = (sooner(lead(low)), sooner(lead(high)));
        if before == after {
            continue;
        }
        let is_tie = before == Sooner::Same || after == Sooner::Same;
        let from = match is_tie {
            true => narrowed(low, high, &|at| sooner(lead(at)) == before),
            false => crossing(low, high, before, lead),
        };
        stretches.push(Stretch { from, sooner: after });
    }
    stretches
}

/// Around a crossing, both levels take nearly the same time. Such a stretch becomes the crossing itself.
fn without_crossings(stretches: Vec<Stretch>, lead: Lead<'_>) -> Vec<Stretch> {
    let mut kept: Vec<Stretch> = Vec::new();
    for after in stretches {
        match *kept.as_slice() {
            [.., before, tie] if tie.sooner == Sooner::Same && before.sooner != after.sooner => {
                kept.pop();
                let from = crossing(tie.from, after.from, before.sooner, lead);
                kept.push(Stretch { from, ..after });
            }
            _ => kept.push(after),
        }
    }
    kept
}

/// The bandwidth between `low` and `high` at which the leading level changes.
fn crossing(low: f64, high: f64, before: Sooner, lead: Lead<'_>) -> f64 {
    narrowed(low, high, &|at| (lead(at) > 0.0) == (before == Sooner::Heavier))
}

/// Bisects: the last value at which something holds, if it holds at `low` and not at `high`.
fn narrowed(mut low: f64, mut high: f64, holds: &dyn Fn(f64) -> bool) -> f64 {
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
    use crate::levels::link::model::tests::{any_load, ends};
    use crate::levels::link::network::Link;
    use crate::levels::link::network::tests::any_link;

    fn load(level: i32, archive_bytes: u64, compress_seconds: f64) -> Load {
        let tar_bytes = 100_000_000_000;
        let codec = "zstd".to_string();
        let size_error_percent = None;
        Load { codec, level, tar_bytes, archive_bytes, size_error_percent, compress_seconds, decompress_seconds: 50.0 }
    }

    fn question(link: Link) -> LinkQuestion {
        LinkQuestion { link, ends: ends(), egress_price_per_gb: None, any_format: false }
    }

    /// One after the other, 100 s more of compressing against 2 GB less to send: 20 MB/s of payload, 170 Mbit/s.
    #[test]
    fn by_hand() {
        let (light, heavy) = (load(1, 30_000_000_000, 100.0), load(3, 28_000_000_000, 200.0));
        let found = break_even(&light, &heavy, Way::StoreAndForward, &question(Link::new(1e9)));
        let bandwidth = found.heavier_below().expect("a crossing");
        assert!((bandwidth / (20e6 * 8.0 * 1538.0 / 1448.0) - 1.0).abs() < 0.02, "{bandwidth}");
        assert_eq!(found.heavier_at(), "below 170 Mbit/s");
        // Streaming, the link must be faster than level 3 compresses: 140 MB/s.
        let found = break_even(&light, &heavy, Way::Streaming, &question(Link::new(1e9)));
        let bandwidth = found.heavier_below().expect("a crossing");
        assert!((1.10e9..1.30e9).contains(&bandwidth), "{bandwidth}");
    }

    #[test]
    fn no_crossing() {
        let (light, heavy) = (load(1, 30_000_000_000, 100.0), load(3, 31_000_000_000, 200.0));
        let found = break_even(&light, &heavy, Way::StoreAndForward, &question(Link::new(1e9)));
        assert_eq!((found.heavier_at().as_str(), found.ranges[0].sooner), ("none", Sooner::Lighter));
        let found = break_even(&heavy, &light, Way::StoreAndForward, &question(Link::new(1e9)));
        assert_eq!(found.heavier_at(), "any");
        let found = break_even(&light, &load(2, 30_000_000_000, 100.0), Way::Streaming, &question(Link::new(1e9)));
        assert_eq!((found.heavier_at().as_str(), found.ranges[0].sooner), ("none", Sooner::Same));
        assert_eq!(found.heavier_below(), None);
        // A window of 3 MiB every second is slower than any codec: no bandwidth makes level 1 the better one.
        let far = question(Link { rtt_seconds: 1.0, ..Link::new(1e9) });
        let found = break_even(&light, &load(3, 28_000_000_000, 200.0), Way::StoreAndForward, &far);
        assert_eq!(found.heavier_at(), "any");
    }

    proptest! {
        /// On both sides of each end, and within each range, the level that is said to be sooner is.
        #[test]
        fn ranges_hold(light in any_load(), heavy in any_load(), link in any_link()) {
            let heavy = Load { tar_bytes: light.tar_bytes, ..heavy };
            let question = question(link);
            for way in Way::ALL {
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
                    // A range as narrow as a step of the grid may hold more than one change.
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
