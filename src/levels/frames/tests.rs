use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use slotpress_base::{ErrorKind, NoProgress};

use super::*;
use crate::levels::codec::list::parse_codecs;
use crate::levels::input::{ContentFrame, InputKind};

/// Lines of similar text, in frames of the given lengths.
fn input(frame_lengths: &[usize]) -> Input {
    let text: Vec<u8> = (0..20_000u32)
        .flat_map(|number| format!("slot={} leader=node-{}\n", 9_000 + number, number % 37).into_bytes())
        .collect();
    let mut rest = text.as_slice();
    let mut frames = Vec::new();
    for length in frame_lengths {
        let (frame, after) = rest.split_at(*length);
        frames.push(ContentFrame::new(frame.to_vec()));
        rest = after;
    }
    let total_bytes = frame_lengths.iter().sum::<usize>() as u64;
    let total_frames = frames.len() as u64;
    Input { kind: InputKind::File, total_bytes, total_frames, frames }
}

fn measured(
    input: &Input,
    codec: FrameCodec,
    sizes: &[u64],
    progress: &dyn Progress,
) -> (Vec<FrameSizeRow>, Result<()>) {
    let mut rows = Vec::new();
    let result = measure_frames(input, codec, sizes, Duration::ZERO, progress, &mut rows);
    (rows, result)
}

fn codec(text: &str) -> FrameCodec {
    parse_codecs(text, &[1]).expect("a codec")[0]
}

#[test]
fn rows_add_up() {
    let input = input(&[10_000, 10_000, 4_999, 10_000]);
    let (rows, result) = measured(&input, codec("zstd:1"), &[32, 1000, 16_384, 65_536], &NoProgress);
    result.expect("measured");
    // 64 KiB would give the same frames as 16 KiB, which holds each whole frame; the short frame is
    // left out.
    let shapes: Vec<_> = rows.iter().map(|row| (row.frame_size_bytes, row.frames, row.row.input_bytes)).collect();
    assert_eq!(shapes, [(32, 1092, 1092 * 32), (1000, 34, 34_000), (16_384, 3, 30_000)]);
    for row in &rows {
        assert_eq!((row.compress.samples, row.decompress.samples), (row.frames, row.frames), "one pass");
        assert!(row.compress.min_seconds <= row.compress.average_seconds, "{row:?}");
        assert!(row.compress.average_seconds <= row.compress.max_seconds, "{row:?}");
        assert!(row.bytes_per_second(&row.compress) > 0.0 && row.bytes_per_second(&row.decompress) > 0.0, "{row:?}");
        assert!(row.row.peak_memory_bytes > 2 * row.row.input_bytes / row.frames, "{row:?}");
    }
    assert!(rows[0].row.saving_percent() < 0.0, "32 bytes grow");
    assert!(rows[1].row.ratio() < rows[2].row.ratio());
}

#[test]
fn sizes_are_those_of_the_codec() {
    let input = input(&[10_000, 10_000]);
    let (rows, result) = measured(&input, codec("zstd:3"), &[2500], &NoProgress);
    result.expect("measured");
    const CHECKSUM_BYTES: usize = 4;
    let size = |content: &[u8]| (zstd::bulk::compress(content, 3).expect("compressed").len() + CHECKSUM_BYTES) as u64;
    let sum =
        |chunk: usize| -> u64 { input.frames.iter().flat_map(|frame| frame.content.chunks(chunk)).map(size).sum() };
    assert_eq!(rows[0].row.output_bytes, sum(2500));
}

#[test]
fn every_size_gets_its_time() {
    let (input, mut rows) = (input(&[10_000]), Vec::new());
    let min_time = Duration::from_millis(20);
    measure_frames(&input, codec("none"), &[1000], min_time, &NoProgress, &mut rows).expect("measured");
    let row = &rows[0];
    assert!(row.frames == 10 && row.compress.samples > 10 && row.decompress.samples > 10, "{row:?}");
    assert_eq!((row.row.input_bytes, row.row.output_bytes), (10_000, 10_000));
}

#[test]
fn a_first_pass_that_takes_too_long_is_cut() {
    let (input, options) = (input(&[200_000]), MeasureOptions::new("").repeat(1).threads(1));
    let batches = Batch::of(&chosen_pieces(&input, 10, 500));
    let mut bench = Bench::new(batches, &options, &NoProgress);
    bench.each = Some(Duration::ZERO);
    let (row, [compress, _]) = bench.measure(codec("none"), "it".to_string()).expect("measured");
    assert!((1..500).contains(&bench.pieces()));
    assert_eq!((row.input_bytes, compress.samples), (bench.pieces() * 10, bench.pieces()));
}

#[test]
fn pieces_are_spread() {
    let input = input(&[100_000, 100_000]);
    let start = input.frames[0].content.as_ptr() as usize;
    let taken = chosen_pieces(&input, 100, 40);
    assert_eq!(taken.len(), 40);
    let of_first = taken.iter().filter(|piece| (0..100_000).contains(&(piece.as_ptr() as usize).wrapping_sub(start)));
    assert_eq!(of_first.count(), 20, "as many from each frame");
    assert_eq!(chosen_pieces(&input, 100, usize::MAX / 4000).len(), 2000);
}

/// Interrupts after a number of checks.
struct StopAfter(AtomicU64);

impl Progress for StopAfter {
    fn is_interrupted(&self) -> bool {
        self.0.fetch_sub(1, Relaxed) == 0
    }
}

#[test]
fn an_interruption_keeps_measured_sizes() {
    let stop = StopAfter(AtomicU64::new(4));
    let (rows, result) = measured(&input(&[8192]), codec("none"), &[32, 64], &stop);
    assert_eq!(result.map_err(|error| error.kind()), Err(ErrorKind::Interrupted));
    assert_eq!(rows.len(), 1, "four checks per size: one for each pass");
}

#[test]
fn other_bytes_are_an_error() {
    let flipping = FrameCodec { name: "flipping", level: 7 };
    let (rows, result) = measured(&input(&[10_000]), flipping, &[32], &NoProgress);
    let message = result.expect_err("refused").to_string();
    assert_eq!(message, "flipping 7 does not round-trip: a frame of 32 B comes back as other bytes");
    assert!(rows.is_empty());
}
