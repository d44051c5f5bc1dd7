//! Recognizes the compression of an archive by its first bytes. Its name does not count.

#![warn(missing_docs)]

use slotpress_base::{Error, Result};
use slotpress_format::Entry;
use slotpress_format::ledger::names::Extension;

/// Returns the extension of archives that begin like this; `start` should hold a tar block (512
/// bytes).
pub fn sniff(start: &[u8]) -> Result<Extension> {
    match start {
        [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Ok(Extension::TarZstd),
        [0x04, 0x22, 0x4d, 0x18, ..] => Ok(Extension::TarLz4),
        [b'B', b'Z', b'h', ..] => Ok(Extension::TarBzip2),
        [0x1f, 0x8b, ..] => Ok(Extension::TarGzip),
        [] => Err(Error::damaged("the file is empty").with_hint("the download did not start: download it again")),
        _ => match start.try_into().ok().map(Entry::parse_header) {
            Some(Ok(_)) => Ok(Extension::Tar),
            _ => Err(Error::damaged("not a snapshot archive: no known compression and not a tar, by its first bytes")
                .with_hint("a server's error page may have been saved in its place: look into the file")),
        },
    }
}
