//! What to give to `archive` for what was measured.

use {
    super::REFERENCE_CODEC,
    crate::archive::encode::{Codec, Format},
};

/// What `archive` makes with the codec of that name, which is [`FrameCodec::name`](super::codec::FrameCodec::name); `None`
/// of a codec that it does not have.
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
        Format::Lz4 => "--format lz4".to_string(),
        Format::None => "--format none".to_string(),
    }
}
