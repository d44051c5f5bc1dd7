//! Measuring in memory: every frame compressed and decompressed by the workers, again and again.
//!
//! A run is one pass over all frames, from the start of the workers until the last has finished; contexts and buffers
//! are reused between runs, as `archive` reuses them between frames. Before the runs that count, a warm-up maps memory
//! and lets the clock of the cores settle. Between compressing and decompressing, every frame is decompressed once and
//! its hash compared: a level that does not bring back the same bytes is an error.

use {
    crate::levels::{
        LevelRow, RepeatOptions,
        codec::{FrameCodec, FrameDecode, FrameEncoder, label},
        input::Input,
        sample::size_error_percent,
        statistics::{LOST_PERCENT_MAX, RUN_TIME_MIN, Summary, Warning, median, run_warnings, shape_warnings},
    },
    slotpress_base::{
        error::{Error, Result},
        progress::{Progress, Step},
        stopwatch::{Stopwatch, Taken, ThreadStopwatch},
        threads::{guarded, panicked, spawn},
    },
    std::{
        sync::{
            Mutex, MutexGuard, PoisonError,
            atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
        },
        time::{Duration, Instant},
    },
};

/// The longest that a warm-up takes: processors reach their clock, and caches their content, well before.
const WARM_UP_TIME: Duration = Duration::from_millis(500);

/// Measures each codec in turn; `on_row` gets each row when it is ready.
pub fn measure_levels(
    input: &Input,
    codecs: &[&dyn FrameCodec],
    options: &RepeatOptions,
    progress: &dyn Progress,
    on_row: &mut dyn FnMut(LevelRow) -> Result<()>,
) -> Result<()> {
    let mut bench = Bench::new(input, options, progress);
    // A level takes as long as it takes, not as its bytes are many: the percentage is that of the level.
    let steps = codecs.iter().map(|codec| Step::new(&stage_name(*codec), None));
    progress.steps(&steps.collect::<Vec<_>>());
    for codec in codecs {
        on_row(bench.measure(*codec)?)?;
    }
    Ok(())
}

fn stage_name(codec: &dyn FrameCodec) -> String {
    label(codec.name(), codec.level())
}

/// The input and what it compresses to: one buffer per frame, kept from level to level, so that no run but the very
/// first has to map memory.
struct Bench<'a> {
    input: &'a Input,
    options: &'a RepeatOptions,
    progress: &'a dyn Progress,
    workers: usize,
    compressed: Vec<Mutex<Vec<u8>>>,
}

impl<'a> Bench<'a> {
    fn new(input: &'a Input, options: &'a RepeatOptions, progress: &'a dyn Progress) -> Self {
        let workers = options.threads.clamp(1, input.frames.len().max(1));
        let compressed = input.frames.iter().map(|_| Mutex::default()).collect();
        Self { input, options, progress, workers, compressed }
    }

    fn measure(&mut self, codec: &dyn FrameCodec) -> Result<LevelRow> {
        let content_bytes = self.input.content_bytes();
        let passes = 1 + 2 * self.options.repeat as u64;
        self.progress.stage(&stage_name(codec), Some(content_bytes * passes));

        let mut encoders: Vec<Box<dyn FrameEncoder>> = self.workers_of(|| codec.new_encoder())?;
        let encode = |encoder: &mut Box<dyn FrameEncoder>, number: usize| {
            encoder.encode(&self.input.frames[number].content, &mut self.compressed_frame(number))
        };
        self.pass(&mut encoders, Some(Instant::now() + WARM_UP_TIME), false, &encode)?;
        let compress = self.repeat(&mut encoders, &encode)?;
        let encoder_bytes: usize = encoders.iter().map(|encoder| encoder.context_bytes()).sum();
        drop(encoders);

        self.check_round_trip(codec)?;

        let mut decoders: Vec<Decoder> =
            self.workers_of(|| Ok(Decoder { decoder: codec.new_decoder()?, content: Vec::new() }))?;
        let decode = |worker: &mut Decoder, number: usize| {
            let length = self.input.frames[number].content.len();
            worker.decoder.decode(&self.compressed_frame(number), length, &mut worker.content)
        };
        self.pass(&mut decoders, Some(Instant::now() + WARM_UP_TIME), false, &decode)?;
        let decompress = self.repeat(&mut decoders, &decode)?;
        let decoder_bytes: usize = decoders.iter().map(|worker| worker.decoder.context_bytes()).sum();

        let frame_bytes = self.input.frames.iter().map(|frame| frame.content.len()).max().unwrap_or(0);
        let buffer_bytes = self.workers * (frame_bytes + codec.encoded_bytes_max(frame_bytes));
        Ok(self.row(codec, &compress, &decompress, encoder_bytes.max(decoder_bytes) + buffer_bytes))
    }

