//! An archive to read: what it is by its first bytes, and decoding it in order on all cores.

use {
    crate::{
        error::{Error, IoContext, Result},
        format::entry::{BLOCK_BYTES, Entry},
        pipeline::run_in_order,
        progress::Progress,
        restore::walk::{FrameWalker, Piece, Recycler, SeenFrame, undecodable},
    },
    std::{
        fs::File,
        io::{BufReader, Read, Seek},
        path::{Path, PathBuf},
    },
    zstd_safe::DCtx,
};

/// How a tar stream is compressed, by the first bytes of its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// zstd frames.
    Zstd,
    /// Not compressed.
    None,
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
        Ok(Self { path: path.to_path_buf(), file, length_bytes: metadata.len(), compression })
    }

    /// Decodes the archive, on `threads` workers where it has several frames, and hands the tar stream over in order.
    pub fn decode_in_order(
        &self,
        threads: usize,
        progress: &dyn Progress,
        on_content: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        self.decode_observed(threads, progress, Box::new(|_| ()), on_content)
    }

    /// The same, telling `on_frame` of every frame.
    pub fn decode_observed<'a>(
        &'a self,
        threads: usize,
        progress: &dyn Progress,
        on_frame: Box<dyn FnMut(SeenFrame<'_>) + Send + 'a>,
        on_content: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut file = &self.file;
        file.rewind().or_path("read", &self.path)?;
        decode_in_order(file, self.compression, threads, progress, on_frame, on_content).map_err(|error| {
            if error.kind() == crate::ErrorKind::Damaged { error.within(self.path.display()) } else { error }
        })
    }
}

/// What the first bytes say.
fn sniff(start: &[u8]) -> Result<Compression> {
    let other = match start {
        [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => return Ok(Compression::Zstd),
        [0x04, 0x22, 0x4d, 0x18, ..] => "lz4",
        [b'B', b'Z', b'h', ..] => "bzip2",
        [0x1f, 0x8b, ..] => "gzip",
        [] => return Err(Error::damaged("the file is empty").hint("the download did not start: download it again")),
        _ => {
            let block = start.try_into().ok();
            return match block.map(Entry::parse_header) {
                Some(Ok(_)) => Ok(Compression::None),
                _ => Err(Error::damaged("not a snapshot archive: neither zstd nor tar, by its first bytes")
                    .hint("a server's error page may have been saved in its place: look into the file")),
            };
        }
    };
    Err(Error::failed(format!("{other} archives are not read yet"))
        .hint(format!("unpack it with tar ({other} installed), then archive the directory")))
}

/// Decodes a stream in order, and tells `on_frame` of every frame.
pub fn decode_in_order<'a>(
    input: impl Read + Send + 'a,
    compression: Compression,
    threads: usize,
    progress: &dyn Progress,
    on_frame: Box<dyn FnMut(SeenFrame<'_>) + Send + 'a>,
    on_content: &mut dyn FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    match compression {
        Compression::Zstd => {
            decode_zstd(FrameWalker::new(input, Recycler::default()).observed(on_frame), threads, progress, on_content)
        }
        Compression::None => {
            /// Large reads: there is nothing to compute between them.
            const READ_BYTES: usize = 1024 * 1024;
            let mut input = BufReader::with_capacity(READ_BYTES, input);
            loop {
                progress.check()?;
                let bytes = std::io::BufRead::fill_buf(&mut input)
                    .map_err(|error| Error::failed(format!("cannot read the archive: {error}")))?;
                let length = bytes.len();
                if length == 0 {
                    return Ok(());
                }
                on_content(bytes)?;
                progress.advance(length as u64, length as u64);
                std::io::BufRead::consume(&mut input, length);
            }
        }
    }
}

fn decode_zstd(
    pieces: FrameWalker<'_, impl Read + Send>,
    threads: usize,
    progress: &dyn Progress,
    on_content: &mut dyn FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let recycler = pieces.recycler();
    let new_worker = || {
        let mut decoder = FrameDecoder::new()?;
        let recycler = recycler.clone();
        Ok(move |piece: Piece, to: &mut Vec<u8>| match piece {
            Piece::Frame { bytes, offset_bytes, content_bytes_max } => {
                decoder.decode(&bytes, offset_bytes, content_bytes_max, to)?;
                let compressed_bytes = bytes.len() as u64;
                recycler.give(bytes);
                Ok(compressed_bytes)
            }
            Piece::Content { mut bytes, compressed_bytes } => {
                std::mem::swap(to, &mut bytes);
                recycler.give(bytes);
                Ok(compressed_bytes)
            }
        })
    };
    run_in_order(pieces, threads, &new_worker, progress, &mut |content, compressed_bytes| {
        on_content(content)?;
        progress.advance(compressed_bytes, content.len() as u64);
        Ok(())
    })
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
}
