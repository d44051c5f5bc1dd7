//! Measures codecs: compresses and decompresses pieces of content repeatedly, each piece on its
//! own.
//!
//! A run is one pass over all pieces. A warm-up pass comes first and is not counted: it maps memory
//! and lets the cores reach a steady clock. Contexts and buffers are reused between pieces and
//! runs, as in `archive`. Afterwards, every piece is decompressed once and compared, which is the
//! warm-up for decompressing; a codec that does not restore the same bytes is an error.
//!
//! Clustering of records counts as part of compressing; decompressed frames are then compared with
//! the clustered ones.
//!
//! Levels are measured with whole frames on all cores; `sizes` and `frames` measure small pieces on
//! one core.

use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use slotpress_base::threads::{guarded, panicked, spawn};
use slotpress_base::{Elapsed, Error, ErrorKind, Progress, Result, Step, Stopwatch, quantity};

use crate::archive::layout::{Carry, FrameClusterer, FrameLink, RecordLayout, clustering_bytes};
use crate::levels::codec::{FrameCodec, FrameCoder, REFERENCE_CODEC, REFERENCE_LEVEL};
use crate::levels::input::{Input, InputKind};
use crate::levels::latency::{Latency, Times};
use crate::levels::sample::size_error_percent;
use crate::levels::statistics::{LOST_PERCENT_MAX, RUN_TIME_MIN, Summary, Warning, median, run_warning, shape_warning};
use crate::levels::{LevelRow, MeasureOptions};

/// Maximum duration of the warm-up: by then, processors have reached a steady clock, and caches are
/// filled.
const WARM_UP_TIME: Duration = Duration::from_millis(500);

/// Limits of a batch, in pieces and bytes. Workers take batches, because taking a small piece alone
/// would cost more time than compressing it. A frame of an archive exceeds the limit, and is a
/// batch alone.
const BATCH_PIECES: usize = 256;
const BATCH_BYTES: usize = 32 << 10;

/// Measures each codec on the frames of an input, the reference codec first. `on_row` receives each
/// row when it is ready. Returns the codecs for which the time budget did not suffice; the first
/// codec is always measured.
///
/// # Errors
/// If a codec does not restore the same bytes, if the input has no records to cluster, or if the
/// user interrupts it.
pub fn measure_levels(
    input: &Input,
    options: &MeasureOptions,
    progress: &dyn Progress,
    on_row: &mut dyn FnMut(LevelRow) -> Result<()>,
) -> Result<Vec<FrameCodec>> {
    let mut codecs = options.codecs.clone();
    codecs.sort_by_key(|codec| (codec.name, codec.level) != (REFERENCE_CODEC, REFERENCE_LEVEL));
    let is_clustered = |codec: &&FrameCodec| codec.layout() == RecordLayout::Clustered;
    if let Some(codec) = codecs.iter().find(is_clustered).filter(|_| input.kind == InputKind::File) {
        return Err(Error::usage(format!("{}: the input holds no records to cluster", codec.label()))
            .with_hint("give a ledger or a snapshot archive"));
    }
    let pieces = input.frames.iter().map(|frame| frame.content.as_slice()).collect();
    let carries = input.frames.iter().map(|frame| frame.carry.as_ref()).collect();
    let mut bench = Bench { carries, ..Bench::new(pieces, options, progress) };
    let end = options.budget.and_then(|budget| Instant::now().checked_add(budget));
    // Levels take very different times for the same bytes: show the percentage of each level on its
    // own.
    let steps = codecs.iter().map(|codec| Step::new(&codec.label(), None));
    progress.steps(&steps.collect::<Vec<_>>());
    for number in 0..codecs.len() {
        let codec = codecs[number];
        // Divide the remaining time evenly among the remaining codecs.
        let share = |end: Instant| end.saturating_duration_since(Instant::now()) / (codecs.len() - number) as u32;
        bench.runs_end = end.map(|end| Instant::now() + share(end));
        bench.end = end.filter(|_| number > 0);
        let mut row = match bench.measure(&codec, &codec.label()) {
            Ok(measured) => measured.row,
            Err(error) if error.kind() == ErrorKind::Interrupted && bench.is_over() && !progress.is_interrupted() => {
                return Ok(codecs.split_off(number));
            }
            Err(error) => return Err(error),
        };
        if input.is_sampled() {
            let scale = input.total_bytes as f64 / (row.input_bytes as f64).max(1.0);
            row.estimated_output_bytes = Some((row.output_bytes as f64 * scale) as u64);
            row.size_error_percent = size_error_percent(&bench.sizes(), input.total_frames);
        }
        on_row(row)?;
    }
    Ok(Vec::new())
}

