//! Measures ratio, speed and worst-case times of frames of 32 B to 32 MiB.
//!
//! Pieces of each size are cut from the frames of the input. Each piece is compressed, decompressed
//! and timed on its own, on one core. The work is limited by the number of pieces that the highest
//! percentile needs, and by the time of the first pass. Pieces are ordered so that any first part
//! of them is spread over the whole input.

#![allow(missing_docs, reason = "the names say it")]

use std::time::Duration;

use slotpress_base::{Progress, Result, Stopwatch, quantity};

use crate::levels::codec::FrameCodec;
use crate::levels::input::Input;
use crate::levels::latency::Latency;
use crate::levels::measure::{Batch, Bench};
use crate::levels::statistics::load_warning;
use crate::levels::units::pieces;
use crate::levels::{LevelRow, MeasureOptions};

#[derive(Clone, Debug, PartialEq)]
pub struct FrameSizeRow {
    pub frame_size_bytes: u64,
    pub frames: u64,
    pub row: LevelRow,
    pub compress: Latency,
    pub decompress: Latency,
}

impl FrameSizeRow {
    /// Bytes of content per second on one core, from the average of `latency`.
    pub fn bytes_per_second(&self, latency: &Latency) -> f64 {
        self.row.input_bytes as f64 / (self.frames as f64).max(1.0) / latency.average_seconds.max(1e-12)
    }
}

/// Limit on pieces per size: enough for the percentile that one in a million exceeds.
const PIECES_MAX: usize = 1_200_000;

/// Limit on the first pass over the pieces of a size, which is not counted: enough for 256 MiB at
/// levels up to about 12; higher levels get fewer frames.
const FIRST_PASS_MAX: Duration = Duration::from_secs(10);

/// Measures frames of each size, and appends its row. `sizes` are in ascending order. Those beyond
/// the first one that holds every frame of the input are skipped, because they would give the same
/// frames. Compressing the pieces of a size, and decompressing them, takes at least `min_time`.
///
/// # Errors
/// If a frame is not restored to the same bytes, or if the user interrupts it.
pub fn measure_frames(
    input: &Input,
    codec: FrameCodec,
    sizes: &[u64],
    min_time: Duration,
    progress: &dyn Progress,
    rows: &mut Vec<FrameSizeRow>,
) -> Result<()> {
    let timed = MeasureOptions::new("").repeat(1).threads(1).min_time(min_time);
    let stopwatch = Stopwatch::start_on_thread();
    for frame_size_bytes in useful_sizes(input, sizes) {
        let batches = Batch::of(&chosen_pieces(input, frame_size_bytes, PIECES_MAX));
        let mut bench = Bench::new(batches, &timed, progress);
        bench.each = Some(FIRST_PASS_MAX);
        let stage = format!("Frames of {}", quantity::bytes(frame_size_bytes));
        let (row, [compress, decompress]) = bench.measure(codec, stage)?;
        rows.push(FrameSizeRow { frame_size_bytes, frames: bench.pieces(), row, compress, decompress });
    }
    // This thread only computes. Some frame's time includes the time that it waited.
    let taken = stopwatch.elapsed();
    if let Some(warning) = load_warning(&taken, &[taken.wall.as_secs_f64()]) {
        progress.warn(&format!("{}; averages and longest times include it: stop it, and measure again", warning.text));
    }
    Ok(())
}

/// Frame sizes up to the first one that holds the largest frame of the input.
fn useful_sizes(input: &Input, sizes: &[u64]) -> Vec<u64> {
    let largest = input.frames.iter().map(|frame| frame.content.len() as u64).max().unwrap_or(0);
    let mut useful: Vec<u64> = sizes.iter().copied().filter(|size| *size < largest).collect();
    useful.extend(sizes.iter().copied().find(|size| *size >= largest));
    useful
}

/// Number of passes over the input in which the chosen pieces are ordered.
const ROUNDS: usize = 16;

/// Chooses at most `pieces_max` pieces, spread evenly. Pieces shorter than half of the longest
/// (ends of the input) are left out, because they do not represent the size.
fn chosen_pieces(input: &Input, size_bytes: u64, pieces_max: usize) -> Vec<&[u8]> {
    let size = usize::try_from(size_bytes).unwrap_or(usize::MAX);
    let all = || input.frames.iter().flat_map(move |frame| pieces(&frame.content, size));
    let longest = all().map(<[u8]>::len).max().unwrap_or(0);
    let useful = || all().filter(move |piece| piece.len() * 2 >= longest);
    let count = useful().count();
    let wanted = count.min(pieces_max.max(1));
    // Piece n is taken where n * wanted / count reaches the next whole number.
    let is_taken = |number: usize| (number * wanted) % count.max(1) < wanted;
    let taken: Vec<&[u8]> =
        useful().enumerate().filter(|(number, _)| is_taken(*number)).map(|(_, piece)| piece).collect();
    (0..ROUNDS).flat_map(|round| taken.iter().skip(round).step_by(ROUNDS).copied()).collect()
}

#[cfg(test)]
mod tests;
