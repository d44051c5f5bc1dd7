//! The flags of `archive` for a measured codec.

use {
    super::REFERENCE_CODEC,
    crate::archive::encode::{Codec, Format},
    slotpress_encoder::Effort,
};

/// What `archive` writes with the codec of that name; `None` if it does not have it.
pub fn codec_of(name: &str, level: i32) -> Option<Codec> {
    match name {
        REFERENCE_CODEC => Some(Codec::zstd(level)),
        "lz4" => Some(Codec { format: Format::Lz4, ..Codec::zstd(level) }),
        "none" => Some(Codec::plain()),
        _ => None,
    }
}

/// The flags of `archive` and `recompress` that ask for a codec of [`codec_of`].
pub fn flags_of(codec: &Codec) -> String {
    match codec.format {
        Format::Zstd { level, .. } => format!("--zstd-level {level}"),
        Format::ZstdRecords(Effort::Fast) => "--preset fast".to_string(),
        Format::ZstdRecords(Effort::Balanced) => "--preset balanced".to_string(),
        Format::Lz4 => "--format lz4".to_string(),
        Format::None => "--format none".to_string(),
    }
}
