//! Measuring frames of each size, on one core.
//!
//! Of each size, pieces are cut from the frames of the input. Each is compressed alone, decompressed and compared once;
//! this is the warm-up too. Then each is compressed again and timed alone, over and over for a given time, and the same
//! for decompressing. Contexts and buffers are reused from one piece to the next, as a worker of `archive` does.
//!
//! Bounded: what the pieces compress to is held, at most as much as the input in memory (and what does not compress); so
//! many pieces of a size as the rarest percentile needs; a time for the first pass, after which the pieces that were not
//! reached are left out. Pieces are taken in an order that goes over the whole input again and again, so that what was
//! reached is spread over all of it.

use {
    super::{
        BundleUnit, FrameSizeRow, FramesReport,
        bundle::{UnitChoice, Units, measure_bundle},
        pass::{Pause, check_round_trip},
        timing::{Times, timer_seconds},
    },
    crate::levels::{
        codec::{FrameCodec, FrameDecode, FrameEncoder},
        input::Input,
        statistics::{LOST_PERCENT_MAX, RUN_TIME_MIN},
        units::pieces,
    },
    slotpress_base::{error::Result, progress::Progress, quantity, stopwatch::ThreadStopwatch},
    std::time::{Duration, Instant},
};

/// What to measure.
#[derive(Clone, Debug)]
pub struct FramesOptions {
    /// Bytes in a frame, ascending. Those above the first one that holds every frame of the input are left out, since
    /// they would be the same frames again.
    pub sizes: Vec<u64>,
    /// Units in a frame.
    pub bundles: Vec<u64>,
    /// What a unit is.
    pub unit: UnitChoice,
    /// Time for compressing the pieces of a size, at least; the same for decompressing.
    pub min_time: Duration,
    /// Pieces of a size, at most.
    pub pieces_max: usize,
    /// Time for the first, untimed pass over the pieces of a size, about at most.
    pub first_pass_max: Duration,
}

/// Enough for the percentile that one in a million exceeds, and a few more, since one in a million should not be the only.
pub const PIECES_MAX: usize = 1_200_000;

/// Long enough for 256 MiB at levels up to 12 or so; the highest levels get fewer frames.
pub const FIRST_PASS_MAX: Duration = Duration::from_secs(10);