pub struct Bench<'a> {
    pieces: Vec<&'a [u8]>,
    batches: Vec<Range<usize>>,
    /// Compressed pieces of each batch. Kept from codec to codec, so that only the first run has to
    /// map memory.
    compressed: Vec<Mutex<Batch>>,
    options: &'a MeasureOptions,
    /// If set, each piece is timed, and pieces that a warm-up of this duration does not reach are
    /// left out.
    each: Option<Duration>,
    /// Positions of records for clustering, if the pieces are frames.
    carries: Vec<Option<&'a Carry>>,
    /// After this time, no further run is started; the first one always is.
    runs_end: Option<Instant>,
    end: Option<Instant>,
    progress: &'a dyn Progress,
}

#[derive(Default)]
struct Batch {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Batch {
    fn frames(&self) -> impl Iterator<Item = &[u8]> {
        let starts = [0].into_iter().chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, end)| &self.bytes[start..*end])
    }
}

pub struct Measured {
    pub row: LevelRow,
    pub pieces: u64,
    pub compress_memory_bytes: u64,
    /// Times of compressing single pieces, if each was timed.
    pub compress: Latency,
    /// Times of decompressing single pieces, if each was timed.
    pub decompress: Latency,
}

struct Worker {
    coder: Box<dyn FrameCoder>,
    clusterer: Option<FrameClusterer>,
    buffer: Vec<u8>,
    times: Option<Times>,
}

impl Worker {
    fn timed(&mut self, work: impl FnOnce(&mut dyn FrameCoder, &mut Vec<u8>) -> Result<()>) -> Result<()> {
        let start = self.times.is_some().then(Instant::now);
        let result = work(self.coder.as_mut(), &mut self.buffer);
        if let (Some(times), Some(start)) = (&mut self.times, start) {
            times.record(start.elapsed());
        }
        result
    }
}

type Work<'a> = dyn Fn(&mut Worker, usize) -> Result<()> + Sync + 'a;

impl<'a> Bench<'a> {
    pub fn new(pieces: Vec<&'a [u8]>, options: &'a MeasureOptions, progress: &'a dyn Progress) -> Self {
        let mut batches: Vec<Range<usize>> = Vec::new();
        let mut bytes = 0;
        for (number, piece) in pieces.iter().enumerate() {
            match batches.last_mut() {
                Some(batch) if batch.len() < BATCH_PIECES && bytes < BATCH_BYTES => batch.end = number + 1,
                _ => {
                    batches.push(number..number + 1);
                    bytes = 0;
                }
            }
            bytes += piece.len();
        }
        let compressed = batches.iter().map(|_| Mutex::default()).collect();
        let (carries, runs_end, end) = (Vec::new(), None, None);
        Self { pieces, batches, compressed, options, each: None, carries, runs_end, end, progress }
    }

    /// Times every piece; for use with one thread. Pieces that a warm-up of `warm_up_max` does not
    /// reach are left out.
    pub fn timing_each(self, warm_up_max: Duration) -> Self {
        Self { each: Some(warm_up_max), ..self }
    }

