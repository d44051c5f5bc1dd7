//! Frame sizes: ratio, speed and worst-case times of frames of 32 B to 32 MiB, and what bundling small units saves.
//!
//! Pieces of each size are cut from the frames of the input; each is compressed and decompressed alone, and timed
//! alone, on one core. Bounded by the number of pieces that the rarest percentile needs, and by the time of the first
//! pass. Pieces are taken in an order that goes over the whole input again and again, so that those that were reached
//! are spread over all of it.

pub mod bundle;

use std::time::Duration;

use serde::Serialize;
use slotpress_base::{Progress, Result, Stopwatch, quantity};

use self::bundle::{UnitChoice, Units};
use crate::levels::codec::FrameCodec;
use crate::levels::input::Input;
use crate::levels::latency::{Latency, timer_seconds};
use crate::levels::measure::Bench;
use crate::levels::statistics::{LOST_PERCENT_MAX, RUN_TIME_MIN};
use crate::levels::units::pieces;
use crate::levels::{LevelRow, MeasureOptions, saving_percent};

/// What frames of each size cost and save.
#[derive(Clone, Debug)]
pub struct FramesReport {
    /// The codec.
    pub codec: FrameCodec,
    /// Seconds to read the clock twice, which every time of a single frame contains.
    pub timer_seconds: f64,
    /// Bytes of the whole input.
    pub total_bytes: u64,
    /// From the smallest to the largest size.
    pub sizes: Vec<FrameSizeRow>,
    /// What was bundled; `None` if the input has no units.
    pub bundle_unit: Option<BundleUnit>,
    /// From one unit per frame to many.
    pub bundles: Vec<BundleRow>,
}

/// Frames of one size.
#[derive(Clone, Debug, PartialEq)]
pub struct FrameSizeRow {
    /// Bytes of content in a frame.
    pub frame_size_bytes: u64,
    /// The number of different frames that were compressed.
    pub frames: u64,
    /// All of them together. Memory is that of one worker that compresses.
    pub row: LevelRow,
    /// Times to compress one frame.
    pub compress: Latency,
    /// Times to decompress one frame.
    pub decompress: Latency,
}

impl FrameSizeRow {
    /// Bytes of content per second of one core, at a latency of this row.
    pub fn bytes_per_second(&self, latency: &Latency) -> f64 {
        self.row.input_bytes as f64 / (self.frames as f64).max(1.0) / latency.average_seconds.max(1e-12)
    }
}

/// The units that were bundled.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BundleUnit {
    /// `record`, `line` or `piece`.
    pub kind: UnitKind,
    /// Units that were bundled.
    pub units: u64,
    /// Their bytes on average.
    pub average_bytes: f64,
}

/// What a unit is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum UnitKind {
    /// A record of a storage: header and data.
    Record,
    /// A line, with its end.
    Line,
    /// A fixed number of bytes.
    Piece,
}

/// Bundles of one number of units.
#[derive(Clone, Debug, PartialEq)]
pub struct BundleRow {
    /// Units in a frame.
    pub units_per_frame: u64,
    /// The number of frames.
    pub frames: u64,
    /// All of them together.
    pub row: LevelRow,
    /// Bytes that the same units compress to, each in a frame of its own.
    pub alone_bytes: u64,
}

impl BundleRow {
    /// Saving against one unit per frame, in percent.
    pub fn saving_against_one_percent(&self) -> f64 {
        saving_percent(self.alone_bytes, self.row.output_bytes)
    }
}

/// What to measure.
#[derive(Clone, Debug)]
pub struct FramesOptions {
    /// Bytes in a frame, ascending. Sizes above the first one that holds every frame of the input are left out: they
    /// would give the same frames.
    pub sizes: Vec<u64>,
    /// Units in a frame.
    pub bundles: Vec<u64>,
    /// What a unit is.
    pub unit: UnitChoice,
    /// Minimum time for compressing the pieces of a size; the same for decompressing.
    pub min_time: Duration,
    /// Maximum number of pieces of a size.
    pub pieces_max: usize,
    /// Maximum time for the first, untimed pass over the pieces of a size.
    pub first_pass_max: Duration,
}

/// Enough samples for the percentile that one in a million exceeds, with a reserve.
pub const PIECES_MAX: usize = 1_200_000;

