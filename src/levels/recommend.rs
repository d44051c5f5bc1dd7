//! Recommends levels: for the shortest time, for the smallest size, and the best of both.
//!
//! Only formats that `archive` writes and Agave reads are recommended: levels of zstd, and lz4.
//! Another codec is named too if no measured one beats it in both size and time.
//!
//! The best of both is the knee of the curve of size against time. The curve consists of the levels
//! that no other beats in both size and time. Time is logarithmic, because what matters is how many
//! times longer a level takes; the knee is the point furthest below the straight line from the
//! fastest to the smallest level. A knee that saves too little is not worth its time: then the fastest
//! level is the best of both.

use serde::Serialize;
use slotpress_base::quantity;
use slotpress_format::ArchiveCompression;
use slotpress_read::rules::clients::clients_that_read;
use slotpress_read::{SnapshotClient, describe_readers};

use crate::levels::LevelRow;
use crate::levels::codec::{CLUSTERED_CODEC, FrameCodec, REFERENCE_CODEC};

/// Minimum saving against the fastest level, in percent, that makes a slower level worth its time.
const SAVING_PERCENT_MIN: f64 = 3.0;

/// A codec at a level, and why it was chosen.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct CodecChoice {
    /// The recommended codec, and its level.
    #[serde(flatten)]
    pub codec: FrameCodec,
    /// Reason, as text without a full stop.
    pub reason: String,
}

impl CodecChoice {
    /// Returns the flags with which `archive` uses this codec: `--zstd-level 3`, `--format lz4`. `archive` has
    /// no flags for the codecs in [`Recommendation::others`].
    pub fn flags(&self) -> String {
        archive_flags(self.codec)
    }
}

/// Recommended levels, from [`recommend()`].
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename = "recommendation")]
#[non_exhaustive]
pub struct Recommendation {
    /// The level that compresses fastest.
    pub shortest_time: CodecChoice,
    /// The level with the smallest archive.
    pub smallest_size: CodecChoice,
    /// Best of both: the knee of the curve of size against time.
    pub knee: CodecChoice,
    /// True if the times of the knee and its neighbors are consistent.
    pub measured_well_enough: bool,
    /// Codecs that `archive` does not write, and that no measured one beats in both size and time.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<CodecChoice>,
}

/// Recommends levels; `None` if no row has a format that `archive` writes and Agave reads.
pub fn recommend(rows: &[LevelRow]) -> Option<Recommendation> {
    // If workers had to wait for cores, elapsed time depends on other programs: compare CPU time.
    let is_cpu_time_compared =
        rows.iter().any(LevelRow::waited_for_cores) && rows.iter().all(|row| row.compress_cpu_seconds > 0.0);
    let mut rows = rows.to_vec();
    if is_cpu_time_compared {
        for row in &mut rows {
            row.compress.median = row.compress_cpu_seconds;
        }
    }
    let curve = pareto_curve(rows.iter().filter(|row| is_offered(row)).collect());
    let fastest = *curve.first()?;
    let smallest = *curve.last()?;
    let is_worth_its_time = |knee: &&LevelRow| 100.0 - knee.size_percent_of(fastest) >= SAVING_PERCENT_MIN;
    let knee = find_knee(&curve).filter(is_worth_its_time).unwrap_or(fastest);
    let knee_index = curve.iter().position(|row| row.codec == knee.codec);
    let knee_index = knee_index.unwrap_or_default();
    let knee_and_neighbors = &curve[knee_index.saturating_sub(1)..curve.len().min(knee_index + 2)];
    let has_scattered_times = |row: &&LevelRow| row.warnings.iter().any(|warning| warning.about == "times");

    let time = if is_cpu_time_compared { "CPU time" } else { "time" };
    // For example `3.1% smaller than zstd 1 in 1.60 times its time`.
    let compare = |row: &LevelRow| {
        let difference = match 100.0 - row.size_percent_of(fastest) {
            saved if saved >= 0.0 => format!("{saved:.1}% smaller"),
            saved => format!("{:.1}% larger", -saved),
        };
        let codec = fastest.codec;
        let factor = quantity::significant(row.compress.median / fastest.compress.median.max(1e-9));
        format!("{difference} than {codec} in {factor} times its {time}")
    };
    let choice = |row: &LevelRow, mut reason: String| {
        if let Some(readers) = archive_format(row.codec).and_then(describe_readers) {
            reason += &format!("; {readers}");
        }
        CodecChoice { codec: row.codec, reason }
    };
    let mut others = Vec::new();
    for row in pareto_curve(rows.iter().collect()) {
        if !is_offered(row) && !is_uncompressed(row) {
            let reason = compare(row) + "; archive does not write it, and validators may not read it";
            others.push(choice(row, reason));
        }
    }
    let mut smallest_reason = "no measured choice is smaller".to_string();
    if smallest.codec != fastest.codec {
        smallest_reason += &format!(" ({})", compare(smallest));
    }
    let mut knee_reason = "nothing else is worth it".to_string();
    if knee.codec != fastest.codec {
        knee_reason = compare(knee);
    }
    Some(Recommendation {
        shortest_time: choice(fastest, format!("no measured choice takes less {time}")),
        smallest_size: choice(smallest, smallest_reason),
        knee: choice(knee, knee_reason),
        measured_well_enough: !knee_and_neighbors.iter().any(has_scattered_times),
        others,
    })
}

