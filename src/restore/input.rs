//! An archive to read: what it is by its first bytes, and decoding it in order on all cores.

use {
    crate::{
        error::{Error, ErrorKind, IoContext, Result},
        format::entry::{BLOCK_BYTES, Entry},
        io::{Manners, reader::StreamReader},
        ledger::names::Extension,
        pipeline::run_in_order,
        progress::Progress,
        restore::{
            streams::StreamPieces,
            walk::{FrameStatistics, FrameWalker, OnFrame, Piece, Recycler, undecodable},
        },
    },
    std::{
        fs::File,
        io::{Read, Seek},
        path::{Path, PathBuf},
    },
    zstd_safe::DCtx,
};

/// How a tar stream is compressed, by the first bytes of its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// zstd frames.
    Zstd,
    /// An lz4 frame.
    Lz4,
    /// bzip2, from before 2024.
    Bzip2,
    /// gzip, from before 2024.
    Gzip,
    /// Not compressed.
    None,
}

impl Compression {
    /// The ending of an archive's file name.
    pub fn extension(self) -> Extension {
        match self {
            Self::Zstd => Extension::TarZstd,
            Self::Lz4 => Extension::TarLz4,
            Self::Bzip2 => Extension::TarBzip2,
            Self::Gzip => Extension::TarGzip,
            Self::None => Extension::Tar,
        }
    }

    /// Its name, as `--format` calls it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Zstd => "zstd",
            Self::Lz4 => "lz4",
            Self::Bzip2 => "bzip2",
            Self::Gzip => "gzip",
            Self::None => "none",
        }
    }
}

/// An open archive file.
#[derive(Debug)]
pub struct ArchiveFile {
    /// Its path.
    pub path: PathBuf,
    /// The open file.
    pub file: File,
    /// Its length in bytes.
    pub length_bytes: u64,
    /// How it is compressed.
    pub compression: Compression,
    /// How it is read.
    pub manners: Manners,
}

impl ArchiveFile {
    /// Opens an archive and looks at its first bytes; the name does not matter.
    pub fn open(path: &Path) -> Result<Self> {
        let mut file = File::open(path).or_path("open", path)?;
        let metadata = file.metadata().or_path("read", path)?;
        if !metadata.is_file() {
            return Err(Error::failed(format!("{} is not a file", path.display())));
        }
        let mut start = Vec::new();
        file.by_ref().take(BLOCK_BYTES).read_to_end(&mut start).or_path("read", path)?;
        file.rewind().or_path("read", path)?;
        let compression = sniff(&start).map_err(|error| error.within(path.display()))?;
        Ok(Self {
            path: path.to_path_buf(),
            file,
            length_bytes: metadata.len(),
            compression,
            manners: Manners::default(),
        })
    }

