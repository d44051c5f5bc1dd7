//! Measures codecs: compresses and decompresses pieces of content repeatedly, each piece on its
//! own.
//!
//! A run is one pass over all pieces. A warm-up of at most half a second comes first and is not
//! counted: it maps memory and lets the cores reach a steady clock. Contexts and buffers are reused
//! between pieces and runs, as in `archive`. After the runs of compressing, every piece is decompressed
//! once and compared, which is the warm-up for decompressing; a codec that does not restore the same
//! bytes is an error.
//!
//! Clustering of records is measured as part of compressing; decompressed frames are then compared with
//! the clustered ones.
//!
//! Levels are measured with whole frames on as many cores as there are workers; `sizes` and `frames`
//! measure small pieces on one core.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use slotpress_base::{
    Elapsed, Error, ErrorKind, NoProgress, Progress, Result, Stage, Step, Stopwatch, ThreadPool, catch_panic, quantity,
    start_pool,
};

use crate::archive::layout::{CarriedPosition, FrameClusterer, FrameLink, RecordLayout, clustering_bytes};
use crate::levels::codec::{Decoder, Encoder, FrameCodec};
use crate::levels::input::{Input, InputKind};
use crate::levels::sample::{FrameSizes, size_error_percent};
use crate::levels::statistics::{
    Latency, Summary, Warning, few_frames_warning, few_runs_warning, load_warning, median, time_warning,
};
use crate::levels::{LevelRow, MeasureOptions};

/// Maximum duration of the warm-up: by then, processors have reached a steady clock, and caches are
/// filled.
const WARM_UP_MAX: Duration = Duration::from_millis(500);

/// Limits on a batch, in pieces and bytes. Workers take batches, because taking a small piece alone
/// would take more time than compressing it.
const BATCH_PIECES_MAX: usize = 256;
const BATCH_BYTES_MAX: usize = 32 << 10;

/// Measures each codec on the frames of an input, the reference codec first, and appends its row.
/// Returns the codecs for which the time budget did not suffice; the first codec is always measured.
///
/// # Errors
/// A codec does not restore the same bytes, the input has no records to cluster, or the user interrupts
/// the measurement.
pub fn measure_levels(
    input: &Input,
    options: &MeasureOptions,
    progress: &dyn Progress,
    rows: &mut Vec<LevelRow>,
) -> Result<Vec<FrameCodec>> {
    let mut codecs = options.codecs.clone();
    codecs.sort_by_key(|codec| *codec != FrameCodec::default());
    let is_clustered = |codec: &&FrameCodec| codec.layout() == RecordLayout::Clustered;
    if input.kind == InputKind::File
        && let Some(codec) = codecs.iter().find(is_clustered)
    {
        return Err(Error::usage(format!("{codec}: the input holds no records to cluster"))
            .with_hint("pass a ledger or a snapshot archive"));
    }
    let batches = input.frames.iter().map(|frame| Batch::new(&frame.content, frame.carry.as_ref()));
    let mut bench = CodecBench::new(batches.collect(), options, progress);
    let end = options.budget.and_then(|budget| Instant::now().checked_add(budget));
    // Levels take very different times for the same bytes, so each level has a percentage of its own.
    let steps = codecs.iter().map(|codec| Step::new(Stage::Measurement(codec.to_string()), None));
    progress.steps(&steps.collect::<Vec<_>>());
    for (number, codec) in codecs.iter().enumerate() {
        // Divide the remaining time evenly among the remaining codecs.
        let now = Instant::now();
        let remaining_codecs = (codecs.len() - number) as u32;
        bench.runs_end = end.map(|end| now + end.saturating_duration_since(now) / remaining_codecs);
        bench.deadline = if number > 0 { end } else { None };
        let mut row = match bench.measure(*codec, codec.to_string()) {
            Ok(measurement) => measurement.row,
            Err(error)
                if error.kind() == ErrorKind::Interrupted && bench.is_out_of_time() && !progress.is_interrupted() =>
            {
                return Ok(codecs[number..].to_vec());
            }
            Err(error) => return Err(error),
        };
        if input.is_sampled() {
            let scale = input.total_bytes as f64 / (row.input_bytes as f64).max(1.0);
            row.estimated_output_bytes = Some((row.output_bytes as f64 * scale) as u64);
            let sizes: Vec<FrameSizes> = bench.batches.iter().map(Batch::sizes).collect();
            row.size_error_percent = size_error_percent(&sizes, input.total_frames);
        }
        rows.push(row);
    }
    Ok(Vec::new())
}

/// Pieces that one worker takes together, and compresses one by one.
pub struct Batch<'a> {
    pieces: Vec<&'a [u8]>,
    /// Position of the records at the piece's start, for clustering.
    carry: Option<&'a CarriedPosition>,
    /// Reused by every codec, so that only the first run has to map memory. There is no contention,
    /// because each batch is processed by only one worker in a pass.
    compressed: Mutex<Compressed>,
}

