//! Making frames: filling, compressing and handing them over in order, on all cores.

use {
    crate::{
        error::{Error, Result},
        pipeline::run_in_order,
        progress::Progress,
    },
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

/// Encodes every frame that `frames` yields, on `threads` workers. `fill` puts a frame's content into a buffer, which each
/// worker reuses, and returns its length; `on_frame` gets the frames in order, on the calling thread.
pub fn encode_frames<F: Send>(
    frames: impl Iterator<Item = Result<F>> + Send,
    fill: &(dyn Fn(F, &mut Vec<u8>) -> Result<usize> + Sync),
    codec: &Codec,
    threads: usize,
    progress: &dyn Progress,
    on_frame: &mut dyn FnMut(EncodedFrame<'_>) -> Result<()>,
) -> Result<()> {
    let new_worker = || {
        let mut compressor = FrameCompressor::new(codec)?;
        let mut content = Vec::new();
        Ok(move |frame: F, to: &mut Vec<u8>| {
            let content_bytes = fill(frame, &mut content)?;
            compressor.compress(&content[..content_bytes], to)?;
            Ok(content_bytes as u64)
        })
    };
    run_in_order(frames, threads, &new_worker, progress, &mut |bytes, content_bytes| {
        on_frame(EncodedFrame { bytes, content_bytes })?;
        progress.advance(content_bytes, bytes.len() as u64);
        Ok(())
    })
}
