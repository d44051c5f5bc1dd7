use std::sync::atomic::AtomicU64;

use proptest::prelude::*;
use slotpress_base::{ErrorKind, NoProgress};
use slotpress_format::RecordHeader;
use slotpress_format::ledger::record::align8;

use super::*;
use crate::levels::codec::list::parse_codecs;
use crate::levels::input::{ContentFrame, InputKind};
use crate::levels::measure::tests::StopAfter;

/// Lines of similar text, in frames of the given lengths.
fn make_input(frame_lengths: &[usize]) -> Input {
    let text: Vec<u8> = (0..20_000u32)
        .flat_map(|number| format!("slot={} leader=node-{}\n", 9_000 + number, number % 37).into_bytes())
        .collect();
    let mut offset = 0;
    let mut frames = Vec::new();
    for length in frame_lengths {
        frames.push(ContentFrame::new(text[offset..offset + length].to_vec()));
        offset += length;
    }
    let total_bytes = frame_lengths.iter().sum::<usize>() as u64;
    let total_frames = frames.len() as u64;
    Input { kind: InputKind::File, total_bytes, total_frames, frames }
}

fn measure(input: &Input, codec: FrameCodec, sizes: &[u64], progress: &dyn Progress) -> (Vec<PieceRow>, Result<()>) {
    let mut rows = Vec::new();
    let result = measure_frames(input, codec, sizes, Duration::ZERO, progress, &mut rows);
    (rows, result)
}

fn parse_codec(text: &str) -> FrameCodec {
    parse_codecs(text, &[1]).expect("a codec")[0]
}

#[test]
fn frame_rows_add_up() {
    let input = make_input(&[10_000, 10_000, 4_999, 10_000]);
    let (rows, result) = measure(&input, parse_codec("zstd:1"), &[32, 1000, 16_384, 65_536], &NoProgress);
    result.expect("measured");
    // 64 KiB would produce the same frames as 16 KiB, which holds each whole frame; the short frame is
    // left out.
    let shapes: Vec<_> =
        rows.iter().map(|row| (row.size_bytes_min, row.measured_pieces, row.totals.input_bytes)).collect();
    assert_eq!(shapes, [(32, 1092, 1092 * 32), (1000, 34, 34_000), (16_384, 3, 30_000)]);
    for row in &rows {
        assert_eq!(
            (row.compress.samples, row.decompress.samples),
            (row.measured_pieces, row.measured_pieces),
            "one pass"
        );
        assert!(row.compress.min_seconds <= row.compress.average_seconds, "{row:?}");
        assert!(row.compress.average_seconds <= row.compress.max_seconds, "{row:?}");
        assert!(row.bytes_per_second(&row.compress) > 0.0, "{row:?}");
        assert!(row.bytes_per_second(&row.decompress) > 0.0, "{row:?}");
        assert!(row.totals.peak_memory_bytes > 2 * row.totals.input_bytes / row.measured_pieces, "{row:?}");
    }
    assert!(rows[0].totals.saving_percent() < 0.0, "32 bytes grow");
    assert!(rows[1].totals.ratio() < rows[2].totals.ratio());
}

#[test]
fn compressed_sizes_equal_those_of_the_library() {
    let input = make_input(&[10_000, 10_000]);
    let (rows, result) = measure(&input, parse_codec("zstd:3"), &[2500], &NoProgress);
    result.expect("measured");
    const CHECKSUM_BYTES: usize = 4;
    let size = |content: &[u8]| (zstd::bulk::compress(content, 3).expect("compressed").len() + CHECKSUM_BYTES) as u64;
    let sum =
        |chunk: usize| -> u64 { input.frames.iter().flat_map(|frame| frame.content.chunks(chunk)).map(size).sum() };
    assert_eq!(rows[0].totals.output_bytes, sum(2500));
}

