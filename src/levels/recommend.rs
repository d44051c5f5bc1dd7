//! Recommends levels: for the shortest time, for the smallest size, and the best of both.
//!
//! Only formats that `archive` writes and Agave reads are recommended: levels of zstd, and lz4.
//! Another codec is named too if no measured one beats it in both size and time.
//!
//! The best of both is the knee of the curve of size against time. The curve consists of the levels
//! that no other beats in both size and time. Time is logarithmic, because what matters is how many
//! times longer a level takes; the knee is the point furthest below the straight line from the
//! fastest to the smallest level.
//!
//! The knee is also computed from each single run. If too many of them disagree, the measurement is
//! not good enough to recommend a knee.

use serde::Serialize;
use slotpress_base::{Elapsed, quantity};
use slotpress_format::ledger::names::Extension;
use slotpress_read::rules::clients::readers;
use slotpress_read::{SnapshotClient, readers_in_words};

use crate::levels::codec::{CLUSTERED_CODEC, REFERENCE_CODEC};
use crate::levels::{LevelRow, Summary};

/// A codec at a level, and why it was chosen.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CodecChoice {
    /// Name of the codec.
    pub codec: String,
    /// Level of the codec; 0 if it has none.
    pub level: i32,
    /// Reason, as text without a full stop.
    pub reason: String,
}

impl CodecChoice {
    fn new(row: &LevelRow, reason: String) -> Self {
        Self { codec: row.codec.clone(), level: row.level, reason }
    }

    /// True if this row has the same codec and level.
    pub fn is_of(&self, row: &LevelRow) -> bool {
        (&self.codec, self.level) == (&row.codec, row.level)
    }

    /// The flag of `archive` that selects it: `--zstd-level 3`, `--format lz4`.
    pub fn flag(&self) -> String {
        flags_of(&self.codec, self.level)
    }
}

/// Recommended levels, from [`recommend()`].
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "type", rename = "recommendation")]
pub struct Recommendation {
    /// The level that takes the least time.
    pub shortest_time: CodecChoice,
    /// The level that gives the smallest archive.
    pub smallest_size: CodecChoice,
    /// Best of both: the knee of the curve of size against time.
    pub knee: CodecChoice,
    /// True if at least three of four single runs give the same knee.
    pub measured_well_enough: bool,
    /// Knees of the single runs as flags, the most frequent first.
    #[serde(skip)]
    pub knees_of_runs: Vec<String>,
    /// Codecs that `archive` does not write, and that no measured one beats in both size and time.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<CodecChoice>,
}

/// Recommends levels; `None` if no row has a format that `archive` writes and Agave reads.
pub fn recommend(rows: &[LevelRow]) -> Option<Recommendation> {
    // If workers had to wait for cores, elapsed time depends on other programs: compare CPU time.
    let is_by_cpu = rows.iter().any(LevelRow::has_waited) && rows.iter().all(|row| row.compress_cpu_seconds > 0.0);
    let rows: Vec<LevelRow> = rows.iter().map(|row| if is_by_cpu { by_cpu_time(row) } else { row.clone() }).collect();
    let offered: Vec<&LevelRow> = rows.iter().filter(|row| is_offered(row)).collect();
    let curve = curve_of(offered.clone());
    let (fastest, smallest) = (*curve.first()?, *curve.last()?);
    let knee = knee_of(&curve).unwrap_or(fastest);
    let knees = knees_of_runs(&offered, is_by_cpu);
    let is_disturbed = |choice: &&CodecChoice| !choice.is_of(knee);

    let time = if is_by_cpu { "CPU time" } else { "time" };
    let none_is_faster =
        if is_by_cpu { "no measured choice takes less CPU time" } else { "no measured choice is faster" };
    // For example `3.1 % smaller than zstd 1 in 1.60 times its time`.
    let against = |row: &LevelRow| {
        let factor = quantity::significant(row.time_factor_of(fastest));
        format!("{} than {} in {factor} times its {time}", size_difference(row, fastest), fastest.label())
    };
    let choice = |row: &LevelRow, reason: String| {
        let clients = format_of(&row.codec).and_then(readers_in_words);
        CodecChoice::new(row, reason + &clients.map_or(String::new(), |words| format!("; {words}")))
    };

    let mut shortest_reason = none_is_faster.to_string();
    if !is_by_cpu {
        shortest_reason += &format!(" ({})", quantity::rate(fastest.compress_bytes_per_second()));
    }
    let is_rival = |row: &&&LevelRow| !row.is_same_codec(fastest) && is_within_deviation(row, fastest);
    let rivals: Vec<String> = offered.iter().filter(is_rival).map(|row| row.label()).collect();
    if !rivals.is_empty() {
        shortest_reason += &format!("; {} cannot be distinguished from it", rivals.join(", "));
    }
    let smallest_reason = match smallest.is_same_codec(fastest) {
        true => "no measured choice is smaller, and none is faster".to_string(),
        false => format!("no measured choice is smaller ({})", against(smallest)),
    };
    let next = curve.iter().skip_while(|row| !row.is_same_codec(knee)).nth(1).map(|next| {
        let factor = quantity::significant(next.time_factor_of(knee));
        format!("{} is only {} in {factor} times the {time}", next.label(), size_difference(next, knee))
    });
    let knee_reason = match (knee.is_same_codec(fastest), next) {
        (true, None) => "every other measured choice is slower and no smaller".to_string(),
        (true, Some(next)) => format!("{none_is_faster}; {next}"),
        (false, None) => against(knee),
        (false, Some(next)) => format!("{}; beyond it, {next}", against(knee)),
    };
    let others = pareto_curve(&rows).into_iter().filter(|row| !is_offered(row) && !is_plain(row)).map(|row| {
        CodecChoice::new(row, format!("{}; archive does not make it, and validators may not read it", against(row)))
    });
    Some(Recommendation {
        shortest_time: choice(fastest, shortest_reason),
        smallest_size: choice(smallest, smallest_reason),
        knee: choice(knee, knee_reason),
        // Tolerate one disturbed run in four.
        measured_well_enough: knees.iter().filter(is_disturbed).count() * 4 <= knees.len(),
        knees_of_runs: by_number(&knees),
        others: others.collect(),
    })
}

