//! Measures pieces of the input, each compressed and decompressed alone, on one core: storages or
//! records by their size, and frames of up to 32 MiB.
//!
//! For each size, at most as many pieces are measured as an exact result needs. They are spread evenly
//! over the input, and ordered so that any first part of them is spread too. The storages or records of a class
//! are timed together, because a small one takes less time than reading the clock; frames are timed one
//! by one, for their percentiles. In the names of classes, 1 KB is 1000 bytes, as in published
//! measurements of transactions and blocks.

#![allow(missing_docs, reason = "the names suffice")]

use std::time::Duration;

use slotpress_base::{Error, Progress, Result, Stage, Stopwatch, quantity};
use slotpress_format::{RECORD_HEADER_BYTES, RawRecord, Records};

use crate::levels::codec::FrameCodec;
use crate::levels::input::Input;
use crate::levels::measure::{Batch, CodecBench};
use crate::levels::statistics::{Latency, load_warning};
use crate::levels::{LevelRow, MeasureOptions};

/// Lower bound of each class in bytes, and its name.
const CLASSES: [(u64, &str); 16] = [
    (0, "0-250 B"),
    (250, "250-500 B"),
    (500, "500 B-1 KB"),
    (1_000, "1-10 KB"),
    (10_000, "10-100 KB"),
    (100_000, "100-200 KB"),
    (200_000, "200-300 KB"),
    (300_000, "300-400 KB"),
    (400_000, "400-500 KB"),
    (500_000, "500-600 KB"),
    (600_000, "600-700 KB"),
    (700_000, "700-800 KB"),
    (800_000, "800-900 KB"),
    (900_000, "900 KB-1 MB"),
    (1_000_000, "1-2 MB"),
    (2_000_000, "larger"),
];

/// Limit on pieces measured per class: enough for an average within 1%.
const CLASS_PIECES_MAX: usize = 20_000;

/// Limit on bytes measured per class, unless one piece is larger: compressed copies are held in
/// memory, and codecs may be slow.
const CLASS_BYTES_MAX: usize = 32 << 20;

/// Limit on frames per size: enough for the percentile that one in a million exceeds.
const FRAMES_MAX: usize = 1_200_000;

/// Limit on the first pass over the frames of a size, which is not counted: enough for 256 MiB at
/// levels up to about 12; higher levels get fewer frames.
const FIRST_PASS_MAX: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizeUnit {
    Storage,
    Record,
}

impl SizeUnit {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Storage => "storage",
            Self::Record => "record",
        }
    }
}

/// Pieces of a size class, of all classes, or of a frame size, and what was measured of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PieceRow {
    /// Name of the class; empty for frames.
    pub class: &'static str,
    /// Minimum size of a piece in bytes; for frames, their size.
    pub size_bytes_min: u64,
    /// Upper bound on a piece's size in bytes, exclusive; `None` for the last class, and for frames.
    pub size_bytes_end: Option<u64>,
    /// Number of pieces, measured or not; 0 for frames.
    pub piece_count: u64,
    pub all_pieces_bytes: u64,
    pub measured_pieces: u64,
    pub totals: LevelRow,
    /// Times of single pieces; for frames only.
    pub compress: Latency,
    pub decompress: Latency,
}

impl PieceRow {
    /// Returns the bytes of content per second on one core, from the average of `latency`.
    pub fn bytes_per_second(&self, latency: &Latency) -> f64 {
        self.totals.input_bytes as f64 / (self.measured_pieces as f64).max(1.0) / latency.average_seconds.max(1e-12)
    }

    /// Adds a class. Its measurements are extrapolated from the measured pieces to all pieces.
    fn add_class(&mut self, class: &Self) {
        let scale = class.all_pieces_bytes as f64 / (class.totals.input_bytes as f64).max(1.0);
        self.piece_count += class.piece_count;
        self.all_pieces_bytes += class.all_pieces_bytes;
        self.measured_pieces += class.piece_count;
        self.totals.input_bytes += class.all_pieces_bytes;
        self.totals.output_bytes += (class.totals.output_bytes as f64 * scale) as u64;
        self.totals.compress.median += class.totals.compress.median * scale;
        self.totals.decompress.median += class.totals.decompress.median * scale;
    }
}

/// Measures the storages or records of each size class. Returns a row for each class that has any,
/// then one for all classes.
///
/// # Errors
/// The input has no storages or records, one of them is not restored to the same bytes, or the user
/// interrupts the measurement.
pub fn measure_sizes(
    input: &Input,
    unit: SizeUnit,
    codec: FrameCodec,
    options: &MeasureOptions,
    progress: &dyn Progress,
) -> Result<Vec<PieceRow>> {
    progress.stage(Stage::Counting, None);
    let options = options.clone().threads(1);
    let mut classes: Vec<Vec<&[u8]>> = vec![Vec::new(); CLASSES.len()];
    for frame in &input.frames {
        progress.check()?;
        for storage in frame.storages() {
            match unit {
                SizeUnit::Storage => classes[class_index(storage.len() as u64)].push(storage),
                SizeUnit::Record => {
                    for record in find_records(storage) {
                        classes[class_index(record.len() as u64)].push(record);
                    }
                }
            }
        }
    }
    let mut rows = Vec::new();
    let mut all = PieceRow { class: "all", ..PieceRow::default() };
    for (number, pieces) in classes.iter().enumerate() {
        if pieces.is_empty() {
            continue;
        }
        let (size_bytes_min, class) = CLASSES[number];
        let bytes: usize = pieces.iter().map(|piece| piece.len()).sum();
        let pieces_max = CLASS_PIECES_MAX.min(CLASS_BYTES_MAX * pieces.len() / bytes.max(1));
        let batches = Batch::from_pieces(&choose_evenly(|| pieces.iter().copied(), pieces_max));
        let mut bench = CodecBench::new(batches, &options, progress);
        let measurement = bench.measure(codec, format!("{}s of {class}", unit.as_str()))?;
        let row = PieceRow {
            class,
            size_bytes_min,
            size_bytes_end: CLASSES.get(number + 1).map(|next| next.0),
            piece_count: pieces.len() as u64,
            all_pieces_bytes: bytes as u64,
            measured_pieces: bench.piece_count(),
            totals: measurement.row,
            ..PieceRow::default()
        };
        all.add_class(&row);
        rows.push(row);
    }
    if rows.is_empty() {
        let unit = unit.as_str();
        let message = format!("the input has no {unit}s: it is not a ledger or a snapshot archive");
        return Err(Error::usage(message).with_hint("`levels frames` measures any file, cut into pieces"));
    }
    rows.push(all);
    Ok(rows)
}

