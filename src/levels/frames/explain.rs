//! Conclusions from the rows: about the default frame size, and when another one is better.

use slotpress_base::quantity;

use super::{FrameSizeRow, FramesReport};

/// The default of `archive`.
pub const DEFAULT_FRAME_SIZE_BYTES: u64 = 8 << 20;

/// Frames of this size hold few accounts, and are still much larger than one account.
const RANDOM_ACCESS_BYTES: u64 = 128 << 10;

/// A few sentences; none if there is nothing to compare.
pub fn explain(report: &FramesReport) -> Vec<String> {
    let rows = &report.sizes;
    let at = |bytes: u64| rows.iter().find(|row| row.frame_size_bytes == bytes);
    let size = |row: &FrameSizeRow| quantity::bytes(row.frame_size_bytes);
    let memory = |row: &FrameSizeRow| quantity::bytes(row.row.peak_memory_bytes);
    let (default, largest) = (at(DEFAULT_FRAME_SIZE_BYTES), rows.last());
    let is_smaller = |a: &FrameSizeRow, b: &FrameSizeRow| a.frame_size_bytes < b.frame_size_bytes;
    let mut sentences: Vec<String> = growing(rows).into_iter().collect();
    if let (Some(default), Some(largest)) = (default, largest)
        && is_smaller(default, largest)
    {
        sentences.push(format!(
            "{} is the default of archives: {} than at {}, with {} of memory for each worker instead of {}.",
            size(default),
            larger(default, largest),
            size(largest),
            memory(default),
            memory(largest),
        ));
    }
    if let (Some(small), Some(large)) = (at(RANDOM_ACCESS_BYTES), default.or(largest))
        && is_smaller(small, large)
    {
        sentences.push(random_access(small, large));
    }
    let Some(default) = default else { return sentences };
    if let Some(half) = rows.iter().rev().find(|row| is_smaller(row, default)) {
        sentences.push(format!(
            "The whole input makes some {} frames of {}: more workers than that have nothing to do, and some wait for \
             the last frame with few more. There, and for small ledgers, {} pays ({}).",
            quantity::count(report.total_bytes.div_ceil(DEFAULT_FRAME_SIZE_BYTES)),
            size(default),
            size(half),
            larger(half, default),
        ));
    }
    sentences
}

/// The sizes that save nothing.
fn growing(rows: &[FrameSizeRow]) -> Option<String> {
    let last = rows.iter().take_while(|row| row.row.saving_percent() <= 0.0).last()?;
    let below = if last.frame_size_bytes == rows.first()?.frame_size_bytes { "" } else { " and less" };
    Some(format!(
        "Frames of {}{below} save nothing: the overhead of a frame is larger than the saving.",
        quantity::bytes(last.frame_size_bytes)
    ))
}

/// The frame size for reading single accounts, which decodes one frame.
fn random_access(small: &FrameSizeRow, large: &FrameSizeRow) -> String {
    let time =
        |row: &FrameSizeRow| quantity::time(row.decompress.p50_seconds.unwrap_or(row.decompress.average_seconds));
    format!(
        "Where single accounts are read, {} pays: a frame decodes in {} instead of {}, and the archive gets {}.",
        quantity::bytes(small.frame_size_bytes),
        time(small),
        time(large),
        larger(small, large),
    )
}

/// The difference in size of the same content between two frame sizes.
fn larger(row: &FrameSizeRow, than: &FrameSizeRow) -> String {
    let percent = 100.0 * (than.row.ratio() / row.row.ratio().max(1e-12) - 1.0);
    match percent {
        percent if percent >= 0.05 => format!("{percent:.1} % larger"),
        percent if percent <= -0.05 => format!("{:.1} % smaller", -percent),
        _ => "no larger".to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::levels::frames::view::tests::report;

    #[test]
    fn sentences_follow_from_rows() {
        let sentences = explain(&report());
        assert_eq!(sentences.len(), 4, "{sentences:#?}");
        assert!(sentences[0].starts_with("Frames of 32 B save nothing"), "{sentences:#?}");
        let mut small = report();
        small.sizes.retain(|row| (128..8 << 20).contains(&row.frame_size_bytes));
        let sentences = explain(&small);
        assert!(sentences.len() == 1 && sentences[0].starts_with("Where single accounts"), "{sentences:#?}");
        small.sizes.clear();
        assert!(explain(&small).is_empty());
    }

    #[test]
    fn comparisons() {
        let report = report();
        let mut row = report.sizes[1].clone();
        assert_eq!(larger(&row, &report.sizes[1]), "no larger");
        row.row.output_bytes = row.row.output_bytes * 11 / 10;
        assert_eq!(larger(&row, &report.sizes[1]), "10.0 % larger");
        assert_eq!(larger(&report.sizes[1], &row), "9.1 % smaller");
    }
}