    /// Measures a codec; `stage` is its name in the progress. Fails if a piece is not restored to
    /// the same bytes.
    pub fn measure(&mut self, codec: &FrameCodec, stage: &str) -> Result<Measured> {
        let passes = 1 + 2 * self.options.repeat as u64;
        self.progress.stage(stage, Some(self.content_bytes() * passes));
        let mut encoders = self.workers(codec, &|| codec.new_encoder())?;
        let warm_up = Instant::now() + self.each.unwrap_or(WARM_UP_TIME);
        let reached = self.pass(&mut encoders, Some(warm_up), false, &|worker, batch| self.encode(worker, batch))?;
        if self.each.is_some() {
            self.batches.truncate(reached.batches);
            self.pieces.truncate(self.batches.last().map_or(0, |last| last.end));
        }
        let compress = self.repeat("compress", &mut encoders, &|worker, batch| self.encode(worker, batch))?;
        let encoder_bytes: usize = encoders.iter().map(|worker| worker.coder.context_bytes()).sum();
        drop(encoders);

        let mut decoders = self.workers(codec, &|| codec.new_decoder())?;
        self.pass(&mut decoders, None, true, &|worker, batch| self.check(codec, worker, batch))?;
        let decompress = self.repeat("decompress", &mut decoders, &|worker, batch| self.decode(worker, batch))?;
        let decoder_bytes: usize = decoders.iter().map(|worker| worker.coder.context_bytes()).sum();

        let longest = self.pieces.iter().map(|piece| piece.len()).max().unwrap_or(0);
        let buffer_bytes = decoders.len() * (longest + codec.encoded_bytes_max(longest));
        let clustering_bytes = clustering_bytes(codec.layout(), longest as u64) * decoders.len() as u64;
        let compress_memory_bytes = (encoder_bytes + buffer_bytes) as u64 + clustering_bytes;
        let output_bytes = self.sizes().iter().map(|(_, compressed)| compressed).sum();
        let mut row = row(codec, self.content_bytes(), output_bytes, &compress, &decompress);
        row.peak_memory_bytes = compress_memory_bytes.max((decoder_bytes + buffer_bytes) as u64);
        row.warnings = shape_warning(self.pieces.len(), self.options.threads).into_iter().chain(row.warnings).collect();
        let (runs, wanted) = (row.compress.runs.min(row.decompress.runs), self.options.repeat);
        row.warnings.extend((runs < wanted).then_some(Warning::FewRuns { runs, wanted }));
        let pieces = self.pieces.len() as u64;
        let (compress, decompress) = (compress.latency, decompress.latency);
        Ok(Measured { row, pieces, compress_memory_bytes, compress, decompress })
    }

