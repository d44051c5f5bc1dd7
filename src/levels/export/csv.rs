//! Comma-separated values: one line per level, times in seconds, exact bytes.

use {
    crate::levels::{LevelRow, in_order, reference_row},
    std::fmt::Write,
};

const COLUMNS: [&str; 23] = [
    "codec",
    "level",
    "input_bytes",
    "output_bytes",
    "ratio",
    "size_percent",
    "compress_seconds",
    "compress_seconds_min",
    "compress_seconds_max",
    "compress_runs",
    "compress_mb_per_second",
    "compress_time_factor",
    "decompress_seconds",
    "decompress_seconds_min",
    "decompress_seconds_max",
    "decompress_runs",
    "decompress_mb_per_second",
    "cpu_percent",
    "decompress_cpu_percent",
    "peak_memory_bytes",
    "size_error_percent",
    "estimated_output_bytes",
    "warnings",
];

/// The whole file.
pub fn csv(rows: &[LevelRow]) -> String {
    let mut text = COLUMNS.join(",") + "\n";
    let Some(reference) = reference_row(rows) else { return text };
    for row in in_order(rows) {
        let (compress, decompress) = (&row.compress, &row.decompress);
        let error = row.size_error_percent.map(|error| format!("{error:.3}")).unwrap_or_default();
        let estimate = row.estimated_output_bytes.map(|bytes| bytes.to_string()).unwrap_or_default();
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{},{},{},{},{:.4},{:.3},{:.6},{:.6},{:.6},{},{:.2},{:.4},{:.6},{:.6},{:.6},{},{:.2},{:.1},{:.1},{},{error},{estimate},{}",
            row.codec,
            row.level,
            row.input_bytes,
            row.output_bytes,
            row.ratio(),
            row.size_percent_of(reference),
            compress.median,
            compress.min,
            compress.max,
            compress.runs,
            row.compress_mb_per_second(),
            row.time_factor_of(reference),
            decompress.median,
            decompress.min,
            decompress.max,
            decompress.runs,
            row.decompress_mb_per_second(),
            row.cpu_percent,
            row.decompress_cpu_percent,
            row.peak_memory_bytes,
            row.warnings.len(),
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fixed_numbers() {
        insta::assert_snapshot!(csv(&crate::levels::export::tests::rows()[..2]));
        assert!(csv(&[]).starts_with("codec,level,"));
    }

    #[test]
    fn as_many_values_as_columns() {
        for line in csv(&crate::levels::export::tests::rows()).lines() {
            assert_eq!(line.split(',').count(), COLUMNS.len(), "{line}");
        }
    }
}
