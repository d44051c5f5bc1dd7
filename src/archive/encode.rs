//! Makes frames on all cores: fills them with content, clusters and compresses them, and delivers
//! them in order.

use derive_setters::Setters;
use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};
use slotpress_base::{Error, Progress, Result, run_in_order};
use slotpress_format::{ArchiveCompression, FrameHash, frame_hash};
use zstd_safe::{CCtx, CParameter, compress_bound};

use crate::archive::layout::{FrameClusterer, FrameLink, RecordLayout};
use crate::archive::lz4;

/// Format, compression and record layout of an archive.
#[derive(Clone, Debug, PartialEq, Eq, Setters)]
#[non_exhaustive]
pub struct Codec {
    /// Compression format; with zstd, its level.
    pub format: ArchiveFormat,
    /// Order of the records. [`Codec::new`] keeps the order of the source.
    pub layout: RecordLayout,
}

/// Compression format of an archive. It determines the extension of the file's name.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ArchiveFormat {
    /// `.tar.zst`, compressed with zstd.
    Zstd {
        /// From [`ZSTD_LEVEL_MIN`] to [`ZSTD_LEVEL_MAX`], without 0.
        level: i32,
    },
    /// `.tar.lz4`. Read by Agave, not by Firedancer.
    Lz4,
    /// `.tar`, uncompressed. Read by Firedancer, not by Agave.
    None,
}

/// Serializes as the fields `format` and `zstd_level`, which reports flatten into themselves.
impl Serialize for Codec {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let (format, level) = match self.format {
            ArchiveFormat::Zstd { level } => ("zstd", Some(level)),
            ArchiveFormat::Lz4 => ("lz4", None),
            ArchiveFormat::None => ("none", None),
        };
        let mut fields = serializer.serialize_struct("Codec", 2)?;
        fields.serialize_field("format", format)?;
        fields.serialize_field("zstd_level", &level)?;
        fields.end()
    }
}

impl Codec {
    /// Makes a codec with this format, and records in their original order.
    pub fn new(format: ArchiveFormat) -> Self {
        Self { format, layout: RecordLayout::Verbatim }
    }

    /// Makes a codec for zstd at a level, with records in their original order.
    pub fn zstd(level: i32) -> Self {
        Self::new(ArchiveFormat::Zstd { level })
    }

    /// Returns the compression, which determines the extension of the file name.
    pub fn compression(&self) -> ArchiveCompression {
        match self.format {
            ArchiveFormat::Zstd { .. } => ArchiveCompression::Zstd,
            ArchiveFormat::Lz4 => ArchiveCompression::Lz4,
            ArchiveFormat::None => ArchiveCompression::None,
        }
    }

    /// Returns the settings, in the words that the archive's index stores. Only zstd archives have an index.
    pub(crate) fn settings(&self) -> String {
        let ArchiveFormat::Zstd { level } = self.format else { return String::new() };
        let layout = if self.layout == RecordLayout::Clustered { " layout=clustered" } else { "" };
        format!("zstd-level={level}{layout}")
    }
}

/// Default level, the same as Agave's since version 2.0.
pub const ZSTD_LEVEL_DEFAULT: i32 = 1;

/// Fastest accepted level. zstd has lower ones, which hardly compress.
pub const ZSTD_LEVEL_MIN: i32 = -1000;

/// Strongest level of zstd.
pub const ZSTD_LEVEL_MAX: i32 = 22;

/// True for levels from [`ZSTD_LEVEL_MIN`] to [`ZSTD_LEVEL_MAX`], except 0, which zstd replaces with
/// its default level.
pub fn is_zstd_level(level: i32) -> bool {
    level != 0 && (ZSTD_LEVEL_MIN..=ZSTD_LEVEL_MAX).contains(&level)
}

/// Compresses one frame after another, and reuses its memory.
pub enum FrameCompressor {
    /// Makes one zstd frame at a time.
    Zstd(CCtx<'static>),
    /// Makes blocks of one lz4 frame, which spans the archive.
    Lz4,
    /// Copies the content as it is.
    Plain,
}

impl FrameCompressor {
    /// Creates a compressor for this codec.
    ///
    /// # Errors
    /// There is not enough memory for zstd's context, or zstd refuses the level.
    pub fn new(codec: &Codec) -> Result<Self> {
        let level = match codec.format {
            ArchiveFormat::Zstd { level } => level,
            ArchiveFormat::Lz4 => return Ok(Self::Lz4),
            ArchiveFormat::None => return Ok(Self::Plain),
        };
        let mut context = CCtx::try_create().ok_or_else(no_memory_error)?;
        for parameter in
            [CParameter::CompressionLevel(level), CParameter::ContentSizeFlag(true), CParameter::ChecksumFlag(true)]
        {
            context.set_parameter(parameter).map_err(|code| zstd_error("set a parameter", code))?;
        }
        Ok(Self::Zstd(context))
    }

