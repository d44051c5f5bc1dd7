//! What an input is, and the frames of its content, as they are measured.

use slotpress_format::ledger::directory::LedgerPaths;

/// What is held in memory unless more is asked for: at 8 MiB frames, a sample of 128, which is within about 1 % of the
/// size of a ledger (docs/levels.md).
pub const MEMORY_BYTES_MAX: u64 = 1 << 30;

/// What to read, and how much of it.
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
    /// How much to take as a sample; all, or [`InputOptions::memory_bytes_max`], otherwise.
    pub sample_bytes: Option<u64>,
    /// What the random draws of the sample start from.
    pub seed: u64,
    /// The most content that is held in memory without being asked to.
    pub memory_bytes_max: u64,
    /// Workers that read.
    pub threads: usize,
}

/// What sort of input it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputKind {
    /// A ledger directory.
    Ledger,
    /// The tree of an archive.
    UnpackedArchive,
    /// A snapshot archive, compressed or not.
    Archive,
    /// Any other file, taken as its bytes (decompressed, where it is compressed).
    File,
}

impl InputKind {
    /// In words, without an article.
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
    /// Bytes until the first entry of a tar stream begins: more than 0 where the frame begins inside one.
    pub until_entry_bytes: u64,
}

impl ContentFrame {
    /// A frame of these bytes, which begin with an entry.
    pub fn new(content: Vec<u8>) -> Self {
        Self { content, until_entry_bytes: 0 }
    }
}
