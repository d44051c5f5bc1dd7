//! The source of a recompression: a file, or a stream without a name.

use std::io::{BufRead, BufReader, Cursor, Read};
use std::path::Path;

use slotpress_base::{InterruptibleReader, IoContext, IoPolicy, PageCacheWatch, Progress, Result, read_at_most};
use slotpress_format::{ArchiveCompression, ArchiveName, BLOCK_LEN};
use slotpress_read::archive::compression::detect_compression;
use slotpress_read::archive::local::STANDARD_INPUT;
use slotpress_read::archive::source::SOURCE_PIECE_BYTES;
use slotpress_read::{LocalArchive, OpenArchive, PairMember};

use super::RecompressOptions;

pub enum RecompressInput<'a> {
    File {
        archive: Box<OpenArchive>,
        /// Dropped after `archive`. Dropping it removes from the page cache the pages of the file
        /// that were not there before, such as the first pages.
        _watch: PageCacheWatch,
    },
    Stream {
        reader: Box<dyn Read + Send + 'a>,
        compression: ArchiveCompression,
    },
}

impl<'a> RecompressInput<'a> {
    /// Opens the archive and reads its first bytes. If `interrupt` asks to stop while a stream sends
    /// nothing, an error ends the wait.
    pub fn open(options: &RecompressOptions, interrupt: &'a dyn Progress) -> Result<Self> {
        match &options.archive {
            LocalArchive::File(path) => {
                let _watch = options.encoding.io_policy.io_hint.watch([path]);
                // The file is read in order. Of its index, only the settings of the writer are used.
                let archive = OpenArchive::open(path, &options.encoding.io_policy)?;
                Ok(Self::File { archive: Box::new(archive), _watch })
            }
            LocalArchive::Stream(stream) => {
                let file = stream.try_clone().or_path("open", Path::new(STANDARD_INPUT))?;
                let mut reader = InterruptibleReader::new(file, interrupt);
                let start = read_at_most(&mut reader, BLOCK_LEN as u64, Path::new(STANDARD_INPUT))?;
                let compression = detect_compression(&start).map_err(|error| error.with_place(STANDARD_INPUT))?;
                Ok(Self::Stream { reader: Box::new(Cursor::new(start).chain(reader)), compression })
            }
        }
    }

    /// Returns the archive in a file; `None` for a stream.
    pub fn archive(&self) -> Option<&OpenArchive> {
        match self {
            Self::File { archive, .. } => Some(archive),
            Self::Stream { .. } => None,
        }
    }

    pub fn name(&self) -> Option<&ArchiveName> {
        self.archive()?.name.as_ref()
    }

    pub fn path(&self) -> &Path {
        self.archive().map_or(Path::new(STANDARD_INPUT), OpenArchive::path)
    }

    pub fn as_member(&self, base_slot: Option<u64>) -> PairMember<'_> {
        let member = match self.archive() {
            Some(archive) => PairMember::from_archive(archive, None),
            None => PairMember::new(Path::new(STANDARD_INPUT), None),
        };
        PairMember { base_slot, ..member }
    }

    pub fn length_bytes(&self) -> Option<u64> {
        self.archive()?.source.length_bytes()
    }

    /// Calls `work` with the compressed bytes and their compression. At most `ahead_bytes_max` of a
    /// file are read ahead.
    pub fn read_stream<R>(
        &mut self,
        io_policy: &IoPolicy,
        ahead_bytes_max: u64,
        progress: &dyn Progress,
        work: impl FnOnce(Box<dyn BufRead + Send + '_>, ArchiveCompression) -> Result<R>,
    ) -> Result<R> {
        match self {
            Self::File { archive, .. } => {
                archive.with_stream(ahead_bytes_max, progress, |stream| work(stream, archive.compression))
            }
            Self::Stream { reader, compression } => {
                let stream = BufReader::with_capacity(SOURCE_PIECE_BYTES, io_policy.pace(reader, progress));
                work(Box::new(stream), *compression)
            }
        }
    }
}
