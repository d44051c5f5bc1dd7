//! Making frames on all cores and handing them over in order.
//!
//! Each worker takes the next frame, fills it, compresses it and sends it; the calling thread puts the frames in order.
//! A worker takes a free output buffer before it takes a frame, so the oldest frame under way always has a buffer:
//! the pipeline cannot stall, and the number of buffers bounds the memory.

use {
    crate::{
        error::{Error, Result},
        progress::Progress,
    },
    std::sync::Mutex,
    zstd_safe::{CCtx, CParameter, compress_bound},
};

/// How frames are compressed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Codec {
    /// zstd, at a level and with or without checksums.
    Zstd {
        /// From [`ZSTD_LEVEL_MIN`] to [`ZSTD_LEVEL_MAX`].
        level: i32,
        /// Whether each frame ends with a checksum of its content.
        has_checksum: bool,
    },
    /// Not at all: a plain tar.
    None,
}

/// The level that is used unless told otherwise: what validators use since Agave 2.0.
pub const ZSTD_LEVEL_DEFAULT: i32 = 1;

/// The fastest level that slotpress offers; zstd accepts lower ones, which all but copy.
pub const ZSTD_LEVEL_MIN: i32 = -1000;

/// The strongest level of zstd.
pub const ZSTD_LEVEL_MAX: i32 = 22;

/// Compresses one frame after another, reusing its context.
pub struct FrameCompressor {
    context: Option<CCtx<'static>>,
}

impl FrameCompressor {
    /// A compressor for the codec.
    pub fn new(codec: &Codec) -> Result<Self> {
        let Codec::Zstd { level, has_checksum } = *codec else { return Ok(Self { context: None }) };
        let mut context =
            CCtx::try_create().ok_or_else(|| Error::failed("not enough memory for a compression context"))?;
        for parameter in [
            CParameter::CompressionLevel(level),
            CParameter::ContentSizeFlag(true),
            CParameter::ChecksumFlag(has_checksum),
        ] {
            context.set_parameter(parameter).map_err(|code| zstd_error("set a parameter", code))?;
        }
        Ok(Self { context: Some(context) })
    }

    /// Compresses `content` as one frame into `to`, replacing what it holds. Without a codec the content is copied.
    pub fn compress(&mut self, content: &[u8], to: &mut Vec<u8>) -> Result<()> {
        to.clear();
        let Some(context) = &mut self.context else {
            to.extend_from_slice(content);
            return Ok(());
        };
        to.reserve(compress_bound(content.len()));
        context.compress2(to, content).map_err(|code| zstd_error("compress a frame", code))?;
        Ok(())
    }

    /// Bytes that the context takes.
    pub fn context_bytes(&self) -> usize {
        self.context.as_ref().map_or(0, CCtx::sizeof)
    }
}

fn zstd_error(doing: &str, code: usize) -> Error {
    Error::failed(format!("zstd cannot {doing}: {}", zstd_safe::get_error_name(code)))
}

/// A finished frame, in the order of the archive.
pub struct EncodedFrame<'a> {
    /// The frame as it goes into the file.
    pub bytes: &'a [u8],
    /// Bytes of tar inside.
    pub content_bytes: u64,
}

/// Settings of the pipeline.
#[derive(Clone, Debug)]
pub struct EncodeOptions {
    /// How frames are compressed.
    pub codec: Codec,
    /// Workers, at least 1.
    pub threads: usize,
}

/// Output buffers per worker: one being filled and one on its way, plus one for all that the writer holds.
pub const OUTPUT_BUFFERS_PER_WORKER: usize = 2;

/// Encodes every frame that `frames` yields. `content_length` and `fill` say how long a frame's content is and write
/// it; `on_frame` gets the frames in order, on the calling thread.
pub fn encode_frames<F: Send>(
    frames: impl Iterator<Item = Result<F>> + Send,
    content_length: &(dyn Fn(&F) -> u64 + Sync),
    fill: &(dyn Fn(F, &mut [u8]) -> Result<()> + Sync),
    options: &EncodeOptions,
    progress: &dyn Progress,
    on_frame: &mut dyn FnMut(EncodedFrame<'_>) -> Result<()>,
) -> Result<()> {
    let workers = options.threads.max(1);
    let buffers = workers * OUTPUT_BUFFERS_PER_WORKER + 1;
    let (free_tx, free_rx) = crossbeam_channel::bounded::<Vec<u8>>(buffers);
    for _ in 0..buffers {
        // Cannot fail: the channel has room for all, and its receiver is alive.
        let _ = free_tx.send(Vec::new());
    }
    let (done_tx, done_rx) = crossbeam_channel::bounded::<Result<Done>>(buffers);
    let queue = Mutex::new(frames.enumerate());
    let next_frame = || queue.lock().map(|mut queue| queue.next()).unwrap_or_default();

    let work = |free_rx: crossbeam_channel::Receiver<Vec<u8>>, done_tx: crossbeam_channel::Sender<Result<Done>>| {
        let mut content = Vec::new();
        let mut compressor = None;
        let mut encode_next = |mut bytes: Vec<u8>| -> Result<Option<Done>> {
            let Some((number, frame)) = next_frame() else { return Ok(None) };
            progress.check()?;
            let frame = frame?;
            let content_bytes = content_length(&frame);
            // Zeroed once per worker, then reused.
            if content.len() < content_bytes as usize {
                content.resize(content_bytes as usize, 0);
            }
            let content = &mut content[..content_bytes as usize];
            fill(frame, content)?;
            let compressor = match &mut compressor {
                Some(compressor) => compressor,
                none => none.insert(FrameCompressor::new(&options.codec)?),
            };
            compressor.compress(content, &mut bytes)?;
            Ok(Some(Done { number, bytes, content_bytes }))
        };
        while let Ok(buffer) = free_rx.recv() {
            let Some(done) = encode_next(buffer).transpose() else { return };
            let is_error = done.is_err();
            if done_tx.send(done).is_err() || is_error {
                return;
            }
        }
    };

    std::thread::scope(|scope| {
        for _ in 0..workers {
            let (free_rx, done_tx) = (free_rx.clone(), done_tx.clone());
            scope.spawn(move || work(free_rx, done_tx));
        }
        drop((free_rx, done_tx));
        let result = put_in_order(&done_rx, &free_tx, buffers, progress, on_frame);
        // On an error these wake the workers that wait; otherwise they have ended already.
        drop((done_rx, free_tx));
        result
    })
}

struct Done {
    number: usize,
    bytes: Vec<u8>,
    content_bytes: u64,
}

fn put_in_order(
    done_rx: &crossbeam_channel::Receiver<Result<Done>>,
    free_tx: &crossbeam_channel::Sender<Vec<u8>>,
    buffers: usize,
    progress: &dyn Progress,
    on_frame: &mut dyn FnMut(EncodedFrame<'_>) -> Result<()>,
) -> Result<()> {
    // Frames under way are at most `buffers` apart, since each holds one.
    let mut waiting: Vec<Option<Done>> = (0..buffers).map(|_| None).collect();
    let mut next = 0;
    for done in done_rx {
        let done = done?;
        let at = done.number % buffers;
        waiting[at] = Some(done);
        while let Some(done) = waiting[next % buffers].take() {
            on_frame(EncodedFrame { bytes: &done.bytes, content_bytes: done.content_bytes })?;
            progress.advance(done.content_bytes, done.bytes.len() as u64);
            next += 1;
            // Fails only when every worker has ended: then no buffer is needed.
            let _ = free_tx.send(done.bytes);
        }
    }
    Ok(())
}
