//! Choosing a level: for the shortest archive time, for the smallest size, and the best of both.
//!
//! The best of both is the knee of the curve of size against time. Only levels that no other beats in both count. The
//! curve is drawn over the logarithm of time, since what matters is how many times longer a level takes; the knee is the
//! point that lies furthest below the straight line from the fastest to the smallest level.

use {crate::levels::LevelRow, serde::Serialize};

/// A level, and why.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Choice {
    /// The codec.
    pub codec: String,
    /// The level.
    pub level: i32,
    /// Why, in words.
    pub reason: String,
}

/// Levels to choose from, by what one wants.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Recommendation {
    /// For the shortest archive time.
    pub shortest_time: Choice,
    /// For the smallest archive.
    pub smallest_size: Choice,
    /// The best of both: the knee of the curve.
    pub knee: Choice,
}

/// Recommends levels; `None` of none.
pub fn recommend(rows: &[LevelRow]) -> Option<Recommendation> {
    let curve = pareto_curve(rows);
    let (fastest, smallest) = (*curve.first()?, *curve.last()?);
    let knee = knee_of(&curve).unwrap_or(fastest);
    Some(Recommendation {
        shortest_time: choice(fastest, shortest_reason(fastest, rows)),
        smallest_size: choice(smallest, smallest_reason(smallest, fastest)),
        knee: choice(knee, knee_reason(knee, fastest, &curve)),
    })
}

/// The levels that no other beats in both time and size, from the fastest to the smallest.
pub fn pareto_curve(rows: &[LevelRow]) -> Vec<&LevelRow> {
    let mut sorted: Vec<&LevelRow> = rows.iter().collect();
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

/// The point furthest below the line between the ends; `None` when none is below it.
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

fn choice(row: &LevelRow, reason: String) -> Choice {
    Choice { codec: row.codec.clone(), level: row.level, reason }
}

fn shortest_reason(fastest: &LevelRow, rows: &[LevelRow]) -> String {
    let speed = fastest.compress_mb_per_second();
    let mut reason = format!("no measured level is faster ({speed:.0} MB/s)");
    let rivals: Vec<String> = rows
        .iter()
        .filter(|row| row.level != fastest.level && is_within_deviation(row, fastest))
        .map(|row| row.level.to_string())
        .collect();
    if !rivals.is_empty() {
        let plural = if rivals.len() == 1 { "" } else { "s" };
        reason += &format!("; level{plural} {} cannot be told from it", rivals.join(", "));
    }
    reason
}

/// Whether two times differ by less than their runs do.
fn is_within_deviation(row: &LevelRow, other: &LevelRow) -> bool {
    row.compress.median - other.compress.median <= row.compress.deviation + other.compress.deviation
}

fn smallest_reason(smallest: &LevelRow, fastest: &LevelRow) -> String {
    if smallest.level == fastest.level {
        return "no measured level is smaller, and none is faster".to_string();
    }
    format!("no measured level is smaller ({})", against(smallest, fastest))
}

fn knee_reason(knee: &LevelRow, fastest: &LevelRow, curve: &[&LevelRow]) -> String {
    if curve.len() == 1 {
        return "every other measured level is slower and no smaller".to_string();
    }
    if let [_, smaller] = curve {
        return format!("two levels make no curve; level {} is {}", smaller.level, against_plain(smaller, fastest));
    }
    if knee.level == fastest.level {
        return "the levels that are smaller save little for the time that they take".to_string();
    }
    let mut reason = against(knee, fastest);
    if let Some(next) = curve.iter().skip_while(|row| row.level != knee.level).nth(1) {
        reason += &format!("; beyond it, level {} is only {}", next.level, against_plain(next, knee));
    }
    reason
}

/// `3.1 % smaller than level 1 in 1.6 times its time`
fn against(row: &LevelRow, other: &LevelRow) -> String {
    let saved = 100.0 - row.size_percent_of(other);
    format!("{saved:.1} % smaller than level {} in {:.2} times its time", other.level, row.time_factor_of(other))
}

/// `0.8 % smaller in 1.2 times the time`
fn against_plain(row: &LevelRow, other: &LevelRow) -> String {
    let saved = 100.0 - row.size_percent_of(other);
    format!("{saved:.1} % smaller in {:.2} times the time", row.time_factor_of(other))
}

#[cfg(test)]
mod tests {
    use {
        super::*,
        crate::levels::{export::tests::row, statistics::Summary},
        proptest::prelude::*,
    };

    /// The published table of Agave pull request 2729 (docs/levels.md): level, size in GB, seconds.
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
        let Recommendation { shortest_time, smallest_size, knee } = recommendation;
        assert_eq!((shortest_time.level, smallest_size.level, knee.level), (1, 10, 4));
        insta::assert_snapshot!(smallest_size.reason, @"no measured level is smaller (8.0 % smaller than level 1 in 6.78 times its time)");
        insta::assert_snapshot!(knee.reason, @"5.7 % smaller than level 1 in 1.92 times its time; beyond it, level 7 is only 1.2 % smaller in 2.49 times the time");
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
            let Recommendation { shortest_time, smallest_size, knee } = recommend(&rows).expect("some levels");
            let of = |choice: &Choice| rows.iter().find(|row| row.level == choice.level).expect("a measured level");
            let (fastest, smallest, knee) = (of(&shortest_time), of(&smallest_size), of(&knee));
            for row in &rows {
                prop_assert!(fastest.compress.median <= row.compress.median);
                prop_assert!(smallest.output_bytes <= row.output_bytes);
                let beats_knee = row.compress.median <= knee.compress.median && row.output_bytes < knee.output_bytes
                    || row.compress.median < knee.compress.median && row.output_bytes <= knee.output_bytes;
                prop_assert!(!beats_knee, "level {} beats the knee {}", row.level, knee.level);
            }
        }

        /// The units of time do not matter.
        #[test]
        fn the_knee_is_free_of_scale(factor in 0.01f64..100.0) {
            let scaled: Vec<_> =
                PUBLISHED.iter().map(|(level, size, seconds)| (*level, *size, seconds * factor)).collect();
            prop_assert_eq!(recommend(&rows(&scaled)).map(|found| found.knee.level), Some(4));
        }
    }
}