/// Format of the archives that `archive` writes with this codec; `None` if it does not offer the
/// codec.
pub(super) fn format_of(codec: &str) -> Option<Extension> {
    match codec {
        REFERENCE_CODEC | CLUSTERED_CODEC => Some(Extension::TarZstd),
        "lz4" => Some(Extension::TarLz4),
        "none" => Some(Extension::Tar),
        _ => None,
    }
}

/// Flags of `archive` and `recompress` that select a codec and level.
pub(super) fn flags_of(codec: &str, level: i32) -> String {
    match codec {
        REFERENCE_CODEC => format!("--zstd-level {level}"),
        CLUSTERED_CODEC => format!("--layout clustered --zstd-level {level}"),
        format => format!("--format {format}"),
    }
}

/// True for the uncompressed copy in memory, which is never recommended.
pub fn is_plain(row: &LevelRow) -> bool {
    row.codec == "none"
}

/// True if `archive` writes this format and Agave reads it, which excludes a plain tar.
fn is_offered(row: &LevelRow) -> bool {
    format_of(&row.codec).is_some_and(|extension| readers(extension).into_iter().any(SnapshotClient::is_agave))
}

fn by_cpu_time(row: &LevelRow) -> LevelRow {
    let mut row = row.clone();
    let compress: &mut Summary = &mut row.compress;
    let scale = row.compress_cpu_seconds / compress.median.max(1e-9);
    compress.median = row.compress_cpu_seconds;
    compress.min *= scale;
    compress.max *= scale;
    compress.deviation *= scale;
    row
}

/// Rows that no other beats in both time and size, from the fastest to the smallest.
pub fn pareto_curve(rows: &[LevelRow]) -> Vec<&LevelRow> {
    curve_of(rows.iter().collect())
}

fn curve_of(mut sorted: Vec<&LevelRow>) -> Vec<&LevelRow> {
    sorted.sort_by(|a, b| {
        let by_time = a.compress.median.total_cmp(&b.compress.median);
        by_time.then(a.output_bytes.cmp(&b.output_bytes)).then(a.level.cmp(&b.level))
    });
    let mut curve: Vec<&LevelRow> = Vec::new();
    for row in sorted {
        if curve.last().is_none_or(|last| row.output_bytes < last.output_bytes) {
            curve.push(row);
        }
    }
    curve
}

/// Finds the point furthest below the line between the ends; `None` if no point is below it.
fn knee_of<'a>(curve: &[&'a LevelRow]) -> Option<&'a LevelRow> {
    let (first, last) = (curve.first()?, curve.last()?);
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

