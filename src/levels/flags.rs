//! The flags of `archive` for a measured codec.

use slotpress_encoder::Effort;

use super::{CLUSTERED_CODEC, REFERENCE_CODEC};
use crate::archive::encode::{Codec, Format};
use crate::archive::layout::RecordLayout;
use crate::archive::zstd_params::PRESET_SMALL;

/// What whole archives can be made with beside levels, as rows name it: `--preset`, with `--layout clustered` or without.
pub const PRESETS: [&str; 6] = ["fast", "balanced", "small", "clustered fast", "clustered balanced", "clustered small"];

/// What stands before a preset whose records are clustered.
const CLUSTERED: &str = "clustered ";

/// What `archive` writes with the codec or the preset of that name; `None` if it does not have it.
pub fn codec_of(name: &str, level: i32) -> Option<Codec> {
    let (layout, name) = match name.strip_prefix(CLUSTERED) {
        Some(preset) => (RecordLayout::Clustered, preset),
        None if name == CLUSTERED_CODEC => (RecordLayout::Clustered, REFERENCE_CODEC),
        None => (RecordLayout::Verbatim, name),
    };
    let format = match name {
        REFERENCE_CODEC => Codec::zstd(level).format,
        "fast" => Format::ZstdRecords(Effort::Fast),
        "balanced" => Format::ZstdRecords(Effort::Balanced),
        "small" => Format::Zstd { level: PRESET_SMALL.0, params: PRESET_SMALL.1.parse().ok()? },
        "lz4" => Format::Lz4,
        "none" => return Some(Codec::plain()),
        _ => return None,
    };
    Some(Codec { format, layout, ..Codec::zstd(level) })
}

/// The flags of `archive` and `recompress` that ask for a codec of [`codec_of`].
pub fn flags_of(codec: &Codec) -> String {
    let flags = match codec.format {
        Format::Zstd { level, params } if params.is_stock() => format!("--zstd-level {level}"),
        Format::Zstd { .. } => "--preset small".to_string(),
        Format::ZstdRecords(Effort::Fast) => "--preset fast".to_string(),
        Format::ZstdRecords(Effort::Balanced) => "--preset balanced".to_string(),
        Format::Lz4 => "--format lz4".to_string(),
        Format::None => "--format none".to_string(),
    };
    match codec.layout {
        RecordLayout::Verbatim => flags,
        RecordLayout::Clustered => format!("--layout clustered {flags}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_has_its_flags() {
        let flags: Vec<String> = PRESETS.iter().map(|name| flags_of(&codec_of(name, 0).expect(name))).collect();
        let presets = ["--preset fast", "--preset balanced", "--preset small"];
        assert_eq!(flags[..3], presets);
        assert_eq!(flags[3..], presets.map(|preset| format!("--layout clustered {preset}")));
        let clustered = codec_of(CLUSTERED_CODEC, 2).expect("a codec");
        assert_eq!(flags_of(&clustered), "--layout clustered --zstd-level 2");
    }
}