    fn content_bytes(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.len() as u64).sum()
    }

    fn sizes(&self) -> Vec<(u64, u64)> {
        let of_batch =
            |batch: usize| -> Vec<u64> { self.compressed(batch).frames().map(|frame| frame.len() as u64).collect() };
        let compressed = (0..self.batches.len()).flat_map(of_batch);
        self.pieces.iter().map(|piece| piece.len() as u64).zip(compressed).collect()
    }

    fn workers(&self, codec: &FrameCodec, new: &dyn Fn() -> Result<Box<dyn FrameCoder>>) -> Result<Vec<Worker>> {
        let layout = codec.layout();
        let clusterer = || (layout == RecordLayout::Clustered).then(FrameClusterer::default);
        let worker = |_| Ok(Worker { coder: new()?, clusterer: clusterer(), buffer: Vec::new(), times: None });
        (0..self.options.threads.clamp(1, self.batches.len().max(1))).map(worker).collect()
    }

    fn compressed(&self, batch: usize) -> MutexGuard<'_, Batch> {
        // There is no contention: a pass gives each batch to one worker only.
        self.compressed[batch].lock()
    }

    fn pieces_of(&self, batch: usize) -> &[&'a [u8]] {
        &self.pieces[self.batches[batch].clone()]
    }

    /// Calls `work` for each piece of a batch, clustered if the codec asks for it.
    fn for_each_laid_out(
        &self,
        clusterer: &mut Option<FrameClusterer>,
        batch: usize,
        work: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        for number in self.batches[batch].clone() {
            let Some(clusterer) = clusterer else {
                work(self.pieces[number])?;
                continue;
            };
            let link = FrameLink::alone(self.carries.get(number).copied().flatten().cloned());
            work(clusterer.cluster(self.pieces[number], link)?.0)?;
        }
        Ok(())
    }

    fn encode(&self, worker: &mut Worker, number: usize) -> Result<()> {
        let mut batch = self.compressed(number);
        let Batch { bytes, ends } = &mut *batch;
        ends.clear();
        let is_alone = self.batches[number].len() == 1;
        bytes.clear();
        let mut clusterer = worker.clusterer.take();
        self.for_each_laid_out(&mut clusterer, number, &mut |piece| {
            if is_alone {
                worker.timed(|encoder, _| encoder.code(piece, piece.len(), bytes))?;
            } else {
                worker.timed(|encoder, buffer| encoder.code(piece, piece.len(), buffer))?;
                bytes.extend_from_slice(&worker.buffer);
            }
            ends.push(bytes.len());
            Ok(())
        })?;
        worker.clusterer = clusterer;
        Ok(())
    }

    fn decode(&self, worker: &mut Worker, number: usize) -> Result<()> {
        let batch = self.compressed(number);
        let mut pairs = batch.frames().zip(self.pieces_of(number));
        pairs.try_for_each(|(frame, piece)| worker.timed(|decoder, buffer| decoder.code(frame, piece.len(), buffer)))
    }

    /// Decompresses a batch, and compares it with the original.
    fn check(&self, codec: &FrameCodec, worker: &mut Worker, number: usize) -> Result<()> {
        let batch = self.compressed(number);
        let mut frames = batch.frames();
        let mut clusterer = worker.clusterer.take();
        self.for_each_laid_out(&mut clusterer, number, &mut |piece| {
            let wrong = |how: String| {
                let bytes = quantity::bytes(piece.len() as u64);
                Error::failed(format!("{} does not round-trip: a frame of {bytes} {how}", codec.label())).with_hint(
                    "the memory or the processor may be faulty: test them; an archive made on this machine may be damaged",
                )
            };
            let frame = frames.next().ok_or_else(|| wrong("is missing".to_string()))?;
            let result = worker.coder.code(frame, piece.len(), &mut worker.buffer);
            result.map_err(|error| wrong(format!("cannot be decompressed ({error})")))?;
            if worker.buffer != *piece {
                return Err(wrong("comes back as other bytes".to_string()));
            }
            Ok(())
        })?;
        worker.clusterer = clusterer;
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.end.is_some_and(|end| Instant::now() >= end)
    }

    /// Makes runs until both their number and their minimum time are reached, or the time for
    /// further runs is over.
    fn repeat(&self, what: &'static str, workers: &mut [Worker], work: &Work<'_>) -> Result<Runs> {
        if self.each.is_some() {
            workers.iter_mut().try_for_each(|worker| Times::new().map(|times| worker.times = Some(times)))?;
        }
        let start = Instant::now();
        let mut runs = Runs::new(what);
        let is_late = || self.runs_end.is_some_and(|end| Instant::now() >= end);
        let is_wanted = |runs: usize| runs < self.options.repeat.max(1) || start.elapsed() < self.options.min_time;
        while runs.taken.is_empty() || (is_wanted(runs.taken.len()) && !is_late()) {
            let pass = self.pass(workers, None, runs.taken.len() < self.options.repeat, work)?;
            runs.busy.wall += pass.busy.wall;
            runs.busy.cpu += pass.busy.cpu;
            runs.taken.push(pass.taken);
        }
        runs.latency = workers.first().and_then(|worker| Some(worker.times.as_ref()?.latency())).unwrap_or_default();
        Ok(runs)
    }

    /// Makes one pass over all batches. With a deadline, it ends there, but after one batch at the
    /// earliest.
    fn pass(
        &self,
        workers: &mut [Worker],
        deadline: Option<Instant>,
        is_progress: bool,
        work: &Work<'_>,
    ) -> Result<Pass> {
        let next = AtomicUsize::new(0);
        let is_failed = AtomicBool::new(false);
        let is_reached = || next.load(Relaxed) > 0 && deadline.is_some_and(|deadline| Instant::now() >= deadline);
        let run = |worker: &mut Worker| -> Result<Elapsed> {
            let stopwatch = Stopwatch::start_on_thread();
            // Elapsed time is read directly, because reading CPU time takes longer than compressing
            // a small batch.
            let start = Instant::now();
            while !is_reached() && !is_failed.load(Relaxed) {
                let number = next.fetch_add(1, Relaxed);
                if number >= self.batches.len() {
                    break;
                }
                let stop = if self.is_over() { Err(Error::interrupted()) } else { self.progress.check() };
                let result = stop.and_then(|()| work(worker, number));
                result.inspect_err(|_| is_failed.store(true, Relaxed))?;
                if is_progress {
                    self.progress.advance(self.pieces_of(number).iter().map(|piece| piece.len() as u64).sum(), 0);
                }
            }
            let elapsed = start.elapsed();
            Ok(Elapsed { wall: elapsed, ..stopwatch.elapsed() })
        };
        let stopwatch = Stopwatch::start();
        let busy: Vec<Elapsed> = match workers {
            // A single worker runs on this thread: starting one takes longer than a pass over a few
            // small pieces.
            [worker] => vec![guarded(|| run(worker))?],
            workers => std::thread::scope(|scope| {
                let run = &run;
                let start = |worker| spawn(scope, move || guarded(|| run(worker)));
                let threads: Vec<_> = workers.iter_mut().map(start).collect();
                let ended = |thread: Result<std::thread::ScopedJoinHandle<'_, Result<Elapsed>>>| {
                    thread?.join().unwrap_or_else(|payload| Err(panicked(payload.as_ref())))
                };
                threads.into_iter().map(ended).collect::<Vec<_>>().into_iter().collect::<Result<_>>()
            })?,
        };
        let taken = if let [worker] = busy.as_slice() { *worker } else { stopwatch.elapsed() };
        let sum = |of: fn(&Elapsed) -> Duration| busy.iter().map(of).sum();
        let busy = Elapsed { wall: sum(|taken| taken.wall), cpu: sum(|taken| taken.cpu) };
        Ok(Pass { taken, busy, batches: next.into_inner().min(self.batches.len()) })
    }
}

