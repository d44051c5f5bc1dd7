//! JSON lines: one object per frame size, then one per bundle. Field names are stable.

use {
    crate::levels::frames::{BundleRow, BundleUnit, FrameSizeRow, FramesReport},
    serde::Serialize,
};

/// A line of the report.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum FramesLine<'a> {
    /// Frames of one size.
    FrameSize {
        /// The codec.
        codec: &'a str,
        /// Its level.
        level: i32,
        /// What was measured.
        #[serde(flatten)]
        row: &'a FrameSizeRow,
        /// Content for each byte of output.
        ratio: f64,
        /// Of the content.
        saving_percent: f64,
        /// Megabytes (10^6 bytes) of content per second.
        compress_mb_per_second: f64,
        /// The same for decompressing.
        decompress_mb_per_second: f64,
        /// What is in every time.
        timer_seconds: f64,
    },
    /// So many units per frame.
    Bundle {
        /// The codec.
        codec: &'a str,
        /// Its level.
        level: i32,
        /// What is bundled.
        unit: Option<&'a BundleUnit>,
        /// What was measured.
        #[serde(flatten)]
        row: &'a BundleRow,
        /// Of the content.
        saving_percent: f64,
        /// Of what it takes with one unit per frame.
        saving_against_one_percent: f64,
    },
}

/// All lines, in their order.
pub fn lines(report: &FramesReport) -> Vec<FramesLine<'_>> {
    let (codec, level) = (report.codec.as_str(), report.level);
    let sizes = report.sizes.iter().map(|row| FramesLine::FrameSize {
        codec,
        level,
        row,
        ratio: row.ratio(),
        saving_percent: row.saving_percent(),
        compress_mb_per_second: row.compress_mb_per_second(),
        decompress_mb_per_second: row.decompress_mb_per_second(),
        timer_seconds: report.timer_seconds,
    });
    let bundles = report.bundles.iter().map(|row| FramesLine::Bundle {
        codec,
        level,
        unit: report.bundle_unit.as_ref(),
        row,
        saving_percent: row.saving_percent(),
        saving_against_one_percent: row.saving_against_one_percent(),
    });
    sizes.chain(bundles).collect()
}

#[cfg(test)]
mod tests {
    use {super::*, crate::levels::frames::export::tests::report};

    #[test]
    fn fixed_numbers() {
        let mut report = report();
        report.sizes.drain(1..5);
        let lines: Vec<String> =
            lines(&report).iter().map(|line| serde_json::to_string(line).expect("plain")).collect();
        insta::assert_snapshot!(lines.join("\n"));
    }
}