#[test]
fn every_size_is_measured_for_the_minimum_time() {
    let input = make_input(&[10_000]);
    let mut rows = Vec::new();
    let min_time = Duration::from_millis(20);
    measure_frames(&input, parse_codec("none"), &[1000], min_time, &NoProgress, &mut rows).expect("measured");
    let row = &rows[0];
    assert!(row.measured_pieces == 10, "{row:?}");
    assert!(row.compress.samples > 10, "{row:?}");
    assert!(row.decompress.samples > 10, "{row:?}");
    assert_eq!((row.totals.input_bytes, row.totals.output_bytes), (10_000, 10_000));
}

#[test]
fn a_first_pass_that_takes_too_long_is_cut() {
    let input = make_input(&[200_000]);
    let options = MeasureOptions::new("").repeat(1).threads(1);
    let batches = Batch::from_pieces(&cut_frames(&input, 10, 500));
    let mut bench = CodecBench::new(batches, &options, &NoProgress);
    bench.timed_pass_max = Some(Duration::ZERO);
    let measurement = bench.measure(parse_codec("none"), "frames".to_string()).expect("measured");
    assert!((1..500).contains(&bench.piece_count()));
    assert_eq!(measurement.row.input_bytes, bench.piece_count() * 10);
    assert_eq!(measurement.compress.samples, bench.piece_count());
}

#[test]
fn pieces_are_spread_evenly() {
    let input = make_input(&[100_000, 100_000]);
    let start = input.frames[0].content.as_ptr() as usize;
    let pieces = cut_frames(&input, 100, 40);
    assert_eq!(pieces.len(), 40);
    let in_first_frame =
        pieces.iter().filter(|piece| (0..100_000).contains(&(piece.as_ptr() as usize).wrapping_sub(start)));
    assert_eq!(in_first_frame.count(), 20, "as many from each frame");
    assert_eq!(cut_frames(&input, 100, usize::MAX / 4000).len(), 2000);
}

#[test]
fn an_interruption_keeps_measured_sizes() {
    let stop = StopAfter(AtomicU64::new(4));
    let (rows, result) = measure(&make_input(&[8192]), parse_codec("none"), &[32, 64], &stop);
    assert_eq!(result.map_err(|error| error.kind()), Err(ErrorKind::Interrupted));
    assert_eq!(rows.len(), 1, "four checks per size: one for each pass");
}

/// A frame with storages that hold records with data of these lengths.
fn make_frame(storages: &[&[usize]]) -> ContentFrame {
    let mut frame = ContentFrame::new(Vec::new());
    for (number, lengths) in storages.iter().enumerate() {
        let start = frame.content.len();
        for length in *lengths {
            let mut record = vec![0; 136 + length];
            record[8..16].copy_from_slice(&(*length as u64).to_le_bytes());
            record[16] = 1 + number as u8;
            frame.content.extend_from_slice(&record);
            frame.content.resize(frame.content.len().next_multiple_of(8), 0);
        }
        frame.storages.push(start..frame.content.len());
    }
    frame
}

fn archive_input(frames: Vec<ContentFrame>) -> Input {
    let total_bytes = frames.iter().map(|frame| frame.content.len() as u64).sum();
    Input { kind: InputKind::Archive, total_bytes, total_frames: 9, frames }
}

fn measure_units(input: &Input, unit: SizeUnit, codec: FrameCodec) -> Result<Vec<PieceRow>> {
    measure_sizes(input, unit, codec, &MeasureOptions::new("").repeat(2), &NoProgress)
}

#[test]
fn records_are_counted_in_their_classes() {
    let input = archive_input(vec![make_frame(&[&[0, 0, 165, 900], &[5000]]), make_frame(&[&[0]])]);
    let rows = measure_units(&input, SizeUnit::Record, FrameCodec::zstd(1)).expect("measured");
    let pieces: Vec<_> = rows.iter().map(|row| (row.class, row.piece_count, row.measured_pieces)).collect();
    assert_eq!(pieces, [("0-250 B", 3, 3), ("250-500 B", 1, 1), ("1-10 KB", 2, 2), ("all", 6, 6)]);
    let (all, classes) = rows.split_last().expect("rows");
    assert_eq!(all.totals.input_bytes, 3 * 136 + 301 + 1036 + 5136);
    let sum: u64 = classes.iter().map(|row| row.totals.output_bytes).sum();
    assert!(all.totals.output_bytes == sum);
    assert!(sum > 0);
    assert!(sum < all.totals.input_bytes);
    assert!(all.totals.compress.median > 0.0);
    assert!(all.totals.saving_percent() > 50.0);
}

