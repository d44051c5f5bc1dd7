//! Lines as `zstd -b1 -e10` prints them, for scripts that read those. As there, speeds are those of the fastest run,
//! and of a long name the end is shown.

use crate::levels::{LevelRow, speed};

/// How much of a name is shown.
const NAME_CHARS: usize = 17;

/// The line of a row.
pub fn zstd_line(name: &str, row: &LevelRow) -> String {
    let ratio = row.ratio();
    let ratio_digits = 1 + usize::from(ratio < 100.0) + usize::from(ratio < 10.0);
    let compress = speed(row.input_bytes, row.compress.min);
    let compress_digits = if compress < 10.0 { 2 } else { 1 };
    let name: String = name.chars().skip(name.chars().count().saturating_sub(NAME_CHARS)).collect();
    format!(
        "{:2}#{:<NAME_CHARS$} :{:10} ->{:10} (x{ratio:5.ratio_digits$}), {compress:6.compress_digits$} MB/s, {:6.1} MB/s",
        row.level,
        name,
        row.input_bytes,
        row.output_bytes,
        speed(row.input_bytes, row.decompress.min)
    )
}

#[cfg(test)]
mod tests {
    use {super::*, crate::levels::statistics::Summary};

    /// A line of `zstd -b`, and what a row of the same numbers becomes.
    #[test]
    fn the_same_line_as_zstd() {
        let at =
            |speed: f64| Summary { median: 9.0, min: 5_036_032.0 / 1e6 / speed, max: 9.0, deviation: 0.0, runs: 3 };
        let row = LevelRow {
            level: 2,
            input_bytes: 5_036_032,
            output_bytes: 1_658_272,
            compress: at(209.6),
            decompress: at(1029.3),
            ..crate::levels::report::tests::row(2)
        };
        assert_eq!(
            zstd_line("lv-3500.tar", &row),
            " 2#lv-3500.tar       :   5036032 ->   1658272 (x3.037),  209.6 MB/s, 1029.3 MB/s"
        );
        assert!(zstd_line("snapshot-1-3nttqzXdTicZa.tar", &row).starts_with(" 2#3nttqzXdTicZa.tar : "));
    }
}
