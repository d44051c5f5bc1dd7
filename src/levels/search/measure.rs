//! Compressing frames with one setting, on all workers: sizes, and CPU time of clustering and compressing.
//!
//! CPU time, since another load on the machine changes it least. Each frame is copied into a worker's buffer first, as
//! `archive` reads it from the ledger first; that is not counted.

use {
    super::Variant,
    crate::{
        archive::{
            encode::{Codec, FrameCompressor},
            layout::{FrameClusterer, FrameLink, RecordLayout},
        },
        levels::content::ContentFrame,
    },
    slotpress_base::{
        error::{Error, Result},
        stopwatch::ThreadStopwatch,
        threads::{guarded, panicked, spawn},
    },
    slotpress_read::archive::decode::FrameDecoder,
    std::{
        sync::{
            Mutex, PoisonError,
            atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
        },
        time::Instant,
    },
};

/// A frame, and whether it can be clustered.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    content: &'a [u8],
    /// Whether it begins and ends between the entries of a tar stream with storages in it. One that begins inside a
    /// storage is measured as it is: where that one's records begin, only the frames before can tell.
    pub has_records: bool,
}

impl<'a> Frame<'a> {
    /// A frame of the input; whether it has records is only looked at where that matters.
    pub fn new(frame: &'a ContentFrame, layouts: &[RecordLayout]) -> Self {
        let has_records = layouts.contains(&RecordLayout::Clustered) && {
            let mut clusterer = FrameClusterer::default();
            let clustered = clusterer.cluster(&frame.content, FrameLink::default());
            clustered.is_ok_and(|(_, counts)| counts.storages > 0)
        };
        Self { content: &frame.content, has_records }
    }

    /// Bytes of its content.
    pub fn content_bytes(&self) -> u64 {
        self.content.len() as u64
    }
}

/// What a pass over frames took and made.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pass {
    /// Bytes of all frames together.
    pub output_bytes: u64,
    /// To cluster and compress.
    pub cpu_seconds: f64,
    /// By the clock, with all workers and everything.
    pub elapsed_seconds: f64,
    /// To decompress; 0 where that was not asked for.
    pub decompress_cpu_seconds: f64,
}

/// The workers' memory, kept from pass to pass.
#[derive(Default)]
pub struct Bench {
    workers: Vec<Buffers>,
}

#[derive(Default)]
struct Buffers {
    clusterer: FrameClusterer,
    content: Vec<u8>,
    compressed: Vec<u8>,
    decompressed: Vec<u8>,
}

/// A pass over frames.
pub struct PassOptions<'a> {
    /// Whether frames are decompressed too, and compared with what they were.
    pub has_decompression: bool,
    /// Asked before every frame.
    pub is_over: &'a (dyn Fn() -> bool + Sync),
}

impl Bench {
    /// For so many workers, and no more than there are frames.
    pub fn new(threads: usize, frames: usize) -> Self {
        Self { workers: (0..threads.clamp(1, frames.max(1))).map(|_| Buffers::default()).collect() }
    }

    /// Compresses all frames; `None` where time was over before the last one.
    pub fn pass(&mut self, frames: &[Frame<'_>], variant: &Variant, options: &PassOptions<'_>) -> Result<Option<Pass>> {
        let codec = variant.codec()?;
        let start = Instant::now();
        let next = AtomicUsize::new(0);
        let is_cut_short = AtomicBool::new(false);
        let total = Mutex::new(Pass::default());
        let run = |buffers: &mut Buffers| -> Result<()> {
            let mut compressor = FrameCompressor::new(&codec)?;
            let mut decoder = FrameDecoder::new()?;
            let mut pass = Pass::default();
            while let Some(frame) = frames.get(next.fetch_add(1, Relaxed)) {
                if is_cut_short.load(Relaxed) || (options.is_over)() {
                    is_cut_short.store(true, Relaxed);
                    return Ok(());
                }
                let decoder = options.has_decompression.then_some(&mut decoder);
                buffers.work(frame, &codec, &mut compressor, decoder, &mut pass)?;
            }
            let mut total = total.lock().unwrap_or_else(PoisonError::into_inner);
            total.output_bytes += pass.output_bytes;
            total.cpu_seconds += pass.cpu_seconds;
            total.decompress_cpu_seconds += pass.decompress_cpu_seconds;
            Ok(())
        };
        std::thread::scope(|scope| {
            let run = &run;
            let threads: Vec<_> = self
                .workers
                .iter_mut()
                .map(|worker| spawn(scope, move || guarded(|| run(worker))))
                .collect::<Result<_>>()?;
            let ended = |thread: std::thread::ScopedJoinHandle<'_, Result<()>>| {
                thread.join().unwrap_or_else(|payload| Err(panicked(payload.as_ref())))
            };
            threads.into_iter().map(ended).collect::<Result<Vec<()>>>()
        })?;
        let mut total = total.into_inner().unwrap_or_else(PoisonError::into_inner);
        total.elapsed_seconds = start.elapsed().as_secs_f64();
        Ok((!is_cut_short.into_inner()).then_some(total))
    }
}

