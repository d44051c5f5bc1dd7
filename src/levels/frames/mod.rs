//! Measures ratio, speed and worst-case times of frames of 32 B to 32 MiB.
//!
//! Pieces of each size are cut from the frames of the input. Each piece is compressed, decompressed
//! and timed on its own, on one core. The work is limited by the number of pieces that the highest
//! percentile needs, and by the time of the first pass. Pieces are ordered so that any first part
//! of them is spread over the whole input.

use std::time::Duration;

use slotpress_base::{Progress, Result, Stopwatch, quantity};

use crate::levels::codec::FrameCodec;
use crate::levels::input::Input;
use crate::levels::latency::{Latency, timer_seconds};
use crate::levels::measure::Bench;
use crate::levels::statistics::{LOST_PERCENT_MAX, RUN_TIME_MIN};
use crate::levels::units::pieces;
use crate::levels::{LevelRow, MeasureOptions};

/// Results of [`measure_frames`]; incomplete if it failed.
#[allow(missing_docs, reason = "the names say it")]
#[derive(Clone, Debug)]
pub struct FramesReport {
    pub codec: FrameCodec,
    /// Seconds between two readings of the clock; included in every time of a single frame.
    pub timer_seconds: f64,
    pub total_bytes: u64,
    pub sizes: Vec<FrameSizeRow>,
}

#[allow(missing_docs, reason = "the names say it")]
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

/// Sizes and limits for [`measure_frames`].
#[derive(Clone, Debug)]
pub struct FramesOptions {
    /// Frame sizes in bytes, in ascending order. Sizes beyond the first one that holds every frame
    /// of the input are skipped, because they would give the same frames.
    pub sizes: Vec<u64>,
    /// Minimum time of compressing the pieces of a size, and of decompressing them.
    pub min_time: Duration,
    /// Limit on pieces per size.
    pub pieces_max: usize,
    /// Time limit on the first pass over the pieces of a size, which is not counted.
    pub first_pass_max: Duration,
}

/// Default limit on pieces per size: enough for the percentile that one in a million exceeds.
pub const PIECES_MAX: usize = 1_200_000;

/// Default limit on the first pass: enough for 256 MiB at levels up to about 12; higher levels get
/// fewer frames.
pub const FIRST_PASS_MAX: Duration = Duration::from_secs(10);

/// Measures each frame size. If it fails or is interrupted, the report has the rows measured so
/// far.
pub fn measure_frames(
    input: &Input,
    codec: &FrameCodec,
    options: &FramesOptions,
    progress: &dyn Progress,
) -> (FramesReport, Result<()>) {
    let mut report = FramesReport {
        codec: *codec,
        timer_seconds: timer_seconds(),
        total_bytes: input.total_bytes,
        sizes: Vec::new(),
    };
    let mut measure = || {
        let timed = MeasureOptions::new("").repeat(1).threads(1).min_time(options.min_time);
        let stopwatch = Stopwatch::start_on_thread();
        for size_bytes in useful_sizes(input, &options.sizes) {
            let pieces = chosen_pieces(input, size_bytes, options.pieces_max);
            let mut bench = Bench::new(pieces, &timed, progress).timing_each(options.first_pass_max);
            let measured = bench.measure(codec, &format!("Frames of {}", quantity::bytes(size_bytes)))?;
            report.sizes.push(FrameSizeRow {
                frame_size_bytes: size_bytes,
                frames: measured.pieces,
                row: LevelRow { peak_memory_bytes: measured.compress_memory_bytes, ..measured.row },
                compress: measured.compress,
                decompress: measured.decompress,
            });
        }
        // This thread only computes. If it took more elapsed time than CPU time, it had to wait for
        // a core, and some frame's time includes the wait.
        let taken = stopwatch.elapsed();
        let lost_percent = 100.0 - taken.cpu_percent();
        if lost_percent > LOST_PERCENT_MAX && taken.wall >= RUN_TIME_MIN {
            progress.warn(&format!(
            "{lost_percent:.0} % of the time was spent waiting for a core, since other programs run; averages and longest times \
             include it: stop the other programs, and measure again"
        ));
        }
        Ok(())
    };
    let result = measure();
    (report, result)
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