/// Measures frames of each size, and appends a row for it. `sizes` are in ascending order. Skips the sizes
/// after the first one that holds every frame of the input, because they would produce the same frames.
/// The frames of each size are compressed for at least `min_time`, and decompressed for as long.
///
/// # Errors
/// A frame is not restored to the same bytes, or the user interrupts the measurement.
pub fn measure_frames(
    input: &Input,
    codec: FrameCodec,
    sizes: &[u64],
    min_time: Duration,
    progress: &dyn Progress,
    rows: &mut Vec<PieceRow>,
) -> Result<()> {
    let mut options = MeasureOptions::new("").repeat(1).threads(1);
    options.min_time = min_time;
    let stopwatch = Stopwatch::start_on_thread();
    let lengths = input.frames.iter().map(|frame| frame.content.len() as u64);
    let largest = lengths.max().unwrap_or(0);
    for &size_bytes in sizes {
        let batches = Batch::from_pieces(&cut_frames(input, size_bytes, FRAMES_MAX));
        let mut bench = CodecBench::new(batches, &options, progress);
        bench.timed_pass_max = Some(FIRST_PASS_MAX);
        let stage = format!("Frames of {}", quantity::bytes(size_bytes));
        let measurement = bench.measure(codec, stage)?;
        rows.push(PieceRow {
            size_bytes_min: size_bytes,
            measured_pieces: bench.piece_count(),
            totals: measurement.row,
            compress: measurement.compress,
            decompress: measurement.decompress,
            ..PieceRow::default()
        });
        if size_bytes >= largest {
            break;
        }
    }
    // This thread only computes. If it had to wait for a core, the times of some frames include the wait.
    let elapsed = stopwatch.elapsed();
    if let Some(warning) = load_warning(&elapsed, &[elapsed.wall.as_secs_f64()]) {
        let observation = warning.text;
        progress
            .warn(&format!("{observation}; averages and longest times include the wait: stop them, and measure again"));
    }
    Ok(())
}

/// Cuts at most `frames_max` frames of a size out of the input's frames, and leaves out the remainder of each.
/// A frame of the input that is shorter than the size is taken whole. It is left out if it is shorter than half
/// of the longest piece, because it would not represent the size.
fn cut_frames<'a>(input: &'a Input, size_bytes: u64, frames_max: usize) -> Vec<&'a [u8]> {
    let size = usize::try_from(size_bytes).unwrap_or(usize::MAX).max(1);
    let cut = move |content: &'a [u8]| {
        let whole = (content.len() < size).then_some(content);
        content.chunks_exact(size).chain(whole)
    };
    let pieces = || input.frames.iter().flat_map(move |frame| cut(&frame.content));
    let longest = pieces().map(<[u8]>::len).max().unwrap_or(0);
    let represents_size = move |piece: &&[u8]| piece.len() * 2 >= longest;
    choose_evenly(|| pieces().filter(represents_size), frames_max)
}

/// Chooses at most `pieces_max` pieces, but at least one. They are spread evenly, and ordered so that any
/// first part of them is spread too.
fn choose_evenly<'a, P: Iterator<Item = &'a [u8]>>(pieces: impl Fn() -> P, pieces_max: usize) -> Vec<&'a [u8]> {
    /// The chosen pieces are reordered in as many rounds, each of which takes every sixteenth piece.
    const ROUNDS: usize = 16;
    let count = pieces().count().max(1);
    let chosen_count = pieces_max.clamp(1, count);
    // Piece n is chosen if n * chosen_count / count reaches the next whole number.
    let is_chosen = |number: usize| (number * chosen_count) % count < chosen_count;
    let mut chosen: Vec<&[u8]> = Vec::with_capacity(chosen_count);
    for (number, piece) in pieces().enumerate() {
        if is_chosen(number) {
            chosen.push(piece);
        }
    }
    (0..ROUNDS).flat_map(|round| chosen.iter().skip(round).step_by(ROUNDS).copied()).collect()
}

/// Returns the records of a storage, header and data without padding, up to the end mark or the
/// first invalid record.
fn find_records(storage: &[u8]) -> impl Iterator<Item = &[u8]> {
    let end = |record: &RawRecord<'_>| record.start + RECORD_HEADER_BYTES + record.data.len();
    Records::new(storage).filter_map(move |record| storage.get(record.start..end(&record)))
}

fn class_index(bytes: u64) -> usize {
    CLASSES.partition_point(|(from, _)| *from <= bytes).saturating_sub(1)
}

#[cfg(test)]
#[path = "pieces_tests.rs"]
mod tests;