    fn row(&self, codec: &dyn FrameCodec, compress: &Runs, decompress: &Runs, peak_memory_bytes: usize) -> LevelRow {
        let frames = &self.input.frames;
        let sizes: Vec<(u64, u64)> = (0..frames.len())
            .map(|number| (frames[number].content.len() as u64, self.compressed_frame(number).len() as u64))
            .collect();
        let input_bytes = self.input.content_bytes();
        let output_bytes: u64 = sizes.iter().map(|(_, compressed)| compressed).sum();
        let is_sampled = self.input.is_sampled();
        let scale = self.input.total_bytes as f64 / (input_bytes as f64).max(1.0);
        let mut warnings = compress.warnings("compress");
        for warning in decompress.warnings("decompress") {
            if !warnings.iter().any(|known| std::mem::discriminant(known) == std::mem::discriminant(&warning)) {
                warnings.push(warning);
            }
        }
        LevelRow {
            codec: codec.name().to_string(),
            level: codec.level(),
            input_bytes,
            output_bytes,
            compress: compress.summary(),
            decompress: decompress.summary(),
            cpu_percent: compress.cpu_percent(),
            compress_cpu_seconds: compress.cpu_seconds(),
            decompress_cpu_percent: decompress.cpu_percent(),
            peak_memory_bytes: peak_memory_bytes as u64,
            size_error_percent: is_sampled.then(|| size_error_percent(&sizes, self.input.total_frames)).flatten(),
            estimated_output_bytes: is_sampled.then_some((output_bytes as f64 * scale) as u64),
            warnings: shape_warnings(frames.len(), self.options.threads).into_iter().chain(warnings).collect(),
        }
    }

    fn workers_of<S>(&self, new: impl Fn() -> Result<S>) -> Result<Vec<S>> {
        (0..self.workers).map(|_| new()).collect()
    }

    fn compressed_frame(&self, number: usize) -> MutexGuard<'_, Vec<u8>> {
        // Never contended: a pass gives each frame to one worker.
        self.compressed[number].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Decompresses every frame, and compares its hash.
    fn check_round_trip(&self, codec: &dyn FrameCodec) -> Result<()> {
        let mut decoders: Vec<Decoder> =
            self.workers_of(|| Ok(Decoder { decoder: codec.new_decoder()?, content: Vec::new() }))?;
        let wrong = |number: usize, how: String| {
            Error::failed(format!(
                "{} level {} does not round-trip: frame {number} of {} {how}",
                codec.name(),
                codec.level(),
                self.input.frames.len()
            ))
            .hint(
                "the memory or the processor may be faulty: test them; an archive made on this machine may be damaged",
            )
        };
        let check = |worker: &mut Decoder, number: usize| {
            let frame = &self.input.frames[number];
            let compressed = self.compressed_frame(number);
            worker
                .decoder
                .decode(&compressed, frame.content.len(), &mut worker.content)
                .map_err(|error| wrong(number, format!("cannot be decompressed ({error})")))?;
            match blake3::hash(&worker.content) == frame.hash {
                true => Ok(()),
                false => Err(wrong(number, "comes back as other bytes".to_string())),
            }
        };
        self.pass(&mut decoders, None, true, &check).map(drop)
    }

