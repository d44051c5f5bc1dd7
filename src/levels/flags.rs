//! What `archive` calls a measured codec.

use slotpress_format::ledger::names::Extension;

use super::{CLUSTERED_CODEC, REFERENCE_CODEC};

/// The format that `archive` writes with the codec of that name; `None` if it does not have it.
pub fn format_of(codec: &str) -> Option<Extension> {
    match codec {
        REFERENCE_CODEC | CLUSTERED_CODEC => Some(Extension::TarZstd),
        "lz4" => Some(Extension::TarLz4),
        "none" => Some(Extension::Tar),
        _ => None,
    }
}

/// The flags of `archive` and `recompress` that ask for it.
pub fn flags_of(codec: &str, level: i32) -> String {
    match codec {
        REFERENCE_CODEC => format!("--zstd-level {level}"),
        CLUSTERED_CODEC => format!("--layout clustered --zstd-level {level}"),
        format => format!("--format {format}"),
    }
}