#[derive(Default)]
struct Compressed {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Compressed {
    fn frames(&self) -> impl Iterator<Item = &[u8]> {
        let starts = [0].into_iter().chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, end)| &self.bytes[start..*end])
    }
}

impl<'a> Batch<'a> {
    fn new(piece: &'a [u8], carry: Option<&'a CarriedPosition>) -> Self {
        Self { pieces: vec![piece], carry, compressed: Mutex::default() }
    }

    pub fn from_pieces(pieces: &[&'a [u8]]) -> Vec<Self> {
        let mut batches: Vec<Self> = Vec::new();
        let mut bytes = 0;
        for &piece in pieces {
            match batches.last_mut() {
                Some(batch) if batch.pieces.len() < BATCH_PIECES_MAX && bytes < BATCH_BYTES_MAX => {
                    batch.pieces.push(piece)
                }
                _ => {
                    batches.push(Self::new(piece, None));
                    bytes = 0;
                }
            }
            bytes += piece.len();
        }
        batches
    }

    fn content_bytes(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.len() as u64).sum()
    }

    fn sizes(&self) -> FrameSizes {
        let compressed_bytes = self.compressed.lock().bytes.len() as u64;
        FrameSizes { content_bytes: self.content_bytes(), compressed_bytes }
    }
}

pub struct CodecBench<'a> {
    batches: Vec<Batch<'a>>,
    options: &'a MeasureOptions,
    /// If set, each piece is timed, and batches that a first pass of this duration does not reach are
    /// left out. For use with one thread.
    pub timed_pass_max: Option<Duration>,
    /// After this time, no further run is started. The first run is always made.
    runs_end: Option<Instant>,
    deadline: Option<Instant>,
    progress: &'a dyn Progress,
}

struct Worker {
    codec: FrameCodec,
    encoder: Encoder,
    decoder: Decoder,
    clusterer: Option<FrameClusterer>,
    buffer: Vec<u8>,
    /// Time of each piece in nanoseconds, if pieces are timed.
    piece_times_ns: Option<Vec<u64>>,
}

fn time_work<R>(times_ns: &mut Option<Vec<u64>>, work: impl FnOnce() -> R) -> R {
    let Some(times_ns) = times_ns else { return work() };
    let start = Instant::now();
    let result = work();
    times_ns.push(start.elapsed().as_nanos() as u64);
    result
}

fn cluster_if_wanted<'a>(
    clusterer: &'a mut Option<FrameClusterer>,
    piece: &'a [u8],
    batch: &Batch<'_>,
) -> Result<&'a [u8]> {
    let Some(clusterer) = clusterer else { return Ok(piece) };
    let link = FrameLink::without_neighbors(batch.carry.cloned());
    Ok(clusterer.cluster(piece, link)?.0)
}

impl Worker {
    fn new(codec: FrameCodec) -> Result<Self> {
        let clusterer = (codec.layout() == RecordLayout::Clustered).then(FrameClusterer::default);
        let encoder = Encoder::new(codec)?;
        let decoder = Decoder::new(codec)?;
        Ok(Self { codec, encoder, decoder, clusterer, buffer: Vec::new(), piece_times_ns: None })
    }

    fn encode(&mut self, batch: &Batch<'_>) -> Result<()> {
        let mut compressed = batch.compressed.lock();
        let Compressed { bytes, ends } = &mut *compressed;
        let has_one_piece = batch.pieces.len() == 1;
        bytes.clear();
        ends.clear();
        for piece in &batch.pieces {
            let piece = cluster_if_wanted(&mut self.clusterer, piece, batch)?;
            let frame = if has_one_piece { &mut *bytes } else { &mut self.buffer };
            time_work(&mut self.piece_times_ns, || self.encoder.encode(piece, frame))?;
            if !has_one_piece {
                bytes.extend_from_slice(&self.buffer);
            }
            ends.push(bytes.len());
        }
        Ok(())
    }

    fn decode(&mut self, batch: &Batch<'_>) -> Result<()> {
        let compressed = batch.compressed.lock();
        for (frame, piece) in compressed.frames().zip(&batch.pieces) {
            time_work(&mut self.piece_times_ns, || self.decoder.decode(frame, piece.len(), &mut self.buffer))?;
        }
        Ok(())
    }

