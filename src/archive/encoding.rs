//! The encoding of an archive: the options that archiving, recompressing and rebasing share, and the
//! number of workers that fit into memory.

use derive_setters::Setters;
use slotpress_base::{
    AHEAD_BYTES_MAX, Error, IoPolicy, OUTPUT_BUFFERS_PER_WORKER, Result, available_threads, quantity,
};
use slotpress_format::{FRAME_SIZE_BYTES_DEFAULT, FRAME_SIZE_BYTES_MAX, FRAME_SIZE_BYTES_MIN};

use crate::archive::encode::{Codec, FrameCompressor, ZSTD_LEVEL_DEFAULT};
use crate::archive::layout::clustering_bytes;

/// Encoding of an archive, and limits on threads, memory and disk rate.
#[derive(Clone, Debug, Setters)]
#[non_exhaustive]
pub struct EncodingOptions {
    /// Format, compression level and record layout. Default: zstd at level 1, records in their
    /// original order.
    pub codec: Codec,
    /// Bytes of tar in a frame, from 64 KiB to 32 MiB. Default: 8 MiB.
    pub frame_size_bytes: u64,
    /// Number of compressing threads, 1 to 1024. Fewer start if `memory_bytes` is too small for all. If
    /// the archive is made from other archives, about half as many additional threads decode. Default:
    /// one per core.
    pub threads: usize,
    /// Limit in bytes on the memory of all workers and of content that is read ahead. Default: none.
    #[setters(strip_option)]
    pub memory_bytes: Option<u64>,
    /// Page cache use and rate limit. Default: gentle on the page cache, without a rate limit.
    pub io_policy: IoPolicy,
}

impl Default for EncodingOptions {
    fn default() -> Self {
        Self {
            codec: Codec::zstd(ZSTD_LEVEL_DEFAULT),
            frame_size_bytes: FRAME_SIZE_BYTES_DEFAULT,
            threads: available_threads(),
            memory_bytes: None,
            io_policy: IoPolicy::default(),
        }
    }
}

impl EncodingOptions {
    /// Returns the number of workers: `threads`, or as many as fit into `memory_bytes` in addition
    /// to `other_bytes`.
    ///
    /// # Errors
    /// The frame size is out of range, or there is not enough memory for one worker.
    pub(crate) fn worker_count(&self, other_bytes: u64) -> Result<usize> {
        check_frame_size(self.frame_size_bytes)?;
        let threads = self.threads.max(1);
        let Some(memory_bytes) = self.memory_bytes else { return Ok(threads) };
        let worker_bytes = worker_memory_bytes(&self.codec, self.frame_size_bytes)?;
        match (memory_bytes.saturating_sub(other_bytes) / worker_bytes) as usize {
            0 => {
                let [limit, needed] = [memory_bytes, worker_bytes + other_bytes].map(quantity::bytes);
                let message = format!("a memory limit of {limit} is too low for one worker: {needed} are needed");
                Err(Error::usage(message).with_hint("allow more memory, or choose smaller frames or a lower level"))
            }
            workers => Ok(workers.min(threads)),
        }
    }

    /// Returns how many bytes are left for reading ahead: `memory_bytes` less `other_bytes` and the
    /// memory of the workers, or [`AHEAD_BYTES_MAX`] without a limit. `read_ahead` never uses more than
    /// [`AHEAD_BYTES_MAX`].
    ///
    /// # Errors
    /// zstd's context cannot be allocated. It is not an error if nothing is left.
    pub(crate) fn ahead_bytes(&self, workers: usize, other_bytes: u64) -> Result<u64> {
        let Some(memory_bytes) = self.memory_bytes else { return Ok(AHEAD_BYTES_MAX) };
        let worker_bytes = worker_memory_bytes(&self.codec, self.frame_size_bytes)?;
        let used_bytes = worker_bytes.saturating_mul(workers as u64).saturating_add(other_bytes);
        Ok(memory_bytes.saturating_sub(used_bytes))
    }

    pub(crate) fn describe(&self, workers: usize) -> String {
        format!(
            "workers: {workers}, frames of {}, page cache: {}",
            quantity::bytes(self.frame_size_bytes),
            self.io_policy.io_hint.as_str()
        )
    }
}

/// Checks that a frame size is in the supported range.
///
/// # Errors
/// It is less than 64 KiB or more than 32 MiB.
pub fn check_frame_size(frame_size_bytes: u64) -> Result<()> {
    if (FRAME_SIZE_BYTES_MIN..=FRAME_SIZE_BYTES_MAX).contains(&frame_size_bytes) {
        return Ok(());
    }
    Err(Error::usage(format!("a frame size of {} is out of range", quantity::bytes(frame_size_bytes)))
        .with_hint("a frame has 64KiB to 32MiB"))
}

/// Returns the most memory in bytes that one worker uses: for its frame, a clustered copy of it, its
/// output buffers, and zstd's context. To measure the context, compresses a frame of zeros: the
/// context's size depends only on level and frame size.
///
/// # Errors
/// There is not enough memory for one context.
pub fn worker_memory_bytes(codec: &Codec, frame_size_bytes: u64) -> Result<u64> {
    let mut compressor = FrameCompressor::new(codec)?;
    compressor.compress(&vec![0; frame_size_bytes as usize], &mut Vec::new())?;
    let output_bytes = zstd_safe::compress_bound(frame_size_bytes as usize) as u64;
    // All workers together have one more buffer. To be on the safe side, it is counted for each worker.
    let buffers = OUTPUT_BUFFERS_PER_WORKER as u64 + 1;
    let content_bytes = frame_size_bytes + clustering_bytes(codec.layout, frame_size_bytes);
    Ok(content_bytes + buffers * output_bytes + compressor.context_bytes() as u64)
}