impl Buffers {
    fn work(
        &mut self,
        frame: &Frame<'_>,
        codec: &Codec,
        compressor: &mut FrameCompressor,
        decoder: Option<&mut FrameDecoder>,
        pass: &mut Pass,
    ) -> Result<()> {
        self.content.clear();
        self.content.extend_from_slice(frame.content);
        let stopwatch = ThreadStopwatch::start();
        let content = match codec.layout {
            RecordLayout::Clustered if frame.has_records => {
                self.clusterer.cluster(&self.content, FrameLink::default())?.0
            }
            _ => &self.content,
        };
        compressor.compress(content, &mut self.compressed)?;
        pass.cpu_seconds += stopwatch.taken().cpu.as_secs_f64();
        pass.output_bytes += self.compressed.len() as u64;
        let Some(decoder) = decoder else { return Ok(()) };
        let stopwatch = ThreadStopwatch::start();
        let decoded = decoder.decode(&self.compressed, 0, content.len() as u64, &mut self.decompressed);
        pass.decompress_cpu_seconds += stopwatch.taken().cpu.as_secs_f64();
        if decoded.is_ok() && self.decompressed == content {
            return Ok(());
        }
        Err(Error::failed(format!("a frame does not come back as it was, compressed with {:?}", codec.format)).hint(
            "the memory or the processor may be faulty: test them; an archive made on this machine may be damaged",
        ))
    }
}

#[cfg(test)]
mod tests {
    use {
        super::*,
        crate::levels::search::{Settings, space::LEVELS},
    };

    fn frames() -> Vec<ContentFrame> {
        let content = |number: usize| (0..70_000).map(|at| ((at / 7 + number) % 251) as u8).collect();
        (0..5).map(|number| ContentFrame::new(content(number))).collect()
    }

    #[test]
    fn sizes_do_not_depend_on_threads() {
        let content = frames();
        let frames: Vec<Frame<'_>> = content.iter().map(|frame| Frame::new(frame, &[])).collect();
        for settings in [Settings::Level(3), Settings::Params(LEVELS[1])] {
            let variant = Variant { layout: RecordLayout::Verbatim, settings };
            let sizes = [1, 3, 9].map(|threads| {
                let options = PassOptions { has_decompression: true, is_over: &|| false };
                let pass = Bench::new(threads, frames.len()).pass(&frames, &variant, &options);
                pass.expect("compressed").expect("in time").output_bytes
            });
            assert!(sizes[0] > 0 && sizes.iter().all(|size| *size == sizes[0]), "{sizes:?}");
        }
    }

    #[test]
    fn a_pass_that_is_cut_short_counts_nothing() {
        let content = frames();
        let frames: Vec<Frame<'_>> =
            content.iter().map(|frame| Frame::new(frame, &[RecordLayout::Clustered])).collect();
        assert!(frames.iter().all(|frame| !frame.has_records), "these are no records");
        let left = AtomicUsize::new(3);
        let is_over = || left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_err();
        let options = PassOptions { has_decompression: false, is_over: &is_over };
        let pass = Bench::new(2, frames.len()).pass(&frames, &Variant::stock(1), &options);
        assert_eq!(pass.expect("no error"), None);
    }
}
