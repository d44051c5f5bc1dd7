//! Compressing frames of each size, one at a time on one core, each timed on its own.
//!
//! Frames are taken in runs of neighbours that are spread over the content, until their time is up; where all of the content
//! was compressed sooner, again, so that there are times enough for percentiles. Single times contain the reading of the
//! clock, which is measured and reported, not subtracted.

use {
    super::{
        BundleRow, BundleUnit, FrameSizeRow, FramesReport, Latency,
        content::{BundleView, FramesContent},
    },
    crate::{
        error::{Error, Result},
        levels::{
            codec::{FrameCodec, label},
            solo::{Solo, scattered},
        },
        progress::Progress,
    },
    hdrhistogram::Histogram,
    std::time::{Duration, Instant},
};

/// What to measure.
#[derive(Clone, Debug)]
pub struct FramesOptions {
    /// Bytes of content in a frame, in ascending order.
    pub sizes: Vec<u64>,
    /// Units in a frame, in ascending order; 1 comes first.
    pub bundles: Vec<u64>,
    /// For each size, and for all bundles together: compressing and decompressing.
    pub time: Duration,
}

/// Neighbouring frames that are measured together have so many bytes, which stay in a second-level cache,
const RUN_BYTES: u64 = 256 * 1024;

/// or are so many: each has buffers.
const RUN_FRAMES: u64 = 1024;

/// More times than this change no percentile that is shown.
const SAMPLES_MAX: u64 = 10_000_000;

/// Passes that do not count: they map memory, and let the clock of the cores settle.
const WARM_UP_TIME: Duration = Duration::from_millis(100);

/// Measures frames of each size, and bundles.
pub fn measure_frames(
    content: &FramesContent,
    codec: &dyn FrameCodec,
    options: &FramesOptions,
    progress: &dyn Progress,
) -> Result<FramesReport> {
    let name = label(codec.name(), codec.level());
    let mut sizes = Vec::new();
    for size in &options.sizes {
        progress.stage(&format!("{name}, frames of {size} B"), None);
        sizes.extend(measure_size(content, codec, *size, options.time, progress)?);
    }
    let (bundle_unit, bundles) = match content.units() {
        Some(_) => {
            progress.stage(&format!("{name}, bundles"), None);
            measure_bundles(content, codec, options, progress)?
        }
        None => (None, Vec::new()),
    };
    Ok(FramesReport {
        codec: codec.name().to_string(),
        level: codec.level(),
        timer_seconds: timer_seconds(),
        total_bytes: content.total_bytes,
        content_bytes: content.content_bytes(),
        sizes,
        bundle_unit,
        bundles,
    })
}

/// What reading the clock twice takes: the median of many.
pub fn timer_seconds() -> f64 {
    const READINGS: usize = 10_001;
    let mut times: Vec<Duration> = (0..READINGS).map(|_| Instant::now().elapsed()).collect();
    times.sort_unstable();
    times[READINGS / 2].as_secs_f64()
}

/// Neighbouring frames of a block: where they begin, and how many there are.
#[derive(Clone, Copy)]
struct Run {
    block: usize,
    first_frame: u64,
    frames: u64,
}

