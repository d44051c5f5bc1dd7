//! Recognizes the compression of an archive by its first bytes. Its name does not count.

#![warn(missing_docs)]

use serde::Serialize;
use slotpress_base::{Error, Result};
use slotpress_format::Entry;
use slotpress_format::ledger::names::Extension;

#[allow(missing_docs, reason = "the names say it")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    Zstd,
    Lz4,
    /// bzip2; Agave wrote such archives until 2024.
    Bzip2,
    /// gzip; Agave wrote such archives until 2024.
    Gzip,
    None,
}

impl Compression {
    /// The file name extension of an archive with this compression.
    pub fn extension(self) -> Extension {
        match self {
            Self::Zstd => Extension::TarZstd,
            Self::Lz4 => Extension::TarLz4,
            Self::Bzip2 => Extension::TarBzip2,
            Self::Gzip => Extension::TarGzip,
            Self::None => Extension::Tar,
        }
    }

    /// The name that `--format` and `--json` use.
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

/// Recognizes the compression from the first bytes; `start` should hold a tar block (512 bytes).
pub fn sniff(start: &[u8]) -> Result<Compression> {
    match start {
        [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Ok(Compression::Zstd),
        [0x04, 0x22, 0x4d, 0x18, ..] => Ok(Compression::Lz4),
        [b'B', b'Z', b'h', ..] => Ok(Compression::Bzip2),
        [0x1f, 0x8b, ..] => Ok(Compression::Gzip),
        [] => Err(Error::damaged("the file is empty").with_hint("the download did not start: download it again")),
        _ => match start.try_into().ok().map(Entry::parse_header) {
            Some(Ok(_)) => Ok(Compression::None),
            _ => Err(Error::damaged("not a snapshot archive: no known compression and not a tar, by its first bytes")
                .with_hint("a server's error page may have been saved in its place: look into the file")),
        },
    }
}