struct Runs {
    what: &'static str,
    taken: Vec<Elapsed>,
    busy: Elapsed,
    latency: Latency,
}

impl Runs {
    fn new(what: &'static str) -> Self {
        Self { what, taken: Vec::new(), busy: Elapsed::default(), latency: Latency::default() }
    }

    fn seconds(&self) -> Vec<f64> {
        self.taken.iter().map(|taken| taken.wall.as_secs_f64()).collect()
    }

    fn median(&self, of: impl Fn(&Elapsed) -> f64) -> f64 {
        median(&self.taken.iter().map(of).collect::<Vec<_>>())
    }

    fn warnings(&self) -> Vec<Warning> {
        let mut warnings: Vec<Warning> = run_warning(self.what, &self.seconds()).into_iter().collect();
        // Workers only compute. If one took more elapsed time than CPU time, it had to wait for a
        // core.
        let lost_percent = 100.0 - self.busy.cpu_percent();
        let is_measured = !self.busy.wall.is_zero() && median(&self.seconds()) >= RUN_TIME_MIN.as_secs_f64();
        if is_measured && lost_percent > LOST_PERCENT_MAX {
            warnings.push(Warning::OtherLoad { lost_percent });
        }
        warnings
    }
}

fn row(codec: &FrameCodec, input_bytes: u64, output_bytes: u64, compress: &Runs, decompress: &Runs) -> LevelRow {
    let mut warnings = compress.warnings();
    for warning in decompress.warnings() {
        let is_known = |known: &Warning| std::mem::discriminant(known) == std::mem::discriminant(&warning);
        if !warnings.iter().any(is_known) {
            warnings.push(warning);
        }
    }
    LevelRow {
        codec: codec.name.to_string(),
        level: codec.level,
        input_bytes,
        output_bytes,
        compress: Summary::of(&compress.seconds()),
        compress_runs: compress.taken.clone(),
        decompress: Summary::of(&decompress.seconds()),
        cpu_percent: compress.median(Elapsed::cpu_percent),
        compress_cpu_seconds: compress.median(|taken| taken.cpu.as_secs_f64()),
        decompress_cpu_percent: decompress.median(Elapsed::cpu_percent),
        warnings,
        ..LevelRow::default()
    }
}

struct Pass {
    taken: Elapsed,
    busy: Elapsed,
    batches: usize,
}

#[cfg(test)]
#[path = "measure_tests.rs"]
mod tests;