/// Computes the knee of every single run. If a codec has fewer runs than others, its runs are used
/// repeatedly.
fn knees_of_runs(rows: &[&LevelRow], is_by_cpu: bool) -> Vec<CodecChoice> {
    let seconds = |taken: &Elapsed| if is_by_cpu { taken.cpu } else { taken.wall }.as_secs_f64();
    let runs = rows.iter().map(|row| row.compress_runs.len()).max().unwrap_or_default();
    let knee_of_run = |run: usize| {
        let in_run = |row: &&LevelRow| {
            let mut row = (*row).clone();
            let taken = row.compress_runs.get(run % row.compress_runs.len().max(1));
            row.compress.median = taken.map_or(row.compress.median, seconds);
            row
        };
        let rows: Vec<LevelRow> = rows.iter().map(in_run).collect();
        let curve = pareto_curve(&rows);
        knee_of(&curve).or(curve.first().copied()).map(|knee| CodecChoice::new(knee, String::new()))
    };
    (0..runs.min(RUNS_MAX)).filter_map(knee_of_run).collect()
}

/// Limit on single runs considered: more would not change the result.
const RUNS_MAX: usize = 100;

fn by_number(choices: &[CodecChoice]) -> Vec<String> {
    let mut counts: Vec<(usize, String)> = Vec::new();
    for flag in choices.iter().map(CodecChoice::flag) {
        match counts.iter_mut().find(|(_, known)| *known == flag) {
            Some((count, _)) => *count += 1,
            None => counts.push((1, flag)),
        }
    }
    counts.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
    counts.into_iter().map(|(_, flag)| flag).collect()
}

/// For example `3.1 % smaller` or `3.1 % larger`.
fn size_difference(row: &LevelRow, other: &LevelRow) -> String {
    match 100.0 - row.size_percent_of(other) {
        saved if saved >= 0.0 => format!("{saved:.1} % smaller"),
        saved => format!("{:.1} % larger", -saved),
    }
}