    /// Runs until both the number of runs and the time are reached.
    fn repeat<S: Send>(&self, states: &mut [S], work: &(dyn Fn(&mut S, usize) -> Result<()> + Sync)) -> Result<Runs> {
        let start = Instant::now();
        let mut runs = Runs::default();
        while runs.taken.len() < self.options.repeat.max(1) || start.elapsed() < self.options.min_time {
            let is_counted = runs.taken.len() < self.options.repeat;
            let pass = self.pass(states, None, is_counted, work)?;
            runs.busy.elapsed += pass.busy.elapsed;
            runs.busy.cpu += pass.busy.cpu;
            runs.taken.push(pass.taken);
        }
        Ok(runs)
    }

    /// One pass over all frames, or until the deadline.
    fn pass<S: Send>(
        &self,
        states: &mut [S],
        deadline: Option<Instant>,
        is_progress: bool,
        work: &(dyn Fn(&mut S, usize) -> Result<()> + Sync),
    ) -> Result<Pass> {
        let next = AtomicUsize::new(0);
        let is_failed = AtomicBool::new(false);
        let run = |state: &mut S| -> Result<Taken> {
            let stopwatch = ThreadStopwatch::start();
            loop {
                let number = next.fetch_add(1, Relaxed);
                let Some(frame) = self.input.frames.get(number) else { break };
                if is_failed.load(Relaxed) || deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                    break;
                }
                self.progress
                    .check()
                    .and_then(|()| work(state, number))
                    .inspect_err(|_| is_failed.store(true, Relaxed))?;
                if is_progress {
                    self.progress.advance(frame.content.len() as u64, 0);
                }
            }
            Ok(stopwatch.taken())
        };
        let stopwatch = Stopwatch::start();
        let results: Vec<Result<Taken>> = std::thread::scope(|scope| {
            let run = &run;
            let threads: Vec<_> = states.iter_mut().map(|state| spawn(scope, move || guarded(|| run(state)))).collect();
            let ended = |thread: Result<std::thread::ScopedJoinHandle<'_, Result<Taken>>>| {
                thread?.join().unwrap_or_else(|payload| Err(panicked(payload.as_ref())))
            };
            threads.into_iter().map(ended).collect()
        });
        let taken = stopwatch.taken();
        let mut busy = Taken::default();
        for result in results {
            let worker = result?;
            busy.elapsed += worker.elapsed;
            busy.cpu += worker.cpu;
        }
        Ok(Pass { taken, busy })
    }
}

struct Decoder {
    decoder: Box<dyn FrameDecode>,
    content: Vec<u8>,
}

/// What one pass took: as a whole, and its workers added up.
struct Pass {
    taken: Taken,
    busy: Taken,
}

/// Passes that count.
#[derive(Default)]
struct Runs {
    taken: Vec<Taken>,
    busy: Taken,
}

impl Runs {
    fn seconds(&self) -> Vec<f64> {
        self.taken.iter().map(|taken| taken.elapsed.as_secs_f64()).collect()
    }

    fn summary(&self) -> Summary {
        Summary::of(&self.seconds())
    }

    fn cpu_percent(&self) -> f64 {
        median(&self.taken.iter().map(Taken::cpu_percent).collect::<Vec<_>>())
    }

    fn cpu_seconds(&self) -> f64 {
        median(&self.taken.iter().map(|taken| taken.cpu.as_secs_f64()).collect::<Vec<_>>())
    }

    fn warnings(&self, what: &'static str) -> Vec<Warning> {
        let mut warnings = run_warnings(what, &self.seconds());
        let lost_percent = 100.0 - self.busy.cpu_percent();
        if lost_percent > LOST_PERCENT_MAX && self.summary().median >= RUN_TIME_MIN.as_secs_f64() {
            warnings.push(Warning::OtherLoad { lost_percent });
        }
        warnings
    }
}

#[cfg(test)]
mod tests {
    use {
        super::*,
        crate::levels::{
            codec::ZstdLevel,
            content::{ContentFrame, InputKind},
        },
        slotpress_base::{error::ErrorKind, progress::NoProgress},
        std::sync::atomic::AtomicU64,
    };

    fn input(frames: usize) -> Input {
        let frame = |number: usize| ContentFrame::new((0..70_000).map(|at| ((at / 7 + number) % 251) as u8).collect());
        let frames: Vec<_> = (0..frames).map(frame).collect();
        let total_bytes = frames.len() as u64 * 70_000;
        let total_frames = frames.len() as u64;
        Input { kind: InputKind::File, total_bytes, total_frames, frame_size_bytes: 70_000, frames }
    }

