use std::sync::atomic::AtomicU64;

use slotpress_base::{ErrorKind, NoProgress};

use super::*;
use crate::levels::input::{ContentFrame, InputKind};

fn make_input(frames: usize) -> Input {
    let frame =
        |number: usize| ContentFrame::new((0..70_000).map(|index| ((index / 7 + number) % 251) as u8).collect());
    let frames: Vec<_> = (0..frames).map(frame).collect();
    let total_bytes = frames.len() as u64 * 70_000;
    let total_frames = frames.len() as u64;
    Input { kind: InputKind::File, total_bytes, total_frames, frames }
}

fn make_options(threads: usize) -> MeasureOptions {
    MeasureOptions::new("").repeat(2).threads(threads)
}

fn measure(codecs: &[FrameCodec], threads: usize, progress: &dyn Progress) -> (Vec<LevelRow>, Result<()>) {
    let mut rows = Vec::new();
    let result = measure_levels(&make_input(5), &make_options(threads).codecs(codecs.to_vec()), progress, &mut rows);
    (rows, result.map(|unmeasured| assert!(unmeasured.is_empty())))
}

#[test]
fn sizes_do_not_depend_on_threads() {
    let codecs = [1, -3, 12].map(FrameCodec::zstd);
    let (one_thread, result) = measure(&codecs, 1, &NoProgress);
    result.expect("measured");
    let (nine_threads, result) = measure(&codecs, 9, &NoProgress);
    result.expect("measured");
    let sizes = |rows: &[LevelRow]| rows.iter().map(|row| (row.codec.level, row.output_bytes)).collect::<Vec<_>>();
    assert_eq!(sizes(&one_thread), sizes(&nine_threads));
    assert_eq!((one_thread[0].input_bytes, one_thread[0].compress.runs), (350_000, 2));
    assert!(one_thread[2].peak_memory_bytes > 140_000);
    assert!(nine_threads[2].peak_memory_bytes > one_thread[2].peak_memory_bytes);
    assert_eq!((one_thread[0].size_error_percent, one_thread[0].estimated_output_bytes), (None, None));
}

#[test]
fn a_frame_that_does_not_round_trip_is_an_error() {
    let content = [7; 1000];
    let copying_codec = FrameCodec { name: "none", level: 0 };
    let batch = Batch::new(&content, None);
    let mut worker = Worker::new(copying_codec).expect("a worker");
    worker.encode(&batch).expect("copied");
    worker.check(&batch).expect("the same bytes");
    let mut error = || worker.check(&batch).expect_err("not the same bytes").to_string();
    batch.compressed.lock().bytes[500] ^= 4;
    assert_eq!(error(), "none does not round-trip: a frame of 0.98 KiB comes back as different bytes");
    batch.compressed.lock().ends[0] = 999;
    let message = "a frame of 0.98 KiB cannot be decompressed (the frame holds 999 bytes, not the 1000 stated)";
    assert_eq!(error(), format!("none does not round-trip: {message}"));
}

/// Interrupts after a number of checks.
pub(crate) struct StopAfter(pub(crate) AtomicU64);

impl Progress for StopAfter {
    fn is_interrupted(&self) -> bool {
        self.0.fetch_update(Relaxed, Relaxed, |checks| checks.checked_sub(1)).is_err()
    }
}

#[test]
fn an_interruption_keeps_what_was_measured() {
    // A level takes 5 frames x (1 warm-up, 1 check, 2 + 2 runs) = 30 checks.
    let (rows, result) = measure(&[1, 2].map(FrameCodec::zstd), 1, &StopAfter(AtomicU64::new(50)));
    assert_eq!(rows.len(), 1);
    assert_eq!(result.expect_err("interrupted").kind(), ErrorKind::Interrupted);
}

/// With a budget of zero, only one run of the first codec is made.
#[test]
fn a_budget_bounds_the_time() {
    let codecs = [1, 2, 3].map(FrameCodec::zstd);
    let mut rows = Vec::new();
    let options = make_options(1).codecs(codecs.to_vec()).budget(Duration::ZERO);
    let unmeasured = measure_levels(&make_input(5), &options, &NoProgress, &mut rows);
    assert_eq!(unmeasured.expect("no error").iter().map(|codec| codec.level).collect::<Vec<_>>(), [2, 3]);
    assert_eq!(rows.len(), 1);
    assert_eq!((rows[0].compress.runs, rows[0].decompress.runs), (1, 1));
    assert!(
        rows[0].warnings.iter().any(|warning| warning.text.starts_with("measured 1 of 2 times")),
        "{:?}",
        rows[0].warnings
    );
}

#[test]
fn a_file_has_no_records_to_cluster() {
    let clustered = FrameCodec { name: crate::levels::codec::CLUSTERED_CODEC, ..FrameCodec::zstd(1) };
    let (rows, result) = measure(&[FrameCodec::zstd(1), clustered], 1, &NoProgress);
    assert!(rows.is_empty());
    assert!(result.expect_err("refused").to_string().contains("no records to cluster"));
}