/// Enough for 256 MiB at levels up to about 12; the highest levels get fewer frames.
pub const FIRST_PASS_MAX: Duration = Duration::from_secs(10);

/// Measures each size, then each bundle. After an error, the report has the rows so far.
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
        bundle_unit: None,
        bundles: Vec::new(),
    };
    let result = fill(&mut report, input, codec, options, progress);
    (report, result)
}

fn fill(
    report: &mut FramesReport,
    input: &Input,
    codec: &FrameCodec,
    options: &FramesOptions,
    progress: &dyn Progress,
) -> Result<()> {
    // First, because there may be none.
    let units = if options.bundles.is_empty() { None } else { Units::of(input, options.unit)? };
    let once = MeasureOptions::new("").repeat(1).threads(1);
    let timed = once.clone().min_time(options.min_time);
    let stopwatch = Stopwatch::start_on_thread();
    for size_bytes in sizes_of_use(input, &options.sizes) {
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
    // This thread only computes: if it took more time than CPU time, it had to wait for a core, and the wait is in the
    // time of some frame.
    let taken = stopwatch.elapsed();
    let lost_percent = 100.0 - taken.cpu_percent();
    if lost_percent > LOST_PERCENT_MAX && taken.wall >= RUN_TIME_MIN {
        progress.warn(&format!(
            "{lost_percent:.0} % of the time was spent waiting for a core, since other programs run; averages and longest times \
             include it: stop the other programs, and measure again"
        ));
    }
    let Some(units) = units else { return Ok(()) };
    report.bundle_unit = Some(BundleUnit {
        kind: units.kind,
        units: units.count(),
        average_bytes: units.bytes() as f64 / (units.count() as f64).max(1.0),
    });
    let measure = |units_per_frame: u64| {
        Bench::new(units.bundles(units_per_frame), &once, progress)
            .measure(codec, &format!("Bundles of {units_per_frame}"))
    };
    let mut alone_bytes = None;
    for units_per_frame in options.bundles.iter().copied() {
        let measured = measure(units_per_frame)?;
        let alone_bytes = *match &mut alone_bytes {
            Some(bytes) => bytes,
            none if units_per_frame == 1 => none.insert(measured.row.output_bytes),
            none => none.insert(measure(1)?.row.output_bytes),
        };
        let (frames, row) = (measured.pieces, measured.row);
        report.bundles.push(BundleRow { units_per_frame, frames, row, alone_bytes });
    }
    Ok(())
}

/// Sizes up to the first that holds the largest frame.
fn sizes_of_use(input: &Input, sizes: &[u64]) -> Vec<u64> {
    let largest = input.frames.iter().map(|frame| frame.content.len() as u64).max().unwrap_or(0);
    let mut of_use: Vec<u64> = sizes.iter().copied().filter(|size| *size < largest).collect();
    of_use.extend(sizes.iter().copied().find(|size| *size >= largest));
    of_use
}

/// The order of the pieces goes over the input this many times.
const ROUNDS: usize = 16;

/// At most `pieces_max` pieces, evenly spread. Pieces of less than half the size (the end of the input) are left out:
/// they say nothing about frames of that size.
fn chosen_pieces(input: &Input, size_bytes: u64, pieces_max: usize) -> Vec<&[u8]> {
    let size = usize::try_from(size_bytes).unwrap_or(usize::MAX);
    let all = || input.frames.iter().flat_map(move |frame| pieces(&frame.content, size));
    let longest = all().map(<[u8]>::len).max().unwrap_or(0);
    let of_use = || all().filter(move |piece| piece.len() * 2 >= longest);
    let count = of_use().count();
    let wanted = count.min(pieces_max.max(1));
    // The piece number n is taken where n * wanted / count reaches the next whole number.
    let is_taken = |number: usize| (number * wanted) % count.max(1) < wanted;
    let taken: Vec<&[u8]> =
        of_use().enumerate().filter(|(number, _)| is_taken(*number)).map(|(_, piece)| piece).collect();
    (0..ROUNDS).flat_map(|round| taken.iter().skip(round).step_by(ROUNDS).copied()).collect()
}

#[cfg(test)]
mod tests;