    /// Decompresses a batch, and compares it with the original.
    fn check(&mut self, batch: &Batch<'_>) -> Result<()> {
        for (frame, piece) in batch.compressed.lock().frames().zip(&batch.pieces) {
            let piece = cluster_if_wanted(&mut self.clusterer, piece, batch)?;
            let error = |how: String| {
                let codec = self.codec;
                let bytes = quantity::bytes(piece.len() as u64);
                Error::failed(format!("{codec} does not round-trip: a frame of {bytes} {how}")).with_hint(
                    "the memory or the processor may be faulty: test them; an archive made on this machine may be damaged",
                )
            };
            let result = self.decoder.decode(frame, piece.len(), &mut self.buffer);
            result.map_err(|cause| error(format!("cannot be decompressed ({cause})")))?;
            if self.buffer != *piece {
                return Err(error("comes back as different bytes".to_string()));
            }
        }
        Ok(())
    }
}

/// The result of measuring a codec, and the times of single pieces if they were timed.
pub struct Measurement {
    pub row: LevelRow,
    pub compress: Latency,
    pub decompress: Latency,
}

struct WorkerPool {
    threads: ThreadPool,
    workers: Vec<Mutex<Worker>>,
}

type Work<'a> = dyn Fn(&mut Worker, &Batch<'_>) -> Result<()> + Sync + 'a;

impl<'a> CodecBench<'a> {
    pub fn new(batches: Vec<Batch<'a>>, options: &'a MeasureOptions, progress: &'a dyn Progress) -> Self {
        Self { batches, options, timed_pass_max: None, runs_end: None, deadline: None, progress }
    }

    /// Returns the number of pieces; after a measurement, only of the measured ones.
    pub fn piece_count(&self) -> u64 {
        self.batches.iter().map(|batch| batch.pieces.len() as u64).sum()
    }

    /// Measures a codec, and shows the progress as a stage named `stage`. Fails if a piece is not restored
    /// to the same bytes.
    pub fn measure(&mut self, codec: FrameCodec, stage: String) -> Result<Measurement> {
        let content_bytes: u64 = self.batches.iter().map(Batch::content_bytes).sum();
        let announced_bytes = content_bytes * (1 + 2 * self.options.repeat as u64);
        self.progress.stage(Stage::Measurement(stage), Some(announced_bytes));
        let worker_count = self.options.threads.clamp(1, self.batches.len().max(1));
        let workers = (0..worker_count).map(|_| Worker::new(codec).map(Mutex::new)).collect::<Result<_>>()?;
        let threads = start_pool(worker_count)?;
        let pool = WorkerPool { threads, workers };
        let warm_up_end = Instant::now() + self.timed_pass_max.unwrap_or(WARM_UP_MAX);
        let warm_up = self.run_pass(&pool, Some(warm_up_end), &NoProgress, &Worker::encode)?;
        if self.timed_pass_max.is_some() {
            self.batches.truncate(warm_up.batch_count);
        }
        let compress = self.repeat(&pool, &Worker::encode)?;
        self.run_pass(&pool, None, self.progress, &Worker::check)?;
        let decompress = self.repeat(&pool, &Worker::decode)?;

        let input_bytes = self.batches.iter().map(Batch::content_bytes).sum();
        let sizes = self.batches.iter().map(Batch::sizes);
        let output_bytes = sizes.map(|sizes| sizes.compressed_bytes).sum();
        let pieces = self.batches.iter().flat_map(|batch| &batch.pieces);
        let longest_piece = pieces.map(|piece| piece.len()).max().unwrap_or(0);
        let buffer_bytes = (longest_piece + codec.encoded_bytes_max(longest_piece)) as u64;
        let encoding_bytes = buffer_bytes + clustering_bytes(codec.layout(), longest_piece as u64);
        let worker_memory_bytes = |worker: &Mutex<Worker>| {
            let worker = worker.lock();
            let encoder = worker.encoder.context_bytes();
            let decoder = worker.decoder.context_bytes();
            (encoder as u64 + encoding_bytes).max(decoder as u64 + buffer_bytes)
        };
        let runs = compress.durations.len().min(decompress.durations.len());
        let mut warnings = Vec::new();
        warnings.extend(few_frames_warning(self.batches.len(), self.options.threads));
        warnings.extend(compress.warnings("compress"));
        warnings.extend(decompress.warnings("decompress"));
        warnings.extend(few_runs_warning(runs, self.options.repeat));
        let row = LevelRow {
            codec,
            input_bytes,
            output_bytes,
            compress: Summary::from_runs(&compress.seconds()),
            decompress: Summary::from_runs(&decompress.seconds()),
            compress_cpu_percent: compress.median(Elapsed::cpu_percent),
            compress_cpu_seconds: compress.median(|duration| duration.cpu.as_secs_f64()),
            decompress_cpu_percent: decompress.median(Elapsed::cpu_percent),
            peak_memory_bytes: pool.workers.iter().map(worker_memory_bytes).sum(),
            warnings,
            ..LevelRow::default()
        };
        Ok(Measurement { row, compress: compress.latency, decompress: decompress.latency })
    }

