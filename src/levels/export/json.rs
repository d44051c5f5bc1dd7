//! JSON lines: one object per level as soon as it is measured, then the recommendation. Field names are stable.

use {
    crate::levels::{LevelRow, recommend::Recommendation},
    serde::Serialize,
};

/// A level.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename = "level")]
pub struct LevelLine<'a> {
    codec: &'a str,
    level: i32,
    input_bytes: u64,
    output_bytes: u64,
    ratio: f64,
    size_percent: f64,
    compress_seconds: f64,
    compress_seconds_min: f64,
    compress_seconds_max: f64,
    compress_runs: usize,
    compress_mb_per_second: f64,
    compress_time_factor: f64,
    decompress_seconds: f64,
    decompress_seconds_min: f64,
    decompress_seconds_max: f64,
    decompress_runs: usize,
    decompress_mb_per_second: f64,
    cpu_percent: f64,
    decompress_cpu_percent: f64,
    peak_memory_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    size_error_percent: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    estimated_output_bytes: Option<u64>,
    warnings: Vec<String>,
}

impl<'a> LevelLine<'a> {
    /// The line of a row; `reference` is the level that it is set against.
    pub fn new(row: &'a LevelRow, reference: &LevelRow) -> Self {
        Self {
            codec: &row.codec,
            level: row.level,
            input_bytes: row.input_bytes,
            output_bytes: row.output_bytes,
            ratio: row.ratio(),
            size_percent: row.size_percent_of(reference),
            compress_seconds: row.compress.median,
            compress_seconds_min: row.compress.min,
            compress_seconds_max: row.compress.max,
            compress_runs: row.compress.runs,
            compress_mb_per_second: row.compress_mb_per_second(),
            compress_time_factor: row.time_factor_of(reference),
            decompress_seconds: row.decompress.median,
            decompress_seconds_min: row.decompress.min,
            decompress_seconds_max: row.decompress.max,
            decompress_runs: row.decompress.runs,
            decompress_mb_per_second: row.decompress_mb_per_second(),
            cpu_percent: row.cpu_percent,
            decompress_cpu_percent: row.decompress_cpu_percent,
            peak_memory_bytes: row.peak_memory_bytes,
            size_error_percent: row.size_error_percent,
            estimated_output_bytes: row.estimated_output_bytes,
            warnings: row.warnings.iter().map(ToString::to_string).collect(),
        }
    }
}

/// What is recommended.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename = "recommendation")]
pub struct RecommendationLine<'a> {
    /// The recommendation.
    #[serde(flatten)]
    pub recommendation: &'a Recommendation,
}

#[cfg(test)]
mod tests {
    use {
        super::*,
        crate::levels::{export::tests::rows, recommend::recommend},
    };

    #[test]
    fn fixed_numbers() {
        let rows = rows();
        insta::assert_snapshot!(serde_json::to_string_pretty(&LevelLine::new(&rows[2], &rows[0])).expect("plain"));
        let recommendation = recommend(&rows).expect("some rows");
        let line = RecommendationLine { recommendation: &recommendation };
        insta::assert_snapshot!(serde_json::to_string_pretty(&line).expect("plain"));
    }
}
