//! The table on the terminal: lines of at most 80 characters, each of which can be printed as soon as its row is ready.

use crate::levels::{
    LevelRow,
    export::{show_bytes, show_seconds},
};

/// Which columns there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Levels of zstd.
    Levels,
    /// Several codecs: their names take the place of the load, which tells little, since no codec leaves a core idle.
    Codecs,
}

/// Stands behind times that are compared by CPU time.
const CPU_MARK: char = '*';

/// What the mark behind compared times means, where a row has one.
pub fn mark_line(rows: &[LevelRow]) -> Option<String> {
    let is_marked = rows.iter().any(LevelRow::has_waited);
    is_marked.then(|| format!("{CPU_MARK} compared by CPU time: workers had to wait for a core (another load runs)"))
}

/// The lines above the rows. `reference` is what the columns `vs` are set against.
pub fn header_lines(shape: Shape, reference: &LevelRow) -> Vec<String> {
    let cells = |name: String, versus: String, load: &'static str| Cells {
        name,
        size: "size".to_string(),
        ratio: "ratio".to_string(),
        size_versus: versus.clone(),
        time: "time".to_string(),
        deviation: "+-".to_string(),
        speed: "MB/s".to_string(),
        time_versus: versus,
        load: load.to_string(),
        back_time: "time".to_string(),
        back_speed: "MB/s".to_string(),
        memory: "memory".to_string(),
    };
    let groups = |indent: usize, compress: &str| format!("{:indent$}{compress} - decompress -", "");
    match shape {
        Shape::Levels => {
            let versus = format!("vs {}", reference.level);
            vec![groups(28, "---------- compress ----------"), cells("level".to_string(), versus, "CPU").line(shape)]
        }
        Shape::Codecs => vec![
            format!("  vs: against {}", reference.label()),
            groups(34, "------- compress -------"),
            cells("codec".to_string(), "vs".to_string(), "").line(shape),
        ],
    }
}

/// The line of a row.
pub fn row_line(shape: Shape, row: &LevelRow, reference: &LevelRow) -> String {
    let cells = Cells {
        name: if shape == Shape::Levels { row.level.to_string() } else { row.label() },
        size: show_bytes(row.output_bytes),
        ratio: fixed(row.ratio(), 5),
        size_versus: format!("{}%", fixed_to(row.size_percent_of(reference), 5, 1)),
        time: show_seconds(row.compress.median),
        deviation: format!("{:.0}%", row.compress.deviation_percent()),
        speed: fixed(row.compress_mb_per_second(), 3),
        time_versus: {
            let mark = if row.is_by_cpu_against(reference) { CPU_MARK } else { 'x' };
            format!("{}{mark}", fixed(row.time_factor_of(reference), 4))
        },
        load: format!("{:.0}%", row.cpu_percent),
        back_time: show_seconds(row.decompress.median),
        back_speed: fixed(row.decompress_mb_per_second(), 3),
        memory: show_bytes(row.peak_memory_bytes),
    };
    cells.line(shape)
}

/// One line, cell by cell.
struct Cells {
    name: String,
    size: String,
    ratio: String,
    size_versus: String,
    time: String,
    deviation: String,
    speed: String,
    time_versus: String,
    load: String,
    back_time: String,
    back_speed: String,
    memory: String,
}

impl Cells {
    fn line(&self, shape: Shape) -> String {
        let Self { name, size, ratio, size_versus, time, deviation, speed, time_versus, load, .. } = self;
        let Self { back_time, back_speed, memory, .. } = self;
        let start = match shape {
            Shape::Levels => format!("{name:>5}"),
            Shape::Codecs => format!("{name:<11}"),
        };
        let load = if shape == Shape::Levels { format!(" {load:>5}") } else { String::new() };
        format!(
            "{start} {size:>8} {ratio:>5} {size_versus:>6} {time:>7} {deviation:>3} {speed:>5} {time_versus:>5}{load} \
             {back_time:>7} {back_speed:>5} {memory:>8}"
        )
    }
}

/// At most so many decimals as fit the width.
fn fixed_to(value: f64, width: usize, decimals_max: usize) -> String {
    let fits = |decimals: &usize| format!("{value:.decimals$}").len() <= width;
    let decimals = (0..=decimals_max).rev().find(fits).unwrap_or(0);
    format!("{value:.decimals$}")
}

/// As many decimals, up to three, as fit the width.
fn fixed(value: f64, width: usize) -> String {
    fixed_to(value, width, 3)
}

#[cfg(test)]
mod tests {
    use {super::*, crate::levels::export::tests::rows};

    #[test]
    fn fixed_numbers() {
        let rows = rows();
        let mut lines = header_lines(Shape::Levels, &rows[0]);
        lines.extend(rows.iter().map(|row| row_line(Shape::Levels, row, &rows[0])));
        assert!(lines.iter().all(|line| line.len() <= 80), "{}", lines.join("\n"));
        insta::assert_snapshot!(lines.join("\n"));
    }

    #[test]
    fn codecs_beside_each_other() {
        let mut rows = rows();
        for (row, (codec, level)) in
            rows.iter_mut().zip([("zstd", 1), ("zstd", -1000), ("lz4hc", 12), ("lz4", 0), ("none", 0)])
        {
            (row.codec, row.level) = (codec.to_string(), level);
        }
        rows[4].compress = crate::levels::statistics::Summary { median: 0.05, deviation: 0.001, ..rows[4].compress };
        (rows[4].output_bytes, rows[4].peak_memory_bytes) = (1_000_000_000, 0);
        let mut lines = header_lines(Shape::Codecs, &rows[0]);
        lines.extend(rows.iter().map(|row| row_line(Shape::Codecs, row, &rows[0])));
        assert!(lines.iter().all(|line| line.len() <= 80), "{}", lines.join("\n"));
        insta::assert_snapshot!(lines.join("\n"));
    }

    #[test]
    fn rows_under_load_are_marked() {
        use crate::levels::statistics::Warning;
        let mut rows = rows();
        assert_eq!(mark_line(&rows), None);
        rows[1].warnings = vec![Warning::OtherLoad { lost_percent: 60.0 }];
        rows[1].compress_cpu_seconds = 3.0 * rows[0].compress_cpu_seconds;
        assert!(row_line(Shape::Levels, &rows[1], &rows[0]).contains(" 3.00* "));
        assert!(!row_line(Shape::Levels, &rows[2], &rows[0]).contains('*'));
        assert!(mark_line(&rows).is_some_and(|line| line.len() <= 80));
    }

    #[test]
    fn extremes_keep_their_columns_apart() {
        let reference = &rows()[0];
        let mut row = reference.clone();
        row.level = -1000;
        row.output_bytes = 10;
        row.compress.median = 98_765.0;
        row.decompress.median = 0.02;
        row.cpu_percent = 6400.0;
        assert_eq!(
            row_line(Shape::Levels, &row, reference).split_whitespace().count(),
            16,
            "{}",
            row_line(Shape::Levels, &row, reference)
        );
    }
}