    fn options(threads: usize) -> RepeatOptions {
        RepeatOptions { repeat: 2, min_time: Duration::ZERO, threads }
    }

    fn measure(codecs: &[&dyn FrameCodec], threads: usize, progress: &dyn Progress) -> (Vec<LevelRow>, Result<()>) {
        let mut rows = Vec::new();
        let result = measure_levels(&input(5), codecs, &options(threads), progress, &mut |row| {
            rows.push(row);
            Ok(())
        });
        (rows, result)
    }

    #[test]
    fn sizes_do_not_depend_on_threads() {
        let codecs: [&dyn FrameCodec; 3] = [&ZstdLevel(1), &ZstdLevel(-3), &ZstdLevel(12)];
        let one = measure(&codecs, 1, &NoProgress);
        let many = measure(&codecs, 9, &NoProgress);
        assert!(one.1.is_ok() && many.1.is_ok());
        let sizes = |rows: &[LevelRow]| rows.iter().map(|row| (row.level, row.output_bytes)).collect::<Vec<_>>();
        assert_eq!(sizes(&one.0), sizes(&many.0));
        assert_eq!((one.0[0].input_bytes, one.0[0].compress.runs), (350_000, 2));
        assert!(one.0[2].peak_memory_bytes > 140_000 && many.0[2].peak_memory_bytes > one.0[2].peak_memory_bytes);
        assert_eq!((one.0[0].size_error_percent, one.0[0].estimated_output_bytes), (None, None));
    }

    /// zstd with one flipped bit in what comes back, or one byte less.
    struct Corrupting {
        is_cut: bool,
    }

    impl FrameCodec for Corrupting {
        fn name(&self) -> &str {
            "corrupting"
        }
        fn level(&self) -> i32 {
            3
        }
        fn new_encoder(&self) -> Result<Box<dyn FrameEncoder>> {
            ZstdLevel(3).new_encoder()
        }
        fn new_decoder(&self) -> Result<Box<dyn FrameDecode>> {
            Ok(Box::new(CorruptingDecoder { inner: ZstdLevel(3).new_decoder()?, is_cut: self.is_cut }))
        }
        fn encoded_bytes_max(&self, content_bytes: usize) -> usize {
            content_bytes
        }
    }

    struct CorruptingDecoder {
        inner: Box<dyn FrameDecode>,
        is_cut: bool,
    }

    impl FrameDecode for CorruptingDecoder {
        fn decode(&mut self, frame: &[u8], content_bytes: usize, to: &mut Vec<u8>) -> Result<()> {
            self.inner.decode(frame, content_bytes, to)?;
            match self.is_cut {
                true => drop(to.pop()),
                false => to[10_000] ^= 4,
            }
            Ok(())
        }
        fn context_bytes(&self) -> usize {
            0
        }
    }

    #[test]
    fn a_level_that_does_not_round_trip_is_an_error() {
        for is_cut in [false, true] {
            let (rows, result) = measure(&[&ZstdLevel(1), &Corrupting { is_cut }], 2, &NoProgress);
            assert_eq!(rows.len(), 1, "what was measured before stays");
            let error = result.expect_err("other bytes");
            assert!(error.to_string().starts_with("corrupting level 3 does not round-trip"), "{error}");
        }
    }

    /// Asks to stop after a number of checks.
    struct StopAfter(AtomicU64);

    impl Progress for StopAfter {
        fn is_interrupted(&self) -> bool {
            self.0.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_err()
        }
    }

    #[test]
    fn an_interruption_keeps_what_was_measured() {
        // A level takes 5 frames x (2 warm-ups, 1 check, 2 + 2 runs) = 35 checks.
        let (rows, result) = measure(&[&ZstdLevel(1), &ZstdLevel(2)], 1, &StopAfter(AtomicU64::new(50)));
        assert_eq!(rows.len(), 1);
        assert_eq!(result.expect_err("interrupted").kind(), ErrorKind::Interrupted);
    }
}