    /// Decodes the archive, on `threads` workers where it has several frames, and hands the tar stream over in order.
    /// Returns what its frames are like.
    pub fn decode_in_order(
        &self,
        threads: usize,
        progress: &dyn Progress,
        on_content: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<FrameStatistics> {
        self.decode_observed(threads, progress, Box::new(|_| ()), &mut stop_at_loss(on_content))
    }

    /// The same, telling `on_frame` of every frame, and of those that do not decode.
    pub fn decode_observed<'a>(
        &'a self,
        threads: usize,
        progress: &dyn Progress,
        on_frame: OnFrame<'a>,
        on_decoded: &mut dyn FnMut(Decoded<'_>) -> Result<()>,
    ) -> Result<FrameStatistics> {
        let file = StreamReader::new(&self.file, &self.path, self.length_bytes, self.manners.io_hint);
        let file = self.manners.paced(file, progress);
        decode_observed(file, self.compression, threads, progress, on_frame, on_decoded).map_err(|error| {
            if error.kind() == crate::ErrorKind::Damaged { error.within(self.path.display()) } else { error }
        })
    }
}

/// What the first bytes say.
pub fn sniff(start: &[u8]) -> Result<Compression> {
    match start {
        [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Ok(Compression::Zstd),
        [0x04, 0x22, 0x4d, 0x18, ..] => Ok(Compression::Lz4),
        [b'B', b'Z', b'h', ..] => Ok(Compression::Bzip2),
        [0x1f, 0x8b, ..] => Ok(Compression::Gzip),
        [] => Err(Error::damaged("the file is empty").hint("the download did not start: download it again")),
        _ => match start.try_into().ok().map(Entry::parse_header) {
            Some(Ok(_)) => Ok(Compression::None),
            _ => Err(Error::damaged("not a snapshot archive: no known compression and not a tar, by its first bytes")
                .hint("a server's error page may have been saved in its place: look into the file")),
        },
    }
}

/// Decodes a stream in order, and returns what its frames are like.
pub fn decode_in_order(
    input: impl Read + Send,
    compression: Compression,
    threads: usize,
    progress: &dyn Progress,
    on_content: &mut dyn FnMut(&[u8]) -> Result<()>,
) -> Result<FrameStatistics> {
    decode_observed(input, compression, threads, progress, Box::new(|_| ()), &mut stop_at_loss(on_content))
}

/// What comes out of decoding, in the order of the stream.
#[derive(Debug)]
pub enum Decoded<'a> {
    /// Bytes of tar.
    Content(&'a [u8]),
    /// A frame does not decode, but its end is known, so that the next can be read.
    Lost(LostFrame),
}

/// A frame whose content is lost.
#[derive(Clone, Debug)]
pub struct LostFrame {
    /// Which of the frames that hold content it is, from 0.
    pub number: u64,
    /// Bytes of content, where the frame states it.
    pub content_bytes: Option<u64>,
    /// Why it does not decode; says where it starts.
    pub error: Error,
}

/// For who has no use for what follows a lost frame.
fn stop_at_loss(on_content: &mut dyn FnMut(&[u8]) -> Result<()>) -> impl FnMut(Decoded<'_>) -> Result<()> {
    |decoded| match decoded {
        Decoded::Content(bytes) => on_content(bytes),
        Decoded::Lost(lost) => Err(lost.error),
    }
}

/// The same, telling `on_frame` of every frame, and of those that do not decode.
pub fn decode_observed<'a>(
    input: impl Read + Send + 'a,
    compression: Compression,
    threads: usize,
    progress: &dyn Progress,
    on_frame: OnFrame<'a>,
    on_decoded: &mut dyn FnMut(Decoded<'_>) -> Result<()>,
) -> Result<FrameStatistics> {
    let recycler = Recycler::default();
    let new_worker = || {
        let mut decoder = FrameDecoder::new()?;
        let recycler = recycler.clone();
        Ok(move |piece: Piece, to: &mut Vec<u8>| match piece {
            Piece::Frame { bytes, number, offset_bytes, content_bytes, content_bytes_max } => {
                let lost = match decoder.decode(&bytes, offset_bytes, content_bytes_max, to) {
                    Ok(()) => None,
                    Err(error) if error.kind() == ErrorKind::Damaged => {
                        Some(LostFrame { number, content_bytes, error })
                    }
                    Err(error) => return Err(error),
                };
                let compressed_bytes = bytes.len() as u64;
                recycler.give(bytes);
                Ok((compressed_bytes, lost))
            }
            Piece::Content { mut bytes, compressed_bytes } => {
                std::mem::swap(to, &mut bytes);
                recycler.give(bytes);
                Ok((compressed_bytes, None))
            }
        })
    };
    let mut statistics = None;
    let pieces: Box<dyn Iterator<Item = Result<Piece>> + Send + '_> = match compression {
        Compression::Zstd => {
            let walker = FrameWalker::new(input, recycler.clone()).observed(on_frame);
            statistics = Some(walker.statistics());
            Box::new(walker)
        }
        _ => Box::new(StreamPieces::new(input, compression, recycler.clone())),
    };
    run_in_order(pieces, threads, &new_worker, progress, &mut |content, (compressed_bytes, lost)| {
        match lost {
            Some(lost) => on_decoded(Decoded::Lost(lost))?,
            None => on_decoded(Decoded::Content(content))?,
        }
        progress.advance(compressed_bytes, content.len() as u64);
        Ok(())
    })?;
    Ok(statistics.and_then(|statistics| statistics.lock().ok().map(|statistics| *statistics)).unwrap_or_default())
}

/// Decodes one whole frame after another, reusing its context.
pub struct FrameDecoder {
    context: DCtx<'static>,
}

impl FrameDecoder {
    /// A decoder.
    pub fn new() -> Result<Self> {
        let context = DCtx::try_create().ok_or_else(|| Error::failed("not enough memory to decompress"))?;
        Ok(Self { context })
    }

    /// Decodes a frame into `to`, replacing what it holds. `offset_bytes` says where the frame is, for errors.
    pub fn decode(&mut self, frame: &[u8], offset_bytes: u64, content_bytes_max: u64, to: &mut Vec<u8>) -> Result<()> {
        to.clear();
        to.reserve(content_bytes_max as usize);
        self.context.decompress(to, frame).map_err(|code| undecodable(offset_bytes, code))?;
        Ok(())
    }

    /// Bytes that the context takes.
    pub fn context_bytes(&self) -> usize {
        self.context.sizeof()
    }
}
