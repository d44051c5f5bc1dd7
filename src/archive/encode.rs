//! Making frames: filling, compressing and handing them over in order, on all cores.

use derive_setters::Setters;
use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};
use slotpress_base::{Error, Progress, Result, run_in_order};
use slotpress_format::ledger::names::Extension;
use slotpress_format::{FrameHash, frame_hash};
use zstd_safe::{CCtx, CParameter, compress_bound};

use crate::archive::layout::{FrameClusterer, FrameLink, RecordLayout};
use crate::archive::lz4;

/// How frames are compressed.
#[derive(Clone, Debug, PartialEq, Eq, Setters)]
#[non_exhaustive]
pub struct Codec {
    /// The format of the archive.
    pub format: Format,
    /// How the records of storages lie in the archive.
    pub layout: RecordLayout,
}

/// The format of an archive, as its file name's ending tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Format {
    /// `.tar.zst`
    Zstd {
        /// From [`ZSTD_LEVEL_MIN`] to [`ZSTD_LEVEL_MAX`].
        level: i32,
    },
    /// `.tar.lz4`, which Agave reads and Firedancer does not.
    Lz4,
    /// `.tar`: not compressed. Firedancer reads it and Agave does not.
    None,
}

/// The fields `format` and `zstd_level`, to be flattened into a report.
impl Serialize for Codec {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let (format, level) = match self.format {
            Format::Zstd { level, .. } => ("zstd", Some(level)),
            Format::Lz4 => ("lz4", None),
            Format::None => ("none", None),
        };
        let mut fields = serializer.serialize_struct("Codec", 2)?;
        fields.serialize_field("format", format)?;
        fields.serialize_field("zstd_level", &level)?;
        fields.end()
    }
}

impl Codec {
    /// A format: every frame compressed, records as they are.
    pub fn new(format: Format) -> Self {
        Self { format, layout: RecordLayout::Verbatim }
    }

    /// zstd at a level.
    pub fn zstd(level: i32) -> Self {
        Self::new(Format::Zstd { level })
    }

    /// No compression: a plain tar.
    pub fn plain() -> Self {
        Self::new(Format::None)
    }

    /// The ending of the archive's file name.
    pub fn extension(&self) -> Extension {
        match self.format {
            Format::Zstd { .. } => Extension::TarZstd,
            Format::Lz4 => Extension::TarLz4,
            Format::None => Extension::Tar,
        }
    }

    /// Whether frames are zstd's.
    pub fn is_zstd(&self) -> bool {
        self.extension() == Extension::TarZstd
    }

    /// The settings as the index names them.
    pub(crate) fn settings(&self) -> String {
        let mut settings = match self.format {
            Format::Zstd { level } => format!("zstd-level={level}"),
            Format::Lz4 | Format::None => String::new(),
        };
        if self.layout == RecordLayout::Clustered {
            settings += " layout=clustered";
        }
        settings
    }
}

/// The level that is used unless told otherwise: what validators use since Agave 2.0.
pub const ZSTD_LEVEL_DEFAULT: i32 = 1;

/// The fastest level that slotpress offers; zstd accepts lower ones, which all but copy.
pub const ZSTD_LEVEL_MIN: i32 = -1000;

/// The strongest level of zstd.
pub const ZSTD_LEVEL_MAX: i32 = 22;

/// Whether zstd has this level: 0 stands for its own default, and is none.
pub fn is_zstd_level(level: i32) -> bool {
    level != 0 && (ZSTD_LEVEL_MIN..=ZSTD_LEVEL_MAX).contains(&level)
}

/// Compresses one frame after another, reusing its context.
pub struct FrameCompressor {
    codec: Codec,
    /// Where the format is zstd.
    context: Option<CCtx<'static>>,
}

impl FrameCompressor {
    /// A compressor for the codec.
    ///
    /// # Errors
    /// There is no memory for a context, or zstd refuses the level.
    pub fn new(codec: &Codec) -> Result<Self> {
        let mut this = Self { codec: codec.clone(), context: None };
        let Format::Zstd { level } = codec.format else { return Ok(this) };
        let mut context =
            CCtx::try_create().ok_or_else(|| Error::failed("not enough memory for a compression context"))?;
        for parameter in
            [CParameter::CompressionLevel(level), CParameter::ContentSizeFlag(true), CParameter::ChecksumFlag(true)]
        {
            context.set_parameter(parameter).map_err(|code| zstd_error("set a parameter", code))?;
        }
        this.context = Some(context);
        Ok(this)
    }

    /// Makes `content` a frame in `to`, replacing what it holds.
    ///
    /// # Errors
    /// zstd has no memory for it.
    pub fn compress(&mut self, content: &[u8], to: &mut Vec<u8>) -> Result<()> {
        slotpress_base::threads::panic_point("encoder");
        to.clear();
        match &mut self.context {
            Some(context) => {
                to.reserve(compress_bound(content.len()));
                context.compress2(to, content).map_err(|code| zstd_error("compress a frame", code))?;
            }
            None if self.codec.format == Format::Lz4 => lz4::append_blocks(content, to),
            None => to.extend_from_slice(content),
        }
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
    /// Storages in it of which some could not be clustered.
    pub left_as_is: u64,
    /// The hash of the frame, with zstd.
    pub hash: Option<FrameHash>,
}

/// Encodes every frame that `frames` yields, on `threads` workers. `fill` puts a frame's content into a buffer, which each
/// worker reuses, and returns its length; then it is clustered, where the codec says so; `on_frame` gets the frames in order, on the calling thread.
pub fn encode_linked_frames<F: Send>(
    frames: impl Iterator<Item = Result<(F, FrameLink)>> + Send,
    fill: &(dyn Fn(F, &mut Vec<u8>) -> Result<usize> + Sync),
    codec: &Codec,
    threads: usize,
    progress: &dyn Progress,
    on_frame: &mut dyn FnMut(EncodedFrame<'_>) -> Result<()>,
) -> Result<()> {
    let new_worker = || {
        let mut compressor = FrameCompressor::new(codec)?;
        let mut clusterer = (codec.layout == RecordLayout::Clustered).then(FrameClusterer::default);
        let mut content = Vec::new();
        Ok(move |(frame, link): (F, FrameLink), to: &mut Vec<u8>| {
            let content_bytes = fill(frame, &mut content)?;
            let content = &content[..content_bytes];
            let (content, left_as_is) = match &mut clusterer {
                Some(clusterer) => {
                    let (content, counts) = clusterer.cluster(content, link)?;
                    (content, counts.left_as_is)
                }
                None => (content, 0),
            };
            compressor.compress(content, to)?;
            // Here, on all cores, and not where frames are written.
            let hash = codec.is_zstd().then(|| frame_hash(&[], to));
            Ok((content_bytes as u64, left_as_is, hash))
        })
    };
    run_in_order(frames, threads, &new_worker, progress, &mut |bytes, (content_bytes, left_as_is, hash)| {
        on_frame(EncodedFrame { bytes, content_bytes, left_as_is, hash })?;
        progress.advance(content_bytes, bytes.len() as u64);
        Ok(())
    })
}
