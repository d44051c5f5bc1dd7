//! The result of a search in the formats that people and programs read: one file per format, all pure.

pub mod csv;
pub mod json;
pub mod markdown;
pub mod svg;
pub mod table;

use super::{Outcome, judge::Point};

/// Points as they are shown: stock levels and candidates together, the largest first.
pub fn in_order(outcome: &Outcome) -> Vec<&Point> {
    let mut points: Vec<&Point> = outcome.points.iter().collect();
    points.sort_by(|a, b| b.output_bytes.cmp(&a.output_bytes).then(b.time_ratio.total_cmp(&a.time_ratio)));
    points
}

/// Levels as a list with ranges: `1,3-5`.
pub fn show_levels(levels: &[i32]) -> String {
    let mut ranges: Vec<(i32, i32)> = Vec::new();
    for level in levels {
        match ranges.last_mut() {
            Some((_, to)) if *to + 1 == *level => *to = *level,
            _ => ranges.push((*level, *level)),
        }
    }
    let show = |(from, to): (i32, i32)| if from == to { from.to_string() } else { format!("{from}-{to}") };
    ranges.into_iter().map(show).collect::<Vec<_>>().join(",")
}

/// The levels that a point beats.
pub fn show_beats(point: &Point) -> String {
    show_levels(&point.beats.iter().map(|beaten| beaten.level).collect::<Vec<_>>())
}

#[cfg(test)]
pub(crate) mod tests {
    use {
        super::*,
        crate::{
            archive::layout::RecordLayout,
            levels::search::{
                Settings, Variant,
                judge::Beaten,
                space::{LEVELS, PRESETS, Params, Space},
            },
        },
        std::time::Duration,
    };

    /// A result with fixed numbers: three levels, and three candidates of which one is not on the front.
    pub(crate) fn outcome() -> Outcome {
        let space = Space::new(8 << 20, 8.0);
        let point = |variant: Variant, output_bytes: u64, time_ratio: f64, beats: &[i32]| Point {
            variant,
            input_bytes: 400_000_000,
            output_bytes,
            size_ratio: output_bytes as f64 / 1e8,
            time_ratio,
            decompress_time_ratio: 0.97,
            beats: beats.iter().map(|level| Beaten { level: *level, size_ratio: 0.98, time_ratio: 0.9 }).collect(),
            is_on_front: true,
        };
        let of = |layout, params: Params| Variant { layout, settings: Settings::Params(params) };
        let long = of(RecordLayout::Clustered, Params([23, 22, 21, 5, 5, 13, 6]));
        let beaten = of(RecordLayout::Verbatim, LEVELS[1]);
        Outcome {
            points: vec![
                Point { is_on_front: false, ..point(Variant::stock(1), 100_000_000, 1.0, &[]) },
                Point { is_on_front: false, ..point(Variant::stock(3), 94_900_000, 1.69, &[]) },
                Point { is_on_front: false, ..point(Variant::stock(10), 91_400_000, 7.2, &[]) },
                point(of(RecordLayout::Verbatim, space.preset(PRESETS[0].1)), 98_700_000, 0.88, &[1]),
                point(long, 90_500_000, 6.4, &[10]),
                Point { is_on_front: false, ..point(beaten, 98_900_000, 0.95, &[1, 2, 3]) },
            ],
            space,
            searched_frames: 8,
            held_out_frames: 8,
            unclustered_frames: 2,
            tried: 143,
            tried_in_full: 61,
            claims: 9,
            claims_held: 5,
            rounds: 7,
            levels_left_out: Vec::new(),
            is_interrupted: false,
            elapsed: Duration::from_millis(58_200),
        }
    }

    #[test]
    fn lists_of_levels() {
        assert_eq!([show_levels(&[]), show_levels(&[1, 3, 4, 5, 7, 8])], ["", "1,3-5,7-8"]);
    }
}