/// Returns the format of the archives that `archive` writes with this codec; `None` if it does not
/// offer the codec.
pub(super) fn archive_format(codec: FrameCodec) -> Option<ArchiveCompression> {
    match codec.name {
        REFERENCE_CODEC | CLUSTERED_CODEC => Some(ArchiveCompression::Zstd),
        "lz4" => Some(ArchiveCompression::Lz4),
        "none" => Some(ArchiveCompression::None),
        _ => None,
    }
}

pub(super) fn archive_flags(FrameCodec { name, level }: FrameCodec) -> String {
    match name {
        REFERENCE_CODEC => format!("--zstd-level {level}"),
        CLUSTERED_CODEC => format!("--layout clustered --zstd-level {level}"),
        format => format!("--format {format}"),
    }
}

/// True if the row measures the codec `none`, a copy in memory.
pub fn is_uncompressed(row: &LevelRow) -> bool {
    row.codec.name == "none"
}

/// True if `archive` writes this format and Agave reads it, which excludes a plain tar.
fn is_offered(row: &LevelRow) -> bool {
    archive_format(row.codec)
        .is_some_and(|compression| clients_that_read(compression).into_iter().any(SnapshotClient::is_agave))
}

/// Returns the rows that no other beats in both time and size, from the fastest to the smallest.
pub fn pareto_curve(mut rows: Vec<&LevelRow>) -> Vec<&LevelRow> {
    rows.sort_by(|a, b| {
        let by_time = a.compress.median.total_cmp(&b.compress.median);
        by_time.then(a.output_bytes.cmp(&b.output_bytes)).then(a.codec.level.cmp(&b.codec.level))
    });
    let mut curve: Vec<&LevelRow> = Vec::new();
    for row in rows {
        if curve.last().is_none_or(|last| row.output_bytes < last.output_bytes) {
            curve.push(row);
        }
    }
    curve
}