/// Frames of one size; `None` where the content has none.
fn measure_size(
    content: &FramesContent,
    codec: &dyn FrameCodec,
    size: u64,
    time: Duration,
    progress: &dyn Progress,
) -> Result<Option<FrameSizeRow>> {
    let runs = runs_of(content, size);
    let mut solo = Solo::new(codec)?;
    let mut times = (Times::new()?, Times::new()?);
    let (mut frames, mut input_bytes, mut output_bytes) = (0, 0, 0);
    let mut is_first_pass = true;
    let mut frames_of =
        |run: &Run, is_counted: bool, times: &mut (Times, Times)| -> Result<(u64, u64, u64, Duration)> {
            progress.check()?;
            let block = &content.blocks[run.block];
            let from = (run.first_frame * size) as usize;
            let to = ((run.first_frame + run.frames) * size).min(block.len() as u64) as usize;
            let units: Vec<&[u8]> = block[from..to].chunks(size as usize).collect();
            let spent = solo.each(&units, &mut |compress, decompress| {
                if is_counted {
                    times.0.record(compress);
                    times.1.record(decompress);
                }
            })?;
            Ok((units.len() as u64, (to - from) as u64, spent.output_bytes, spent.compress + spent.decompress))
        };
    let mut warm = Duration::ZERO;
    for number in scattered(runs.len()) {
        warm += frames_of(&runs[number], false, &mut times)?.3;
        if warm >= WARM_UP_TIME {
            break;
        }
    }
    let mut spent = Duration::ZERO;
    'passes: while !runs.is_empty() {
        for number in scattered(runs.len()) {
            let done = frames_of(&runs[number], true, &mut times)?;
            if is_first_pass {
                frames += done.0;
                input_bytes += done.1;
                output_bytes += done.2;
            }
            spent += done.3;
            if spent >= time || times.0.samples >= SAMPLES_MAX {
                break 'passes;
            }
        }
        is_first_pass = false;
    }
    let worker_memory_bytes = (solo.context_bytes() + size as usize + codec.encoded_bytes_max(size as usize)) as u64;
    Ok((frames > 0).then(|| FrameSizeRow {
        frame_size_bytes: size,
        frames,
        input_bytes,
        output_bytes,
        compress: times.0.latency(),
        decompress: times.1.latency(),
        worker_memory_bytes,
    }))
}

/// Whole frames of the size; and what is left of a block where it is at least half of one.
fn runs_of(content: &FramesContent, size: u64) -> Vec<Run> {
    let run_frames = (RUN_BYTES / size).clamp(1, RUN_FRAMES);
    let mut runs = Vec::new();
    for (block, bytes) in content.blocks.iter().enumerate() {
        let bytes = bytes.len() as u64;
        let frames = bytes / size + u64::from(bytes % size * 2 >= size && !bytes.is_multiple_of(size));
        let first_frames = (0..frames).step_by(run_frames as usize);
        runs.extend(first_frames.map(|first| Run {
            block,
            first_frame: first,
            frames: run_frames.min(frames - first),
        }));
    }
    runs
}

/// Times of one kind: a histogram for percentiles, exact sums for the rest.
struct Times {
    histogram: Histogram<u64>,
    samples: u64,
    mean: f64,
    squares: f64,
    min: Duration,
    max: Duration,
}

impl Times {
    fn new() -> Result<Self> {
        /// Three digits, from a nanosecond to an hour; what is longer counts as an hour.
        const DIGITS: u8 = 3;
        let histogram = Histogram::new_with_bounds(1, HOUR_NS, DIGITS)
            .map_err(|error| Error::failed(format!("no histogram: {error}")))?;
        Ok(Self { histogram, samples: 0, mean: 0.0, squares: 0.0, min: Duration::MAX, max: Duration::ZERO })
    }

    /// Counts a time; mean and squares by Welford's recurrence, which loses no digits.
    fn record(&mut self, time: Duration) {
        self.histogram.saturating_record((time.as_nanos() as u64).clamp(1, HOUR_NS));
        self.samples += 1;
        let seconds = time.as_secs_f64();
        let difference = seconds - self.mean;
        self.mean += difference / self.samples as f64;
        self.squares += difference * (seconds - self.mean);
        self.min = self.min.min(time);
        self.max = self.max.max(time);
    }

    fn latency(&self) -> Latency {
        // A percentile that no time lies above would be the maximum under another name.
        let percentile = |one_in: u64| {
            let quantile = 1.0 - 1.0 / one_in as f64;
            // The histogram rounds up: never beyond the longest.
            let value = || Duration::from_nanos(self.histogram.value_at_quantile(quantile)).min(self.max);
            (self.samples >= one_in).then(|| value().as_secs_f64())
        };
        Latency {
            samples: self.samples,
            average_seconds: self.mean,
            deviation_seconds: (self.squares / (self.samples.max(2) - 1) as f64).sqrt(),
            min_seconds: self.min.as_secs_f64(),
            max_seconds: self.max.as_secs_f64(),
            p50_seconds: percentile(2),
            p90_seconds: percentile(10),
            p99_seconds: percentile(100),
            p99_99_seconds: percentile(10_000),
            p99_9999_seconds: percentile(1_000_000),
        }
    }
}

