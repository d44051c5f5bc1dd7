//! What a report means for the frames of an archive: why they have 8 MiB, and when another size pays. Pure.

use {
    super::{FrameSizeRow, FramesReport},
    crate::{
        format::frames::{FRAME_SIZE_BYTES_DEFAULT, FRAME_SIZE_BYTES_MIN},
        levels::export::{show_bytes, show_short},
    },
};

/// Frames within so much of the smallest are as good as it.
const CLOSE_PERCENT: f64 = 1.0;

/// Sentences; none where too few sizes were measured.
pub fn sentences(report: &FramesReport) -> Vec<String> {
    let mut sentences = Vec::new();
    let grown: Vec<&FrameSizeRow> = report.sizes.iter().filter(|row| row.saving_percent() <= 0.0).collect();
    if let Some(row) = grown.last() {
        sentences.push(format!("Alone, units of {} save nothing: bundle them.", show_bytes(row.frame_size_bytes)));
    }
    let Some(default) = report.sizes.iter().find(|row| row.frame_size_bytes == FRAME_SIZE_BYTES_DEFAULT) else {
        return sentences;
    };
    let largest = report.sizes.last().filter(|row| row.frame_size_bytes > FRAME_SIZE_BYTES_DEFAULT);
    if let Some(largest) = largest {
        sentences.push(format!(
            "{} is the default: frames of {} are {} and take {:.1} times the memory per worker.",
            show_bytes(FRAME_SIZE_BYTES_DEFAULT),
            show_bytes(largest.frame_size_bytes),
            larger_or_smaller(largest, default),
            largest.worker_memory_bytes as f64 / (default.worker_memory_bytes as f64).max(1.0)
        ));
    }
    let is_close = |row: &&FrameSizeRow| {
        (FRAME_SIZE_BYTES_MIN..FRAME_SIZE_BYTES_DEFAULT).contains(&row.frame_size_bytes)
            && size_percent(row, default) < 100.0 + CLOSE_PERCENT
    };
    if let Some(row) = report.sizes.iter().find(is_close) {
        sentences.push(format!(
            "A smaller size pays where single storages are read, memory is short or workers outnumber frames: at {} frames \
             are {}, a worker takes {} instead of {}, and one frame is decompressed in {} instead of {}.",
            show_bytes(row.frame_size_bytes),
            larger_or_smaller(row, default),
            show_bytes(row.worker_memory_bytes),
            show_bytes(default.worker_memory_bytes),
            show_short(row.decompress.average_seconds),
            show_short(default.decompress.average_seconds)
        ));
    }
    sentences
}

/// Bytes for the same content, in percent of another row's.
fn size_percent(row: &FrameSizeRow, other: &FrameSizeRow) -> f64 {
    100.0 * other.ratio() / row.ratio().max(1e-9)
}

fn larger_or_smaller(row: &FrameSizeRow, other: &FrameSizeRow) -> String {
    let percent = size_percent(row, other);
    match percent >= 100.0 {
        true => format!("{:.2} % larger", percent - 100.0),
        false => format!("{:.2} % smaller", 100.0 - percent),
    }
}

#[cfg(test)]
mod tests {
    use {super::*, crate::levels::frames::show::tests::report};

    #[test]
    fn what_follows() {
        insta::assert_snapshot!(sentences(&report()).join("\n"));
        let few = FramesReport { sizes: Vec::new(), ..report() };
        assert_eq!(sentences(&few), Vec::<String>::new());
    }
}