/// Finds the point furthest below the line between the ends; `None` if no point is below it.
fn find_knee<'a>(curve: &[&'a LevelRow]) -> Option<&'a LevelRow> {
    let first = curve.first()?;
    let last = curve.last()?;
    let time = |row: &LevelRow| row.compress.median.max(1e-9).ln();
    let time_range = time(last) - time(first);
    let size_range = (first.output_bytes - last.output_bytes) as f64;
    if curve.len() < 3 || time_range <= 0.0 {
        return None;
    }
    let depth = |row: &LevelRow| {
        let slower = (time(row) - time(first)) / time_range;
        let saved = (first.output_bytes - row.output_bytes) as f64 / size_range;
        saved - slower
    };
    let knee = curve.iter().max_by(|a, b| depth(a).total_cmp(&depth(b)))?;
    (depth(knee) > 0.0).then_some(*knee)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::levels::tests::row;
    use crate::levels::{Summary, Warning};

    /// The table published in Agave's pull request 2729: level, size in GB, seconds.
    const PUBLISHED: [(i32, u64, f64); 10] = [
        (1, 87, 621.63),
        (2, 85, 718.25),
        (3, 83, 994.02),
        (4, 82, 1195.79),
        (5, 82, 2274.97),
        (6, 82, 2562.68),
        (7, 81, 2976.86),
        (8, 81, 3288.39),
        (9, 81, 3308.86),
        (10, 80, 4212.76),
    ];

    fn rows(table: &[(i32, u64, f64)]) -> Vec<LevelRow> {
        table
            .iter()
            .map(|(level, size, seconds)| LevelRow {
                output_bytes: size * 1_000_000_000,
                compress: Summary { median: *seconds, min: *seconds, max: *seconds, runs: 3 },
                ..row(*level)
            })
            .collect()
    }

    /// Returns the levels for the shortest time, for the smallest size, and of the knee.
    fn levels_of(recommendation: &Recommendation) -> [i32; 3] {
        let Recommendation { shortest_time, smallest_size, knee, .. } = recommendation;
        [shortest_time, smallest_size, knee].map(|choice| choice.codec.level)
    }

    #[test]
    fn levels_are_recommended_from_the_published_table() {
        let recommendation = recommend(&rows(&PUBLISHED)).expect("ten levels");
        assert_eq!(levels_of(&recommendation), [1, 10, 4]);
        let Recommendation { smallest_size, knee, .. } = recommendation;
        insta::assert_snapshot!(smallest_size.reason, @"no measured choice is smaller (8.0% smaller than zstd 1 in 6.78 times its time)");
        insta::assert_snapshot!(knee.reason, @"5.7% smaller than zstd 1 in 1.92 times its time");
    }

    #[test]
    fn cpu_times_are_compared_under_load() {
        let mut rows = rows(&[(1, 90, 10.0), (2, 85, 40.0), (3, 83, 20.0)]);
        for (row, cpu) in rows.iter_mut().zip([8.0, 10.0, 20.0]) {
            row.compress_cpu_seconds = cpu;
        }
        assert_eq!(rows[1].time_factor_of(&rows[0]), 4.0);
        rows[1].warnings.push(Warning::new("load", String::new()));
        assert_eq!((rows[1].time_factor_of(&rows[0]), rows[2].time_factor_of(&rows[0])), (1.25, 2.0));
        let recommendation = recommend(&rows).expect("three levels");
        assert_eq!(levels_of(&recommendation), [1, 3, 2]);
        assert_eq!(recommendation.shortest_time.reason, "no measured choice takes less CPU time");
        assert!(recommendation.knee.reason.contains("in 1.25 times its CPU time"), "{}", recommendation.knee.reason);
    }

    #[test]
    fn clustered_records_can_be_recommended() {
        let mut rows = rows(&[(1, 1000, 10.0), (2, 968, 11.5), (3, 951, 21.0), (1, 920, 10.1), (10, 914, 90.0)]);
        rows[3].codec.name = "clustered";
        let recommendation = recommend(&rows).expect("rows");
        assert_eq!(recommendation.knee.flags(), "--layout clustered --zstd-level 1");
        insta::assert_snapshot!(recommendation.knee.reason, @"8.0% smaller than zstd 1 in 1.01 times its time");
    }

    #[test]
    fn scattered_times_make_the_answer_uncertain() {
        let mut rows = rows(&[(1, 1000, 10.0), (2, 950, 20.0), (3, 940, 40.0), (4, 900, 80.0)]);
        let is_measured_well_enough = |rows: &[LevelRow]| recommend(rows).expect("rows").measured_well_enough;
        assert_eq!(recommend(&rows).expect("rows").knee.codec.level, 2);
        rows[3].warnings.push(Warning::new("times", String::new()));
        assert!(is_measured_well_enough(&rows), "level 4 is not a neighbor of the knee");
        for index in 0..3 {
            let mut rows = rows.clone();
            rows[index].warnings.push(Warning::new("times", String::new()));
            assert!(!is_measured_well_enough(&rows), "{index}");
        }
    }

    /// A saving below 3% is not worth its time. A level that another one beats is not considered.
    #[test]
    fn small_savings_are_not_worth_their_time() {
        for (table, level) in [
            ([(1, 1000, 10.0), (2, 987, 14.0), (3, 980, 90.0)], 1),
            ([(1, 1000, 10.0), (2, 969, 14.0), (3, 960, 90.0)], 2),
            ([(1, 87, 10.0), (2, 88, 12.0), (3, 83, 20.0)], 1),
        ] {
            let knee = recommend(&rows(&table)).expect("levels").knee;
            assert_eq!((knee.codec.level, knee.reason == "nothing else is worth it"), (level, level == 1), "{knee:?}");
        }
    }

    #[test]
    fn codecs_that_archive_lacks_are_listed_separately() {
        let mut rows = rows(&[(1, 87, 600.0), (3, 83, 1000.0), (9, 70, 5000.0), (0, 120, 300.0), (0, 300, 10.0)]);
        for (row, codec) in rows.iter_mut().zip(["zstd", "zstd", "bzip2", "lz4", "none"]) {
            row.codec.name = codec;
        }
        let recommendation = recommend(&rows).expect("some rows");
        assert_eq!(
            (recommendation.shortest_time.flags(), recommendation.smallest_size.flags()),
            ("--format lz4".into(), "--zstd-level 3".into())
        );
        assert!(recommendation.shortest_time.reason.ends_with("Agave reads it, Firedancer does not"));
        assert_eq!(recommendation.others.iter().map(|choice| choice.codec.name).collect::<Vec<_>>(), ["bzip2"]);
        insta::assert_snapshot!(recommendation.others[0].reason, @"41.7% smaller than lz4 in 16.7 times its time; archive does not write it, and validators may not read it");
        assert_eq!(recommend(&rows[2..3]), None);
    }

    #[test]
    fn few_levels_have_a_recommendation() {
        assert_eq!(recommend(&[]), None);
        let single = recommend(&rows(&PUBLISHED[..1])).expect("one level");
        assert_eq!(levels_of(&single), [1, 1, 1]);
        let two = recommend(&rows(&PUBLISHED[..2])).expect("two levels");
        assert_eq!(levels_of(&two), [1, 2, 1]);
    }

    proptest! {
        #[test]
        fn no_measured_level_beats_the_choices(table in proptest::collection::vec((1u64..100, 0.001f64..1e4), 1..22)) {
            let table: Vec<_> =
                table.iter().zip(1..).map(|((size, seconds), level)| (level, *size, *seconds)).collect();
            let rows = rows(&table);
            let Recommendation { shortest_time, smallest_size, knee, .. } = recommend(&rows).expect("some levels");
            let row_of = |choice: &CodecChoice| rows.iter().find(|row| row.codec == choice.codec).expect("a measured level");
            let fastest = row_of(&shortest_time);
            let smallest = row_of(&smallest_size);
            let knee = row_of(&knee);
            for row in &rows {
                prop_assert!(fastest.compress.median <= row.compress.median);
                prop_assert!(smallest.output_bytes <= row.output_bytes);
                let beats_knee = row.compress.median <= knee.compress.median && row.output_bytes < knee.output_bytes
                    || row.compress.median < knee.compress.median && row.output_bytes <= knee.output_bytes;
                prop_assert!(!beats_knee, "{} beats the knee {}", row.codec, knee.codec);
            }
        }

        #[test]
        fn the_knee_does_not_depend_on_the_unit_of_time(factor in 0.01f64..100.0) {
            let scaled: Vec<_> =
                PUBLISHED.iter().map(|(level, size, seconds)| (*level, *size, seconds * factor)).collect();
            prop_assert_eq!(recommend(&rows(&scaled)).map(|recommendation| recommendation.knee.codec.level), Some(4));
        }
    }
}