    fn is_out_of_time(&self) -> bool {
        self.deadline.is_some_and(|end| Instant::now() >= end)
    }

    /// Repeats runs until both their number and their minimum time are reached, or the time for further
    /// runs is over.
    fn repeat(&self, pool: &WorkerPool, work: &Work<'_>) -> Result<Runs> {
        for worker in &pool.workers {
            worker.lock().piece_times_ns = self.timed_pass_max.map(|_| Vec::new());
        }
        let start = Instant::now();
        let mut runs = Runs::default();
        let is_late = || self.runs_end.is_some_and(|end| Instant::now() >= end);
        let is_wanted = |runs: usize| runs < self.options.repeat.max(1) || start.elapsed() < self.options.min_time;
        while runs.durations.is_empty() || (is_wanted(runs.durations.len()) && !is_late()) {
            // Further runs, which the minimum time requires, are not part of the announced length.
            let is_announced = runs.durations.len() < self.options.repeat;
            let progress: &dyn Progress = if is_announced { self.progress } else { &NoProgress };
            let pass = self.run_pass(pool, None, progress, work)?;
            for worker in pass.worker_times {
                runs.worker_total.wall += worker.wall;
                runs.worker_total.cpu += worker.cpu;
            }
            runs.durations.push(pass.duration);
        }
        let times_ns = pool.workers[0].lock().piece_times_ns.take();
        runs.latency = Latency::from_times(times_ns.unwrap_or_default());
        Ok(runs)
    }

    /// Makes one pass over all batches, and reports them to `progress`. The pass ends at the deadline, but
    /// processes at least one batch.
    fn run_pass(
        &self,
        pool: &WorkerPool,
        deadline: Option<Instant>,
        progress: &dyn Progress,
        work: &Work<'_>,
    ) -> Result<Pass> {
        let next = AtomicUsize::new(0);
        let has_failed = AtomicBool::new(false);
        let is_past_deadline = || next.load(Relaxed) > 0 && deadline.is_some_and(|deadline| Instant::now() >= deadline);
        let run_worker = |worker: &mut Worker| -> Result<Elapsed> {
            let stopwatch = Stopwatch::start_on_thread();
            // Elapsed time is read apart from CPU time, because reading CPU time takes longer than
            // compressing a small batch.
            let start = Instant::now();
            while !is_past_deadline() && !has_failed.load(Relaxed) {
                let Some(batch) = self.batches.get(next.fetch_add(1, Relaxed)) else { break };
                let stop = if self.is_out_of_time() { Err(Error::interrupted()) } else { self.progress.check() };
                let result = stop.and_then(|()| work(worker, batch));
                result.inspect_err(|_| has_failed.store(true, Relaxed))?;
                progress.advance(batch.content_bytes(), 0);
            }
            let wall = start.elapsed();
            let cpu = stopwatch.elapsed().cpu;
            Ok(Elapsed::new(wall, cpu))
        };
        let stopwatch = Stopwatch::start();
        let run_at = |index: usize| catch_panic(|| run_worker(&mut pool.workers[index].lock()));
        // A single worker runs on this thread: waking another one may take longer than a pass over a few
        // small pieces.
        let results = if pool.workers.len() == 1 {
            vec![run_at(0)]
        } else {
            pool.threads.install(|| rayon::broadcast(|context| run_at(context.index())))
        };
        let worker_times = results.into_iter().collect::<Result<Vec<Elapsed>>>()?;
        let duration = match worker_times.as_slice() {
            [worker] => *worker,
            _ => stopwatch.elapsed(),
        };
        Ok(Pass { duration, worker_times, batch_count: next.into_inner().min(self.batches.len()) })
    }
}

#[derive(Default)]
struct Runs {
    durations: Vec<Elapsed>,
    /// Sum over all workers and runs.
    worker_total: Elapsed,
    latency: Latency,
}

impl Runs {
    fn seconds(&self) -> Vec<f64> {
        self.durations.iter().map(|duration| duration.wall.as_secs_f64()).collect()
    }

    fn median(&self, value: impl Fn(&Elapsed) -> f64) -> f64 {
        median(&self.durations.iter().map(value).collect::<Vec<_>>())
    }

    fn warnings(&self, work: &'static str) -> Vec<Warning> {
        let seconds = self.seconds();
        let mut warnings = Vec::from_iter(time_warning(work, &seconds));
        warnings.extend(load_warning(&self.worker_total, &seconds));
        warnings
    }
}

struct Pass {
    duration: Elapsed,
    worker_times: Vec<Elapsed>,
    batch_count: usize,
}

#[cfg(test)]
#[path = "measure_tests.rs"]
pub(crate) mod tests;
