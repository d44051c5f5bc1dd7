//! Options and kinds of input, and frames of content.

use slotpress_format::LedgerPaths;

use crate::archive::layout::Carry;

/// Held in memory without `--sample`: 128 frames of 8 MiB, a sample that gives the size of a ledger to about 1 %
/// (docs/levels.md).
pub const MEMORY_BYTES_MAX: u64 = 1 << 30;

/// The input, and the size of the sample.
#[derive(Clone, Debug)]
pub struct InputOptions {
    /// A ledger or an unpacked archive, with its other directories; or, as `ledger`, any archive or file.
    pub paths: LedgerPaths,
    /// The bank snapshot of a ledger; the newest complete one otherwise.
    pub slot: Option<u64>,
    /// Take a ledger as its incremental archive on this slot.
    pub base_slot: Option<u64>,
    /// Bytes of content in a frame.
    pub frame_size_bytes: u64,
    /// Bytes of the sample; `None`: all, up to [`InputOptions::memory_bytes_max`].
    pub sample_bytes: Option<u64>,
    /// The seed of the sample.
    pub seed: u64,
    /// Maximum bytes of content in memory if no sample size is given.
    pub memory_bytes_max: u64,
    /// Workers that read.
    pub threads: usize,
}

/// The kind of input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputKind {
    /// A ledger directory.
    Ledger,
    /// The tree of an archive.
    UnpackedArchive,
    /// A snapshot archive, compressed or not.
    Archive,
    /// Any other file; its bytes, decompressed if it is compressed.
    File,
}

impl InputKind {
    /// For people, without an article.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ledger => "ledger",
            Self::UnpackedArchive => "unpacked archive",
            Self::Archive => "archive",
            Self::File => "file",
        }
    }
}

/// The content of a frame.
#[derive(Debug)]
pub struct ContentFrame {
    /// The bytes to compress.
    pub content: Vec<u8>,
    /// Bytes before the first entry of a tar stream; more than 0 if the frame begins inside an entry.
    pub until_entry_bytes: u64,
    /// For clustering, of a frame that begins inside an entry of a tar stream.
    pub carry: Option<Carry>,
}

impl ContentFrame {
    /// A frame that begins with an entry.
    pub fn new(content: Vec<u8>) -> Self {
        Self { content, until_entry_bytes: 0, carry: None }
    }
}
