//! Detects the compression of an archive from its first bytes, whatever its name says.

use slotpress_base::{Error, Result};
use slotpress_format::{ArchiveCompression, Entry};

/// Detects the compression of an archive that begins with `start`. A plain tar is detected only if
/// `start` is a whole tar block of 512 bytes.
pub fn detect_compression(start: &[u8]) -> Result<ArchiveCompression> {
    match start {
        [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Ok(ArchiveCompression::Zstd),
        [0x04, 0x22, 0x4d, 0x18, ..] => Ok(ArchiveCompression::Lz4),
        [b'B', b'Z', b'h', ..] => Ok(ArchiveCompression::Bzip2),
        [0x1f, 0x8b, ..] => Ok(ArchiveCompression::Gzip),
        [] => Err(Error::damaged("the file is empty").with_hint("the download did not start: download it again")),
        _ => match start.try_into().ok().map(Entry::parse_header) {
            Some(Ok(_)) => Ok(ArchiveCompression::None),
            _ => Err(Error::damaged(
                "not a snapshot archive: its first bytes are neither those of a known compression nor those of a tar",
            )
            .with_hint("a server's error page may have been saved in its place: look into the file")),
        },
    }
}
