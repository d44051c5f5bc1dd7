//! Makes an archive from other archives: the reading side puts entries into frames, and workers
//! compress the frames at the same time.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use crossbeam_channel::{Sender, bounded};
use slotpress_base::{Error, Forward, Progress, ProgressEvent, Result, catch_panic, join_thread, spawn};
use slotpress_format::{Entry, FrameAssembler};
use slotpress_read::BufferPool;

use crate::archive::encode::{FrameContent, FrameSummary, encode_frames};
use crate::archive::encoding::EncodingOptions;
use crate::archive::layout::{FrameLink, FrameLinker};
use crate::archive::writer::ArchiveWriter;

/// Number of frames that may wait between the reading and the encoding side, so that neither side
/// waits for each step of the other.
const FRAMES_IN_FLIGHT: usize = 2;

/// Memory in bytes of the reading side, for frames of 32 MiB and one decoder: three decoded frames, and two
/// compressed ones of 16 MiB.
const DECODING_BYTES: u64 = 3 * 32 * 1024 * 1024 + 2 * 16 * 1024 * 1024;

/// Returns the memory in bytes that is needed in addition to that of the compressing workers, with one
/// decoder. The buffers of further decoders are not counted.
pub fn decoding_side_bytes(frame_size_bytes: u64) -> u64 {
    DECODING_BYTES.saturating_add(frame_size_bytes.saturating_mul(FRAMES_IN_FLIGHT as u64 + 2))
}

/// Puts entries into frames, and sends the frames to the encoding side.
pub struct FrameFiller<'a> {
    assembler: FrameAssembler,
    sender: FrameSender<'a>,
}

struct FrameSender<'a> {
    frames_tx: Sender<Result<ReadFrame<'a>>>,
    pool: &'a BufferPool,
    linker: FrameLinker,
    is_inside_entry: bool,
    is_input_unwanted: &'a AtomicBool,
}

impl FrameSender<'_> {
    fn send(&mut self, content: Vec<u8>) -> Result<Vec<u8>> {
        let link = self.linker.link(self.is_inside_entry);
        let frame = ReadFrame { content, link, pool: self.pool };
        if self.frames_tx.send(Ok(frame)).is_err() {
            self.is_input_unwanted.store(true, Relaxed);
            return Err(Error::failed("the encoding side has stopped"));
        }
        Ok(self.pool.take())
    }
}

/// A frame that the reading side has filled, on its way to the encoding side.
struct ReadFrame<'a> {
    content: Vec<u8>,
    link: FrameLink,
    pool: &'a BufferPool,
}

impl FrameContent for ReadFrame<'_> {
    fn fill(self, buffer: &mut Vec<u8>) -> Result<(usize, FrameLink)> {
        self.pool.give(std::mem::replace(buffer, self.content));
        Ok((buffer.len(), self.link))
    }
}

impl FrameFiller<'_> {
    pub fn begin(&mut self, entry: &Entry) -> Result<()> {
        self.assembler.begin(entry, &mut |frame| self.sender.send(frame))?;
        self.sender.is_inside_entry = true;
        Ok(())
    }

    pub fn append(&mut self, bytes: &[u8]) -> Result<()> {
        slotpress_base::threads::panic_point("assembling");
        self.assembler.append(bytes, &mut |frame| self.sender.send(frame))
    }

    pub fn end(&mut self, entry: &Entry) -> Result<()> {
        self.assembler.end(entry, &mut |frame| self.sender.send(frame))?;
        self.sender.is_inside_entry = false;
        Ok(())
    }
}

/// Runs `read`, which puts entries into frames, while `workers` threads compress the frames into
/// `writer`. If the encoding side fails, sets `is_input_unwanted`, and ignores later errors of `read`.
pub fn reframe<T: Send>(
    writer: &mut ArchiveWriter<'_>,
    encoding: &EncodingOptions,
    workers: usize,
    is_input_unwanted: &AtomicBool,
    progress: &dyn Progress,
    read: impl FnOnce(&mut FrameFiller<'_>, &dyn Progress) -> Result<T> + Send,
) -> Result<T> {
    let pool = BufferPool::default();
    let (frames_tx, frames_rx) = bounded(FRAMES_IN_FLIGHT);
    // The reading side counts the bytes read, and the encoding side the bytes written.
    let read_progress = Forward::new(progress, |event| match event {
        ProgressEvent::Bytes { input, .. } => Some(ProgressEvent::Bytes { input, output: 0 }),
        event => Some(event),
    });
    let write_progress = Forward::new(progress, |event| match event {
        ProgressEvent::Bytes { output, .. } => Some(ProgressEvent::Bytes { input: 0, output }),
        event => Some(event),
    });
    let (read, encoded) = std::thread::scope(|scope| -> Result<_> {
        let pool = &pool;
        let read_progress = &read_progress;
        // Returns `None` if the encoding side has stopped.
        let fill_frames = move || -> Result<Option<T>> {
            let sender = FrameSender {
                frames_tx: frames_tx.clone(),
                pool,
                linker: FrameLinker::new(encoding.codec.layout),
                is_inside_entry: false,
                is_input_unwanted,
            };
            let assembler = FrameAssembler::new(encoding.frame_size_bytes, pool.take());
            let mut filler = FrameFiller { assembler, sender };
            let result = read(&mut filler, read_progress).and_then(|value| {
                filler.assembler.finish(&mut |frame| filler.sender.send(frame))?;
                Ok(value)
            });
            match result {
                Err(_) if is_input_unwanted.load(Relaxed) => Ok(None),
                Err(error) => {
                    let _ = frames_tx.send(Err(error.clone()));
                    Err(error)
                }
                Ok(value) => Ok(Some(value)),
            }
        };
        let reading = spawn(scope, move || catch_panic(fill_frames))?;
        let mut write = |bytes: &[u8], frame: &FrameSummary| writer.write_frame(bytes, frame);
        let encoded =
            catch_panic(|| encode_frames(frames_rx.into_iter(), &encoding.codec, workers, &write_progress, &mut write));
        // After an error, stops the reading side, which may be waiting for a pipe into which
        // nobody writes.
        is_input_unwanted.store(encoded.is_err(), Relaxed);
        Ok((join_thread(reading), encoded))
    })?;
    // An error of the reading side is reported first: when only the encoding side fails, the
    // reading side stops without one.
    match (read, encoded) {
        (Ok(Some(value)), Ok(())) => Ok(value),
        (Err(error), _) | (_, Err(error)) => Err(error),
        (Ok(None), Ok(())) => Err(Error::failed("the encoding side stopped early")),
    }
}