#[test]
fn whole_storages_are_measured() {
    let input = archive_input(vec![make_frame(&[&[0, 0, 165, 900], &[5000]])]);
    let rows = measure_units(&input, SizeUnit::Storage, FrameCodec::zstd(3)).expect("measured");
    let all = rows.last().expect("rows");
    assert_eq!((all.piece_count, rows[0].totals.codec.level), (2, 3));
}

#[test]
fn a_file_has_no_records() {
    let error = measure_units(&make_input(&[5000]), SizeUnit::Record, FrameCodec::zstd(1));
    assert_eq!(error.expect_err("no records").kind(), ErrorKind::Usage);
}

#[test]
fn large_classes_are_measured_in_part() {
    let lengths: Vec<usize> = (0..50_000).map(|number| number % 2).collect();
    let rows = measure_units(&archive_input(vec![make_frame(&[&lengths])]), SizeUnit::Record, parse_codec("none"))
        .expect("measured");
    assert_eq!((rows[0].piece_count, rows[0].measured_pieces), (50_000, CLASS_PIECES_MAX as u64));
    let large = vec![0; CLASS_BYTES_MAX];
    let frame = ContentFrame { storages: vec![0..large.len(); 3], ..ContentFrame::new(large) };
    let rows = measure_units(&archive_input(vec![frame]), SizeUnit::Storage, parse_codec("none")).expect("measured");
    assert_eq!((rows[0].piece_count, rows[0].measured_pieces), (3, 1));
}

#[test]
fn classes_include_their_lower_bounds() {
    assert_eq!(
        (class_index(0), class_index(249), class_index(250), class_index(u64::MAX)),
        (0, 0, 1, CLASSES.len() - 1)
    );
}

fn make_record(number: u8, data: &[u8]) -> Vec<u8> {
    let header = RecordHeader {
        write_version: 0,
        data_len: data.len() as u64,
        pubkey: [number; 32],
        lamports: 1,
        rent_epoch: 0,
        owner: [7; 32],
        executable: 0,
        padding: [0; 7],
        stored_hash: [0; 32],
    };
    [&header.to_bytes(), data].concat()
}

#[test]
fn records_of_a_storage_have_no_padding() {
    let contents: [&[u8]; 3] = [&[1, 2, 3], &[], &[9; 700]];
    let records: Vec<Vec<u8>> = contents.iter().zip(1..).map(|(data, number)| make_record(number, data)).collect();
    let padded = |mut bytes: Vec<u8>| {
        bytes.resize(align8(bytes.len() as u64) as usize, 0);
        bytes
    };
    let storage: Vec<u8> = records.iter().cloned().flat_map(padded).collect();
    assert_eq!(find_records(&storage).collect::<Vec<_>>(), records);
}

proptest! {
    #[test]
    fn every_size_has_its_class(bytes in 0u64..3_000_000) {
        let class = class_index(bytes);
        prop_assert!(CLASSES[class].0 <= bytes);
        prop_assert!(CLASSES.get(class + 1).is_none_or(|next| bytes < next.0));
    }

    #[test]
    fn records_of_hostile_storages_lie_inside(
        mut bytes in proptest::collection::vec(any::<u8>(), 0..2000),
        lengths in proptest::collection::vec(0u64..600, 0..4),
    ) {
        let mut offset = 0;
        for length in lengths {
            if let Some(field) = bytes.get_mut(offset + 8..offset + 16) {
                field.copy_from_slice(&length.to_le_bytes());
            }
            offset += align8(136 + length) as usize;
        }
        let total: usize = find_records(&bytes).map(<[u8]>::len).sum();
        prop_assert!(total <= bytes.len());
        prop_assert!(find_records(&bytes).all(|record| record.len() >= RECORD_HEADER_BYTES));
    }
}