const HOUR_NS: u64 = 3_600_000_000_000;

/// Bundles of every size are made of the same units: groups of neighbours, spread over the input, until the time is up.
fn measure_bundles(
    content: &FramesContent,
    codec: &dyn FrameCodec,
    options: &FramesOptions,
    progress: &dyn Progress,
) -> Result<(Option<BundleUnit>, Vec<BundleRow>)> {
    let Some(BundleView { kind, contents, refs }) = content.units() else { return Ok((None, Vec::new())) };
    let counts: Vec<u64> = options.bundles.iter().copied().filter(|count| *count <= refs.len() as u64).collect();
    // Twice the largest bundle: the usual sizes divide it.
    let group_units = (counts.last().copied().unwrap_or(1) as usize * 2).min(refs.len());
    let groups = refs.len() / group_units.max(1);
    let empty = |count: &u64| BundleRow {
        units_per_frame: *count,
        frames: 0,
        input_bytes: 0,
        output_bytes: 0,
        alone_bytes: 0,
        compress_seconds: 0.0,
        decompress_seconds: 0.0,
    };
    let mut rows: Vec<BundleRow> = counts.iter().map(empty).collect();
    let mut solo = Solo::new(codec)?;
    let (mut units, mut alone_bytes) = (0, 0);
    let mut spent = Duration::ZERO;
    let mut bundles: Vec<Vec<u8>> = Vec::new();
    for group in scattered(groups) {
        progress.check()?;
        let group: Vec<&[u8]> =
            refs[group * group_units..][..group_units].iter().map(|unit| unit.bytes(contents)).collect();
        let alone = solo.batch(&group)?;
        units += group.len() as u64;
        alone_bytes += alone.output_bytes;
        for row in &mut rows {
            bundles.clear();
            bundles.extend(group.chunks(row.units_per_frame as usize).map(<[&[u8]]>::concat));
            let frames: Vec<&[u8]> = bundles.iter().map(Vec::as_slice).collect();
            let result = solo.batch(&frames)?;
            row.frames += frames.len() as u64;
            row.input_bytes += frames.iter().map(|frame| frame.len() as u64).sum::<u64>();
            row.output_bytes += result.output_bytes;
            row.compress_seconds += result.compress.as_secs_f64();
            row.decompress_seconds += result.decompress.as_secs_f64();
            spent += result.compress + result.decompress;
        }
        if spent >= options.time {
            break;
        }
    }
    rows.iter_mut().for_each(|row| row.alone_bytes = alone_bytes);
    let input_bytes = rows.first().map_or(0, |row| row.input_bytes);
    let unit = BundleUnit { kind, units, average_bytes: input_bytes as f64 / (units as f64).max(1.0) };
    Ok((Some(unit), rows))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_need_enough_times() {
        let mut times = Times::new().expect("a histogram");
        for at in 1..=10_000u64 {
            times.record(Duration::from_micros(at));
        }
        let latency = times.latency();
        assert_eq!((latency.samples, latency.min_seconds, latency.max_seconds), (10_000, 1e-6, 1e-2));
        let close =
            |found: Option<f64>, expected: f64| found.is_some_and(|found| (found / expected - 1.0).abs() < 2e-3);
        assert!(close(latency.p50_seconds, 5e-3) && close(latency.p90_seconds, 9e-3), "{latency:?}");
        assert!(close(latency.p99_seconds, 9.9e-3) && close(latency.p99_99_seconds, 9.999e-3), "{latency:?}");
        assert_eq!(latency.p99_9999_seconds, None);
        assert!((latency.average_seconds - 5.0005e-3).abs() < 1e-9);
        // Of 1 to n: the square root of n (n + 1) / 12.
        assert!((latency.deviation_seconds - (10_000.0f64 * 10_001.0 / 12.0).sqrt() * 1e-6).abs() < 1e-9);
        assert_eq!(Times::new().expect("a histogram").latency().p50_seconds, None);
    }
}
