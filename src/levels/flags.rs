//! What to give to `archive` for what was measured.

use {
    super::REFERENCE_CODEC,
    crate::archive::{
        encode::{Codec, Format, ZSTD_LEVEL_DEFAULT},
        layout::RecordLayout,
    },
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

/// The flags of `archive` and `recompress` that ask for a codec, whose parameters may be those of a preset.
pub fn flags_of(codec: &Codec, preset: Option<&str>) -> String {
    let layout = match codec.layout {
        RecordLayout::Verbatim => "",
        RecordLayout::Clustered => "--layout clustered ",
    };
    let format = match (&codec.format, preset) {
        (_, Some(preset)) => format!("--preset {preset}"),
        (Format::Zstd { level, params }, _) if params.is_stock() => format!("--zstd-level {level}"),
        (Format::Zstd { level: ZSTD_LEVEL_DEFAULT, params }, _) => format!("--zstd-params {params}"),
        (Format::Zstd { level, params }, _) => format!("--zstd-level {level} --zstd-params {params}"),
        (Format::Lz4, _) => "--format lz4".to_string(),
        (Format::None, _) => "--format none".to_string(),
    };
    format!("{layout}{format}")
}