/// True if `row` is slower by no more than the two deviations together.
fn is_within_deviation(row: &LevelRow, other: &LevelRow) -> bool {
    row.compress.median - other.compress.median <= row.compress.deviation + other.compress.deviation
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::levels::tests::row;

    /// The table published in Agave's pull request 2729 (docs/levels.md): level, size in GB,
    /// seconds.
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
                compress: Summary { median: *seconds, min: *seconds, max: *seconds, deviation: 0.0, runs: 3 },
                ..row(*level)
            })
            .collect()
    }

    #[test]
    fn the_published_table() {
        let recommendation = recommend(&rows(&PUBLISHED)).expect("ten levels");
        let Recommendation { shortest_time, smallest_size, knee, .. } = recommendation;
        assert_eq!((shortest_time.level, smallest_size.level, knee.level), (1, 10, 4));
        insta::assert_snapshot!(smallest_size.reason, @"no measured choice is smaller (8.0 % smaller than zstd 1 in 6.78 times its time)");
        insta::assert_snapshot!(knee.reason, @"5.7 % smaller than zstd 1 in 1.92 times its time; beyond it, zstd 7 is only 1.2 % smaller in 2.49 times the time");
    }

    #[test]
    fn under_load_cpu_time_counts() {
        use crate::levels::Warning;
        let mut rows = rows(&[(1, 87, 10.0), (2, 85, 40.0), (3, 83, 20.0)]);
        for (row, cpu) in rows.iter_mut().zip([8.0, 10.0, 20.0]) {
            row.compress_cpu_seconds = cpu;
        }
        assert_eq!(rows[1].time_factor_of(&rows[0]), 4.0);
        rows[1].warnings.push(Warning::OtherLoad { lost_percent: 60.0 });
        assert_eq!((rows[1].time_factor_of(&rows[0]), rows[2].time_factor_of(&rows[0])), (1.25, 2.0));
        let found = recommend(&rows).expect("three levels");
        assert_eq!((found.shortest_time.level, found.smallest_size.level, found.knee.level), (1, 3, 2));
        assert_eq!(found.shortest_time.reason, "no measured choice takes less CPU time");
        assert!(found.knee.reason.contains("in 1.25 times its CPU time"), "{}", found.knee.reason);
    }

    #[test]
    fn clustered_records_are_candidates() {
        let mut rows = rows(&[(1, 1000, 10.0), (2, 968, 11.5), (3, 951, 21.0), (1, 920, 10.1), (10, 914, 90.0)]);
        rows[3].codec = "clustered".to_string();
        let found = recommend(&rows).expect("rows");
        assert_eq!(found.knee.flag(), "--layout clustered --zstd-level 1");
        insta::assert_snapshot!(found.knee.reason, @"8.0 % smaller than zstd 1 in 1.01 times its time; beyond it, zstd 10 is only 0.7 % smaller in 8.91 times the time");
    }

    #[test]
    fn an_answer_that_changes_from_run_to_run() {
        let mut rows = rows(&[(1, 1000, 10.0), (2, 950, 20.0), (3, 940, 40.0), (4, 900, 80.0)]);
        let runs = |rows: &mut Vec<LevelRow>, of_2: [f64; 4]| {
            for row in rows.iter_mut() {
                let seconds = if row.level == 2 { of_2 } else { [row.compress.median; 4] };
                let taken = |seconds| Elapsed { wall: Duration::from_secs_f64(seconds), cpu: Duration::ZERO };
                row.compress_runs = seconds.map(taken).into();
            }
            recommend(rows).expect("rows")
        };
        let steady = runs(&mut rows, [20.0, 20.0, 20.0, 79.0]);
        assert_eq!((steady.knee.level, steady.measured_well_enough), (2, true), "one run may be disturbed");
        let found = runs(&mut rows, [20.0, 79.0, 20.0, 79.0]);
        assert_eq!((found.knee.level, found.measured_well_enough), (2, false));
        assert_eq!(found.knees_of_runs, ["--zstd-level 2", "--zstd-level 1"]);
    }

    #[test]
    fn a_level_that_another_beats_is_ignored() {
        let reason = recommend(&rows(&[(1, 87, 10.0), (2, 88, 12.0), (3, 83, 20.0)])).expect("levels").knee.reason;
        assert_eq!(reason, "no measured choice is faster; zstd 3 is only 4.6 % smaller in 2.00 times the time");
    }

    #[test]
    fn other_codecs() {
        let mut rows = rows(&[(1, 87, 600.0), (3, 83, 1000.0), (9, 70, 5000.0), (0, 120, 300.0), (0, 300, 10.0)]);
        for (row, codec) in rows.iter_mut().zip(["zstd", "zstd", "bzip2", "lz4", "none"]) {
            row.codec = codec.to_string();
        }
        let found = recommend(&rows).expect("some rows");
        assert_eq!(
            (found.shortest_time.flag(), found.smallest_size.flag()),
            ("--format lz4".into(), "--zstd-level 3".into())
        );
        assert!(found.shortest_time.reason.ends_with("Agave reads it, Firedancer does not"));
        assert_eq!(found.others.iter().map(|choice| choice.codec.as_str()).collect::<Vec<_>>(), ["bzip2"]);
        insta::assert_snapshot!(found.others[0].reason, @"41.7 % smaller than lz4 in 16.7 times its time; archive does not make it, and validators may not read it");
        assert_eq!(recommend(&rows[2..3]), None);
    }

    #[test]
    fn few_levels() {
        assert_eq!(recommend(&[]), None);
        let one = recommend(&rows(&PUBLISHED[..1])).expect("one level");
        assert_eq!((one.shortest_time.level, one.smallest_size.level, one.knee.level), (1, 1, 1));
        let two = recommend(&rows(&PUBLISHED[..2])).expect("two levels");
        assert_eq!((two.shortest_time.level, two.smallest_size.level, two.knee.level), (1, 2, 1));
    }

    proptest! {
        #[test]
        fn choices_are_the_best(table in proptest::collection::vec((1u64..100, 0.001f64..1e4), 1..22)) {
            let table: Vec<_> =
                table.iter().enumerate().map(|(at, (size, seconds))| (at as i32 + 1, *size, *seconds)).collect();
            let rows = rows(&table);
            let Recommendation { shortest_time, smallest_size, knee, .. } = recommend(&rows).expect("some levels");
            let of = |choice: &CodecChoice| rows.iter().find(|row| row.level == choice.level).expect("a measured level");
            let (fastest, smallest, knee) = (of(&shortest_time), of(&smallest_size), of(&knee));
            for row in &rows {
                prop_assert!(fastest.compress.median <= row.compress.median);
                prop_assert!(smallest.output_bytes <= row.output_bytes);
                let beats_knee = row.compress.median <= knee.compress.median && row.output_bytes < knee.output_bytes
                    || row.compress.median < knee.compress.median && row.output_bytes <= knee.output_bytes;
                prop_assert!(!beats_knee, "level {} beats the knee {}", row.level, knee.level);
            }
        }

        #[test]
        fn the_knee_is_free_of_scale(factor in 0.01f64..100.0) {
            let scaled: Vec<_> =
                PUBLISHED.iter().map(|(level, size, seconds)| (*level, *size, seconds * factor)).collect();
            prop_assert_eq!(recommend(&rows(&scaled)).map(|found| found.knee.level), Some(4));
        }
    }
}