/// Measures each size, then each bundle. What was measured is in the report, also after an error.
pub fn measure_frames(
    input: &Input,
    codec: &dyn FrameCodec,
    options: &FramesOptions,
    progress: &dyn Progress,
) -> (FramesReport, Result<()>) {
    let mut report = FramesReport {
        codec: codec.name().to_string(),
        level: codec.level(),
        timer_seconds: timer_seconds(),
        total_bytes: input.total_bytes,
        content_bytes: input.content_bytes(),
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
    codec: &dyn FrameCodec,
    options: &FramesOptions,
    progress: &dyn Progress,
) -> Result<()> {
    // First, since it can turn out that there are none.
    let units = if options.bundles.is_empty() { None } else { Units::of(input, options.unit)? };
    let stopwatch = ThreadStopwatch::start();
    for size_bytes in sizes_of_use(input, &options.sizes) {
        let bench = Bench { codec, options, progress, size_bytes };
        report.sizes.push(bench.measure(chosen_pieces(input, size_bytes, options.pieces_max))?);
    }
    // Nothing here waits for anything but a core. Each time that it did not have one is in the time of a frame.
    let taken = stopwatch.taken();
    let lost_percent = 100.0 - taken.cpu_percent();
    if lost_percent > LOST_PERCENT_MAX && taken.elapsed >= RUN_TIME_MIN {
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
    let mut alone_bytes = None;
    for units_per_frame in &options.bundles {
        let row = measure_bundle(&units, *units_per_frame, codec, alone_bytes, progress)?;
        alone_bytes = Some(row.alone_bytes);
        report.bundles.push(row);
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

/// How often the order of pieces goes over the input.
const ROUNDS: usize = 16;

/// At most so many pieces, evenly spread. The end of the input, and other frames that are much smaller than the rest, are
/// left out: they say nothing about frames of that size.
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

/// One size.
struct Bench<'a> {
    codec: &'a dyn FrameCodec,
    options: &'a FramesOptions,
    progress: &'a dyn Progress,
    size_bytes: u64,
}

/// Pieces, and what each compresses to.
struct Checked<'a> {
    pieces: Vec<&'a [u8]>,
    /// All of them, one behind the other.
    compressed: Vec<u8>,
    /// Where each ends.
    ends: Vec<usize>,
}

impl Checked<'_> {
    fn compressed(&self, number: usize) -> &[u8] {
        let start = number.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.compressed[start..self.ends[number]]
    }
}

impl Bench<'_> {
    fn measure(&self, pieces: Vec<&[u8]>) -> Result<FrameSizeRow> {
        let bytes: u64 = pieces.iter().map(|piece| piece.len() as u64).sum();
        // The first pass does both; of the others, only the first of each is certain.
        self.progress.stage(&format!("Frames of {}", quantity::bytes(self.size_bytes)), Some(bytes * 3));
        let (mut encoder, mut decoder) = (self.codec.new_encoder()?, self.codec.new_decoder()?);
        let checked = self.check(pieces, &mut *encoder, &mut *decoder)?;
        let mut to = Vec::new();
        let compress = self.time(&checked, &mut |number| encoder.encode(checked.pieces[number], &mut to))?;
        let mut back = Vec::new();
        let decompress = self.time(&checked, &mut |number| {
            decoder.decode(checked.compressed(number), checked.pieces[number].len(), &mut back)
        })?;
        let longest = checked.pieces.iter().map(|piece| piece.len()).max().unwrap_or(0);
        Ok(FrameSizeRow {
            frame_size_bytes: self.size_bytes,
            frames: checked.pieces.len() as u64,
            input_bytes: checked.pieces.iter().map(|piece| piece.len() as u64).sum(),
            output_bytes: checked.compressed.len() as u64,
            compress: compress.latency(),
            decompress: decompress.latency(),
            worker_memory_bytes: (encoder.context_bytes() + longest + self.codec.encoded_bytes_max(longest)) as u64,
        })
    }

    /// Compresses, decompresses and compares each piece, until the time is over.
    fn check<'a>(
        &self,
        mut pieces: Vec<&'a [u8]>,
        encoder: &mut dyn FrameEncoder,
        decoder: &mut dyn FrameDecode,
    ) -> Result<Checked<'a>> {
        let start = Instant::now();
        let (mut compressed, mut ends) = (Vec::new(), Vec::with_capacity(pieces.len()));
        let (mut frame, mut back) = (Vec::new(), Vec::new());
        let mut pause = Pause::new(self.progress);
        for piece in &pieces {
            encoder.encode(piece, &mut frame)?;
            check_round_trip(self.codec, decoder, piece, &frame, &mut back)?;
            compressed.extend_from_slice(&frame);
            ends.push(compressed.len());
            if pause.after(piece.len(), true)? && start.elapsed() >= self.options.first_pass_max {
                break;
            }
        }
        pieces.truncate(ends.len());
        Ok(Checked { pieces, compressed, ends })
    }

    /// Times each piece, in as many passes as the time asks for; the last may end early.
    fn time(&self, checked: &Checked, work: &mut dyn FnMut(usize) -> Result<()>) -> Result<Times> {
        let mut times = Times::new()?;
        let begin = Instant::now();
        let mut pause = Pause::new(self.progress);
        let mut is_first = true;
        while is_first || begin.elapsed() < self.options.min_time {
            for (number, piece) in checked.pieces.iter().enumerate() {
                let start = Instant::now();
                work(number)?;
                times.record(start.elapsed());
                if pause.after(piece.len(), is_first)? && !is_first && begin.elapsed() >= self.options.min_time {
                    break;
                }
            }
            is_first = false;
        }
        Ok(times)
    }
}

#[cfg(test)]
#[path = "measure_tests.rs"]
mod tests;