    /// Compresses `content` into one frame, which replaces the bytes in `to`.
    ///
    /// # Errors
    /// Memory runs out.
    pub fn compress(&mut self, content: &[u8], to: &mut Vec<u8>) -> Result<()> {
        slotpress_base::threads::panic_point("encoder");
        to.clear();
        match self {
            Self::Zstd(context) => {
                to.reserve(compress_bound(content.len()));
                context.compress2(to, content).map_err(|code| zstd_error("compress a frame", code))?;
            }
            Self::Lz4 => lz4::append_blocks(content, to),
            Self::Plain => to.extend_from_slice(content),
        }
        Ok(())
    }

    /// Returns the memory of zstd's context in bytes; 0 for other formats.
    pub fn context_bytes(&self) -> usize {
        if let Self::Zstd(context) = self { context.sizeof() } else { 0 }
    }
}

fn no_memory_error() -> Error {
    Error::failed("not enough memory for a compression context")
        .with_hint("raise the limit (ulimit -v, MemoryMax of the service), or use fewer threads")
}

fn zstd_error(action: &str, code: usize) -> Error {
    Error::failed(format!("zstd cannot {action}: {}", zstd_safe::get_error_name(code)))
}

pub struct FrameSummary {
    pub content_bytes: u64,
    /// Number of storages in the frame that could not be clustered.
    pub unclustered_pieces: u64,
    pub hash: Option<FrameHash>,
}

/// A frame to encode.
pub trait FrameContent: Send {
    /// Writes the content to the start of a buffer, which the worker reuses. Returns the content's length
    /// and the frame's link.
    ///
    /// # Errors
    /// The content cannot be read.
    fn fill(self, buffer: &mut Vec<u8>) -> Result<(usize, FrameLink)>;
}

/// Encodes all frames on `threads` workers. Passes them to `on_frame` in order, on the calling thread.
///
/// # Errors
/// A frame cannot be read; `on_frame` fails; there is not enough memory; the user interrupts.
pub fn encode_frames<F: FrameContent>(
    frames: impl Iterator<Item = Result<F>> + Send,
    codec: &Codec,
    threads: usize,
    progress: &dyn Progress,
    on_frame: &mut dyn FnMut(&[u8], &FrameSummary) -> Result<()>,
) -> Result<()> {
    let new_worker = || {
        let mut worker = FrameWorker::new(codec)?;
        Ok(move |frame: F, to: &mut Vec<u8>| worker.encode(frame, to))
    };
    let mut pass_on = |bytes: &[u8], frame: FrameSummary| {
        on_frame(bytes, &frame)?;
        progress.advance(frame.content_bytes, bytes.len() as u64);
        Ok(())
    };
    run_in_order(frames, threads, &new_worker, progress, &mut pass_on)
}

/// Fills, clusters and compresses one frame after another, and reuses its memory.
struct FrameWorker<'a> {
    codec: &'a Codec,
    compressor: FrameCompressor,
    clusterer: FrameClusterer,
    buffer: Vec<u8>,
}

impl<'a> FrameWorker<'a> {
    fn new(codec: &'a Codec) -> Result<Self> {
        let compressor = FrameCompressor::new(codec)?;
        Ok(Self { codec, compressor, clusterer: FrameClusterer::default(), buffer: Vec::new() })
    }

    fn encode(&mut self, frame: impl FrameContent, to: &mut Vec<u8>) -> Result<FrameSummary> {
        let (content_bytes, link) = frame.fill(&mut self.buffer)?;
        let mut content = &self.buffer[..content_bytes];
        let mut unclustered_pieces = 0;
        if self.codec.layout == RecordLayout::Clustered {
            (content, unclustered_pieces) = self.clusterer.cluster(content, link)?;
        }
        self.compressor.compress(content, to)?;
        // All workers hash frames, since hashing would slow down the single thread that writes.
        let hash = matches!(self.codec.format, ArchiveFormat::Zstd { .. }).then(|| frame_hash(to));
        Ok(FrameSummary { content_bytes: content_bytes as u64, unclustered_pieces, hash })
    }
}
